"""Summaries on a terminal."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.summary import Fact, Summary, SummaryTable
from gradatim.tasks.reporting.terminal import render_terminal

GOLDEN = """\
  difficulty   irt 1pl, 9 respondents, reliability .62: supports 3 bins
  split length train 4,480  test 560  test_ood 812    near-duplicates across: 0  (reused)
               shift AUC .94 (random control .50)   zero-shot gap -.18 (difficulty-matched -.03)
               held out 13.9 %
               ! The longest bin has 12 rows.
"""
DETAILS = """\
  difficulty   irt 1pl, 9 respondents, reliability .62: supports 3 bins
  split length train 4,480  test 560  test_ood 812    near-duplicates across: 0  (reused)
               shift AUC .94 (random control .50)   zero-shot gap -.18 (difficulty-matched -.03)
               held out 13.9 %
               ! The longest bin has 12 rows.
               next gradatim why q17
               next Add longer items.
               source Some Author (2020). A title.

               Certificate
               check     value  holds
               disjoint      0  yes
               All hold.

"""


def test_steps_stand_in_one_column_and_results_in_the_next(summaries: tuple[Summary, ...]) -> None:
    assert render_terminal(summaries) == GOLDEN


def test_details_add_tables_next_steps_and_sources_but_no_private_table(summaries: tuple[Summary, ...]) -> None:
    assert render_terminal(summaries, details=True) == DETAILS


def test_colour_changes_no_word(summaries: tuple[Summary, ...]) -> None:
    from rich.text import Text

    colored = render_terminal(summaries, color=True)
    assert "\x1b[1m" in colored
    assert [line.rstrip() for line in Text.from_ansi(colored).plain.splitlines()] == GOLDEN.splitlines()


def test_nothing_gives_nothing() -> None:
    assert render_terminal([]) == ""


def test_a_long_table_is_cut_at_twenty_rows_and_says_so() -> None:
    table = SummaryTable("Ids", ("id",), tuple((f"id{i}x",) for i in range(1000)))
    shown = render_terminal([Summary("s", "h", tables=(table,))], details=True)
    assert "id19x" in shown
    assert "id20x" not in shown
    assert "first 20 of 1,000 rows" in " ".join(shown.split())


@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(codec=None), max_size=300), st.integers(1, 160))
def test_no_text_breaks_the_width_or_reaches_the_terminal_as_a_command(text: str, width: int) -> None:
    from rich.cells import cell_len

    summary = Summary(text, text, facts=(Fact(text, text, text, text),), warnings=(text,), next=(text,))
    shown = render_terminal([summary], width=width, details=True)
    shown.encode("utf-8")
    assert not any((ord(c) < 32 and c != "\n") or 0x7F <= ord(c) < 0xA0 for c in shown)
    assert all(cell_len(line) <= max(40, width) for line in shown.split("\n"))


def test_a_table_of_some_dozen_rows_is_printed_whole() -> None:
    table = SummaryTable("Methods", ("name",), tuple((f"id{i}x",) for i in range(37)))
    shown = render_terminal([Summary("s", "h", tables=(table,))], details=True)
    assert "id36x" in shown
    assert "first" not in shown
