"""A relay that is served on loopback, and followers of it. No test here needs a database."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.relay.sample_log import FORMAT_EVENT, ORIGIN, START

from pidts.follow.client import RelayServerAddress
from pidts.follow.follower import Follower, FollowerConfig
from pidts.follow.served_relay import ServedSource
from pidts.follow.server import RelayEndpoint, relay_server
from pidts.model import Halted, Lsn
from pidts.relay import RelayReader, RelayWriter
from pidts.relay.folder import Folder
from pidts.relay.refetch import ask_to_refetch
from pidts.source import SourceConfig

TOKEN = "a token that nobody guesses"


@dataclass
class Served:
    """A relay, its writer, and its relay server."""

    relay: Path
    token_file: Path
    url: str = ""
    asked: list[Lsn | None] = field(default_factory=list)
    """Places after which the relay server has asked for the log again."""
    receives_again: bool = False
    """Whether the relay at once records that the log after these places has to be received again, as it does for a
    replicator.
    """

    def writer(self, segment_bytes: int = 1 << 20) -> RelayWriter:
        writer = RelayWriter.open(self.relay, "s", segment_bytes=segment_bytes)
        if writer.state is None:
            writer.begin(ORIGIN, START, "")
            writer.start_segment(FORMAT_EVENT)
        return writer

    @contextlib.contextmanager
    def serving(self, address: str = "127.0.0.1:0", **tls: Path) -> Iterator[str]:
        def repair(error: Halted, after: Lsn | None) -> None:
            if self.receives_again and after is not None:
                ask_to_refetch(Folder.of(self.relay, "s"), after, after, error.code)
            self.asked.append(after)

        source = SourceConfig("127.0.0.1", 9, source_id="s")
        listening = RelayEndpoint(address, self.token_file, **tls)
        with relay_server([ServedSource(source, self.relay, 0, repair)], listening) as url:
            self.url = url
            yield url


class Copying:
    """A follower in a thread."""

    def __init__(self, served: Served, relay: Path, *, url: str = "", ca: Path | None = None, **more: object) -> None:
        address = RelayServerAddress(url or served.url, served.token_file, ca)
        self.follower = Follower(FollowerConfig(address, "s", relay, "m", **more))  # type: ignore[arg-type]
        self.relay = relay
        self.reader = RelayReader(relay, "s")
        self.error: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.follower.run(self._stop)
        except BaseException as error:  # noqa: BLE001
            self.error = error

    def until(self, condition: Callable[[], object], seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if self.error is not None:
                raise self.error
            assert time.monotonic() < deadline, self.follower.state()
            time.sleep(0.01)

    def until_at(self, lsn: Lsn) -> None:
        self.until(lambda: self.reader.received == lsn)

    def until_failing(self, code: str) -> None:
        self.until(lambda: (error := self.follower.state().error) is not None and error.code == code)

    def ends_with(self, seconds: float = 20) -> BaseException | None:
        self._thread.join(seconds)
        assert not self._thread.is_alive()
        return self.error

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(20)
        assert not self._thread.is_alive()


@pytest.fixture
def served(tmp_path: Path) -> Served:
    token_file = tmp_path / "token"
    token_file.write_text(TOKEN + "\n")
    token_file.chmod(0o600)
    return Served(tmp_path / "relay", token_file)


@pytest.fixture
def copying(tmp_path: Path, served: Served) -> Iterator[Callable[..., Copying]]:
    made: list[Copying] = []

    def make(name: str = "copy", **more: object) -> Copying:
        made.append(Copying(served, tmp_path / name, **more))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for one in made:
        one.stop()
        one.reader.close()


def files(relay: Path) -> dict[str, bytes]:
    found = {}
    for path in sorted((relay / "s").glob("0*")):
        with contextlib.suppress(FileNotFoundError):  # a copy that begins anew removes its files meanwhile
            found[path.name] = path.read_bytes()
    return found
