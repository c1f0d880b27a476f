"""A worker ends with its parent, also when a process that the parent forked outlives it and holds the pipe open."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from training_helpers import until

from gradatim.tasks.training import attempts
from gradatim.tasks.training.attempts import ORPHANED

WORKER = """
import time
from gradatim.tasks.training import lifeline
lifeline.watch()
print("up", flush=True)
time.sleep(99)
"""
PARENT = f"""
import os, subprocess, sys, time
read, write = os.pipe()
worker = subprocess.Popen(
    [sys.executable, "-c", {WORKER!r}], pass_fds=[read], stdout=subprocess.PIPE,
    env={{**os.environ, "GRADATIM_LIFELINE": str(read)}},
)
worker.stdout.readline()
heir = os.fork() if sys.argv[1] == "fork" else 0
if sys.argv[1] == "fork" and not heir:
    time.sleep(99)
print(worker.pid, heir, flush=True)
if sys.argv[1] == "let go":
    os.close(write)
    print(worker.wait(), flush=True)
time.sleep(99)
"""


@pytest.mark.parametrize("how", ["plain", "fork"])
def test_a_worker_ends_within_seconds_of_its_parent(how: str) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, how], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    worker, heir = map(int, parent.stdout.readline().split())
    assert attempts.started(worker)
    parent.kill()
    parent.wait()
    try:
        until(lambda: not attempts.started(worker), seconds=5)
    finally:
        if heir:
            os.kill(heir, signal.SIGKILL)


def test_a_worker_whose_parent_lets_go_says_so_in_its_exit_code() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, "let go"], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    parent.stdout.readline()
    assert int(parent.stdout.readline()) == ORPHANED
    parent.kill()
    parent.wait()
