"""A Hive metastore as a catalog of Iceberg tables: a property of each table names its metadata file.

A metastore changes one table at a time, so readers may see new states of some tables of a publication before others.
New tables and new states come first and removals last, so a renamed table has both names for a moment.

Each change names the metadata file that it expects (`expected_parameter_key`). If the table has another metadata file
by then, Hive 2.3.10, 3.1.4, 4 and later refuse the change; earlier versions do not check this.

The metastore may show earlier columns of a table, since it may refuse to change columns. Readers of Iceberg tables take
the columns from the metadata file.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from hive_metastore.ThriftHiveMetastore import Client
from hive_metastore.ttypes import (
    AlreadyExistsException,
    Database,
    EnvironmentContext,
    FieldSchema,
    InvalidOperationException,
    MetaException,
    NoSuchObjectException,
    SerDeInfo,
    StorageDescriptor,
    Table,
)
from pyiceberg.catalog.hive import SchemaToHiveConverter
from pyiceberg.schema import visit
from pyiceberg.table.metadata import TableMetadata
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TApplicationException, TException
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TTransportException

from pidts.model import TableName, Transient, Where
from pidts.target.iceberg.metadata_file import MetadataFile
from pidts.target.iceberg.server_catalog import CatalogAction, CatalogUpdate, first_line, step

_ANSWER_SECONDS = 60
_NAME = re.compile(r"[a-z0-9_]+")
_METADATA, _PREVIOUS = "metadata_location", "previous_metadata_location"


@dataclass(frozen=True, slots=True)
class HiveCatalog:
    """The configuration of the catalog."""

    metastore: str
    """`thrift://host:port`, or several addresses of one metastore, separated by commas."""
    catalog: str = "lake"
    """The catalog's name in the warehouse."""

    @property
    def place(self) -> str:
        """The address, and the catalog whose tables are published there."""
        return f"hive {self.metastore}, catalog {self.catalog}"

    def move(self, moves: Sequence[CatalogUpdate]) -> Mapping[TableName, str]:
        """Brings the tables to their next states one after the other, removals last."""
        problems = dict[TableName, str]()
        with self._client() as client:
            for each in sorted(moves, key=lambda one: one.goal is None):
                with _mapped(each.table):
                    if problem := self._moved(client, each):
                        problems[each.table] = problem
        return problems

    def check(self) -> None:
        """Asks the metastore for its databases; raises if it does not answer."""
        with self._client() as client, _mapped(None):
            client.get_all_databases()

    @contextmanager
    def _client(self) -> Iterator[Any]:
        errors = []
        for address in self.metastore.split(","):
            parts = urlsplit(address)
            socket = TSocket(parts.hostname, parts.port)
            socket.setTimeout(_ANSWER_SECONDS * 1000)
            transport = TBufferedTransport(socket)
            try:
                transport.open()
            except (TTransportException, OSError) as error:
                errors.append(f"{address}: {error}")
                continue
            try:
                yield Client(TBinaryProtocol(transport))
            finally:
                transport.close()
            return
        raise Transient("metastore-lost", f"no metastore answers: {'; '.join(errors)}")

    def _moved(self, client: Any, move: CatalogUpdate) -> str:
        """Brings a table to its next state; returns the reason if the table is not changed."""
        database, name = move.table.schema, move.table.name
        if not (_NAME.fullmatch(database) and _NAME.fullmatch(name)):
            refused = "a metastore accepts only names of a-z, 0-9 and _: use a route that gives the table such a name"
            return "" if move.goal is None else refused
        there = _table(client, database, name)
        found = step(move, None if there is None else _location(there))
        if isinstance(found, str):
            return found
        try:
            match found:
                case CatalogAction.CREATE:
                    _create(client, move)
                case CatalogAction.REPLACE:
                    _replace(client, there, move)
                case CatalogAction.REMOVE:
                    _remove(client, there, move)
                case CatalogAction.NOTHING if move.goal is None and move.former:
                    _drop_aside(client, database, move.former)
        except (MetaException, InvalidOperationException, TApplicationException) as error:
            if _is_late(str(error)):
                raise
            return f"the metastore answers: {first_line(error)}"
        return ""


