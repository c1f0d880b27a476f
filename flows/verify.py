"""Checks a bundle: rebuilds its split from the data and computes every number again, with neither store nor network."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import polars as pl

from gradatim.flows.bundle import read_bundle, read_tables, with_files, with_groups, without_models
from gradatim.flows.job import Job
from gradatim.flows.steps import as_function, take_steps
from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.hashing import value_hash
from gradatim.schemas.recipe import Recipe, parse_recipe
from gradatim.schemas.summary import Cell, Fact, Summary, SummaryTable
from gradatim.storage.publish import Wanted
from gradatim.storage.tables import Dataset
from gradatim.tasks.core.step import Place

CLOSE = 1e-6
"""Largest difference of two numbers that count as the same: processors differ in the last digits."""
_SHOWN = 20
_PLACE = ["strategy", "seed", "fold", "example_id"]


@dataclass(frozen=True)
class Verified:
    """What a rebuilt split came to.

    Attributes
    ----------
    strategy : str
    checks : tuple of (name, found, expected, whether it holds)
    differences : tuple of (where, in the bundle, rebuilt)
        The first of them.
    warnings : tuple of str
    """

    strategy: str
    checks: tuple[tuple[str, Cell, str, bool], ...]
    differences: tuple[tuple[str, Cell, Cell], ...]
    warnings: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether the rebuilt split is the bundle's in every row and number."""
        return all(check[3] for check in self.checks)

    def summary(self) -> Summary:
        """Describe it for the terminal."""
        wrong = sum(not check[3] for check in self.checks)
        tables = [SummaryTable("Checks", ("check", "found", "expected", "holds"), self.checks)]
        if self.differences:
            tables.append(SummaryTable("Differences", ("where", "in the bundle", "rebuilt"), self.differences))
        good = f"{self.strategy} is what it says: rebuilt from the data, every row and number is the same"
        return Summary(
            step="verify",
            headline=good
            if self.holds
            else f"{self.strategy} is NOT what it says: {wrong} of {len(self.checks)} checks fail",
            facts=(Fact("checks that hold", f"{len(self.checks) - wrong} of {len(self.checks)}"),),
            tables=tuple(tables),
            warnings=self.warnings,
        )


def verify_bundle(path: str, data: str | None) -> Verified:
    """Rebuild a bundle's split and compare rows and numbers.

    Parameters
    ----------
    path : str
        The bundle.
    data : str, optional
        File or folder of the examples, beside which other files of the bundle's recipe lie, or the folder of them all;
        not needed for a procedural data set.

    Returns
    -------
    Verified

    Raises
    ------
    UsageError
        Where a file of the recipe is not there.
    DataRefused
        For a damaged bundle, and for data that a run would refuse.
    """
    manifest, files = read_bundle(path)
    name, frames = str(manifest["strategy"]), read_tables(files, path)
    recipe, base = _located(_recipe(files["recipe.yaml"], name, path), data)
    with tempfile.TemporaryDirectory() as scratch:
        place = Place(
            scratch, recipe.dataset, base, recipe.seed, value_hash(recipe.model_dump(mode="json", by_alias=True))
        )
        job = Job(recipe, f"{path}: recipe.yaml", place)
        if len(frames["base.parquet"]):
            _stand_on(job, name, frames["base.parquet"], frames["components.parquet"])
        take_steps(job, as_function, lambda summary: None)
        dataset = place.open()
        rows = dataset.scan("examples").select("example_id", "content_hash").sort("example_id").collect()
        split = dataset.scan("splits").select([*_PLACE, "split"]).sort(_PLACE).collect()
        certificate = dataset.scan("certificate").sort("strategy", "seed", "fold", "check").collect()
        packages = dataset.metadata("splits")["packages"]
    if manifest["anonymous"]:
        certificate = without_models(certificate).sort("strategy", "seed", "fold", "check")
    ours, theirs = manifest["packages"], packages
    other = [f"{key} {ours[key]} there, {theirs.get(key)} here" for key in sorted(ours) if ours[key] != theirs.get(key)]
    warnings = (f"made with other versions: {', '.join(other)}",) if other else ()
    verified = _compared(name, frames, rows, split, certificate)
    return replace(verified, warnings=warnings)


