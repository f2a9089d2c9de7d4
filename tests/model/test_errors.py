"""Errors have a code, a place and advice, and keep them when they are sent to another process."""

from __future__ import annotations

import pickle

import pytest

from pidts.model import ConfigError, DecodeError, Fenced, Halted, PidtsError, PrecheckFailed, Where
from pidts.model.errors import Transient, in_one_line


@pytest.mark.parametrize(
    ("kind", "exit_code"),
    [
        (PidtsError, 1),
        (ConfigError, 2),
        (PrecheckFailed, 3),
        (Halted, 5),
        (DecodeError, 5),
        (Fenced, 5),
        (Transient, 1),
    ],
)
def test_every_kind_has_its_exit_code_and_survives_pickling(kind, exit_code):
    error = kind("some-code", "it broke", where=Where(table="d.t", key="id=1"), todo="Mend it")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert again.to_json() == error.to_json()
    assert again.exit_code == exit_code


def test_an_error_reads_as_one_line():
    error = Halted(
        "some-code", "it broke", where=Where(source="one", position="bin.000001:4", table="d.t"), todo="Mend it"
    )
    assert str(error) == "[some-code] it broke (source one, at bin.000001:4, table d.t). Mend it"
    assert str(ConfigError("c", "bad", where=Where(file="task.yaml", line=3))) == "[c] bad (task.yaml:3)"
    assert str(Halted("c", "bad")) == "[c] bad"


def test_texts_of_servers_cannot_control_the_terminal() -> None:
    error = PidtsError("x", "no\x1b[2J \x9b \u202e", where=Where(table="a\x1b]0;b\x07"), todo="Köln\tund\n\x7f")
    assert str(error) == "[x] no\\x1b[2J \\x9b \\u202e (table a\\x1b]0;b\\x07). Köln\tund\n\\x7f"
    assert error.to_json()["what"] == "no\\x1b[2J \\x9b \\u202e"


def test_a_command_in_an_advice_keeps_the_name_of_the_table() -> None:
    name = "表\u3000\u200c名\xa0\U0001fae8"
    assert str(Halted("x", "no", todo=f"Run: pidts ddl retry t.yaml --table '{name}'")).endswith(f"'{name}'")
    assert in_one_line(f"{name}\n\t\u2028") == f"{name}\\n\\t\\u2028"


def test_an_error_is_no_longer_than_a_person_reads() -> None:
    assert len(str(PidtsError("x", "A" * 200_000))) < 5_000
    assert str(PidtsError("x", "A" * 200_000)).endswith("(196,000 characters more)")


def test_an_error_ends_with_one_full_stop() -> None:
    assert str(PidtsError("x", "it broke.", todo="Try again.")) == "[x] it broke. Try again."
    assert str(PidtsError("x", "it broke", todo="Try again")) == "[x] it broke. Try again"
    assert str(PidtsError("x", "it broke...")) == "[x] it broke..."
