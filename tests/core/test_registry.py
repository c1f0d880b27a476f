"""Plug-ins: found by area, configured with errors that name the path, and never a dead command line."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import Field, field_validator

from gradatim.schemas.errors import UsageError
from gradatim.schemas.recipe import Step
from gradatim.tasks.core import registry
from gradatim.tasks.core.registry import AREAS, Config, Cost, configure, get, plugins, register, resolve


class ToyConfig(Config):
    """Settings of the toy."""

    column: str = Field("id", description="a column")
    share: float = Field(0.5, ge=0, le=1, description="a share")
    mode: str = Field("a", pattern="a|b", description="a mode")

    @field_validator("column")
    @classmethod
    def _lower(cls, found: str) -> str:
        if found != found.lower():
            raise ValueError(f"found {found!r}; columns here are lower case")
        return found


def toy(tables: object, config: ToyConfig, seed: int) -> str:
    """Does nothing, with care.

    Further lines are not printed.
    """
    return f"{config.column} {seed}"


@pytest.fixture(autouse=True)
def fresh_registry() -> Iterator[None]:
    """Leave the registry as it was, with every built-in plug-in loaded: a module registers only at its first import."""
    for area in AREAS:
        plugins(area)
    kept = dict(registry._plugins)
    yield
    registry._plugins.clear()
    registry._plugins.update(kept)


@pytest.fixture
def registered() -> None:
    register(
        "difficulty",
        "toy",
        config=ToyConfig,
        needs=("examples.{column}",),
        cost=lambda rows, width: Cost(rows * 1e-6, rows * 8.0),
        source="Nobody (2020). Nothing.",
    )(toy)


@pytest.mark.usefixtures("registered")
def test_a_registered_function_stays_a_plain_function_and_is_found() -> None:
    found = get("difficulty", "toy")
    assert found.run is toy
    assert found.summary == "Does nothing, with care."
    assert (found.revision, found.maturity, found.row_wise) == (1, "stable", False)
    assert found.cost(1000, 1).bytes == 8000
    assert "toy" in plugins("difficulty")
    assert "toy" not in plugins("split")


@pytest.mark.usefixtures("registered")
def test_an_unknown_name_is_answered_with_the_valid_ones_and_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"recipe: difficulty\[0\]: there is no difficulty 'tyo'") as caught:
        get("difficulty", "tyo", where="recipe: difficulty[0]")
    assert "(did you mean 'toy'?)" in caught.value.what
    assert "toy" in caught.value.expected


def test_listing_an_unknown_area_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'difficulty'"):
        plugins("dificulty")


def test_an_unknown_area_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"no plug-in area 'splits' \(did you mean 'split'\?\)"):
        register("splits", "x", config=Config, cost=lambda rows, width: Cost(0, 0), source="")


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(
    ("settings", "where", "what"),
    [
        ({"colunm": "a"}, "r.yaml: difficulty[0].toy.colunm", "unknown key 'colunm' (did you mean 'column'?)"),
        ({"share": "half"}, "r.yaml: difficulty[0].toy.share", "found 'half'"),
        ({"share": 2}, "r.yaml: difficulty[0].toy.share", "found 2"),
        ({"column": 3}, "r.yaml: difficulty[0].toy.column", "found 3"),
        ({"column": "ID"}, "r.yaml: difficulty[0].toy.column", "found 'ID'; columns here are lower case"),
    ],
)
def test_a_wrong_setting_names_its_path_in_the_recipe(settings: dict[str, object], where: str, what: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve("difficulty", Step(method="toy", settings=settings), where="r.yaml: difficulty[0]")
    assert caught.value.where == where
    assert what in caught.value.what


@pytest.mark.usefixtures("registered")
def test_without_a_recipe_an_error_names_the_method() -> None:
    with pytest.raises(UsageError, match="difficulty toy: share: found 2"):
        configure(get("difficulty", "toy"), {"share": 2})
    with pytest.raises(UsageError, match=r"toy.*share: found 2"):
        resolve("difficulty", Step(method="toy", settings={"share": 2}))


@pytest.mark.usefixtures("registered")
def test_settings_are_checked_and_frozen() -> None:
    plugin, config = resolve("difficulty", Step(method="toy", settings={"column": "n"}))
    assert config == ToyConfig(column="n")
    assert plugin.run({}, config, 3) == "n 3"
    with pytest.raises(ValueError, match="frozen"):
        config.column = "m"  # type: ignore[attr-defined]


PLUGIN = """
from gradatim.tasks.core.registry import Config, Cost, register

