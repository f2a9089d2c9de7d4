"""Data of new servers is made once and then copied, except for values that two servers must not share."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pidts.sandbox.made_data import FOLDER, data_for


class Maker:
    """Makes a server's data, so slowly that other servers start meanwhile."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.made = folder, list[str]()

    def data(self, name: str) -> Path:
        """Gives a server its data."""
        folder = self._folder / name
        data_for("kind", folder, lambda: self._make(folder))
        return folder

    def _make(self, folder: Path) -> None:
        self.made.append(folder.name)
        folder.mkdir()
        (folder / "auto.cnf").write_text(folder.name)
        (folder / "table").write_text("rows")


def test_data_is_made_once_and_no_server_has_the_identity_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shared").mkdir()
    monkeypatch.setenv(FOLDER, str(tmp_path / "shared"))
    maker = Maker(tmp_path)
    with ThreadPoolExecutor(4) as pool:
        folders = list(pool.map(maker.data, "abcd"))
    (first,) = maker.made
    assert {(folder / "table").read_text() for folder in folders} == {"rows"}
    assert [folder.name for folder in folders if (folder / "auto.cnf").exists()] == [first]


def test_data_that_could_not_be_made_is_made_by_the_next_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))

    def fail() -> None:
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        data_for("kind", tmp_path / "a", fail)
    maker = Maker(tmp_path)
    maker.data("b")
    assert maker.made == ["b"]


def test_without_a_shared_folder_each_server_makes_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER)
    maker = Maker(tmp_path)
    maker.data("a")
    maker.data("b")
    assert maker.made == ["a", "b"]
