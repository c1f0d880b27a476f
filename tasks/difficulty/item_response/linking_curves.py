"""The characteristic-curve criteria of linking, Stocking-Lord and Haebara, and the line that minimises them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradatim.tasks.difficulty.item_response.curves import Curves
from gradatim.tasks.difficulty.item_response.marginal import blocks


@dataclass(frozen=True)
class Abilities:
    """Nodes (Q,) and the weights (Q,), summing to 1, of the old and of the new respondents on their own scales."""

    nodes: np.ndarray
    old: np.ndarray
    new: np.ndarray

    @classmethod
    def of(cls, nodes: np.ndarray, old: np.ndarray, new: np.ndarray) -> Abilities:
        """Normalise the weights; all zero stays so, for a criterion that looks at one group only."""
        old, new = np.asarray(old, dtype=np.float64), np.asarray(new, dtype=np.float64)
        return cls(np.asarray(nodes, dtype=np.float64), old / (old.sum() or 1.0), new / (new.sum() or 1.0))

    @classmethod
    def normal(cls, *, symmetric: bool = True, size: int = 41) -> Abilities:
        """N(0, 1) on both scales, or on the old one alone, at `size` equally spaced nodes of [-4, 4]."""
        nodes = np.linspace(-4.0, 4.0, size)
        weights = np.exp(-0.5 * nodes**2)
        return cls.of(nodes, weights, weights if symmetric else 0.0 * weights)


@dataclass(frozen=True)
class Sums:
    """Loss (G,), half its gradient (G, 2) and half its Gauss-Newton Hessian (G, 2, 2) in (slope, intercept), a group.

    For Stocking-Lord, where items are summed before they are squared, `parts` (G, 3, 2 Q) holds each group's weighted
    residuals and their derivatives instead.
    """

    parts: np.ndarray | None
    loss: np.ndarray
    gradient: np.ndarray
    hessian: np.ndarray

    def total(self, without: int | None = None) -> tuple[float, np.ndarray, np.ndarray]:
        """Loss, half gradient, half Hessian over all groups, or over all but one."""
        if self.parts is not None:
            r, *slopes = self.parts.sum(axis=0) - (0.0 if without is None else self.parts[without])
            jacobian = np.stack(slopes, axis=1)
            return float(r @ r), jacobian.T @ r, jacobian.T @ jacobian
        found = (self.loss, self.gradient, self.hessian)
        loss, gradient, hessian = (v.sum(axis=0) - (0.0 if without is None else v[without]) for v in found)
        return float(loss), gradient, hessian


def sums(
    kind: str, new: Curves, old: Curves, slope: float, intercept: float, abilities: Abilities, groups: int = 1
) -> Sums:
    """Evaluate a criterion at a line theta_old = slope theta_new + intercept.

    Item j belongs to group j modulo `groups`. O(J Q); memory of one block.
    """
    size, nodes = len(abilities.nodes), abilities.nodes
    weights = np.sqrt(np.concatenate([abilities.old, abilities.new]))
    parts = np.zeros((groups, 3, 2 * size))
    loss, gradient, hessian = np.zeros(groups), np.zeros((groups, 2)), np.zeros((groups, 2, 2))
    back = (nodes - intercept) / slope
    for group in range(groups):
        members = np.arange(group, len(new.a), groups)
        for part in blocks(len(members), 8 * size):
            some = members[part]
            mine, theirs = new.part(some), old.part(some)
            # on the old scale: the old curve against the new one moved; on the new scale the other way round
            p_old, _ = _at(theirs, nodes)
            p_back, f_back = _at(mine, back)
            p_new, _ = _at(mine, nodes)
            p_moved, f_moved = _at(theirs, slope * nodes + intercept)
            r = np.concatenate([p_old - p_back, p_new - p_moved], axis=1) * weights
            by_slope = np.concatenate([f_back * back / slope, -f_moved * nodes], axis=1) * weights
            by_intercept = np.concatenate([f_back / slope, -f_moved], axis=1) * weights
            if kind == "stocking_lord":
                parts[group] += np.stack([r.sum(axis=0), by_slope.sum(axis=0), by_intercept.sum(axis=0)])
                continue
            loss[group] += (r**2).sum()
            gradient[group] += [(r * by_slope).sum(), (r * by_intercept).sum()]
            cross = (by_slope * by_intercept).sum()
            hessian[group] += [[(by_slope**2).sum(), cross], [cross, (by_intercept**2).sum()]]
    return Sums(parts if kind == "stocking_lord" else None, loss, gradient, hessian)


def minimise(
    kind: str,
    new: Curves,
    old: Curves,
    start: tuple[float, float],
    abilities: Abilities,
    *,
    free_slope: bool = True,
    groups: int = 1,
) -> tuple[float, float, float, Sums]:
    """Find the line that minimises a criterion, by Levenberg and Marquardt's damped steps.

    Parameters
    ----------
    kind : "stocking_lord" or "haebara"
    new, old : Curves
        The same items, in the same order.
    start : (slope, intercept)
    abilities : Abilities
    free_slope : bool
        Whether to move the slope.
    groups : int
        As `sums`.

    Returns
    -------
    slope, intercept, criterion : float
    Sums
        At the minimum.

    Notes
    -----
    O(J Q) a step, some ten steps. Source: D. W. Marquardt (1963). An algorithm for least-squares estimation of
    nonlinear parameters.
    """
    slope, intercept = start
    here = sums(kind, new, old, slope, intercept, abilities, groups)
    loss, gradient, hessian = here.total()
    damping = 1e-3
    for _ in range(100):
        step = _step(gradient, hessian, damping, free_slope)
        if slope + step[0] > 0.01 * slope:
            there = sums(kind, new, old, slope + step[0], intercept + step[1], abilities, groups)
            after = there.total()
            if after[0] <= loss:
                slope, intercept, here = slope + step[0], intercept + step[1], there
                loss, gradient, hessian = after
                damping = max(damping / 10, 1e-12)
                if np.abs(step).max() < 1e-10:
                    break
                continue
        damping *= 10
        if damping > 1e8 or np.abs(step).max() < 1e-10:
            break
    return float(slope), float(intercept), loss, here


def left_out(here: Sums, slope: float, intercept: float, *, free_slope: bool) -> np.ndarray:
    """One Gauss-Newton step from the minimum without each group in turn: (G, 2) of slope and intercept."""
    found = []
    for group in range(len(here.loss)):
        _, gradient, hessian = here.total(group)
        found.append(np.array([slope, intercept]) + _step(gradient, hessian, 1e-9, free_slope))
    return np.array(found)


def _step(gradient: np.ndarray, hessian: np.ndarray, damping: float, free_slope: bool) -> np.ndarray:
    damped = hessian + damping * np.diag(np.diag(hessian)) + 1e-300 * np.eye(2)
    if not free_slope:
        return np.array([0.0, -gradient[1] / damped[1, 1]])
    found: np.ndarray = -np.linalg.lstsq(damped, gradient, rcond=1e-14)[0]
    return found


def _at(curves: Curves, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Probability of a right response and its derivative by ability, each (J, T)."""
    s, r = curves.shape(theta)
    g, u = curves.g[:, None], curves.u[:, None]
    return g * r + u * s, (u - g) * curves.a[:, None] * s * r
