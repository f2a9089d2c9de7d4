"""Reads the servers of a task: its source, from the task file or from a source file of DM, and its target."""

from __future__ import annotations

import base64
import os
import re
import stat
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from pidts.bounded_file import read_small
from pidts.login import Mode, Tls
from pidts.login.password_file import read_password
from pidts.model import ConfigError, Position, parse_gtid_set
from pidts.model.type_map import TypeMap
from pidts.rules import SYSTEM_SCHEMAS
from pidts.source import SourceConfig
from pidts.task.config import dm_keys
from pidts.task.config.section import LOCAL_URL, Section
from pidts.task.config.yaml_lines import Item, read_yaml

if TYPE_CHECKING:
    from pidts.apply import Target
    from pidts.target.iceberg.server_catalog import ServerCatalog


TargetType = Literal["mysql", "postgresql", "datacenter", "iceberg", "hive"]
"""The kinds of targets:

- datacenter: a database of a MySQL server that gets records of the changes, in Inception Gate's form, instead of rows.
- iceberg: a warehouse of Iceberg tables in a directory on this machine.
- hive: a warehouse as for `iceberg`, whose tables are published to a Hive metastore.
"""

USUAL_META_SCHEMA = "pidts_meta"
META_SCHEMA = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}", re.ASCII)
"""The names that a meta schema may have."""

