"""Finds the server and the tables that a user names.

Passwords can be given in a file or in an environment variable, so that other users cannot read them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

from pidts.bounded_file import read_small
from pidts.model import ConfigError, Where
from pidts.rules import SYSTEM_SCHEMAS, AllowList
from pidts.source import SourceConfig
from pidts.source.connection import split_url

_VARIABLE = re.compile(r"\$\{(\w+)\}")


def is_url(text: str) -> bool:
    """Whether the text names a server, even if misspelt: a message about a file would show the password."""
    return "://" in text or text.startswith(("mysql:", "mariadb:"))


def server_of(url: str, environ: Mapping[str, str], *, source_id: str = "", password_file: str = "") -> SourceConfig:
    """Returns the server that a URL names.

    The server's password comes from the file if one is given, else from the URL (which may name a variable), else from
    MYSQL_PWD. In `user:@host`, the password is empty.
    """
    config = SourceConfig.from_url(url, source_id)
    if password_file:
        password = _read(password_file)
    elif split_url(url, "bad-source-url")[0].password is None:
        password = environ.get("MYSQL_PWD", "")
    else:
        password = with_variables(config.password, environ)
    return replace(config, user=with_variables(config.user, environ), password=password)


def with_variables(text: str, environ: Mapping[str, str]) -> str:
    """Returns the text with the value of each environment variable that it names as `${NAME}`."""

    def value(found: re.Match[str]) -> str:
        if found[1] not in environ:
            todo = "Set it before you run the command, or before the Spark session starts: processes inherit it then"
            raise ConfigError("missing-variable", f"the environment variable {found[1]} is not set", todo=todo)
        return environ[found[1]]

    return _VARIABLE.sub(value, text)


def tables_or_database(tables: str, url: str) -> str:
    """Returns the tables that a user names, otherwise all tables of the database in the URL; empty without either."""
    if tables or not is_url(url):
        return tables
    database = unquote(split_url(url, "bad-source-url")[0].path.strip("/"))
    return f"{database}.*" if database else ""


def asked_tables(text: str, option: str) -> AllowList:
    """Parses `shop.orders,crm.*`. Refuses a schema that is never shown: the user would wait for rows in vain."""
    found = AllowList.parse(text)
    for schema, _ in found.do_tables:
        if schema.lower() in SYSTEM_SCHEMAS:
            todo = f"Name other tables; tables of these schemas are never shown: {', '.join(sorted(SYSTEM_SCHEMAS))}"
            raise ConfigError("bad-value", f"{option}: the tables of {schema} are never shown", todo=todo)
    return found


def _read(file: str) -> str:
    try:
        return read_small(Path(file)).rstrip("\r\n")
    except OSError as error:
        what = f"the password's file cannot be read: {error.strerror}"
        raise ConfigError(
            "unreadable-file", what, where=Where(file=file), todo="Check the file's path, owner and mode"
        ) from None
