"""How many respondents a model needs: 1PL to 4PL fitted to simulated answers, compared with the truth behind them.

100 items; theta and b ~ N(0, 1), log a ~ N(0, .5^2) (1PL: a = 1), logit g ~ N(logit .2, .5^2) (3PL, 4PL), logit(1 - u)
~ N(logit .1, .5^2) (4PL). Models are fitted with their defaults, so with weak priors where these are on. Numbers are
means over repetitions.
"""

from __future__ import annotations

import sys
from typing import Any, Literal

import numpy as np

ITEMS = 100
RESPONDENTS = (10, 20, 50, 100, 200, 500, 1000)
REPEATS = {10: 40, 20: 40, 50: 24, 100: 24, 200: 16, 500: 12, 1000: 12}
Model = Literal["1pl", "2pl", "3pl", "4pl"]
MODELS: tuple[Model, ...] = ("1pl", "2pl", "3pl", "4pl")
FEWEST: dict[Model, int] = {"2pl": 50, "3pl": 200}
"""Respondents below which `irt` warns (a 4PL as a 3PL, though it needs more)."""
LEAST = 0.7
"""Rank correlation of discriminations with the true ones that these numbers stand for."""


def draw(model: Model, n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Draw answers (n, 100) of a model, and the a, b and g behind them."""
    random = np.random.default_rng([seed, MODELS.index(model)])  # the same items whatever n
    b = random.normal(size=ITEMS)
    a = np.ones(ITEMS) if model == "1pl" else np.exp(0.5 * random.normal(size=ITEMS))
    g, slip = np.zeros(ITEMS), np.zeros(ITEMS)
    if model in ("3pl", "4pl"):
        g = 1 / (1 + np.exp(-(np.log(0.2 / 0.8) + 0.5 * random.normal(size=ITEMS))))
    if model == "4pl":
        slip = 1 / (1 + np.exp(-(np.log(0.1 / 0.9) + 0.5 * random.normal(size=ITEMS))))
    random = np.random.default_rng([seed, n, MODELS.index(model)])
    theta = random.normal(size=n)
    p = g + (1 - slip - g) / (1 + np.exp(-a * (theta[:, None] - b)))
    return (random.random(p.shape) < p).astype(np.float64), a, b, g


def once(model: Model, n: int, seed: int) -> dict[str, float]:
    """Fit one simulated set; numbers over the items that some got right and some wrong."""
    from gradatim.tasks.difficulty.item_response.fit import fit_irt

    answers, a, b, g = draw(model, n, seed)
    fit = fit_irt(answers, model, errors=False)
    plain = fit_irt(answers, "1pl", errors=False)
    use = fit.extreme == 0
    others = {"1pl": plain}
    if model in ("3pl", "4pl"):
        others["given g"] = fit_irt(answers, "2pl", guessing=0.2, errors=False)
    found = {
        "rank of b": _spearman(fit.b[use], b[use]),
        **{f"rank of b, {name}": _spearman(other.b[use], b[use]) for name, other in others.items()},
        "error of b": float(np.sqrt(np.mean((fit.b[use] - b[use]) ** 2))),
    }
    if model != "1pl":
        found["rank of a"] = _spearman(fit.a[use], a[use])
    if model in ("3pl", "4pl"):
        found["rank of g"] = _spearman(fit.g[use], g[use])
    return found


def _spearman(x: np.ndarray, y: np.ndarray) -> float:
    rank = [np.argsort(np.argsort(v, kind="stable"), kind="stable") for v in (x, y)]
    return float(np.corrcoef(rank[0], rank[1])[0, 1])


def run() -> dict[str, Any]:
    """Simulate, print a table, and return the numbers at the bounds of the warnings and whether these hold."""
    columns = ("rank of a", "rank of b", "rank of b, 1pl", "rank of b, given g", "error of b", "rank of g")
    print(f"{'model':6}{'respondents':>12}" + "".join(f"{name:>20}" for name in columns))
    at: dict[tuple[Model, int], dict[str, float]] = {}
    for model in MODELS:
        for n in RESPONDENTS:
            runs = [once(model, n, seed) for seed in range(REPEATS[n])]
            mean = {name: float(np.mean([r[name] for r in runs])) for name in runs[0]}
            at[model, n] = mean
            print(f"{model:6}{n:12,}" + "".join(f"{mean[c]:20.3f}" if c in mean else f"{'':20}" for c in columns))
    result: dict[str, Any] = {"benchmark": "respondents"}
    for model in MODELS[1:]:
        enough = [n for n in RESPONDENTS if at[model, n]["rank of a"] >= LEAST]
        result[f"{model}: respondents for a rank correlation of {LEAST:g}"] = min(enough, default=0)
    for model, n in FEWEST.items():
        result[f"{model} {n}"] = at[model, n]
        fewer = max(m for m in RESPONDENTS if m < n)
        result[f"{model}: from {n} respondents on, not from {fewer}"] = (
            at[model, n]["rank of a"] >= LEAST > at[model, fewer]["rank of a"]
        )
    return result


if __name__ == "__main__":
    sys.exit(0 if all(v for v in run().values() if isinstance(v, bool)) else 1)
