"""The Arrow schema, key and meaning of every table that gradatim writes.

A table is written sorted by its key inside each part; keys are unique and non-null over the whole table. Field
descriptions and units travel in the Arrow metadata, the contract's version in the schema's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from gradatim.schemas.errors import UsageError, nearest

CONTRACT_VERSION = "1"

SPLITS = ("train", "validation", "validation_ood", "test", "test_ood", "excluded")
"""The values of the column `split`."""

TREE = pa.list_(
    pa.struct([pa.field("node", pa.int32()), pa.field("parent", pa.int32()), pa.field("label", pa.string())])
)
"""A tree as a list of nodes: `node` counts from 0, the root's `parent` is -1, children stand in left-to-right order."""

FACTORS = pa.map_(pa.string(), pa.string())
EMBEDDING = "embedding"


@dataclass(frozen=True)
class TableSpec:
    """One table's contract.

    Attributes
    ----------
    name : str
    key : tuple of str
        Columns whose values together are unique and non-null; also the sort order.
    schema : pyarrow.Schema
        With a description in each field's metadata.
    open : bool
        Whether a user's further (payload) columns may follow.
    private : bool
        Whether rows hold what users wrote, so that they never reach logs, errors, events or artifacts.
    """

    name: str
    key: tuple[str, ...]
    schema: pa.Schema
    open: bool = False
    private: bool = False


def _field(name: str, dtype: pa.DataType, description: str, *, nullable: bool = True) -> pa.Field:
    return pa.field(name, dtype, nullable=nullable, metadata={"description": description})


def _spec(
    name: str,
    key: Iterable[str],
    fields: Iterable[tuple[str, pa.DataType, str]],
    *,
    open: bool = False,
    private: bool = False,
) -> TableSpec:
    key = tuple(key)
    schema = pa.schema(
        [_field(column, dtype, text, nullable=column not in key) for column, dtype, text in fields],
        metadata={"gradatim.table": name, "gradatim.contract": CONTRACT_VERSION, "gradatim.key": ",".join(key)},
    )
    return TableSpec(name, key, schema, open, private)


_s, _f8, _f4, _i8, _i4, _b = pa.string(), pa.float64(), pa.float32(), pa.int64(), pa.int32(), pa.bool_()
_time = pa.timestamp("us", tz="UTC")

_example = ("example_id", _s, "the example; a user's id, or the hash of its identity columns")
_respondent = ("respondent_id", _s, "who answered: a model, an agent or a person")
_method = ("method", _s, "name of the estimator or measure, with its settings where they differ from the defaults")
_strategy = ("strategy", _s, "name of the split strategy in the recipe")
_seed = ("seed", _i8, "seed of every random choice in this row's group")
_fold = ("fold", _i4, "fold, from 0")
_run = ("run_id", _s, "training or evaluation run")

