"""A task serves its page for Prometheus at the given address while it runs. If this is not possible, the run ends with
an error before it begins.
"""

from __future__ import annotations

import re
import socket
from pathlib import Path
from urllib.request import urlopen

import pytest

from pidts.cli.app import run_command
from pidts.cli.metrics_page import metrics_page
from pidts.model import ConfigError
from pidts.task.operate.progress import Progress, SourceProgress

Output = pytest.CaptureFixture[str]
TASK = """
name: t
task-mode: all
target-database: {host: 127.0.0.1, port: 9, user: root}
mysql-instances: [{source-id: s, from: {host: 127.0.0.1, port: 9, user: root}}]
pidts: {relay: ./relay}
"""

pytestmark = pytest.mark.timeout(60)


def address(capsys: Output) -> str:
    found = re.search(r"note: metrics at (http://\S+/metrics)", capsys.readouterr().err)
    assert found
    return found[1]


def read(url: str) -> str:
    with urlopen(url, timeout=10) as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith("text/plain; version=")
        text: str = answer.read().decode()
        return text


def test_the_page_has_the_latest_snapshot_and_ends_with_the_run(capsys: Output) -> None:
    with metrics_page("0") as latest:
        url = address(capsys)
        assert url.startswith("http://127.0.0.1:")
        assert read(url) == "", "nothing is known yet"
        for stage in ("starting", "sync"):
            latest(Progress(task="t", sources=(SourceProgress(source="s", stage=stage),)))  # type: ignore[arg-type]
        text = read(url)
        assert 'pidts_stage{source="s",stage="sync",task="t"} 1.0' in text
        assert "starting" not in text
    with pytest.raises(OSError, match="refused"):
        read(url)


def test_a_host_may_be_named(capsys: Output) -> None:
    with metrics_page("localhost:0"):
        assert read(address(capsys)) == ""


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
def test_so_may_one_of_ipv6(capsys: Output) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"this machine has no IPv6: {error}")
    with metrics_page("[::1]:0"):
        assert read(address(capsys)) == ""


@pytest.mark.parametrize("given", ["", "x", "70000", "-1", "127.0.0.1:", "a..b:0", "203.0.113.1:0"])
def test_an_address_that_is_none_is_refused(given: str) -> None:
    with pytest.raises(ConfigError) as error, metrics_page(given):
        pass
    assert (error.value.code, error.value.exit_code) == ("metrics-address", 2)
    assert error.value.todo


def test_a_port_in_use_ends_the_run_before_it_begins(tmp_path: Path, capsys: Output) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(TASK)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run_command(["run", str(path), "--metrics", str(port)]) == 2
    said = capsys.readouterr().err
    assert f"error [metrics-address] the metrics cannot be served at {port}: Address already in use" in said
    assert "checking servers" not in said
    assert not (tmp_path / "relay").exists()
