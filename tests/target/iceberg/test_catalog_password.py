"""A catalog on a server is asked with the password that its file has now."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytest.importorskip("pyiceberg")

from tests.conftest import RunSql

from pidts.sandbox import Server
from pidts.target.iceberg.jdbc_catalog import MySqlCatalog
from pidts.target.iceberg.rest_catalog import RestCatalog


def test_a_catalog_in_a_database(mariadb: Server, database: str, run_sql: RunSql, tmp_path: Path) -> None:
    (secret := tmp_path / "secret").write_text("first")
    run_sql(mariadb, "CREATE USER lake IDENTIFIED BY 'first'")
    run_sql(mariadb, f"GRANT ALL ON {database}.* TO lake")
    login = (mariadb.host, mariadb.port, "lake", database)
    catalog = MySqlCatalog(*login, "lake", "first", password_file=str(secret))
    catalog.check()
    for password in ("second", "third"):
        secret.write_text(password)
        catalog.check()
        run_sql(mariadb, f"SET PASSWORD FOR lake = PASSWORD('{password}')")
        catalog.check()
    run_sql(mariadb, "DROP USER lake")


@contextmanager
def rest_server(tokens: list[str]) -> Iterator[str]:
    """Serves an empty catalog, and records the token of each request."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            tokens.append(self.headers["Authorization"])
            body = b'{"namespaces": []}' if "namespaces" in self.path else b'{"defaults": {}, "overrides": {}}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_rest_catalog(tmp_path: Path) -> None:
    tokens: list[str] = []
    (secret := tmp_path / "secret").write_text("first\n")
    with rest_server(tokens) as address:
        catalog = RestCatalog(address, password="first", password_file=str(secret))
        catalog.check()
        secret.write_text("second\n")
        catalog.check()
    assert list(dict.fromkeys(tokens)) == ["Bearer first", "Bearer second"]
