"""Competence-based pacing: the share of the easiest rows that is available grows with training."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from gradatim.tasks.core.registry import Config, Cost, register

SOURCE = "Platanios et al. (2019). Competence-based Curriculum Learning for Neural Machine Translation."


class CompetenceConfig(Config):
    """Settings of competence pacing."""

    kind: Literal["linear", "root"] = Field("root", description="how competence grows")
    initial: float = Field(0.01, gt=0, le=1, description="competence at the start: share of the easiest rows")
    power: float = Field(2.0, ge=1, description="p of the p-th root; 2 is the square root")
    until: float = Field(0.5, gt=0, le=1, description="share of the run after which every row is available")


def competence(time: np.ndarray, config: CompetenceConfig) -> np.ndarray:
    """Return competence at `time` = t / T (any shape, 0 and up): c0 at 0, 1 from 1 on.

    linear: min(1, t (1 - c0) / T + c0). root: min(1, (t (1 - c0^p) / T + c0^p)^(1/p)).
    """
    if config.kind == "linear":
        return np.minimum(1.0, time * (1 - config.initial) + config.initial)
    floor = config.initial**config.power
    grown: np.ndarray = np.minimum(1.0, (time * (1 - floor) + floor) ** (1 / config.power))
    return grown


@register(
    "pacing",
    "competence",
    config=CompetenceConfig,
    cost=lambda rows, width: Cost(1e-6 * rows, 60 * rows),
    source=SOURCE,
)
def run(progress: np.ndarray, config: CompetenceConfig) -> np.ndarray:
    """Make the easiest rows available first and the rest by a linear or root law, all of them from `until` on.

    `progress` is the share of the run's positions that is done, in [0, 1]; the result is a share in (0, 1].
    """
    return competence(np.asarray(progress, np.float64) / config.until, config)
