"""Reading some columns of an image and passing over the others: the program that does it, and its steps.

Where an image has no NULLs, neighbours of fixed size are passed over in one step, together with what comes behind them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from pidts.binlog.jit import address
from pidts.binlog.kernel import layout as at

Step = tuple[int, int, int, int]
"""Bytes that are passed over, the kind, bytes of the size of a value, the column's place."""


@dataclass(frozen=True, slots=True)
class Skimming:
    """The program that passes over columns, and what it points at."""

    program: Any
    steps: Any
    looking: Any
    passing: Any
    full: Any

    @classmethod
    def of(cls, full: Any, passed_over: Collection[int]) -> Skimming:
        """Makes a program that passes over some columns, from one that reads all of them."""
        program = full.copy()
        codes = full[:, [at.CODE // 8, at.WIRE // 8]].tolist()
        looking, passing = _steps(codes, passed_over), _steps(codes, range(len(codes)))
        steps = np.array([address(looking), address(passing)], np.int64)
        program[0, [at.FULL // 8, at.STEPS // 8]] = address(full), address(steps)
        program[list(passed_over), at.CELL // 8] = at.PASSED_OVER
        return cls(program, steps, looking, passing, full)


def _steps(codes: list[tuple[int, int]], passed_over: Collection[int]) -> Any:
    single = [_step(code, size, place, passed_over) for place, (code, size) in enumerate(codes)]
    joined = _joined(single)
    rows = np.array([*single, *joined], np.int64)
    return np.concatenate([np.array([len(single), len(joined)], np.int64), rows.reshape(-1)])


def _step(code: int, size: int, place: int, passed_over: Collection[int]) -> Step:
    if place not in passed_over:
        return 0, at.LOOK, size, place
    if code >= at.FIRST_VARYING:
        return 0, at.PASS_BEHIND_SIZE, size, place
    return size, at.PASS, 0, place


def _joined(single: list[Step]) -> list[Step]:
    joined: list[Step] = []
    for lead, kind, size, place in single:
        before = joined.pop()[0] if joined and joined[-1][1] == at.PASS else 0
        joined.append((before + lead, kind, size, place))
    return joined
