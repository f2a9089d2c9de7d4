"""A connection that breaks is reported once: the driver adds no warning of its own, in any process."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import logging
{first}
from pidts.target.postgres import connect
logging.getLogger("psycopg").warning("error ignored terminating <Pipeline>: the connection is lost")
"""


@pytest.mark.parametrize(
    ("first", "shown"), [("", False), ("logging.getLogger('psycopg').setLevel(logging.DEBUG)", True)]
)
def test_a_process_without_logs_prints_no_warning_of_the_driver(first: str, shown: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(first=first)], check=True, capture_output=True, text=True, timeout=120
    )
    assert ("error ignored" in done.stderr) is shown
