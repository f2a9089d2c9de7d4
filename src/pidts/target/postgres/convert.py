"""Converts the values of a column whose type changes.

PostgreSQL makes the same conversion as the source, or the schema change is refused. Values may have to change even if
PostgreSQL's type does not: BINARY is filled with zeros, and the labels in a SET get another order.
"""

from __future__ import annotations

from pidts.model import Column, ColumnType, Kind
from pidts.model.types import BLOBS, INTEGERS, TEXTS, WITH_FSP
from pidts.target.postgres.dialect import literal, type_name

_TEXTS = frozenset({Kind.CHAR, Kind.VARCHAR, *TEXTS})
_WORDS = _TEXTS | {Kind.ENUM}
_BYTES = frozenset({Kind.BINARY, Kind.VARBINARY, *BLOBS})
_INTEGERS = frozenset(INTEGERS)
_CASTS = (
    (_INTEGERS, _INTEGERS | _TEXTS | {Kind.DECIMAL, Kind.DOUBLE}),
    (_WORDS, _WORDS),
    (_BYTES, _BYTES - {Kind.BINARY}),
    ({Kind.DECIMAL}, _INTEGERS | {Kind.DECIMAL}),
    ({Kind.FLOAT}, {Kind.FLOAT, Kind.DOUBLE}),
    ({Kind.DATE}, {Kind.DATETIME}),
    ({Kind.YEAR}, _INTEGERS),
)
"""The types between which a cast gives the same values as the source's conversion."""


def conversion(old: Column, new: Column, name: str, *, cuts: bool | None = None) -> str | None:
    """Returns the new value in SQL; `name` itself if the value does not change; None if only the source knows it.

    `cuts`: whether the source cuts further digits of a second off, or rounds them. If this is not known, the caller has
    made sure that no digits of a second are lost.
    """
    if cuts is not None and loses_digits(old.type, new.type):
        return with_digits(name, new.type.fsp, cuts=cuts)
    a, b = old.type.kind, new.type.kind
    if old.type.chosen != new.type.chosen or Kind.SET in (a, b):
        known = _chosen(old, new, name)
        if known is not None:
            return known or None
    cast = f"{name}::{type_name(new.type)}"
    if a is Kind.BIT or b is Kind.BIT:
        return _bits(old, new, name)
    if a is Kind.SET:
        return _set(old, new, name)
    if a in _BYTES and b is Kind.BINARY:
        zeros = f"decode(repeat('00', {new.type.length or 1} - octet_length({name})), 'hex')"
        return name if old.type == new.type else f"{name} || {zeros}"
    if a is b or any(a in left and b in right for left, right in _CASTS):
        return name if type_name(old.type) == type_name(new.type) else cast
    return None


def loses_digits(old: ColumnType, new: ColumnType) -> bool:
    """Whether the column stays a TIME, DATETIME or TIMESTAMP, and keeps fewer digits of a second."""
    is_kept = old.kind is new.kind and old.kind in WITH_FSP and not (old.chosen or new.chosen)
    return is_kept and new.fsp < old.fsp


def with_digits(name: str, digits: int, *, cuts: bool) -> str:
    """Returns SQL for a TIME, DATETIME or TIMESTAMP with fewer digits of a second, as the source computes it.

    The source cuts digits off, or rounds halves up; a negative TIME is cut or rounded as its absolute value.
    PostgreSQL's own cast rounds halves to the value that is further from the year 2000. Infinity, which has no digits,
    does not change.
    """
    unit, micros = 10 ** (6 - digits), f"extract(microseconds FROM {name})::numeric"
    made = f"{'trunc' if cuts else 'round'}({micros} / {unit}) * {unit}"
    return f"COALESCE({name} + ({made} - {micros})::integer * interval '1 microsecond', {name})"


def _chosen(old: Column, new: Column, name: str) -> str | None:
    """Returns the conversion if the task file chooses one of the two types (`pidts.types`).

    The result is empty if PostgreSQL cannot make the conversion: a number other than 0 and 1 cannot become a boolean.
    None stands for the usual conversion.
    """
    was, becomes = old.type.chosen, new.type.chosen
    if (old.type.kind, new.type.kind) == (Kind.SET, Kind.SET) and was == becomes == "text":
        return name
    if (Kind.SET in (old.type.kind, new.type.kind) and "text" in (was, becomes)) or becomes == "boolean":
        return ""
    if was == "boolean":
        return f"{name}::integer::{type_name(new.type)}"
    return None


def _bits(old: Column, new: Column, name: str) -> str | None:
    """Returns the conversion from or to BIT; None if there is none. BIT(1) is a boolean on PostgreSQL."""
    a, b = old.type.kind, new.type.kind
    had, has = old.type.length or 1, new.type.length or 1
    number = f"{name}::integer" if had == 1 else f"{name}::bigint"
    if a is b:
        if had == has:
            return name
        return f"{number}::bit({has})" if had < has else None
    if a is Kind.BIT and had < 64 and b in _INTEGERS:
        return f"({number})::{type_name(new.type)}"
    return f"{name} <> 0" if a in _INTEGERS and has == 1 else None


def _set(old: Column, new: Column, name: str) -> str | None:
    """Returns the conversion of a SET; None if there is none. A value has its labels in the order of the definition."""
    if new.type.kind in _TEXTS:
        return f"array_to_string({name}, ',')::{type_name(new.type)}"
    if new.type.kind is not Kind.SET:
        return None
    if new.type.labels[: len(old.type.labels)] == old.type.labels:
        return name
    if not set(old.type.labels) <= set(new.type.labels):
        return None
    labels = ", ".join(
        f"CASE WHEN {literal(label)} = ANY({name}) THEN {literal(label)} END" for label in new.type.labels
    )
    return f"CASE WHEN {name} IS NOT NULL THEN array_remove(ARRAY[{labels}]::text[], NULL) END"
