"""From cells of training dynamics to a `Difficulty`: flags, notes, reliability over runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gradatim.schemas.summary import Cell
from gradatim.tasks.core.registry import Cost
from gradatim.tasks.difficulty.dynamics.table import PASS, Cells, Floats, Measure, reduce, standard_error
from gradatim.tasks.difficulty.dynamics.window import DynamicsConfig, window
from gradatim.tasks.difficulty.reliability import separation, split_half
from gradatim.tasks.difficulty.result import Difficulty, build, method_name

Flag = tuple[NDArray[np.bool_], str]

NEEDS = ("dynamics.example_id", "dynamics.run_id?", "dynamics.epoch")
"""Columns that every measure reads, beside its own."""

SWAYAMDIPTA = (
    "S. Swayamdipta, R. Schwartz, N. Lourie, Y. Wang, H. Hajishirzi, N. A. Smith, Y. Choi (2020). Dataset cartography: "
    "mapping and diagnosing datasets with training dynamics"
)
PAUL = (
    "M. Paul, S. Ganguli, G. K. Dziugaite (2021). Deep learning on a data diet: finding important examples early in "
    "training"
)
PLEISS = (
    "G. Pleiss, T. Zhang, E. Elenberg, K. Q. Weinberger (2020). Identifying mislabeled data using the area under the "
    "margin ranking"
)


def cost(rows: int, width: int) -> Cost:
    """Time and memory for `rows` examples of ten epochs in one run."""
    return Cost(seconds=0.3 + 5e-6 * rows, bytes=2.5e8 + 1_000.0 * min(rows, PASS) + 200.0 * rows)


def mean_over_training(
    tables: Mapping[str, Any],
    config: DynamicsConfig,
    measure: Measure,
    seed: int,
    *,
    name: str,
    title: str,
    scale: str,
    source: str,
    several: bool = False,
) -> Difficulty:
    """Take the mean of a column over epochs, then over runs, as the difficulty; `several` warns where there is one run.

    Raises as `dynamics_window.window` and `dynamics_table.reduce`.
    """
    where = f"difficulty {name}"
    cells = reduce(window(tables, config, measure.columns, where), measure, tables, where)
    mean, error = cells.over_runs(cells.mean, standard_error(cells))
    lone = several and len(cells.window.runs) == 1
    return finish(
        cells,
        config,
        name=name,
        title=title,
        scale=scale,
        value=mean,
        raw=mean,
        error=error,
        by_run=cells.mean,
        seed=seed,
        source=source,
        warnings=[f"one run: {title} is meant as a mean over several, since the order changes with the seed"] * lone,
    )


def finish(
    cells: Cells,
    config: DynamicsConfig,
    *,
    name: str,
    title: str,
    scale: str,
    value: Floats,
    raw: Floats,
    error: Floats | None,
    by_run: Floats,
    seed: int,
    source: str,
    flags: Sequence[Flag] = (),
    notes: Mapping[str, Cell] | None = None,
    keep: NDArray[np.bool_] | None = None,
    gone: str = "",
    details: pl.Series | None = None,
    **rest: Any,
) -> Difficulty:
    """Lay a measure out as a `Difficulty`.

    Parameters
    ----------
    cells : Cells
        M cells of N examples.
    name : str
        The plug-in's.
    value, raw, error : numpy.ndarray, shape (N,)
    by_run : numpy.ndarray, shape (M,)
        What each run alone says of `value`, for the reliability.
    flags : sequence of (mask of shape (N,), text)
    keep : numpy.ndarray of bool, shape (N,), optional
        Examples that get a difficulty; the others are excluded with the reason `gone`.
    rest
        Further fields of `Difficulty`.
    """
    runs = cells.window.runs
    missing, lost = cells.total(cells.missing), cells.total(cells.lost)
    fewer = cells.runs_of < len(runs)
    spotted = [*flags, (missing > 0, "epochs missing"), (lost > 0, "values left out"), (fewer, "not in every run")]
    reliability, kind = _reliability(cells, config, value, error, by_run, seed)
    told: dict[str, Cell] = {
        "runs": len(runs),
        "epochs": _epochs(cells),
        "observations": int(cells.n.sum()),
        **(notes or {}),
    }
    counted = {
        "rows left out: value null, not finite or beyond 65,536": cells.rows_lost,
        "examples with epochs missing": int((missing > 0).sum()),
        "rows beyond one an example and epoch": cells.repeats,
        "rows without an epoch, left out": cells.window.without_epoch,
        "runs without a row in these epochs, left out": len(cells.window.idle),
    }
    told |= {key: number for key, number in counted.items() if number}
    if kind:
        told["reliability is"] = kind
    kept = np.ones(len(value), dtype=bool) if keep is None else keep
    excluded = cells.excluded
    if not kept.all():
        dropped = pl.DataFrame({"example_id": cells.ids.filter(pl.Series(~kept))}).with_columns(reason=pl.lit(gone))
        excluded = pl.concat([excluded, dropped]).sort("example_id")
    rows = pl.Series(kept)
    columns: dict[str, Any] = {  # series, which serve as sequences without a copy
        "ids": cells.ids.filter(rows),
        "flag": _joined(spotted, len(value)).filter(rows),
        "details": None if details is None else details.filter(rows),
    }
    return build(
        method=method_name(name, _settings(config), _settings(type(config)())),
        title=title,
        value=value[kept] + 0.0,
        raw=raw[kept] + 0.0,
        scale=scale,
        error=None if error is None else error[kept],
        n=cells.total(cells.n).astype(np.int64)[kept],
        bins=config.bins,
        reliability=reliability,
        excluded=excluded,
        notes=told,
        source=source,
        **columns,
        **rest,
    )


def parameters(name: str, config: DynamicsConfig) -> dict[str, Any]:
    """Parameters of a method's `statistics`: its name and all settings, so that those of two steps do not clash."""
    return {"method": name, **_settings(config)}


def _settings(config: DynamicsConfig) -> dict[str, Any]:
    """Settings that make a method's name."""
    found = config.model_dump(exclude={"bins", "splits"})
    return {key: ",".join(value) if isinstance(value, tuple) else value for key, value in found.items()}


def _reliability(
    cells: Cells, config: DynamicsConfig, value: Floats, error: Floats | None, by_run: Floats, seed: int
) -> tuple[float | None, str]:
    """Reliability over runs: split-half from four runs on, from standard errors of two or three, None for one."""
    runs = cells.window.runs
    if len(runs) < 2:
        return None, ""
    found = split_half(lambda members: cells.of_runs(by_run, members), runs, seed=seed, splits=config.splits)
    if found is not None:
        return found, "split-half over runs"
    if error is None:
        return None, ""
    several = cells.runs_of > 1
    return separation(value[several], error[several]), "from standard errors over runs"


def _joined(flags: Sequence[Flag], rows: int) -> pl.Series:
    """Join the texts of an example's flags with semicolons: (N,), null where none holds."""
    texts = [pl.when(pl.Series(mask)).then(pl.lit(text)) for mask, text in flags if mask.any()]
    if not texts:
        return pl.repeat(None, rows, dtype=pl.String, eager=True)
    joined = pl.concat_str(texts, separator="; ", ignore_nulls=True)
    return pl.select(pl.when(joined != "").then(joined).alias("flag")).to_series()


def _epochs(cells: Cells) -> str:
    epochs = cells.window.epochs
    one = len(epochs) == 1
    return f"{epochs[0]}" if one else f"{epochs[0]} to {epochs[-1]}, {len(epochs):,} different"
