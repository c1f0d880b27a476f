"""The demo as a user runs it: how long it takes, and how much of that is not its steps' own work."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

DEMO = Path(__file__).parents[1] / "examples" / "demo.py"


def run() -> dict[str, Any]:
    """Run the demo in an empty folder.

    Returns
    -------
    dict
        seconds (bound 360), seconds of the steps (Prefect's tasks), seconds of all else (bound 30).
    """
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        subprocess.run([sys.executable, str(DEMO)], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - start
        steps = _steps(Path(folder) / "runs" / ".prefect" / "prefect.db")
    return {
        "seconds": round(seconds, 1),
        "of them steps": round(steps, 1),
        "all else": round(seconds - steps, 1),
        "at most 6 minutes": seconds <= 360,
        "all else at most 30 s": seconds - steps <= 30,
    }


def _steps(database: Path) -> float:
    """Sum the seconds of the tasks; those that only wrap a flow (its name and a number) are left out."""
    with sqlite3.connect(database) as connection:
        flows = {name for (name,) in connection.execute("select name from flow")}
        rows = connection.execute("select name, start_time, end_time from task_run where end_time is not null")
        return sum(
            (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()
            for name, begin, end in rows
            if name.rsplit("-", 1)[0] not in flows
        )


if __name__ == "__main__":
    print(run())
