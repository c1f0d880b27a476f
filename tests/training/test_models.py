"""Tokens, dynamics and the built-in networks, in this process."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.errors import UsageError
from gradatim.schemas.recipe import Step
from gradatim.tasks.training import cache, models, predictions, tokens
from gradatim.tasks.training.cache import Cache
from gradatim.tasks.training.models import ModelSpec
from gradatim.tasks.training.order import World
from gradatim.tasks.training.signals import head_signals, token_signals

texts = st.lists(
    st.one_of(st.none(), st.text(alphabet="ab cdé\N{GRINNING FACE}\t", max_size=12)), min_size=1, max_size=8
)


@settings(deadline=None)  # the first call imports
@given(texts=texts, unit=st.sampled_from(["words", "characters"]))
def test_a_text_survives_encoding_padding_and_decoding(texts: list[str | None], unit: tokens.Unit) -> None:
    column = pa.array(texts, pa.string())
    words = tokens.vocabulary([column], unit)
    numbers, lengths = tokens.encode(column, pa.array(words, pa.large_string()), unit)
    plain, framed = tokens.pad(numbers, lengths), tokens.pad(numbers, lengths, ends=True)
    assert (framed[:, 0] == tokens.BEGIN).all()
    assert ((framed == tokens.END).sum(1) == 1).all()
    right = tokens.canonical(texts, unit)
    assert tokens.decode(framed[:, 1:], words, unit) == right
    assert tokens.decode(plain, words, unit) == right


def test_an_unknown_word_is_marked_and_never_a_known_one() -> None:
    numbers, lengths = tokens.encode(pa.array(["a x", ""]), pa.array(["a", "b"], pa.large_string()), "words")
    assert numbers.tolist() == [4, tokens.UNKNOWN]
    assert lengths.tolist() == [2, 0]
    assert tokens.decode(tokens.pad(numbers, lengths), ["a", "b"], "words") == ["a \N{REPLACEMENT CHARACTER}", ""]


@pytest.mark.train
def test_dynamics_are_those_of_the_definition() -> None:
    import torch

    # two tokens, three classes; the second token of the second example is padding
    logits = torch.tensor([[[2.0, 1.0, 0.0], [0.0, 3.0, 1.0]], [[1.0, 1.5, 0.0], [9.0, 0.0, 0.0]]], requires_grad=True)
    gold = torch.tensor([[0, 1], [0, 1]])
    mask = torch.tensor([[True, True], [True, False]])
    found = token_signals(logits, gold, mask)
    p = torch.softmax(logits.detach(), -1).double().numpy()
    assert found["gold_probability"].tolist() == pytest.approx([np.sqrt(p[0, 0, 0] * p[0, 1, 1]), p[1, 0, 0]], abs=1e-6)
    assert found["loss"].tolist() == pytest.approx(
        [-(np.log(p[0, 0, 0]) + np.log(p[0, 1, 1])) / 2, -np.log(p[1, 0, 0])], abs=1e-6
    )
    assert found["correct"].tolist() == [True, False]
    assert found["margin"].tolist() == pytest.approx([1.0, -0.5], abs=1e-6)
    norm = [
        np.linalg.norm(p[0, 0] - [1, 0, 0]),
        np.linalg.norm(p[0, 1] - [0, 1, 0]),
        np.linalg.norm(p[1, 0] - [1, 0, 0]),
    ]
    assert found["error_norm"].tolist() == pytest.approx([(norm[0] + norm[1]) / 2, norm[2]], abs=1e-6)
    found["loss"].sum().backward()
    assert logits.grad is not None
    assert logits.grad[1, 1].abs().sum() == 0, "padding has no gradient"


@pytest.mark.train
def test_the_last_layers_figures_are_those_of_its_gradient() -> None:
    import torch

    torch.manual_seed(0)
    hidden, gold = torch.randn(5, 7), torch.tensor([0, 2, 1, 2, 0])
    head = torch.nn.Linear(7, 3, bias=False)
    logits = head(hidden)
    found = head_signals(hidden, head.weight, logits, gold)
    error_norm = token_signals(logits[:, None], gold[:, None], torch.ones(5, 1, dtype=torch.bool))["error_norm"]
    for i in range(5):
        loss = torch.nn.functional.cross_entropy(head(hidden[i]), gold[i])
        (gradient,) = torch.autograd.grad(loss, head.weight)
        assert float(found["hidden_norm"][i] * error_norm[i]) == pytest.approx(float(gradient.norm()), rel=1e-5)
        cosine = torch.nn.functional.cosine_similarity(-gradient.flatten(), head.weight.detach().flatten(), dim=0)
        assert float(found["alignment"][i]) == pytest.approx(float(cosine), abs=1e-6)
    fixture = head_signals(torch.tensor([[1.0, 0.0]]), torch.eye(2), torch.tensor([[1.0, 0.0]]), torch.tensor([0]))
    assert fixture["alignment"].item() == pytest.approx(0.5, abs=1e-6)


def spec_of(frame: pl.DataFrame, folder: Path, columns: list[str]) -> ModelSpec:
    return ModelSpec(Cache(cache.write(frame, columns, folder)), np.arange(len(frame)), seed=0)


def fit(module: Any, spec: ModelSpec, steps: int, rate: float) -> float:
    import torch

    optimizer = torch.optim.AdamW(module.parameters(), lr=rate)
    batch = module.collate(spec.cache.take(spec.train_rows))
    for _ in range(steps):
        optimizer.zero_grad()
        module(batch)["loss"].mean().backward()
        optimizer.step()
    module.eval()
    where = {"run_id": "r", "step": 1, "seed": 0, "device": torch.device("cpu")}
    parts = [
        predictions.answer(module, table, **where)
        for rank in (0, 1)
        for table in predictions.batches(module, spec.cache, spec.train_rows, World(rank, 2))
    ]
    answers = pa.concat_tables(parts)
    assert sorted(answers["example_id"].to_pylist()) == pa.concat_arrays(spec.cache.ids()).to_pylist()
    return float(np.mean(answers["score"].to_numpy()))


PAIRS = pl.DataFrame(
    {
        "example_id": list("vwxyz"),
        "input": ["a b", "b a c", "c", "a a", "b c a"],
        "output": ["B A", "C A B", "C", "A A", "A C B"],
    }
)


@pytest.mark.train
@pytest.mark.parametrize("kind", ["gru", "transformer"])
@pytest.mark.parametrize("unit", ["words", "characters"])
def test_each_network_learns_a_few_texts_by_heart(tmp_path: Path, kind: str, unit: str) -> None:
    spec = spec_of(PAIRS, tmp_path, ["input", "output"])
    step = Step.model_validate({"seq2seq": {"kind": kind, "hidden": 32, "heads": 2, "dropout": 0.0, "unit": unit}})
    module = models.build(step, spec)
    assert spec.facts["source"] == sorted({t for x in PAIRS["input"] for t in (x.split() if unit == "words" else x)})
    assert fit(module, spec, 80, 0.01) == 1.0
    pickle.dumps(module.collate)


@pytest.mark.train
def test_the_perceptron_learns_sums_modulo_seven_and_knows_what_it_never_saw(tmp_path: Path) -> None:
    a, b = np.divmod(np.arange(49), 7)
    frame = pl.DataFrame(
        {"example_id": [f"{i:02d}" for i in range(49)], "a": a, "b": [str(x) for x in b], "output": (a + b) % 7}
    ).with_columns(noise=pl.Series(np.r_[np.nan, np.linspace(-1e6, 1e6, 48)]))
    spec = spec_of(frame, tmp_path, ["a", "b", "noise", "output"])
    step = Step.model_validate({"mlp": {"columns": ["a", "b", "noise"], "categories": ["a"], "hidden": 64}})
    module = models.build(step, spec)
    assert fit(module, spec, 120, 0.01) == 1.0
    chances = module.probabilities(module.collate(spec.cache.take(np.arange(3))))
    assert chances.sum(-1).tolist() == pytest.approx([1.0] * 3)
    assert [spec.facts["mlp"]["classes"][i] for i in chances.argmax(-1)] == ["0", "1", "2"]
    strange = frame.head(1).with_columns(b=pl.lit("99"), output=pl.lit(12)).to_arrow()
    batch = module.collate(strange)
    assert batch["gold"].tolist() == [-1]
    assert batch["categories"].tolist() == [[1, 0]]
    assert module(batch)["correct"].tolist() == [False]


@pytest.mark.train
def test_a_model_that_is_none_is_refused_by_name(tmp_path: Path) -> None:
    spec = spec_of(PAIRS, tmp_path, ["input"])
    for method, message in {
        "no_such_module:x": "'no_such_module' does not import",
        "own_models:fast": "'own_models' has no 'fast'",
        "torch.nn:Identity": "the model has no 'collate'",
    }.items():
        with pytest.raises(UsageError, match=message):
            models.build(Step(method=method), spec)
    step = Step.model_validate({"seq2seq": {"kind": "transformer", "hidden": 30, "heads": 4}})
    with pytest.raises(UsageError, match="hidden 30 is not an even multiple of heads 4"):
        models.build(
            step,
            spec_of(PAIRS, tmp_path, ["input", "output"]),
        )
