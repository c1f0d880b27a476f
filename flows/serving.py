"""`gradatim serve`: a Prefect server with its UI, and a deployment that runs a recipe on a schedule."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from types import FrameType

from gradatim.flows.job import Job
from gradatim.flows.runtime import quiet_prefect
from gradatim.schemas.errors import GradatimError, UsageError

_START = 120.0


def serve_recipe(recipe: str, *, cron: str, store: str | None, data: str | None, port: int, verbose: bool) -> None:
    """Start server and deployment and stay until interrupted (Ctrl-C or SIGTERM stops both).

    The server keeps its own database in the store's folder `.prefect` (for an object store: in the user's home), so
    that it neither finds nor changes another Prefect's. What a team schedules belongs on PostgreSQL: docs/deploy.md.

    Raises
    ------
    UsageError
        For a recipe that cannot work, a schedule that is none, or a port in use.
    """
    job = Job.load(recipe, store, data)
    _refuse_taken(port)
    local = "://" not in job.place.location
    home = (Path(job.place.location) if local else Path.home() / ".gradatim") / ".prefect"
    url = f"http://127.0.0.1:{port}"
    os.environ.pop("PREFECT_API_KEY", None)
    os.environ["PREFECT_API_URL"] = f"{url}/api"
    os.environ["PREFECT_UI_API_URL"] = f"{url}/api"
    home.mkdir(parents=True, exist_ok=True)
    os.environ["PREFECT_HOME"] = str(home.resolve())
    quiet_prefect(verbose=True)  # what a scheduled run logs belongs in the UI
    _refuse_wrong(cron)
    server = subprocess.Popen(
        [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)],
        stdout=None if verbose else subprocess.DEVNULL,
        stderr=None if verbose else subprocess.DEVNULL,
    )
    # Prefect's runner stops on KeyboardInterrupt: a service manager's SIGTERM should do the same
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        _wait(server, f"{url}/api/health")
        print(f"Prefect UI   {url}")
        print(f"serving      {job.recipe.dataset}: {recipe} at {cron!r}, store {job.place.location}")
        print("stop         Ctrl-C", flush=True)
        _serve(job, recipe, cron, data)
    except KeyboardInterrupt:
        print("stopped")
    finally:
        server.terminate()
        try:
            server.wait(timeout=15)
        except subprocess.TimeoutExpired:
            server.kill()


def _serve(job: Job, recipe: str, cron: str, data: str | None) -> None:
    from prefect import serve
    from prefect.deployments.runner import EntrypointType

    from gradatim.flows.pipeline import pipeline

    location = job.place.location if "://" in job.place.location else str(Path(job.place.location).resolve())
    parameters = {"recipe": str(Path(recipe).resolve()), "store": location, "release": True}
    if data is not None:
        parameters["data"] = str(Path(data).resolve())
    deployment = pipeline.to_deployment(
        name=job.recipe.dataset,
        cron=cron,
        parameters=parameters,
        tags=["gradatim", job.recipe.dataset],
        concurrency_limit=1,
        # a module path: a file path would load the module a second time under another name
        entrypoint_type=EntrypointType.MODULE_PATH,
    )
    serve(deployment, print_starting_message=False)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _refuse_wrong(cron: str) -> None:
    from prefect.client.schemas.schedules import CronSchedule

    try:
        CronSchedule(cron=cron)
    except ValueError:
        raise UsageError(
            f"{cron!r} is no schedule", where="--cron", expected='cron, e.g. "0 3 * * *" for every night at 3'
        ) from None


def _refuse_taken(port: int) -> None:
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", port)) == 0:
            raise UsageError(
                f"port {port} is in use", where="--port", remedy=f"--port {port + 1}, or stop what uses it"
            )


def _wait(server: subprocess.Popen[bytes], health: str) -> None:
    deadline = time.monotonic() + _START
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise GradatimError(f"the Prefect server ended with code {server.returncode}", remedy="look with --verbose")
        try:
            with urllib.request.urlopen(health, timeout=2):
                return
        except OSError:
            time.sleep(0.5)
    raise GradatimError(f"the Prefect server did not answer within {_START:.0f} s", remedy="look with --verbose")
