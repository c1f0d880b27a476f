"""Trained encoders from a folder, by stand-ins for their packages; absent packages and folders are named."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import polars as pl
import pytest

import gradatim as gd
from gradatim.schemas.errors import UsageError
from gradatim.tasks.core.registry import configure, get
from gradatim.tasks.core.step import Method, path_hash
from gradatim.tasks.embedding import encoders
from gradatim.tasks.embedding.encoders import NO_TOKEN
from gradatim.tasks.embedding.texts import CUT, NO_TEXT

ROWS = pl.DataFrame({"example_id": ["a", "b", "c", "d"], "input": ["aab", None, "?!", "b" * 30]})
METHODS = {"sentence_transformer": "sentence-transformers", "static": "model2vec"}


class Model:
    """Counts a, b and c; says how it was made and asked."""

    made: ClassVar[dict[str, Any]] = {}
    asked: ClassVar[list[dict[str, Any]]] = []

    def __init__(self, path: str, **how: Any) -> None:
        if not (Path(path) / "weights.bin").is_file():
            raise OSError("no weights\nlook again")
        type(self).made, type(self).asked = {"path": path, **how}, []

    from_pretrained = classmethod(lambda cls, path: cls(path))

    def encode(self, texts: list[str], **how: Any) -> np.ndarray:
        assert all(isinstance(text, str) and text for text in texts)
        self.asked.append(how)
        return np.array([[text.count(letter) for letter in "abc"] for text in texts], dtype=np.float32)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder of a model, and stand-ins for both packages."""
    for module, name in (("sentence_transformers", "SentenceTransformer"), ("model2vec", "StaticModel")):
        fake = ModuleType(module)
        setattr(fake, name, Model)
        monkeypatch.setitem(sys.modules, module, fake)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights.bin").write_bytes(b"1")
    return str(tmp_path / "model")


@pytest.mark.parametrize("method", METHODS)
def test_texts_go_to_the_model_of_the_folder_and_rows_without_any_stay_zero(method: str, model: str) -> None:
    found = gd.embed(ROWS, method, path=model, longest=20)
    assert np.allclose(found.matrix, np.array([[2, 1, 0], [0, 0, 0], [0, 0, 0], [0, 5, 0]]) / [[5**0.5], [1], [1], [5]])
    assert dict(found.counts) == {NO_TEXT: 1, NO_TOKEN: 1, CUT: 1}
    assert gd.embed(ROWS, method, path=model, unit=False).matrix[3].tolist() == [0, 30, 0]


def test_nothing_is_fetched_and_no_code_of_a_model_is_run(model: str) -> None:
    gd.embed(ROWS, "sentence_transformer", path=model, prompt="query: ", batch=7)
    assert Model.made == {"path": model, "device": "cpu", "local_files_only": True, "trust_remote_code": False}
    assert Model.asked[-1] == {
        "prompt": "query: ", "batch_size": 7, "show_progress_bar": False, "convert_to_numpy": True,
    }  # fmt: skip


@pytest.mark.parametrize(("method", "package"), METHODS.items())
def test_an_absent_package_is_named_with_the_command_that_installs_it(
    method: str, package: str, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent: Callable[[str], None] = lambda module: None  # noqa: E731
    monkeypatch.setattr(encoders, "find_spec", absent)
    with pytest.raises(UsageError, match=package) as error:
        gd.embed(ROWS, method, path=model)
    assert error.value.remedy == 'pip install "gradatim[embeddings]"'


@pytest.mark.parametrize("method", METHODS)
def test_a_name_that_is_no_folder_is_refused_before_anything_could_be_fetched(method: str, model: str) -> None:
    with pytest.raises(UsageError, match="no folder 'minishlab/potion-base-8M'"):
        gd.embed(ROWS, method, path="minishlab/potion-base-8M")
    empty = Path(model).parent / "empty"
    empty.mkdir()
    with pytest.raises(UsageError, match=r"cannot be loaded: no weights\n  expected"):
        gd.embed(ROWS, method, path=str(empty))


def test_every_file_of_the_folder_counts_for_the_name_of_the_result(model: str) -> None:
    plugin = get("embedding", "static")
    method = Method("embedding", "words", plugin, configure(plugin, {"path": model}), "recipe")
    folder, first = Path(model), method.fingerprint(0, [])
    (folder / ".cache").mkdir()
    (folder / ".cache" / "noted").write_text("when it was fetched")
    assert method.fingerprint(0, []) == first
    (folder / "deep").mkdir()
    (folder / "deep" / "vocabulary.txt").write_text("a")
    second = method.fingerprint(0, [])
    (folder / "deep" / "vocabulary.txt").write_text("b")
    assert len({first, second, method.fingerprint(0, [])}) == 3
    folder.rename(folder.with_name("moved"))
    assert path_hash(folder.with_name("moved")) == path_hash(folder.with_name("moved"))
    moved = Method("embedding", "words", plugin, configure(plugin, {"path": f"{model[:-5]}moved"}), "recipe")
    (folder.with_name("moved") / "deep" / "vocabulary.txt").write_text("a")
    assert moved.fingerprint(0, []) == second, "where the folder lies does not count"
