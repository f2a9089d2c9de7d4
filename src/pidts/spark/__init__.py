"""Runs batches on Spark, and offers the log as a data source. No other package imports pyspark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pidts.spark.spark_home import find_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

find_pyspark()


def register(spark: SparkSession) -> None:
    """Registers `format("binlog")` in a session."""
    # `pidts run` imports this package, too, and has to start even if the data source does not work.
    from pidts.spark.format.source import BinlogSource
    from pidts.spark.session import answering_early

    with answering_early(spark):
        spark.dataSource.register(BinlogSource)


__all__ = ["register"]
