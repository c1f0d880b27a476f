"""`fit_joint`: item parameters and abilities together, for more items than a marginal fit has time for."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.core.reduce import one_thread
from gradatim.tasks.difficulty.item_response.cells import BLOCK, Cells, Layout
from gradatim.tasks.difficulty.item_response.curves import Curves, total_information
from gradatim.tasks.difficulty.item_response.joint_end import finished, mean_squares, place_extremes
from gradatim.tasks.difficulty.item_response.joint_step import BOUND, HIGH, LOW, Kind
from gradatim.tasks.difficulty.item_response.joint_sweep import Sweep, climb, processors, start_at_rates, start_near
from gradatim.tasks.difficulty.item_response.specify import check_model
from gradatim.tasks.difficulty.responses import find_parts

Model = Literal["1pl", "2pl", "3pl", "4pl"]
SINGLE = 20_000_000
"""Cells above which arithmetic is in single precision (sums are not)."""
FLAT = 0.05
"""Median slope below which respondents do not differ by more than chance: curves are flat, locations anywhere."""


@dataclass(frozen=True)
class JointFit:
    """A model fitted by `fit_joint`; the names are those of `fit.IRTFit`.

    Attributes
    ----------
    model : "1pl", "2pl", "3pl" or "4pl"
    a, b, d, g, u : (J,) float64
        Discrimination, location, intercept (d = -a b), lower and upper asymptote.
    se_a, se_b, se_d, se_g, se_u : (J,) float64
        Standard errors given the abilities; NaN where there is none.
    infit, outfit : (J,) float64
        Mean squared residuals at the estimated abilities; NaN for extreme items and without `errors`.
    extreme : (J,) int8
        1 for an item that everyone got right, -1 for one that nobody did, else 0. Extreme items stay out of the fit and
        are placed where half a response is expected to differ from the rest.
    at_bound, asymptote_at_bound : (J,) bool
        Items whose |a|, or an estimated g or u, stands at the end of its range.
    abilities, ability_se : (n,) float64
        Mode and standard deviation of the posterior of each ability given the items.
    loglik : float
        Marginal log-likelihood by Laplace's approximation, without priors of items; extreme items stay out.
    n_parameters, n_respondents, n_iter : int
    converged : bool
        Whether the last sweep moved nothing by more than the tolerance.
    slope, guessing, priors, errors : str
        How slopes, lower asymptotes, priors and standard errors were made.
    trace : tuple of float
        What is climbed, after each sweep; never falls by more than rounding.
    estimator : str
        joint map.
    """

    model: Model
    a: np.ndarray
    b: np.ndarray
    d: np.ndarray
    g: np.ndarray
    u: np.ndarray
    se_a: np.ndarray
    se_b: np.ndarray
    se_d: np.ndarray
    se_g: np.ndarray
    se_u: np.ndarray
    infit: np.ndarray
    outfit: np.ndarray
    extreme: np.ndarray
    at_bound: np.ndarray
    asymptote_at_bound: np.ndarray
    abilities: np.ndarray
    ability_se: np.ndarray
    loglik: float
    n_parameters: int
    n_respondents: int
    n_iter: int
    converged: bool
    slope: str
    guessing: str
    priors: str
    errors: str
    trace: tuple[float, ...]
    estimator: str = "joint map"

    @property
    def map_abilities(self) -> np.ndarray:
        """The abilities, which are posterior modes."""
        return self.abilities

    @property
    def map_se(self) -> np.ndarray:
        """Their standard deviations."""
        return self.ability_se

    @property
    def curves(self) -> Curves:
        """The item curves in slope-intercept form."""
        return Curves(self.a, self.d, self.g, self.u)

    def information(self, theta: np.ndarray) -> np.ndarray:
        """Test information at abilities `theta` (T,), the sum of the items': (T,). See `curves.item_information`."""
        return total_information(self.curves, np.asarray(theta, dtype=np.float64))

    @property
    def aic(self) -> float:
        """Akaike's criterion, 2 p - 2 log L, with Laplace's log L."""
        return 2 * self.n_parameters - 2 * self.loglik

    @property
    def bic(self) -> float:
        """Schwarz' criterion, p log n - 2 log L, with Laplace's log L, n respondents."""
        return float(self.n_parameters * np.log(self.n_respondents) - 2 * self.loglik)


