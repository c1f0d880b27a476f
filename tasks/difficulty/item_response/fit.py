"""`fit_irt`: a model of one to four parameters an item fitted to a matrix of scores by marginal maximum likelihood."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from gradatim.tasks.core.reduce import one_thread
from gradatim.tasks.difficulty.item_response import information, observed
from gradatim.tasks.difficulty.item_response.abilities import modes
from gradatim.tasks.difficulty.item_response.asymptotes import MOST_INTERCEPT, Asymptotic
from gradatim.tasks.difficulty.item_response.curves import Curves, total_information
from gradatim.tasks.difficulty.item_response.e_step import expectation, posteriors
from gradatim.tasks.difficulty.item_response.extremes import placed
from gradatim.tasks.difficulty.item_response.item_fit import FitTest, fit_test, mean_squares
from gradatim.tasks.difficulty.item_response.marginal import (
    BOUND,
    Grid,
    Maximum,
    Objective,
    Patterns,
    group_patterns,
    maximise,
)
from gradatim.tasks.difficulty.item_response.overall_fit import OverallFit, m2
from gradatim.tasks.difficulty.item_response.specify import Model, check, scores_for, specify, start_curves

MAX_NODES = 3841


@dataclass(frozen=True)
class IRTFit:
    """A fitted model: P(right) = lower + (upper - lower) sigma(a (theta - b)), theta ~ N(0, 1), b = -d / a.

    Attributes
    ----------
    model : "1pl", "2pl", "3pl" or "4pl"
    a, b, d, g, u : (J,) float64
        Discrimination, location, intercept, lower and upper asymptote.
    se_a, se_b, se_d, se_g, se_u : (J,) float64
        Standard errors; NaN where there is none (a given parameter, or one at its bound).
    infit, outfit : (J,) float64
        Mean squared residuals, about 1 where the model holds; NaN for extreme items and without `errors`.
    extreme : (J,) int8
        1 for an item that everyone got right, -1 for one that nobody did, 0 otherwise. Such an item says nothing about
        abilities and has no finite maximum: it is placed as if half a response had gone the other way.
    at_bound : (J,) bool
        Items that separate the respondents perfectly, |a| at its bound, or that fewer get right than guess it.
    asymptote_at_bound : (J,) bool
        Items of which an estimated g or u ran to the end of its range: it has no finite maximum on the logit scale.
    abilities, ability_se : (n,) float64
        Posterior mean (EAP) and standard deviation.
    map_abilities, map_se : (n,) float64
        Posterior mode (MAP) and 1 / sqrt(test information + 1).
    loglik : float
        Marginal log-likelihood, without priors, over the items that are not extreme (these add nothing at their own).
    n_parameters, n_respondents, n_iter : int
    converged, resolved : bool
        Whether the last step vanished; whether the quadrature resolves every respondent.
    nodes : int
    limit : float
        Quadrature on `nodes` equally spaced points of [-limit, limit].
    slope : str
        free, common, fixed or given.
    guessing : str
        none, free or given.
    priors : str
        none or weak.
    errors : str
        How standard errors were made.
    trace : tuple of float
        Log-likelihood (with priors) after each accepted pass on the last grid; never falls by more than
        rounding.
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
    se_g: np.ndarray
    se_u: np.ndarray
    infit: np.ndarray
    outfit: np.ndarray
    extreme: np.ndarray
    at_bound: np.ndarray
    asymptote_at_bound: np.ndarray
    abilities: np.ndarray
    ability_se: np.ndarray
    map_abilities: np.ndarray
    map_se: np.ndarray
    loglik: float
    n_parameters: int
    n_respondents: int
    n_iter: int
    converged: bool
    resolved: bool
    nodes: int
    limit: float
    slope: str
    guessing: str
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

    @property
    def curves(self) -> Curves:
        """The item curves in slope-intercept form."""
        return Curves(self.a, self.d, self.g, self.u)

    @property
    def grid(self) -> Grid:
        """The quadrature of the fit."""
        return Grid.of(self.nodes, self.limit)

    def information(self, theta: np.ndarray) -> np.ndarray:
        """Test information at abilities `theta` (T,), the sum of the items': (T,). See `curves.item_information`."""
        return total_information(self.curves, np.asarray(theta, dtype=np.float64))

    def loglik_of(self, matrix: np.ndarray, nodes: int = 401) -> float:
        """Marginal log-likelihood of an (n, J) matrix of scores at these parameters, on another grid."""
        data = group_patterns(scores_for(matrix, len(self.a), "loglik_of"))
        return expectation(data, self.curves, Grid.of(nodes, self.limit)).loglik

    def eap(self, matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean and standard deviation of the ability behind each row of an (m, J) matrix of scores."""
        data = group_patterns(scores_for(matrix, len(self.a), "eap"))
        with one_thread():
            e = expectation(data, self.curves, self.grid)
        return e.mean[data.index], np.sqrt(e.variance)[data.index]

    def map(self, matrix: np.ndarray) -> np.ndarray:
        """Posterior mode of the ability behind each row of an (m, J) matrix of scores."""
        data = group_patterns(scores_for(matrix, len(self.a), "map"))
        with one_thread():
            return np.asarray(modes(data, self.curves, self.grid)[0][data.index])

    def pattern_probability(self, matrix: np.ndarray) -> np.ndarray:
        """Marginal probability of each row of an (m, J) matrix of 0 and 1, NaN where missing."""
        data = group_patterns(scores_for(matrix, len(self.a), "pattern_probability"))
        value = np.empty(len(data.weight))
        for part, _, found in posteriors(data, self.curves, self.grid):
            value[part] = found
        return np.asarray(np.exp(value)[data.index])

    def fit_test(self, matrix: np.ndarray) -> FitTest:
        """Test each item's fit to the (n, J) matrix that was fitted: S-X2, or Q1 where cells are missing.

        Extreme items have no test. See `item_fit.fit_test`.
        """
        inner = np.flatnonzero(self.extreme == 0)
        data = group_patterns(scores_for(matrix, len(self.a), "fit_test")[:, inner])
        own = 1 + (self.model != "1pl" and self.slope == "free") + (self.guessing == "free") + (self.model == "4pl")
        found = fit_test(data, self.curves.part(inner), self.grid, np.full(len(inner), own))
        nothing, df = np.full((2, len(self.a)), np.nan), np.zeros(len(self.a), dtype=np.int64)
        nothing[0, inner], nothing[1, inner], df[inner] = found.statistic, found.p, found.df
        return FitTest(found.method, nothing[0], df, nothing[1])

    def overall_fit(self, matrix: np.ndarray) -> OverallFit:
        """Test the whole model on the (n, J) matrix that was fitted, by M2. See `overall_fit.m2`."""
        inner = np.flatnonzero(self.extreme == 0)
        data = group_patterns(scores_for(matrix, len(self.a), "overall_fit")[:, inner])
        estimated = self.slope in ("free", "common")
        kind = "given" if not estimated else "common" if self.model == "1pl" or self.slope == "common" else "free"
        with one_thread():
            return m2(
                data,
                self.curves.part(inner),
                self.grid,
                slope=kind,
                lower=self.guessing == "free",
                upper=self.model == "4pl",
            )


def fit_irt(
    matrix: np.ndarray,
    model: Literal["1pl", "2pl", "3pl", "4pl"] = "1pl",
    *,
    slope: Literal["free", "common", "fixed"] | float = "free",
    guessing: float | np.ndarray | None = None,
    priors: Literal["auto", "none", "weak"] = "auto",
    choices: float | np.ndarray = 5,
    nodes: int | None = None,
    errors: bool = True,
    tolerance: float | None = None,
    start: tuple[Curves, Grid] | None = None,
) -> IRTFit:
    """Fit an item response model by marginal maximum likelihood.

    Parameters
    ----------
    matrix : numpy.ndarray, shape (n, J)
        Scores in [0, 1] of n respondents on J items, NaN where not attempted. A fraction counts as that share of a
        right and the rest of a wrong response.
    model : "1pl", "2pl", "3pl" or "4pl"
        One discrimination for all items; one an item; with a lower asymptote (guessing) an item; with an upper one
        (slips) as well.
    slope : "free", "common", "fixed" or float
        1PL: estimate the common discrimination, set it to 1 (Rasch), or to a given number. 3PL and 4PL: one an item,
        one for all (common), or given. The 2PL has one an item.
    guessing : None, float or array (J,)
        Lower asymptote in [0, 1): given (1 / K for K choices) it is held fixed, in any model. None: estimated in 3PL
        and 4PL, 0 in 1PL and 2PL.
    priors : "auto", "none" or "weak"
        log a ~ N(0, 0.5^2) for free slopes, b ~ N(0, 2^2), logit g and logit(1 - u) ~ N(logit(1 / K), 1). auto is weak
        wherever a curve does not run from 0 to 1 (asymptotes are weakly identified, and an item that fewer get right
        than guess it has no finite location), for the 2PL below 250 respondents, else none.
    choices : float or array (J,)
        K, where the priors of asymptotes are centred.
    nodes : int, optional
        Quadrature nodes; by default as many as resolve every respondent: the step is at most the smallest posterior
        standard deviation, and to double them changes the log-likelihood by less than 1e-3.
    errors : bool
        Whether to compute standard errors, infit and outfit.
    tolerance : float, optional
        Largest move of a parameter in the last pass; as small as numbers allow by default.
    start : (Curves of all J items, Grid), optional
        Where to start instead, e.g. at the fit of nearly the same respondents; few passes are then needed.

    Returns
    -------
    IRTFit

    Raises
    ------
    DataRefused
        For a score outside of [0, 1], an item without a response, fewer than two respondents, free slopes or asymptotes
        with fewer than three items that tell respondents apart, or more than 2e9 cells.
    UsageError
        For settings that contradict each other.

    Notes
    -----
    Without guessing O(n J + (n + J) nodes) a pass for complete data, tens of passes; O(n J nodes) with asymptotes and
    with many different sets of answered items. Errors: one (2 J)^2 matrix up to 350 items, n^2 J above; with asymptotes
    n J^2 nodes while that takes seconds, else as above. Memory: 8 n J bytes, 4 n J above 20 million cells.

    Source: R. D. Bock, M. Aitkin (1981). Marginal maximum likelihood estimation of item parameters: application of an
    EM algorithm; T. A. Louis (1982). Finding the observed information matrix when using the EM algorithm; A. Birnbaum
    (1968). Some latent trait models and their use in inferring an examinee's ability; M. A. Barton, F. M. Lord (1981).
    An upper asymptote for the three-parameter logistic item-response model.
    """
    matrix = np.asarray(matrix)
    check(matrix, model, slope, guessing, priors, choices)
    with one_thread():  # more threads would add in another order
        return _fitted(matrix, model, slope, guessing, priors, choices, nodes, errors, tolerance, start)


def _fitted(
    matrix: np.ndarray,
    model: str,
    slope: str | float,
    guessing: float | np.ndarray | None,
    priors: str,
    choices: float | np.ndarray,
    nodes: int | None,
    errors: bool,
    tolerance: float | None,
    start: tuple[Curves, Grid] | None,
) -> IRTFit:
    n, items = matrix.shape
    seen = np.isfinite(matrix)
    answered = seen.sum(axis=0)
    total = np.where(seen, matrix, 0.0).sum(axis=0, dtype=np.float64)
    extreme = (total >= answered - 1e-9).astype(np.int8) - (total <= 1e-9).astype(np.int8)
    inner = np.flatnonzero(extreme == 0)
    chosen = specify(n, items, inner, model, slope, guessing, priors, choices)
    data = group_patterns(matrix[:, inner])
    near = None if start is None else (start[0].part(inner), start[1])
    objective, grid, maximum, info, resolved, rounds = _fit(chosen, data, nodes, errors, tolerance, near)
    if chosen.slope == "common" and len(inner) and maximum.x[0] < 0.05:  # only the rates of right answers speak
        chosen = chosen.with_slope_one(f"fixed: the free one fell to {maximum.x[0]:.2g}, respondents do not differ")
        objective, grid, maximum, info, resolved, rounds = _fit(chosen, data, nodes, errors, tolerance)
    curves = _curves(objective, maximum.x)
    estimates, se, how = np.full((4, items), np.nan), np.full((5, items), np.nan), "none"
    estimates[2], estimates[3] = chosen.all_g, 1.0
    estimates[:, inner] = np.stack([curves.a, curves.d, curves.g, curves.u])
    bound = np.abs(estimates[0]) >= BOUND
    asymptote_bound = np.zeros(items, dtype=bool)
    fit = np.full((2, items), np.nan)
    if errors and len(inner):
        se[:, inner], how = _errors(objective, grid, maximum.x, info)
        fit[:, inner] = mean_squares(data, curves, grid)
    if isinstance(objective, Asymptotic):
        bound |= np.abs(estimates[1]) >= MOST_INTERCEPT
        asymptote_bound[inner] = observed.at_end(objective, maximum.x)
    outer = np.flatnonzero(extreme)
    if len(outer):
        typical, intercept, spread = placed(seen, extreme, data, curves, grid)
        estimates[0, outer], estimates[1, outer] = typical, intercept
        se[1, outer], se[2, outer] = spread, spread / typical
    e = expectation(data, curves, grid)
    mode, mode_se = modes(data, curves, grid)
    a, d, g, u = estimates
    return IRTFit(
        model=model,
        a=a,
        b=-d / a,
        d=d,
        g=g,
        u=u,
        se_a=np.where((se[0] > 0) & ~bound, se[0], np.nan),
        se_b=se[2],
        se_d=se[1],
        se_g=se[3],
        se_u=se[4],
        infit=fit[0],
        outfit=fit[1],
        extreme=extreme,
        at_bound=bound,
        asymptote_at_bound=asymptote_bound,
        abilities=e.mean[data.index],
        ability_se=np.sqrt(e.variance)[data.index],
        map_abilities=mode[data.index],
        map_se=mode_se[data.index],
        loglik=e.loglik,
        n_parameters=len(maximum.x),
        n_respondents=n,
        n_iter=rounds,
        converged=maximum.settled,
        resolved=resolved,
        nodes=len(grid.nodes),
        limit=float(grid.nodes[-1]),
        slope=chosen.slope_said,
        guessing=chosen.guessing_said,
        priors="weak" if chosen.weak else "none",
        errors=how,
        trace=maximum.trace,
    )


def _fit(
    chosen: Model,
    data: Patterns,
    nodes: int | None,
    errors: bool,
    tolerance: float | None,
    near: tuple[Curves, Grid] | None = None,
) -> tuple[Objective | Asymptotic, Grid, Maximum, np.ndarray | None, bool, int]:
    """Maximise on a grid that is refined and widened until it resolves the data."""
    longest = int(data.masks.sum(axis=1).max(initial=0))
    guess = 2 * int(np.ceil(6 * np.sqrt(1.0 + 0.2 * longest))) + 1  # a step of about one posterior standard deviation
    grid = Grid.of(nodes or int(np.clip(guess, 61, MAX_NODES)))
    if near is not None and not nodes:
        grid = near[1]
    plain = chosen.plain(data)
    if not len(plain.slopes):
        return plain, grid, Maximum(plain.start(), (0.0,), True), None, True, 0
    starts: list[np.ndarray]
    objective: Objective | Asymptotic
    warm = near is not None and not (chosen.weak and (near[0].a <= 0).any())  # priors allow no slope below 0
    if near is not None and warm:
        objective = plain if chosen.bare else chosen.asymptotic(data, near[0])
        starts = [plain.pack(near[0].a, near[0].d) if chosen.bare else objective.start()]
    elif chosen.bare:
        objective, starts = plain, [plain.start()]
    else:
        first = maximise(plain, grid, plain.start(), tolerance=1e-2, passes=100)
        curves = [start_curves(chosen, plain, first.x, at) for at in chosen.starts()]
        objective = chosen.asymptotic(data, curves[0])
        starts = [chosen.asymptotic(data, c).start() for c in curves]
    rounds, info, resolved = 0, None, True
    while True:
        # ridges of free asymptotes are too flat for EM alone, also where nobody asks for errors
        exact = (errors or not (chosen.bare or tolerance)) and _is_exact(objective, grid)
        close = tolerance or _tolerance(chosen, exact)
        tries = [maximise(objective, grid, x, tolerance=close, passes=2000 if chosen.bare else 500) for x in starts]
        if len(tries) > 1 and exact:  # a flat ridge is only told from a peak at its top
            tries = [_finish(objective, grid, found)[0] for found in tries]
        maximum = max(tries, key=lambda found: found.trace[-1])
        rounds += len(maximum.trace)
        e = objective.expect(maximum.x, grid)
        if not nodes:
            edge = e.counts[:, [0, -1]].sum() > 1e-6 * data.weight.sum()
            fine = grid.step <= 1.2 * np.sqrt(e.variance.min(initial=1.0))
            if edge and grid.nodes[-1] < 12:
                grid, starts = grid.widened(), [maximum.x]
                continue
            if warm and fine:  # the grid that resolved nearly the same respondents
                pass
            elif len(grid.nodes) < MAX_NODES:
                finer = expectation(data, _curves(objective, maximum.x), grid.doubled())
                if not fine or abs(finer.loglik - e.loglik) >= 1e-3:
                    grid, starts = grid.doubled(), [maximum.x]
                    continue
            else:
                resolved = bool(fine)
        if exact:
            maximum, info = _finish(objective, grid, maximum)
            rounds += 1
        return objective, grid, maximum, info, resolved, rounds


def _is_exact(objective: Objective | Asymptotic, grid: Grid) -> bool:
    if isinstance(objective, Asymptotic):
        return observed.is_exact(objective, grid)
    return information.is_exact(objective, grid)


def _finish(objective: Objective | Asymptotic, grid: Grid, maximum: Maximum) -> tuple[Maximum, np.ndarray | None]:
    if isinstance(objective, Asymptotic):
        return observed.finish(objective, grid, maximum)
    return information.finish(objective, grid, maximum)


def _tolerance(chosen: Model, exact: bool) -> float:
    """How close EM must come: Newton takes over where the information is exact."""
    if chosen.bare:
        return 1e-7 if exact else 1e-10
    return 1e-3 if exact else 1e-7


def _curves(objective: Objective | Asymptotic, x: np.ndarray) -> Curves:
    return objective.unpack(x) if isinstance(objective, Asymptotic) else Curves.plain(*objective.unpack(x))


def _errors(
    objective: Objective | Asymptotic, grid: Grid, x: np.ndarray, info: np.ndarray | None
) -> tuple[np.ndarray, str]:
    """Standard errors of a, d, b, g, u, (5, J), and how they were made."""
    if isinstance(objective, Asymptotic):
        curved = observed.standard_errors(objective, grid, x, info)
        return np.stack([curved.a, curved.d, curved.b, curved.g, curved.u]), curved.how
    plain = information.standard_errors(objective, grid, x, info)
    nothing = np.full(len(plain.a), np.nan)
    return np.stack([plain.a, plain.d, plain.b, nothing, nothing]), plain.how
