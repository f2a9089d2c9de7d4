"""The files of the page are small, complete without a network, and never use text as HTML."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pidts.web

PAGE = Path(pidts.web.__file__).parent / "page"
FILES = sorted(path for path in PAGE.rglob("*") if path.is_file())
SCRIPTS = [path for path in FILES if path.suffix == ".js"]
HTML_OF_TEXT = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|setHTML|createContextualFragment"
)


def name(path: Path) -> str:
    return str(path.relative_to(PAGE))


def test_all_files_together_are_small() -> None:
    assert 0 < sum(path.stat().st_size for path in FILES) < 300_000


@pytest.mark.parametrize("path", SCRIPTS, ids=name)
def test_no_text_is_read_as_html(path: Path) -> None:
    assert HTML_OF_TEXT.findall(path.read_text("utf-8")) == []


@pytest.mark.parametrize("path", FILES, ids=name)
def test_nothing_is_loaded_from_elsewhere(path: Path) -> None:
    # The name of SVG's namespace is a URL, which is not loaded.
    text = path.read_text("utf-8").replace("http://www.w3.org/", "")
    assert re.findall(r"https?://|[\"'(]//\w", text) == []


@pytest.mark.parametrize("path", SCRIPTS, ids=name)
def test_each_import_is_there(path: Path) -> None:
    found = re.findall(r'from "([^"]+)"', path.read_text("utf-8"))
    assert [one for one in found if not (path.parent / one).resolve().is_file()] == []


def test_the_document_has_no_script_or_style_in_it() -> None:
    text = (PAGE / "index.html").read_text("utf-8")
    assert re.findall(r"<script(?![^>]*src=)|<style|style=|\son\w+=", text) == []