def _recipe(raw: bytes, name: str, path: str) -> Recipe:
    """Read a bundle's recipe as a stranger's: nothing is trained, and no file is named but below the data folder."""
    where = f"{path}: recipe.yaml"
    try:
        recipe = parse_recipe(raw.decode(), where=where)
    except UnicodeDecodeError:
        raise DataRefused("the recipe is no UTF-8 text", where=where) from None
    if [step.name for step in recipe.splits] != [name]:
        raise DataRefused("the recipe and the manifest are not of one split", where=where, expected=f"the split {name}")
    sections: dict[str, Any] = {"curriculum": None, "train": None, "evaluate": None, "release": False}
    for role in ("examples", "responses", "dynamics", "options"):
        section = getattr(recipe, role)
        if section is not None and section.source:
            sections[role] = section.model_copy(update={"source": _below(role, section.source)})
    found = with_files(recipe.model_copy(update=sections), _below)
    features = {name: part.model_copy(update={"source": _below(name, part.source)}) if part.source else part
                for name, part in found.features.items()}  # fmt: skip
    return found.model_copy(update={"features": features})


def _below(role: str, source: str) -> str:
    """Return a path that starts at the data folder and stays below it: of any other one its last name."""
    path = PurePosixPath(source.replace("\\", "/"))
    if "://" in source:
        raise DataRefused(f"{role} is at an address: {source}", where="recipe.yaml", expected="a file or folder")
    if path.is_absolute() or path.parts[:1] == ("~",) or source.startswith("~") or ".." in path.parts:
        if path.name in ("", "..", "~"):
            raise DataRefused(f"{role} is no file or folder: {source}", where="recipe.yaml")
        return path.name + "/" * source.endswith("/")
    return source


def _located(recipe: Recipe, data: str | None) -> tuple[Recipe, str]:
    """Point a recipe's sources at the given file or folder."""
    if data is None:
        if recipe.examples.generate is None:
            raise UsageError("which data?", expected=f"--data with {recipe.examples.source}")
        return recipe, str(Path.cwd())
    given = Path(data)
    if not given.exists():
        raise UsageError("there is no such file or folder", where=data)
    folder = given if given.is_dir() else given.parent
    sections: dict[str, Any] = {}
    source = recipe.examples.source
    if given.is_file() or (source is not None and not _found(folder, source)):  # it is the examples themselves
        folder = given.parent
        sections["examples"] = recipe.examples.model_copy(update={"source": given.name + "/" * given.is_dir()})
    sources = {
        role: section
        for role in ("examples", "responses", "dynamics", "options")
        if (section := getattr(recipe, role)) is not None and section.source and role not in sections
    }
    sources |= {f"features.{name}": part for name, part in recipe.features.items() if part.source}
    missing = [f"{role} ({part.source})" for role, part in sources.items() if not any(_found(folder, part.source))]
    if missing:
        raise UsageError(
            f"there is no {', no '.join(missing)}",
            where=str(folder),
            expected="the files that the bundle's recipe names",
            remedy="give the folder that they are in: --data FOLDER",
        )
    return recipe.model_copy(update=sections), str(folder.resolve())


def _found(folder: Path, source: str) -> list[Path]:
    relative = source.rstrip("/")
    return (
        sorted(folder.glob(relative))
        if any(sign in relative for sign in "*?[")
        else [path for path in [folder / relative] if path.exists()]
    )


def _stand_on(job: Job, name: str, base: pl.DataFrame, components: pl.DataFrame) -> None:
    """Release in the scratch store what the split had to keep."""
    if base["held_out"].null_count() == len(base):
        base = _with_names(job, name, base, components)
    dataset: Dataset = job.place.open()
    rows = base.with_columns(axis=pl.lit("none"), reason=pl.lit("released"))
    tables = {"splits": dataset.publish("splits", [Wanted(value_hash(name), lambda: [rows], group=name)]).version}
    if len(components):
        made = dataset.publish("components", [Wanted(value_hash("components"), lambda: [components])])
        tables["components"] = made.version
    dataset.release(tables, based_on=None)


