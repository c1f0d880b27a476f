"""The README's output of `gradatim init` and `gradatim run` is what they print today."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from gradatim.flows.first_steps import write_recipe
from gradatim.schemas.summary import Summary

ROOT = Path(__file__).parents[2]


@pytest.mark.usefixtures("prefect")
def test_the_readme_shows_what_a_users_own_file_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gradatim.flows.curate import curate
    from gradatim.flows.local import brief
    from gradatim.flows.shown import LISTENER
    from gradatim.tasks.reporting.terminal import render_terminal

    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(ROOT / "examples" / "arithmetic" / "make_data.py"), run_name="__main__")
    told: list[Summary] = [write_recipe("items.jsonl", "lm_eval_results/", Path("recipe.yaml"), force=False)]
    token = LISTENER.set(lambda summary: told.append(brief(summary)))
    try:
        curate("recipe.yaml")
    finally:
        LISTENER.reset(token)
    printed = "\n".join(render_terminal([summary], width=100) for summary in told)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.search(r"nine simulated models\):\n\n```\n(.*?)```", readme, re.DOTALL)
    assert shown is not None
    lines = [line for line in shown[1].splitlines() if line.strip() and "report " not in line]
    assert len(lines) > 8
    missing = [line for line in lines if line.strip() not in printed]
    assert missing == [], printed
