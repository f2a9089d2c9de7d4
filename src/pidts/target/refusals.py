"""The advice after the target has refused a login, a row or a schema change, or was not reached."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

UNREACHABLE_TODO = (
    "Is the target's server running? Are host and port under target-database right? Does a firewall block the "
    "connection?"
)
"""The advice to the operator if there is no connection to the target."""
NO_CONNECTION = "target-connections-used"
"""The code of an error of a target that answers, and accepts no further connection."""
NO_CONNECTION_TODO = (
    "End sessions of other programs on the target, or raise its limit: max_connections, or the limit of the account or "
    "of the database. A running task then continues by itself"
)
"""The advice to the operator if all connections of the target are in use."""
TARGET_FULL = "target-full"
"""The code of an error that is due to a full disk of the target."""
ADMIN_TODO = (
    "ADMIN is an account of the target that may grant, and ADMIN_PASSWORD an environment variable with its password. "
    "The command also reads the source's tables: add --source URL if the task's account does not exist on the source"
)
"""The advice that explains the command of `grants_command`."""


def full_todo(otherwise: str = "") -> str:
    """Returns the advice if the target has no space. `otherwise` is the advice if the disk itself is not full."""
    todo = "Make room on the target's disk. A running task then continues by itself"
    return f"{todo}. {otherwise}" if otherwise else todo


def grants_command(scheme: str, place: str, host: str = "") -> str:
    """Returns the command that prints the grants of the target's account; with `host`, of the account on this host.

    The URL names a variable for the password. Without this variable, the command would use the password in PGPASSWORD
    or MYSQL_PWD, which is often the password of the task's own account.
    """
    of_host = f"--host {shlex.quote(host)} " if host else ""
    return f"pidts grants TASK --only target {of_host}--target '{scheme}://ADMIN:${{ADMIN_PASSWORD}}@{place}'"


def account_todo(grants: str, host: str = "") -> str:
    """Returns the advice after the target has refused a login; `grants` says what `grants_command` prints.

    `host` is this machine as the target sees it, if the target's accounts belong to hosts.
    """
    exists = f"If an account for the host {host}, for its address or for % exists" if host else "If the account exists"
    return f"{exists}: correct user and password under target-database. If not, create one: {grants}. {ADMIN_TODO}"


def constraint_todo(constraint: str, remedy: str) -> str:
    """Returns the advice after a constraint has refused a row.

    `constraint` is a text with the kind, the name and the table of the constraint. `remedy` is the statement that
    removes the constraint from the target.
    """
    return (
        f"The {constraint} on the target refuses the row. If the source may have such rows, remove the constraint: "
        f"{remedy}; or replace it by a constraint that accepts these rows"
    )


def index_todo(index: str, remedy: str, of_constraint: str = "") -> str:
    """Returns the advice after a unique index of the target alone has refused a row.

    `index` is a text with the name and the table of the index. `remedy` is the statement that removes the index.
    `of_constraint` is the statement for an index that belongs to a constraint; empty if `remedy` removes it, too.

    The text does not claim that the source lacks the index: if tables are merged, each source table may have it.
    """
    todo = (
        f"The unique index {index} on the target refuses the row, and the rows of the source need not differ in its "
        f"columns. Remove the index: {remedy}"
    )
    return f"{todo}; or, if it belongs to a UNIQUE constraint: {of_constraint}" if of_constraint else todo


def not_null_todo(column: str, remedy: str) -> str:
    """Returns the advice after a row has no value for a column that is NOT NULL on the target.

    `column` is a text with the name and the table of the column. `remedy` is the statement that lets the column be
    NULL.
    """
    return (
        f"Column {column} on the target is NOT NULL, and the row has no value for it. If the source's column allows "
        f"NULL, or if the source has no such column, allow NULL on the target, too: {remedy}"
    )


def trigger_todo(trigger: str, grant: str = "") -> str:
    """Returns the advice after a trigger has refused a row. `trigger` says how to find the trigger.

    `grant` lets the task switch off triggers; it is empty if the task may already do this, or if no grant allows it.
    """
    if grant:
        return (
            f"A trigger of the target's table refuses the row ({trigger}). Let the task switch off triggers: {grant}; "
            f"the source's log already contains the changes of its triggers. Or drop the trigger. {_EACH_START}"
        )
    return (
        f"A trigger of the target's table refuses the row ({trigger}). Change the trigger so that it accepts the rows "
        "of the source, or drop it"
    )


def foreign_key_todo(constraint: str, remedy: str, grant: str) -> str:
    """Returns the advice after a foreign key has refused a row; see `constraint_todo` and `trigger_todo`."""
    todo = constraint_todo(constraint, remedy)
    return f"{todo}. Or let the task switch off foreign keys: {grant}. {_EACH_START}" if grant else todo


_EACH_START = (
    "As long as the target's table has triggers or foreign keys, the check at each start of the task, also with "
    "--resync, fails without this grant"
)


def dependents_todo(views: Sequence[str] = ()) -> str:
    """Returns the advice after a schema change was refused because other objects depend on what it alters.

    `views` are statements that show and drop the dependent views, if they are known.
    """
    todo = "On the target, drop the objects that the message names, and keep their definitions"
    return f"{todo}. For the views: {'; '.join(views)}" if views else todo
