"""A REST catalog of Iceberg tables.

A server with a REST catalog writes the metadata files of its tables itself. So a table of the server is made equal to a
metadata file of the warehouse. The table gets the schemas, snapshots, references and properties that it lacks, and
loses the snapshots that the warehouse has expired. A property names the metadata file of the warehouse. A tag whose
name is computed from this file's path points to the file's current snapshot.

A commit requires that the tag of the former metadata file still exists, and that the table's snapshot, schema and
identity have not changed. The commit removes the tag. So a commit fails if another program has changed the table. It
also fails if it comes late: a publisher was killed, and the server completes the publisher's commit after a later
commit. (A table without rows has no tag: there, a late commit fails only if the schema has changed.)

A new table is registered from a copy of the metadata file, which already has the property and the tag. The copy names
no earlier metadata files: servers may remove the earlier files that a table names, and the warehouse needs its own
files.

Two states cannot be reached by a commit: the name now belongs to another table, or the table has returned to an earlier
schema. Then the table is removed and registered again. A server does not check the state of a table that it removes, so
a removal comes directly after the state was read. If a publisher was killed and the server completes the removal late,
a new table of this name is missing until its next change.

A server changes one table at a time. Removals come first, since servers may refuse a second table with the same files.
So a table that was renamed is missing for a moment.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.catalog.rest import RestCatalog as Client
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    CommitFailedException,
    CommitStateUnknownException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    OAuthError,
    RESTError,
    ServerError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    TooManyRequestsError,
    UnauthorizedError,
)
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AddSnapshotUpdate,
    AssertCurrentSchemaId,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetCurrentSchemaUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
)
from requests import PreparedRequest, RequestException, Response, Session
from requests.adapters import HTTPAdapter

from pidts.login.password_file import present_password
from pidts.model import TableName, Transient, Where
from pidts.target.iceberg.files import remove, write_bytes
from pidts.target.iceberg.metadata_file import MetadataFile
from pidts.target.iceberg.server_catalog import CatalogAction, CatalogUpdate, first_line, step

_CONNECT_SECONDS, _ANSWER_SECONDS = 10, 60
_METADATA, _SCHEMA = "pidts.metadata", "pidts.schema-id"
_TAG = "pidts-"
_KEPT = {"gc.enabled": "false", "write.metadata.delete-after-commit.enabled": "true"}
"""The properties by which programs of the server remove no data files, and the server removes old metadata files."""
_LATER = (
    AuthorizationExpiredError,
    CommitFailedException,
    CommitStateUnknownException,
    OAuthError,
    ServerError,
    ServiceUnavailableError,
    TooManyRequestsError,
    UnauthorizedError,
)
"""Errors after which the outcome of a request is unknown, or the next attempt may succeed."""


@dataclass(frozen=True, slots=True)
class RestCatalog:
    """The configuration of the catalog."""

    uri: str
    warehouse: str = ""
    """The name by which the server knows the catalog, if the server has several."""
    user: str = ""
    """The client's name at the server that gives tokens; empty if the password is a token, or if there is none."""
    password: str = field(default="", repr=False)
    token_uri: str = ""
    """The address of the server that gives tokens; empty if the catalog itself gives them."""
    scope: str = ""
    catalog: str = "lake"
    """The catalog's name in the warehouse."""
    password_file: str = ""
    """The file from which the password comes; each publication reads it again. Empty if there is no such file."""

    @property
    def place(self) -> str:
        """The server's address, the server's name for the catalog, and the catalog whose tables are published."""
        there = f", warehouse {self.warehouse}" if self.warehouse else ""
        return f"rest {self.uri}{there}, catalog {self.catalog}"

    def move(self, moves: Sequence[CatalogUpdate]) -> Mapping[TableName, str]:
        """Brings the tables to their next states one after the other, removals first."""
        problems = dict[TableName, str]()
        with self._client() as client:
            for each in sorted(moves, key=lambda one: one.goal is not None):
                with _mapped(each.table):
                    if problem := _moved(client, each):
                        problems[each.table] = problem
        return problems

    def check(self) -> None:
        """Asks the catalog for its namespaces; raises if it does not answer."""
        with self._client() as client, _mapped(None):
            client.list_namespaces()

    @contextmanager
    def _client(self) -> Iterator[_Client]:
        password = present_password(self.password_file, self.password)
        secret = f"{self.user}:{password}" if self.user else ""
        properties = {
            "uri": self.uri,
            "warehouse": self.warehouse,
            "credential": secret,
            "token": "" if self.user else password,
            "oauth2-server-uri": self.token_uri or f"{self.uri.rstrip('/')}/v1/oauth/tokens",
            "scope": self.scope,
        }
        with _mapped(None):
            client = _Client("server", **{key: value for key, value in properties.items() if value})
        with client:
            yield client


