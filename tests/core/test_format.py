"""Numbers as people read them."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradatim.tasks.core import format as fmt


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (fmt.count(38812110), "38,812,110"),
        (fmt.count(2**70), f"{2**70:,}"),
        (fmt.count(None), "–"),
        (fmt.signed(369204), "+369,204"),
        (fmt.signed(-12), "-12"),
        (fmt.signed(0), "0"),
        (fmt.signed(0.04), "+.04"),
        (fmt.number(0.62), ".62"),
        (fmt.number(-0.18), "-.18"),
        (fmt.number(-0.0), "0"),
        (fmt.number(1.0), "1"),
        (fmt.number(100.0), "100"),
        (fmt.number(999.9), "1,000"),
        (fmt.number(12.3456), "12.3"),
        (fmt.number(0.99996), "1"),
        (fmt.number(1234.56), "1,235"),
        (fmt.number(1e-5), "1e-5"),
        (fmt.number(-1.234e-7), "-1.23e-7"),
        (fmt.number(2.9999, 5), "2.9999"),
        (fmt.number(math.nan), "–"),
        (fmt.number(math.inf), "∞"),
        (fmt.number(-math.inf), "-∞"),
        (fmt.share(0.124), "12.4 %"),
        (fmt.share(0.001), "0.1 %"),
        (fmt.share(0.01), "1 %"),
        (fmt.share(0), "0 %"),
        (fmt.share(1), "100 %"),
        (fmt.share(0.99999), ">99.9 %"),
        (fmt.share(1e-9), "<0.001 %"),
        (fmt.share(None), "–"),
        (fmt.interval(0.12, 0.1849), ".120 to .185"),
        (fmt.interval(0.9, None), ".9 to –"),
        (fmt.interval(0.12, 0.184, percent=True), "12 % to 18.4 %"),
        (fmt.estimate(-0.18, -0.2, -0.15), "-.18 (-.20 to -.15)"),
        (fmt.estimate(0.992, 0.99, 0.994, percent=True), "99.2 % (99 % to 99.4 %)"),
        (fmt.duration(521), "8 min 41 s"),
        (fmt.duration(0.42), "420 ms"),
        (fmt.duration(0.0002), "<1 ms"),
        (fmt.duration(12.34), "12.3 s"),
        (fmt.duration(59.96), "1 min"),
        (fmt.duration(3599.6), "1 h"),
        (fmt.duration(7500), "2 h 5 min"),
        (fmt.duration(86399), "1 d"),
        (fmt.duration(360000), "4 d 4 h"),
        (fmt.duration(0), "0 s"),
        (fmt.duration(None), "–"),
        (fmt.size(0), "0 B"),
        (fmt.size(999), "999 B"),
        (fmt.size(580e6), "580 MB"),
        (fmt.size(1.354e9), "1.35 GB"),
        (fmt.size(999_999), "1 MB"),
        (fmt.cell(True), "yes"),
        (fmt.cell(2026, "seed"), "2026"),
        (fmt.cell(2026, "rows"), "2,026"),
        (fmt.cell("text"), "text"),
        (fmt.quantity(0.62, "share"), "62 %"),
        (fmt.quantity(3, "bins"), "3 bins"),
        (fmt.quantity(521.0, "s"), "8 min 41 s"),
        (fmt.quantity(None, "bins"), "–"),
        (fmt.quantity("none", "share"), "none"),
    ],
)
def test_each_number_reads_as_it_is_written_in_reports(shown: str, expected: str) -> None:
    assert shown == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.94, 0.5, 0.0], [".94", ".50", ".00"]),
        ([-1.204, 0.003, 1.19, -1.198], ["-1.204", ".003", "1.190", "-1.198"]),
        ([6.0, 0.0592, 290.0], ["6", ".0592", "290"]),
        ([0.944, 1.0], [".944", "1.000"]),
        ([0.94, 0.00003], [".94", "3e-5"]),
        ([1.0, 2.0], ["1", "2"]),
        ([None, math.nan, math.inf], ["–", "–", "∞"]),
        ([], []),
    ],
)
def test_numbers_of_one_column_share_their_places(values: list[float | None], expected: list[str]) -> None:
    assert fmt.column(values) == expected


@given(st.floats(-1e300, 1e300))
def test_a_number_is_read_back_within_its_three_digits(value: float) -> None:
    text = fmt.number(value)
    assert float(text.replace(",", "")) == pytest.approx(value, rel=0.006)
    assert not text.startswith(("0.", "-0"))


@given(st.lists(st.floats(1e-4, 1e6), min_size=1, max_size=6))
def test_no_value_of_a_column_reads_zero_or_loses_its_size(values: list[float]) -> None:
    for text, value in zip(fmt.column(values), values, strict=True):
        assert float(text.replace(",", "")) == pytest.approx(value, rel=0.06)


@given(st.floats(0, 1, exclude_max=True))
def test_a_share_below_one_never_reads_100_percent(value: float) -> None:
    assert not fmt.share(value).startswith("100")


@given(st.floats(0, 1e9))
def test_a_duration_never_shows_sixty_of_a_unit(seconds: float) -> None:
    words = fmt.duration(seconds).split()
    assert "60" not in words[2:]
    assert words[:2] not in (["60", "s"], ["60", "min"], ["1000", "ms"], ["24", "h"])


@given(st.text(st.characters(codec=None), max_size=60))
def test_safe_text_can_be_stored_and_printed(text: str) -> None:
    shown = fmt.safe(text)
    assert shown.encode("utf-8").decode("utf-8") == shown
    assert not any((ord(c) < 32 and c not in "\n\t") or 0x7F <= ord(c) < 0xA0 for c in shown)


def test_a_line_keeps_wide_blanks_and_loses_line_ends() -> None:
    assert fmt.line(" train 4,480  test 560\r\n\tmore \x1b[31m\udc80") == "train 4,480  test 560 more \ufffd[31m\ufffd"
    assert fmt.line("abcdef", 4) == "abc…"
    assert fmt.line("a\u00a0b\u2028c") == "a\u00a0b c"


def test_a_million_blanks_cost_no_more_than_a_million_letters() -> None:
    start = time.process_time()
    assert fmt.line(" " * 1_000_000 + "a" + " " * 1_000_000) == "a"
    assert time.process_time() - start < 1
