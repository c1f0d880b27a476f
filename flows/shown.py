"""How steps show what they did: to the command line in this process, to Prefect's UI, and in the report."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from gradatim.flows.job import Job
from gradatim.schemas.errors import DataRefused, GradatimError
from gradatim.schemas.recipe import dump_recipe
from gradatim.schemas.summary import Summary, SummaryTable
from gradatim.storage.tables import Dataset

P = ParamSpec("P")
R = TypeVar("R")

LISTENER: ContextVar[Callable[[Summary], None] | None] = ContextVar("gradatim_listener", default=None)
"""Who is told of each summary while a flow runs in this process: the command line prints it."""


def show(summary: Summary, *, listen: bool = True) -> None:
    """Show a step's summary to the listener, and as a markdown artifact of the flow run."""
    listener = LISTENER.get()
    if listener is not None and listen:
        listener(summary)
    from prefect.artifacts import create_markdown_artifact
    from prefect.context import FlowRunContext
    from prefect.logging import get_run_logger

    from gradatim.tasks.reporting.markdown import render_markdown

    if FlowRunContext.get() is None:
        return
    get_run_logger().info("%s: %s", summary.step, summary.headline)
    key = re.sub(r"[^a-z0-9]+", "-", summary.step.lower()).strip("-") or "step"
    create_markdown_artifact(render_markdown(summary), key=key, description=summary.headline[:500])


def refusal_shown(flow: Callable[P, R]) -> Callable[P, R]:
    """Make a flow that refuses say so in Prefect's UI: what, where, and what to do."""

    @wraps(flow)
    def told(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return flow(*args, **kwargs)
        except GradatimError as error:
            kind = "REFUSED (data, not code)" if isinstance(error, DataRefused) else "FAILED"
            advice = tuple(filter(None, (error.remedy, f"expected {error.expected}" if error.expected else "")))
            headline = f"{kind}: {error.where}: {error.what}" if error.where else f"{kind}: {error.what}"
            show(Summary("refused", f"{headline}. What was released before stays current.", next=advice), listen=False)
            raise

    return told


def write_report(job: Job, summaries: Iterable[Summary], *, fresh: bool = False) -> str:
    """Write the dataset's HTML report and return its path or URL.

    The report tells of all that the recipe made: what this flow did comes in the place of what an earlier one said of
    the same step. With `fresh` only this flow's steps stand there.
    """
    dataset = job.place.open()
    key = dataset.store.key(dataset.name, "report.json")
    raw = None if fresh else dataset.store.get(key)
    told = {item["step"]: Summary.from_dict(item) for item in json.loads(raw)} if raw else {}
    told |= {summary.step: summary for summary in summaries}
    dataset.store.put(
        key, json.dumps([s.to_dict() for s in told.values()], ensure_ascii=False).encode("utf-8", "replace")
    )
    page = dataset.store.key(dataset.name, "report.html")
    dataset.store.put(page, _render(job, dataset, told).encode("utf-8", "replace"))
    return dataset.store.uri(page)


def _render(job: Job, dataset: Dataset, told: Mapping[str, Summary]) -> str:
    from gradatim.tasks.reporting.report import Report, package_versions, render_html

    claims = told.get("claims")
    summaries = [summary for step, summary in told.items() if step != "claims"] + ([claims] if claims else [])
    newest = {name: dataset.version(name) for name in dataset.tables()}
    release = dataset.latest_release()
    rows: list[tuple[Any, ...]] = [(v.reference, v.rows, v.content_hash, len(v.parts)) for v in newest.values()]
    headline = claims.extra.get("sentences", [claims.headline]) if claims else ()
    report = Report(
        title=job.recipe.dataset,
        dataset=job.recipe.dataset,
        created=datetime.now(UTC),
        headline=tuple(headline),
        summaries=tuple(summaries),
        recipe_yaml=dump_recipe(job.recipe),
        provenance=(
            ("store", dataset.store.location),
            ("release", release.number if release else "none yet"),
            ("recipe", job.place.recipe_hash),
            ("seed", job.place.seed),
        ),
        versions=SummaryTable("Tables", ("version", "rows", "content hash", "parts"), tuple(rows)),
        packages=package_versions(),
        commands=(f"gradatim run {job.file}", f"gradatim log --store {job.place.location}"),
        local=dataset.store.root is not None,
    )
    return render_html(report)
