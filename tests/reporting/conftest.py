"""A run's summaries that use every field, and texts that try to escape."""

from __future__ import annotations

from datetime import UTC, datetime

import polars as pl
import pytest

from gradatim.schemas.summary import Fact, Summary, SummaryTable
from gradatim.tasks.core import charts
from gradatim.tasks.reporting.report import Report


@pytest.fixture(scope="session")
def summaries() -> tuple[Summary, ...]:
    rows = pl.DataFrame({"split": ["train", "test", "test_ood"], "n": [4480, 560, 812]})
    drawn = charts.chart(charts.bars(rows, x="split", y="n", title="Rows by split"), "Long items are held out.")
    return (
        Summary("difficulty", "irt 1pl, 9 respondents, reliability .62: supports 3 bins"),
        Summary(
            "split length",
            "train 4,480  test 560  test_ood 812    near-duplicates across: 0",
            facts=(
                Fact("shift AUC", 0.94, note="random control .50"),
                Fact("zero-shot gap", -0.18, note="difficulty-matched -.03"),
                Fact("held out", 0.139, "share"),
            ),
            tables=(
                SummaryTable("Certificate", ("check", "value", "holds"), (("disjoint", 0, True),), note="All hold."),
                SummaryTable("Rows", ("example_id", "input"), (("q17", "a secret text"),), private=True),
            ),
            charts=(drawn,),
            warnings=("The longest bin has 12 rows.",),
            next=("gradatim why q17", "Add longer items."),
            sources=("Some Author (2020). A title.",),
            reused=True,
        ),
    )


@pytest.fixture(scope="session")
def report(summaries: tuple[Summary, ...]) -> Report:
    return Report(
        title="Items: length split",
        dataset="items",
        created=datetime(2026, 11, 29, 3, 10, tzinfo=UTC),
        headline=("Short items are solved: .99 (.98 to 1).", "Long ones are not."),
        summaries=summaries,
        recipe_yaml="dataset: items\nseed: 0\n",
        provenance=(("release", 4200), ("recipe hash", "8e1f02bc")),
        versions=SummaryTable("Tables", ("table", "version", "rows"), (("examples", 3, 5852),)),
        packages=(("polars", "2.1.0"),),
        commands=("pip install gradatim==0.1.0", "gradatim run recipe.yaml"),
    )
