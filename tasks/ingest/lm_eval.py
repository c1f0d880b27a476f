"""Sample logs of EleutherAI's lm-evaluation-harness (``lm_eval --log_samples``) as responses.

The harness writes, below a folder a model, ``results_<time>.json`` and ``samples_<task>_<time>.jsonl``: a line for each
document and filter with ``doc``, ``doc_id`` (the document's position), ``arguments``, ``filter``, ``metrics`` and a
field for each metric. Older versions lack ``filter`` and ``metrics``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.schemas.hashing import normalise
from gradatim.tasks.ingest.arrow_types import json_text
from gradatim.tasks.ingest.read_jsonl import json_objects
from gradatim.tasks.ingest.reading import Reject, rejects_table
from gradatim.tasks.ingest.settle import Responded, settle
from gradatim.tasks.ingest.sources import ENDINGS, Shard, file_hash, source_files, source_uri, utf8_chunks

SAMPLES = re.compile(r"^samples_(?P<task>.+)_(?P<time>\d{4}-\d\d-\d\dT[\d.-]+)\.jsonl(\.gz)?$")

_OWN = frozenset(
    (
        *("doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"),
        *("doc_hash", "prompt_hash", "target_hash"),
    )
)


@dataclass
class _Log:
    """The columns of one samples file that count."""

    model: str
    shard: Shard
    rows: list[int] = field(default_factory=list)
    keys: list[Any] = field(default_factory=list)
    scores: list[str | None] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)


def read_lm_eval(
    source: str | Path,
    *,
    metric: str | None = None,
    filter: str | None = None,
    join: str | None = None,
    base: str | Path = ".",
    examples: pl.DataFrame | None = None,
    joined: float = 0.98,
) -> Responded:
    """Read lm-evaluation-harness sample logs.

    Parameters
    ----------
    source : str or Path
        Folder (searched below), glob or file of samples_*.jsonl.
    metric : str, optional
        Field with the score, e.g. exact_match or acc; needed where there is more than one.
    filter : str, optional
        E.g. strict-match or flexible-extract; needed where there is more than one.
    join : str, optional
        Path of the document's field that holds the example's id, e.g. ``doc.id``; or ``input``: the text field of the
        document, or the prompt, whose normalised text is the examples' `input`, where one example alone has it.
        ``doc.id`` by default. Never the document's position.
    examples : polars.DataFrame, optional
        Columns `example_id` and, for ``join="input"``, `input`.
    joined : float
        Smallest share of responses that must match an example.

    Returns
    -------
    Responded
        A respondent a model (its name in the results file beside, else its folder); a model that was run again has
        attempts, oldest first.

    Raises
    ------
    UsageError
        No samples, or a metric, filter or field that is not there, answered with those that are.
    DataRefused
        Fewer responses joined than asked.
    """
    join = _join_field(join, examples is not None and "input" in examples.columns)
    files = sample_files(source, base)
    filter, metric = _choose(files, base, filter, metric)
    texts = None
    if join == "input" and examples is not None:
        texts = _ids_by_input(examples)
    logs = [_read(f, base, filter, metric, join) for f in sorted(files, key=_by_time)]
    if texts is not None:
        _name_by_input(logs, texts, str(source))
    rejects = pl.concat([pl.DataFrame(pl.from_arrow(rejects_table(log.shard.uri, log.rejects))) for log in logs])
    return settle(pl.concat(map(_frame, enumerate(logs))), rejects, examples, joined, where=str(source))


def check_lm_eval(
    source: str | Path,
    *,
    metric: str | None = None,
    filter: str | None = None,
    join: str | None = None,
    base: str | Path = ".",
    inputs: bool = True,
) -> None:
    """Try what `read_lm_eval` would read: filter and metric over all lines, the join's field in a line of each file.

    `inputs` says whether the examples have an input to join by. Raises `UsageError` as `read_lm_eval`.
    """
    join = _join_field(join, inputs)
    files = sample_files(source, base)
    filter, _ = _choose(files, base, filter, metric)
    for path in files if join != "input" else ():
        document = next((o.get("doc") for o in _objects(path, base) if str(o.get("filter", "none")) == filter), None)
        if isinstance(document, dict) and _field(document, join.split(".")[1:]) is None:
            names = sorted(f"doc.{key}" for key in document)
            raise UsageError(
                f"the document has no field {join!r}{nearest(join, names)}",
                where=f"responses.join: {source_uri(path, base)}",
                expected="one of " + ", ".join([*names[:50], "input"]),
                remedy="name the field that holds the example's id: join: doc.FIELD",
            )


def count_responses(source: str | Path, base: str | Path = ".") -> tuple[int, int]:
    """Count lines a filter and folders of models, without parsing more than the first file; raises `UsageError`."""
    files = sample_files(source, base)
    filters, _ = filters_and_metrics(files[:1], base)
    lines = sum(chunk.count(b"\n") for f in files for chunk in utf8_chunks(f, "utf-8", f.name, check=False))
    return lines // max(1, len(filters)), len({f.parent for f in files})


def sample_files(source: str | Path, base: str | Path) -> list[Path]:
    """List the sample logs of a source, sorted; raises `UsageError` where there is none."""
    files = [f for f in source_files(source, base, {".jsonl": ENDINGS[".jsonl"]}) if SAMPLES.match(f.name)]
    if not files:
        raise UsageError(
            "there are no sample logs here",
            where=str(source),
            expected="files samples_<task>_<time>.jsonl, below a folder a model",
            remedy="lm_eval … --log_samples --output_path FOLDER",
        )
    return files


def _join_field(join: str | None, inputs: bool) -> str:
    join = join or "doc.id"
    if join != "input" and not re.fullmatch(r"doc(\.[^.]+)+", join):
        reason = " is the document's position, which says nothing about which example it is" if join == "doc_id" else ""
        raise UsageError(
            f"found {join!r}{reason}", where="responses.join", expected="a field of the document (doc.id), or input"
        )
    if join == "input" and not inputs:
        raise UsageError(
            "to join by input needs the examples' input",
            where="responses.join",
            expected="join: doc.id, or examples with an input",
        )
    return join


def _by_time(path: Path) -> tuple[str, str]:
    match = SAMPLES.match(path.name)
    assert match is not None
    return match["time"], path.as_posix()


def _shard(path: Path, base: str | Path) -> Shard:
    return Shard(source_uri(path, base), path, "jsonl", path.stat().st_size, file_hash(path))


def _objects(path: Path, base: str | Path) -> Iterator[dict[str, Any]]:
    for objects, _, _, _ in json_objects(_shard(path, base), "utf-8", lenient=True):
        yield from objects


def _choose(files: list[Path], base: str | Path, filter: str | None, metric: str | None) -> tuple[str, str]:
    """Settle filter and metric, or raise with those that are there."""
    filter = _one("filter", filter, filters_and_metrics(files, base)[0])
    return filter, _one("metric", metric, filters_and_metrics(files, base, filter)[1])


def filters_and_metrics(files: list[Path], base: str | Path, filter: str | None = None) -> tuple[list[str], list[str]]:
    """List the filters of sample logs and the metrics (of one filter, or of all), sorted; reads each file's lines."""
    filters: set[str] = set()
    metrics: set[str] = set()
    for path in files:
        for found in _objects(path, base):
            name = str(found.get("filter", "none"))
            filters.add(name)
            if filter is None or name == filter:
                metrics.update(_metrics(found))
    return sorted(filters), sorted(metrics)


