"""Choose models of leave-one-domain-out runs by each of three rules, and say what each choice is worth."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.schemas.summary import Fact, Summary, SummaryTable
from gradatim.tasks.evaluation.by_fold import fold_scores
from gradatim.tasks.evaluation.scores import require
from gradatim.tasks.evaluation.seeds import spread

SOURCE = "I. Gulrajani, D. Lopez-Paz (2021). In search of lost domain generalization"
TRAINING, LEFT_OUT, ORACLE = "training_domains", "leave_one_domain_out", "oracle"
RULES = {
    TRAINING: "mean score on the validation rows of the training domains",
    LEFT_OUT: "mean score on one more domain that was left out, over those domains",
    ORACLE: "score on the test domain's own validation rows, at the last checkpoint",
}
"""The rules, in the order in which they trust less: the last one has seen the test domain."""
_RECORD: dict[str, Any] = {
    "trial": pl.Int64, "hyper_parameters": pl.String, "run_id": pl.String, "held_out": pl.List(pl.String),
    "checkpoint": pl.Int64, "domain": pl.String, "split": pl.String, "score": pl.Float64,
}  # fmt: skip
_KEY = ["trial", "test_domain", "hyper_parameters", "checkpoint"]


@dataclass(frozen=True, repr=False)
class Selection:
    """What each rule chose.

    Attributes
    ----------
    table : polars.DataFrame
        One row a rule, trial and test domain: rule, trial, domain, run_id, hyper_parameters, checkpoint,
        selection_score (what it was chosen by), score (on test_ood of that domain), candidates.
    means : polars.DataFrame
        One row a rule and domain, and one a rule for the mean over domains (domain null): value, standard_error (over
        trials; null for one), trials. Rules are never mixed.
    missing : dict of str to str
        Rules that could not be applied, and what they lack.
    """

    table: pl.DataFrame
    means: pl.DataFrame
    missing: dict[str, str] = field(default_factory=dict)

    def mean(self, rule: str, domain: str | None = None) -> float:
        """Return a rule's mean score over trials, of one test domain, or over the domains; NaN where there is none."""
        if rule not in RULES:
            raise UsageError(f"there is no rule {rule!r}{nearest(rule, RULES)}", expected=", ".join(RULES))
        named = pl.col("domain").is_null() if domain is None else pl.col("domain") == domain
        found = self.means.filter((pl.col("rule") == rule) & named)["value"]
        return float(found[0]) if len(found) else math.nan

    def sentence(self) -> str:
        """Say each rule's mean in one sentence."""
        said = [
            f"{rule.replace('_', ' ')} {100 * row['value']:.1f} %"
            + (f" ± {100 * row['standard_error']:.1f}" if row["standard_error"] is not None else "")
            for rule in RULES
            for row in self.means.filter((pl.col("rule") == rule) & pl.col("domain").is_null()).iter_rows(named=True)
        ]
        if not said:
            return "No rule could choose a model."
        domains = self.table["domain"].n_unique()
        return f"Mean score on {domains} domains that were left out, by how the model was chosen: {', '.join(said)}."

    def summary(self) -> Summary:
        """Describe the choices for terminal, report and artifact."""
        from gradatim.tasks.core.charts import chart

        totals = self.means.filter(pl.col("domain").is_null())
        notes = {rule: f"chosen by {text}" for rule, text in RULES.items()}
        facts = [
            Fact(rule.replace("_", " "), round(value, 4), note=notes[rule])
            for rule, value in totals.select("rule", "value").iter_rows()
        ]
        return Summary(
            step="select models",
            headline=self.sentence(),
            facts=tuple(facts),
            tables=(
                SummaryTable("Score by rule and test domain", tuple(self.means.columns), tuple(self.means.rows())),
                SummaryTable("Chosen models", tuple(self.table.columns), tuple(self.table.head(200).rows())),
            ),
            charts=(chart(self.plot(), self.sentence()),),
            warnings=tuple(f"{rule}: {why}" for rule, why in self.missing.items()),
            sources=(SOURCE,),
        )

    def plot(self) -> Any:
        """Draw the mean score of each test domain by rule (an Altair chart)."""
        from gradatim.tasks.core.charts import bars

        shown = self.means.with_columns(pl.col("domain").fill_null("mean of domains"))
        return bars(shown, x="domain", y="value", color="rule", title="Score on the domain left out")

    def cite(self) -> str:
        """Return the source of the rules."""
        return SOURCE

    def __repr__(self) -> str:
        return "\n".join([self.sentence(), *(f"  ! {rule}: {why}" for rule, why in self.missing.items())])


