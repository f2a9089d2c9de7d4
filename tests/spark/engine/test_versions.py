"""Functions that an older Spark lacks are made from those that it has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it
from tests.spark.few_rows import FOR_A_FEW_ROWS

from pidts.spark.session import build_session, end_session
from pidts.spark.versions import dealt, dealt_by_hash


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    scratch = tmp_path_factory.mktemp("spark")
    session = build_session("versions", "local[2]", scratch, scratch / "spark.log", FOR_A_FEW_ROWS)
    yield session
    end_session(session)


@pytest.mark.spark
@pytest.mark.parametrize("deal", [dealt, dealt_by_hash])
def test_each_number_has_a_partition_of_its_own(spark, deal):
    for count in (1, 2, 5):
        numbers = spark.range(2 * count).select((F.col("id") % count).cast("int").alias("worker"))
        found = deal(numbers, count, "worker").select("worker", F.spark_partition_id().alias("at")).distinct()
        assert sorted(map(tuple, found.collect())) == [(number, number) for number in range(count)]
