"""Only those who may use the service can use it: each way that a web page, another user or a stranger could try is
closed.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.web.served import FILE, TOKEN, Web, served

from pidts.cli.serve import read_token
from pidts.follow.loopback import is_loopback
from pidts.model import ConfigError
from pidts.web.access import CHANGES_PER_SECOND, MOST_BODY, AccessGuard, Policy, host_name

AS_ANOTHER_USER = """
import os, socket, sys
import encodings.idna  # later, its file cannot be read
os.setgroups([]); os.setgid(65534); os.setuid(65534)
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
    connection.sendall(b"GET /api/tasks HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n")
    print(connection.makefile("rb").readline().decode())
"""
CLOSES_AT_ONCE = """
import os, socket, sys
import encodings.idna  # later, its file cannot be read
os.setgroups([]); os.setgid(65534); os.setuid(65534)
body = sys.stdin.buffer.read()
for _ in range(20):
    connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    head = f"POST /api/tasks?start=false HTTP/1.1\\r\\nHost: localhost\\r\\nContent-Type: application/yaml\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n"
    connection.sendall(head.encode() + body)
    connection.close()
"""


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with served(tmp_path_factory.mktemp("web")) as found:
        yield found


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with served(tmp_path_factory.mktemp("guarded"), TOKEN) as found:
        yield found


def test_the_users_own_process_is_served(web: Web) -> None:
    assert web.call("GET", "/api/tasks") == (200, {"tasks": []})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_of_this_machine_is_refused(web: Web) -> None:
    done = subprocess.run(
        [sys.executable, "-c", AS_ANOTHER_USER, str(web.port)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "403" in done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_a_socket_that_another_user_has_closed_does_not_pass_for_roots(web: Web) -> None:
    subprocess.run([sys.executable, "-c", CLOSES_AT_ONCE, str(web.port)], input=FILE.encode(), check=True)
    assert web.call("GET", "/api/tasks") == (200, {"tasks": []})


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "[::2]", "", "localhost@x"]
)
def test_a_name_that_is_not_loopbacks_is_refused(web: Web, host: str) -> None:
    assert web.refusal("GET", "/api/tasks", Host=host) == (403, "host-refused")
    assert web.refusal("GET", "/", Host=host) == (403, "host-refused")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8390", "[::1]:8390"])
def test_loopbacks_names_are_served(web: Web, host: str) -> None:
    assert web.call("GET", "/healthz", Host=host)[0] == 200


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "http://localhost:1", "null", "http://[", "https://localhost"]
)
def test_a_change_from_a_page_of_another_origin_is_refused(web: Web, origin: str) -> None:
    assert web.refusal("POST", "/api/tasks", FILE, Origin=origin) == (403, "origin-refused")
    assert web.refusal("POST", "/api/tasks/x/stop", Origin=origin) == (403, "origin-refused")


def test_a_change_from_the_services_own_page_is_carried_out(web: Web) -> None:
    host = f"127.0.0.1:{web.port}"
    found = web.call("POST", "/api/validate", FILE, Origin=f"http://{host}", Host=host, Sec_Fetch_Site="same-origin")
    assert found[0] == 400  # A task file's password is not in the environment.
    assert web.refusal("POST", "/api/validate", FILE, Sec_Fetch_Site="cross-site") == (403, "origin-refused")


KINDS = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("page", ["Origin", "Referer", "Cookie"])
def test_requests_that_a_form_can_send_are_refused_from_a_browser(web: Web, kind: str, page: str) -> None:
    named = {page: f"http://127.0.0.1:{web.port}", "Host": f"127.0.0.1:{web.port}"}
    status, _, body = web.send("POST", "/api/tasks", b"name: x", {"Content-Type": kind, **named})
    assert (status, b"csrf-refused" in body) == (403, True)
    status, _, _ = web.send("POST", "/api/tasks/x/stop", None, named)
    assert status == 403


@pytest.mark.parametrize("kind", [*KINDS, ""])
def test_a_program_need_not_name_the_type_of_a_task_file(web: Web, kind: str) -> None:
    named = {"Content-Type": kind} if kind else {}
    status, _, body = web.send("POST", "/api/validate", FILE.encode(), named)
    assert status == 400, "of the task file: its password is not in the environment"
    assert b"csrf" not in body
    status, _, _ = web.send("POST", "/api/tasks/x/stop", None, {})
    assert status == 404


def test_a_body_has_a_limit_whether_or_not_its_length_is_announced(web: Web) -> None:
    head = b"POST /api/validate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/yaml\r\n"
    with closing(socket.create_connection(("127.0.0.1", web.port), timeout=60)) as connection:
        # The service answers before it has read a body of this length. A client that sends it may find its connection
        # closed.
        connection.sendall(head + f"Content-Length: {MOST_BODY + 1}\r\nConnection: close\r\n\r\n".encode())
        answer = connection.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"body-too-long" in answer
    with closing(socket.create_connection(("127.0.0.1", web.port), timeout=60)) as connection:
        connection.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")
        piece = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
        try:
            for _ in range(MOST_BODY // 0x10000 + 2):
                connection.sendall(piece)
        except OSError:
            pass  # The service has answered, and has closed the connection.
        assert b" 413 " in connection.makefile("rb").readline()


def test_many_changes_in_a_second_are_refused() -> None:
    now, statuses = [0.0], []

    async def app(scope: Any, _: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message: Any) -> None:
        if "status" in message:
            statuses.append(message["status"])

    guard = AccessGuard(app, Policy("127.0.0.1", TOKEN), clock=lambda: now[0])
    headers = [(b"host", b"localhost"), (b"x-pidts", b"1"), (b"authorization", f"Bearer {TOKEN}".encode())]
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/api/tasks/x/stop",
        "headers": headers,
        "client": ("127.0.0.1", 1),
    }
    for _ in range(CHANGES_PER_SECOND + 5):
        asyncio.run(guard(scope, None, send))  # type: ignore[arg-type]  # there is no body
    assert statuses == [200] * CHANGES_PER_SECOND + [429] * 5
    now[0] += 0.1
    for _ in range(5):
        asyncio.run(guard(scope, None, send))  # type: ignore[arg-type]  # there is no body
    assert statuses[-5:] == [200, 200, 429, 429, 429]


@pytest.mark.parametrize(
    ("policy", "origin", "status"),
    [
        (Policy("0.0.0.0", TOKEN), "https://pidts.example", 200),  # A proxy in front of the service encrypts.
        (Policy("0.0.0.0", TOKEN), "http://pidts.example", 200),
        (Policy("0.0.0.0", TOKEN), "https://other.example", 403),
        (Policy("0.0.0.0", TOKEN, uses_tls=True), "http://pidts.example", 403),
        (Policy("127.0.0.1", TOKEN), "https://localhost", 403),
    ],
)
def test_the_page_may_be_behind_something_that_encrypts(policy: Policy, origin: str, status: int) -> None:
    host = b"localhost" if policy.on_loopback else b"pidts.example"
    headers = [(b"host", host), (b"x-pidts", b"1"), (b"origin", origin.encode())]
    statuses: list[int] = []
    ask(guard_of(policy), "/api/login", headers, statuses)
    assert statuses == [status]


def test_guessed_tokens_do_not_block_requests_with_the_right_token() -> None:
    headers = [(b"host", b"localhost"), (b"x-pidts", b"1"), (b"authorization", f"Bearer {TOKEN}".encode())]
    statuses: list[int] = []
    guard = guard_of(Policy("127.0.0.1", TOKEN))
    for path in ["/api/login"] * (CHANGES_PER_SECOND + 1) + ["/api/tasks/x/stop"]:
        ask(guard, path, headers, statuses)
    assert statuses[-2:] == [429, 200]


def guard_of(policy: Policy) -> AccessGuard:
    async def app(scope: Any, _: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    return AccessGuard(app, policy, clock=lambda: 0.0)


def ask(guard: AccessGuard, path: str, headers: list[tuple[bytes, bytes]], statuses: list[int]) -> None:
    async def send(message: Any) -> None:
        if "status" in message:
            statuses.append(message["status"])

    scope = {"type": "http", "method": "POST", "path": path, "headers": headers, "client": ("127.0.0.1", 1)}
    asyncio.run(guard(scope, None, send))  # type: ignore[arg-type]  # there is no body


def test_headers_forbid_what_the_page_does_not_need(web: Web) -> None:
    for path in ("/", "/api/tasks", "/api/tasks/x", "/nothing"):
        _, headers, _ = web.send("GET", path, None, {})
        assert "default-src 'self'" in headers["content-security-policy"], path
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers


def test_with_a_token_nothing_of_the_tasks_is_shown_without_it(guarded: Web) -> None:
    for path in ("/api/tasks", "/api/events", "/metrics", "/openapi.json", "/api/tasks/x/file"):
        assert guarded.refusal("GET", path) == (401, "token-needed")
        assert guarded.refusal("GET", path, Authorization="Bearer wrong") == (401, "token-needed")
        assert guarded.refusal("GET", path, Cookie="pidts=99999999999.00") == (401, "token-needed")
    assert guarded.refusal("POST", "/api/tasks", FILE) == (401, "token-needed")
    assert guarded.call("GET", "/healthz")[0] == 200
    assert guarded.call("GET", "/")[0] == 200
    assert guarded.call("GET", "/api/tasks", Authorization=f"Bearer {TOKEN}")[0] == 200


def test_a_token_is_exchanged_for_a_cookie_that_does_not_have_it(guarded: Web) -> None:
    assert guarded.refusal("POST", "/api/login", {"token": "wrong"}) == (401, "token-needed")
    status, headers, _ = guarded.send(
        "POST", "/api/login", b'{"token": "%s"}' % TOKEN.encode(), {"Content-Type": "application/json"}
    )
    assert status == 200
    cookie = headers["set-cookie"]
    assert TOKEN not in cookie
    assert {"HttpOnly", "SameSite=strict"} <= set(cookie.split("; "))
    assert guarded.call("GET", "/api/tasks", Cookie=cookie.split(";")[0])[0] == 200


def test_a_cookie_expires() -> None:
    policy = Policy("127.0.0.1", TOKEN)
    cookie = f"pidts={policy.session(1000.0)}"
    assert policy.knows({"cookie": cookie}, 1000.0)
    assert not policy.knows({"cookie": cookie}, 1000.0 + 13 * 3600)
    later = cookie.replace(cookie.split("=")[1].split(".", maxsplit=1)[0], "9999999999")
    assert not policy.knows({"cookie": later}, 1000.0)
    assert not Policy("127.0.0.1", "another-token-than-before").knows({"cookie": cookie}, 1000.0)


def test_without_a_token_no_bearer_is_one() -> None:
    assert not Policy("127.0.0.1").knows({"authorization": "Bearer "}, 0.0)


@pytest.mark.parametrize(
    ("text", "mode"), [("short", 0o600), (TOKEN, 0o640), (TOKEN, 0o604), ("with a space in it", 0o600)]
)
def test_a_token_file_that_others_can_read_or_guess_is_refused(tmp_path: Path, text: str, mode: int) -> None:
    path = tmp_path / "token"
    path.write_text(text)
    path.chmod(mode)
    with pytest.raises(ConfigError) as caught:
        read_token(path)
    assert caught.value.code == "token-file"
    assert text not in str(caught.value)


def test_names_of_hosts() -> None:
    assert [*map(host_name, ("a:1", "[::1]:2", "A", "::1", ""))] == ["a", "::1", "a", "::1", ""]
    assert is_loopback("127.9.9.9")
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "example.org", "")))
