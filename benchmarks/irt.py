"""2PL by marginal maximum likelihood beside PyPI mirt, girth and py-irt, in one run; all scored on one 401-node grid.

A peer runs in an environment of its own, whose folder an environment variable or an argument names; one that is absent
is skipped with a message::

    python -m venv peers/mirt && peers/mirt/bin/pip install mirt==1.2.0 girth==0.8.0
    python3.11 -m venv peers/pyirt && peers/pyirt/bin/pip install py-irt==0.7.1
    python -m benchmarks.irt --mirt peers/mirt --girth peers/mirt --pyirt peers/pyirt
    GRADATIM_PEER_MIRT=peers/mirt python -m benchmarks irt
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

NODES, REPEATS, LARGEST_LOSS = 401, 3, 0.05

_MIRT = """
import mirt
def fit(answers):
    found = mirt.fit_mirt(answers.astype(int), "2PL").model.parameters
    return found["discrimination"], found["difficulty"]
"""
_MIRT_61 = """
import mirt
def fit(answers):
    found = mirt.fit_mirt(answers.astype(int), "2PL", n_quadpts=61, compute_standard_errors=False).model.parameters
    return found["discrimination"], found["difficulty"]
"""
_GIRTH = """
import girth
def fit(answers):
    found = girth.twopl_mml(answers.astype(int).T)
    return found["Discrimination"], found["Difficulty"]
"""
_PYIRT = """
import contextlib, io, sys
import pandas as pd
from py_irt.config import IrtConfig
from py_irt.dataset import Dataset
from py_irt.training import IrtModelTrainer
def fit(answers):
    n, items = answers.shape
    frame = pd.DataFrame(answers.astype(int), columns=[str(j) for j in range(items)])
    frame.insert(0, "who", [str(i) for i in range(n)])
    with contextlib.redirect_stdout(sys.stderr):
        dataset = Dataset.from_pandas(frame, subject_column="who", item_columns=[str(j) for j in range(items)])
        config = IrtConfig(model_type="2pl", priors="hierarchical", epochs=1000, seed=0)
        trainer = IrtModelTrainer(config=config, data_path=None, dataset=dataset, verbose=False)
        trainer.train(epochs=1000, device="cpu")
    found = trainer.irt_model.export()
    order = np.argsort([int(dataset.ix_to_item_id[k]) for k in range(items)])
    a, b = np.ravel(found["disc"])[order], np.ravel(found["diff"])[order]
    theta = np.ravel(found["ability"])  # on a free scale: put on that of N(0, 1)
    return a * theta.std(), (b - theta.mean()) / theta.std()
"""
_RUNNER = """
import json, sys, time
import numpy as np
{code}
answers = np.load(sys.argv[1])
if {warm}:
    fit(answers[:, :10])
seconds = []
for _ in range({repeats}):
    start = time.perf_counter()
    a, b = fit(answers)
    seconds.append(time.perf_counter() - start)
