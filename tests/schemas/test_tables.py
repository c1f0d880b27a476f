"""The tables' contract: complete, consistent, and described."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gradatim.schemas.errors import UsageError
from gradatim.schemas.tables import CONTRACT_VERSION, EMBEDDING, SPLITS, TABLES, TREE, TableSpec, features_spec, spec

EVERY = [*TABLES.values(), features_spec("tfidf", 3)]
ids = [table.name for table in EVERY]

KEYS = {
    "examples": "example_id",
    "rejects": "source_uri source_row",
    "respondents": "respondent_id",
    "responses": "respondent_id example_id attempt",
    "options": "respondent_id example_id order",
    "dynamics": "run_id position",
    "difficulty": "example_id method",
    "item_parameters": "example_id method",
    "diversity": "example_id method",
    "centroids": "method cluster",
    "pairs": "left_id right_id kind method",
    "signatures": "example_id method",
    "components": "example_id",
    "statistics": "subset reference metric parameters_hash",
    "splits": "strategy seed fold example_id",
    "certificate": "strategy seed fold check",
    "curriculum": "arm seed position",
    "runs": "run_id",
    "predictions": "run_id checkpoint example_id attempt variant",
    "evaluation": "run_id checkpoint seed split_version axis slice metric",
}
"""The public contract: readers of a store rely on it."""


def test_every_table_has_the_key_that_its_readers_rely_on() -> None:
    assert {name: " ".join(table.key) for name, table in TABLES.items()} == KEYS


@pytest.mark.parametrize("table", EVERY, ids=ids)
def test_exactly_the_key_columns_come_first_and_are_never_null(table: TableSpec) -> None:
    assert len(set(table.schema.names)) == len(table.schema.names)
    assert not any(table.schema.field(column).nullable for column in table.key)
    assert all(field.nullable for field in table.schema if field.name not in table.key)
    assert set(table.key) <= set(table.schema.names)


@pytest.mark.parametrize("table", EVERY, ids=ids)
def test_every_column_is_described_and_the_schema_names_its_contract(table: TableSpec) -> None:
    assert [field.name for field in table.schema if not (field.metadata or {}).get(b"description")] == []
    assert table.schema.metadata == {
        b"gradatim.table": table.name.encode(),
        b"gradatim.contract": CONTRACT_VERSION.encode(),
        b"gradatim.key": ",".join(table.key).encode(),
    }


@pytest.mark.parametrize("table", EVERY, ids=ids)
def test_a_table_of_no_rows_survives_parquet(table: TableSpec) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(table.schema.empty_table(), sink)
    again = pq.read_schema(pa.BufferReader(sink.getvalue()))
    assert again.names == table.schema.names
    assert again.metadata[b"gradatim.key"] == ",".join(table.key).encode()


def test_only_tables_that_hold_what_users_wrote_are_private_and_only_examples_are_open() -> None:
    assert {name for name, table in TABLES.items() if table.private} == {"examples", "rejects", "predictions"}
    assert {name for name, table in TABLES.items() if table.open} == {"examples"}


def test_a_column_that_stands_in_several_tables_has_one_kind_so_that_they_join() -> None:
    # figures of every step are float32 to halve the table; `value` of rejects is the user's text, shortened
    kinds: dict[str, set[str]] = {}
    for table in TABLES.values():
        for field in table.schema:
            if (table.name, field.name) != ("rejects", "value"):
                kinds.setdefault(field.name, set()).add(
                    "float" if pa.types.is_floating(field.type) else str(field.type)
                )
    assert {name: several for name, several in kinds.items() if len(several) > 1} == {}


def test_the_splits_are_those_of_the_contract_and_stand_in_the_description() -> None:
    assert SPLITS == ("train", "validation", "validation_ood", "test", "test_ood", "excluded")
    description = spec("splits").schema.field("split").metadata[b"description"].decode()
    assert all(split in description for split in SPLITS)


def test_a_tree_is_a_list_of_nodes_with_parents_and_labels() -> None:
    tree = [{"node": 0, "parent": -1, "label": "S"}, {"node": 1, "parent": 0, "label": "NP"}]
    assert pa.array([tree, None, []], TREE).to_pylist() == [tree, None, []]


def test_features_are_vectors_of_one_width() -> None:
    table = features_spec("tfidf", 3)
    assert (table.name, table.key) == ("features_tfidf", ("example_id",))
    assert table.schema.field(EMBEDDING).type == pa.list_(pa.float32(), 3)
    with pytest.raises(pa.ArrowInvalid):
        pa.array([[1.0, 2.0]], table.schema.field(EMBEDDING).type)


def test_an_unknown_table_is_answered_with_the_nearest_name() -> None:
    assert spec("splits") is TABLES["splits"]
    with pytest.raises(UsageError, match=r"no table 'slpits' \(did you mean 'splits'\?\)") as caught:
        spec("slpits")
    assert all(name in caught.value.expected for name in TABLES)
