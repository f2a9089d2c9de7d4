"""Finds zones whose servers may give new rows the same AUTO_INCREMENT values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import gcd

from pidts.model import Table
from pidts.source.finding import Finding

NUMBERING = ("auto_increment_increment", "auto_increment_offset")
"""The variables by which a server chooses AUTO_INCREMENT values."""


def auto_increment_findings(
    zones: tuple[str, str], source: Mapping[str, str], target: Mapping[str, str], tables: Iterable[Table]
) -> list[Finding]:
    """Returns a hint if both servers may give new rows the same AUTO_INCREMENT values, otherwise no finding.

    The hint never prevents a start: perhaps programs insert in only one of the zones, or choose the keys themselves.
    `source` and `target` are the two servers' values of the variables in `NUMBERING`.
    """
    names = sorted(str(one.name) for one in tables if any(column.auto_increment for column in one.columns))
    (step, first), (other_step, other_first) = map(_values, (source, target))
    if not names or (first - other_first) % gcd(step, other_step):
        return []
    more = f" and {len(names) - 1} more tables" if len(names) > 1 else ""
    here, there = zones
    what = (
        f"zone {here} and {f'zone {there}' if there else 'the zone of the target'} may give new rows of "
        f"{names[0]}{more} the same AUTO_INCREMENT values. The increments are {step} and {other_step}, the offsets "
        f"{first} and {other_first}. Two rows with the same value are locked in both zones. Give all servers an "
        "auto_increment_increment of at least the number of zones, and each zone an auto_increment_offset of its own"
    )
    return [Finding("auto_increment", ok=True, message=what)]


def _values(variables: Mapping[str, str]) -> tuple[int, int]:
    """Returns a server's increment and offset. A server ignores an offset above its increment."""
    step, offset = (int(variables.get(name, "1")) for name in NUMBERING)
    return step, offset if offset <= step else 0
