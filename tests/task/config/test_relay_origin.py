"""The block `pidts.relay-from` is read, and mistakes in it are refused with their key and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from pidts.model import ConfigError
from pidts.task.config.task_file import load_task

TASK = """
name: t
task-mode: all
target-database: {{host: 127.0.0.1, port: 9, user: root}}
mysql-instances: [{{source-id: s, from: {{host: 127.0.0.1, port: 9, user: root}}}}]
pidts:
  relay: ./copy
  relay-from: {{{block}}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, mode in (("token", 0o600), ("open", 0o644)):
        (tmp_path / name).write_text("a token that nobody guesses\n")
        (tmp_path / name).chmod(mode)
    (tmp_path / "no-ca.pem").write_text("this is no certificate\n")
    return tmp_path


def load(folder: Path, block: str) -> object:
    path = folder / "t.yaml"
    path.write_text(TASK.format(block=block))
    return load_task(path).relay_from


def test_files_are_relative_to_the_task_file_and_a_name_is_found(folder: Path) -> None:
    found = load(folder, 'url: "https://relay.example.org", token-file: token')
    assert found.address.token_file == folder / "token"
    assert found.address.place == ("https", "relay.example.org", 9310)
    assert found.name
    assert load(folder, 'url: "http://127.0.0.1:1", token-file: token, name: "rack 7"').name == "rack 7"
    assert load(folder, "") is None


@pytest.mark.parametrize(
    ("block", "code", "key"),
    [
        ('url: "http://relay.example.org", token-file: token', "relay-address", "url"),
        ('url: "relay.example.org:9310", token-file: token', "relay-address", "url"),
        ('url: "https://h"', "missing-key", "token-file"),
        ("token-file: token", "missing-key", "url"),
        ('url: "https://h", token-file: open', "relay-token", "token-file"),
        ('url: "https://h", token-file: absent', "relay-token", "token-file"),
        ('url: "https://h", token-file: token, ca: no-ca.pem', "relay-address", "ca"),
        ('url: "https://h", token-file: token, ca: absent.pem', "relay-address", "ca"),
        ('url: "https://h", token-file: token, name: "../x"', "bad-value", "name"),
        ('url: "https://h", token-file: token, port: 1', "unknown-key", "port"),
    ],
)
def test_unusable_settings_are_refused_with_their_key(folder: Path, block: str, code: str, key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(folder, block)
    assert refused.value.code == code
    assert key in refused.value.what
    assert refused.value.where.line
    assert "nobody guesses" not in str(refused.value)
