"""Modular arithmetic: counts, Latin squares, laws."""

import numpy as np
import polars as pl
import pytest

from gradatim.schemas.errors import UsageError
from gradatim.schemas.tables import TABLES
from gradatim.tasks.core import trees
from gradatim.tasks.core.registry import configure, get
from gradatim.tasks.ingest.modular_arithmetic import ModularConfig, modular_arithmetic

PARTS = {part["task"][0]: part for part in modular_arithmetic(ModularConfig(p=97), 0)}


def test_counts_are_the_published_ones() -> None:
    assert {name: len(part) for name, part in PARTS.items()} == {
        "addition": 97 * 97,
        "subtraction": 97 * 97,
        "division": 9_312,
    }


@pytest.mark.parametrize("operation", ["addition", "subtraction", "division"])
def test_each_operation_is_a_latin_square(operation: str) -> None:
    # no result stands twice in a row or column of the operation's table
    part = PARTS[operation]
    for line in ("x", "y"):
        # 0 divided by anything is 0: that row of the division table is constant
        lines = part.filter(pl.col("x") > 0) if operation == "division" else part
        sizes = lines.group_by(line).agg(pl.len(), pl.col("z").n_unique().alias("distinct"))
        assert (sizes["len"] == sizes["distinct"]).all()
    assert part["z"].min() == 0
    assert part["z"].max() == 96


def test_results_obey_their_definition() -> None:
    for name, part in PARTS.items():
        x, y, z = (part[c].to_numpy() for c in "xyz")
        right = {"addition": x + y - z, "subtraction": x - y - z, "division": x - y * z}[name]
        assert not (right % 97).any()


def test_texts_numbers_factors_and_structure_agree() -> None:
    row = PARTS["division"].row(by_predicate=(pl.col("x") == 3) & (pl.col("y") == 5), named=True)
    assert row["input"] == "3 / 5 mod 97"
    assert row["output"] == str(row["z"]) == "20"
    assert row["factors"] == {"operation": "division", "x": "3", "y": "5"}
    assert [(n["parent"], n["label"]) for n in row["structure"]] == [(-1, "division"), (0, "3"), (0, "5")]
    assert row["operation_index"] == 2


def test_ids_are_unique_over_the_operations_and_the_contract_is_followed() -> None:
    whole = pl.concat(PARTS.values())
    assert whole["example_id"].n_unique() == len(whole) == 28_130
    assert whole.columns[: len(TABLES["examples"].schema)] == TABLES["examples"].schema.names
    assert trees.problems(whole["structure"]).null_count() == len(whole)
    assert np.all(np.diff(PARTS["addition"]["x"].sort().to_numpy()) >= 0)


def test_the_smallest_prime_works() -> None:
    parts = list(modular_arithmetic(ModularConfig(p=2), 0))
    assert [len(part) for part in parts] == [4, 4, 2]


def test_a_modulus_that_is_no_prime_is_refused() -> None:
    with pytest.raises(UsageError, match="prime, found 96"):
        configure(get("dataset", "modular_arithmetic"), {"p": 96})


def test_an_unknown_operation_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="addition"):
        configure(get("dataset", "modular_arithmetic"), {"operations": ["additon"]})