class _Client(Client):
    """A client that waits a limited time for an answer."""

    def _config_headers(self, session: Session) -> None:
        super()._config_headers(session)  # type: ignore[no-untyped-call, unused-ignore]
        del session.headers["X-Iceberg-Access-Delegation"]  # no files are read with the server's credentials
        for scheme in ("http://", "https://"):
            session.mount(scheme, _Adapter())


class _Adapter(HTTPAdapter):
    def send(self, request: PreparedRequest, *words: Any, **named: Any) -> Response:
        return super().send(request, *words, **(named | {"timeout": (_CONNECT_SECONDS, _ANSWER_SECONDS)}))


def _moved(client: _Client, move: CatalogUpdate) -> str:
    """Brings a table to its next state; returns the reason if the table is not changed."""
    there = _table(client, move.table)
    found = step(move, None if there is None else _shown(there))
    if isinstance(found, str):
        return found
    try:
        match found:
            case CatalogAction.CREATE:
                return _create(client, move)
            case CatalogAction.REPLACE if there is not None:
                return _replace(client, there, move)
            case CatalogAction.REMOVE:
                _remove(client, move.table)
    except _LATER:
        raise
    except (RESTError, NotImplementedError) as error:
        return f"the catalog answers: {first_line(error)}"
    return ""


def _table(client: _Client, name: TableName) -> Table | None:
    with suppress(NoSuchTableError, NoSuchNamespaceError):
        return client.load_table((name.schema, name.name))
    return None


def _shown(table: Table) -> str:
    """Returns the path of the warehouse's metadata file whose state the server's table has.

    If there is no such file, returns the path of the metadata file that the server names for the table.
    """
    metadata = table.metadata
    named, current = metadata.properties.get(_METADATA, ""), metadata.current_snapshot_id
    tag = metadata.refs.get(_tag(named))
    is_same = (tag.snapshot_id if tag else None) == current and metadata.properties.get(_SCHEMA) == str(
        metadata.current_schema_id
    )
    return named if named and is_same else table.metadata_location


def _tag(location: str) -> str:
    return _TAG + hashlib.sha256(location.encode()).hexdigest()[:16]


def _goal(move: CatalogUpdate) -> TableMetadata:
    """Returns the metadata that the server's table should have."""
    location = str(move.goal)
    metadata = MetadataFile.read(move.table, location).metadata
    ours = {_METADATA: location, _SCHEMA: str(metadata.current_schema_id), **_KEPT}
    refs = dict(metadata.refs)
    if (current := metadata.current_snapshot_id) is not None:
        refs[_tag(location)] = SnapshotRef(snapshot_id=current, snapshot_ref_type=SnapshotRefType.TAG)
    return metadata.model_copy(update={"metadata_log": [], "refs": refs, "properties": {**metadata.properties, **ours}})


def _create(client: _Client, move: CatalogUpdate) -> str:
    goal, name = _goal(move), move.table
    copy = f"{str(move.goal).removesuffix('.metadata.json')}-{uuid.uuid4().hex}.published.metadata.json"
    with suppress(NamespaceAlreadyExistsError):
        client.create_namespace((name.schema,))
    write_bytes(copy, goal.model_dump_json().encode())
    try:
        client.register_table((name.schema, name.name), copy)
    except TableAlreadyExistsError as error:
        remove(copy)
        if _table(client, name) is None:
            return "the catalog already has a view with this name, or another name that it treats as equal"
        raise CommitFailedException("another program has created the table meanwhile") from error
    except _LATER:
        raise
    except (RESTError, NotImplementedError):
        remove(copy)
        raise
    return ""


