"""Implements LIKE and the text functions whose result does not depend on session or server settings."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pidts.rules.expressions import collations
from pidts.rules.expressions.compare import shared_collation
from pidts.rules.expressions.tree import NotSupportedError
from pidts.rules.expressions.values import INTEGERS, Expr, Family, Rows, as_integer

_IN_UTF8 = frozenset({"utf8", "utf8mb3", "utf8mb4", "ascii"})
_BYTE_EACH = frozenset({"latin1", "latin2", "latin5", "latin7", "cp1250", "cp1251", "cp1256", "cp1257", "koi8r"})


def like(value: Expr, pattern: Expr, escape: Expr) -> Expr:
    """Returns `value LIKE pattern ESCAPE escape`; the collation decides which characters are equal."""
    if Family.NULL in (value.family, pattern.family):
        return Expr(Family.NULL, lambda _: pa.scalar(None, pa.bool_()), nature="NULL")
    if not (isinstance(pattern.constant, str) and isinstance(escape.constant, str)):
        raise NotSupportedError("LIKE with a pattern that is not a constant text")
    if value.family is Family.BYTES and pattern.constant.isascii():
        raise NotSupportedError("LIKE on bytes")
    _must_be_text("LIKE", value)
    if len(escape.constant) > 1:
        raise NotSupportedError("an ESCAPE of several characters")
    order = collations.collation(shared_collation(value, pattern))
    weights = order.weights
    if weights is not None and any(weights.is_ignored(sign) for sign in pattern.constant):
        raise NotSupportedError(f"LIKE {pattern.constant!r}: it has characters without weight in {order.name}")
    fold = (lambda text: text) if weights is None else weights.folded_text
    expression = _regex(pattern.constant, escape.constant, fold)
    run = value.run
    return Expr(
        Family.TRUTH, lambda rows: pc.match_substring_regex(order.folded(run(rows)), expression), nature="a comparison"
    )


def among(value: Expr, *constants: Expr) -> Expr:
    """Returns `value IN ('a', ...)`, which looks up the value's weights only once."""
    order = collations.collation(shared_collation(value, *constants))
    wanted = pa.array([one.constant for one in constants], pa.string())
    run = value.run
    return Expr(Family.TRUTH, lambda rows: order.among(run(rows), wanted), nature="a comparison")


def _regex(pattern: str, escape: str, fold: Callable[[str], str]) -> str:
    parts, at = [], 0
    while at < len(pattern):
        sign = pattern[at]
        if escape and sign == escape and at + 1 < len(pattern):
            at += 1
            parts.append(re.escape(fold(pattern[at])))
        else:
            parts.append({"%": ".*", "_": "."}.get(sign) or re.escape(fold(sign)))
        at += 1
    return rf"(?s)\A{''.join(parts)}\z"


def _must_be_text(name: str, expr: Expr) -> None:
    if expr.family is not Family.TEXT:
        raise NotSupportedError(f"{name} of {expr.nature}; its argument must be text")


def length(expr: Expr) -> Expr:
    """Returns `LENGTH(a)`: in bytes of the column's charset."""
    if expr.family is Family.BYTES:
        return Expr(Family.INT, lambda rows: pc.binary_length(expr.run(rows)).cast(pa.int64()), 10, nature="LENGTH()")
    _must_be_text("LENGTH", expr)
    if expr.charset in _BYTE_EACH:
        return char_length(expr)
    if expr.charset not in _IN_UTF8:
        raise NotSupportedError(f"LENGTH of a text of charset {expr.charset or 'the connection'}")
    return Expr(Family.INT, lambda rows: pc.binary_length(expr.run(rows)).cast(pa.int64()), 10, nature="LENGTH()")


def char_length(expr: Expr) -> Expr:
    """Returns `CHAR_LENGTH(a)`."""
    if expr.family is Family.BYTES:
        return length(expr)
    _must_be_text("CHAR_LENGTH", expr)
    return Expr(Family.INT, lambda rows: pc.utf8_length(expr.run(rows)).cast(pa.int64()), 10, nature="CHAR_LENGTH()")


def _changed(expr: Expr, run: Callable[[Rows], Any], name: str) -> Expr:
    """Returns a text expression made from `expr`, with the same charset and collation."""
    return Expr(
        Family.TEXT,
        run,
        charset=expr.charset,
        collation=expr.collation,
        explicit=expr.explicit,
        nature=f"{name}()",
    )


def trimmed(name: str, expr: Expr) -> Expr:
    """Returns `TRIM(a)`, `LTRIM(a)` or `RTRIM(a)`, which remove only spaces."""
    _must_be_text(name, expr)
    trim = {"TRIM": pc.utf8_trim, "LTRIM": pc.utf8_ltrim, "RTRIM": pc.utf8_rtrim}[name]
    return _changed(expr, lambda rows: trim(expr.run(rows), characters=" "), name)


