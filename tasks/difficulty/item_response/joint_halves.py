"""Locations from some of the cells of a joint fit, at the abilities of all: what split halves need."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from gradatim.tasks.core.reduce import one_thread
from gradatim.tasks.difficulty.item_response.cells import Cells, Layout
from gradatim.tasks.difficulty.item_response.joint import SINGLE, JointFit
from gradatim.tasks.difficulty.item_response.joint_end import place_extremes
from gradatim.tasks.difficulty.item_response.joint_step import Kind
from gradatim.tasks.difficulty.item_response.joint_sweep import State, Sweep, processors


def locations_given(
    cells: Cells, abilities: np.ndarray, fit: JointFit, items: np.ndarray | None = None, *, sweeps: int = 3
) -> np.ndarray:
    """Estimate locations anew from some cells, with abilities and asymptotes held: (J,).

    Parameters
    ----------
    cells : Cells
        Of the respondents whose `abilities` (n,) are given, and of `items` of the fit (all by default).
    fit : JointFit
        Where slopes and intercepts start; a common slope stays.

    Notes
    -----
    A few passes: what split halves cost where abilities are known from many items.
    """
    at = np.arange(cells.items) if items is None else items
    total, answered = cells.item_totals(), cells.answered
    extreme = (total >= answered - 1e-9).astype(np.int8) - (total <= 1e-9).astype(np.int8)
    inner, outer = np.flatnonzero(extreme == 0), np.flatnonzero(extreme)
    own = fit.model != "1pl" and fit.slope == "free"
    g, u = fit.g[at[inner]], fit.u[at[inner]]
    kind = Kind(own, False, False, not g.any() and bool((u == 1).all()), fit.priors == "weak")
    with np.errstate(divide="ignore"):
        x = np.stack([fit.a[at[inner]], fit.d[at[inner]], np.log(g / (1 - g)), np.log(u / (1 - u))])
    log_a = float(np.log(np.maximum(fit.a[fit.extreme == 0], 1e-9)).mean()) if own and len(inner) else 0.0
    middle = float(np.median(fit.a))
    b = np.empty(cells.items)
    with one_thread(), ThreadPoolExecutor(processors()) as pool:
        used = cells.take(inner)
        layout = Layout(used, np.float32 if used.size > SINGLE else np.float64)
        sweep = Sweep(layout, kind, np.zeros(len(inner)), np.ones(len(inner)), pool)
        state = State(x, abilities, np.zeros_like(abilities), log_a)
        for _ in range(sweeps if len(inner) else 0):
            x, _, _, moved = sweep.items(state)
            state = replace(state, x=x)
            if moved < 1e-3:
                break
        placed = place_extremes(cells, outer, extreme, abilities, middle if middle > 0 else 1.0, pool)
    b[inner], b[outer] = -state.x[1] / state.x[0], -placed[1] / placed[0]
    return b
