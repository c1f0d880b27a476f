"""Weak priors of item curves: they keep estimates finite and weigh about as much as one respondent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradatim.tasks.difficulty.item_response.marginal import B_SD, LOG_A_SD

LOGIT_SD = 1.0
"""logit g ~ N(logit(1 / K), LOGIT_SD^2) with K choices, and logit(1 - u) likewise."""


@dataclass(frozen=True)
class WeakPriors:
    """Which priors count, for tables (p, J) of a, d and, where estimated, logit g and logit u.

    Attributes
    ----------
    curve : bool
        Whether b ~ N(0, 2^2) counts and, with `slope`, log a ~ N(0, 0.5^2).
    slope : bool
        Whether each item has a slope of its own.
    centres : tuple of (J,) arrays
        Where the priors of the rows of asymptotes are centred; none where these have no priors.
    """

    curve: bool
    slope: bool
    centres: tuple[np.ndarray, ...]

    def log_density(self, table: np.ndarray) -> np.ndarray:
        """Log density of each item up to a constant, (J,); minus infinity where a slope with a prior is not above 0."""
        total = np.zeros(table.shape[1])
        if self.curve:
            a, d = table[:2]
            with np.errstate(divide="ignore", invalid="ignore"):
                if self.slope:
                    total -= 0.5 * (np.log(a) / LOG_A_SD) ** 2
                total -= 0.5 * (d / a / B_SD) ** 2
            total = np.where(a > 0, total, -np.inf)
        for row, centre in zip(table[2:], self.centres, strict=False):
            total = total - 0.5 * ((row - centre) / LOGIT_SD) ** 2
        return total

    def derivatives(self, table: np.ndarray, *, newton: bool) -> tuple[np.ndarray, np.ndarray]:
        """First derivatives (p, J), and minus the second (J, p, p), exact or by Gauss and Newton."""
        parts, items = table.shape
        first, second = np.zeros_like(table), np.zeros((items, parts, parts))
        if self.curve:
            a, d = table[:2]
            if self.slope:
                log_a = np.log(a)
                first[0] -= log_a / (LOG_A_SD**2 * a)
                second[:, 0, 0] += (1 - log_a if newton else 1.0) / (LOG_A_SD**2 * a**2)
            first[0] += d**2 / (B_SD**2 * a**3)
            first[1] -= d / (B_SD**2 * a**2)
            second[:, 0, 0] += (3 if newton else 1) * d**2 / (B_SD**2 * a**4)
            second[:, 0, 1] -= (2 if newton else 1) * d / (B_SD**2 * a**3)
            second[:, 1, 0] = second[:, 0, 1]
            second[:, 1, 1] += 1 / (B_SD**2 * a**2)
        for k, centre in enumerate(self.centres, start=2):
            first[k] -= (table[k] - centre) / LOGIT_SD**2
            second[:, k, k] += 1 / LOGIT_SD**2
        return first, second
