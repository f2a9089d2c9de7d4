"""Divides the pieces of a copy between the tasks or threads that read and load them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import ceil

_SHARE = 0.75
"""The part of the remaining pieces that the next bundles of all slots take together."""


def bundles(counts: Sequence[int], slots: int, *, takes_next: bool) -> list[range]:
    """Returns the bundles, each as a range of the pieces' indexes. The pieces of a bundle follow one after the other.

    `counts`: the number of pieces of each table. `slots`: the number of bundles that are carried out at the same time.

    Starting a Spark task takes as long as copying about ten thousand rows, so there are few bundles. With `takes_next`,
    a slot takes several bundles one after the other. Then the last bundles are short, so that all slots end at about
    the same time. This assumes that all pieces take the same time, and `next_limit` chooses their sizes accordingly. If
    the end of a table is near, a bundle ends there: two slots that fill one table would leave its index half empty.
    """
    found: list[range] = []
    ends = list(accumulate(counts))
    begin, pieces = 0, ends[-1]
    while begin < pieces:
        left, free = pieces - begin, slots - len(found)
        size = ceil(left * _SHARE / slots if takes_next else left / free)
        plain = begin + size
        near = range(begin + ceil(size / 2), begin + ceil(left / slots) + 1) if takes_next else range(0)
        end = min((end for end in ends[:-1] if end in near), key=lambda end: abs(end - plain), default=plain)
        found.append(range(begin, end))
        begin = end
    return found