def field_paths(files: list[Path], base: str | Path) -> set[str]:
    """Paths of the document's plain fields that every log's first line has, e.g. doc.id."""
    found = [next(_objects(path, base), {}).get("doc") for path in files]
    paths = [
        {f"doc.{key}" for key, value in doc.items() if isinstance(value, (str, int)) and not isinstance(value, bool)}
        for doc in found
        if isinstance(doc, dict)
    ]
    return set.intersection(*paths) if paths else set()


def _metrics(found: dict[str, Any]) -> list[str]:
    named = found.get("metrics")
    if isinstance(named, list):
        return [str(name) for name in named]
    return [key for key, value in found.items() if key not in _OWN and isinstance(value, (int, float))]


def _one(what: str, chosen: str | None, names: list[str]) -> str:
    if chosen is None and len(names) == 1:
        return names[0]
    if chosen is None or chosen not in names:
        problem = f"there is no {what} {chosen!r}{nearest(chosen, names)}" if chosen else f"more than one {what}"
        if not names:
            problem = f"no line has a {what}"
        raise UsageError(
            problem, where=f"responses.{what}", expected="one of " + ", ".join(names), remedy=f"name it: {what}: NAME"
        )
    return chosen


def _read(path: Path, base: str | Path, filter: str, metric: str, join: str) -> _Log:
    log = _Log(_model(path), _shard(path, base))
    steps = join.split(".")[1:]
    for objects, _, rows, rejects in json_objects(log.shard, "utf-8", lenient=True):
        log.rejects += rejects
        for row, found in zip(rows, objects, strict=True):
            if str(found.get("filter", "none")) != filter:
                continue
            if not isinstance(found.get("doc"), dict):
                log.rejects.append(Reject(row, "the line has no document", "doc"))
                continue
            key = _texts(found) if join == "input" else _field(found["doc"], steps)
            if key is None:
                log.rejects.append(Reject(row, f"the document has no field {join}", join))
                continue
            log.rows.append(row)
            log.keys.append(key)
            score = found.get(metric)
            log.scores.append(None if score is None else json_text(score))
    return log


