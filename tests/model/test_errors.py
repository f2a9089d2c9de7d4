"""Errors tell code, place and remedy, and survive the way to another process."""

from __future__ import annotations

import pickle

import pytest

from pidts.model import ConfigError, DecodeError, Fenced, Halted, PidtsError, PrecheckFailed, Where
from pidts.model.errors import Transient


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
