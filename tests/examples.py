"""How many random examples a test looks at."""

from __future__ import annotations

import itertools
import logging
import math
import os
import random
from collections.abc import Callable, Iterator

import structlog

EXAMPLES = int(os.environ.get("PIDTS_EXAMPLES", "0"))
"""Of each such test, in place of its own number; 0 leaves that."""


def examples(usual: int) -> int:
    """`usual` is how many a thorough run needs. Runs whose time counts look at a quarter of them, and at others each time,
    so that a small number finds much in time."""
    return EXAMPLES or math.ceil(usual / 4)


def seeds(usual: int) -> list[str]:
    """Returns the seeds of a test that is parametrized by them: at least one, others in each run."""
    number = min(usual, EXAMPLES) if EXAMPLES else math.ceil(usual / 4)
    return [f"{os.environ['PIDTS_SEED']} {place}" for place in range(number)]


def points(one_in: int) -> Iterator[int]:
    """Returns the numbers of the points at which a test kills, without an end. A test that takes seconds for a point
    looks at one of `one_in`, at others in each run, and at all of them in a thorough run."""
    step = 1 if EXAMPLES else one_in
    return itertools.count(random.Random(os.environ["PIDTS_SEED"]).randrange(step), step)


def run_histories(usual: int, part: int, history: Callable[[random.Random], object]) -> None:
    """Runs `usual` random histories, others in each run. A failure shows the seed of its history.

    They are too many for Hypothesis, which does more for an example than a history costs. Each `part` has others: a test
    ends after some minutes.
    """
    number = math.ceil(usual * (EXAMPLES / 100 or 1))
    # Thousands of histories log ten thousands of lines, of which nobody could find those of the one that fails.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    if os.environ.get("PIDTS_TIER") == "quick":
        number = math.ceil(usual / 20)
    for seed in (f"{os.environ['PIDTS_SEED']} {history.__module__} {part} {place}" for place in range(number)):
        try:
            history(random.Random(seed))
        except BaseException as error:
            error.add_note(f"This was the history of random.Random({seed!r}).")
            raise
