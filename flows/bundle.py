"""A published split in one file that anybody can check: ids, recipe, certificate, bibliography, checksums; no text."""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Callable, Mapping
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

import polars as pl

from gradatim.flows.looking import open_dataset
from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.schemas.recipe import Features, Recipe, Step, dump_recipe, parse_recipe
from gradatim.schemas.summary import Fact, Summary
from gradatim.storage.delta import Version
from gradatim.storage.tables import Dataset
from gradatim.tasks.core.frames import polars_schema
from gradatim.tasks.core.registry import resolve
from gradatim.tasks.splits.certificate_page import latex
from gradatim.tasks.splits.task import read_ledger

FORMAT = 1
"""Raised whenever a bundle of this version could not be read by the one before."""
MOST_BYTES = 4 * 2**30
"""Most that a bundle's files hold together, unpacked."""
MOST_TEXT = 16 * 2**20
"""Largest file of a bundle that is no table."""
MOST_TIMES, LITTLE = 200, 2**20
"""How many times its packed size a file has at most, and the size up to which that does not matter."""
FILES = (
    "manifest.json", "recipe.yaml", "split.parquet", "certificate.parquet", "certificate.tex", "rows.parquet",
    "base.parquet", "components.parquet", "references.bib", "README.txt",
)  # fmt: skip
_PARTS = ["strategy", "seed", "fold", "example_id", "split"]
_ABOUT = """\
A split of a data set, made by gradatim {version}. It holds ids, no text.

  split.parquet        where each row is: strategy, seed, fold, example_id, split; the split and its controls
  certificate.parquet  what was promised and measured; certificate.tex for a paper
  recipe.yaml          how it was made
  rows.parquet         the hash of each row that was split
  base.parquet         the released split that it had to keep, if it stands on an earlier release;
                       components.parquet the components of near-duplicates of that release
  references.bib       the methods' sources
  manifest.json        sizes, versions, SHA-256 of each file

Rebuild it and compute every number again, with neither store nor network:

  pip install gradatim=={version}
  gradatim verify {file}{data}
"""
_KEYS = {"strategy": pl.String, "seed": pl.Int64, "fold": pl.Int32, "example_id": pl.String}
_TABLES: dict[str, dict[str, Any]] = {
    "split.parquet": {**_KEYS, "split": pl.String},
    "rows.parquet": {"example_id": pl.String, "content_hash": pl.String},
    "base.parquet": {**_KEYS, "split": pl.String, "component": pl.String, "held_out": pl.String},
    "components.parquet": dict(polars_schema("components")),
    "certificate.parquet": dict(polars_schema("certificate")),
}
"""Columns of a bundle's tables."""
BESIDE = "beside "
"""How an anonymous bundle calls a group: by the smallest id that is in it."""


