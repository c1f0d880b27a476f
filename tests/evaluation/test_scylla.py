"""Generalisation score and critical complexity against the published table."""

from __future__ import annotations

import numpy as np
import pytest

from gradatim.schemas.errors import UsageError
from gradatim.tasks.evaluation.scylla import complexity

LEVELS = ("N", "N-N2", "N2-N3", "N3-N4", "2N")
# Figure 5 (two digits, averaged over tasks) and Table 2 of Qi et al. (2024): model: (ID, OOD, S, critical level)
PUBLISHED = {
    "1.8B": ((0.78, 0.45, 0.05, 0.03, 0.05), (0.66, 0.34, 0.05, 0.01, 0.03), (0.547, 0.226, 0.042, -0.009, 0.018), "N"),
    "4B": ((0.80, 0.32, 0.11, 0.06, 0.05), (0.72, 0.26, 0.12, 0.07, 0.03), (0.631, 0.173, 0.094, 0.061, 0.007), "N"),
    "7B": ((0.91, 0.53, 0.13, 0.10, 0.09), (0.91, 0.41, 0.16, 0.09, 0.07), (0.887, 0.268, 0.152, 0.063, 0.056), "N-N2"),
    "14B": (
        (0.95, 0.75, 0.19, 0.06, 0.05),
        (0.90, 0.67, 0.13, 0.04, 0.05),
        (0.849, 0.568, 0.075, 0.025, 0.037),
        "N-N2",
    ),
    "32B": (
        (0.99, 0.83, 0.30, 0.21, 0.07),
        (0.98, 0.67, 0.22, 0.16, 0.06),
        (0.969, 0.521, 0.137, 0.102, 0.045),
        "N-N2",
    ),
    "72B": (
        (0.95, 0.95, 0.26, 0.22, 0.06),
        (0.93, 0.89, 0.19, 0.09, 0.03),
        (0.911, 0.825, 0.115, -0.027, 0.010),
        "N3-N4",
    ),
    "110B": (
        (0.99, 0.96, 0.36, 0.36, 0.18),
        (0.98, 0.96, 0.25, 0.21, 0.10),
        (0.965, 0.950, 0.129, 0.044, 0.010),
        "N3-N4",
    ),
}


@pytest.mark.parametrize("model", PUBLISHED)
def test_the_published_scores_and_critical_complexities_come_out(model: str) -> None:
    inside, outside, score, critical = PUBLISHED[model]
    found = complexity(LEVELS, inside, outside)
    assert found.score == pytest.approx(score, abs=0.05)
    assert found.critical == critical


def test_gaps_are_taken_for_each_task_before_they_are_averaged() -> None:
    found = complexity(["a", "a", "b"], [0.9, 0.1, 0.5], [0.5, 0.5, 0.5])
    assert found.gap == pytest.approx([0.2, 0.0])
    assert found.score == pytest.approx([0.3, 0.5])
    assert found.critical == "a"


def test_no_gap_has_no_critical_level_and_bad_input_is_refused() -> None:
    assert complexity(["a", "b"], [0.5, 0.5], [0.6, 0.5]).critical is None
    with pytest.raises(UsageError, match="not in"):
        complexity(["a"], [1.2], [0.1])
    with pytest.raises(UsageError, match="not in"):
        complexity(["a"], [np.nan], [0.1])
    with pytest.raises(UsageError, match="1 levels"):
        complexity(["a"], [0.1, 0.2], [0.1])
