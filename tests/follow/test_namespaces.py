"""The relay server and a follower are on two machines, as far as the kernel knows: each is in a network namespace of
its own, and the cable between them can be cut.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.login.certificates import Authority
from tests.relay.sample_log import sample_log, store

from pidts.relay import RelayReader

from .conftest import Served, files

HERE, THERE = "10.213.77.1", "10.213.77.2"
FOLLOW = """
import sys, threading
from pathlib import Path
from pidts.follow.client import RelayServerAddress
from pidts.follow.follower import Follower, FollowerConfig
from pidts.model import Lsn
from pidts.replicate import AppliedPlace
url, token, ca, relay, start = sys.argv[1:]
address = RelayServerAddress(url, Path(token), Path(ca))
address.demand_safe()
begin = AppliedPlace(Lsn.parse(start), "", "")
Follower(FollowerConfig(address, "s", Path(relay), "there", begin)).run(threading.Event())
"""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=20)


@pytest.fixture
def other_machine() -> Iterator[str]:
    """Returns the name of a namespace that has one cable to this one."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and the program ip")
    name, cable = f"pidts-{os.getpid()}", f"pd{os.getpid()}"
    try:
        ip("netns", "add", name)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespace can be made here: {error.stderr.decode()}")
    try:
        ip("link", "add", cable, "type", "veth", "peer", "name", "far", "netns", name)
        ip("addr", "add", f"{HERE}/30", "dev", cable)
        ip("link", "set", cable, "up")
        ip("-n", name, "addr", "add", f"{THERE}/30", "dev", "far")
        ip("-n", name, "link", "set", "far", "up")
        yield name
    finally:
        subprocess.run(["ip", "link", "del", cable], check=False, capture_output=True, timeout=20)
        ip("netns", "del", name)


def until(condition: Callable[[], object], process: subprocess.Popen[bytes], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.long
def test_a_copy_on_another_machine_outlives_a_cut_cable(served: Served, other_machine: str, tmp_path: Path) -> None:
    authority, log = Authority(tmp_path / "ca", "ours"), sample_log(90)
    pair = authority.sign("server", addresses=(HERE,))
    copy, status = tmp_path / "copy", tmp_path / "copy" / "s" / "status.json"
    with (
        closing(served.writer(3000)) as writer,
        served.serving(f"{HERE}:0", certificate=pair.cert, key=pair.key) as url,
    ):
        assert url.startswith(f"https://{HERE}:")
        store(writer, log[:30])
        words = [url, str(served.token_file), str(authority.ca), str(copy), str(log[0].transaction.prev_lsn)]
        process = subprocess.Popen(["ip", "netns", "exec", other_machine, sys.executable, "-c", FOLLOW, *words])
        try:
            with closing(RelayReader(copy, "s")) as reader:
                until(lambda: reader.received == log[29].transaction.lsn, process)
                ip("-n", other_machine, "link", "set", "far", "down")
                store(writer, log[30:60])
                # A cut line reports nothing: the follower stops waiting after the timeout of an answer.
                until(lambda: b"relay-server-lost" in status.read_bytes(), process, 90)
                assert reader.received == log[29].transaction.lsn
                ip("-n", other_machine, "link", "set", "far", "up")
                until(lambda: reader.received == log[59].transaction.lsn, process)
                store(writer, log[60:])
                until(lambda: reader.received == log[89].transaction.lsn, process)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait(20)
    assert files(copy) == files(served.relay)


def test_plain_text_is_not_sent_to_another_machine(served: Served, other_machine: str, tmp_path: Path) -> None:
    words = [f"http://{HERE}:9", str(served.token_file), str(tmp_path / "no"), str(tmp_path / "copy"), "0"]
    done = subprocess.run(
        ["ip", "netns", "exec", other_machine, sys.executable, "-c", FOLLOW, *words],
        check=False,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode
    assert b"relay-address" in done.stderr
