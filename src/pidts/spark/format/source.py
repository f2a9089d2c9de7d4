"""`format("binlog")`: the log of a MySQL or MariaDB server as a data frame of changes, for users' own Spark jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import DataType, StringType, StructType

from pidts.model import ConfigError
from pidts.spark.format.batch import BinlogReader, table_now
from pidts.spark.format.column_types import change_columns, row_type
from pidts.spark.format.options import BinlogOptions
from pidts.spark.versions import ADMITS, VERSION

if TYPE_CHECKING:
    from pidts.spark.format.stream import BinlogStreamReader


class BinlogSource(DataSource):
    """The data source: its options, its columns and its readers."""

    @classmethod
    def name(cls) -> str:
        """Returns the name by which Spark knows the source."""
        return "binlog"

    def schema(self) -> StructType:
        """Returns the columns. In a typed query, `old` and `new` have the columns that the table has now."""
        options = BinlogOptions.parse(self.options)
        image: DataType = row_type(table_now(options, options.typed)) if options.typed else StringType()
        return change_columns(image)

    def reader(self, schema: StructType) -> BinlogReader:
        """Returns the reader for `spark.read`."""
        return BinlogReader(BinlogOptions.parse(self.options), _checked(schema))

    def streamReader(self, schema: StructType) -> BinlogStreamReader:  # noqa: N802 - Spark's name
        """Returns the reader for `spark.readStream`."""
        options = BinlogOptions.parse(self.options)
        if options.paths:
            todo = "Read files by `spark.read`; a stream needs `url`, or a `relay` that a replicator fills"
            raise ConfigError("bad-option", "a stream cannot follow log files", todo=todo)
        if options.end is not None:
            todo = "Leave this option out. To end at the present end of the log, trigger with availableNow=True"
            raise ConfigError("bad-option", "a stream has no endingPosition", todo=todo)
        if not ADMITS:
            what = f"Spark {'.'.join(map(str, VERSION))} does not give a data source the position of a stream"
            raise ConfigError("not-supported", what, todo="Use Spark 4.2 or newer, or read the log by spark.read")
        from pidts.spark.format.stream import BinlogStreamReader

        return BinlogStreamReader(options, _checked(schema))


def _checked(schema: StructType) -> StructType:
    expected = change_columns(StringType()).names
    if schema.names != expected:
        what = f"the columns are {', '.join(expected)}, not {', '.join(schema.names)}"
        raise ConfigError("bad-option", what, todo="Leave `.schema(...)` out, or change only the types of old and new")
    return schema
