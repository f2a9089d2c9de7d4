"""Finds the tables of a source that become one on the target."""

from __future__ import annotations

from collections.abc import Iterable

from pidts.model import TableName
from pidts.rules.stage import Rules


def together(rules: Rules, names: Iterable[TableName]) -> dict[TableName, tuple[TableName, ...]]:
    """Returns the source's tables by the target table that they are routed to."""
    found: dict[TableName, list[TableName]] = {}
    for name in names:
        found.setdefault(rules.landed_name(name), []).append(name)
    return {landed: tuple(sorted(members)) for landed, members in found.items()}


def merged(rules: Rules, names: Iterable[TableName]) -> frozenset[TableName]:
    """Tables of the target that are made of several of these."""
    if not rules.routes.rules:
        return frozenset()
    return frozenset(landed for landed, members in together(rules, names).items() if len(members) > 1)
