"""`pidts events` shows the undamaged part of a damaged or cut file and ends with an error. No error shows a password."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import zstandard

from pidts.cli.app import run_command

VECTOR = Path(__file__).parents[1] / "binlog" / "vectors" / "mariadb-transactions.binlog.gz"
LOG = gzip.decompress(VECTOR.read_bytes())


@pytest.fixture
def shown(tmp_path: Path, capsys: Any) -> Any:
    def show(content: bytes) -> tuple[int, list[str], str]:
        path = tmp_path / "bin.000001"
        path.write_bytes(content)
        code = run_command(["events", str(path), "--json"])
        printed = capsys.readouterr()
        return code, printed.out.splitlines(), printed.err

    return show


def test_packed_files_show_the_same(shown: Any) -> None:
    plain = shown(LOG)
    assert plain[0] == 0
    assert len(plain[1]) > 10
    frames = b"".join(zstandard.compress(LOG[at : at + 1000]) for at in range(0, len(LOG), 1000))
    for packed in (gzip.compress(LOG), zstandard.compress(LOG), frames):
        assert shown(packed)[:2] == plain[:2]


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_a_packed_file_that_was_cut_is_an_error(shown: Any, pack: Any) -> None:
    in_use = bytearray(LOG)
    in_use[4 + 17] |= 1  # The file looks as if its server still wrote it. A plain file may then end anywhere.
    code, _, error = shown(pack(bytes(in_use))[:-10])
    assert code == 5
    assert "bad-compression" in error


def test_events_before_damage_are_shown(shown: Any) -> None:
    _, sound, _ = shown(LOG)
    code, lines, error = shown(LOG + bytes(40))
    assert code == 5
    assert [json.loads(line)["lsn"] for line in lines if "lsn" in line] == [json.loads(line)["lsn"] for line in sound]
    assert "bad-size" in error
    assert f"byte {len(LOG)}" in error


@pytest.mark.parametrize("url", ["mysql://u:secret@[::1/", "mysql:/root:secret@host/", "mysql:root:secret@host"])
def test_a_misspelt_url_is_not_shown(url: str, capsys: Any) -> None:
    assert run_command(["events", url]) == 2
    printed = capsys.readouterr()
    assert "bad-source-url" in printed.err
    assert "secret" not in printed.err + printed.out