def write_bundle(
    store: str, dataset: str | None, name: str, output: str | None, *, anonymous: bool, force: bool = False
) -> Summary:
    """Write the bundle of the newest version of a split.

    Parameters
    ----------
    store, dataset : str
    name : str
        Strategy, as its recipe calls it.
    output : str, optional
        File to write; NAME.zip by default.
    anonymous : bool
        Leave out what may say whose data these are: the names of the data set, of its files and of models.
    force : bool
        Overwrite.

    Returns
    -------
    Summary

    Raises
    ------
    UsageError
        For a split that there is not, or a file that exists.
    """
    found = open_dataset(store, dataset)
    target = Path(output or f"{name}.zip")
    if target.exists() and not force:
        raise UsageError(
            f"{target} exists", where=str(target), remedy="name another file with --output, or add --force"
        )
    version = found.version("splits")
    known = sorted({part.group for part in version.parts})
    if name not in known:
        raise UsageError(
            f"there is no split {name!r}{nearest(name, known)}", where=version.reference, expected=", ".join(known)
        )
    recipe = reduced(_recipe(found, version), name)
    certificate = found.scan("certificate").filter(pl.col("strategy") == name).collect()
    base, components = _base(found, version, name), _components(found, version, name)
    if anonymous:
        now = found.scan("splits", version.number).filter(pl.col("strategy") == name)
        groups = now.select("example_id", "component").unique().collect()
        recipe, certificate = unnamed(recipe), without_models(certificate)
        base = without_groups(base, groups).with_columns(held_out=pl.lit(None, pl.String))
    ours = [name, *(f"{name}.{control}" for control in ("random", "matched"))]
    rows = found.scan("splits", version.number).filter(pl.col("strategy").is_in(ours))
    split = rows.select(_PARTS).sort(_PARTS[:4]).collect()
    data = "" if _needs_no_data(recipe) else f" --data {recipe.examples.source or 'FOLDER'}"
    examples = next(parent for parent in version.metadata["parents"] if parent.startswith("examples@"))
    hashes = found.scan(examples).select("example_id", "content_hash").sort("example_id").collect()
    files = {
        "recipe.yaml": dump_recipe(recipe).encode(),
        "split.parquet": _parquet(split),
        "certificate.parquet": _parquet(certificate.sort("strategy", "seed", "fold", "check")),
        "certificate.tex": latex(certificate).encode(),
        "rows.parquet": _parquet(hashes),
        "base.parquet": _parquet(base),
        "components.parquet": _parquet(components),
        "references.bib": bibliography(recipe).encode(),
        "README.txt": _ABOUT.format(version=installed("gradatim"), file=target.name, data=data).encode(),
    }
    counts = split.filter(pl.col("strategy") == name).group_by("split").len().sort("split")
    manifest = {
        "format": FORMAT,
        "gradatim": installed("gradatim"),
        "packages": version.metadata.get("packages", {}),
        "strategy": name,
        "anonymous": anonymous,
        "rows": len(hashes),
        "sizes": dict(counts.iter_rows()),
        "promises_hold": bool(certificate["holds"].fill_null(True).all()),
        "sha256": {file: hashlib.sha256(content).hexdigest() for file, content in files.items()},
    }
    files["manifest.json"] = json.dumps(manifest, indent=1, sort_keys=True).encode()
    _write(target, files)
    return Summary(
        step="bundle",
        headline=f"{target}: {name}, {len(split):,} places of {len(hashes):,} rows, {target.stat().st_size:,} bytes",
        facts=(
            Fact("SHA-256", hashlib.sha256(target.read_bytes()).hexdigest()),
            Fact("anonymous", "yes" if anonymous else "no: it names the data set, its files and models"),
            Fact("stands on an earlier release", "yes" if len(base) else "no"),
        ),
        next=(f"gradatim verify {target}{data}",),
    )


def read_bundle(path: str) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Read a bundle: its manifest, and the content of its files, each as its checksum says.

    Raises
    ------
    UsageError
        For what is no file.
    DataRefused
        For what is no bundle, is too large, or was changed.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = {info.filename: info for info in archive.infolist()}
            strange = sorted(set(members) - set(FILES))
            if strange or "manifest.json" not in members or len(members) != len(archive.infolist()):
                what = f"it holds {strange[0]!r}" if strange else "it has no manifest, or one file twice"
                raise DataRefused(f"this is no bundle: {what}", where=path, expected=", ".join(FILES))
            _refuse_bombs(members, path)
            # what a header says may be untrue: no more is read than it says
            files = {name: _read(archive, info, path) for name, info in members.items()}
    except (FileNotFoundError, IsADirectoryError):
        raise UsageError("there is no bundle here", where=path, remedy="gradatim bundle NAME") from None
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError) as error:
        raise DataRefused(f"this is no bundle: {error}", where=path) from None
    try:
        manifest = json.loads(files["manifest.json"])
        sums, kind = dict(manifest["sha256"]), manifest["format"]
        told = [str(manifest["strategy"]), bool(manifest["anonymous"]), dict(manifest["packages"])]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise DataRefused("the manifest cannot be read", where=path) from None
    if kind != FORMAT:
        raise DataRefused(f"this bundle has the format {kind}", where=path, expected=f"format {FORMAT}")
    for name in FILES:
        if name not in files:
            raise DataRefused(f"this bundle has no {name}", where=path, expected=", ".join(FILES))
        if name != "manifest.json" and hashlib.sha256(files[name]).hexdigest() != sums.get(name):
            raise DataRefused(f"{name} is not what the manifest says", where=path, remedy="get the bundle anew")
    return dict(zip(("strategy", "anonymous", "packages"), told, strict=True)), files


