"""LOAD DATA LOCAL: if the server asks for a file, the client sends its own text and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.target.conformance.samples import INT, create, load, table

from pidts.apply import Target, TargetSession
from pidts.model import TableName, Transient


@pytest.mark.parametrize("kind", ["mariadb", "mysql97"])
def test_no_file_is_read_whatever_the_server_asks_for(
    target: Target, session: TargetSession, name: TableName, tmp_path: Path
) -> None:
    """The server sends, on request, what a hostile server would send."""
    secret = tmp_path / "secret"
    secret.write_text("1\n")
    structure = table(name, {"id": INT})
    create(session, structure)
    session.execute("SET GLOBAL local_infile = ON")
    place = f"`{name.schema}`.`{name.name}`"
    asking = f"LOAD DATA LOCAL INFILE '{secret}' INTO TABLE {place}".encode()
    for ask in (
        lambda victim: victim.pipeline.now(asking),
        lambda victim: victim.pipeline.load(asking, [memoryview(b"2\n")]),
    ):
        victim = target.connect()
        with pytest.raises(Transient, match=r"file|text that it was offered"):
            ask(victim)
        victim.close()
    assert session.count(name) == 0


@pytest.mark.parametrize("kind", ["mariadb", "mysql97"])
def test_a_server_that_takes_no_files_is_given_statements(
    target: Target, session: TargetSession, name: TableName
) -> None:
    structure = table(name, {"id": INT, "v": INT})
    create(session, structure)
    session.execute("SET GLOBAL local_infile = OFF")
    try:
        late = target.connect()
        assert not late.server.takes_files
        session._loader._takes_files = True  # as if the session had begun before the setting was changed
        for each, key in ((late, 1), (session, 2)):
            assert load(each, structure, (key, 1))
            assert not load(each, structure, (10 + key, 1), (key, 2))
        late.close()
    finally:
        session.execute("SET GLOBAL local_infile = ON")
    assert session.read_rows(structure)["v"].to_pylist() == [1, 1]
