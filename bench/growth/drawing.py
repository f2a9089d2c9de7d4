"""Draws a curve as SVG: the CPU time and the memory of each part over the size. Both axes are logarithmic."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from curves import Curve, Spent

_WIDTH, _HEIGHT = 380, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 14, 34, 46
_COLORS = ("#1f6feb", "#d1242f", "#1a7f37", "#9a6700", "#8250df")
_LEGEND_LINE = 18
_LEAST = 0.01
"""A logarithmic axis has no zero: smaller values are drawn here."""

Line = Sequence[tuple[int, float]]


@dataclass(frozen=True, slots=True)
class _Scale:
    """Maps values between two powers of ten to a range of pixels."""

    low: int
    high: int
    begin: float
    end: float

    def at(self, value: float) -> float:
        share = (math.log10(max(value, _LEAST)) - self.low) / (self.high - self.low)
        return self.begin + share * (self.end - self.begin)

    def ticks(self) -> list[float]:
        return [10.0**power for power in range(self.low, self.high + 1)]


def svg(curve: Curve) -> str:
    """Returns the picture of a curve. Equal curves have equal pictures."""
    parts = curve.parts()
    height = _HEIGHT + _LEGEND_LINE * len(parts) + 10
    cpu = _panel(curve, "CPU time, seconds", lambda spent: spent.cpu, guide=True)
    memory = _panel(curve, "memory at most, MB", lambda spent: spent.mb, guide=False)
    legend = [
        f'<g transform="translate({_LEFT} {_HEIGHT + _LEGEND_LINE * place + 4})">'
        f'<rect width="14" height="4" y="-7" fill="{_COLORS[place % len(_COLORS)]}"/>'
        f'<text x="22">{escape(name)}</text></g>'
        for place, name in enumerate(parts)
    ]
    about = f'viewBox="0 0 {2 * _WIDTH} {height}" width="{2 * _WIDTH}" height="{height}"'
    about += f' font-family="sans-serif" font-size="12" role="img" aria-label="{escape(curve.unit)}"'
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" {about}>',
            f'<rect width="{2 * _WIDTH}" height="{height}" fill="#ffffff"/>',
            *cpu,
            f'<g transform="translate({_WIDTH} 0)">',
            *memory,
            "</g>",
            *legend,
            "</svg>\n",
        )
    )


def _panel(curve: Curve, title: str, value: Callable[[Spent], float], *, guide: bool) -> list[str]:
    lines = [curve.line(part, value) for part in curve.parts()]
    values = [max(found, _LEAST) for line in lines for _, found in line]
    x = _scale([point.size for point in curve.points], _LEFT, _WIDTH - _RIGHT)
    y = _scale(values, _HEIGHT - _BOTTOM, _TOP)
    drawn = [f'<text x="{_LEFT}" y="18" font-weight="bold">{escape(title)}</text>']
    for tick in y.ticks():
        at = y.at(tick)
        drawn.append(f'<path d="M{_LEFT} {at:.1f}H{_WIDTH - _RIGHT}" stroke="#d0d7de"/>')
        drawn.append(f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{_number(tick)}</text>')
    for tick in x.ticks():
        at = x.at(tick)
        drawn.append(f'<path d="M{at:.1f} {_TOP}V{_HEIGHT - _BOTTOM}" stroke="#d0d7de"/>')
        drawn.append(f'<text x="{at:.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{_number(tick)}</text>')
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    drawn.append(f'<text x="{middle}" y="{_HEIGHT - _BOTTOM + 34}" text-anchor="middle">{escape(curve.unit)}</text>')
    if guide and len(curve.points) > 1:
        drawn.append(_guide(lines, x, y))
    for place, line in enumerate(lines):
        color = _COLORS[place % len(_COLORS)]
        path = "L".join(f"{x.at(size):.1f} {y.at(found):.1f}" for size, found in line)
        drawn.append(f'<path d="M{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        drawn += [
            f'<circle cx="{x.at(size):.1f}" cy="{y.at(found):.1f}" r="3" fill="{color}"/>' for size, found in line
        ]
    return drawn


def _guide(lines: Sequence[Line], x: _Scale, y: _Scale) -> str:
    """Returns, as SVG, the line of a value that is proportional to the size.

    The line of this value ends at the highest of the last points of `lines`.
    """
    size, top = max((line[-1] for line in lines), key=lambda point: point[1])
    least = max(10.0**x.low, size * 10.0**y.low / max(top, _LEAST))
    begin, end = (least, top * least / size), (size, top)
    (x1, y1), (x2, y2) = ((x.at(across), y.at(up)) for across, up in (begin, end))
    return (
        f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" fill="none" stroke="#6e7781" stroke-dasharray="4 4"/>'
        f'<text x="{x1 + 6:.1f}" y="{y1 - 6:.1f}" fill="#6e7781">linear</text>'
    )


def _scale(values: Sequence[float], begin: float, end: float) -> _Scale:
    low = math.floor(math.log10(max(min(values), _LEAST)))
    high = math.ceil(math.log10(max(*values, _LEAST)))
    return _Scale(low, max(high, low + 1), begin, end)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"