def read_tables(files: Mapping[str, bytes], path: str) -> dict[str, pl.DataFrame]:
    """Read the tables of a bundle; raises `DataRefused` for one that is not as `write_bundle` writes it."""
    return {name: _read_table(files[name], columns, f"{path}: {name}") for name, columns in _TABLES.items()}


def _read_table(raw: bytes, columns: Mapping[str, Any], where: str) -> pl.DataFrame:
    try:
        schema = pl.read_parquet_schema(io.BytesIO(raw))
        if dict(schema) == dict(columns):
            return pl.read_parquet(io.BytesIO(raw))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        raise DataRefused(f"this table cannot be read: {str(error)[:200]}", where=where) from None
    wrong = next((name for name in columns if columns[name] != schema.get(name)), None)
    what = f"the column {wrong!r} is {schema.get(wrong) or 'missing'}" if wrong else "it has further columns"
    expected = ", ".join(f"{name} ({kind})" for name, kind in columns.items())
    raise DataRefused(f"this table is not that of a bundle: {what}", where=where, expected=expected)


def _refuse_bombs(members: Mapping[str, zipfile.ZipInfo], path: str) -> None:
    """Refuse what would fill the memory when it is unpacked."""
    whole = sum(info.file_size for info in members.values())
    if whole > MOST_BYTES:
        raise DataRefused(f"its files hold {whole:,} bytes", where=path, expected=f"<= {MOST_BYTES:,}")
    for name, info in members.items():
        if info.file_size > MOST_TEXT and not name.endswith(".parquet"):
            raise DataRefused(f"{name} holds {info.file_size:,} bytes", where=path, expected=f"<= {MOST_TEXT:,}")
        if info.file_size > max(LITTLE, MOST_TIMES * info.compress_size):
            raise DataRefused(
                f"{name} holds {info.file_size:,} bytes, packed in {info.compress_size:,}",
                where=path,
                expected=f"at most {MOST_TIMES} times as many",
            )


def _read(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: str) -> bytes:
    with archive.open(info) as file:
        content = file.read(info.file_size + 1)
    if len(content) != info.file_size:
        raise DataRefused(f"{info.filename} is larger than it says", where=path)
    return content


def reduced(recipe: Recipe, name: str) -> Recipe:
    """Keep what one split rests on: data, its own difficulty, near-duplicates, the split; nothing that is trained."""
    split = next(step for step in recipe.splits if step.name == name)
    steps = [("split", split)]
    matched = recipe.curriculum.by if recipe.curriculum else (recipe.difficulty[0].name if recipe.difficulty else "")
    difficulty = _with_origins(recipe.difficulty, matched)
    steps += [("difficulty", step) for step in difficulty]
    alike = [step for step in recipe.diversity if step.method == "near_duplicates"]
    # of near-duplicates those alone read vectors that say so
    steps += [("diversity", step) for step in alike if _by_vectors(step)]
    reads = {need.split(".")[0] for area, step in steps for need in resolve(area, step)[0].needs}
    return recipe.model_copy(
        update={
            "dynamics": recipe.dynamics if "dynamics" in reads else None,
            "options": recipe.options if "options" in reads else None,
            "features": recipe.features if any(table.startswith("features_") for table in reads) else {},
            "difficulty": difficulty,
            "diversity": alike,
            "splits": [split],
            "curriculum": None,
            "train": None,
            "evaluate": None,
            "release": False,
        }
    )


def _by_vectors(step: Step) -> bool:
    return bool(step.settings.get("features")) or step.settings.get("using") == "embedding"


def _with_origins(steps: list[Step], name: str) -> list[Step]:
    """Return one step first, then, where it reads others, those that stand before it; in the recipe's order."""
    place = next((index for index, step in enumerate(steps) if step.name == name), None)
    if place is None:
        return []
    plugin, config = resolve("difficulty", steps[place])
    reads = any(need.startswith("difficulty.") for need in plugin.columns(config))
    return [*steps[:place], steps[place]] if reads else [steps[place]]


