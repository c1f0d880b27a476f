"""The floors of the house, read from the import graph, and what an import may cost."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from import_graph import FLOORS, MODULES, PREFECT_FILES, SHARED_BY_TASKS, floor, imported, imports, science, trespasses


@pytest.mark.parametrize(
    ("name", "line", "allowed"),
    [
        ("gradatim.schemas.tables", "from gradatim.storage import store", False),
        ("gradatim.storage.store", "from gradatim.schemas.errors import UsageError", True),
        ("gradatim.storage.store", "import gradatim.tasks.core.registry", False),
        ("gradatim.tasks.core.ranks", "from gradatim.tasks.difficulty import irt", False),
        ("gradatim.tasks.splits.group", "from gradatim.tasks.core.ranks import x", True),
        ("gradatim.tasks.splits.group", "from gradatim.tasks.splits.result import x", True),
        ("gradatim.tasks.splits.group", "from gradatim.tasks.difficulty import irt", False),
        ("gradatim.tasks.splits.group", "def f():\n    from gradatim.tasks.difficulty import irt", False),
        ("gradatim.tasks.splits.group", "from ..difficulty import irt", False),
        ("gradatim.tasks.splits.group", "from .result import Split", True),
        ("gradatim.tasks.splits.group", "from gradatim import irt", False),
        ("gradatim.flows.curate", "from gradatim.tasks.splits.task import build", True),
        ("gradatim.flows.curate", "import gradatim", False),
        ("gradatim.functions", "from gradatim.flows.curate import curate", True),
    ],
)
def test_the_test_itself_knows_a_trespass(name: str, line: str, allowed: bool) -> None:
    assert (trespasses(name, line) == []) is allowed


@pytest.mark.parametrize("name", MODULES)
def test_a_room_imports_only_from_the_floors_below(name: str) -> None:
    path = MODULES[name]
    assert trespasses(name, path.read_text(encoding="utf-8"), package=path.name == "__init__.py") == []


@pytest.mark.parametrize("name", [name for name in MODULES if science(name)])
def test_science_imports_no_prefect_no_great_expectations_and_no_storage(name: str) -> None:
    targets = [target for target, _ in imports(name, MODULES[name].read_text(encoding="utf-8"))]
    assert [t for t in targets if imported(t, "prefect", "great_expectations", "gradatim.storage")] == []


def test_no_science_reaches_the_store_by_way_of_what_the_tasks_share() -> None:
    users = {
        n for n, path in MODULES.items() for t, _ in imports(n, path.read_text("utf-8")) if imported(t, SHARED_BY_TASKS)
    }
    assert [name for name in users if science(name)] == []


def test_prefect_is_imported_by_flows_and_the_thin_files_alone() -> None:
    users = {n for n, path in MODULES.items() for t, _ in imports(n, path.read_text("utf-8")) if imported(t, "prefect")}
    assert [n for n in users if floor(n)[0] < FLOORS["flows"] and n.split(".")[-1] not in PREFECT_FILES] == []


def test_great_expectations_stays_behind_one_module_and_is_imported_when_it_audits() -> None:
    found = {
        (name, at_once)
        for name, path in MODULES.items()
        for target, at_once in imports(name, path.read_text(encoding="utf-8"))
        if imported(target, "great_expectations")
    }
    assert len({name for name, _ in found}) <= 1
    assert not any(at_once for _, at_once in found)


def run(code: str) -> dict[str, object]:
    """Run code in a fresh interpreter; it prints one JSON object."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


TIMED = """
import sys, time, json
before = set(sys.modules)
start = time.perf_counter()
import gradatim
seconds = time.perf_counter() - start
print(json.dumps({"seconds": seconds, "modules": sorted({m.split(".")[0] for m in set(sys.modules) - before})}))
"""


def test_importing_gradatim_takes_less_than_half_a_second_and_touches_nothing_heavy() -> None:
    # the fastest of a few: another process on the machine must not fail it
    tries = [run(TIMED) for _ in range(3)]
    assert min(float(str(t["seconds"])) for t in tries) < 0.5
    heavy = {"torch", "deepspeed", "prefect", "great_expectations", "sklearn", "scipy", "altair", "pandas", "deltalake"}
    assert heavy & set(tries[0]["modules"]) == set()  # type: ignore[call-overload]


PLUGINS = """
import sys, json
from gradatim.tasks.core.registry import AREAS, plugins
found = sum(len(plugins(area)) for area in AREAS)
print(json.dumps({"found": found, "modules": sorted({m.split(".")[0] for m in sys.modules})}))
"""


def test_listing_every_plugin_touches_nothing_heavy() -> None:
    listed = run(PLUGINS)
    assert int(str(listed["found"])) >= 15
    heavy = {"torch", "deepspeed", "prefect", "great_expectations", "sklearn", "altair", "vl_convert", "pandas"}
    assert heavy & set(listed["modules"]) == set()  # type: ignore[call-overload]
