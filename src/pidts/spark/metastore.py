"""Talks to a Hive metastore through the client in PySpark's jars, which runs in a separate JVM.

Spark is not started in this JVM. The JVM exists for one publication. It may end at any point, since each call is one
transaction of the metastore. Without an address, the metastore itself runs in this JVM, with a Derby database in a
folder. Only one process at a time can use this database.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf
from pyspark.errors import PySparkRuntimeError

from pidts.model import Halted, Transient, Where
from pidts.spark.session import end_jvm, not_started, start_gateway

_END_SECONDS = 10.0
_LOST = ("TTransportException", "TProtocolException")
_STATE = "pidts.state"
"""`Metastore.switch` succeeds only if the table still has the expected value of this property.

If the table has another value, Hive 2.3.10, 3.1.4, 4 and later refuse the switch.
"""
_PARQUET = "org.apache.hadoop.hive.ql.io.parquet."
_EMBEDDED = {
    "hive.metastore.uris": "",
    "datanucleus.schema.autoCreateAll": "true",
    "hive.metastore.schema.verification": "false",
    # Columns are found by name, and not by their index. If a column is dropped, the next columns move up in the list,
    # so the types at their indexes change.
    "hive.metastore.disallow.incompatible.col.type.changes": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MetastoreTable:
    """A table as the metastore has it, or should have it."""

    database: str
    name: str
    location: str
    columns: Sequence[tuple[str, str]]
    partitions: Sequence[tuple[str, str]] = ()
    """The partition columns; empty: all files are in one folder."""
    properties: Mapping[str, str]
    state: str = ""
    """The value that the next switch has to find in `_STATE`; if empty, the name of the table's folder is used."""

    def __str__(self) -> str:
        return f"{self.database}.{self.name}"


