"""Reading some columns of an image and passing over the others: the program that does it, and its steps.

Where an image has no NULLs, neighbours of fixed size are passed over in one step.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from pidts.binlog.jit import address
from pidts.binlog.kernel import layout as at

Step = tuple[int, int, int]
"""Its kind, bytes of the value or of its size, the column's place."""


@dataclass(frozen=True, slots=True)
class Skimming:
    """The program that passes over columns, and what it points at."""

    program: Any
    steps: Any
    full: Any

    @classmethod
    def of(cls, full: Any, passed_over: Collection[int]) -> Skimming:
        """Of a program that reads all columns, for all but some."""
        program = full.copy()
        single = [_step(full, place, passed_over) for place in range(len(full))]
        joined = _joined(single)
        rows = np.array([*single, *joined], np.int64)
        steps = np.concatenate([np.array([len(single), len(joined)], np.int64), rows.reshape(-1)])
        program[0, [at.FULL // 8, at.STEPS // 8]] = address(full), address(steps)
        program[list(passed_over), at.CELL // 8] = at.PASSED_OVER
        return cls(program, steps, full)


def _step(full: Any, place: int, passed_over: Collection[int]) -> Step:
    size = int(full[place, at.WIRE // 8])
    if place not in passed_over:
        return at.LOOK, size, place
    varies = full[place, at.CODE // 8] >= at.FIRST_VARYING
    return at.PASS_BEHIND_SIZE if varies else at.PASS, size, place


def _joined(single: list[Step]) -> list[Step]:
    joined: list[Step] = []
    for kind, size, place in single:
        before = joined.pop()[1] if kind == at.PASS and joined and joined[-1][0] == at.PASS else 0
        joined.append((kind, before + size, place))
    return joined
