"""A task whose relay is damaged has the damaged part fetched again once. If this does not help, it halts and says so."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog

from pidts.model import DecodeError, Halted, Lsn, Position
from pidts.relay import Origin, RelayReader, RelayWriter
from pidts.relay.refetch import read_refetches
from pidts.sandbox import Server
from pidts.source import connect, position, server_info
from pidts.task.config.task_file import TaskConfig, load_task
from pidts.task.run.relay_refetch import RelayRefetch

from .sample_log import FORMAT, Piece, sealed_log, store
from .test_continuity import remove, tamper

TASK = """
name: t
task-mode: all
target-database: {{host: 127.0.0.1, port: 9, user: root}}
mysql-instances: [{{source-id: s, from: {{host: 127.0.0.1, port: {port}, user: root}}}}]
pidts: {{relay: ./relay}}
"""


@pytest.fixture
def config(mariadb: Server, tmp_path: Path) -> TaskConfig:
    path = tmp_path / "t.yaml"
    path.write_text(TASK.format(port=mariadb.port))
    return load_task(path)


@pytest.fixture
def alerts() -> Any:
    with structlog.testing.capture_logs() as logs:
        yield lambda: [log for log in logs if log.get("alert")]


def fill(config: TaskConfig, **origin: Any) -> list[Piece]:
    """Writes twelve transactions, as if they came from the source's current log file."""
    with closing(connect(config.source.server)) as session:
        here, identity = position(session)[0], server_info(session).identity
    place = Position.of(here.base, origin.pop("log_index", here.log_index), 4)
    pieces, last = [], Lsn.at(place)
    start = last
    for piece in sealed_log(12):
        begin, end = (replace(lsn, log_index=place.log_index) for lsn in (last, piece.transaction.lsn))
        pieces.append(Piece(replace(piece.transaction, begin=begin, prev_lsn=last, lsn=end), piece.events))
        last = end
    found = {"server": identity, "log_base": here.base, "change_no": 0} | origin
    with closing(RelayWriter.open(config.relay, "s")) as writer:
        if writer.state is None:
            writer.begin(Origin(**found), start, "")
            writer.start_segment(FORMAT)
        lsn = writer.lsn
        assert lsn is not None
        store(writer, [piece for piece in pieces if piece.transaction.lsn > lsn])
    return pieces


def broken(config: TaskConfig) -> Halted:
    """Removes the fifth entry; returns the error that a reader finds."""
    tamper(config.relay / "s" / "000000001.index", remove(4))
    with pytest.raises(Halted) as caught:
        list(RelayReader(config.relay, "s").entries())
    return caught.value


def test_a_damaged_place_is_repaired_once(config: TaskConfig, alerts: Callable[[], Any]) -> None:
    log = fill(config)
    cure, folder = RelayRefetch(config), RelayReader(config.relay, "s").folder
    found = cure(broken(config), log[1].transaction.lsn)
    assert str(log[3].transaction.lsn) in found
    pending = read_refetches(folder).pending
    assert pending is not None
    assert (pending.after, pending.to) == (log[3].transaction.lsn, log[-1].transaction.lsn)
    fill(config)
    assert len(list(RelayReader(config.relay, "s").entries())) == 12
    assert (cure.refetches, alerts()) == (1, [])
    with pytest.raises(Halted, match="again") as caught:
        cure(broken(config), log[1].transaction.lsn)
    assert (caught.value.code, caught.value.exit_code) == ("relay-gap", 5)
    (alert,) = alerts()
    assert (alert["log_level"], alert["after"]) == ("error", str(log[3].transaction.lsn))
    assert alert["file"].endswith("000000001.index")
    assert alert["todo"]
    assert read_refetches(folder).pending is None


def test_damaged_events_are_found_after_the_error_of_the_decoder(config: TaskConfig) -> None:
    log = fill(config)
    path = config.relay / "s" / "000000001.log"
    data = bytearray(path.read_bytes())
    data[-10] ^= 1
    path.write_bytes(data)
    assert RelayRefetch(config)(DecodeError("bad-checksum", "x"), log[1].transaction.lsn)
    pending = read_refetches(RelayReader(config.relay, "s").folder).pending
    assert pending is not None
    assert (pending.after, pending.why) == (log[-2].transaction.lsn, "relay-corrupt")


@pytest.mark.parametrize("error", [DecodeError("unknown-event", "x"), Halted("row-missing", "x")])
def test_an_error_in_an_intact_relay_is_no_break(config: TaskConfig, error: Halted) -> None:
    log = fill(config)
    for _ in range(2):
        with pytest.raises(Halted) as caught:
            RelayRefetch(config)(error, log[1].transaction.lsn)
        assert caught.value is error


def test_a_break_that_another_task_has_repaired_is_not_found_again(config: TaskConfig) -> None:
    """There is a limit: an error that comes again and again although no damage is found is reported."""
    log = fill(config)
    error, cure = broken(config), RelayRefetch(config)
    (config.relay / "s" / "000000001.index").unlink()
    (config.relay / "s" / "000000001.log").unlink()
    fill(config)
    for _ in range(5):
        assert "and is repaired" in cure(error, log[1].transaction.lsn)
    with pytest.raises(Halted) as caught:
        cure(error, log[1].transaction.lsn)
    assert caught.value is error


@pytest.mark.parametrize(
    ("origin", "reason"),
    [({"log_index": 900}, "purged"), ({"server": "mariadb somewhere else"}, "another server")],
)
def test_log_that_cannot_be_fetched_again_is_not_cut_off(
    config: TaskConfig, alerts: Callable[[], Any], origin: dict[str, Any], reason: str
) -> None:
    """The log after the damage may be all that another task needs."""
    log = fill(config, **origin)
    with pytest.raises(Halted, match=reason) as caught:
        RelayRefetch(config)(broken(config), log[1].transaction.lsn)
    assert caught.value.code == "relay-gap"
    assert len(alerts()) == 1
    assert read_refetches(RelayReader(config.relay, "s").folder).pending is None
