"""The next steps after an object of the target has refused a row or a schema change."""

from __future__ import annotations

from collections.abc import Sequence

COMPARE_TODO = "Compare the target's table with the source's and correct what differs"
"""The next step if the server does not name an object that refuses the row."""


def constraint_todo(constraint: str, remedy: str) -> str:
    """Returns the next step after a constraint has refused a row.

    `constraint` names its kind, itself and its table. `remedy` is the statement that removes it from the target.
    """
    return (
        f"The {constraint} on the target refuses the row. If the source may have such rows, remove it: {remedy}; "
        "or replace it by one that accepts them"
    )


def trigger_todo(trigger: str) -> str:
    """Returns the next step after a trigger has refused a row. `trigger` says how to find it."""
    return (
        f"A trigger of the target's table refuses the row ({trigger}). Change the trigger so that it accepts the rows "
        "of the source, or drop it"
    )


def dependents_todo(views: Sequence[str] = ()) -> str:
    """Returns the next step after a schema change was refused because other objects depend on what it alters.

    `views` are statements that show and drop the dependent views, if they are known.
    """
    todo = "On the target, drop the objects that the message names, and keep their definitions"
    return f"{todo}. For the views: {'; '.join(views)}" if views else todo
