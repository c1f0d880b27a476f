"""Syllables of words: by hyphenation patterns, or by a pronouncing dictionary that the user brings."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from gradatim.schemas.errors import UsageError, missing_extra, nearest


def count_syllables(words: Iterable[str], language: str, pronunciations: str | None) -> np.ndarray:
    """Count the syllables of lower-case words: int64.

    Parameters
    ----------
    words : iterable of str
    language : str
        Of the hyphenation patterns, e.g. ``en_US``; a word has one syllable more than places to break it.
    pronunciations : str, optional
        File of a CMU pronouncing dictionary, asked first: a word has as many syllables as its first pronunciation has
        vowels, which carry a stress digit.

    Raises
    ------
    UsageError
        For a language without patterns, a file that is no such dictionary, or a missing package.
    """
    try:
        from pyphen import LANGUAGES, Pyphen
    except ImportError:
        raise missing_extra("pyphen", "text") from None
    if language not in LANGUAGES:
        raise UsageError(
            f"there are no hyphenation patterns for {language!r}{nearest(language, LANGUAGES)}",
            where="difficulty readability: language",
            expected="one of " + ", ".join(sorted(LANGUAGES)),
        )
    patterns = Pyphen(lang=language)
    known = read_pronunciations(pronunciations) if pronunciations is not None else {}
    found = [known[word] if word in known else len(patterns.positions(word)) + 1 for word in words]
    return np.array(found, dtype=np.int64)


def read_pronunciations(path: str) -> dict[str, int]:
    """Read vowels of the first pronunciation of each word from a CMU pronouncing dictionary.

    The three forms in which it is spread are read: ``WORD  W ER1 D`` with ``WORD(2)`` for others and ``;;;`` comments,
    the same in lower case with ``#`` comments, and NLTK's ``WORD 1 W ER1 D``.

    Raises
    ------
    UsageError
        If the file is not there, or has no line with a stressed vowel.
    """
    where = f"difficulty readability: pronunciations: {path}"
    if not Path(path).is_file():
        raise UsageError(
            "there is no such file", where=where, expected="a CMU pronouncing dictionary, e.g. cmudict.dict"
        )
    found: dict[str, int] = {}
    for line in Path(path).read_text(encoding="utf-8", errors="replace").splitlines():
        fields = line.split(" #")[0].split()
        if len(fields) < 2 or line.startswith(";;;"):
            continue
        phones = fields[2:] if fields[1].isdigit() else fields[1:]
        word = fields[0].lower()
        if word.endswith(")") and "(" in word[1:]:
            word = word[: word.rindex("(")]
        found.setdefault(word, sum(phone[-1].isdigit() for phone in phones))
    if not any(found.values()):
        raise UsageError(
            "no line holds a word and its phones with a stress digit, such as  fire F AY1 ER0",
            where=where,
            expected="a CMU pronouncing dictionary, e.g. cmudict.dict",
        )
    return found
