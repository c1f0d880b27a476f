"""Runs a flow from the command line: in this process, with each step's result printed as it comes."""

from __future__ import annotations

import importlib
import shutil
import sys
from dataclasses import replace
from typing import Any

from gradatim.flows.runtime import quiet_prefect
from gradatim.schemas.summary import Summary
from gradatim.tasks.reporting.terminal import render_terminal

WARNINGS = 3
"""Most warnings of a step that are printed while a flow runs."""


def run_flow(flow: str, recipe: str, *, quiet: bool, verbose: bool, **parameters: Any) -> dict[str, Any]:
    """Run a flow on a recipe.

    Parameters
    ----------
    flow : str
        curate, train, evaluate or pipeline.
    recipe : str
        Path of the recipe.
    quiet : bool
        Print nothing: the caller prints what is returned.
    verbose : bool
        Let Prefect log.
    parameters
        The flow's other parameters.
    """
    from gradatim.flows.job import Job

    Job.load(recipe, parameters.get("store"), parameters.get("data"))  # a wrong recipe is told before Prefect starts
    quiet_prefect(verbose=verbose)
    from gradatim.flows.shown import LISTENER

    function = getattr(importlib.import_module(f"gradatim.flows.{flow}"), flow)
    token = LISTENER.set(None if quiet else _print)
    try:
        result: dict[str, Any] = function(recipe, **parameters)
    finally:
        LISTENER.reset(token)
    if not quiet:
        print(render_terminal([Summary("report", result["report"])], width=_width()).rstrip())
    return result


def brief(summary: Summary) -> Summary:
    """Shorten a summary to what a step came to, what a split proves, and what to read with care."""
    facts = summary.facts if summary.step.startswith("split ") else ()
    left = len(summary.warnings) - WARNINGS
    more = (f"{left} more in the report",) if left > 0 else ()
    return replace(summary, facts=facts, warnings=(*summary.warnings[:WARNINGS], *more))


def _print(summary: Summary) -> None:
    print(render_terminal([brief(summary)], width=_width(), color=sys.stdout.isatty()).rstrip(), flush=True)


def _width() -> int:
    return min(shutil.get_terminal_size((100, 24)).columns, 140)
