"""The types of this bench: an axis along which a task grows, a point on the axis, and the curve through the points."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

Work = Callable[[int, Path], "dict[str, Spent]"]
"""Measures an axis at this size, in an empty folder. Returns the time and the memory that each part of the measurement
(the first start, the changes, …) has used.
"""

_NOISE_SECONDS = 0.25
"""Smaller CPU times count as this one: a process is measured only once in this time."""


@dataclass(frozen=True, slots=True)
class Spent:
    """The CPU time, time and memory that one part of a point has used."""

    cpu: float
    """The CPU time of all processes of PiDTS, in seconds."""
    seconds: float
    mb: int
    """The highest sum, in MiB, of the memory (PSS) of all processes of PiDTS."""
    processes: Mapping[str, float] = field(default_factory=dict)
    """The CPU time of each kind of process, in seconds."""
    amount: int = 0
    """The number of units of work, such as rows; 0 if the part has none."""

    def to_json(self) -> dict[str, Any]:
        """Returns plain values, rounded to the precision of the measurement."""
        return {
            "cpu_seconds": round(self.cpu, 2),
            "seconds": round(self.seconds, 2),
            "mb": self.mb,
            "amount": self.amount,
            "processes": {name: round(cpu, 2) for name, cpu in sorted(self.processes.items())},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Spent:
        """Returns the values; the inverse of `to_json`."""
        return cls(data["cpu_seconds"], data["seconds"], data["mb"], data["processes"], data["amount"])


@dataclass(frozen=True, slots=True)
class Axis:
    """A number that grows from point to point, such as the number of tables. All other numbers stay the same."""

    name: str
    unit: str
    sizes: tuple[int, ...]
    to: int
    """The largest size that is measured if the command names none."""
    work: Work

    def sizes_to(self, to: int | None) -> list[int]:
        """Returns the sizes to measure, up to and including `to`, or up to the axis's own limit if `to` is None."""
        limit = self.to if to is None else to
        found = [size for size in self.sizes if size <= limit]
        return found if to is None or to in found else [*found, to]


@dataclass(frozen=True, slots=True)
class Point:
    """The measurement of one size."""

    size: int
    parts: Mapping[str, Spent]
    about: Mapping[str, Any] = field(default_factory=dict)
    """When the point was measured, and how much other programs loaded the machine then."""

    def to_json(self) -> dict[str, Any]:
        """Returns plain values."""
        return {"size": self.size, **self.about, "parts": {name: one.to_json() for name, one in self.parts.items()}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Point:
        """Returns the point; the inverse of `to_json`."""
        about = {name: value for name, value in data.items() if name not in {"size", "parts"}}
        return cls(data["size"], {name: Spent.from_json(one) for name, one in data["parts"].items()}, about)


@dataclass(frozen=True, slots=True)
class Curve:
    """All points of one axis, by size."""

    axis: str
    unit: str
    points: tuple[Point, ...]

    def parts(self) -> list[str]:
        """Returns the names of all parts, in the order in which they were measured."""
        return list(dict.fromkeys(name for point in self.points for name in point.parts))

    def line(self, part: str, value: Callable[[Spent], float]) -> list[tuple[int, float]]:
        """Returns, for each size at which the part was measured, the size and one value of the part."""
        return [(point.size, value(point.parts[part])) for point in self.points if part in point.parts]

    def exponent(self, part: str) -> float | None:
        """Returns the exponent of the size with which the part's CPU time grows at the end of the curve.

        0 means that the time does not grow, 1 linear growth, 2 quadratic growth. The result is None if `exponent`
        finds no two points to compare.
        """
        return exponent(self.line(part, lambda spent: spent.cpu))


def exponent(line: Sequence[tuple[int, float]]) -> float | None:
    """Returns the slope on logarithmic axes between the last two neighbouring points that are far enough apart.

    The sizes of such points differ by a factor of two or more: between closer points, the noise would be larger than
    the slope. Returns None if no points are so far apart.
    """
    for (small, less), (large, more) in reversed(list(pairwise(line))):
        if large >= 2 * small > 0:
            return math.log(max(more, _NOISE_SECONDS) / max(less, _NOISE_SECONDS)) / math.log(large / small)
    return None


def read(path: Path) -> dict[str, Any]:
    """Returns the content of the results file, or results without axes if there is no file."""
    known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"axes": {}}
    return known


def curves(known: Mapping[str, Any]) -> list[Curve]:
    """Returns the curves of a results file."""
    return [
        Curve(name, data["unit"], tuple(Point.from_json(point) for point in data["points"]))
        for name, data in known["axes"].items()
    ]


def keep(path: Path, axis: Axis, machine: Mapping[str, Any], point: Point) -> None:
    """Adds a point to the results file, in place of an earlier point of the same size."""
    known = read(path)
    before = known["axes"].get(axis.name, {}).get("points", [])
    points = [*(one for one in before if one["size"] != point.size), point.to_json()]
    points.sort(key=lambda one: one["size"])
    known["axes"][axis.name] = {"unit": axis.unit, "machine": dict(machine), "points": points}
    path.write_text(json.dumps(known, indent=1) + "\n")
