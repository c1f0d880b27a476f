"""Workers end with their parent: each holds the read end of a pipe whose write end only the parent has."""

from __future__ import annotations

import os
import select
import threading

from gradatim.tasks.training.attempts import ORPHANED

VARIABLE = "GRADATIM_LIFELINE"


def watch() -> None:
    """Exit this process within milliseconds of its parent's death, whatever the other threads are doing.

    Reads the pipe's number from the environment; without it (a worker started by hand, or by another launcher) there
    is no parent to follow.
    """
    number = os.environ.pop(VARIABLE, "")
    if number:
        threading.Thread(target=_wait, args=(int(number), os.getppid()), name="lifeline", daemon=True).start()


def _wait(pipe: int, parent: int) -> None:
    # a process that the parent forked may hold the pipe open for longer than the parent lives: ask for both
    while not select.select([pipe], [], [], 1.0)[0] and os.getppid() == parent:
        pass
    # no clean-up: collectives and loaders would hang, and the fence makes half-written work harmless
    os._exit(ORPHANED)
