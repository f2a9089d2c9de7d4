"""An S3 server on loopback with its objects in a folder, for the files of warehouses.

It is S3Proxy, which checks signatures as other servers do. `mvn` downloads it.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.java_packages import packages

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".venv-store"
PACKAGES = ROOT / "requirements" / "store" / "pom.xml"
SECONDS = 60.0
LOGGING = """\
<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender"><encoder><pattern>%m%n</pattern></encoder></appender>
  <root level="WARN"><appender-ref ref="out"/></root>
</configuration>
"""


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """A server, and the environment variables by which programs find it."""

    environment: dict[str, str]
    process: int

    def bucket(self, name: str = "") -> str:
        """Makes a bucket; returns its address."""
        from pyarrow.fs import S3FileSystem

        name = name or f"lake-{uuid.uuid4().hex[:8]}"
        env = self.environment
        S3FileSystem(
            endpoint_override=env["AWS_ENDPOINT_URL"],
            region=env["AWS_REGION"],
            access_key=env["AWS_ACCESS_KEY_ID"],
            secret_key=env["AWS_SECRET_ACCESS_KEY"],
            allow_bucket_creation=True,
        ).create_dir(name)
        return f"s3://{name}"

    def silence(self) -> None:
        """Stops all answers of the server until `wake`."""
        os.kill(self.process, signal.SIGSTOP)

    def wake(self) -> None:
        """Lets the server answer again; it also answers the requests that came meanwhile."""
        os.kill(self.process, signal.SIGCONT)


def free_port() -> int:
    """Returns a port of loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def object_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """Starts an object store, which this process and the programs that it starts find by the usual variables."""
    with store_server(tmp_path_factory.mktemp("store")) as store:
        yield store


@contextmanager
def store_server(folder: Path, provider: str = "filesystem-nio2") -> Iterator[ObjectStore]:
    """Starts a store.

    `filesystem-nio2` has real folders; `transient` has only objects, in memory, as Amazon's store does.
    """
    (folder / "objects").mkdir()
    variables = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{free_port()}",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "tests",
        "AWS_SECRET_ACCESS_KEY": "of-tests",
        "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",  # S3Proxy does not support the newest checksum.
    }
    (folder / "properties").write_text(
        f"s3proxy.endpoint={variables['AWS_ENDPOINT_URL']}\n"
        "s3proxy.authorization=aws-v2-or-v4\n"
        f"s3proxy.identity={variables['AWS_ACCESS_KEY_ID']}\n"
        f"s3proxy.credential={variables['AWS_SECRET_ACCESS_KEY']}\n"
        f"jclouds.provider={provider}\n"
        f"jclouds.filesystem.basedir={folder}/objects\n"
    )
    (folder / "logback.xml").write_text(LOGGING)
    words = [
        "java",
        "-Xmx512m",
        f"-Dlogback.configurationFile={folder}/logback.xml",
        "-cp",
        f"{packages(PACKAGES, FOLDER)}/*",
        "org.gaul.s3proxy.Main",
        "--properties",
    ]
    log = folder / "log"
    with log.open("wb") as file:
        server = subprocess.Popen([*words, str(folder / "properties")], stdout=file, stderr=file)
    try:
        await_port(server, int(variables["AWS_ENDPOINT_URL"].rpartition(":")[2]), log)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            from pidts.target.iceberg import files

            # pyarrow and pyiceberg may already have read the variables in this process.
            patch.setattr(files.IO, "properties", files.store_settings())
            files.IO.fs_by_scheme.cache_clear()  # type: ignore[attr-defined] - it is an lru_cache
            yield ObjectStore(variables, server.pid)
    finally:
        server.kill()
        server.wait()


def await_port(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Waits until the server listens."""
    until = time.monotonic() + SECONDS
    while True:
        assert server.poll() is None, log.read_text()[-3000:]
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        assert time.monotonic() < until, log.read_text()[-3000:]
        time.sleep(0.1)