np.savez(sys.argv[2], a=np.asarray(a, dtype=float), b=np.asarray(b, dtype=float))
print(json.dumps(min(seconds)))
"""


@dataclass(frozen=True)
class Comparison:
    """One peer on one size: what it runs, where it lives, and the speed-up that is promised."""

    peer: str
    environment: str
    code: str
    respondents: int
    items: int
    errors: bool
    least: float
    repeats: int = 3
    note: str = ""


COMPARISONS = (
    Comparison("mirt 1.2.0", "mirt", _MIRT, 500, 1000, True, 10.0, note="with standard errors"),
    Comparison("mirt 1.2.0", "mirt", _MIRT_61, 500, 1000, False, 10.0, note="without, peer on 61 nodes"),
    Comparison("mirt 1.2.0", "mirt", _MIRT, 2000, 200, True, 10.0, note="with standard errors"),
    Comparison("girth 0.8.0", "girth", _GIRTH, 500, 50, True, 30.0, note="ours with standard errors"),
    Comparison("py-irt 0.7.1", "pyirt", _PYIRT, 500, 1000, True, 100.0, 1, note="1,000 epochs; ours with errors"),
)


def simulate(respondents: int, items: int, seed: int = 0) -> np.ndarray:
    """Draw a matrix of 0 and 1 from a 2PL with theta, b ~ N(0, 1), log a ~ N(0, .3^2)."""
    random = np.random.default_rng(seed)
    theta, b = random.normal(size=respondents), random.normal(size=items)
    a = np.exp(0.3 * random.normal(size=items))
    p = 1 / (1 + np.exp(-a * (theta[:, None] - b)))
    return (random.random((respondents, items)) < p).astype(np.float64)


def run(environments: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Fit ours and the peers', print a table, and return seconds, log-likelihoods, ratios and whether targets are met.

    Parameters
    ----------
    environments : mapping, optional
        Folders of Python environments by peer (mirt, girth, pyirt); by default from GRADATIM_PEER_MIRT, _GIRTH, _PYIRT.
    """
    from gradatim.tasks.difficulty.item_response.fit import fit_irt
    from gradatim.tasks.difficulty.item_response.marginal import Grid, expectation, group_patterns

    if environments is None:
        names = {c.environment for c in COMPARISONS}
        environments = {name: os.environ.get(f"GRADATIM_PEER_{name.upper()}", "") for name in names}
    result: dict[str, Any] = {}
    print(f"{'2PL':44} {'ours s':>8} {'theirs s':>9} {'ratio':>7} {'ours logL':>13} {'theirs logL':>13}")
    for c in COMPARISONS:
        name = f"{c.respondents:,} x {c.items:,} {c.peer}, {c.note}"
        python = Path(environments.get(c.environment, "")) / "bin" / "python"
        if not environments.get(c.environment) or not python.exists():
            print(f"{name:44} skipped: name an environment with it in GRADATIM_PEER_{c.environment.upper()}")
            result[name] = "skipped"
            continue
        answers = simulate(c.respondents, c.items)
        data, grid = group_patterns(answers), Grid.of(NODES)
        fit_irt(answers[:, :10], "2pl", priors="none")  # warm up
        seconds = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            fit = fit_irt(answers, "2pl", errors=c.errors)
            seconds.append(time.perf_counter() - start)
        theirs, a, b = _peer(python, c, answers)
        found = {
            "seconds": min(seconds),
            "peer seconds": theirs,
            "ratio": theirs / min(seconds),
            "log-likelihood": expectation(data, fit.a, fit.d, grid).loglik,
            "peer log-likelihood": expectation(data, a, -a * b, grid).loglik,
        }
        print(
            f"{name:44} {found['seconds']:8.3f} {theirs:9.2f} {found['ratio']:7.1f} "
            f"{found['log-likelihood']:13.3f} {found['peer log-likelihood']:13.3f}"
        )
        result[name] = {
            **found,
            f"{c.least:g} times as fast": found["ratio"] >= c.least,
            "as likely": found["log-likelihood"] >= found["peer log-likelihood"] - LARGEST_LOSS,
        }
    return result


def _peer(python: Path, c: Comparison, answers: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Fit in the peer's environment: its best time in seconds, and its a and b."""
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/answers.npy", answers)
        code = _RUNNER.format(code=c.code, repeats=c.repeats, warm=c.repeats > 1)
        said = subprocess.run(
            [python, "-W", "ignore", "-c", code, f"{folder}/answers.npy", f"{folder}/found.npz"],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        with np.load(f"{folder}/found.npz") as found:
            return float(json.loads(said.stdout.strip().splitlines()[-1])), found["a"], found["b"]


def main(arguments: list[str]) -> int:
    """Run with the environments that the command line names; 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("mirt", "girth", "pyirt"):
        parser.add_argument(
            f"--{name}", default=os.environ.get(f"GRADATIM_PEER_{name.upper()}", ""), help="folder of its environment"
        )
    result = run(vars(parser.parse_args(arguments)))
    return int(any(value is False for found in result.values() if isinstance(found, dict) for value in found.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
