"""What comes before a run: write a recipe for a file, try it, list the methods that a file can use."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from gradatim.flows.job import Job
from gradatim.schemas.errors import DataRefused, GradatimError, UsageError, nearest
from gradatim.schemas.recipe import Dynamics, Features, Options, dump_recipe
from gradatim.schemas.summary import Fact, Summary, SummaryTable
from gradatim.schemas.tables import TABLES
from gradatim.storage.tables import Dataset
from gradatim.tasks.core import format as fmt
from gradatim.tasks.core.registry import AREAS, Plugin, plugins
from gradatim.tasks.ingest.dynamics import FIGURES, check_dynamics
from gradatim.tasks.ingest.examples import examples_schema, read_options
from gradatim.tasks.ingest.features import check_features
from gradatim.tasks.ingest.inspection import Inspection, inspect
from gradatim.tasks.ingest.mapping import mapped_columns
from gradatim.tasks.ingest.meeting import demand, known_ids, meet
from gradatim.tasks.ingest.options import check_options
from gradatim.tasks.ingest.reading import shard_schema
from gradatim.tasks.ingest.responses import check_responses
from gradatim.tasks.ingest.sources import shards
from gradatim.tasks.ingest.suggestion import guess_recipe

METHODS = ("embedding", "difficulty", "diversity", "split", "pacing", "model", "dataset")
"""Areas whose methods a recipe names, in the order of the work."""


def write_recipe(file: str, responses: str | None, output: Path, *, force: bool) -> Summary:
    """Look at a file and write a recipe for it; what it lacks to run is a warning.

    Raises `UsageError` where the recipe exists already.
    """
    if output.exists() and not force:
        raise UsageError(
            "there is a recipe already", where=str(output), remedy="--force overwrites it, -o NAME writes another"
        )
    folder = output.parent if str(output.parent) else Path()
    source = _from(file, folder)
    inspection = inspect(source, base=folder)
    recipe = guess_recipe(inspection, None if responses is None else _from(responses, folder), base=folder)
    output.write_text(dump_recipe(recipe), encoding="utf-8")
    seen = f"{inspection.rows_seen:,}{'' if inspection.complete else ' first'} rows"
    lacking = [_line(error) for error in _problems(Job.load(str(output)), [view.name for view in inspection.columns])]
    guesses = tuple((guess.role, guess.column, guess.reason) for guess in inspection.guesses)
    return Summary(
        step="init",
        headline=f"wrote {output}: {len(inspection.columns)} columns, {seen} looked at",
        facts=tuple(
            Fact(section, ", ".join(step.name for step in steps))
            for section in ("difficulty", "diversity", "splits")
            if (steps := getattr(recipe, section))
        ),
        tables=(SummaryTable("What the columns seem to be", ("role", "column", "why"), guesses),),
        warnings=tuple(lacking),
        next=(f"fill in {output} as the warnings say", f"gradatim check {output}")
        if lacking
        else (f"look at {output}", f"gradatim check {output}", f"gradatim run {output}"),
    )


def _line(error: GradatimError) -> str:
    """Say an error in one line."""
    said = f"{error.where}: {error.what}" if error.where else error.what
    return "; ".join([said, *([f"expected {error.expected}"] if error.expected else []), *filter(None, [error.remedy])])


def _from(path: str, folder: Path) -> str:
    """Name a path as a recipe in `folder` does."""
    return path if Path(path).is_absolute() or folder == Path() else os.path.relpath(path, folder)


def check_recipe(recipe: str, store: str | None, data: str | None) -> Summary:
    """Try a recipe against its data and its store: every method, file and column, and one create-if-absent.

    Ids of the examples and of each further source are read, part by part, to say how many rows find their example.

    Raises
    ------
    UsageError, DataRefused
        For the first thing that would not work.
    """
    job = Job.load(recipe, store, data)
    dataset = job.place.open()
    facts = [Fact("dataset", job.recipe.dataset), Fact("store", dataset.store.location, note=_proved(dataset))]
    examples, names = job.recipe.examples, None
    if examples.source is not None:
        found = shards(examples.source, job.place.base, examples.format)
        options = read_options(examples)
        schema = examples_schema({shard.uri: shard_schema(shard, options) for shard in found}, examples)
        size = sum(shard.size for shard in found)
        facts.append(Fact("files", len(found), note=f"{size / 1e6:,.1f} MB"))
        facts.append(Fact("columns", ", ".join(schema.names)))
        names = schema.names
    for problem in _problems(job, names):
        raise problem
    for table, section in job.recipe.sources():
        figures = _check_source(section, job.place.base)
        if isinstance(section, Dynamics):
            _check_figures(job, section, figures)
        facts.append(Fact(table, section.source, note="columns and first rows looked at"))
    facts += _met(job)
    for method in job.embedders:
        method.plugin.run(method.config, job.place.seed)  # tells a package that is not installed
        facts.append(Fact(f"features_{method.name}", f"by {method.plugin.name}"))
    if job.recipe.responses is not None:
        facts.append(Fact("responses", job.recipe.responses.source, note="columns and scores looked at"))
    steps = [*job.embedders, *job.difficulty, *job.diversity, *job.splits, *([job.pacing] if job.pacing else [])]
    rows = tuple((method.area, method.name, method.plugin.name, method.plugin.maturity) for method in steps)
    return Summary(
        step="check",
        headline=f"{recipe} works: {len(rows)} method{'' if len(rows) == 1 else 's'}, every file and column is there",
        facts=tuple(facts),
        tables=(SummaryTable("Methods", ("area", "name", "method", "maturity"), rows),),
        next=(f"gradatim plan {recipe}", f"gradatim run {recipe}"),
    )


def _met(job: Job) -> Iterator[Fact]:
    """Say how many rows of each source find their example; raise `DataRefused` where a run would."""
    recipe, base = job.recipe, job.place.base
    sources = [*([("responses", recipe.responses)] if recipe.responses is not None else []), *recipe.sources()]
    known = known_ids(recipe.examples, base=base, seed=recipe.seed) if sources else None
    for table, section in sources:
        assert known is not None
        found = meet(section, known, recipe.examples, base=base, seed=recipe.seed)
        demand(found, recipe.checks.joined, where=f"{job.file}: {table}: {section.source}")
        yield Fact(f"{table} joined", fmt.share(found.share), note=found.note())


def _check_source(section: Dynamics | Options | Features, base: str) -> tuple[str, ...]:
    """Try a source; return the figures that dynamics give."""
    if isinstance(section, Dynamics):
        return check_dynamics(section, base=base)
    if isinstance(section, Options):
        check_options(section, base=base)
    else:
        check_features(section, base=base)
    return ()


def _check_figures(job: Job, section: Dynamics, figures: Sequence[str]) -> None:
    """Refuse a difficulty that needs a figure which the dynamics do not give, unless runs are trained here."""
    if job.recipe.train is not None or job.place.open().log("dynamics").latest() is not None:
        return
    for method in job.difficulty:
        for need in method.needs():
            table, column = need.split(".", 1)
            if table == "dynamics" and column in FIGURES and column not in figures:
                raise UsageError(
                    f"{method.plugin.name} needs {column}, which {section.source} does not give",
                    where=method.where,
                    expected="one that needs " + " or ".join(figures),
                    remedy=f"name its column: dynamics: {{{column}: COLUMN}}, or logits: COLUMN and gold: COLUMN",
                )


def _problems(job: Job, names: Sequence[str] | None) -> Iterator[GradatimError]:
    """Find what would stop a run, given the columns of the source (None: a procedural data set, which has its own)."""
    responses = job.recipe.responses
    contract = TABLES["examples"].schema.names
    mapped = set(contract) if names is None else set(mapped_columns(job.recipe.examples, list(names)))
    brought = {"examples", "difficulty", *(table for table, _ in job.recipe.sources())}
    brought |= {f"features_{method.name}" for method in job.embedders}
    brought |= {"responses"} if responses is not None else set()
    brought |= {"dynamics"} if job.place.open().log("dynamics").latest() is not None else set()
    methods = [*job.embedders, *job.difficulty, *job.diversity, *job.splits]
    for method in methods:
        for need in method.needs():
            if need.endswith("?"):
                continue
            table, column = need.split(".", 1)
            where = f"{method.where}.{method.plugin.name}"
            text = column.removeprefix("length_")
            if table not in brought:
                name = table.removeprefix("features_")
                vectors = f"name its file:  features: {{{name}: {{from: FILE}}}}, or an embedder:  {{by: hashed_tfidf}}"
                remedy = f"add a section {table!r}" if name == table else vectors
                yield UsageError(f"{method.plugin.name} needs {table}", where=method.where, remedy=remedy)
            elif table == "examples" and names is not None and column not in {"*", *contract, *names}:
                yield UsageError(
                    f"there is no column {column!r}{nearest(column, {*contract, *names})}",
                    where=where,
                    expected="one of " + ", ".join(dict.fromkeys([*names, *contract])),
                )
            elif table == "examples" and text in ("input", "output") and text not in mapped:
                yield UsageError(
                    f"{method.plugin.name} needs {text}, which no column fills",
                    where=where,
                    remedy=f"name its column: examples: {{{text}: COLUMN}}",
                )
    if not job.difficulty and responses is None and "input" not in mapped:
        yield UsageError(
            "nothing says how hard a row is: no input, no level, no responses",
            where=f"{job.file}: difficulty",
            remedy="name the column of the text (examples: {input: COLUMN}), "
            "or a column that says it (difficulty: [{column: {column: COLUMN}}])",
        )
    if responses is not None:
        try:
            check_responses(responses, base=job.place.base, inputs="input" in mapped)
        except (UsageError, DataRefused) as error:
            yield error


def _proved(dataset: Dataset) -> str:
    """Prove that the store keeps create-if-absent: some gateways say yes and overwrite."""
    key = dataset.store.key(dataset.name, "_check", os.urandom(8).hex())
    if not dataset.store.create(key, b"1") or dataset.store.create(key, b"2") or dataset.store.get(key) != b"1":
        raise UsageError(
            "the store overwrites what should be created only if absent",
            where=dataset.store.location,
            expected="conditional writes (If-None-Match)",
            remedy="use a store or gateway that keeps them: two runs at once would lose a release",
        )
    dataset.store.delete(key)
    return "create-if-absent holds"


def _needs(plugin: Plugin) -> str:
    """Write columns by table, those that must be there alone: ``dynamics: epoch, loss``.

    Where the words of a column do as well as vectors, it says so: ``examples: {column} or features``.
    """
    tables: dict[str, list[str]] = {}
    whole = [need for need in plugin.needs if "." in need]  # the others are what settings say they are
    for need in whole:
        table, column = need.removesuffix("?").split(".", 1)
        words = _words(plugin, need)
        if words or not (need.endswith("?") or _left_out(plugin, need)):
            tables.setdefault(table, []).append("{column} or features" if words else column)
    if not tables:  # one of several, and none by default
        for need in whole:
            table, column = need.split(".", 1)
            if not need.endswith("?"):
                tables.setdefault(table, []).append(column)
    return "; ".join(f"{table}: {', '.join(columns)}" for table, columns in tables.items())


def list_methods(area: str | None, file: str | None, responses: str | None) -> Summary:
    """List the methods of one area or of all; with a file those that it can use, recommended first."""
    if area is not None and area not in AREAS:
        raise UsageError(f"there is no area {area!r}{nearest(area, AREAS)}", expected=", ".join(AREAS))
    areas = [area] if area else list(METHODS)
    if file is None:
        tables = tuple(
            SummaryTable(
                one, ("method", "what it does", "needs", "maturity"),
                tuple((p.name, p.summary, _needs(p), p.maturity) for p in plugins(one).values()),
            )
            for one in areas
        )  # fmt: skip
        count = sum(len(table.rows) for table in tables)
        return Summary("methods", f"{count} methods", tables=tables, next=("gradatim methods --for FILE",))
    inspection = inspect(file)
    recipe = guess_recipe(inspection, responses)
    recommended = {
        "difficulty": [step.method for step in recipe.difficulty],
        "diversity": [step.method for step in recipe.diversity],
        "split": [step.method for step in recipe.splits],
        "pacing": ["competence"],
    }
    tables = []
    for one in [a for a in areas if a not in ("dataset", "model")]:
        usable = [p for p in plugins(one).values() if _usable(p, inspection, responses is not None)]
        usable.sort(key=lambda p: (p.name not in recommended.get(one, ()), p.maturity != "stable", p.name))
        rows = tuple(
            ("recommended" if p.name in recommended.get(one, ()) else "", p.name, p.summary, _needs(p)) for p in usable
        )
        tables.append(SummaryTable(one, ("", "method", "what it does", "needs"), rows))
    return Summary(
        step="methods",
        headline=f"{sum(len(t.rows) for t in tables)} methods for {file}",
        tables=tuple(tables),
        next=(f"gradatim init {file}" + (f" --responses {responses}" if responses else ""),),
    )


def _left_out(plugin: Plugin, need: str) -> bool:
    """Whether a need names its table or column by a setting that is empty by default.

    Vectors are left out only where a measure can look at the words of a column instead.
    """
    setting = re.search(r"{(\w+)}", need)
    if setting is None:
        return False
    if need.startswith("features_") and (plugin.area == "difficulty" or "column" not in plugin.config.model_fields):
        return False
    return _by_default(plugin, setting[1]) == ()


def _by_default(plugin: Plugin, setting: str) -> tuple[str, ...] | None:
    """Return what a setting, or what settings make of it, names by default; None where somebody has to name it."""
    field = plugin.config.model_fields.get(setting)
    if field is not None:
        found = None if field.is_required() else field.get_default(call_default_factory=True) or ()
    else:
        try:
            found = getattr(plugin.config(), setting)
        except ValidationError:
            found = None
    if found is None:
        return None
    return (found,) if isinstance(found, str) else tuple(map(str, found))


def _words(plugin: Plugin, need: str) -> bool:
    """Whether a need is the column whose words are looked at where no vectors are named."""
    by_words = any(other.startswith("features_") and _left_out(plugin, other) for other in plugin.needs)
    return by_words and need.removesuffix("?") == "examples.{column}"


def _usable(plugin: Plugin, inspection: Inspection, responses: bool) -> bool:
    """Whether a file has what a method needs; a column that a setting has to name can be any."""
    derived = {"length_input": "input", "length_output": "output"}
    have = (
        {column.name for column in inspection.columns} | {guess.role for guess in inspection.guesses} | {"example_id"}
    )
    have |= {name for name, of in derived.items() if of in have}
    for need in plugin.needs:
        table, _, column = need.removesuffix("?").partition(".")
        if not column:
            continue
        if not _words(plugin, need) and (need.endswith("?") or _left_out(plugin, need)):
            continue
        if table != "examples":
            if table != "responses" or not responses:
                return False
            continue
        names = (_by_default(plugin, column[1:-1]) or ()) if column.startswith("{") else (column,)
        if not have.issuperset(name for name in names if name.isidentifier()):
            return False
    return True
