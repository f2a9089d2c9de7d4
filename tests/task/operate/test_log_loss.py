"""The error about a lost log names a command that the task can run."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from pidts.model import ConfigError, Halted
from pidts.model.advice import CHECKPOINT, MAKE_EQUAL, NO_CHECKPOINT, RESYNC, RESYNC_ALL
from pidts.relay.reader import OWN_RELAY
from pidts.relay.task_needs import TaskNeed
from pidts.task.config.task_file import TaskConfig, load_task
from pidts.task.operate.log_loss import advised_without_copy, with_loss_explained
from pidts.task.run.task_run import run_task

NOWHERE = {"host": "127.0.0.1", "port": 1, "user": "u"}


CHANNEL = {"type": "datacenter", **NOWHERE, "database": "dc"}


def _task(folder: Path, zone: dict[str, str], target: Mapping[str, object] | None = None) -> TaskConfig:
    path = folder / "t.yaml"
    content = {
        "name": "t",
        "task-mode": "incremental",
        "target-database": dict(target or {"type": "mysql", **NOWHERE}),
        "mysql-instances": [{"source-id": "s", "from": NOWHERE}],
        "pidts": zone,
    }
    path.write_text(yaml.safe_dump(content))
    return load_task(path)


@pytest.mark.parametrize("code", ["position-lost", "relay-purged", "source-went-back"])
def test_between_zones_nothing_is_copied_again_but_a_zone_is_filled(tmp_path: Path, code: str) -> None:
    error = Halted(code, "the log is gone", todo="Look for it")
    between = with_loss_explained(_task(tmp_path, {"zone": "a"}), error)
    assert "pidts zones return" in between.todo
    assert "--resync" not in between.todo
    alone = with_loss_explained(_task(tmp_path, {}), error)
    assert f"pidts run {tmp_path / 't.yaml'} --resync" in alone.todo
    assert "zones return" not in alone.todo


def test_only_a_task_that_shares_its_relay_is_advised_to_take_a_relay_of_its_own(tmp_path: Path) -> None:
    config = _task(tmp_path, {})
    error = Halted("other-source", "the relay has the log of another server", todo=OWN_RELAY)
    resync = f"To continue with the source as it is now, and make the target equal: pidts run {config.path} --resync"
    TaskNeed(config.relay, "s", "t").begin()
    assert with_loss_explained(config, error).todo == resync
    TaskNeed(config.relay, "s", "other").begin()
    assert with_loss_explained(config, error).todo == f"{OWN_RELAY} {resync}"


@pytest.mark.parametrize("code", ["position-lost", "relay-purged", "source-went-back", "other-source"])
def test_a_channel_copies_nothing_again_but_begins_anew(tmp_path: Path, code: str) -> None:
    channel = with_loss_explained(_task(tmp_path, {}, CHANNEL), Halted(code, "the log is gone", todo="Look for it"))
    assert "--resync" not in channel.todo
    assert "Look for it" in channel.todo
    assert "drop the datacenter dc" in channel.todo
    assert str(tmp_path / "relay" / "t") in channel.todo


@pytest.mark.parametrize("todo", [MAKE_EQUAL, NO_CHECKPOINT])
def test_other_errors_of_a_channel_advise_no_copy_either(tmp_path: Path, todo: str) -> None:
    def advice(target: Mapping[str, object] | None) -> str:
        with pytest.raises(Halted) as caught, advised_without_copy(_task(tmp_path, {}, target)):
            raise Halted("checkpoint-altered", "so", todo=f"Restore {CHECKPOINT}, or {todo}")
        return caught.value.todo

    assert advice(None) == f"Restore pidts_meta.checkpoint, or {todo}"
    channel = advice(CHANNEL)
    assert "--resync" not in channel
    assert "begin the channel anew" in channel
    assert channel.startswith("Restore dc.transfer_checkpoint, or ")
    assert "drop the datacenter dc" in channel


@pytest.mark.parametrize("todo", [MAKE_EQUAL, NO_CHECKPOINT, RESYNC, RESYNC_ALL])
def test_other_errors_between_zones_advise_to_fill_the_zone(tmp_path: Path, todo: str) -> None:
    with pytest.raises(Halted) as caught, advised_without_copy(_task(tmp_path, {"zone": "a", "target-zone": "b"})):
        raise Halted("checkpoint-altered", "so", todo=todo)
    assert "--resync" not in caught.value.todo
    assert "task-mode" not in caught.value.todo
    assert caught.value.todo.count("pidts zones return FILE b") == 1


@pytest.mark.parametrize(("resync", "rewind"), [((), ""), (("a.t",), ""), (None, "-1h")])
def test_a_channel_refuses_to_copy_before_it_waits_for_a_server(
    tmp_path: Path, resync: tuple[str, ...] | None, rewind: str
) -> None:
    """No server answers here: without the refusal, the run would wait without end."""
    stop = threading.Event()
    timer = threading.Timer(20, stop.set)
    timer.start()
    with pytest.raises(ConfigError) as caught:
        run_task(
            [_task(tmp_path, {}, CHANNEL)],
            until_synced=False,
            stop=stop,
            on_progress=lambda _: None,
            resync=resync,
            rewind=rewind,
        )
    timer.cancel()
    assert caught.value.code == "not-supported"
    assert caught.value.todo == f"Run it without {'--rewind-to' if rewind else '--resync'}"