def substring_of(expr: Expr, start: Expr, count: Expr | None = None) -> Expr:
    """Returns `SUBSTRING(a, start, count)`, counted from 1, or from the end if `start` is negative."""
    _must_be_text("SUBSTRING", expr)
    first = _whole_constant("SUBSTRING", start)
    size = None if count is None else _whole_constant("SUBSTRING", count)
    if first == 0 or (size is not None and size <= 0):
        return _changed(expr, lambda rows: pc.utf8_slice_codeunits(expr.run(rows), 0, 0), "SUBSTRING")
    if first > 0:
        stop = None if size is None else first - 1 + size
        return _changed(expr, lambda rows: pc.utf8_slice_codeunits(expr.run(rows), first - 1, stop), "SUBSTRING")

    def from_the_end(rows: Rows) -> Any:
        values = expr.run(rows)
        end = pc.utf8_slice_codeunits(values, first)
        # If `start` lies before the first character, the result is empty.
        end = pc.if_else(pc.less(pc.utf8_length(values), -first), "", end)
        return end if size is None else pc.utf8_slice_codeunits(end, 0, size)

    return _changed(expr, from_the_end, "SUBSTRING")


def left(expr: Expr, count: Expr) -> Expr:
    """Returns `LEFT(a, count)`."""
    _must_be_text("LEFT", expr)
    size = max(_whole_constant("LEFT", count), 0)
    return _changed(expr, lambda rows: pc.utf8_slice_codeunits(expr.run(rows), 0, size), "LEFT")


def right(expr: Expr, count: Expr) -> Expr:
    """Returns `RIGHT(a, count)`."""
    _must_be_text("RIGHT", expr)
    size = max(_whole_constant("RIGHT", count), 0)
    if not size:
        return left(expr, count)
    return _changed(expr, lambda rows: pc.utf8_slice_codeunits(expr.run(rows), -size), "RIGHT")


def _whole_constant(name: str, expr: Expr) -> int:
    if expr.family not in INTEGERS or not isinstance(expr.constant, int) or abs(expr.constant) > 2**31:
        raise NotSupportedError(f"{name} with a place that is not a constant whole number")
    return expr.constant


def concat(*exprs: Expr) -> Expr:
    """Returns `CONCAT(a, ...)` of texts; NULL if one of them is NULL."""
    if any(expr.family is Family.NULL for expr in exprs):
        return Expr(Family.NULL, lambda _: pa.scalar(None, pa.bool_()), nature="NULL")
    for expr in exprs:
        signed = expr.column is not None and expr.column.type.is_integer and not expr.column.type.unsigned
        if not signed:  # an unsigned number may have ZEROFILL
            _must_be_text("CONCAT", expr)
    found = [expr for expr in exprs if expr.family is Family.TEXT]
    name = shared_collation(*found)
    runs = [_as_text(expr) for expr in exprs]
    charset = next((expr.charset for expr in found if expr.charset), None)
    return Expr(
        Family.TEXT,
        lambda rows: pc.binary_join_element_wise(*(run(rows) for run in runs), ""),
        charset=charset,
        collation=name,
        explicit=any(expr.explicit for expr in exprs),
        nature="CONCAT()",
    )


def _as_text(expr: Expr) -> Callable[[Rows], Any]:
    run = as_integer(expr).run
    return run if expr.family is Family.TEXT else (lambda rows: run(rows).cast(pa.string()))


def collated(expr: Expr, name: str) -> Expr:
    """Returns `a COLLATE name`."""
    _must_be_text("COLLATE", expr)
    charset = name.partition("_")[0]
    if _plain(charset) != _plain(expr.charset or charset):
        raise NotSupportedError(f"COLLATE {name} on a text of charset {expr.charset}")
    collations.collation(name)
    return Expr(
        Family.TEXT,
        expr.run,
        charset=expr.charset or charset,
        collation=name,
        explicit=True,
        constant=expr.constant,
        nature=expr.nature,
    )


def _plain(charset: str) -> str:
    return "utf8mb3" if charset == "utf8" else charset


def as_bytes(expr: Expr) -> Expr:
    """Returns `BINARY a`, which is compared byte by byte."""
    if expr.family is Family.BYTES:
        return expr
    _must_be_text("BINARY", expr)
    if expr.charset is not None and expr.charset not in _IN_UTF8:
        raise NotSupportedError(f"BINARY of a text of charset {expr.charset}")
    if isinstance(expr.constant, str):
        return expr
    return Expr(Family.BYTES, lambda rows: expr.run(rows).cast(pa.binary()), nature="BINARY")


def replaced(expr: Expr, old: Expr, new: Expr) -> Expr:
    """Returns `REPLACE(a, old, new)`, which compares characters exactly, and not by the collation."""
    for part in (expr, old, new):
        _must_be_text("REPLACE", part)
    if not (isinstance(old.constant, str) and isinstance(new.constant, str)):
        raise NotSupportedError("REPLACE with anything but constant texts")
    shared_collation(expr, old, new)
    if not old.constant:
        return expr
    before, after = old.constant, new.constant
    return _changed(
        expr, lambda rows: pc.replace_substring(expr.run(rows), pattern=before, replacement=after), "REPLACE"
    )
