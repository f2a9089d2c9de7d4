"""The place in a server's log at which a reading begins if it is to begin at a given time."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pidts.excerpt.start_file import begin_of
from pidts.sandbox import Server
from pidts.source import SourceConfig

SECOND = 1_700_000_000


@pytest.mark.parametrize(
    ("moment", "file"), [(SECOND, "bin.000001"), (SECOND + 1, "bin.000003"), (SECOND - 1, "bin.000001")]
)
def test_files_of_one_second_are_all_read(monkeypatch, mariadb: Server, moment, file):
    """The log file before may have a transaction of the second in which the files were created."""
    from pidts.excerpt import start_file

    created = {"bin.000001": SECOND - 50, "bin.000002": SECOND, "bin.000003": SECOND}
    monkeypatch.setattr(start_file, "binary_logs", lambda _: [(name, 1000) for name in created])
    monkeypatch.setattr(start_file, "_head", lambda _, name: start_file._Head(created[name], start_file.MySqlGtidSet()))
    server = SourceConfig(mariadb.host, mariadb.port, mariadb.user, mariadb.password)
    assert begin_of(server, datetime.fromtimestamp(moment, UTC)).file == file
