"""Renders the definition of a foreign key or a check, for which all targets have the same syntax."""

from __future__ import annotations

from collections.abc import Callable

from pidts.model import CheckConstraint, ForeignKey, TableName


def definition(
    constraint: ForeignKey | CheckConstraint, identifier: Callable[[str], str], qualified: Callable[[TableName], str]
) -> str:
    """Returns the text after `CONSTRAINT name`, with names quoted as the target quotes them."""
    if isinstance(constraint, CheckConstraint):
        return f"CHECK ({constraint.expression})"
    columns, parents = (", ".join(map(identifier, names)) for names in (constraint.columns, constraint.parent_columns))
    return (
        f"FOREIGN KEY ({columns}) REFERENCES {qualified(constraint.parent)} ({parents}) "
        f"ON DELETE {constraint.on_delete} ON UPDATE {constraint.on_update}"
    )
