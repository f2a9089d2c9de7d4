"""Draws the curves of the results, and writes their tables into the page about growth.

python bench/growth/page.py
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from curves import Curve, Point, Spent, curves, read
from drawing import svg

BENCH = Path(__file__).parents[1]
RESULT = BENCH / "results" / "growth.json"
PAGE = BENCH.parent / "docs" / "reference" / "growth.md"
IMAGES = BENCH.parent / "docs" / "images"


def main() -> None:
    drawn = curves(read(RESULT))
    for curve in drawn:
        (IMAGES / f"growth-{curve.axis}.svg").write_text(svg(curve))
    PAGE.write_text(filled(PAGE.read_text(), drawn))


def filled(page: str, drawn: Sequence[Curve]) -> str:
    """Returns the page with the table of each curve between the curve's two comments."""
    for curve in drawn:
        text = "\n".join(table(curve))
        page = re.sub(
            rf"(<!-- {curve.axis} -->\n).*?(<!-- end -->)",
            lambda found, text=text: f"{found[1]}{text}\n{found[2]}",  # type: ignore[misc]
            page,
            flags=re.DOTALL,
        )
    return page


def table(curve: Curve) -> list[str]:
    """Returns the lines of a table: a row for each size, and at the end the exponent of each part."""
    parts = curve.parts()
    lines = [f"| {curve.unit} | {' | '.join(parts)} | load |", "|" + "---|" * (len(parts) + 2)]
    lines += [
        f"| {point.size:,} | {' | '.join(_cell(point, part) for part in parts)} | {_load(point)} |"
        for point in curve.points
    ]
    exponents = (curve.exponent(part) for part in parts)
    last = ("-" if found is None else f"{found:.2f}" for found in exponents)
    return [*lines, f"| *exponent* | {' | '.join(last)} | |"]


def _cell(point: Point, part: str) -> str:
    spent = point.parts.get(part)
    if spent is None:
        return "-"
    return f"**{spent.cpu:,.1f}**{_each(spent)}, {spent.seconds:,.1f} s, {spent.mb:,} MB"


def _each(spent: Spent) -> str:
    """Returns the CPU time of one unit of work, if the part has many."""
    if spent.amount < 2:
        return ""
    each = spent.cpu / spent.amount * 1e6
    return f" ({each:,.1f} µs)" if each < 1000 else f" ({each / 1000:,.1f} ms)"


def _load(point: Point) -> str:
    return f"{point.about.get('load', 0):.0f}"


if __name__ == "__main__":
    main()
