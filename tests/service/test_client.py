"""Commands find the service of this machine, whatever address it listens on, and never another program that later has
its port.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from pathlib import Path

import pytest
from tests.forked_programs import loaded_programs
from tests.web.served import FILE

from pidts.cli.app import run_command
from pidts.cli.serve import serve
from pidts.cli.service.client import ServiceClient, service_client
from pidts.cli.service.commands import task_name
from pidts.model import ConfigError, PidtsError

from .serving import serving

TOKEN = "a-token-of-the-tests"


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """Makes a self-signed certificate that does not name this machine."""
    files = folder / f"{name}.pem", folder / f"{name}.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    more = ["-days", "2", "-subj", f"/CN={name}.example", "-out", files[0], "-keyout", files[1]]
    subprocess.run([*command, *more], check=True, capture_output=True)
    return files


@pytest.mark.slow
def test_over_https_the_services_own_certificate_is_accepted_and_no_other(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text(TOKEN)
    cert, key = certificate(tmp_path, "one")
    other, _ = certificate(tmp_path, "two")
    options = ("--listen", "0.0.0.0:0", "--token-file", str(token), "--tls-cert", str(cert), "--tls-key", str(key))
    with serving(tmp_path, *options) as service:
        client = service_client(service.state, "", None)
        assert client.url.startswith("https://127.0.0.1:")
        assert client.call("GET", "/api/tasks") == {"tasks": []}
        for named in ("", str(other)):
            with pytest.raises(PidtsError) as caught:
                ServiceClient(client.url, TOKEN, named).call("GET", "/api/tasks")
            assert caught.value.code == "service-certificate"
        with pytest.raises(ConfigError, match="there is no task file"):
            task_name(client, "shop.yaml@a-b")


def test_the_files_of_a_killed_service_are_not_trusted(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text("name: shop\n")
    with serving(tmp_path) as service:
        client = service_client(service.state, "", None)
        with pytest.raises(ConfigError) as wrong:
            task_name(client, f"{tmp_path}/shop.yaml@a-b")  # the name of one direction of a file
        assert wrong.value.code != "unreadable-file"
        events = client.events("/api/events")
        assert next(events) == ("tasks", {"tasks": []})
        service.kill()
        with pytest.raises(PidtsError, match="has ended"):
            list(events)
        assert (service.state / "service.json").exists()
        port = int(client.url.rpartition(":")[2])
        with socket.create_server(("127.0.0.1", port)), pytest.raises(PidtsError) as caught:
            service_client(service.state, "", None)
        assert caught.value.code == "service-absent"


@pytest.mark.parametrize("command", [["status"], ["list"], ["stop", "shop"]])
def test_without_a_service_the_error_says_how_to_see_a_task_that_needs_none(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command([*command, "--state", str(tmp_path)]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "[service-absent]" in said
    assert "`pidts status FILE.yaml` shows it, and Ctrl-C or SIGTERM stops it" in said


def test_advised_commands_reach_the_service_that_was_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(["list", "--state", "a b"]) == 1
    assert f"Start one: pidts serve --state '{tmp_path}/a b'. Or name" in " ".join(capsys.readouterr().err.split())
    with serving(tmp_path) as service:
        state = f"--state {service.state}"
        assert run_command(["list", "--state", str(service.state)]) == 0
        assert capsys.readouterr().out == f"the service has no task; give it one: pidts start {state} TASK.yaml\n"
        assert run_command(["stop", "shop", "--state", str(service.state), "--json"]) == 1
        shown = capsys.readouterr()
        assert f"See its tasks: pidts list {state}\n" in shown.err
        assert json.loads(shown.out)["error"]["todo"] == f"See its tasks: pidts list {state}"
        url = service_client(service.state, "", None).url
        assert run_command(["stop", "shop", "--service", url]) == 1
        assert f"See its tasks: pidts list --service {url}\n" in capsys.readouterr().err


def test_a_task_is_stopped_by_its_file_whatever_has_become_of_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(FILE.replace("${SOURCE_PASSWORD}", "x"))
    with serving(tmp_path) as service:
        words = (str(file), "--state", str(service.state), "--json")
        assert service.call("POST", "/api/tasks?start=false", {"path": str(file)})[0] == 201
        for order in ("stop", "pause"):
            file.write_text("name: [")
            code = run_command([order, *words])
            reported = json.loads(capsys.readouterr().out)
            if order == "stop":
                assert (code, reported["name"], reported["wanted"]) == (0, "shop", "stopped")
            else:
                # The error comes from the service, so the command has found the task although the file is invalid.
                assert reported["error"]["code"] == "task-stopped"
        file.unlink()
        assert run_command(["stop", *words]) == 0
        assert json.loads(capsys.readouterr().out)["name"] == "shop"
        assert run_command(["start", *words]) == 2  # Mistakes in a file are reported before it is used.
        assert json.loads(capsys.readouterr().out)["error"]["code"] == "unreadable-file"


def test_a_pipe_gets_the_tasks_while_they_are_watched(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        reading, writing = os.pipe()
        with os.fdopen(reading) as lines, os.fdopen(writing, "wb") as output:
            watching = loaded_programs().start(["list", "--watch", "--state", str(service.state)], output, output)
            lines.readline()
            file = FILE.replace("${SOURCE_PASSWORD}", "x")
            assert service.call("POST", "/api/tasks?start=false", file)[0] == 201
            assert any("shop" in line and "stopped" in line for line in lines)
            watching.terminate()
            watching.wait(30)


def test_a_token_is_not_sent_in_plain_text(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text(TOKEN)
    with pytest.raises(ConfigError) as caught:
        service_client(None, "http://192.0.2.1:8390", token)
    assert caught.value.code == "unsafe-address"
    assert service_client(None, "http://localhost:8390", token).token == TOKEN


def test_a_certificate_that_cannot_be_used_is_said_before_anything_starts(tmp_path: Path) -> None:
    cert, _ = certificate(tmp_path, "one")
    with pytest.raises(ConfigError) as caught:
        serve("127.0.0.1:0", tmp_path / "state", None, cert, cert)
    assert caught.value.code == "serve-certificate"
    assert not (tmp_path / "state").exists()


def test_dmctls_commands_are_sent_to_the_service(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(tmp_path) as service:
        file = FILE.replace("${SOURCE_PASSWORD}", "x")
        assert service.call("POST", "/api/tasks?start=false", file)[0] == 201
        state = ("--state", str(service.state))
        assert run_command(["query-status", "shop", *state]) == 0
        assert "stopped" in capsys.readouterr().out
        assert run_command(["stop-task", "shop", *state]) == 0
        assert run_command(["pause-task", "shop", *state, "--json"]) == 1
        assert json.loads(capsys.readouterr().out.splitlines()[-1])["error"]["code"] == "task-stopped"
        # The error names what the service lacks.
        for word in ("stop", "pause", "start", "resume", "status"):
            assert run_command([word, "zz@a-b", *state, "--json"]) == 1, word
            assert json.loads(capsys.readouterr().out.splitlines()[-1])["error"]["code"] == "no-such-task"


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ([], "no token is asked for"),
        (["--token-file", "token"], "tokens would travel unencrypted"),
        (["--insecure-http"], "no token is asked for"),
    ],
)
def test_beyond_this_machine_nothing_is_served_without_a_token_and_tls(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, more: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text("a token that nobody guesses".replace(" ", "-"))
    assert run_command(["serve", "--listen", "0.0.0.0:0", "--state", str(tmp_path / "state"), *more]) == 2
    found = capsys.readouterr().err
    assert "unsafe-address" in found
    assert says in found
    assert not (tmp_path / "state").exists()


def test_a_missing_variable_is_reported_as_the_services(tmp_path: Path) -> None:
    """The terminal has the variable, but the service does not."""
    with serving(tmp_path) as service:
        file = tmp_path / "shop.yaml"
        file.write_text(FILE)
        words = ["start", str(file), "--state", str(service.state)]
        with (tmp_path / "said").open("wb") as output:
            starting = loaded_programs().start(words, output, output, {"SOURCE_PASSWORD": "x"})
            assert starting.wait(120) == 2
        said = (tmp_path / "said").read_text()
        assert "SOURCE_PASSWORD is not set where the service (pidts serve) was started" in said
        assert "start the service again" in said


def test_a_task_whose_file_has_become_wrong_is_not_started_again_and_says_why(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(FILE.replace("${SOURCE_PASSWORD}", "x"))
    with serving(tmp_path) as service:
        assert service.call("POST", "/api/tasks?start=false", {"path": str(file)})[0] == 201
        file.write_text(file.read_text().replace("task-mode: all", "task-mode: al"))
        assert service.call("POST", "/api/tasks/shop/start", {})[0] == 200
        task = service.wait_for_stage("shop", "failed")
        assert task["error"]["where"]["line"] == 3
        assert (task["next_start"], task["needs_operator"]) == (None, True)
        restarts = task["restarts"]
        time.sleep(2.5)
        task = service.task("shop")
        assert (task["stage"], task["restarts"], task["process"]) == ("failed", restarts, None)