def unnamed(recipe: Recipe) -> Recipe:
    """Take the names of the data set, its store and its files out of a recipe: each source is called by its section."""
    sections: dict[str, Any] = {"dataset": "data", "store": "runs/"}
    for role in ("examples", "responses", "dynamics", "options"):
        section = getattr(recipe, role)
        if section is not None and section.source:
            sections[role] = section.model_copy(update={"source": _called(role, section.source)})
    sections["features"] = {
        name: part.model_copy(update={"source": _called(f"features_{name}", part.source)}) if part.source else part
        for name, part in recipe.features.items()
    }
    renamed = with_files(recipe, lambda name, path: _called(name.replace(".", "_"), path))
    return renamed.model_copy(update={**sections, "features": _sources(sections["features"], renamed.features)})


def _sources(named: Mapping[str, Features], features: Mapping[str, Features]) -> dict[str, Features]:
    """Take the sources of `named`, and all else of `features`."""
    return {name: part.model_copy(update={"source": named[name].source}) for name, part in features.items()}


def with_files(recipe: Recipe, change: Callable[[str, str], str]) -> Recipe:
    """Give the files and folders that settings name other paths: `change` takes the setting's name and its path."""

    def step(area: str, one: Step) -> Step:
        _, config = resolve(area, one)
        paths = {
            setting: change(f"{one.name}.{setting}", str(one.settings[setting]))
            for setting in (*config.paths, *config.folders)
            if one.settings.get(setting) is not None
        }
        return one.model_copy(update={"settings": {**one.settings, **paths}}) if paths else one

    def vectors(name: str, part: Features) -> Features:
        update: dict[str, Any] = {}
        if part.by is not None:
            update["by"] = step("embedding", part.by)
        if part.ids is not None and ("/" in part.ids or not part.source.endswith(".npz")):
            update["ids"] = change(f"features_{name}.ids", part.ids)
        return part.model_copy(update=update)

    areas = {"difficulty": "difficulty", "diversity": "diversity", "splits": "split"}
    sections: dict[str, Any] = {
        section: [step(area, one) for one in getattr(recipe, section)] for section, area in areas.items()
    }
    sections["features"] = {name: vectors(name, part) for name, part in recipe.features.items()}
    return recipe.model_copy(update=sections)


def _needs_no_data(recipe: Recipe) -> bool:
    """Whether a procedural data set is all that a recipe reads."""
    from_files = recipe.responses is not None or bool(recipe.sources())
    return recipe.examples.generate is not None and not from_files


def _called(role: str, source: str) -> str:
    """Call a file by its role, with its endings; a folder or glob by its role alone."""
    last = source.rstrip("/").rsplit("/", 1)[-1]
    folder = source.endswith("/") or any(sign in source for sign in "*?[") or "." not in last
    return role + ("/" if folder else re.sub(r"^[^.]*", "", last))


def without_models(certificate: pl.DataFrame) -> pl.DataFrame:
    """Call the models of a certificate by numbers, in the order of their names."""
    pattern = r"^((?:score|score_gap)(?::test|:test_ood)?):(.+)$"
    parts = certificate["check"].str.extract_groups(pattern)
    model = parts.struct[1]
    plain = {"train", "validation", "validation_ood", "test", "test_ood"}
    is_model = model.is_not_null() & ~model.is_in(list(plain))
    names = model.filter(is_model).unique().sort()
    numbers = {name: f"model {place + 1:03d}" for place, name in enumerate(names)}
    called = pl.concat_str(parts.struct[0], pl.lit(":"), model.replace(numbers))
    return certificate.with_columns(check=pl.when(is_model).then(called).otherwise("check"))


