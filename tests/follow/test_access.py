"""Only a follower with the token gets anything, and nobody can read on the network what is sent."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest
from tests.login.certificates import Authority
from tests.relay.sample_log import START, sample_log, store

from pidts.follow import server as server_module
from pidts.follow import timed_protocol
from pidts.follow.client import RelayClient, RelayServerAddress
from pidts.follow.server import RelayEndpoint
from pidts.follow.token import is_accepted, read_tokens
from pidts.model import ConfigError, Halted, PidtsError, Transient
from pidts.relay.folder import Folder
from pidts.relay.task_needs import TaskNeed, read_needs
from pidts.replicate import AppliedPlace

from .conftest import TOKEN, Copying, Served, files

MakeCopy = Callable[..., Copying]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca", "ours")


def asked(url: str, path: str, method: str = "GET", **headers: str) -> tuple[int, bytes]:
    with closing(http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)) as connection:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()


PATHS = [
    ("GET", "/relay/v1/s/more?segment=1&log=0&index=0&crc=0&lsn=0"),
    ("POST", "/relay/v1/s/begin"),
    ("GET", "/relay/v1/s/index?segment=1"),
    ("GET", "/relay/v1/s/structures?lsn=0"),
    ("POST", "/relay/v1/s/needs"),
    ("GET", "/relay/v1/s/end"),
    ("POST", "/relay/v1/s/doubt"),
    ("GET", "/relay/v1/other/end"),
]


def test_without_the_token_nothing_is_learnt_not_even_which_sources_there_are(served: Served) -> None:
    with closing(served.writer()) as writer, served.serving() as url:
        store(writer, sample_log(3))
        answers = {
            asked(url, path, method, **headers)
            for method, path in PATHS
            for headers in (
                {},
                {"Authorization": "Bearer no"},
                {"Authorization": f"Basic {TOKEN}"},
                {"Authorization": "Bearer "},
            )
        }
        assert len(answers) == 1
        status, body = answers.pop()
        assert status == 401
        assert b"s" in body
        assert TOKEN.encode() not in body
        assert asked(url, "/healthz")[0] == 200


def test_requests_that_make_no_sense_are_refused_not_failed(served: Served) -> None:
    good = {"Authorization": f"Bearer {TOKEN}"}
    with closing(served.writer()) as writer, served.serving() as url:
        store(writer, sample_log(3))
        for path in (
            "more",
            "more?segment=x&log=0&index=0&crc=0&lsn=0",
            "more?segment=-1&log=0&index=0&crc=0&lsn=0000.0000000001.000000000004.0000000000",
            "more?segment=1&log=0&index=9999999999999999999999&crc=0&lsn=0000.0000000001.000000000004.0000000000",
            "more?segment=1&log=99999999&index=99999999&crc=0&lsn=0000.0000000001.000000000004.0000000000",
            "index?segment=../../token",
            "structures?lsn=../../token",
        ):
            status, body = asked(url, f"/relay/v1/s/{path}", **good)
            assert 400 <= status < 500, (path, status, body)
            assert TOKEN.encode() not in body
        for path in ("begin", "needs", "doubt"):
            with closing(http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)) as connection:
                for body in (b"[]", b"{", b'{"after": 1, "lsn": 7, "../x": null}', b"[" * 100_000, b"x" * (2 << 20)):
                    connection.request("POST", f"/relay/v1/s/{path}", body, good)
                    answer = connection.getresponse()
                    assert 400 <= answer.status < 500, (path, body[:20])
                    answer.read()
    assert not list((served.relay / "s").glob("needs/*x*"))


@pytest.mark.parametrize("name", ["shop", "@m", "shop@", "shop@m/x", "shop@" + "m" * 101])
def test_a_follower_moves_no_recorded_need_of_this_machine(served: Served, name: str) -> None:
    served.writer().close()
    TaskNeed(served.relay, "s", "shop").move(START)
    with served.serving(), closing(RelayClient(RelayServerAddress(served.url, served.token_file), "s")) as client:
        with pytest.raises(Halted) as refused:
            client.report({"shop@m": START, name: sample_log(3)[-1].transaction.lsn})
        assert refused.value.code == "relay-request"
    assert [(need.task, need.lsn) for need in read_needs(Folder.of(served.relay, "s"))] == [("shop", START)]


def test_a_follower_does_not_move_the_recorded_need_of_a_task_of_this_machine_with_such_a_name(served: Served) -> None:
    served.writer().close()
    need = TaskNeed(served.relay, "s", "shop@m")
    need.begin()
    later = sample_log(3)[-1].transaction.lsn
    with served.serving(), closing(RelayClient(RelayServerAddress(served.url, served.token_file), "s")) as client:
        for place in (None, START):
            if place is not None:
                need.move(place)
            with pytest.raises(Halted) as refused:
                client.report({"shop@other": START, "shop@m": later})
            assert refused.value.code == "relay-name-taken"
            assert [(need.task, need.lsn) for need in read_needs(Folder.of(served.relay, "s"))] == [("shop@m", place)]
        client.report({"shop@other": later})
        client.report({"shop@other": START})
    assert {need.task: need.lsn for need in read_needs(Folder.of(served.relay, "s"))} == {
        "shop@m": START,
        "shop@other": START,
    }


def test_a_token_is_exchanged_without_a_stop(served: Served, copying: MakeCopy) -> None:
    log = sample_log(30)
    with closing(served.writer()) as writer, served.serving():
        store(writer, log[:10])
        copy = copying(start=AppliedPlace(START, "", ""))
        copy.until_at(log[9].transaction.lsn)
        served.token_file.write_text("another token of sixteen\n" + TOKEN)
        store(writer, log[10:20])
        copy.until_at(log[19].transaction.lsn)
        served.token_file.write_text("another token of sixteen\n")
        store(writer, log[20:])
        copy.until_at(log[29].transaction.lsn)
        old = served.token_file.with_name("old")
        old.touch(0o600)
        old.write_text(TOKEN)
        with (
            closing(RelayClient(RelayServerAddress(served.url, old), "s")) as client,
            pytest.raises(Transient, match="does not accept this token"),
        ):
            client.report({})


def test_a_token_file_that_other_users_can_read_is_refused(served: Served) -> None:
    with served.serving() as url:
        served.token_file.chmod(0o640)
        assert asked(url, "/relay/v1/s/end", Authorization=f"Bearer {TOKEN}")[0] == 401
        with pytest.raises(ConfigError) as refused, served.serving():
            pass
        assert refused.value.code == "relay-token"
        with (
            closing(RelayClient(RelayServerAddress(url, served.token_file), "s")) as client,
            pytest.raises(Transient, match="other users"),
        ):
            client.report({})


@pytest.mark.parametrize("text", ["", "short", "\n\n", "with a ümlaut that is long enough", "good enough a token\nbad"])
def test_tokens_that_can_be_guessed_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "token"
    path.touch(0o600)
    path.write_text(text)
    with pytest.raises(ConfigError):
        read_tokens(path)


def test_a_token_is_compared_as_a_whole() -> None:
    assert is_accepted(TOKEN, ["x" * 20, TOKEN])
    assert not is_accepted(TOKEN[:-1], [TOKEN])
    assert not is_accepted("", [TOKEN])
    assert not is_accepted("\udcff", [TOKEN])


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "example.org:9310"])
def test_beyond_loopback_nothing_is_served_without_tls(served: Served, address: str) -> None:
    with pytest.raises(ConfigError) as refused:
        RelayEndpoint(address, served.token_file).demand_safe()
    assert refused.value.code == "serve-address"


@pytest.mark.parametrize(
    "url", ["http://192.0.2.1:9310", "http://example.org", "ftp://127.0.0.1", "127.0.0.1:9310", "https://u:p@h"]
)
def test_beyond_loopback_nothing_is_asked_without_tls(served: Served, url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        RelayServerAddress(url, served.token_file).demand_safe()
    assert refused.value.code == "relay-address"


def test_a_copy_is_followed_over_tls(served: Served, copying: MakeCopy, authority: Authority) -> None:
    pair, log = authority.sign("server", addresses=("127.0.0.1",)), sample_log(20)
    with closing(served.writer(2000)) as writer, served.serving(certificate=pair.cert, key=pair.key) as url:
        store(writer, log)
        assert url.startswith("https://")
        copy = copying(ca=authority.ca, start=AppliedPlace(START, "", ""))
        copy.until_at(log[-1].transaction.lsn)
    assert files(copy.relay) == files(served.relay)


@pytest.mark.parametrize("wrong", ["authority", "host", "expired", "system"])
def test_a_certificate_that_is_not_the_servers_is_not_trusted(
    served: Served, copying: MakeCopy, authority: Authority, tmp_path: Path, wrong: str
) -> None:
    pair = authority.sign(
        "server", addresses=("127.0.0.2",) if wrong == "host" else ("127.0.0.1",), expired=wrong == "expired"
    )
    ca = Authority(tmp_path / "other", "others").ca if wrong == "authority" else authority.ca
    with closing(served.writer()), served.serving(certificate=pair.cert, key=pair.key):
        copy = copying(ca=None if wrong == "system" else ca)
        copy.until_failing("relay-server-untrusted")
    assert files(copy.relay) == {}


def test_a_plain_client_and_a_tls_server_do_not_connect(
    served: Served, copying: MakeCopy, authority: Authority
) -> None:
    pair = authority.sign("server", addresses=("127.0.0.1",))
    with closing(served.writer()):
        with served.serving(certificate=pair.cert, key=pair.key) as url:
            plain = copying("plain", url=url.replace("https", "http"))
            plain.until_failing("relay-server-lost")
        with served.serving() as url:
            encrypted = copying("encrypted", url=url.replace("http", "https"), ca=authority.ca)
            encrypted.until_failing("relay-server-lost")
    assert files(plain.relay) == files(encrypted.relay) == {}


def test_a_renewed_certificate_is_used_without_a_stop(
    served: Served, copying: MakeCopy, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_LOOK_SECONDS", 0.1)
    pair = authority.sign("server", addresses=("127.0.0.1",), expired=True)
    log = sample_log(5)
    with closing(served.writer()) as writer, served.serving(certificate=pair.cert, key=pair.key):
        store(writer, log)
        copy = copying(ca=authority.ca, start=AppliedPlace(START, "", ""))
        copy.until_failing("relay-server-untrusted")
        authority.sign("server", addresses=("127.0.0.1",))
        copy.until_at(log[-1].transaction.lsn)


def test_a_certificate_without_its_key_is_refused(served: Served, authority: Authority) -> None:
    pair, other = authority.sign("one"), authority.sign("two")
    with pytest.raises(ConfigError) as refused:
        RelayEndpoint("127.0.0.1:0", served.token_file, pair.cert, other.key).demand_safe()
    assert refused.value.code == "serve-certificate"


def test_a_connection_that_asks_for_nothing_is_ended(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timed_protocol, "_FIRST_REQUEST_SECONDS", 0.3)
    with served.serving() as url:
        host, _, port = url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), 10) as idle:
            idle.sendall(b"GET /relay/v1/s/end HTTP/1.1\r\n")
            begin = time.monotonic()
            with suppress(ConnectionResetError):
                assert idle.recv(10) == b""
            assert time.monotonic() - begin < 8


def test_any_answer_of_a_wrong_server_is_an_error(served: Served) -> None:
    with socket.create_server(("127.0.0.1", 0)) as liar:
        client = RelayClient(RelayServerAddress(f"http://127.0.0.1:{liar.getsockname()[1]}", served.token_file), "s", 1)
        for said in (
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
            b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nabc",
            b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n\xff\xff\xff\xff",
            b"HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\n{}",
            b'HTTP/1.1 409 No\r\nContent-Length: 50\r\n\r\n{"error": {"kind": "x", "code": 1, "where": []}}  ',
            b"SSH-2.0-OpenSSH\r\n",
        ):

            def answer(said: bytes = said) -> None:
                connection, _ = liar.accept()
                with connection:
                    connection.recv(10_000)
                    connection.sendall(said)

            thread = threading.Thread(target=answer)
            thread.start()
            with pytest.raises(PidtsError) as lost:
                client.begin(None)
            assert lost.value.code == "relay-server-lost", said
            client.close()
            thread.join(5)
