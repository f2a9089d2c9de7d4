"""To read from a given time on, the log is read from the file that may have the first change of that time."""

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
    """Two files were created in one second. The file before them may also have a transaction of this second."""
    from pidts.excerpt import start_file

    created = {"bin.000001": SECOND - 50, "bin.000002": SECOND, "bin.000003": SECOND}
    monkeypatch.setattr(start_file, "binary_logs", lambda _: [(name, 1000) for name in created])
    monkeypatch.setattr(
        start_file, "_head", lambda _, name: start_file._LogHead(created[name], start_file.MySqlGtidSet())
    )
    server = SourceConfig(mariadb.host, mariadb.port, mariadb.user, mariadb.password)
    assert begin_of(server, datetime.fromtimestamp(moment, UTC)).file == file