def without_groups(base: pl.DataFrame, now: pl.DataFrame) -> pl.DataFrame:
    """Call the components of released rows that are named by a value of a column by the smallest id that is in them.

    `now` has the example_id and component of the split; `with_groups` turns it back. Components that are named by an
    id keep their name, and one that no row is in any more gets a number.
    """
    first = now.drop_nulls("component").group_by("component").agg(pl.col("example_id").min().alias("first"))
    ids = pl.concat([now["example_id"], base["example_id"]]).unique()
    named = base.join(first, on="component", how="left", maintain_order="left")
    number = pl.format("(gone) {}", pl.col("component").rank("dense"))
    called = pl.coalesce(pl.lit(BESIDE) + pl.col("first"), number)
    is_id = pl.col("component").str.strip_suffix(" (near-duplicates)").is_in(ids.implode())
    name = pl.when(pl.col("component").is_null() | is_id).then("component").otherwise(called)
    return named.with_columns(component=name).drop("first")


def with_groups(base: pl.DataFrame, now: pl.DataFrame) -> pl.DataFrame:
    """Give components that `without_groups` called by an id the name that the rebuilt split has for them."""
    names = now.drop_nulls("component").select(
        called=pl.lit(BESIDE) + pl.col("example_id"), found=pl.col("component")
    ).unique("called")  # fmt: skip
    joined = base.join(names, left_on="component", right_on="called", how="left", maintain_order="left")
    return joined.with_columns(component=pl.coalesce("found", "component")).drop("found")


def bibliography(recipe: Recipe) -> str:
    """Return the sources of a recipe's methods as BibTeX."""
    steps = [("difficulty", step) for step in recipe.difficulty] + [("diversity", step) for step in recipe.diversity]
    steps += [("split", step) for step in recipe.splits]
    entries = []
    for area, step in steps:
        plugin, _ = resolve(area, step)
        for number, source in enumerate(plugin.source.split("; "), start=1):
            key = f"{area}_{step.method}" + (f"_{number}" if "; " in plugin.source else "")
            entries.append(_entry(key, source))
    return "\n".join(dict.fromkeys(entries))


def _entry(key: str, source: str) -> str:
    match = re.fullmatch(r"(.+?)\s*\((\d{4})[a-z]?\)[.:,]?\s*(.+?)\.?", source, re.DOTALL)
    if match is None:
        return f"@misc{{{key},\n  note = {{{source}}},\n}}\n"
    authors = match[1].replace(" & ", " and ")
    return f"@misc{{{key},\n  author = {{{authors}}},\n  year = {{{match[2]}}},\n  title = {{{match[3]}}},\n}}\n"


def _recipe(dataset: Dataset, version: Version) -> Recipe:
    made = str(version.metadata.get("recipe_hash"))
    raw = dataset.store.get(dataset.store.key(dataset.name, "_recipes", f"{made}.yaml"))
    if raw is None:
        raise UsageError(
            "the recipe of this split is not kept", where=version.reference, remedy="gradatim run RECIPE once more"
        )
    return parse_recipe(raw.decode(), where=f"recipe of {version.reference}")


def _base(dataset: Dataset, version: Version, name: str) -> pl.DataFrame:
    """Return the released rows that a split had to keep; none where it stands on no release."""
    columns = [*_PARTS, "component", "held_out"]
    release = version.metadata.get("grounds", {}).get(name)
    if release is None:
        return pl.DataFrame(schema=dict.fromkeys(columns, pl.String)).cast({"seed": pl.Int64, "fold": pl.Int32})
    number = dataset.read_release(release).tables["splits"]
    rows = dataset.scan("splits", number).filter(pl.col("strategy") == name).select(columns).collect()
    gone = read_ledger(dataset, dataset.version(f"splits@{number}"), name)
    return (rows if gone is None else pl.concat([rows, gone.select(columns)])).sort(_PARTS[:4])


def _components(dataset: Dataset, version: Version, name: str) -> pl.DataFrame:
    """Return the released components that those of a split grew from; none where it stands on no release."""
    release = version.metadata.get("grounds", {}).get(name)
    tables = dataset.read_release(release).tables if release is not None else {}
    if "components" not in tables:
        return pl.DataFrame(schema=polars_schema("components"))
    return dataset.scan("components", tables["components"]).sort("example_id").collect()


def _parquet(frame: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="zstd", compression_level=3, statistics=False)
    return buffer.getvalue()


def _write(target: Path, files: Mapping[str, bytes]) -> None:
    """Write a zip that depends on nothing but its files."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in FILES:
            info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, files[name])
