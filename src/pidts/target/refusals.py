"""The next steps after a constraint or a trigger of the target has refused a row."""

from __future__ import annotations

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