def _replace(client: _Client, table: Table, move: CatalogUpdate) -> str:
    goal, before = _goal(move), table.metadata
    updates = _updates(before, goal)
    if updates is None:
        _remove(client, move.table)
        return _create(client, move)
    current = before.current_snapshot_id
    demands = [
        AssertTableUUID(uuid=before.table_uuid),
        AssertCurrentSchemaId(current_schema_id=before.current_schema_id),
        AssertRefSnapshotId(ref="main", snapshot_id=current),
    ]
    if (tag := _tag(before.properties.get(_METADATA, ""))) in before.refs:
        demands.append(AssertRefSnapshotId(ref=tag, snapshot_id=current))
    client.commit_table(table, tuple(demands), tuple(updates))
    return ""


def _updates(before: TableMetadata, goal: TableMetadata) -> list[TableUpdate] | None:
    """Returns the changes that turn `before` into `goal`; None if a server cannot make these changes."""
    if (before.table_uuid, before.location) != (goal.table_uuid, goal.location):
        return None
    known, last = {each.schema_id: each for each in before.schemas}, max(each.schema_id for each in before.schemas)
    schemas = sorted((each for each in goal.schemas if each.schema_id not in known), key=lambda one: one.schema_id)
    for number, each in enumerate(schemas, start=last + 1):
        # The server gives a schema the next number, or the number of an equal schema.
        if each.schema_id != number or any(each.as_struct() == one.as_struct() for one in known.values()):
            return None
        known[number] = each
    there = {each.snapshot_id for each in before.snapshots}
    wanted = {each.snapshot_id for each in goal.snapshots}
    snapshots = sorted(
        (each for each in goal.snapshots if each.snapshot_id not in there), key=lambda one: one.sequence_number or 0
    )
    if any((each.sequence_number or 0) <= before.last_sequence_number for each in snapshots):
        return None
    if before.current_snapshot_id is not None and goal.current_snapshot_id is None:
        return None
    updates: list[TableUpdate] = [AddSchemaUpdate(schema=each) for each in schemas]
    if before.current_schema_id != goal.current_schema_id:
        updates.append(SetCurrentSchemaUpdate(schema_id=goal.current_schema_id))
    updates += [AddSnapshotUpdate(snapshot=each) for each in snapshots]
    updates += [
        SetSnapshotRefUpdate(
            ref_name=name,
            type=ref.snapshot_ref_type,
            snapshot_id=ref.snapshot_id,
            max_ref_age_ms=ref.max_ref_age_ms,
            max_snapshot_age_ms=ref.max_snapshot_age_ms,
            min_snapshots_to_keep=ref.min_snapshots_to_keep,
        )
        for name, ref in goal.refs.items()
        if before.refs.get(name) != ref
    ]
    updates += [
        RemoveSnapshotRefUpdate(ref_name=name)
        for name in before.refs
        if name.startswith(_TAG) and name not in goal.refs
    ]
    updates += [RemoveSnapshotsUpdate(snapshot_ids=[each]) for each in sorted(there - wanted)]
    changed = {key: value for key, value in goal.properties.items() if before.properties.get(key) != value}
    return [*updates, SetPropertiesUpdate(updates=changed)]


def _remove(client: _Client, name: TableName) -> None:
    with suppress(NoSuchTableError):
        client.drop_table((name.schema, name.name))


@contextmanager
def _mapped(table: TableName | None) -> Iterator[None]:
    """Converts errors to `Transient`, after which the run tries again."""
    try:
        yield
    except RequestException as error:
        what = f"the REST catalog does not answer: {first_line(error)}"
        raise Transient("target-lost", what, where=Where(table=str(table or ""))) from error
    except (RESTError, *_LATER) as error:
        what = f"the REST catalog answers: {first_line(error)}"
        raise Transient("target-busy", what, where=Where(table=str(table or ""))) from error
