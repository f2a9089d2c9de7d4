"""`pidts init`: looks at two servers, and writes a first task file for them."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pidts.cli.command import Debug
from pidts.cli.log_options import set_up_logs
from pidts.model import ConfigError, PrecheckFailed, Where
from pidts.model.advice import with_task
from pidts.model.errors import AccessNotGranted, DatabaseMissing, LoginRefused, plural

if TYPE_CHECKING:
    from pidts.cli.server_urls import Address

_GRANT = "GRANT SELECT on the tables, or correct --tables"
_SOURCE_PASSWORD, _TARGET_PASSWORD = "SOURCE_PASSWORD", "TARGET_PASSWORD"
_REFUSED_LOGINS = {"access-denied": _SOURCE_PASSWORD, "target-denied": _TARGET_PASSWORD}
"""For each error code of a refused login: the environment variable with the password of the server."""


def init(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE_URL", help="mysql://user@host:port/ or mariadb://user@host:port/.")
    ],
    target: Annotated[
        str,
        typer.Argument(metavar="TARGET_URL", help="mysql://user@host:port/ or postgresql://user@host:port/database."),
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="The file to write; - is stdout. Default: NAME.yaml.")
    ] = "",
    name: Annotated[
        str, typer.Option(metavar="NAME", help="The task's name. Default: the name of the schema.", show_default=False)
    ] = "",
    tables: Annotated[str, typer.Option(help="Only these tables: shop.orders,crm.*", show_default=False)] = "",
    debug: Debug = False,
) -> int:
    """Look at both servers and write a commented task file without passwords.

    Set SOURCE_PASSWORD and TARGET_PASSWORD to the passwords. If a variable is not set, MYSQL_PWD has the password for
    MySQL and MariaDB, and PGPASSWORD for PostgreSQL. The task file names the variable. A URL may name another
    variable: 'mysql://user:${VARIABLE}@host:port/'.
    """
    from pidts.cli.server_urls import source_address, target_address
    from pidts.excerpt.table_options import tables_or_database
    from pidts.rules import AllowList
    from pidts.task.draft.inspect import look_at
    from pidts.task.draft.task_file import Draft, Login, security_of, source_id_of, task_name_of

    set_up_logs(debug=debug, quiet=sys.stderr.isatty())
    if output not in {"", "-"}:
        _demand_free(Path(output))
    upstream = source_address(source, os.environ, _SOURCE_PASSWORD)
    downstream = target_address(target, os.environ, _TARGET_PASSWORD)
    if upstream.source is None:
        raise AssertionError(source)
    tables = tables_or_database(tables, source)
    allow = AllowList.parse(tables)
    try:
        look = look_at(upstream.source, downstream.target(), allow)
    except PrecheckFailed as error:
        raise _with_advice(error, upstream, downstream) from None
    if not look.taken:
        what = f"{upstream.user} can see no table on the source" + (f" that matches {tables}" if tables else "")
        raise PrecheckFailed("nothing-to-take", what, todo=_GRANT)
    parts = [part for name in tables.split(",") if (part := name.strip())]
    unseen = [part for part in parts if not any(map(AllowList.parse(part), (one.name for one in look.tables)))]
    if unseen:
        what = f"{upstream.user} can see no table on the source that matches {', '.join(unseen)}"
        raise PrecheckFailed("nothing-to-take", what, todo=_GRANT)
    task = name or task_name_of(look.taken)
    logins = [
        Login(one.host, one.port, one.user, one.variable, security_of(one.tls), type=one.type, database=one.database)
        for one in (upstream, downstream)
    ]
    path = Path(output or f"{task}.yaml")
    draft = Draft(task, source_id_of(upstream.host, upstream.port), logins[0], logins[1], look, allow.do_tables)
    text = draft.text(shlex.quote(str(path)) if output != "-" else "TASK")
    if output == "-":
        print(text, end="")
        return 0
    _write(path, text)
    for finding in look.findings:
        if not finding.ok:
            said = with_task(f"to be fixed: {finding.item}: {finding.message}\n  fix: {finding.fix}", str(path))
            print(said, file=sys.stderr)
    if draft.may_lack_schemas:
        print(f"note: {draft.about_unseen}", file=sys.stderr)
    print(f"{path}: {plural('table', len(look.taken))}; next: pidts check {shlex.quote(str(path))}")
    return 0


def _with_advice(error: PrecheckFailed, source: Address, target: Address) -> PrecheckFailed:
    """Returns the error with advice that does not mention a task file, since none exists yet."""
    own = _REFUSED_LOGINS.get(error.code)
    if own is None or not isinstance(error, DatabaseMissing | LoginRefused | AccessNotGranted):
        return error
    one = source if own == _SOURCE_PASSWORD else target
    given = f"the password in {one.variable}" if os.environ.get(one.variable) == one.password else "the URL's password"
    used = given if one.password else "no password"
    if isinstance(error, DatabaseMissing):
        todo = "Create the database, or correct its name in TARGET_URL"
    elif isinstance(error, AccessNotGranted):
        todo = (
            f"As an administrator of the server at {one.host}:{one.port}, let {one.user} log in from this machine, and "
            "give it access to the database: docs/start/quick-start.md has the statements"
        )
    else:
        todo = (
            f"The login at {one.host}:{one.port} used {used}. Give the password of this server in the variable {own}, "
            "or correct the user in the URL. If the account does not exist yet: docs/start/quick-start.md has the "
            "statements that create it"
        )
    return type(error)(error.code, error.what, where=error.where, todo=todo)


def _demand_free(path: Path) -> None:
    if path.exists() or path.is_symlink():
        raise _taken(path)


def _taken(path: Path) -> ConfigError:
    todo = "Remove the file, or choose another one with --output"
    return ConfigError(
        "file-exists", "the file already exists and was not changed", where=Where(file=str(path)), todo=todo
    )


def _write(path: Path, text: str) -> None:
    """Writes the whole file or nothing, and never overwrites a file."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise _taken(path) from None
    except OSError as error:
        what = f"the task file cannot be written: {error.strerror}"
        raise ConfigError(
            "unwritable-file",
            what,
            where=Where(file=str(path)),
            todo="Let pidts write into this folder, or choose another file with --output",
        ) from None
