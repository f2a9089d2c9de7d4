"""A separate Spark that reads tables through a metastore, as a user's Spark would: each line of input is a question,
and each line of output is an answer.

It uses nothing of PiDTS. `["all", SQL]` asks for all rows, `["begin", SQL]` for the first row, `["rest"]` for the other
rows of that query. `["set", NAME, VALUE]` changes a setting of Spark.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession


def main(where: dict[str, str]) -> None:
    """Answers questions until stdin is closed."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        # Two hundred tasks for every shuffle, and compiled Java for every query, are meant for more than a few rows.
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        # One Spark task reads one file.
        "spark.sql.files.openCostInBytes": str(1 << 40),
        **where,
    }
    builder = SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.enableHiveSupport().getOrCreate()
    begun: Any = None
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        what, *words = json.loads(line)
        if what == "set":
            spark.sql(f"SET {words[0]}={words[1]}")
            answer: object = None
        elif what == "all":
            answer = [list(row) for row in spark.sql(words[0]).collect()]
        elif what == "begin":
            begun = spark.sql(words[0]).toLocalIterator()
            answer = list(next(begun))
        else:
            answer = [list(row) for row in begun]
        print(json.dumps(answer, default=str), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
