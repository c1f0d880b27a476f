"""The main job from a clone, offline: SCAN's length split with and without a curriculum, from grammar to report.

Run it with `make demo`. It needs nothing else running, and ignores a Prefect server that you may be logged in to.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from gradatim.flows.runtime import quiet_prefect
from gradatim.schemas.errors import GradatimError

RECIPE = Path(__file__).parent / "scan_length" / "recipe.yaml"


def main() -> int:
    """Run the recipe and say what came of it; returns the exit code."""
    start = time.perf_counter()
    quiet_prefect(Path("runs") / ".prefect", ignore_server=True)
    from gradatim.flows.local import run_flow

    print("gradatim demo: SCAN, 20,910 commands; train on short ones, test on long ones\n", flush=True)
    try:
        found = run_flow("pipeline", str(RECIPE), quiet=False, verbose=False)
    except GradatimError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(f"\n{time.perf_counter() - start:.0f} s in all. Open {found['report']}")
    print("then try  .venv/bin/gradatim log,  .venv/bin/gradatim show splits,  .venv/bin/gradatim audit curriculum-0")
    return 0


if __name__ == "__main__":
    sys.exit(main())
