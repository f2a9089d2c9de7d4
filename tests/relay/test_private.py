"""Files with rows of a source belong only to the user who runs the task, whatever the umask is."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pidts.model import Transient
from pidts.relay import RelayReader, RelayWriter
from pidts.relay.folder import Folder
from pidts.relay.permissions import is_open_to_others, private_files
from pidts.relay.structures import StoredStructures, store_structures
from pidts.relay.task_needs import TaskNeed
from pidts.replicate.status import StatusFile
from pidts.schema import Dialect
from pidts.schema.evolve.known_structures import KnownStructures

from .sample_log import START, sample_log, store


@pytest.fixture(autouse=True)
def generous_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(root: Path) -> dict[str, str]:
    """Returns the modes of a folder and of everything in it."""
    return {str(path): oct(stat.S_IMODE(path.stat().st_mode)) for path in [root, *root.rglob("*")]}


def test_all_of_a_relay_is_for_its_owner(tmp_path: Path, make_writer: Callable[..., RelayWriter]) -> None:
    relay = tmp_path / "relay" / "shop"
    writer = make_writer(segment_bytes=2_000, directory=relay)
    log = sample_log(30)
    store(writer, log)
    TaskNeed(relay, "s", "shop").move(START)
    store_structures(Folder.of(relay, "s"), StoredStructures(START, KnownStructures({}, {}), Dialect()))
    StatusFile(relay / "s" / "status.json", "s").update(error=Transient("x", "y"))
    found = modes(tmp_path / "relay")
    names = {Path(path).name for path in found}
    assert {"lock", "shop.json", "status.json", "reserve", "000000002.log", "000000002.index"} <= names
    assert {mode for path, mode in found.items() if Path(path).is_file()} == {"0o600"}
    assert {mode for path, mode in found.items() if Path(path).is_dir()} == {"0o700"}


def test_a_relay_that_others_can_read_keeps_its_mode(relay: Path, make_writer: Callable[..., RelayWriter]) -> None:
    log = sample_log(30)
    writer = make_writer()
    store(writer, log[:10])
    writer.close()
    folder = relay / "s"
    folder.chmod(0o755)
    for path in folder.iterdir():
        path.chmod(0o644)
    assert is_open_to_others(folder)
    store(make_writer(), log[10:])
    reader = RelayReader(relay, "s")
    assert len(list(reader.entries())) == 30
    reader.close()
    assert is_open_to_others(folder), "somebody may have opened it on purpose"


def test_files_that_other_processes_create_are_private_too(tmp_path: Path) -> None:
    """Other processes make Spark's files; PiDTS does not set their modes."""
    with private_files():
        (tmp_path / "one").mkdir()
        (tmp_path / "one" / "rows").write_text("x")
    assert set(modes(tmp_path / "one").values()) == {"0o700", "0o600"}
    (tmp_path / "two").touch()
    assert is_open_to_others(tmp_path / "two")
