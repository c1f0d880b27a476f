"""Modular arithmetic: every equation of an operation modulo a prime."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
import polars as pl
from pydantic import Field, field_validator

from gradatim.tasks.core.registry import Config, Cost, register
from gradatim.tasks.core.trees import Forest
from gradatim.tasks.ingest.finish import finish_generated

SIGNS = {"addition": "+", "subtraction": "-", "division": "/"}


class ModularConfig(Config):
    """Settings of modular arithmetic."""

    p: int = Field(97, ge=2, le=1999, description="the modulus, a prime")
    operations: list[Literal["addition", "subtraction", "division"]] = Field(
        default_factory=lambda: ["addition", "subtraction", "division"],  # type: ignore[arg-type]
        min_length=1,
        description="one or more of addition, subtraction, division",
    )

    @field_validator("p")
    @classmethod
    def _prime(cls, p: int) -> int:
        if any(p % divisor == 0 for divisor in range(2, int(p**0.5) + 1)):
            raise ValueError(f"p should be a prime, found {p}: without one, division has no unique result")
        return p

    @field_validator("operations")
    @classmethod
    def _distinct(cls, operations: list[str]) -> list[str]:
        if len(set(operations)) < len(operations):
            raise ValueError("operations should be different names")
        return operations


def _results(operation: str, p: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All (x, y, z) with x operation y = z modulo p, int64; y is not 0 for division."""
    x, y = (grid.ravel() for grid in np.meshgrid(np.arange(p), np.arange(p), indexing="ij"))
    if operation == "addition":
        return x, y, (x + y) % p
    if operation == "subtraction":
        return x, y, (x - y) % p
    x, y = x[y > 0], y[y > 0]
    inverse = np.array([0, *(pow(value, -1, p) for value in range(1, p))])
    return x, y, x * inverse[y] % p


@register(
    "dataset",
    "modular_arithmetic",
    config=ModularConfig,
    cost=lambda rows, width: Cost(seconds=rows * 1e-5, bytes=rows * 2e3),
    source="Power, Burda, Edwards, Babuschkin, Misra (2022). Grokking: Generalization Beyond Overfitting on Small "
    "Algorithmic Datasets",
)
def modular_arithmetic(config: ModularConfig, seed: int = 0) -> Iterator[pl.DataFrame]:
    """Modular arithmetic: all equations x + y, x - y, x / y modulo a prime.

    Parameters
    ----------
    config : ModularConfig
    seed : int
        Not used: the set is complete, nothing is drawn.

    Yields
    ------
    polars.DataFrame
        One part an operation, in the columns of the table `examples`: p * p rows, p * (p - 1) for division. Payload:
        `x`, `y`, `z` (the result) and `operation_index` (position in addition, subtraction, division), all int64, for
        models on numeric columns. `task` is the operation; `factors` are operation, x and y; `structure` is the
        operation over its two operands.
    """
    for operation in config.operations:
        x, y, z = _results(operation, config.p)
        numbers = pl.DataFrame({"x": x, "y": y, "z": z}, schema={"x": pl.Int64, "y": pl.Int64, "z": pl.Int64})
        texts = numbers.select(pl.all().cast(pl.String))
        labels = pl.select(pl.concat_list(pl.lit(operation), texts["x"], texts["y"])).to_series()
        trees = Forest(np.arange(len(x) + 1) * 3, np.tile([-1, 0, 0], len(x)), labels.explode()).to_series()
        yield finish_generated(
            texts.select(
                input=pl.format("{} {} {} mod {}", "x", pl.lit(SIGNS[operation]), "y", pl.lit(str(config.p))),
                output="z",
                task=pl.lit(operation),
                template=pl.lit(f"<x> {SIGNS[operation]} <y> mod {config.p}"),
                factors=pl.concat_list(
                    [
                        pl.struct(pl.lit(key).alias("key"), value.alias("value"))
                        for key, value in (("operation", pl.lit(operation)), ("x", pl.col("x")), ("y", pl.col("y")))
                    ]
                ),
            ).with_columns(
                trees.alias("structure"),
                *numbers.get_columns(),
                pl.lit(list(SIGNS).index(operation), pl.Int64).alias("operation_index"),
            ),
            "modular_arithmetic",
        )
