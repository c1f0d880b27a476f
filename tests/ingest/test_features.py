"""A user's vectors: every form gives the same table, and what is wrong is said with file and row."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from gradatim.schemas.errors import DataRefused, GradatimError, UsageError
from gradatim.schemas.recipe import Features
from gradatim.tasks.core.embeddings import vectors_of
from gradatim.tasks.ingest.features import read_features
from gradatim.tasks.ingest.task import files_behind

IDS = ["q3", "q1", "q2", "é"]
MATRIX = np.array([[1, 2, 3], [0.5, -1, 0], [4, 5, 6], [7, 8, 9]], dtype=np.float32)


def _read(folder: Path, source: str, **section: Any) -> pl.DataFrame:
    return read_features(Features.model_validate({"from": source, **section}), base=folder)


def _is_right(frame: pl.DataFrame) -> bool:
    order = np.argsort(IDS)
    return (
        frame.schema == {"example_id": pl.String, "embedding": pl.Array(pl.Float32, 3)}
        and frame["example_id"].to_list() == [IDS[i] for i in order]
        and np.array_equal(frame["embedding"].to_numpy(), MATRIX[order])
    )


LISTS = pl.DataFrame({"example_id": IDS, "embedding": MATRIX.tolist()})
WIDE = pl.DataFrame({"id": IDS, **{f"dim_{i}": MATRIX[:, i] for i in range(3)}, "other": ["x"] * 4})


def test_lists_and_arrays_in_every_file_format(tmp_path: Path) -> None:
    fixed = LISTS.with_columns(pl.col("embedding").cast(pl.Array(pl.Float64, 3)))
    LISTS.write_parquet(tmp_path / "a.parquet")
    fixed.write_parquet(tmp_path / "b.parquet")
    fixed.write_ipc(tmp_path / "c.arrow")
    LISTS.write_ndjson(tmp_path / "d.jsonl")
    for name in ("a.parquet", "b.parquet", "c.arrow", "d.jsonl"):
        assert _is_right(_read(tmp_path, name))
    (tmp_path / "e.unknown").write_bytes((tmp_path / "a.parquet").read_bytes())
    assert _is_right(_read(tmp_path, "e.unknown", format="parquet"))
    with pytest.raises(UsageError, match="does not say the format"):
        _read(tmp_path, "e.unknown")


def test_many_columns_by_name_or_by_how_they_begin(tmp_path: Path) -> None:
    WIDE.write_parquet(tmp_path / "a.parquet")
    WIDE.write_csv(tmp_path / "a.csv")
    for name in ("a.parquet", "a.csv"):
        assert _is_right(_read(tmp_path, name, example="id", columns=["dim_0", "dim_1", "dim_2"]))
        assert _is_right(_read(tmp_path, name, example="id", columns="dim_*"))


def test_a_folder_of_several_files_is_one_table(tmp_path: Path) -> None:
    LISTS.head(1).write_parquet(tmp_path / "b.parquet")
    LISTS.slice(1, 2).write_parquet(tmp_path / "a.parquet")
    np.savez(tmp_path / "c.npz", embedding=MATRIX[3:], ids=np.array(IDS[3:]))
    assert _is_right(_read(tmp_path, "."))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", ">f4"])
def test_numpy_with_ids_in_every_form(tmp_path: Path, dtype: str) -> None:
    np.save(tmp_path / "m.npy", MATRIX.astype(dtype))
    (tmp_path / "ids.txt").write_text("\n".join(IDS) + "\n", encoding="utf-8")
    np.save(tmp_path / "ids.npy", np.array(IDS))
    np.save(tmp_path / "bytes.npy", np.char.encode(np.array(IDS), "utf-8"))
    LISTS.select("example_id").write_csv(tmp_path / "ids.csv")
    for ids in ("ids.txt", "ids.npy", "bytes.npy", "ids.csv"):
        assert _is_right(_read(tmp_path, "m.npy", ids=ids))
    np.save(tmp_path / "columns.npy", np.asfortranarray(MATRIX.astype(dtype)))
    assert _is_right(_read(tmp_path, "columns.npy", ids="ids.txt"))
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "a.npz", vectors=MATRIX.astype(dtype), names=np.array(IDS))
        assert _is_right(_read(tmp_path, "a.npz", ids="names"))
    np.savez(tmp_path / "two.npz", a=MATRIX, b=MATRIX + 1, ids=np.array(IDS))
    assert _is_right(_read(tmp_path, "two.npz", columns="a"))
    with pytest.raises(UsageError, match="there is no array 'embedding'"):
        _read(tmp_path, "two.npz")


def test_whole_numbers_as_ids_become_the_text_that_examples_have(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", embedding=MATRIX, ids=np.array([10, 9, 8, 7]))
    pl.DataFrame({"example_id": [10, 9, 8, 7], "embedding": MATRIX.tolist()}).write_parquet(tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text("example_id,x\n007,1\n7,2\n")
    for name in ("a.npz", "a.parquet"):
        assert _read(tmp_path, name)["example_id"].to_list() == ["10", "7", "8", "9"]
    assert _read(tmp_path, "a.csv", columns="x")["example_id"].to_list() == ["007", "7"]


def test_what_was_read_is_what_methods_take(tmp_path: Path) -> None:
    LISTS.write_parquet(tmp_path / "a.parquet")
    found = vectors_of({"features_x": _read(tmp_path, "a.parquet")}, "x", "test")
    assert np.array_equal(found.matrix, MATRIX[np.argsort(IDS)])


@pytest.mark.parametrize(
    ("ids", "vectors", "said", "place"),
    [
        (["a", "b", "c"], [[1.0], [2.0, 3.0], [4.0]], "has 2 numbers, that of row 0 has 1", "row 1"),
        (["a", "b", "c"], [[1.0], [2.0], [float("nan")]], "'c' holds NaN", "row 2"),
        (["a", "b", "c"], [[1.0], [float("-inf")], [2.0]], "'b' holds NaN, infinity", "row 1"),
        (["a", "b", "c"], [[1.0], [1e39], [2.0]], "too large for float32", "row 1"),
        (["a", "b", "a"], [[1.0], [2.0], [3.0]], "'a' stands twice, first in a.parquet: row 0", "row 2"),
        (["a", None, "c"], [[1.0], [2.0], [3.0]], "no id", "row 1"),
        (["a", "b", "c"], [[1.0], None, [3.0]], "no vector", "row 1"),
        (["a", "b", "c"], [[1.0], [None], [3.0]], "no number", "row 1"),
        (["a", "b", "c"], pl.Series([[], [], []], dtype=pl.List(pl.Float32)), "is empty", "row 0"),
        ([], pl.Series([], dtype=pl.List(pl.Float32)), "no vector in the whole source", ""),
    ],
)
def test_a_bad_row_is_refused_with_its_place(tmp_path: Path, ids: Any, vectors: Any, said: str, place: str) -> None:
    frame = pl.DataFrame({"example_id": pl.Series(ids, dtype=pl.String), "embedding": vectors})
    frame.write_parquet(tmp_path / "a.parquet")
    with pytest.raises(DataRefused, match=said) as caught:
        _read(tmp_path, "a.parquet")
    assert caught.value.where.endswith(place)


def test_files_of_different_widths_are_refused(tmp_path: Path) -> None:
    LISTS.head(2).write_parquet(tmp_path / "a.parquet")
    pl.DataFrame({"example_id": ["z"], "embedding": [[1.0, 2.0]]}).write_parquet(tmp_path / "b.parquet")
    with pytest.raises(DataRefused, match=r"have 2 numbers, those of a\.parquet have 3"):
        _read(tmp_path, ".")


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"columns": "embeding"}, "did you mean 'embedding'"),
        ({"example": "example"}, "did you mean 'example_id'"),
        ({"columns": "example_id"}, "no column 'example_id'"),
        ({"columns": ["embedding", "word"]}, "holds large_list"),
        ({"columns": "word"}, "holds"),
        ({"columns": "x_*"}, "no column 'x_"),
    ],
)
def test_a_wrong_column_is_named(tmp_path: Path, section: dict[str, Any], said: str) -> None:
    LISTS.with_columns(word=pl.lit("x")).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(UsageError, match=said):
        _read(tmp_path, "a.parquet", **section)


def test_numpy_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "m.npy", MATRIX)
    np.save(tmp_path / "flat.npy", MATRIX.ravel())
    (tmp_path / "three.txt").write_text("a\nb\nc\n")
    (tmp_path / "gap.txt").write_text("a\n\nc\nd\n")
    (tmp_path / "cut.npy").write_bytes((tmp_path / "m.npy").read_bytes()[:-4])
    (tmp_path / "cut.npz").write_bytes(b"PK\x03\x04rubbish")
    np.save(tmp_path / "ids2.npy", np.array([["a"]]))
    for source, ids, kind, said in (
        ("m.npy", None, UsageError, "which example is each row"),
        ("m.npy", "three.txt", DataRefused, "4 vectors and 3 ids"),
        ("m.npy", "gap.txt", DataRefused, "the line is empty"),
        ("m.npy", "thre.txt", UsageError, "did you mean 'three.txt'"),
        ("m.npy", "ids2.npy", UsageError, "expected  a list of texts"),
        ("flat.npy", "three.txt", UsageError, "examples x dimensions"),
        ("cut.npy", "three.txt", DataRefused, "no readable NumPy file"),
        ("cut.npz", None, DataRefused, "no readable NumPy file"),
        ("none.npy", None, UsageError, "no such file"),
    ):
        with pytest.raises(kind) as caught:
            _read(tmp_path, source, ids=ids)
        assert said in str(caught.value)


class _Bomb:
    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.trace,))


def test_nothing_pickled_is_ever_loaded(tmp_path: Path) -> None:
    bomb = _Bomb(tmp_path / "was-here")
    harmful = np.array([bomb], dtype=object)
    np.save(tmp_path / "a.npy", harmful, allow_pickle=True)
    np.savez(tmp_path / "a.npz", embedding=harmful, ids=np.array(["a"]))
    np.savez(tmp_path / "b.npz", embedding=MATRIX[:1], ids=harmful)
    (tmp_path / "p.npy").write_bytes(pickle.dumps(bomb))
    (tmp_path / "ids.txt").write_text("a\n")
    for source in ("a.npy", "a.npz", "b.npz", "p.npy"):
        with pytest.raises(GradatimError):
            _read(tmp_path, source, ids="ids.txt" if source.endswith("npy") else None)
    np.save(tmp_path / "ids.npy", harmful, allow_pickle=True)
    np.save(tmp_path / "m.npy", MATRIX[:1])
    with pytest.raises(DataRefused):
        _read(tmp_path, "m.npy", ids="ids.npy")
    assert not bomb.trace.exists()
    pickle.loads((tmp_path / "p.npy").read_bytes())
    assert bomb.trace.exists(), "the file would have done harm"


def test_an_archive_that_claims_more_than_it_holds_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", ids=np.array(["a"]))
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive, archive.open("embedding.npy", "w") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (10**12, 4)}
        np.lib.format.write_array_header_1_0(file, header)  # type: ignore[arg-type]
    with pytest.raises(DataRefused, match="claims 16,000,000,000,000 bytes"):
        _read(tmp_path, "a.npz")
    with zipfile.ZipFile(tmp_path / "b.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("embedding.npy", bytes(50_000_000))
        archive.writestr("ids.npy", b"")
    with pytest.raises(DataRefused, match="claims to unpack"):
        _read(tmp_path, "b.npz")


def test_a_broken_csv_row_is_refused_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("example_id,x\na,1\nb\n")
    with pytest.raises(DataRefused) as caught:
        _read(tmp_path, "a.csv", columns="x")
    assert caught.value.where == "a.csv: row 1"


def test_a_vector_whose_id_is_blank_is_refused_with_its_row(tmp_path: Path) -> None:
    LISTS.with_columns(example_id=pl.Series(["a", " ", "b", "c"])).write_parquet(tmp_path / "v.parquet")
    with pytest.raises(DataRefused, match="the row has no id") as caught:
        _read(tmp_path, "v.parquet")
    assert "row 1" in str(caught.value)


@pytest.mark.parametrize("name", ["ids", "ids.txt"])
def test_a_file_of_ids_is_a_source_whatever_its_ending(name: str, tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", MATRIX)
    (tmp_path / name).write_text("\n".join(IDS), encoding="utf-8")
    section = Features.model_validate({"from": "v.npy", "ids": name})
    assert [path.name for path in files_behind(section, tmp_path)] == ["v.npy", name]
    array = Features.model_validate({"from": "v.npy", "ids": "a.b"})  # an array's name
    assert [path.name for path in files_behind(array, tmp_path)] == ["v.npy"]


def test_no_column_at_all_is_answered(tmp_path: Path) -> None:
    LISTS.write_parquet(tmp_path / "v.parquet")
    with pytest.raises(UsageError, match="no column is named"):
        _read(tmp_path, "v.parquet", columns=[])
