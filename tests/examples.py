"""Decides how many random examples each test tries."""

from __future__ import annotations

import itertools
import logging
import math
import os
import random
from collections.abc import Callable, Iterator

import structlog

EXAMPLES = int(os.environ.get("PIDTS_EXAMPLES", "0"))
"""The number of examples for each test with random examples; 0: the test's own number."""
IS_QUICK = os.environ.get("PIDTS_TIER") == "quick"
_SHARE = 20 if IS_QUICK else 8
"""A run without PIDTS_EXAMPLES divides the usual number of examples by this."""
_SHARE_OF_HISTORIES = 60 if IS_QUICK else 12
"""The same for `run_histories`."""


def examples(usual: int) -> int:
    """`usual` is the number of examples for a thorough run.

    Other runs try an eighth of this number, and `./test quick` a twentieth. Each run tries other examples, so that
    small numbers find much in the course of time. The first example of Hypothesis is the simplest one, so there are
    never less than three.
    """
    return EXAMPLES or max(min(usual, 3), math.ceil(usual / _SHARE))


def seeds(usual: int) -> list[str]:
    """Returns the seeds of a test that is parametrized by seeds: at least one, and other seeds in each run."""
    number = min(usual, EXAMPLES) if EXAMPLES else math.ceil(usual / _SHARE)
    return [f"{os.environ['PIDTS_SEED']} {place}" for place in range(number)]


def points(one_in: int) -> Iterator[int]:
    """Yields, without an end, the numbers of the points at which a test kills a process.

    If each point takes seconds, the test tries one of `one_in` points, others in each run, and all points in a thorough
    run. `./test quick` tries a quarter of the usual number.
    """
    step = 1 if EXAMPLES else one_in * (4 if IS_QUICK else 1)
    return itertools.count(random.Random(os.environ["PIDTS_SEED"]).randrange(step), step)


def run_histories(usual: int, part: int, history: Callable[[random.Random], object]) -> None:
    """Runs random histories, others in each run. A failure shows the seed of its history.

    `usual` is the number of histories for PIDTS_EXAMPLES=100. Runs without this setting try a twelfth of them.
    Hypothesis is not used: it takes longer for an example than one of these histories takes. Each `part` has other
    histories, so that a test ends after some minutes.
    """
    number = math.ceil(usual * EXAMPLES / 100 if EXAMPLES else usual / _SHARE_OF_HISTORIES)
    # Thousands of histories log tens of thousands of lines, among which nobody finds the lines of a failure.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    for seed in (f"{os.environ['PIDTS_SEED']} {history.__module__} {part} {place}" for place in range(number)):
        try:
            history(random.Random(seed))
        except BaseException as error:
            error.add_note(f"This was the history of random.Random({seed!r}).")
            raise
