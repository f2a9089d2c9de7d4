"""A log file is not taken for another file of the same name."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pidts.model import LogFile

FILE = LogFile("bin.000007", 1_800_000_000, 33, "mysql 7d3c")


def test_a_file_is_known_by_its_head() -> None:
    head = bytes.fromhex("00d2496b 0f 21000000") + bytes(80)
    assert LogFile.of_head("bin.000007", head, "mysql 7d3c") == FILE


def test_a_file_is_another_file_of_the_same_name_if_it_was_created_at_another_time_or_by_another_server() -> None:
    assert FILE.is_another(replace(FILE, created=FILE.created + 1))
    assert FILE.is_another(replace(FILE, server_id=34))
    assert not FILE.is_another(replace(FILE, server="mysql of a copy of all files"))
    assert not FILE.is_another(replace(FILE, name="bin.000008", created=FILE.created + 1))


def test_a_message_names_the_time() -> None:
    assert str(FILE) == "bin.000007 (created 2027-01-15 08:00:00 UTC)"


def test_a_file_is_read_as_it_was_written() -> None:
    assert FILE.dumps() == '["bin.000007", 1800000000, 33, "mysql 7d3c"]'
    assert LogFile.load(json.loads(FILE.dumps())) == FILE


@pytest.mark.parametrize("values", [None, [], ["bin.000007", "x", 33, "mysql"], {"name": "bin.000007"}])
def test_something_else_is_refused(values: object) -> None:
    with pytest.raises(ValueError, match="not a log file"):
        LogFile.load(values)
