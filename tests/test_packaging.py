"""What is built and installed: the whole tree under one name, with every dependency declared and pinned."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from import_graph import MODULES, ROOMS, ROOT, imported, imports
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import gradatim

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
NOT_IMPORTED = {
    "pandas": "the engine that Great Expectations validates with",
    "vl-convert-python": "Altair saves a chart as PNG through it",
}

COMES_WITH = {"pydantic_core": "pydantic", "markupsafe": "jinja2"}
"""Packages that another one brings as a part of its own interface."""


def requirements(extra: str | None = None) -> list[Requirement]:
    project = PROJECT["project"]
    return [
        Requirement(line) for line in (project["optional-dependencies"][extra] if extra else project["dependencies"])
    ]


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    found = [line.split("==") for line in lines if line and not line.startswith("#")]
    assert all(len(pin) == 2 for pin in found)
    return {canonicalize_name(name): version for name, version in found}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy so that no earlier build leaks into it."""
    copy = tmp_path_factory.mktemp("build") / "project"
    copy.mkdir()
    for room in ROOMS:
        shutil.copytree(ROOT / room, copy / room, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(copy / "dist"), str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = (copy / "dist").glob("*.whl")
    return built


def test_the_wheel_holds_every_file_of_the_rooms_and_nothing_else(wheel: Path) -> None:
    tree = wheel.parents[1]  # the copy that it was built from
    expected = {
        f"{package.replace('.', '/')}/{path.relative_to(tree / room).as_posix()}"
        for room, package in ROOMS.items()
        for path in (tree / room).rglob("*")
        if path.is_file()
    }
    assert len(expected) > 50
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert sorted(expected - names) == []
    assert sorted(names - expected) == []
    assert "gradatim/py.typed" in names


def test_the_wheel_puts_one_name_into_site_packages(wheel: Path) -> None:
    version = PROJECT["project"]["version"]
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert tops == {"gradatim", f"gradatim-{version}.dist-info"}


def test_the_wheel_carries_licence_command_and_readme(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    names = {name.split(".dist-info/")[1]: name for name in archive.namelist() if ".dist-info/" in name}
    assert b"Apache License" in archive.read(names["licenses/LICENSE"])
    assert b"gradatim = gradatim.flows.cli:main" in archive.read(names["entry_points.txt"])
    assert b"# gradatim" in archive.read(names["METADATA"])


def test_an_installed_wheel_works_without_the_tree_and_leaves_a_users_flows_alone(wheel: Path, tmp_path: Path) -> None:
    site, work = tmp_path / "site", tmp_path / "work"
    zipfile.ZipFile(wheel).extractall(site)
    (work / "flows").mkdir(parents=True)
    (work / "flows" / "__init__.py").write_text("mine = True\n")
    code = "import flows, gradatim.schemas.recipe as r; print(flows.mine, r.__file__)"
    # -S would drop the dependencies too: the folder that comes first in the path wins over the editable install
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.meta_path[:] = [f for f in sys.meta_path if 'editable' not in "
         f"getattr(f, '__module__', '') + getattr(f, '__name__', '')]; {code}"],
        cwd=work, env={**os.environ, "PYTHONPATH": str(site)}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", str(site / "gradatim" / "schemas" / "recipe.py")]


def test_every_package_that_the_rooms_import_is_declared() -> None:
    # these extras may be named wherever their absence is answered with the command that installs them
    extras = [*requirements("text"), *requirements("embeddings")]
    declared = {canonicalize_name(r.name) for r in [*requirements(), *extras]}
    extra = declared | {canonicalize_name(r.name) for r in requirements("train")}
    owners = importlib.metadata.packages_distributions()
    undeclared = set()
    for name, path in MODULES.items():
        # torch and its like may be named where training happens, and nowhere else
        valid = extra if imported(name, "gradatim.tasks.training", "gradatim.torch") else declared
        for target, _ in imports(name, path.read_text(encoding="utf-8")):
            top = target.split(".")[0]
            if top == "gradatim" or top in sys.stdlib_module_names or top == "__future__":
                continue
            if not valid & {canonicalize_name(owner) for owner in [*owners.get(top, [top]), COMES_WITH.get(top, top)]}:
                undeclared.add(f"{name}: {top}")
    assert sorted(undeclared) == []


def test_every_declared_package_is_imported_or_has_its_reason() -> None:
    owners = importlib.metadata.packages_distributions()
    tops = {t.split(".")[0] for n, path in MODULES.items() for t, _ in imports(n, path.read_text(encoding="utf-8"))}
    used = {canonicalize_name(owner) for top in tops for owner in owners.get(top, [])}
    declared = {canonicalize_name(r.name) for r in [*requirements(), *requirements("train")]}
    assert sorted(declared - used - NOT_IMPORTED.keys()) == []


def test_the_pinned_set_holds_each_declared_package_within_its_range() -> None:
    pinned = pins()
    for requirement in [*requirements(), *requirements("train"), *requirements("dev")]:
        if canonicalize_name(requirement.name) != "gradatim":
            assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)]), str(requirement)


def test_the_pinned_set_names_releases_alone() -> None:
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert not re.search(r"://|@|^-e|^gradatim|\+cpu|\+cu", text, re.MULTILINE)


def test_the_makefile_installs_the_pinned_torch_and_has_at_most_eight_targets() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert f"TORCH ?= torch=={pins()['torch']}\n" in makefile
    (phony,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    targets = re.findall(r"^([a-z]+):.*## \S", makefile, re.MULTILINE)
    assert set(phony.split()) == set(targets)
    assert len(targets) <= 8
    assert {"setup", "demo", "test", "check", "bench", "docs"} <= set(targets)


def test_the_version_is_that_of_the_package() -> None:
    assert gradatim.__version__ == PROJECT["project"]["version"] == importlib.metadata.version("gradatim")
    assert f"## {gradatim.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
