"""Errors: what they print, their exit codes, and that they cross a process boundary whole."""

from __future__ import annotations

import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from gradatim.schemas.errors import DataRefused, GradatimError, TryAgain, UsageError, missing_extra, nearest
from gradatim.schemas.tables import spec

KINDS = {GradatimError: 1, UsageError: 2, DataRefused: 3, TryAgain: 4}


def test_an_error_prints_where_what_expected_and_what_to_do() -> None:
    error = DataRefused(
        "output empty in 12.4 %", where="a.csv: output", expected="at most 0.1 %", remedy="mend the file"
    )
    assert str(error) == ("a.csv: output: output empty in 12.4 %\n  expected  at most 0.1 %\n  do        mend the file")
    assert str(UsageError("no")) == "no"


@pytest.mark.parametrize(("kind", "code"), KINDS.items())
def test_the_class_says_the_exit_code(kind: type[GradatimError], code: int) -> None:
    assert kind("x").exit_code == code


@pytest.mark.parametrize("kind", KINDS)
def test_pickling_keeps_the_class_and_every_field(kind: type[GradatimError]) -> None:
    again = pickle.loads(pickle.dumps(kind("what", where="where", expected="expected", remedy="remedy")))
    assert type(again) is kind
    assert (again.what, again.where, again.expected, again.remedy) == ("what", "where", "expected", "remedy")


def test_an_error_of_a_worker_process_arrives_whole() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool, pytest.raises(UsageError) as caught:
        pool.submit(spec, "slpits").result()
    assert "(did you mean 'splits'?)" in caught.value.what
    assert "curriculum" in caught.value.expected


def test_the_nearest_spelling_is_offered_only_if_it_is_near() -> None:
    assert nearest("lenght", ["length", "group"]) == " (did you mean 'length'?)"
    assert nearest("zebra", ["length", "group"]) == ""
    assert nearest("x", []) == ""


def test_a_missing_extra_is_named_with_the_command_that_installs_it() -> None:
    error = missing_extra("torch", "train")
    assert isinstance(error, UsageError)
    assert "'torch'" in error.what
    assert error.remedy == 'pip install "gradatim[train]"'