class Metastore:
    """One connection to a metastore."""

    def __init__(self, jvm: Any, client: Any) -> None:
        self._jvm, self._client = jvm, client
        self._api = jvm.org.apache.hadoop.hive.metastore.api

    def table(self, database: str, name: str) -> MetastoreTable | None:
        """Returns a table; None if it does not exist."""
        with _mapped(f"{database}.{name}"):
            if not self._client.tableExists(database, name):
                return None
            found = self._client.getTable(database, name)
            return MetastoreTable(
                database=database,
                name=name,
                location=str(found.getSd().getLocation() or ""),
                columns=_columns(found.getSd()),
                properties=self._dict(found.getParameters()),
            )

    def create(self, table: MetastoreTable, folder: str) -> None:
        """Adds a table. If the database does not exist, it is created in `folder`."""
        with _mapped(str(table)):
            if table.database not in _each(self._client.getAllDatabases()):
                made = self._api.Database(table.database, None, folder, self._jvm.java.util.HashMap())
                self._client.createDatabase(made)
            self._client.createTable(self._filled(self._api.Table(), table))

    def switch(self, table: MetastoreTable, before: MetastoreTable) -> None:
        """Gives a table other columns, another location and other properties, all in one step.

        The table's partitions get the new columns in the same transaction.
        """
        with _mapped(str(table)):
            found = self._client.getTable(table.database, table.name)
            self._alter(before, self._filled(found, table))

    def put_partition(self, table: MetastoreTable, value: str, location: str) -> None:
        """Adds a partition with its folder to a table, if the table has no partition of this value.

        If the partition exists and lacks the table's new columns, a second call sets them in this partition. This call
        is made only for such a partition: if it arrived late, from a killed process, the metastore would not refuse it.
        """
        with _mapped(f"{table} partition {value}"):
            ((key, _),) = table.partitions
            made = self._api.Partition()
            made.setDbName(table.database)
            made.setTableName(table.name)
            made.setValues(self._list([value]))
            made.setSd(self._stored(table.columns, location))
            made.setParameters(self._map({}))
            self._client.add_partitions(self._list([made]), True, False)  # noqa: FBT003 - ifNotExists, needResults
            names = self._list([f"{key}={value}"])
            (found,) = _each(self._client.getPartitionsByNames(table.database, table.name, names))
            if _columns(found.getSd()) != list(table.columns):
                found.setSd(self._stored(table.columns, location))
                self._client.alter_partition(table.database, table.name, found, self._how({}))

    def partitions(self, database: str, name: str) -> list[str]:
        """Returns the values of a table's partitions."""
        with _mapped(f"{database}.{name}"):
            found = self._client.listPartitionNames(database, name, -1)
            joined = str(self._jvm.java.lang.String.join("\n", found))  # one call instead of one for each value
            return sorted(each.partition("=")[2] for each in joined.splitlines())

    def drop_partition(self, table: MetastoreTable, value: str) -> None:
        """Removes a partition, if it exists, but not its files."""
        with _mapped(f"{table} partition {value}"):
            ((key, _),) = table.partitions
            names = self._list([f"{key}={value}"])
            if _each(self._client.getPartitionsByNames(table.database, table.name, names)):
                values = self._list([value])
                self._client.dropPartition(table.database, table.name, values, False)  # noqa: FBT003 - deleteData

    def drop(self, table: MetastoreTable) -> None:
        """Removes a table, but not its files, if its property `pidts.state` still has the value in `table`.

        The table first gets a name that only this removal uses. So if a call arrives late, it removes the table of this
        name, and not a new table under the old name.
        """
        with _mapped(str(table)):
            found = self._client.getTable(table.database, table.name)
            found.setTableName(_aside(table.location))
            self._alter(table, found)
        self.drop_aside(table.database, table.location)

    def drop_aside(self, database: str, location: str) -> None:
        """Completes the removal of a table at this location, if a `drop` was interrupted."""
        name = _aside(location)
        with _mapped(f"{database}.{name}"):
            if self._client.tableExists(database, name):
                self._client.dropTable(database, name, False, True)  # noqa: FBT003 - deleteData, ignoreUnknownTab

    def _alter(self, before: MetastoreTable, new: Any) -> None:
        how = {"CASCADE": "true"}
        if _STATE in before.properties:
            how |= {"expected_parameter_key": _STATE, "expected_parameter_value": before.properties[_STATE]}
        self._client.alter_table_with_environmentContext(before.database, before.name, new, self._how(how))

    def _filled(self, made: Any, table: MetastoreTable) -> Any:
        made.setDbName(table.database)
        made.setTableName(table.name)
        made.setTableType("EXTERNAL_TABLE")
        made.setSd(self._stored(table.columns, table.location))
        made.setPartitionKeys(self._fields(table.partitions))
        # The table's old parameters are dropped, since their statistics describe other files.
        state = table.state or table.location.rpartition("/")[2]
        made.setParameters(self._map({"EXTERNAL": "TRUE", **table.properties, _STATE: state}))
        return made

    def _stored(self, columns: Sequence[tuple[str, str]], location: str) -> Any:
        stored = self._api.StorageDescriptor()
        stored.setCols(self._fields(columns))
        stored.setLocation(location)
        stored.setInputFormat(f"{_PARQUET}MapredParquetInputFormat")
        stored.setOutputFormat(f"{_PARQUET}MapredParquetOutputFormat")
        stored.setNumBuckets(-1)
        for empty in (stored.setBucketCols, stored.setSortCols):
            empty(self._list([]))
        stored.setParameters(self._map({}))
        serde = self._api.SerDeInfo()
        serde.setSerializationLib(f"{_PARQUET}serde.ParquetHiveSerDe")
        serde.setParameters(self._map({"serialization.format": "1"}))
        stored.setSerdeInfo(serde)
        return stored

    def _fields(self, columns: Sequence[tuple[str, str]]) -> Any:
        return self._list([self._api.FieldSchema(name, kind, None) for name, kind in columns])

    def _how(self, properties: Mapping[str, str]) -> Any:
        made = self._api.EnvironmentContext()
        # Without this setting, the metastore would read all files to compute statistics that nobody needs.
        made.setProperties(self._map({"DO_NOT_UPDATE_STATS": "true", **properties}))
        return made

    def _list(self, values: Sequence[Any]) -> Any:
        made = self._jvm.java.util.ArrayList()
        for value in values:
            made.add(value)
        return made

    def _dict(self, values: Any) -> dict[str, str]:
        return {str(key): str(values.get(key)) for key in _each(self._jvm.java.util.ArrayList(values.keySet()))}

    def _map(self, values: Mapping[str, str]) -> Any:
        made = self._jvm.java.util.HashMap()
        for key, value in values.items():
            made.put(key, value)
        return made


