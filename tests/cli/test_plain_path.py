"""Messages name a file by a path without `.` and `..`, and only if this path leads to the same file."""

from __future__ import annotations

from pathlib import Path

import pytest

from pidts.cli.app import run_command
from pidts.cli.command import plain_path


def test_a_message_names_the_plain_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b.yaml").write_text("name: t\n")
    monkeypatch.chdir(tmp_path)
    for command in ("check", "status"):
        assert run_command([command, "./a/../b.yaml"]) == 2
        said = capsys.readouterr().err
        assert "b.yaml" in said
        assert "a/../" not in said


def test_a_path_after_a_symbolic_link_stays(tmp_path: Path) -> None:
    (tmp_path / "there" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "there" / "deep")
    through = tmp_path / "link" / ".." / "b.yaml"  # this is there/b.yaml
    assert plain_path(through) == through
    assert plain_path(tmp_path / "there" / ".." / "b.yaml") == tmp_path / "b.yaml"
    assert plain_path(Path("./a/../b.yaml@x-y")) == Path("b.yaml@x-y")


def test_a_printed_path_is_never_read_as_an_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for given in ("./-x.yaml", "-x.yaml", "a/../-x.yaml"):
        assert plain_path(Path(given)) == tmp_path / "-x.yaml", "a Path has no ./ at its beginning"
    assert plain_path(Path("a/-x.yaml")) == Path("a/-x.yaml")