def select_models(
    predictions: pl.DataFrame,
    splits: pl.DataFrame,
    examples: pl.DataFrame,
    runs: pl.DataFrame,
    *,
    domain: str = "domain",
    variant: str = "plain",
) -> Selection:
    """Choose among runs of a leave-one-domain-out split by each rule.

    Parameters
    ----------
    predictions : polars.DataFrame
        Table `predictions` of all runs, at all checkpoints.
    splits : polars.DataFrame
        Table `splits` of leave_one_domain_out, all folds.
    examples : polars.DataFrame
        With the column `domain`.
    runs : polars.DataFrame
        One row a run: run_id, fold, hyper_parameters (any text that tells settings apart); `trial` where the whole
        search was repeated, `split_seed` where the splits have several seeds.

    Returns
    -------
    Selection

    Raises
    ------
    UsageError, DataRefused
        As `fold_scores`, and where two runs have the same trial, settings and fold.
    """
    require(runs, "hyper_parameters", "runs")
    scores, folds = fold_scores(predictions, splits, examples, runs, domain, variant=variant)
    scores = scores.with_columns(pl.col("trial" if "trial" in scores.columns else "split_seed").alias("trial"))
    held = (
        folds.filter(pl.col("split").is_in(["test_ood", "validation_ood"]))
        .group_by("split_seed", "fold")
        .agg(pl.col("value").unique().sort().alias("held_out"))
    )
    keys = ["trial", "hyper_parameters", "run_id", "split_seed", "fold", "checkpoint", "value", "split"]
    # sorted in each group, so that the sum does not depend on threads
    means = scores.group_by(keys).agg(pl.col("score").sort().mean())
    records = means.join(held, on=["split_seed", "fold"]).rename({"value": "domain"})
    return select_by_records(records)


def select_by_records(records: pl.DataFrame) -> Selection:
    """Choose among runs by each rule, from their mean scores.

    Parameters
    ----------
    records : polars.DataFrame
        One row a run, checkpoint, domain and split: trial, hyper_parameters, run_id, held_out (list: the one domain
        that the run left out, or two), checkpoint, domain, split, score.

    Returns
    -------
    Selection

    Notes
    -----
    *training_domains*: of all settings and checkpoints, the largest mean, over training domains, of the score on their
    validation rows. *leave_one_domain_out*: the largest mean, over every other domain, of the score on that domain of
    the run with the same settings and checkpoint that left it out too. *oracle*: the largest score on the test
    domain's validation rows, of all settings at their last checkpoint. A tie goes to the earlier checkpoint, then to
    the settings that sort first. The score of a choice is that on test_ood of the run that left out the test domain
    alone.
    """
    for name in _RECORD:
        require(records, name, "records")
    records = records.select(pl.col(name).cast(kind) for name, kind in _RECORD.items())
    records = records.with_columns(pl.col("held_out").list.sort())
    bad = records.filter(pl.col("score").is_null() | pl.col("score").is_nan())
    if len(bad):
        raise DataRefused(f"{len(bad):,} records have no score", where="records.score", expected="a number for each")
    same = ["trial", "hyper_parameters", "held_out", "checkpoint", "domain", "split"]
    twice = records.filter(pl.struct(same).is_duplicated()).sort("run_id", "checkpoint", "domain", "split")
    if len(twice):
        raise UsageError(
            f"{', '.join(map(repr, twice['run_id'].unique().sort().head(2)))}: trial {twice['trial'][0]}, the settings "
            f"{twice['hyper_parameters'][0]!r} and the fold come twice",
            where="runs",
            expected="one run for each trial, settings and fold",
            remedy="tell repeats apart in a column 'trial'",
        )
    single = records.filter(pl.col("held_out").list.len() == 1).with_columns(
        pl.col("held_out").list.first().alias("test_domain")
    )
    own = pl.col("domain") == pl.col("test_domain")
    tested = single.filter(own & (pl.col("split") == "test_ood"))
    if tested.is_empty():
        raise DataRefused(
            "no run that left out one domain has a score on its test_ood rows",
            where="select_models",
            expected="runs of the folds that leave out one domain",
        )
    candidates = tested.select(*_KEY, "run_id", "score")
    chosen, missing = [], {}
    for rule, (values, lacks) in {
        TRAINING: (_by_training_domains(single), "no predictions of the validation rows of the training domains"),
        LEFT_OUT: (
            _by_left_out(records),
            "no settings have a run for each pair of domains; split with cross_validation: true, train on each fold",
        ),
        ORACLE: (_by_oracle(single), "no predictions of validation_ood; split with validation_ood: 0.2"),
    }.items():
        found = _best(candidates, values).with_columns(pl.lit(rule).alias("rule"))
        without = candidates.select("trial", "test_domain").unique().height - len(found)
        if without:
            missing[rule] = lacks if found.is_empty() else f"{without} trials and test domains are left out: {lacks}"
        chosen.append(found)
    order = pl.Enum(list(RULES))
    table = pl.concat(chosen).sort(pl.col("rule").cast(order), "trial", "test_domain")
    table = table.rename({"test_domain": "domain"}).select(
        "rule", "trial", "domain", "run_id", "hyper_parameters", "checkpoint", "selection_score", "score", "candidates"
    )
    return Selection(table, _means(table), missing)