def _table(client: Any, database: str, name: str) -> Any:
    with suppress(NoSuchObjectException):
        return client.get_table(database, name)
    return None


def _location(table: Any) -> str:
    """Returns the path of a table's metadata file; empty for a table that is not an Iceberg table."""
    return str((table.parameters or {}).get(_METADATA, ""))


def _create(client: Any, move: CatalogUpdate) -> None:
    database, goal = move.table.schema, str(move.goal)
    metadata = MetadataFile.read(move.table, goal).metadata
    stored = StorageDescriptor(
        cols=_columns(metadata),
        location=metadata.location,
        inputFormat="org.apache.hadoop.mapred.FileInputFormat",
        outputFormat="org.apache.hadoop.mapred.FileOutputFormat",
        serdeInfo=SerDeInfo(serializationLib="org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"),
    )
    made = Table(
        dbName=database,
        tableName=move.table.name,
        sd=stored,
        tableType="EXTERNAL_TABLE",
        partitionKeys=[],
        parameters={"EXTERNAL": "TRUE", "table_type": "ICEBERG", _METADATA: goal},
    )
    if database not in client.get_all_databases():
        with suppress(AlreadyExistsException):
            client.create_database(Database(name=database, parameters={}))
    client.create_table(made)


def _replace(client: Any, table: Any, move: CatalogUpdate) -> None:
    before, old = _location(table), table.sd.cols
    metadata = MetadataFile.read(move.table, str(move.goal)).metadata
    table.parameters = {**table.parameters, _METADATA: str(move.goal), _PREVIOUS: before}
    table.sd.cols, table.sd.location = _columns(metadata), metadata.location
    try:
        _alter(client, move, table, before)
    except (MetaException, InvalidOperationException) as error:
        if _is_late(str(error)) or "incompatible" not in str(error):
            raise
        table.sd.cols = old
        _alter(client, move, table, before)


def _remove(client: Any, table: Any, move: CatalogUpdate) -> None:
    """Removes a table; its files stay. Before that, the table gets a name that only this removal uses.

    So if the metastore completes the removal late, it never removes a new table of the old name.
    """
    before = _location(table)
    table.tableName = _aside(before)
    _alter(client, move, table, before)
    _drop_aside(client, move.table.schema, before)


def _drop_aside(client: Any, database: str, former: str) -> None:
    with suppress(NoSuchObjectException):
        client.drop_table(database, _aside(former), False)  # noqa: FBT003 - without its files


def _aside(location: str) -> str:
    return f"pidts_dropped_{hashlib.sha256(location.encode()).hexdigest()[:16]}"


def _alter(client: Any, move: CatalogUpdate, table: Any, before: str) -> None:
    how = {"expected_parameter_key": _METADATA, "expected_parameter_value": before, "DO_NOT_UPDATE_STATS": "true"}
    client.alter_table_with_environment_context(
        move.table.schema, move.table.name, table, EnvironmentContext(properties=how)
    )


def _columns(metadata: TableMetadata) -> list[Any]:
    converter = SchemaToHiveConverter(hive2_compatible=True)
    return [FieldSchema(each.name, visit(each.field_type, converter), each.doc) for each in metadata.schema().fields]


@contextmanager
def _mapped(table: TableName | None) -> Iterator[None]:
    """Converts errors to `Transient`, after which the run tries again."""
    try:
        yield
    except (TTransportException, OSError) as error:
        what = f"the metastore does not answer: {first_line(error)}"
        raise Transient("metastore-lost", what, where=Where(table=str(table or ""))) from error
    except TException as error:
        what = f"the metastore answers: {first_line(error)}"
        raise Transient("metastore-busy", what, where=Where(table=str(table or ""))) from error


def _is_late(said: str) -> bool:
    """Whether the metastore refuses a change because the table is not in the expected state."""
    return "has been modified" in said or ("parameter" in said and "expected" in said)
