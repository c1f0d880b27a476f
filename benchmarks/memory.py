"""Peak memory of this process, and of a child that is watched, for benchmarks that run their work in a child.

Resident memory counts the pages of mapped files, which the system takes back when memory runs short; what a program
cannot give back is anonymous (`RssAnon`). The system keeps no peak of that, so it is looked at every 20 ms.
"""

from __future__ import annotations

import re
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path


def peak_memory() -> int:
    """Return the peak resident memory of this process in bytes.

    Linux counts it anew for each program (`VmHWM`); `ru_maxrss` would be the parent's peak where that was larger.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        found = re.search(r"^VmHWM:\s+(\d+) kB", status.read_text(encoding="ascii"), re.MULTILINE)
        if found is not None:
            return int(found[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def watched(command: Sequence[str], folder: Path) -> tuple[str, int]:
    """Run a command in a folder; return what it printed and the peak of its anonymous memory in bytes, 0 where untold.

    Raises `subprocess.CalledProcessError` if it fails. Peaks of less than 20 ms can be missed.
    """
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as process:
        peak, status = 0, Path(f"/proc/{process.pid}/status")
        while process.poll() is None:
            try:
                found = re.search(r"^RssAnon:\s+(\d+) kB", status.read_text(encoding="ascii"), re.MULTILINE)
            except OSError:  # no such file on other systems, or gone this moment
                found = None
            peak = max(peak, int(found[1]) * 1024 if found else 0)
            time.sleep(0.02)
        assert process.stdout is not None
        said = process.stdout.read()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, list(command))
    return said, peak