def _by_training_domains(single: pl.DataFrame) -> pl.DataFrame:
    """Average over training domains; only where as many were predicted as with any other settings."""
    validation = single.filter((pl.col("split") == "validation") & (pl.col("domain") != pl.col("test_domain")))
    found = validation.group_by(_KEY).agg(pl.col("score").sort().mean().alias("selection_score"), pl.len().alias("n"))
    return found.filter(pl.col("n") == pl.col("n").max().over("trial", "test_domain")).drop("n")


def _by_left_out(records: pl.DataFrame) -> pl.DataFrame:
    """Average over every other domain the score on it of the run that left out both; only where all are there."""
    others = records["held_out"].explode().n_unique() - 1
    pairs = records.filter((pl.col("held_out").list.len() == 2) & (pl.col("split") == "test_ood"))
    pairs = pairs.with_columns(pl.col("held_out").alias("test_domain")).explode("test_domain")
    other = pairs.filter(pl.col("domain") != pl.col("test_domain"))
    found = other.group_by(_KEY).agg(pl.col("score").sort().mean().alias("selection_score"), pl.len().alias("n"))
    return found.filter(pl.col("n") == others).drop("n")


def _by_oracle(single: pl.DataFrame) -> pl.DataFrame:
    own = single.filter((pl.col("domain") == pl.col("test_domain")) & (pl.col("split") == "validation_ood"))
    last = pl.col("checkpoint") == pl.col("checkpoint").max().over("trial", "test_domain", "hyper_parameters")
    # the last checkpoint of the run, whether or not it has predictions of validation_ood
    final = single.filter(last).select(_KEY).unique()
    return own.join(final, on=_KEY, how="semi").select(*_KEY, pl.col("score").alias("selection_score"))


def _best(candidates: pl.DataFrame, values: pl.DataFrame) -> pl.DataFrame:
    """Take the largest value in each trial and test domain; a tie goes to the earlier checkpoint, then by settings."""
    ranked = (
        candidates.join(values, on=_KEY)
        .with_columns(
            pl.col("selection_score").round(9).alias("rank"), pl.len().over("trial", "test_domain").alias("candidates")
        )
        .sort("trial", "test_domain", -pl.col("rank"), "checkpoint", "hyper_parameters")
    )
    return ranked.unique(["trial", "test_domain"], keep="first", maintain_order=True).drop("rank")


def _means(table: pl.DataFrame) -> pl.DataFrame:
    """Average over trials: each test domain, and each trial's mean over domains where it has all of them."""
    rows: list[tuple[str, str | None, float, float | None, int]] = []
    every = table["domain"].n_unique()
    for (rule,), part in table.group_by("rule", maintain_order=True):
        values: dict[str | None, list[float]] = {}
        for (name,), its in part.sort("domain", "trial").group_by("domain", maintain_order=True):
            values[str(name)] = its["score"].to_list()
        trials = part.sort("trial", "domain").group_by("trial", maintain_order=True).agg("score")["score"].to_list()
        values[None] = [math.fsum(scores) / every for scores in trials if len(scores) == every]
        for name, numbers in values.items():
            if numbers:
                over = spread(numbers)
                error = over.sd / math.sqrt(over.n) if over.n > 1 else None
                rows.append((str(rule), name, over.mean, error, over.n))
    schema = {
        "rule": pl.String, "domain": pl.String, "value": pl.Float64, "standard_error": pl.Float64, "trials": pl.Int64,
    }  # fmt: skip
    return pl.DataFrame(rows, schema=schema, orient="row")