def _aside(location: str) -> str:
    """Returns the name that a table at this location has while it is being removed."""
    path = location.partition(":")[2].lstrip("/")  # a metastore returns file:/x for file:///x
    return f"pidts_dropped_{hashlib.sha256(path.encode()).hexdigest()[:16]}"


def _each(values: Any) -> list[Any]:
    """Returns the elements of a Java list; iterating over it would end with a Java error (see `_of_java`)."""
    return [values.get(place) for place in range(values.size())]


def _columns(stored: Any) -> list[tuple[str, str]]:
    return [(str(each.getName()), str(each.getType())) for each in _each(stored.getCols())]


@contextmanager
def metastore(address: str, folder: Path, lock: int | None = None) -> Iterator[Metastore]:
    """Connects to the metastore at `thrift://host:port`, or, without an address, to the metastore in the folder.

    The JVM inherits `lock`, the descriptor of a file lock that this process has. If this process is killed, the JVM may
    still complete the last call, and keeps the lock until it ends.
    """
    try:
        conf = SparkConf(loadDefaults=False)
        gateway = start_gateway(conf, subprocess.DEVNULL, () if lock is None else (lock,))
    except (OSError, Py4JError, PySparkRuntimeError) as error:
        raise not_started(error) from error
    try:
        yield _connected(gateway.jvm, address, folder)
    finally:
        with suppress(Exception):
            gateway.shutdown()
        end_jvm(gateway.proc, _END_SECONDS)


def _connected(jvm: Any, address: str, folder: Path) -> Metastore:
    settings = (
        {"hive.metastore.uris": address}
        if address
        else {
            **_EMBEDDED,
            "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder};create=true",
        }
    )
    place = address or str(folder)
    try:
        if not address:
            jvm.java.lang.System.setProperty("derby.stream.error.file", f"{folder}.log")
        conf = jvm.org.apache.hadoop.hive.conf.HiveConf()
        for key, value in settings.items():
            conf.set(key, value)
        return Metastore(jvm, jvm.org.apache.hadoop.hive.metastore.HiveMetaStoreClient(conf))
    except Exception as raised:
        error = _of_java(raised) or raised
        if not isinstance(error, Py4JError):
            raise
        other = "" if address else "; another program may use its database: Derby allows one program at a time"
        raise Transient("metastore-lost", f"the metastore {place} cannot be used: {_cause(error)}{other}") from error


@contextmanager
def _mapped(table: str) -> Iterator[None]:
    """Converts the client's errors: either the metastore has refused a call, or the outcome of the call is unknown."""
    try:
        yield
    except Exception as raised:
        error = _of_java(raised)
        if error is None and isinstance(raised, Py4JError):
            what = f"the process with the metastore's client has ended: {raised}"
            raise Transient("metastore-lost", what, where=Where(table=table)) from raised
        if error is None:
            raise
        said = _cause(error)
        kind = str(error.java_exception.getClass().getName())
        if any(kind.endswith(each) for each in _LOST):
            what = f"the metastore does not answer: {said}"
            raise Transient("metastore-lost", what, where=Where(table=table)) from error
        if "has been modified" in said or ("parameter" in said and "expected" in said):
            what = f"another program has changed the table: {said}"
            raise Transient("metastore-busy", what, where=Where(table=table)) from error
        todo = ""
        if "incompatible with the existing columns" in said:
            todo = "Set hive.metastore.disallow.incompatible.col.type.changes to false at the metastore"
        raise Halted(
            "metastore-refused", f"the metastore answers: {said}", where=Where(table=table), todo=todo
        ) from error


def _of_java(raised: BaseException) -> Py4JJavaError | None:
    """Returns the Java error in the metastore's JVM that caused an exception; None if there is none.

    If the process has or had a Spark session, PySpark asks that session's JVM about each Java error. That JVM does not
    have the error, or has ended, so PySpark raises another exception in its place.
    """
    seen: BaseException | None = raised
    while seen is not None and not isinstance(seen, Py4JJavaError):
        seen = seen.__context__
    return seen


def _cause(error: Py4JError) -> str:
    """Returns the first line of the innermost exception's message."""
    if not isinstance(error, Py4JJavaError):
        return str(error).partition("\n")[0][:300]
    found = error.java_exception
    with suppress(Py4JError):
        while found.getCause() is not None:
            found = found.getCause()
        return str(found.toString()).partition("\n")[0][:300]
    return "it gave no reason"
