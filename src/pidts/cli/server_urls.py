"""Parses the URLs of servers on a command line, and names the environment variables of their passwords.

A password is never copied from a URL into a task file. The file names an environment variable instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import parse_qsl, unquote

from pidts.apply import Target
from pidts.excerpt.table_options import server_of, with_variables
from pidts.login import Tls
from pidts.model import ConfigError
from pidts.source import SourceConfig
from pidts.source.connection import split_url

_POSTGRES = frozenset({"postgresql", "postgres"})
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_TLS = ("ssl-mode", "ssl-ca", "ssl-cert", "ssl-key")
_BAD = "bad-target-url"


@dataclass(frozen=True, slots=True)
class Address:
    """One server and the account to log in with."""

    type: str
    """`mysql` or `postgresql`."""
    host: str
    port: int
    user: str
    password: str = field(repr=False)
    variable: str
    """The environment variable from which a task file takes the password; empty if there is no password."""
    database: str = ""
    """The database, for PostgreSQL only."""
    tls: Tls = field(default_factory=Tls)
    source: SourceConfig | None = None
    """The settings of this server if it is a source."""

    def target(self) -> Target:
        """Returns this server as a target. Loads only the driver that it needs."""
        if self.type == "postgresql":
            from pidts.target.postgres import PostgresTarget

            return PostgresTarget(self.host, self.port, self.user, self.password, self.database, tls=self.tls)
        from pidts.target.mysql import MySqlTarget

        return MySqlTarget(self.host, self.port, self.user, self.password, tls=self.tls)


def source_address(url: str, environ: Mapping[str, str], own: str = "") -> Address:
    """Parses `mysql://user@host:port/`.

    The password comes from the URL, a variable that the URL names, the variable `own`, or MYSQL_PWD.
    """
    config = server_of(url, environ)
    written = SourceConfig.from_url(url).password
    common = _common(url, environ, own, "MYSQL_PWD")
    if common == own:
        config = replace(config, password=environ[own])
    return Address(
        type="mysql",
        host=config.host,
        port=config.port,
        user=config.user,
        password=config.password,
        variable=_variable(written, config.password, "SOURCE_PASSWORD", common),
        tls=config.tls,
        source=config,
    )


def target_address(url: str, environ: Mapping[str, str], own: str = "") -> Address:
    """Parses `mysql://user@host:port/` or `postgresql://user@host:port/database`.

    A password that is not in the URL comes from the variable `own`, or from the variable that other clients read.
    """
    scheme = split_url(url, _BAD)[0].scheme
    if scheme not in _POSTGRES:
        if scheme not in {"mysql", "mariadb"}:
            todo = "Write mysql://user@host:port/ or postgresql://user@host:port/database"
            what = f"a target cannot have the URL scheme {scheme!r}"
            raise ConfigError(_BAD, what, todo=todo)
        try:
            found = source_address(url, environ, own)
        except ConfigError as error:
            code = _BAD if error.code == "bad-source-url" else error.code
            raise ConfigError(code, error.what, where=error.where, todo=error.todo) from None
        variable = "TARGET_PASSWORD" if found.variable == "SOURCE_PASSWORD" else found.variable
        return replace(found, variable=variable, source=None)
    return _postgres(url, environ, own)


def _postgres(url: str, environ: Mapping[str, str], own: str) -> Address:
    todo = "Write postgresql://user@host:port/database; in a password, / ? # @ : % are %2F %3F %23 %40 %3A %25"
    parts, port = split_url(url, _BAD)
    database = unquote(parts.path.lstrip("/"))
    if not parts.hostname or not database:
        raise ConfigError(_BAD, f"the target's URL names no {'database' if parts.hostname else 'host'}", todo=todo)
    options = dict(parse_qsl(parts.query))
    if unknown := sorted(options.keys() - set(_TLS)):
        raise ConfigError(_BAD, f"unknown option {unknown[0]!r}", todo=f"Known: {', '.join(_TLS)}")
    try:
        tls = Tls.of(*(options.get(name, "") for name in _TLS))
    except ValueError as error:
        raise ConfigError(_BAD, str(error), todo=f"Known: {', '.join(_TLS)}") from None
    written = unquote(parts.password or "")
    # With an empty password in the URL, libpq itself takes PGPASSWORD. No server accepts an empty password.
    common = _common(url, environ, own, "PGPASSWORD")
    password = environ.get(common, "") if parts.password is None else with_variables(written, environ)
    return Address(
        type="postgresql",
        host=parts.hostname,
        port=port or 5432,
        user=unquote(parts.username or "postgres"),
        password=password,
        variable=_variable(written, password, "TARGET_PASSWORD", common),
        database=database,
        tls=tls,
    )


def _common(url: str, environ: Mapping[str, str], own: str, usual: str) -> str:
    """Returns the variable that has the password if the URL has none."""
    return own if own in environ and split_url(url, _BAD)[0].password is None else usual


def _variable(written: str, password: str, own: str, common: str) -> str:
    """Returns the variable for the password; empty if there is no password.

    Returns the variable that the URL names; `own` if the URL contains the password itself; otherwise `common`.
    """
    if not password:
        return ""
    if named := _VARIABLE.fullmatch(written):
        return named[1]
    return own if written else common
