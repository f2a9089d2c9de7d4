"""The engine: batches on Spark, and the log as a data source. The only package that imports pyspark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pidts.spark.spark_home import find_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

find_pyspark()


def register(spark: SparkSession) -> None:
    """Make `format("binlog")` known to a session."""
    # `pidts run` imports this package too, and must start whatever is wrong with the data source.
    from pidts.spark.binlog_source import BinlogSource
    from pidts.spark.session import quick_to_answer

    with quick_to_answer(spark):
        spark.dataSource.register(BinlogSource)


__all__ = ["register"]