TABLES: dict[str, TableSpec] = {
    spec.name: spec
    for spec in (
        _spec(
            "examples",
            ["example_id"],
            [
                _example,
                ("source_uri", _s, "file that the row came from, or generate:NAME"),
                ("source_row", _i8, "row in that file, from 0"),
                ("domain", _s, "where it comes from: repository, site, topic"),
                ("group", _s, "rows of one group never cross a split"),
                ("task", _s, "task that it belongs to"),
                ("level", _s, "difficulty level that people gave"),
                ("template", _s, "template or pattern that it was made from"),
                ("input", _s, "what the model sees"),
                ("output", _s, "what the model should answer"),
                ("factors", FACTORS, "named factors and their values, sorted by name"),
                ("structure", TREE, "derivation or parse as a tree"),
                ("length_input", _i8, "length of input in length_unit"),
                ("length_output", _i8, "length of output in length_unit"),
                ("length_unit", _s, "unit of both lengths: characters, words or tokens"),
                ("created_at", _time, "when the example came into being, if known"),
                ("content_hash", _s, "xxh3-128 of all that the user gave for this row, 32 hex digits"),
                ("first_version", _i8, "version of this table in which the id first appeared"),
                ("changed_version", _i8, "version of this table in which the content last changed"),
            ],
            open=True,
            private=True,
        ),
        _spec(
            "rejects",
            ["source_uri", "source_row"],
            [
                ("source_uri", _s, "file that the row came from"),
                ("source_row", _i8, "row in that file, from 0"),
                ("reason", _s, "why it was rejected"),
                ("column", _s, "column at fault, as the recipe names it"),
                ("value", _s, "the value, shortened"),
            ],
            private=True,
        ),
        _spec(
            "respondents",
            ["respondent_id"],
            [
                _respondent,
                ("family", _s, "family of related respondents"),
                (
                    "ability",
                    _f8,
                    "ability on the scale of the difficulty that estimates it (logit, glicko)",
                ),
                ("standard_error", _f8, "standard error of ability"),
                ("n", _i8, "number of responses"),
            ],
        ),
        _spec(
            "responses",
            ["respondent_id", "example_id", "attempt"],
            [
                _respondent,
                _example,
                ("attempt", _i4, "attempt of this respondent at this example, from 0"),
                ("score", _f8, "score in [0, 1]"),
                ("attempted_at", _time, "when, if known"),
                ("period", _i8, "rating period, if known"),
            ],
        ),
        _spec(
            "options",
            ["respondent_id", "example_id", "order"],
            [
                _respondent,
                _example,
                ("order", _i4, "which shown order of the options, from 0"),
                ("permutation", pa.list_(_i4), "option shown at each place"),
                ("probabilities", pa.list_(_f4), "probability of each shown option"),
                ("gold", _i4, "right option before permutation"),
            ],
        ),
        _spec(
            "dynamics",
            ["run_id", "position"],
            [
                _run,
                ("position", _i8, "position in the curriculum, from 0"),
                _example,
                ("epoch", _i4, "pass over the training set, from 0"),
                ("gold_probability", _f4, "probability of the right answer, in [0, 1]; geometric mean over its tokens"),
                ("correct", _b, "whether the answer was right"),
                ("loss", _f4, "mean loss over the answer's tokens (nats)"),
                ("margin", _f4, "gold logit less the largest other one, smallest over the answer's tokens (logits)"),
                ("error_norm", _f4, "2-norm of probabilities less one-hot, mean over the answer's tokens, 0 to sqrt 2"),
                ("hidden_norm", _f4, "2-norm of the last layer's input, where recorded"),
                ("alignment", _f4, "cosine of the last layer's gradient step and its weights, where recorded, -1 to 1"),
            ],
        ),
        _spec(
            "difficulty",
            ["example_id", "method"],
            [
                _example,
                _method,
                ("value", _f8, "difficulty; higher is harder"),
                ("scale", _s, "unit of value: logit, probability, words, nats, ..."),
                ("raw", _f8, "the estimator's own number before any change of sign or scale"),
                ("standard_error", _f8, "standard error of value, where there is one"),
                ("percentile", _f8, "rank / N in (0, 1] on the total order (value, example_id)"),
                ("bin", _i4, "equal-count bin by rank, from 0 (easiest)"),
                ("n", _i8, "observations behind value"),
                ("flag", _s, "why the value should be read with care, or null"),
                ("details", _s, "further facts of this row as a JSON object, or null"),
            ],
        ),
        _spec(
            "item_parameters",
            ["example_id", "method"],
            [
                _example,
                _method,
                ("discrimination", _f8, "a, slope at the location (per logit)"),
                ("location", _f8, "b, ability at which the curve is steepest (logit)"),
                ("lower", _f8, "g, lower asymptote (probability)"),
                ("upper", _f8, "u, upper asymptote (probability)"),
                ("discrimination_error", _f8, "standard error of discrimination"),
                ("location_error", _f8, "standard error of location"),
                ("lower_error", _f8, "standard error of lower"),
                ("upper_error", _f8, "standard error of upper"),
                ("fit", _f8, "item fit statistic, where computed"),
            ],
        ),
        _spec(
            "diversity",
            ["example_id", "method"],
            [
                _example,
                _method,
                ("value", _f8, "the measure's value for this row"),
                ("cluster", _i8, "cluster or category"),
                ("nearest_id", _s, "nearest other example"),
                ("nearest_similarity", _f8, "similarity to it"),
            ],
        ),
        _spec(
            "centroids",
            ["method", "cluster"],
            [
                _method,
                ("cluster", _i8, "number of the cluster, as in the table diversity"),
                ("centroid", pa.list_(_f4), "centre, of the width of the vectors; of length 1 under cosine"),
                ("rows", _i8, "rows of the cluster in this version"),
            ],
        ),
        _spec(
            "pairs",
            ["left_id", "right_id", "kind", "method"],
            [
                ("left_id", _s, "one example"),
                ("right_id", _s, "the other"),
                ("kind", _s, "near_duplicate or contamination"),
                ("method", _s, "name of the measure in the recipe, and how the pair was found"),
                ("similarity", _f8, "similarity in [0, 1]"),
                ("threshold", _f8, "similarity from which the pair counts; one below it was measured and ties nothing"),
                ("left_version", _i8, "version of examples in which the left one came or last changed"),
                ("right_version", _i8, "the same of the right one"),
            ],
        ),
        _spec(
            "signatures",
            ["example_id", "method"],
            [
                _example,
                _method,
                ("scheme", _s, "hash of all settings that signatures depend on; those of one scheme compare"),
                ("digest", _s, "xxh3-128 of the normalised text, 32 hex digits; null where it has no word"),
                ("bands", pa.list_(_i8), "bands of MinHash, two rows that share one are compared; null for exact"),
            ],
        ),
        _spec(
            "components",
            ["example_id"],
            [
                _example,
                ("component", _s, "name of its component of near-duplicates, which stays; its own id if it is alone"),
                ("absorbed", _s, "name that its component had before another one took it in; null where none did"),
            ],
        ),
        _spec(
            "statistics",
            ["subset", "reference", "metric", "parameters_hash"],
            [
                ("subset", _s, "rows measured: all, or column=value"),
                ("reference", _s, "rows compared with, or an empty string"),
                ("metric", _s, "name of the measure"),
                ("parameters_hash", _s, "xxh3-128 of parameters"),
                ("value", _f8, "value"),
                ("ci_low", _f8, "lower end of the 95 % interval"),
                ("ci_high", _f8, "upper end of the 95 % interval"),
                ("n", _i8, "rows measured"),
                ("parameters", _s, "settings as JSON"),
            ],
        ),
        _spec(
            "splits",
            ["strategy", "seed", "fold", "example_id"],
            [
                _strategy,
                _seed,
                _fold,
                _example,
                ("split", _s, "one of " + ", ".join(SPLITS)),
                ("axis", _s, "what is shifted: length, domain, none, ..."),
                ("held_out", _s, "the held-out value or rule, for rows of an OOD split"),
                ("component", _s, "group or near-duplicate component that was kept whole"),
                ("reason", _s, "why this row is in this split"),
            ],
        ),
        _spec(
            "certificate",
            ["strategy", "seed", "fold", "check"],
            [
                _strategy,
                _seed,
                _fold,
                ("check", _s, "what was measured"),
                ("value", _f8, "value for this split"),
                ("bound", _s, "what was asked, e.g. '<= 0.02'; null where nothing was"),
                ("holds", _b, "whether it holds; null where nothing was asked"),
                ("control_value", _f8, "the same number for the size-matched random control"),
                ("matched_value", _f8, "the same number for the difficulty-matched control"),
                ("n", _i8, "rows measured"),
            ],
        ),
        _spec(
            "curriculum",
            ["arm", "seed", "position"],
            [
                ("arm", _s, "curriculum, random, anti or shuffled"),
                _seed,
                ("position", _i8, "position in training order, from 0"),
                _example,
                ("stage", _i4, "stage, from 0"),
                ("weight", _f4, "loss weight"),
            ],
        ),
        _spec(
            "runs",
            ["run_id"],
            [
                _run,
                ("kind", _s, "train or evaluate"),
                ("parent", _s, "run whose weights it started from"),
                ("manifest", _s, "hash of the order that it trained in"),
                ("state", _s, "running, finished, failed or fenced"),
                ("attempt", _i4, "attempt that reached the end, from 0"),
                ("config", _s, "settings as JSON"),
                ("figures", _s, "results as JSON: steps, loss, seconds, the audit chain"),
            ],
        ),
        _spec(
            "predictions",
            ["run_id", "checkpoint", "example_id", "attempt", "variant"],
            [
                _run,
                ("checkpoint", _i8, "optimizer steps done when the weights were taken"),
                _example,
                ("attempt", _i4, "attempt, from 0"),
                ("variant", _s, "perturbation of the input, or plain"),
                _seed,
                ("prediction", _s, "what the model answered"),
                ("correct", _b, "whether it was right"),
                ("score", _f8, "score in [0, 1]"),
                ("loss", _f8, "loss of the right answer (nats)"),
                ("probabilities", pa.list_(_f4), "class probabilities, where there are classes"),
            ],
            private=True,
        ),
        _spec(
            "evaluation",
            ["run_id", "checkpoint", "seed", "split_version", "axis", "slice", "metric"],
            [
                _run,
                ("checkpoint", _i8, "optimizer steps done when the weights were taken"),
                _seed,
                ("split_version", _i8, "version of the splits table"),
                ("axis", _s, "split, level, domain, bin, gap, ..."),
                ("slice", _s, "value on that axis"),
                ("metric", _s, "exact_match, gap, ..."),
                ("value", _f8, "value"),
                ("n", _i8, "rows behind it"),
                ("ci_low", _f8, "lower end of the interval"),
                ("ci_high", _f8, "upper end of the interval"),
                ("interval", _s, "how the interval was made"),
            ],
        ),
    )
}
"""Every table by name, but for `features_NAME`, which `spec` makes."""


def features_spec(name: str, width: int) -> TableSpec:
    """Return the contract of the table `features_NAME` with vectors of `width` float32."""
    vector = pa.list_(pa.float32(), width)
    return _spec(f"features_{name}", ["example_id"], [_example, (EMBEDDING, vector, f"{width}-dimensional vector")])


def spec(name: str) -> TableSpec:
    """Return a table's contract; raises `UsageError` with the nearest spelling for an unknown name."""
    try:
        return TABLES[name]
    except KeyError:
        raise UsageError(
            f"there is no table {name!r}{nearest(name, TABLES)}", expected="one of " + ", ".join(TABLES)
        ) from None