def _model(path: Path) -> str:
    match = SAMPLES.match(path.name)
    assert match is not None
    beside = path.parent / f"results_{match['time']}.json"
    if beside.is_file():
        try:
            found = orjson.loads(beside.read_bytes())
        except orjson.JSONDecodeError:
            found = None  # results may hold NaN; the folder names the model just as well
        if isinstance(found, dict) and isinstance(found.get("model_name"), str) and found["model_name"].strip():
            return str(found["model_name"])
    return path.parent.name


def _field(document: dict[str, Any], steps: list[str]) -> str | None:
    value: Any = document
    for step in steps:
        value = value.get(step) if isinstance(value, dict) else None
    return None if value is None else json_text(value)


def _texts(found: dict[str, Any]) -> dict[str, str]:
    """The texts by which a line may be told: the document's own and the prompt."""
    texts = {f"doc.{key}": value for key, value in found["doc"].items() if isinstance(value, str)}
    arguments = found.get("arguments")
    first = arguments.get("gen_args_0", {}).get("arg_0") if isinstance(arguments, dict) else None
    if isinstance(arguments, list) and arguments and isinstance(arguments[0], list) and arguments[0]:
        first = arguments[0][0]
    return texts | ({"prompt": first} if isinstance(first, str) else {})


def _ids_by_input(examples: pl.DataFrame) -> dict[str, str]:
    """Id of the example with each normalised input; a text that several examples share, or none, tells of none."""
    texts = list(map(normalise, examples["input"].fill_null("").to_list()))
    often = Counter(texts)
    pairs = zip(texts, examples["example_id"].to_list(), strict=True)
    return {text: example for text, example in pairs if text and often[text] == 1}


def _name_by_input(logs: list[_Log], ids: dict[str, str], where: str) -> None:
    """Replace the texts of every line by the id of the example with that input, by the field that matches most."""
    hits: Counter[str] = Counter()
    for log in logs:
        for texts in log.keys:
            hits.update(name for name, value in texts.items() if normalise(value) in ids)
    if not hits:
        seen = sorted({name for log in logs for texts in log.keys[:100] for name in texts})
        raise DataRefused(
            "no document's text is the input of an example",
            where=where,
            expected="one of the fields " + ", ".join(seen) + " to be the input",
            remedy="join by a field that holds the example's id: join: doc.id",
        )
    best = min(hits, key=lambda name: (-hits[name], name))
    for log in logs:
        texts = [normalise(found.get(best, "")) for found in log.keys]
        log.keys = [ids.get(value, value) for value in texts]


def _frame(numbered: tuple[int, _Log]) -> pl.DataFrame:
    # attempts count in the order of (source_uri, source_row): the time of the run leads
    place, log = numbered
    nothing = pl.lit(None, pl.String)
    return pl.DataFrame(
        {
            "source_uri": pl.Series([log.shard.uri] * len(log.rows), dtype=pl.String),
            "source_row": pl.Series(log.rows, dtype=pl.Int64),
            "respondent": pl.Series([log.model] * len(log.rows), dtype=pl.String),
            "example": pl.Series(log.keys, dtype=pl.String),
            "score": pl.Series(log.scores, dtype=pl.String),
        }
    ).with_columns(
        order=pl.lit(place, pl.Int64),
        family=nothing,
        attempt=nothing,
        period=nothing,
        attempted_at=pl.lit(None, pl.Datetime("us", "UTC")),
        bad_time=False,
        has_attempt=False,
        has_period=False,
    )