def _with_names(job: Job, name: str, base: pl.DataFrame, components: pl.DataFrame) -> pl.DataFrame:
    """Name what was held out and groups, which an anonymous bundle does not: the data do, when split by themselves."""
    with tempfile.TemporaryDirectory() as scratch:
        alone = Job(job.recipe, job.file, replace(job.place, location=scratch))
        dataset: Dataset = alone.place.open()
        if len(components):
            made = dataset.publish("components", [Wanted(value_hash("components"), lambda: [components])])
            dataset.release({"components": made.version}, based_on=None)
        take_steps(alone, as_function, lambda summary: None)
        rows = dataset.scan("splits").filter(pl.col("strategy") == name)
        held = rows.select("seed", "example_id", "held_out").drop_nulls("held_out").collect()
        base = with_groups(base, rows.select("example_id", "component").unique().collect())
    held = held.sort("seed", "example_id", "held_out").unique(["seed", "example_id"], keep="first", maintain_order=True)
    known = base.drop("held_out").join(held, on=["seed", "example_id"], how="left", maintain_order="left")
    outside = pl.col("split").is_in(["test_ood", "validation_ood"])
    return known.with_columns(held_out=pl.when(outside).then("held_out"))


def _compared(
    name: str, frames: dict[str, pl.DataFrame], rows: pl.DataFrame, split: pl.DataFrame, certificate: pl.DataFrame
) -> Verified:
    checks: list[tuple[str, Cell, str, bool]] = []
    shown: list[tuple[str, Cell, Cell]] = []
    theirs = frames["rows.parquet"]
    both = theirs.join(rows, on="example_id", how="full", suffix="_here", coalesce=True)
    missing, strange = both["content_hash_here"].null_count(), both["content_hash"].null_count()
    changed = both.filter(pl.col("content_hash") != pl.col("content_hash_here"))
    for what, number in (("rows missing from the data", missing), ("rows that the bundle has not", strange)):
        checks.append((what, number, "0", number == 0))
    checks.append(("rows with another content", len(changed), "0", changed.is_empty()))
    shown += [(f"row {id_}", "content", "another content") for id_ in changed["example_id"].sort().head(_SHOWN)]
    placed = frames["split.parquet"].join(split, on=_PLACE, how="full", suffix="_here", coalesce=True)
    apart = placed.filter(pl.col("split").ne_missing(pl.col("split_here"))).sort(_PLACE)
    checks.append(("places of rows that differ", len(apart), "0", apart.is_empty()))
    shown += [
        (
            f"{row['strategy']} seed {row['seed']} fold {row['fold']}, {row['example_id']}",
            row["split"],
            row["split_here"],
        )
        for row in apart.head(_SHOWN).iter_rows(named=True)
    ]
    key = ["strategy", "seed", "fold", "check"]
    numbers = frames["certificate.parquet"].join(certificate, on=key, how="full", suffix="_here", coalesce=True)
    columns = [c for c in ("value", "control_value", "matched_value") if c in frames["certificate.parquet"].columns]
    off = pl.any_horizontal(
        *(_differ(column) for column in columns), pl.col("n").ne_missing(pl.col("n_here")),
        pl.col("holds").ne_missing(pl.col("holds_here")),
    )  # fmt: skip
    different = numbers.filter(off).sort(key)
    checks.append(
        (f"numbers of the certificate that differ, of {len(numbers):,}", len(different), "0", different.is_empty())
    )
    shown += [
        (f"{row['check']} (seed {row['seed']} fold {row['fold']})", row["value"], row["value_here"])
        for row in different.head(_SHOWN).iter_rows(named=True)
    ]
    broken = certificate.filter(~pl.col("holds"))
    checks.append(("promises that do not hold", len(broken), "0", broken.is_empty()))
    return Verified(name, tuple(checks), tuple(shown))


def _differ(column: str) -> pl.Expr:
    here, there = pl.col(f"{column}_here"), pl.col(column)
    far = (here - there).abs() > CLOSE * pl.max_horizontal(there.abs(), pl.lit(1.0))
    return far.fill_null(False) | (here.is_null() != there.is_null())
