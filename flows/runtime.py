"""Where Prefect runs: its environment is settled here, before anything imports it.

A run uses the server that the user has configured. Without one, Prefect's ephemeral server runs inside the command, so
that nothing else need run. The demo and `gradatim serve` keep a folder of their own and touch nobody's server.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path


def quiet_prefect(home: Path | None = None, *, ignore_server: bool = False, verbose: bool = False) -> None:
    """Set Prefect's environment; call it before the first import of prefect.

    Parameters
    ----------
    home : Path, optional
        Folder of the ephemeral server's database.
    ignore_server : bool
        Drop an inherited `PREFECT_API_URL`, as the demo does, so that it never runs in somebody's Cloud.
    verbose : bool
        Let Prefect log what it does.
    """
    os.environ["DO_NOT_TRACK"] = "1"
    os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"
    os.environ["GX_ANALYTICS_ENABLED"] = "False"
    if ignore_server:
        os.environ.pop("PREFECT_API_URL", None)
        os.environ.pop("PREFECT_API_KEY", None)
    if home is not None and "PREFECT_API_URL" not in os.environ:
        home.mkdir(parents=True, exist_ok=True)
        os.environ["PREFECT_HOME"] = str(home.resolve())
    os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "120")
    if not verbose:
        os.environ.setdefault("PREFECT_LOGGING_LEVEL", "CRITICAL")
        os.environ.setdefault("PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW", "ignore")
        logging.getLogger("great_expectations").setLevel(logging.ERROR)
