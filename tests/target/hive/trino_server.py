"""A Trino of one node on loopback, which reads tables through a Hive metastore; `mvn` downloads it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.java_packages import packages
from tests.object_store import free_port

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / ".venv-trino"
PACKAGES = ROOT / "requirements" / "trino" / "pom.xml"
SECONDS = 240.0
PLUGINS = frozenset({"hive", "iceberg"})
JAVA = 24
OPTIONS = (
    "-Xmx1g",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:+EnableDynamicAgentLoading",
    "--add-modules=jdk.incubator.vector",
    "--enable-native-access=ALL-UNNAMED",
    "--sun-misc-unsafe-memory-access=allow",
    "-Djdk.attach.allowAttachSelf=true",
    "-Duser.timezone=Asia/Tokyo",  # Trino's time zone is not that of the files, UTC.
)


class Trino:
    """A server that answers queries."""

    def __init__(self, url: str) -> None:
        self._url = url

    def rows(self, sql: str) -> list[list[Any]]:
        """Returns all rows of a query, with the values as in Trino's JSON."""
        answer = self._answer(
            urllib.request.Request(
                f"{self._url}/v1/statement",
                sql.encode(),
                {"X-Trino-User": "tests", "X-Trino-Client-Capabilities": "PARAMETRIC_DATETIME"},
            )
        )
        rows: list[list[Any]] = []
        while True:
            assert "error" not in answer, answer["error"]["message"]
            rows += answer.get("data", [])
            if "nextUri" not in answer:
                return rows
            answer = self._answer(urllib.request.Request(answer["nextUri"]))

    @staticmethod
    def _answer(request: urllib.request.Request) -> dict[str, Any]:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            return dict(json.load(answer))

    def is_ready(self) -> bool:
        """Returns whether the server runs queries. It reports that it has started before it knows its own node."""
        try:
            return self.rows("SELECT node_id FROM system.runtime.nodes") == [["tests"]]
        except (OSError, AssertionError):
            return False


@contextmanager
def trino_server(folder: Path, catalogs: Mapping[str, Mapping[str, str]]) -> Iterator[Trino]:
    """Starts a server. `catalogs`: the names of the catalogs and their properties."""
    java, home = java_for_trino(), installation()
    url = f"http://127.0.0.1:{free_port()}"
    (folder / "catalog").mkdir(parents=True)
    for name, properties in catalogs.items():
        write(folder / "catalog" / f"{name}.properties", properties)
    config = {
        "node.environment": "tests",
        "node.id": "tests",
        "log.path": f"{folder}/server.log",
        "node.bind-ip": "127.0.0.1",
        "node.internal-address": "127.0.0.1",
        "plugin.dir": f"{home}/plugin",
        "catalog.config-dir": f"{folder}/catalog",
        "coordinator": "true",
        "node-scheduler.include-coordinator": "true",
        "http-server.http.port": url.rpartition(":")[2],
        "discovery.uri": url,
    }
    write(folder / "config.properties", config)
    log = folder / "log"
    words = [str(java), *OPTIONS, f"-Dconfig={folder}/config.properties", "-cp", f"{home}/lib/*"]
    with log.open("wb") as file:
        server = subprocess.Popen([*words, "io.trino.server.TrinoServer"], stdout=file, stderr=file, cwd=folder)
    try:
        trino, until = Trino(url), time.monotonic() + SECONDS
        while not trino.is_ready():
            assert server.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < until, log.read_text()[-3000:]
            time.sleep(0.5)
        yield trino
    finally:
        server.kill()
        server.wait()


def write(file: Path, properties: Mapping[str, str]) -> None:
    """Writes a file of properties."""
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))


def java_for_trino() -> Path:
    """Returns a Java with which this Trino runs; skips the test if there is none."""
    for java in sorted(Path("/usr/lib/jvm").glob("*/bin/java")):
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
        found = re.search(r'version "(\d+)', said)
        if found and int(found[1]) >= JAVA:
            return java
    pytest.skip(f"Trino needs Java {JAVA} or newer in /usr/lib/jvm")


def installation() -> Path:
    """Returns the folder of the server, with only those plugins that the tests use."""
    found = packages(PACKAGES, FOLDER)
    home = found / "server"
    if not home.exists():
        fresh = found / "fresh"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        (archive,) = found.glob("*.tar.gz")
        subprocess.run(["tar", "-xzf", archive, "-C", fresh], check=True)
        (inner,) = fresh.iterdir()
        for plugin in (inner / "plugin").iterdir():
            if plugin.name not in PLUGINS:
                shutil.rmtree(plugin)
        for driver in found.glob("sqlite-jdbc-*.jar"):
            driver.rename(inner / "plugin" / "iceberg" / driver.name)
        inner.rename(home)
        archive.unlink()
    return home
