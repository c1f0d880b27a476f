"""`fit_irt`: a 1PL or 2PL model fitted to a matrix of scores, with errors, abilities and the facts of the fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.difficulty.information import Errors, finish, is_exact, standard_errors
from gradatim.tasks.difficulty.item_fit import infit
from gradatim.tasks.difficulty.marginal import (
    BOUND,
    Grid,
    Maximum,
    Objective,
    Patterns,
    blocks,
    expectation,
    group_patterns,
    maximise,
    posteriors,
    probabilities,
    unique_rows,
)

FEW = 250
"""Below so many respondents the 2PL's weak priors are on by default."""
MAX_NODES = 3841
MAX_CELLS = 2_000_000_000


@dataclass(frozen=True)
class IRTFit:
    """A fitted model: P(right) = lower + (upper - lower) sigma(a (theta - b)), theta ~ N(0, 1), b = -d / a.

    Attributes
    ----------
    model : "1pl" or "2pl"
    a, b, d, g, u : (J,) float64
        Discrimination, location, intercept, lower (0) and upper (1) asymptote.
    se_a, se_b, se_d : (J,) float64
        Standard errors; NaN where there is none (given slopes, a slope at its bound).
    infit : (J,) float64
        Infit mean square, about 1 where the model holds; NaN for extreme items and without `errors`.
    extreme : (J,) int8
        1 for an item that everyone got right, -1 for one that nobody did, 0 otherwise. Such an item says nothing about
        abilities and has no finite maximum: it is placed as if half a response had gone the other way.
    at_bound : (J,) bool
        Items that separate the respondents perfectly; |a| stands at its bound.
    abilities, ability_se : (n,) float64
        Posterior mean (EAP) and standard deviation.
    loglik : float
        Marginal log-likelihood, without priors, over the items that are not extreme (these add nothing at their own).
    n_parameters, n_respondents, n_iter : int
    converged, resolved : bool
        Whether the last step vanished; whether the quadrature resolves every respondent.
    nodes : int
    limit : float
        Quadrature on `nodes` equally spaced points of [-limit, limit].
    slope : str
        free, fixed or given.
    priors : str
        none or weak.
    errors : str
        How standard errors were made.
    trace : tuple of float
        Log-likelihood (with priors) after each accepted pass on the last grid; never falls.
    """

    model: str
    a: np.ndarray
    b: np.ndarray
    d: np.ndarray
    g: np.ndarray
    u: np.ndarray
    se_a: np.ndarray
    se_b: np.ndarray
    se_d: np.ndarray
    infit: np.ndarray
    extreme: np.ndarray
    at_bound: np.ndarray
    abilities: np.ndarray
    ability_se: np.ndarray
    loglik: float
    n_parameters: int
    n_respondents: int
    n_iter: int
    converged: bool
    resolved: bool
    nodes: int
    limit: float
    slope: str
    priors: str
    errors: str
    trace: tuple[float, ...]

    @property
    def aic(self) -> float:
        """Akaike's criterion, 2 p - 2 log L."""
        return 2 * self.n_parameters - 2 * self.loglik

    @property
    def bic(self) -> float:
        """Schwarz' criterion, p log n - 2 log L, n respondents."""
        return float(self.n_parameters * np.log(self.n_respondents) - 2 * self.loglik)

    def information(self, theta: np.ndarray) -> np.ndarray:
        """Test information at abilities `theta` (T,), the sum of a^2 P (1 - P) over items: (T,)."""
        theta = np.asarray(theta, dtype=np.float64)
        total = np.zeros(len(theta))
        for part in blocks(len(self.a), len(theta)):
            p = probabilities(self.a[part], self.d[part], theta)
            total += self.a[part] ** 2 @ (p * (1 - p))
        return total

    def loglik_of(self, matrix: np.ndarray, nodes: int = 401) -> float:
        """Marginal log-likelihood of an (n, J) matrix of scores at these parameters, on another grid."""
        data = group_patterns(np.asarray(matrix, dtype=np.float64))
        return expectation(data, self.a, self.d, Grid.of(nodes, self.limit)).loglik

    def eap(self, matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean and standard deviation of the ability behind each row of an (m, J) matrix of scores."""
        data = group_patterns(np.asarray(matrix, dtype=np.float64))
        e = expectation(data, self.a, self.d, Grid.of(self.nodes, self.limit))
        return e.mean[data.index], np.sqrt(e.variance)[data.index]

    def map(self, matrix: np.ndarray) -> np.ndarray:
        """Posterior mode of the ability behind each row of an (m, J) matrix of scores."""
        matrix = np.asarray(matrix, dtype=np.float64)
        seen = np.isfinite(matrix)
        right = np.where(seen, matrix, 0.0) @ self.a
        theta = self.eap(matrix)[0]
        for _ in range(50):
            p = probabilities(self.a, self.d, theta)
            score = right - (seen * p.T) @ self.a - theta
            step = score / ((seen * (p * (1 - p)).T) @ self.a**2 + 1.0)
            theta = theta + np.clip(step, -1.0, 1.0)
            if np.abs(step).max(initial=0.0) < 1e-10:
                break
        return theta

    def pattern_probability(self, matrix: np.ndarray) -> np.ndarray:
        """Marginal probability of each row of an (m, J) matrix of 0 and 1, NaN where missing."""
        grid = Grid.of(self.nodes, self.limit)
        data = group_patterns(np.asarray(matrix, dtype=np.float64))
        right = probabilities(self.a, self.d, grid.nodes)
        y, answered = data.y.T[:, :, None], data.masks[data.group][:, :, None]
        chance = np.where(answered, np.where(y > 0.5, right, 1 - right), 1.0).prod(axis=1)
        return np.asarray((chance @ np.exp(grid.log_weights))[data.index])


def fit_irt(
    matrix: np.ndarray,
    model: Literal["1pl", "2pl"] = "1pl",
    *,
    slope: Literal["free", "fixed"] | float = "free",
    priors: Literal["auto", "none", "weak"] = "auto",
    nodes: int | None = None,
    errors: bool = True,
    tolerance: float | None = None,
) -> IRTFit:
    """Fit an item response model by marginal maximum likelihood.

    Parameters
    ----------
    matrix : numpy.ndarray, shape (n, J)
        Scores in [0, 1] of n respondents on J items, NaN where not attempted. A fraction counts as that share of a
        right and the rest of a wrong response.
    model : "1pl" or "2pl"
        One discrimination for all items, or one an item.
    slope : "free", "fixed" or float
        1PL only: estimate the common discrimination, set it to 1 (Rasch), or to a given number.
    priors : "auto", "none" or "weak"
        2PL only: log a ~ N(0, 0.5^2) and b ~ N(0, 2^2). auto is weak below 250 respondents, else none.
    nodes : int, optional
        Quadrature nodes; by default as many as resolve every respondent: the step is at most the smallest posterior
        standard deviation, and to double them changes the log-likelihood by less than 1e-3.
    errors : bool
        Whether to compute standard errors and infit.
    tolerance : float, optional
        Largest move of a parameter in the last pass; as small as numbers allow by default.

    Returns
    -------
    IRTFit

    Raises
    ------
    DataRefused
        For a score outside of [0, 1], an item without a response, fewer than two respondents, a 2PL of fewer than three
        items that tell respondents apart, or more than 2e9 cells.
    UsageError
        For settings that contradict each other.

    Notes
    -----
    O(n J + (n + J) nodes) a pass for complete data, tens of passes; O(n J nodes) with many different sets of answered
    items. Errors: one (2 J)^2 matrix up to 350 items, n^2 J above. Memory: 8 n J bytes, 4 n J above 20 million
    cells.

    Source: R. D. Bock, M. Aitkin (1981). Marginal maximum likelihood estimation of item parameters: application of an
    EM algorithm; T. A. Louis (1982). Finding the observed information matrix when using the EM algorithm.
    """
    matrix = np.asarray(matrix)
    _check(matrix, model, slope, priors)
    n, items = matrix.shape
    seen = np.isfinite(matrix)
    answered = seen.sum(axis=0)
    total = np.where(seen, matrix, 0.0).sum(axis=0, dtype=np.float64)
    extreme = (total >= answered - 1e-9).astype(np.int8) - (total <= 1e-9).astype(np.int8)
    inner = np.flatnonzero(extreme == 0)
    weak = model == "2pl" and (priors == "weak" or (priors == "auto" and n < FEW))
    kind, start, how = _slope(model, slope, len(inner))
    if model == "2pl" and len(inner) < 3:
        raise DataRefused(
            f"only {len(inner)} of {items} items tell respondents apart, which cannot identify a 2PL",
            where="fit_irt",
            expected="3 or more items that some got right and others wrong",
            remedy="use model 1pl, or pass_rate",
        )
    data = group_patterns(matrix[:, inner])
    objective = Objective(data, kind, np.full(len(inner), start), weak)
    grid, maximum, information, resolved, rounds = _fit(objective, nodes, errors, tolerance)
    if kind == "1pl" and maximum.x[0] < 0.05:  # respondents do not differ: only the rates of right answers speak
        how = f"fixed: the free one fell to {maximum.x[0]:.2g}, respondents do not differ"
        objective = Objective(data, "fixed", np.ones(len(inner)), weak)
        grid, maximum, information, resolved, rounds = _fit(objective, nodes, errors, tolerance)
    a, d = objective.unpack(maximum.x)
    nothing = np.full(len(inner), np.nan)
    found = standard_errors(objective, grid, maximum.x, information) if errors and len(inner) else None
    found = found or Errors(nothing, nothing, nothing, "none")
    e = expectation(data, a, d, grid)
    full = _with_extremes(seen, extreme, inner, np.stack([a, d, found.a, found.d, found.b]), data, a, d, grid)
    fit = np.full(items, np.nan)
    if errors and len(inner):
        fit[inner] = infit(data, a, d, grid)
    slope_j, intercept, se_a, se_d, se_b = full
    at_bound = np.abs(slope_j) >= BOUND
    return IRTFit(
        model=model,
        a=slope_j,
        b=-intercept / slope_j,
        d=intercept,
        g=np.zeros(items),
        u=np.ones(items),
        se_a=np.where((se_a > 0) & ~at_bound, se_a, np.nan),
        se_b=se_b,
        se_d=se_d,
        infit=fit,
        extreme=extreme,
        at_bound=at_bound,
        abilities=e.mean[data.index],
        ability_se=np.sqrt(e.variance)[data.index],
        loglik=e.loglik,
        n_parameters=len(maximum.x),
        n_respondents=n,
        n_iter=rounds,
        converged=maximum.settled,
        resolved=resolved,
        nodes=len(grid.nodes),
        limit=float(grid.nodes[-1]),
        slope=how,
        priors="weak" if weak else "none",
        errors=found.how,
        trace=maximum.trace,
    )


def _check(matrix: np.ndarray, model: str, slope: str | float, priors: str) -> None:
    if model not in ("1pl", "2pl"):
        raise UsageError(f"there is no model {model!r}", where="fit_irt: model", expected="1pl or 2pl")
    if priors not in ("auto", "none", "weak"):
        raise UsageError(f"there are no priors {priors!r}", where="fit_irt: priors", expected="auto, none or weak")
    if isinstance(slope, str) and slope not in ("free", "fixed"):
        raise UsageError(f"there is no slope {slope!r}", where="fit_irt: slope", expected="free, fixed or a number")
    if model == "2pl" and slope != "free":
        raise UsageError("a 2PL has one free slope an item", where="fit_irt: slope", remedy="use model 1pl")
    if model == "1pl" and priors == "weak":
        raise UsageError("the 1PL has no priors", where="fit_irt: priors", remedy="use model 2pl, or leave priors out")
    if matrix.ndim != 2:
        raise UsageError(f"found an array of shape {matrix.shape}", where="fit_irt", expected="(respondents, items)")
    n, items = matrix.shape
    if n < 2 or items < 1:
        raise DataRefused(
            f"{n} respondents and {items} items: a model of who can do what needs several of the first",
            where="fit_irt",
            expected="at least 2 respondents and 1 item",
            remedy="use pass_rate, which needs one",
        )
    if matrix.size > MAX_CELLS:
        raise DataRefused(
            f"{n:,} respondents x {items:,} items are {matrix.size:,} cells",
            where="fit_irt",
            expected=f"at most {MAX_CELLS:,}",
            remedy="use pass_rate, or fit fewer respondents",
        )
    finite = np.isfinite(matrix)
    if (np.isinf(matrix)).any() or (matrix[finite] < 0).any() or (matrix[finite] > 1).any():
        raise DataRefused("a score lies outside of [0, 1]", where="fit_irt", expected="scores in [0, 1] or NaN")
    if not finite.any(axis=0).all():
        column = int(np.flatnonzero(~finite.any(axis=0))[0])
        raise DataRefused(f"item {column} has no response", where="fit_irt", remedy="leave it out")


def _slope(model: str, slope: str | float, inner: int) -> tuple[str, float, str]:
    """Return the objective's kind, the slope to start from, and how it is called."""
    if model == "2pl":
        return "2pl", 1.0, "free"
    if not isinstance(slope, str):
        return "fixed", float(slope), "given"
    if slope == "free" and inner >= 2:
        return "1pl", 1.0, "free"
    return "fixed", 1.0, "fixed" if slope == "fixed" else "fixed: fewer than two items tell respondents apart"


def _fit(
    objective: Objective, nodes: int | None, errors: bool, tolerance: float | None
) -> tuple[Grid, Maximum, np.ndarray | None, bool, int]:
    """Maximise on a grid that is refined and widened until it resolves the data."""
    items = len(objective.slopes)
    longest = int(objective.data.masks.sum(axis=1).max(initial=0))
    guess = 2 * int(np.ceil(6 * np.sqrt(1.0 + 0.2 * longest))) + 1  # a step of about one posterior standard deviation
    grid = Grid.of(nodes or int(np.clip(guess, 61, MAX_NODES)))
    x, rounds, information, resolved = objective.start(), 0, None, True
    if not items:
        return grid, Maximum(x, (0.0,), True), None, True, 0
    while True:
        exact = errors and is_exact(objective, grid)
        maximum = maximise(objective, grid, x, tolerance=tolerance or (1e-7 if exact else 1e-10))
        rounds += len(maximum.trace)
        e = expectation(objective.data, *objective.unpack(maximum.x), grid)
        if not nodes:
            edge = e.counts[:, [0, -1]].sum() > 1e-6 * objective.data.weight.sum()
            fine = grid.step <= 1.2 * np.sqrt(e.variance.min(initial=1.0))
            if edge and grid.nodes[-1] < 12:
                grid, x = grid.widened(), maximum.x
                continue
            if len(grid.nodes) < MAX_NODES:
                finer = expectation(objective.data, *objective.unpack(maximum.x), grid.doubled())
                if not fine or abs(finer.loglik - e.loglik) >= 1e-3:
                    grid, x = grid.doubled(), maximum.x
                    continue
            else:
                resolved = bool(fine)
        if exact:
            maximum, information = finish(objective, grid, maximum)
            rounds += 1
        return grid, maximum, information, resolved, rounds


def _with_extremes(
    seen: np.ndarray,
    extreme: np.ndarray,
    inner: np.ndarray,
    found: np.ndarray,
    data: Patterns,
    a: np.ndarray,
    d: np.ndarray,
    grid: Grid,
) -> np.ndarray:
    """Lay the (5, J') estimates out over all items and place the extreme ones half a response from their end."""
    full = np.full((5, len(extreme)), np.nan)
    full[:, inner] = found
    outer = np.flatnonzero(extreme)
    if not len(outer):
        return full
    slope = float(np.median(a)) if len(a) and np.median(a) > 0 else 1.0
    for part in blocks(len(outer), len(seen) + 4 * len(grid.nodes)):
        at = outer[part]
        first, group, _ = unique_rows(np.packbits(seen[:, at].T, axis=1))  # few sets of respondents, many items
        answered = np.zeros((len(data.weight), len(first)))
        np.add.at(answered, data.index, seen[:, at[first]].astype(np.float64))
        counts = np.zeros((len(first), len(grid.nodes)))
        for some, posterior, _ in posteriors(data, a, d, grid):
            counts += answered[some].T @ posterior
        for sign in (-1, 1):
            location, error = _half_a_response(counts, sign, slope, grid)
            mine = extreme[at] == sign
            full[1, at[mine]], full[3, at[mine]] = location[group[mine]], error[group[mine]]
    full[0, outer], full[4, outer] = slope, full[3, outer] / slope
    return full


def _half_a_response(counts: np.ndarray, sign: int, slope: float, grid: Grid) -> tuple[np.ndarray, np.ndarray]:
    """Find d (C,) at which half a response of `counts` (C, Q) is expected to differ from the rest, and its error."""
    n = counts.sum(axis=1)
    target = np.where(sign > 0, n - 0.5, 0.5)
    d = np.log(target / (n - target)) * np.sqrt(1 + slope**2 / 2.89)
    weight = np.ones_like(n)
    for _ in range(100):
        p = probabilities(np.full(len(d), slope), d, grid.nodes)
        weight = np.maximum((counts * p * (1 - p)).sum(axis=1), 1e-12)
        step = np.clip((target - (counts * p).sum(axis=1)) / weight, -1.0, 1.0)
        d = d + step
        if np.abs(step).max(initial=0.0) < 1e-12:
            break
    return d, 1 / np.sqrt(weight)
