"""The public functions: the notebook's way to every method, with no store, no server and no recipe."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from gradatim.inputs import as_difficulties, as_examples, as_features, as_frame, as_responses, as_seed, as_settings
from gradatim.schemas.errors import UsageError, nearest
from gradatim.schemas.recipe import Checks, Dynamics, Examples, Features, Options, Responses
from gradatim.tasks.core.registry import configure, get, plugins

if TYPE_CHECKING:
    from gradatim.storage.tables import Dataset
    from gradatim.tasks.curriculum.result import CurriculumOrder
    from gradatim.tasks.difficulty.agreement import Agreement
    from gradatim.tasks.difficulty.result import Difficulty
    from gradatim.tasks.diversity.result import Diversity
    from gradatim.tasks.embedding.result import Embedding
    from gradatim.tasks.evaluation.comparison import Comparison
    from gradatim.tasks.evaluation.cross_matrix import CrossMatrix
    from gradatim.tasks.evaluation.result import Evaluation
    from gradatim.tasks.evaluation.selection import Selection
    from gradatim.tasks.splits.certificate import Certificate
    from gradatim.tasks.splits.result import Split
    from gradatim.tasks.splits.side_by_side import SideBySide

Table = Any
"""A Polars DataFrame or LazyFrame, a pandas DataFrame, or an Arrow table."""


# --- reading


def read(path: str | Path, **columns: Any) -> pl.DataFrame:
    """Read examples from a file, glob or folder (CSV, JSON Lines, Parquet, Arrow IPC), or generate a data set.

    Parameters
    ----------
    path : str or Path
        Or ``generate:NAME`` for a procedural data set, e.g. ``generate:scan``.
    **columns
        The keys of a recipe's section `examples`: ``id="id", input="question", output="answer", group="template"``.

    Returns
    -------
    polars.DataFrame
        The table `examples` and the payload columns; one row an example, sorted by example_id. Rejected rows are
        counted in a warning; a recipe keeps them as a table.

    Raises
    ------
    UsageError
        For an unknown key or column.
    DataRefused
        For a file that cannot be read.
    """
    from gradatim.tasks.ingest.examples import read_examples

    generated = str(path).startswith("generate:")
    source = {"generate": str(path).removeprefix("generate:")} if generated else {"from": str(path)}
    ingested = read_examples(as_settings(Examples, {**source, **columns}, "read"), base=Path())
    _warn_rejected(ingested.rejects, ingested.counts.rows_in)
    return ingested.table


def read_responses(path: str | Path, *, examples: Table | None = None, **columns: Any) -> pl.DataFrame:
    """Read who solved what: a long table, a wide one, or lm-evaluation-harness logs.

    Parameters
    ----------
    path : str or Path
    examples : table, optional
        Examples to join to; fewer than 98 % joined is refused.
    **columns
        The keys of a recipe's section `responses`: ``respondent="model", example="id", score="correct"``.

    Returns
    -------
    polars.DataFrame
        The table `responses`, with the respondents' `family` where it is known.
    """
    from gradatim.tasks.ingest.responses import read_responses as reader

    settings = as_settings(Responses, {"from": str(path), **columns}, "read_responses")
    known = None if examples is None else as_frame(examples, "examples")
    found = reader(settings, base=Path(), examples=known, joined=Checks().joined)
    _warn_rejected(found.rejects, found.rows_in)
    family = found.respondents.select("respondent_id", "family")
    if family["family"].null_count() == len(family):
        return found.responses
    return found.responses.join(family, on="respondent_id", how="left", maintain_order="left")


def read_lm_eval(
    path: str | Path,
    *,
    metric: str | None = None,
    filter: str | None = None,
    join: str | None = None,
    examples: Table | None = None,
) -> pl.DataFrame:
    """Read lm-evaluation-harness sample logs (``--log_samples``) as the table `responses`.

    Parameters
    ----------
    path : str or Path
        Folder, glob or file of samples_*.jsonl.
    metric, filter : str, optional
        Needed where the logs hold more than one.
    join : str, optional
        Field of the document with the example's id, e.g. ``doc.id`` (the default), or ``input``.
    examples : table, optional
        Examples to join to; needed for ``join="input"``.
    """
    return read_responses(path, examples=examples, format="lm-eval", metric=metric, filter=filter, join=join)


def read_dynamics(path: str | Path, **columns: Any) -> pl.DataFrame:
    """Read what a trainer logged, a row an example and epoch, as the table `dynamics`.

    Parameters
    ----------
    path : str or Path
    **columns
        The keys of a recipe's section `dynamics`: ``example="guid", logits="logits", gold="label"``, or
        ``format="cartography"``.
    """
    from gradatim.tasks.ingest.dynamics import read_dynamics as reader

    return reader(as_settings(Dynamics, {"from": str(path), **columns}, "read_dynamics"), base=Path())


def read_options(path: str | Path, **columns: Any) -> pl.DataFrame:
    """Read the probabilities that models give to the options of multiple-choice questions, as the table `options`.

    Parameters
    ----------
    path : str or Path
    **columns
        The keys of a recipe's section `options`: ``respondent="model", probabilities=["p_a", "p_b"], gold="answer"``.
    """
    from gradatim.tasks.ingest.options import read_options as reader

    return reader(as_settings(Options, {"from": str(path), **columns}, "read_options"), base=Path())


def read_features(path: str | Path, **columns: Any) -> pl.DataFrame:
    """Read vectors from Parquet, Arrow IPC, .npy or .npz as a table of example_id and embedding.

    Parameters
    ----------
    path : str or Path
    **columns
        The keys of a recipe's section `features`: ``example="id", columns="vector"``, or ``ids="ids.txt"`` for .npy.
    """
    from gradatim.tasks.ingest.features import read_features as reader

    return reader(as_settings(Features, {"from": str(path), **columns}, "read_features"), base=Path())


def _warn_rejected(rejects: pl.DataFrame, rows_in: int) -> None:
    if len(rejects):
        reasons = rejects.group_by("reason").len().sort("len", "reason", descending=[True, False])
        listed = "; ".join(f"{number:,} x {reason}" for reason, number in reasons.head(3).iter_rows())
        warnings.warn(f"{len(rejects):,} of {rows_in:,} rows rejected: {listed}", stacklevel=3)


# --- measuring


def embed(examples: Table, method: str = "hashed_tfidf", *, seed: int = 0, **settings: Any) -> Embedding:
    """Turn text or columns into vectors by any embedder; `methods("embedding")` lists them.

    Parameters
    ----------
    examples : table
        With example_id and the columns that the embedder reads.
    method : str
        ``hashed_tfidf``, ``standardised``, ``sentence_transformer`` or ``static``.
    seed : int
    **settings
        The embedder's settings, e.g. ``column="input", width=64``; `anchor` means something in recipes alone.

    Returns
    -------
    Embedding
        Goes as it is into ``features={"words": ...}``; `.table` (example_id, embedding), `.matrix`,
        `.embed(other_examples)` (by the same fit), `.summary()`, `.cite()`.
    """
    from gradatim.tasks.embedding.result import embed as run

    plugin = get("embedding", method)
    return run(plugin, configure(plugin, settings, where=method), as_frame(examples, "examples"), as_seed(seed, method))


def difficulty(
    method: str,
    *,
    examples: Table | None = None,
    responses: Any = None,
    dynamics: Table | None = None,
    options: Table | None = None,
    features: Mapping[str, Any] | None = None,
    difficulties: Sequence[Difficulty] | Table | None = None,
    seed: int = 0,
    **settings: Any,
) -> Difficulty:
    """Estimate difficulty by any method; `methods("difficulty")` lists them with what each needs.

    Parameters
    ----------
    method : str
        E.g. ``irt``, ``pass_rate``, ``length``, ``column``.
    examples : table, optional
        For methods that look at the examples.
    responses : table or 0/1 matrix, optional
        For methods that look at who solved what; see `irt`.
    dynamics : table, optional
        For methods that look at a training: as `read_dynamics` gives it.
    options : table, optional
        For methods that look at the options of multiple-choice questions: as `read_options` gives it.
    features : mapping of str to table or matrix, optional
        Vectors by name: example_id and embedding as `read_features` gives them, or an (N, d) matrix whose rows are
        those of `examples`.
    difficulties : sequence of Difficulty, or table, optional
        For methods that look at other difficulties.
    seed : int
    **settings
        The method's settings.
    """
    tables = {}
    if examples is not None:
        tables["examples"] = as_frame(examples, "examples")
    if responses is not None:
        tables |= as_responses(responses)
    if dynamics is not None:
        tables["dynamics"] = as_frame(dynamics, "dynamics")
    if options is not None:
        tables["options"] = as_frame(options, "options")
    for name, vectors in (features or {}).items():
        tables[f"features_{name}"] = as_features(vectors, tables.get("examples"), name)
    if difficulties is not None:
        tables["difficulty"] = as_difficulties(difficulties)
    result: Difficulty = _run("difficulty", method, tables, settings, seed)
    return result


def irt(responses: Any, *, model: str = "1pl", seed: int = 0, **settings: Any) -> Difficulty:
    """Estimate difficulty by item response theory.

    Parameters
    ----------
    responses : table or array-like
        Columns respondent_id, example_id, score (and family, if known); or a matrix of scores in [0, 1], respondents x
        examples, NaN where not attempted. A pandas or Polars matrix with named columns keeps the names.
    model : "1pl" or "2pl"
    seed : int
    **settings
        See the method's page.

    Returns
    -------
    Difficulty
        `.table` (example_id, value, standard_error, percentile, bin, ...), `.item_parameters`, `.respondents`,
        `.leave_out(name)`, `.explain(id)`, `.plot()`, `.cite()`.
    """
    return difficulty("irt", responses=responses, seed=seed, model=model, **settings)


def pass_rate(responses: Any, *, seed: int = 0, **settings: Any) -> Difficulty:
    """Estimate difficulty as one minus the share solved, with an interval; arguments as for `irt`."""
    return difficulty("pass_rate", responses=responses, seed=seed, **settings)


def diversity(
    examples: Table,
    method: str,
    *,
    features: Mapping[str, Any] | None = None,
    responses: Any = None,
    seed: int = 0,
    **settings: Any,
) -> Diversity:
    """Measure diversity by any method; `methods("diversity")` lists them.

    Parameters
    ----------
    examples : table
    method : str
        E.g. ``hill`` or ``vendi``.
    features : mapping of str to table or matrix, optional
        Vectors by name, as for `difficulty`; the setting `features` names one of several. A name alone is that setting.
    responses : table or 0/1 matrix, optional
        For measures that look at who solved what; see `irt`.
    seed : int
    **settings
        The method's settings. An earlier result as `anchor` gives rows the clusters of that one.
    """
    tables = {"examples": as_examples(examples)}
    if responses is not None:
        tables |= as_responses(responses)
    if isinstance(features, str):
        settings["features"] = features
        features = None
    for name, vectors in (features or {}).items():
        tables[f"features_{name}"] = as_features(vectors, tables["examples"], name)
    centroids = getattr(settings.get("anchor"), "centroids", None)
    if centroids is not None:
        tables["anchor"], settings["anchor"] = centroids, "current"
    result: Diversity = _run("diversity", method, tables, settings, seed)
    return result


# --- splitting, ordering, evaluating


def split(
    examples: Table,
    method: str,
    *,
    seed: int = 0,
    difficulty: Difficulty | Table | None = None,
    features: Mapping[str, Any] | str | None = None,
    pairs: Table | None = None,
    released: Split | Table | None = None,
    **settings: Any,
) -> Split:
    """Split examples by any strategy; `methods("split")` lists them.

    Parameters
    ----------
    examples : table
    method : str
        E.g. ``random``, ``group``, ``length``, ``threshold``, ``leave_one_domain_out``.
    seed : int
    difficulty : Difficulty or table, optional
        Adds the difficulty-matched control.
    features : mapping of str to table or array, or str, optional
        Vectors by name, for strategies that read some. A name alone is the strategy's setting `features`.
    pairs : table, optional
        Near-duplicates to keep together: left_id, right_id; e.g. ``gd.diversity(items, "near_duplicates").pairs``.
    released : Split or table, optional
        An earlier split whose test rows stay where they are.
    **settings
        The strategy's settings, e.g. ``column="n_steps", train="<= 6", keep_together="template"``.

    Returns
    -------
    Split
        `.counts`, `.train`, `.ids("test_ood")`, `.why(id)`, `.certify(examples)`, `.plot()`.
    """
    if isinstance(features, str):
        settings["features"] = features
        features = None
    tables = {"examples": as_frame(examples, "examples")}
    if difficulty is not None:
        tables["difficulty"] = as_frame(difficulty, "difficulty")
    for name, vectors in (features or {}).items():
        tables[f"features_{name}"] = as_features(vectors, tables["examples"], name)
    if pairs is not None:
        tables["pairs"] = as_frame(pairs, "pairs")
    if released is not None:
        given = getattr(released, "released", None)
        tables["frozen"] = given if given is not None else as_frame(released, "released")
    result: Split = _run("split", method, tables, settings, seed)
    return result


def certify(
    split: Split, examples: Table, difficulty: Any = None, responses: Any = None, pairs: Any = None
) -> Certificate:
    """Check what a split promises and measure what it shifts; the same as ``split.certify(...)``."""
    return split.certify(
        as_frame(examples, "examples"),
        None if difficulty is None else as_frame(difficulty, "difficulty"),
        None if responses is None else as_responses(responses)["responses"],
        None if pairs is None else as_frame(pairs, "pairs"),
    )


def compare_splits(*certificates: Certificate) -> SideBySide:
    """Set strategies side by side over their seeds and folds; `.table`, `.summary()`, `.plot("shift AUC")`."""
    from gradatim.tasks.splits.side_by_side import side_by_side

    return side_by_side(certificate.table for certificate in certificates)


def curriculum(
    train: pl.Series | Sequence[str],
    *,
    by: Difficulty | Table,
    pacing: str = "competence",
    arms: str | Sequence[str] = ("curriculum", "random", "anti", "shuffled"),
    passes: float = 1.0,
    stages: int = 10,
    seed: int = 0,
    **settings: Any,
) -> CurriculumOrder:
    """Order training rows from easy to hard, with control arms of the same rows.

    Parameters
    ----------
    train : sequence of str
        Ids of the training rows, e.g. ``s.train``.
    by : Difficulty or table
    pacing : str
        `methods("pacing")` lists them; `settings` are its own.
    arms : str or sequence of str
        One or more of curriculum, random, anti, shuffled.
    passes, stages, seed
        As in a recipe's section `curriculum`.

    Returns
    -------
    CurriculumOrder
        `.order("curriculum")` (ids in order), `.table`, `.plot()`.
    """
    from gradatim.tasks.curriculum.build import build_curriculum

    return build_curriculum(
        train,
        as_frame(by, "by"),
        pacing=pacing,
        settings=settings,
        arms=arms,
        passes=passes,
        stages=stages,
        seed=as_seed(seed, "curriculum"),
    )


def evaluate(
    split: Split | Table,
    predictions: Table,
    *,
    examples: Table | None = None,
    difficulty: Difficulty | Table | None = None,
    **settings: Any,
) -> Evaluation:
    """Score a model in and out of distribution, with intervals.

    Parameters
    ----------
    split : Split or table
        One strategy, seed and fold.
    predictions : table
        Table `predictions`, or `responses` of one model; without run_id and respondent_id all rows are one model's,
        called `model`, else `name`.
    examples : table, optional
        Adds the axes level and domain, and the group as the unit of resampling.
    difficulty : Difficulty or table, optional
        Adds the axis bin. If it rests on responses of the evaluated model, it is estimated again without them.
    **settings
        ``name, model, axes, cluster, resamples, seed``: see `gradatim.tasks.evaluation.evaluate`.

    Returns
    -------
    Evaluation
        `.gap`, `.matrix("bin").plot()`, `.sentence()`, `.table`.
    """
    from gradatim.tasks.evaluation.evaluate import evaluate as run

    if "seed" in settings:
        settings["seed"] = as_seed(settings["seed"], "evaluate")
    answers = as_frame(predictions, "predictions")
    if not {"run_id", "respondent_id"} & set(answers.columns):
        answers = answers.with_columns(run_id=pl.lit(settings.get("model") or settings.get("name") or "model"))
    places = split.main if hasattr(split, "main") else as_frame(split, "split")
    known = None if examples is None else as_frame(examples, "examples")
    # a Difficulty goes as it is: it can be estimated again without the evaluated model
    safe = difficulty if difficulty is None or hasattr(difficulty, "leave_out") else as_frame(difficulty, "difficulty")
    return run(answers, places, known, safe, **settings)


def agreement(*difficulties: Difficulty | Table) -> Agreement:
    """Correlate the ranks of several difficulties of the same examples; `.pairs`, `.disagreements`, `.plot()`."""
    from gradatim.tasks.difficulty.agreement import agreement as run

    return run(as_difficulties(difficulties))


def linked(new: Difficulty, old: Difficulty, *, method: Any = "mean_sigma", **settings: Any) -> Difficulty:
    """Put an IRT difficulty on the scale of an earlier one through the examples that both know.

    Parameters
    ----------
    new, old : Difficulty
    method : str
        mean_sigma, mean_mean, stocking_lord or haebara.
    **settings
        See `gradatim.tasks.difficulty.item_response.linking.linked`.
    """
    from gradatim.tasks.difficulty.item_response.linking import linked as run

    return run(new, old, method, **settings)


def compare(arms: Mapping[str, Evaluation], baseline: str | None = None, *, seed: int = 0) -> Comparison:
    """Compare evaluations pair by pair on the examples that all of them answered."""
    from gradatim.tasks.evaluation.compare import compare as run

    return run(arms, baseline, seed=as_seed(seed, "compare"))


def select_models(
    split: Split | Table, predictions: Table, runs: Table, *, examples: Table, domain: str = "domain", **settings: Any
) -> Selection:
    """Choose among runs of a leave-one-domain-out split by each of three rules, which are never mixed.

    Parameters
    ----------
    split : Split or table
        Of ``leave_one_domain_out`` or ``site``, all folds.
    predictions : table
        Table `predictions` of all runs.
    runs : table
        One row a run: run_id, fold, hyper_parameters, and trial where the search was repeated.
    examples : table
        With the column `domain`.

    Returns
    -------
    Selection
        `.mean("training_domains")`, `.table` (the chosen runs), `.means`, `.missing`, `.plot()`.
    """
    from gradatim.tasks.evaluation.selection import select_models as run

    return run(*_by_fold(split, predictions, examples, runs), domain=domain, **settings)


def cross_matrix(
    split: Split | Table, predictions: Table, runs: Table, *, examples: Table, column: str = "dataset", **settings: Any
) -> CrossMatrix:
    """Score every training set on every evaluated set, with intervals.

    Parameters
    ----------
    split : Split or table
        Of ``cross_dataset`` or ``leave_one_domain_out``, all folds.
    predictions : table
        Table `predictions` of all runs.
    runs : table
        One row a run: run_id, fold.
    examples : table
        With `column`, which names the data set.
    **settings
        ``cluster, variant, common, resamples, seed``: see `gradatim.tasks.evaluation.cross_matrix`.

    Returns
    -------
    CrossMatrix
        `.table`, `.cell(trained, evaluated)`, `.means`, `.asymmetry`, `.plot()`.
    """
    from gradatim.tasks.evaluation.cross_matrix import cross_matrix as run

    if "seed" in settings:
        settings["seed"] = as_seed(settings["seed"], "cross_matrix")
    return run(*_by_fold(split, predictions, examples, runs), column=column, **settings)


def competence(
    scores: Evaluation | Table, *, by: str = "task", at: float | Sequence[float] = (0.75, 0.9)
) -> pl.DataFrame:
    """Return the share of tasks whose mean score reaches a level, with Wilson's interval over tasks.

    Parameters
    ----------
    scores : Evaluation or table
        An evaluation with the axis `by` (``gd.evaluate(..., axes=["task"])``), or rows of `by` and score.
    by : str
    at : float or sequence of float
        Levels in (0, 1].
    """
    from gradatim.tasks.evaluation.competence import competence as run

    rows: pl.DataFrame = scores.scores if hasattr(scores, "scores") else as_frame(scores, "scores")
    return run(rows, by=by, at=at)


def _by_fold(
    split: Split | Table, predictions: Table, examples: Table, runs: Table
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    places = split.main if hasattr(split, "main") else as_frame(split, "split")
    answers, known = as_frame(predictions, "predictions"), as_frame(examples, "examples")
    return answers, places, known, as_frame(runs, "runs")


# --- finding


def methods(area: str) -> pl.DataFrame:
    """List an area's methods: embedding, difficulty, diversity, split, pacing, model, dataset or reader.

    Returns
    -------
    polars.DataFrame
        name, summary, needs, maturity, source.
    """
    rows = [
        (name, plugin.summary, ", ".join(plugin.needs), plugin.maturity, plugin.source)
        for name, plugin in plugins(area).items()
    ]
    return pl.DataFrame(rows, schema=["name", "summary", "needs", "maturity", "source"], orient="row")


def open_store(location: str | Path, dataset: str | None = None) -> Dataset:
    """Open a dataset of a store: ``scan("splits@12")``, ``paths("splits")``, ``versions("splits")``.

    Parameters
    ----------
    location : str or Path
        Folder or URL.
    dataset : str, optional
        May be left out where the store holds one.
    """
    from gradatim.storage.store import Store

    store = Store.open(location)
    known = store.datasets()
    if dataset is None and len(known) == 1:
        dataset = known[0]
    if dataset not in known:
        raise UsageError(
            f"there is no dataset {dataset!r}{nearest(dataset, known)}" if dataset else "which dataset?",
            where=str(location),
            expected="one of " + (", ".join(known) or "(none yet)"),
        )
    return store.dataset(dataset)


# --- running

_ARGUMENTS = {name: f"{name}=..." for name in ("examples", "responses", "dynamics", "options")} | {
    "difficulty": "difficulties=[...]"
}


def _run(area: str, method: str, tables: dict[str, pl.DataFrame], settings: Mapping[str, Any], seed: int) -> Any:
    plugin = get(area, method)
    config = configure(plugin, settings, where=method)
    for table in sorted({need.split(".")[0] for need in plugin.columns(config) if not need.endswith("?")}):
        if table not in tables:
            given = _ARGUMENTS.get(table, "features={'" + table.removeprefix("features_") + "': ...}")
            raise UsageError(f"{method} needs {table}", where=area, remedy=f"give {given}")
    return plugin.run(tables, config, as_seed(seed, method))