def fit_joint(
    cells: Cells | np.ndarray,
    model: Model = "1pl",
    *,
    slope: Literal["free", "common", "fixed"] | float = "free",
    guessing: float | np.ndarray | None = None,
    priors: Literal["auto", "none", "weak"] = "auto",
    choices: float | np.ndarray = 5,
    errors: bool = True,
    tolerance: float | None = None,
    sweeps: int = 500,
    dense: bool | None = None,
    workers: int | None = None,
    start: tuple[Curves, np.ndarray, np.ndarray] | None = None,
) -> JointFit:
    """Fit items and abilities together: joint maximum a posteriori.

    Climbs the likelihood of all cells with abilities N(0, 1), less half the log-determinant of what the cells tell of
    each ability (Laplace's approximation of the marginal likelihood, which keeps the scale of abilities at 1 and takes
    out most of the bias of joint estimates), with the priors of items. A sweep takes one Newton step of every item
    given abilities and one of every ability given items; then abilities are moved and stretched to where their
    prior fits best, and the items with them. Unlike in the marginal fit, the work does not grow with how precisely
    abilities are known, so millions of items are possible.

    Parameters
    ----------
    cells : Cells or numpy.ndarray, shape (n, J)
        Scores in [0, 1], NaN where not attempted. A fraction counts as that share of a right response.
    model : "1pl", "2pl", "3pl" or "4pl"
    slope : "free", "common", "fixed" or float
        1PL: estimate the common discrimination, set it to 1, or to a given number. 3PL and 4PL: one an item, one for
        all (common), or given. The 2PL has one an item.
    guessing : float or (J,) array, optional
        Lower asymptotes in [0, 1), held fixed, in any model. By default 0, or estimated in a 3PL and a 4PL.
    priors : "auto", "none" or "weak"
        Where an item has its own slope or an asymptote: log a ~ N(its mean over items, 0.5^2) and d ~ N(0, 3^2), which
        leave the scale of abilities alone. With estimated asymptotes the mean is that of the fit
        without them. Of estimated asymptotes logit g and logit(1 - u) are
        N(logit(1 / K), 1), in any case. auto is weak.
    choices : float or (J,) array
        K, where the priors of asymptotes are centred.
    errors : bool
        Whether to compute standard errors and infit.
    tolerance : float, optional
        Largest move in the last sweep: 1e-6, or 1e-4 above 20 million cells and where asymptotes are estimated.
    sweeps : int
        Most sweeps.
    dense : bool, optional
        How cells are laid out in a block; by default dense where a fifth of them or more are there.
    workers : int, optional
        Threads; their number changes no bit. By default as many as there are processors.
    start : (Curves of all J items, abilities (n,), their variances (n,)), optional
        Where to start instead, e.g. at the fit of nearly the same respondents. Of no use, and not looked at, where
        asymptotes are estimated: these start from a fit without them.

    Returns
    -------
    JointFit

    Raises
    ------
    DataRefused
        For fewer than two respondents, a score outside of [0, 1], an item without a response, or items with their own
        slopes of which fewer than three tell respondents apart.
    UsageError
        For settings that contradict each other.

    Notes
    -----
    Two evaluations of each cell a sweep, 10 to 60 sweeps; 3 bytes a cell of 0 or 1 (up to 65,536 respondents) and some
    100 bytes an item. 1,000,000 items x 100 respondents: half a minute on two cores (a 1PL: seconds).
    Standard errors take abilities as
    known, so they understate, the more so the fewer items a respondent answered.

    Source: R. J. Mislevy (1986). Bayes modal estimation in item response models; L. Tierney, J. B. Kadane (1986).
    Accurate approximations for posterior moments and marginal densities.
    """
    cells = cells if isinstance(cells, Cells) else _cells(np.asarray(cells))
    _check(cells, model, slope, guessing, priors, choices)
    g, k = (
        np.broadcast_to(np.asarray(v, dtype=np.float64), (cells.items,))
        for v in (0.0 if guessing is None else guessing, choices)
    )
    total, answered = cells.item_totals(), cells.answered
    extreme = (total >= answered - 1e-9).astype(np.int8) - (total <= 1e-9).astype(np.int8)
    inner, outer = np.flatnonzero(extreme == 0), np.flatnonzero(extreme)
    kind, said, slope_at = _kind(model, slope, priors, None if guessing is None else g[inner], len(inner))
    if len(inner) < 3 and kind.free != (1,):
        raise DataRefused(
            f"only {len(inner)} of {cells.items} items tell respondents apart, which cannot identify a {model.upper()}",
            where="fit_joint",
            expected="3 or more items that some got right and others wrong",
            remedy="use model 1pl, or pass_rate",
        )
    used = cells.take(inner)
    few, group, times = together(used, kind)
    single = few.size > SINGLE
    with one_thread(), ThreadPoolExecutor(workers or processors()) as pool:
        sweep = Sweep(
            Layout(few, np.float32 if single else np.float64, dense, BLOCK if kind.plain else BLOCK // 4),
            kind,
            -np.log(k[inner] - 1.0)[: few.items],
            times,
            pool,
            _several_parts(few),
        )
        least, free = tolerance or (1e-4 if single or kind.lower or kind.upper else 1e-6), said in ("free", "common")
        state = start_at_rates(few, slope_at, g[inner], kind)
        if start is not None and not (kind.lower or kind.upper):
            state = start_near(state, start, inner[np.unique(group, return_index=True)[1]], kind, free)
        if kind.lower or kind.upper:  # asymptotes are freed where the curves without them stand
            state = climb(replace(sweep, kind=replace(kind, lower=False, upper=False)), state, 1e-2, sweeps, free)[0]
        state, trace, settled = climb(sweep, state, least, sweeps, free)
        typical = float(np.median(np.abs(state.x[0]))) if len(inner) else slope_at
        if free and typical < FLAT:
            said = f"fixed: the free one fell to {typical:.2g}, respondents do not differ"
            kind, free = replace(kind, slope=False, weak=kind.weak and not kind.plain), False
            sweep, first = replace(sweep, kind=kind), start_at_rates(few, 1.0, g[inner], kind)
            state, trace, settled = climb(sweep, first, least, sweeps, free)
        full = np.full((11, cells.items), np.nan)
        full[2], full[3] = g, 1.0
        full[:9, inner], loglik = finished(sweep, state, group, errors)
        if errors:
            whole = sweep if few is used else replace(sweep, layout=Layout(used, np.float32, dense))
            full[9:, inner] = mean_squares(whole, state, group)
        middle = float(np.median(state.x[0])) if len(inner) else slope_at
        rows = np.array([0, 1, 5, 6])
        full[np.ix_(rows, outer)] = place_extremes(
            cells, outer, extreme, state.theta, middle if middle > 0 else 1.0, pool
        )
    a, d, lower, upper, se_a, se_d, se_b, se_g, se_u, infit, outfit = full
    at_end = np.zeros(cells.items, dtype=bool)
    for estimated, logit in ((kind.lower, state.x[2]), (kind.upper, -state.x[3])):
        at_end[inner] |= estimated & ((logit <= LOW) | (logit >= HIGH))[group]
    return JointFit(
        model=model,
        a=a,
        b=-d / a,
        d=d,
        g=lower,
        u=upper,
        se_a=se_a,
        se_b=se_b,
        se_d=se_d,
        se_g=se_g,
        se_u=se_u,
        infit=infit,
        outfit=outfit,
        extreme=extreme,
        at_bound=np.abs(a) >= BOUND,
        asymptote_at_bound=at_end,
        abilities=state.theta,
        ability_se=np.sqrt(state.variance),
        loglik=loglik,
        n_parameters=len(kind.free) * len(inner) + int(free and not kind.slope),
        n_respondents=cells.n,
        n_iter=len(trace),
        converged=settled,
        slope=said,
        guessing="free" if kind.lower else "given" if g.any() else "none",
        priors="weak" if kind.weak else "none",
        errors="given the abilities: too small" if errors else "none",
        trace=trace,
    )


def together(cells: Cells, kind: Kind) -> tuple[Cells, np.ndarray, np.ndarray]:
    """Join items of equal total where nothing else about them counts: a 1PL of complete data.

    Returns
    -------
    Cells
        One item a total, its scores the means; or the same cells.
    group : (J,) int64
        Which of these each item is.
    times : float64
        How many items each of these stands for.
    """
    alone = cells, np.arange(cells.items), np.ones(cells.items)
    if kind.free != (1,) or not kind.plain or not cells.complete or not cells.items:
        return alone
    totals_, group, times = np.unique(np.round(cells.item_totals(), 9), return_inverse=True, return_counts=True)
    if 4 * len(totals_) > cells.items:
        return alone
    order = np.argsort(group, kind="stable")
    ends = np.concatenate([[0], np.cumsum(times)])
    scores, size = cells.score.reshape(cells.items, cells.n), max(1, (1 << 24) // cells.n)
    means = np.zeros((len(times), cells.n))
    for number in range(len(times)):
        for start in range(ends[number], ends[number + 1], size):
            rows = np.sort(order[start : min(start + size, ends[number + 1])])
            means[number] += scores[rows].sum(axis=0, dtype=np.float64)
    means /= times[:, None]
    pointer = np.arange(len(times) + 1, dtype=np.int64) * cells.n
    who = np.tile(np.arange(cells.n).astype(cells.who.dtype), len(times))
    return Cells(pointer, who, means.ravel(), cells.n), group.ravel(), times.astype(np.float64)


def _several_parts(cells: Cells) -> tuple[np.ndarray, np.ndarray] | None:
    if cells.complete or not cells.items:
        return None
    found = find_parts(cells)
    return (found.item, found.respondent) if found.count > 1 else None


def _cells(matrix: np.ndarray) -> Cells:
    if matrix.ndim != 2:
        raise UsageError(f"found an array of shape {matrix.shape}", where="fit_joint", expected="(respondents, items)")
    finite = np.isfinite(matrix)
    if np.isinf(matrix).any() or (matrix[finite] < 0).any() or (matrix[finite] > 1).any():
        raise DataRefused("a score lies outside of [0, 1]", where="fit_joint", expected="scores in [0, 1] or NaN")
    if not finite.any(axis=0).all():
        column = int(np.flatnonzero(~finite.any(axis=0))[0])
        raise DataRefused(f"item {column} has no response", where="fit_joint", remedy="leave it out")
    return Cells.of(matrix)


def _check(
    cells: Cells,
    model: str,
    slope: str | float,
    guessing: float | np.ndarray | None,
    priors: str,
    choices: float | np.ndarray,
) -> None:
    check_model(model, slope, priors, "fit_joint")
    for name, given, low, high in (("guessing", guessing, 0.0, 0.98), ("choices", choices, 1.001, np.inf)):
        value = np.asarray(0.5 if given is None else given, dtype=np.float64)
        if value.shape not in ((), (cells.items,)) or not ((value >= low) & (value <= high) | (given is None)).all():
            raise UsageError(
                f"{name} is not one number, or one an item, in range",
                where=f"fit_joint: {name}",
                expected="chances of at least 0 and below 0.98" if name == "guessing" else "2 choices or more",
            )
    if cells.n < 2 or cells.items < 1:
        raise DataRefused(
            f"{cells.n} respondents and {cells.items} items: a model of who can do what needs several of the first",
            where="fit_joint",
            expected="at least 2 respondents and 1 item",
            remedy="use pass_rate, which needs one",
        )


def _kind(model: str, slope: str | float, priors: str, given: np.ndarray | None, inner: int) -> tuple[Kind, str, float]:
    """Return what is estimated, how the slope is called, and the slope to start from."""
    own = model != "1pl" and slope == "free"
    lower, upper = model in ("3pl", "4pl") and given is None, model == "4pl"
    plain = not lower and not upper and (given is None or not given.any())
    kind = Kind(own, lower, upper, plain, priors != "none" and (own or not plain))
    if not isinstance(slope, str):
        return kind, "given", float(slope)
    if slope == "fixed" or own or inner >= 2:
        return kind, slope if model != "1pl" or slope == "fixed" else "free", 1.0
    return kind, "fixed: fewer than two items tell respondents apart", 1.0
