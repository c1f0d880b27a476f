"""One ephemeral Prefect server for all tests of flows, and small recipes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from small_recipe import RECIPE, items, write_jsonl

os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"
os.environ["DO_NOT_TRACK"] = "1"
os.environ.setdefault("PREFECT_LOGGING_LEVEL", "CRITICAL")


@pytest.fixture(scope="session")
def prefect() -> Iterator[None]:
    """An ephemeral Prefect server with a database of its own."""
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=180):
        yield


@pytest.fixture
def small(tmp_path: Path) -> Callable[..., Path]:
    """Make a recipe with two shards of examples and twelve respondents; returns the recipe's path."""

    def make(text: str = RECIPE, shards: int = 2, rows: int = 200) -> Path:
        for shard in range(shards):
            write_jsonl(tmp_path / "items" / f"part-{shard}.jsonl", items(shard * rows, (shard + 1) * rows))
        answers = [
            {"who": f"model-{w:02d}", "what": f"q{i:04d}", "right": int((i * 2654435761 + w * 97) % 12 < w)}
            for w in range(12)
            for i in range(shards * rows)
        ]
        write_jsonl(tmp_path / "answers.jsonl", answers)
        recipe = tmp_path / "recipe.yaml"
        recipe.write_text(text + f"store: {tmp_path / 'store'}\n", encoding="utf-8")
        return recipe

    return make
