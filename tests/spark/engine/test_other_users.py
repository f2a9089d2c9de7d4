"""Other users of the machine can connect to the JVM's ports and read its arguments, which does them no good."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.few_rows import FOR_A_FEW_ROWS

from pidts.spark.master import makes_own_secret
from pidts.spark.session import build_session, end_session

OBJECT = b"\xac\xed\0\5"
"""The first bytes of each object that Java has serialized."""
KEY = "spark.hadoop.fs.s3a.secret.key"


@pytest.fixture
def spark(tmp_path) -> Iterator[SparkSession]:
    settings = {**FOR_A_FEW_ROWS, KEY: "hunter2"}
    session = build_session("others", "local[1]", tmp_path, tmp_path / "spark.log", settings)
    yield session
    end_session(session)


def text(value: bytes) -> bytes:
    return struct.pack(">H", len(value)) + value


@pytest.mark.spark
def test_neither_an_object_of_a_stranger_nor_a_look_at_the_arguments_reaches_anything(spark) -> None:
    context = spark.sparkContext
    assert b"hunter2" not in Path(f"/proc/{context._gateway.proc.pid}/cmdline").read_bytes()
    assert context._jsc.hadoopConfiguration().get(KEY.removeprefix("spark.hadoop.")) == "hunter2"
    port = int(spark.sparkContext.getConf().get("spark.driver.port"))
    # A call of an endpoint that each driver has, with the text "x" as its argument.
    body = b"\0\1" + text(b"127.0.0.1") + struct.pack(">i", port) + text(b"endpoint-verifier") + OBJECT + b"t\0\1x"
    call = b"\3" + struct.pack(">qi", 7, len(body)) + body
    with socket.create_connection(("127.0.0.1", port), 30) as stranger:
        stranger.settimeout(30)
        stranger.sendall(struct.pack(">q", 8 + len(call)) + call)
        with stranger.makefile("rb") as answers:
            answer = answers.read(struct.unpack(">q", answers.read(8))[0] - 8)
    assert b"Expected SaslMessage" in answer
    assert OBJECT not in answer


def test_the_secret_of_a_cluster_is_the_clusters() -> None:
    assert makes_own_secret("local[2]")
    assert not makes_own_secret("spark://10.0.0.1:7077")
    assert not makes_own_secret("local-cluster[2,1,1024]")