@register("difficulty", "{name}", config=Config, cost=lambda rows, width: Cost(0, 0), source="")
def run(tables, config, seed):
    '''From outside.'''
"""


def install(folder: Path, module: str, source: str) -> None:
    """Lay a distribution with one entry point, as pip would."""
    (folder / f"{module}.py").write_text(textwrap.dedent(source))
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[gradatim.plugins]\n{module} = {module}\n")


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path; what is installed there is found at the next look."""
    plugins("difficulty")
    monkeypatch.syspath_prepend(tmp_path)
    registry._load.cache_clear()
    registry._load_entry_points.cache_clear()
    yield tmp_path
    registry._load.cache_clear()
    registry._load_entry_points.cache_clear()


def test_a_plugin_of_another_package_is_found_by_its_entry_point(outside: Path) -> None:
    install(outside, "gradatim_test_good", PLUGIN.format(name="from_outside"))
    assert get("difficulty", "from_outside").summary == "From outside."


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(
    "source",
    ["import nowhere_to_be_found", "raise SystemExit(3)", "this is no python", PLUGIN.format(name="toy")],
    ids=["ImportError", "SystemExit", "SyntaxError", "a name that is taken"],
)
def test_a_broken_plugin_is_a_warning_and_the_others_stay(outside: Path, source: str) -> None:
    plugins("difficulty")
    registry._load.cache_clear()
    registry._load_entry_points.cache_clear()
    before = {name: plugin for (area, name), plugin in registry._plugins.items() if area == "difficulty"}
    assert "toy" in before
    module = f"gradatim_test_broken_{abs(hash(source))}"
    install(outside, module, source)
    with pytest.warns(UserWarning, match=f"plug-in '{module}'.* does not load"):
        after = plugins("difficulty")
    assert after == before


def test_a_built_in_method_keeps_its_name_even_if_another_package_came_first(registered: None) -> None:
    def run(tables: object, config: Config, seed: int) -> None:
        """Built in."""

    run.__module__ = "gradatim.tasks.difficulty.toy"
    with pytest.warns(UserWarning, match="the built-in one is used"):
        register("difficulty", "toy", config=Config, cost=lambda rows, width: Cost(0, 0), source="")(run)
    assert get("difficulty", "toy").run is run


@pytest.mark.parametrize("area", AREAS)
def test_every_built_in_plugin_says_what_it_is(area: str) -> None:
    found = plugins(area)
    assert found, f"no plug-in of the area {area}"
    for plugin in found.values():
        if not plugin.run.__module__.startswith("gradatim."):
            continue
        assert plugin.summary.endswith("."), plugin.name
        assert len(plugin.summary) <= 120, plugin.name
        assert plugin.source, plugin.name
        assert plugin.revision >= 1
        assert all(need.count(".") == 1 or need[0] + need[-1] == "{}" for need in plugin.needs), plugin.needs
        lacking = [name for name, field in plugin.config.model_fields.items() if not field.description]
        assert lacking == [], f"{plugin.name}: settings without a description"
        small, large = plugin.cost(1_000, 10), plugin.cost(1_000_000, 10)
        assert 0 <= small.seconds <= large.seconds, plugin.name
        assert 0 <= small.bytes <= large.bytes, plugin.name
        assert large.seconds > 0, plugin.name
        assert large.bytes > 0, plugin.name
