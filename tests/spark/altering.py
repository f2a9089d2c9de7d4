"""Runs pt-online-schema-change on tables of a server."""

from __future__ import annotations

import subprocess

from pidts.sandbox import Server

TOOL = "pt-online-schema-change"


class Altering:
    """The processes of pt-online-schema-change that a test has started. The test can end them."""

    def __init__(self) -> None:
        self._started: list[subprocess.Popen[str]] = []

    def start(self, place: tuple[Server, str, str], change: str, *more: str) -> subprocess.Popen[str]:
        """Starts pt-online-schema-change for one table; `place` is its server, schema and name."""
        server, schema, table = place
        data = f"h={server.host},P={server.port},u={server.user},D={schema},t={table}"
        words = [
            "--execute",
            "--no-version-check",
            "--recursion-method",
            "none",
            "--no-check-alter",
            "--chunk-size",
            "50",
        ]
        process = subprocess.Popen(
            [TOOL, *words, *more, "--alter", change, data + (f",p={server.password}" if server.password else "")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._started.append(process)
        return process

    def finish(self, process: subprocess.Popen[str]) -> None:
        found, _ = process.communicate(timeout=100)
        assert process.returncode == 0, found

    def end(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()