_PORTS = {"mysql": 3306, "postgresql": 5432, "datacenter": 3306}
_TYPES = {
    "tidb": "Write mysql: PiDTS writes to TiDB as to a MySQL server.",
    "mariadb": "Write mysql, which also stands for MariaDB.",
    "postgres": "Write postgresql.",
}
"""Words that a user may write instead of a type, each with the advice."""
_DIRECTORY = re.compile(r"\w[\w.@ -]*")
_STORE = re.compile(r"s3://[a-z0-9][a-z0-9.-]+(/[^/?#%\s]+)*")
_THRIFT = re.compile(r"thrift://[A-Za-z0-9._\[\]:-]+:\d{1,5}", re.ASCII)
_HTTP = re.compile(r"https?://[A-Za-z0-9._\[\]:-]+(/[^?#\s]*)?", re.ASCII)
_ENCRYPTED_AT = 16
_LEAST_PACKET = 64 << 10
"""The smallest `max-allowed-packet` that is accepted. With a smaller one, hardly a row would fit into a statement."""
_FIRST_EVENT = 4
"""The position of a log file's first event, after the magic number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSpec:
    """A source server, and the position at which reading of its log begins."""

    server: SourceConfig
    start: Position | str | None
    """A position, a GTID set, or None if the file gives neither. If there is a checkpoint, reading begins there."""
    use_gtid: bool
    """Whether the replicator reconnects by GTID instead of by position."""
    servers: tuple[SourceConfig, ...]
    """The server of `from` and its standbys, in the file's order; empty if there are no standbys."""
    failover_after: int
    """After this number of failed attempts to connect, the task looks for a standby."""

    @property
    def source_id(self) -> str:
        """The source's name in the task."""
        return self.server.source_id

    @property
    def standbys(self) -> tuple[SourceConfig, ...]:
        """The servers that may take over from the current one."""
        return tuple(one for one in self.servers if one != self.server)

    def at(self, address: str) -> SourceSpec:
        """Returns the source, read from its server with the address `host:port`; unchanged if it has no such server."""
        chosen = next((one for one in self.servers if f"{one.host}:{one.port}" == address), self.server)
        return replace(self, server=chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishTo:
    """The server to whose catalog the tables of a warehouse are published."""

    type: Literal["postgresql", "mysql", "hive", "rest"]
    host: str = ""
    port: int = 0
    user: str = ""
    password: str = field(default="", repr=False)
    tls: Tls = field(default_factory=Tls)
    database: str = ""
    metastore: str = ""
    """The address of a Hive metastore, which has no account."""
    uri: str = ""
    """The address of a REST catalog."""
    warehouse: str = ""
    """The catalog's name at the server of a REST catalog; empty if the server has only one catalog."""
    token_uri: str = ""
    """The address that gives tokens for a REST catalog; empty: the catalog itself."""
    scope: str = ""
    """The OAuth scope of the token for a REST catalog."""
    password_file: str = ""
    """The file from which the password comes; each login reads it again. Empty if there is no such file."""

    @property
    def place(self) -> str:
        """The product and the server's address, as messages name them."""
        return f"{self.type} {self.metastore or self.uri or f'{self.host}:{self.port}/{self.database}'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSpec:
    """A target: a server or a warehouse."""

    type: TargetType
    host: str
    port: int
    user: str
    password: str = field(repr=False)
    tls: Tls
    database: str
    """The database of PostgreSQL, or the datacenter; empty for MySQL, where each schema is a database."""
    meta_schema: str
    """The schema of PiDTS's own tables."""
    variables: tuple[tuple[str, str], ...] = ()
    """Variables that are set in each session with a MySQL target."""
    max_packet: int = 0
    """The largest statement in bytes, if a MySQL target allows larger ones; 0: as large as the server allows."""
    zone: str = ""
    """The zone from which the rows come; empty if there are no zones."""
    forwards: tuple[str, ...] = ()
    """The other zones whose changes the task forwards."""
    locks_gaps: bool = False
    """Whether a transaction that finds no row with a key prevents other sessions from writing a row with this key."""
    types: TypeMap = field(default_factory=TypeMap)
    """The types that the task file chooses for columns on PostgreSQL, and whether zero dates are errors or NULL."""
    warehouse: str = ""
    """The directory of a warehouse of Iceberg tables."""
    files: str = ""
    """The folder in an object store for the tables' files; empty: the files are in the warehouse's directory."""
    catalog: str = ""
    """The name of the catalog in the warehouse."""
    publish_to: PublishTo | None = None
    """The server to whose catalog the tables are also published."""
    metastore: str = ""
    """The address of the Hive metastore in which the tables are published; empty: the metastore in the warehouse."""
    password_file: str = ""
    """The file from which the password comes; empty if there is none."""
    keeps_changes: bool = False
    """Whether each table also gets a change table. It has all changes of the table, and is also published."""

    @property
    def place(self) -> str:
        """The kind of target and its address, for messages."""
        if self.warehouse:
            at = f", metastore {self.metastore}" if self.metastore else ""
            files = f", files {self.files}" if self.files else ""
            at += f", published to {self.publish_to.place}" if self.publish_to else ""
            return f"{self.type} {self.warehouse}, catalog {self.catalog}{files}{at}"
        return f"{self.type} {self.host}:{self.port}" + (f"/{self.database}" if self.database else "")

    @property
    def is_datacenter(self) -> bool:
        """Whether the target gets records of the changes instead of the rows."""
        return self.type == "datacenter"

    @property
    def allows_cutover(self) -> bool:
        """Whether an application can switch to the target: it has the source's tables, and is a database."""
        return not self.is_datacenter and not self.warehouse

    @property
    def server(self) -> Target:
        """The target to which rows are written. Drivers are loaded only here, so file mistakes are reported quickly."""
        from pidts.target import HiveTarget, IcebergTarget, MySqlTarget, PostgresTarget

        if self.warehouse:
            place = (self.warehouse, self.catalog, self.meta_schema, self.types.refuses_unreal)
            if self.type == "hive":
                return HiveTarget(*place, files=self.files, keeps_changes=self.keeps_changes)
            return IcebergTarget(*place, files=self.files)
        login = (self.host, self.port, self.user, self.password)
        if self.type == "postgresql":
            return PostgresTarget(
                *login,
                self.database,
                tls=self.tls,
                meta_schema=self.meta_schema,
                types=self.types,
                password_file=self.password_file,
            )
        return MySqlTarget(
            *login,
            tls=self.tls,
            meta_schema=self.meta_schema,
            variables=self.variables,
            max_packet=self.max_packet,
            zone=self.zone,
            forwards=self.forwards,
            locks_gaps=self.locks_gaps,
            password_file=self.password_file,
        )

    @property
    def server_catalog(self) -> ServerCatalog | None:
        """The catalog, on a server, to which the tables are published; None if `publish-to` is not given."""
        if (to := self.publish_to) is None:
            return None
        from pidts.target.iceberg import with_packages

        with with_packages("iceberg"):
            if to.type == "hive":
                from pidts.target.iceberg.hive_catalog import HiveCatalog

                return HiveCatalog(to.metastore, self.catalog)
            if to.type == "rest":
                from pidts.target.iceberg.rest_catalog import RestCatalog

                return RestCatalog(
                    to.uri,
                    to.warehouse,
                    to.user,
                    to.password,
                    to.token_uri,
                    to.scope,
                    self.catalog,
                    password_file=to.password_file,
                )
            from pidts.target.iceberg.jdbc_catalog import MySqlCatalog, PostgresCatalog
        kind = MySqlCatalog if to.type == "mysql" else PostgresCatalog
        return kind(
            to.host,
            to.port,
            to.user,
            to.database,
            self.catalog,
            to.password,
            to.tls,
            password_file=to.password_file,
        )


def read_target(section: Section, meta_schema: str) -> TargetSpec:
    """Reads `target-database`."""
    kind = section.choice("type", get_args(TargetType), "mysql", hints=_TYPES)
    if kind in ("iceberg", "hive"):
        return _read_warehouse(section, kind, meta_schema)
    database = section.text("database", "")
    if kind == "postgresql" and not database:
        raise section.error("database", "missing-key", "PostgreSQL needs the name of the database to connect to")
    if kind == "mysql" and database:
        raise section.error(
            "database", "bad-value", "a MySQL target keeps the names of the source's databases", "Remove it."
        )
    if kind == "datacenter":
        meta_schema = _datacenter(section, database, meta_schema)
    host, port, user, password, tls = _login(section, _PORTS[kind])
    if kind == "postgresql":
        _demand_ca(section, tls)
    variables = read_variables(section, mysql=kind != "postgresql")
    max_packet = 0
    if kind != "postgresql":
        max_packet = section.integer("max-allowed-packet", 0)
        if 0 < max_packet < _LEAST_PACKET:
            raise section.error("max-allowed-packet", "bad-value", f"expected at least {_LEAST_PACKET}, or 0")
    section.finish(dm_keys.SERVER)
    return TargetSpec(
        type=kind,  # type: ignore[arg-type]  # `choice` lets only these pass
        host=host,
        port=port,
        user=user,
        password=password,
        tls=tls,
        database=database,
        meta_schema=meta_schema,
        variables=variables,
        max_packet=max_packet,
        password_file=_password_file(section),
    )


def _read_warehouse(section: Section, kind: str, meta_schema: str) -> TargetSpec:
    """Reads a warehouse, which has no server, but a directory and the name of its catalog."""
    text = section.text("warehouse")
    if "://" in text and not text.startswith(LOCAL_URL):
        what = "the warehouse, with the catalog's database, is a directory of this machine"
        more = "The files of tables may be in an object store: files: s3://bucket/folder."
        raise section.error("warehouse", "not-supported", what, f"Write a path. {more}")
    warehouse = os.path.normpath(section.file("warehouse"))
    if any(each in warehouse for each in "?#%"):
        what = f"the path {warehouse} contains one of ? # %, which have another meaning in the addresses of its files"
        raise section.error("warehouse", "bad-value", what, "Choose another directory.")
    catalog = section.text("catalog", "lake")
    files = section.text("files", "").rstrip("/")
    if files and not _STORE.fullmatch(files):
        what = f"expected s3://bucket/folder, without any of ? # %, not {files!r}"
        raise section.error("files", "bad-value", what, "Without it, the files are in the warehouse.")
    metastore = section.text("metastore", "") if kind == "hive" else ""
    if metastore:
        _demand_thrift(section, metastore, "Without it, the metastore is in the warehouse.")
    if files and kind == "hive" and not metastore:
        what = "the metastore in the warehouse cannot have tables whose files are in an object store"
        todo = "Name a metastore that can read the store, metastore: thrift://host:port. Or remove files."
        raise section.error("files", "not-supported", what, todo)
    publish_to = _publish_to(section, kind)
    section.finish(dm_keys.SERVER)
    return TargetSpec(
        type=kind,  # type: ignore[arg-type]  # one of the two
        host="",
        port=0,
        user="",
        password="",
        tls=Tls(),
        database="",
        meta_schema=meta_schema,
        warehouse=warehouse,
        files=files,
        catalog=catalog,
        metastore=metastore,
        publish_to=publish_to,
    )


def _demand_ca(section: Section, tls: Tls) -> None:
    if tls.mode is Mode.VERIFY_CA and tls.ca is None:
        what = "verify_ca needs ssl-ca with PostgreSQL"
        raise section.error("security", "missing-key", what, "Give it, or use ssl-mode: verify_identity.")


def _demand_thrift(section: Section, metastore: str, todo: str = "") -> None:
    if not all(map(_THRIFT.fullmatch, metastore.split(","))):
        what = f"expected thrift://host:port, or several with commas, not {metastore!r}"
        raise section.error("metastore", "bad-value", what, todo)


def _publish_to(target: Section, kind: str) -> PublishTo | None:
    if not target.has("publish-to"):
        return None
    if kind == "hive":
        what = "a target of type hive cannot have publish-to: it always publishes to its own metastore"
        raise target.error("publish-to", "not-supported", what, "Remove it, or use type: iceberg.")
    section = target.section("publish-to")
    kind = section.choice("type", ("postgresql", "mysql", "hive", "rest"), "postgresql", hints=_TYPES)
    if kind == "rest":
        return _rest_catalog(section)
    if kind == "hive":
        metastore = section.text("metastore")
        _demand_thrift(section, metastore)
        section.finish()
        return PublishTo(type="hive", metastore=metastore)
    database = section.text("database")
    host, port, user, password, tls = _login(section, _PORTS[kind])
    file = _password_file(section)
    if kind == "postgresql":
        _demand_ca(section, tls)
    section.finish()
    return PublishTo(
        password_file=file,
        type="mysql" if kind == "mysql" else "postgresql",
        host=host,
        port=port,
        user=user,
        password=password,
        tls=tls,
        database=database,
    )


def _rest_catalog(section: Section) -> PublishTo:
    """Returns a REST catalog. Without `user`, its password is a token."""
    uri, token_uri = section.text("uri"), section.text("token-uri", "")
    for key, value in (("uri", uri), ("token-uri", token_uri)):
        if value and not _HTTP.fullmatch(value):
            raise section.error(key, "bad-value", f"expected https://host/path, not {value!r}")
    user, password, file = section.text("user", ""), _password(section), _password_file(section)
    if user and not password:
        raise section.error("user", "missing-key", "an account needs password-file", "Give it, or remove user.")
    warehouse, scope = section.text("warehouse", ""), section.text("scope", "")
    section.finish()
    return PublishTo(
        type="rest",
        uri=uri,
        warehouse=warehouse,
        user=user,
        password=password,
        token_uri=token_uri,
        scope=scope,
        password_file=file,
    )


def _datacenter(section: Section, database: str, meta_schema: str) -> str:
    """Returns the meta schema of a channel: the task's own tables are in the datacenter itself."""
    if not database:
        raise section.error(
            "database", "missing-key", "the name of the database that is the channel's datacenter is missing"
        )
    if not META_SCHEMA.fullmatch(database) or database.lower() in SYSTEM_SCHEMAS:
        what = f"expected a name in letters, digits and '_', at most 63 of them, not {database!r}"
        raise section.error("database", "bad-value", what)
    if meta_schema != USUAL_META_SCHEMA:
        what = "a channel keeps its own tables in its datacenter, so it has no meta-schema"
        raise section.error("database", "not-supported", what, "Remove meta-schema.")
    return database


def read_source(instance: Section) -> tuple[SourceSpec, bool, list[Section]]:
    """Returns an instance's source, whether the source's names are case-sensitive, and the source's event filters."""
    source_id = directory_name(instance, "source-id", longest=32)
    inline = instance.has("from")
    server = instance if inline else _source_file(instance, source_id)
    use_gtid = server.flag("enable-gtid", default=False)
    server_id = server.integer("server-id", 0, maximum=2**32 - 1)
    case_sensitive = server.flag("case-sensitive", default=False)
    filters = server.sections("filters")
    login = server.required_section("from")
    host, port, user, password, tls = _login(login, _PORTS["mysql"])
    login.finish(dm_keys.SERVER)
    file = _password_file(login)
    config = SourceConfig(host, port, user, password, source_id, server_id or None, tls=tls, password_file=file)
    standbys = _standbys(server, config)
    failover_after = server.integer("failover-after", 3, minimum=1)
    if not inline:
        server.finish(dm_keys.SOURCE)
    start = _start(instance.section("meta"), use_gtid=use_gtid)
    spec = SourceSpec(
        server=config,
        start=start,
        use_gtid=use_gtid,
        servers=(config, *standbys) if standbys else (),
        failover_after=failover_after,
    )
    return spec, case_sensitive, filters


def _standbys(server: Section, first: SourceConfig) -> tuple[SourceConfig, ...]:
    """Returns the servers that may take over. A standby's missing keys are taken from `from`."""
    found: list[SourceConfig] = []
    for one in server.sections("standbys"):
        host, port = one.text("host"), one.integer("port", first.port, minimum=1, maximum=65535)
        if (host, port) in {(other.host, other.port) for other in (first, *found)}:
            raise one.error("host", "duplicate-key", f"{host}:{port} is named twice", "Name each server once.")
        user = one.text("user", first.user)
        own = one.has("password") or one.has("password-file")
        password, file = (_password(one), _password_file(one)) if own else (first.password, first.password_file)
        tls = _tls(one) if one.has("security") else first.tls
        one.finish(dm_keys.SERVER)
        found.append(replace(first, host=host, port=port, user=user, password=password, tls=tls, password_file=file))
    return tuple(found)


def directory_name(section: Section, key: str, longest: int = 100) -> str:
    """Returns a name that the user has chosen. A directory in the relay gets this name."""
    name = section.text(key)
    if len(name) > longest or not _DIRECTORY.fullmatch(name):
        raise section.error(
            key, "bad-value", f"expected at most {longest} letters, digits, '.', '_', '-', '@' or spaces, not {name!r}"
        )
    return name


def _login(section: Section, port: int) -> tuple[str, int, str, str, Tls]:
    host = section.text("host")
    port = section.integer("port", port, minimum=1, maximum=65535)
    return host, port, section.text("user"), _password(section), _tls(section)


def _tls(server: Section) -> Tls:
    """Reads DM's block `security`, with PiDTS's key `ssl-mode`, which has the values of MySQL's clients."""
    security = server.section("security")

    def path(key: str) -> str:
        return str(security.file(key)) if security.text(key, "") else ""

    mode = security.text("ssl-mode", "")
    try:
        tls = Tls.of(mode, path("ssl-ca"), path("ssl-cert"), path("ssl-key"))
    except ValueError as error:
        raise server.error("security", "bad-value", str(error)) from None
    security.finish(dm_keys.SECURITY)
    try:
        tls.check_files()
    except ConfigError as error:
        what = f"{error.where.file}: {error.what}"
        raise server.error("security", error.code, what, error.todo) from None
    return tls


def _password(section: Section) -> str:
    if not section.has("password-file"):
        return _literal_password(section)
    if section.has("password"):
        raise section.error("password-file", "duplicate-key", "password is given too", "Keep one of them.")
    path = section.file("password-file")
    try:
        password = read_password(path)
        mode = path.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise section.error("password-file", "unreadable-file", f"{path} cannot be read: {reason}") from None
    if mode & (stat.S_IRGRP | stat.S_IROTH):
        section.note("password-file", f"other users of this machine can read it; chmod 600 {path}")
    return password


def _password_file(section: Section) -> str:
    """Returns the password file, which each login reads again; empty if there is none.

    Also empty for a pipe, which can be read only once.
    """
    if not section.has("password-file"):
        return ""
    path = section.file("password-file")
    return str(path) if path.is_file() else ""


def _literal_password(section: Section) -> str:
    password = section.text("password", "")
    if _looks_encrypted(section.literal("password") if password else ""):
        raise section.error(
            "password",
            "encrypted-password",
            "this looks like a password that dmctl has encrypted; it cannot be decrypted here",
            "Put the password itself into a file (password-file) or the environment (password: ${NAME}).",
        )
    return password


def _looks_encrypted(written: str) -> bool:
    """Whether a text has the form of dmctl's passwords: the Base64 text of 16 random bytes, an @, and more bytes."""
    try:
        data = base64.b64decode(written, validate=True)
    except ValueError:
        return False
    return len(data) > _ENCRYPTED_AT and data[_ENCRYPTED_AT : _ENCRYPTED_AT + 1] == b"@"


def _start(meta: Section, *, use_gtid: bool) -> Position | str | None:
    file = meta.text("binlog-name", "")
    offset = meta.integer("binlog-pos", 0)
    gtid = meta.text("binlog-gtid", "")
    meta.finish()
    if gtid and (use_gtid or not file):
        try:
            return str(parse_gtid_set(gtid))
        except ValueError as error:
            raise meta.error("binlog-gtid", "bad-value", str(error)) from None
    if not file:
        if offset:
            raise meta.error("binlog-pos", "missing-key", "a position also needs binlog-name")
        return None
    try:
        return Position(file, max(offset, _FIRST_EVENT))
    except ValueError as error:
        raise meta.error("binlog-name", "bad-value", str(error)) from None


def _source_file(instance: Section, source_id: str) -> Section:
    """Returns the DM source file with this `source-id` from the folder of the task file."""
    document = instance.document
    directory = document.file.absolute().parent
    found: list[tuple[Path, Item]] = []
    broken: list[str] = []
    for path in sorted(file for file in directory.iterdir() if file.suffix in {".yaml", ".yml"} and file.is_file()):
        if path == document.file.absolute():
            continue
        try:
            root = read_yaml(read_small(path), path)
        except (ConfigError, OSError, UnicodeDecodeError):
            broken.append(path.name)
            continue
        if isinstance(root.value, dict) and "source-id" in root.value and root.value["source-id"].text == source_id:
            found.append((path, root))
    if len(found) > 1:
        names = ", ".join(path.name for path, _ in found)
        raise instance.error(
            "source-id", "ambiguous-name", f"several files beside the task file describe {source_id!r}: {names}"
        )
    if not found:
        hint = f" (not readable as YAML: {', '.join(broken)})" if broken else ""
        raise instance.error(
            "source-id",
            "unknown-name",
            f"no YAML file in {directory} has the source-id {source_id!r}{hint}",
            "Put DM's source file beside the task file, or write 'from: {host, port, user, password}' here.",
        )
    path, root = found[0]
    section = Section(root, replace(document, file=path), f"source {source_id}")
    document.roots.append(section)
    section.text("source-id")
    return section


_NAME = re.compile(r"[a-z_][a-z0-9_]*", re.ASCII)
_EXACT = "no effect: PiDTS sets this variable itself, so that values arrive as the source has them"
_CHECKED = "no effect: parent and child rows arrive in any order, and the source has already checked them"
_ONE_TRANSACTION = "no effect: rows and their checkpoint commit in one transaction, and PiDTS chooses its settings"
_OFF, _ON = ("0", "off", "false"), ("1", "on", "true")

_OWN: dict[str, tuple[str, tuple[str, ...]]] = {
    "sql_mode": (_EXACT, ()),
    "time_zone": (_EXACT, ("+00:00", "utc")),
    "names": (_EXACT, ("utf8mb4",)),
    "character_set_client": (_EXACT, ("utf8mb4",)),
    "character_set_connection": (_EXACT, ("utf8mb4",)),
    "character_set_results": (_EXACT, ("utf8mb4",)),
    "collation_connection": (_EXACT, ()),
    "foreign_key_checks": (_CHECKED, _OFF),
    "unique_checks": ("no effect: unique keys are always checked", _ON),
    "autocommit": (_ONE_TRANSACTION, _ON),
    "transaction_isolation": (_ONE_TRANSACTION, ("read-committed",)),
    "tx_isolation": (_ONE_TRANSACTION, ("read-committed",)),
    "tidb_txn_mode": (_ONE_TRANSACTION, ("pessimistic",)),
}
"""Variables that PiDTS sets itself, each with the note about a value in the file, and the values that need no note."""

_CUT = "rows and warnings that PiDTS reads from the target would be cut off"
_FALSE = "statements of PiDTS would have another effect"
_REFUSED = {
    "sql_select_limit": _CUT,
    "max_error_count": _CUT,
    "sql_safe_updates": _FALSE,
    "sql_auto_is_null": _FALSE,
    "sql_quote_show_create": _FALSE,
    "timestamp": _FALSE,
    "insert_id": _FALSE,
    "last_insert_id": _FALSE,
    "gtid_next": _FALSE,
    "transaction_read_only": "nothing could be written",
    "tx_read_only": "nothing could be written",
}


def read_variables(server: Section, *, mysql: bool) -> tuple[tuple[str, str], ...]:
    """Returns the variables of `session` to set in each connection to the target.

    If PiDTS sets a variable itself, so that values arrive unchanged, the file's value has no effect, and a note says
    so. Variables that would change the results that PiDTS reads from the target are refused.
    """
    session = server.section("session")
    if session.names and not mysql:
        server.note("session", "no effect: these are variables of MySQL's sessions")
        return ()
    taken = []
    for key in session.names:
        name, value = key.lower(), session.text(key, "")
        bare = value.strip("'\" ")
        if not _NAME.fullmatch(name):
            raise session.error(key, "bad-value", f"{key!r} is not the name of a variable")
        if name in _REFUSED:
            raise session.error(key, "not-supported", _REFUSED[name], "Remove it.")
        if name in _OWN:
            note, usual = _OWN[name]
            if bare.lower() not in usual:
                session.note(key, note)
            continue
        if name.startswith("tidb_"):
            session.note(key, "set only where the target is TiDB")
        taken.append((name, bare))
    return tuple(taken)
