"""All pages together: each link leads to a page, each page can be reached, no line is too wide, each YAML is valid."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
WIDTH = 100
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
FENCE = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
YAML_BLOCK = re.compile(r"^( *)```yaml\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
MODULE = re.compile(r"`(\w[\w/]*/\w+\.py)`")
NAMED_IN_CODE = re.compile(r"\bdocs/[\w./-]+")
HEADING_IN_CODE = re.compile(r"\b(docs/[\w./-]+\.md)(?:#([\w-]+)|, '([^']+)')")
JOINED_TEXTS = re.compile(r'"\n *f?"')


def prose(page: Path) -> str:
    """Returns the text of a page without its blocks of code."""
    return FENCE.sub("", page.read_text("utf-8"))


def anchor(heading: str) -> str:
    """Returns the anchor that a renderer makes from a heading, by GitHub's rule."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


@cache
def anchors(page: Path) -> set[str]:
    return {anchor(heading) for heading in HEADING.findall(prose(page))}


def links(page: Path) -> list[str]:
    return [link for link in LINK.findall(prose(page)) if "://" not in link and not link.startswith("mailto:")]


def broken(page: Path) -> list[str]:
    found = []
    for link in links(page):
        path, _, place = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (place and place not in anchors(target)):
            found.append(link)
    return found


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_each_link_leads_somewhere(page: Path) -> None:
    assert broken(page) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# A & B\n[x](a.md#a--b) [y](a.md#c) [z](b.md)\n```\n[q](nowhere.md)\n```\n")
    assert broken(tmp_path / "a.md") == ["a.md#c", "b.md"]


def test_each_page_has_a_link_in_the_index() -> None:
    index = ROOT / "docs" / "index.md"
    linked = {index, *((index.parent / link.partition("#")[0]).resolve() for link in links(index))}
    assert [name(page) for page in PAGES if page not in linked and page.is_relative_to(ROOT / "docs")] == []


def test_the_architecture_page_says_how_large_the_source_code_is() -> None:
    page = (ROOT / "docs" / "internals" / "architecture.md").read_text("utf-8")
    said = re.search(r"`src` has about ([\d,]+) lines", page)
    assert said is not None
    lines = sum(path.read_bytes().count(b"\n") for path in (ROOT / "src").rglob("*.py"))
    assert lines == pytest.approx(int(said[1].replace(",", "")), rel=0.05)


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=name)
def test_prose_is_wrapped(page: Path) -> None:
    """Rows of tables are excepted, since they cannot be wrapped."""
    wide = [line for line in prose(page).splitlines() if len(line) > WIDTH and not line.startswith(("|", "    "))]
    assert wide == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) < 80


def unnamed(package: Path, page: str) -> list[str]:
    """Returns the folders and loose files of a package that the page's table of folders does not name.

    A folder has a row of its own, and this row names the folders in it. All files beside the folders share one row.
    """
    cells = [
        line.strip("| ").split(" | ", 1) for line in page.partition("\n## Folders\n")[2].splitlines() if "|" in line
    ]
    rows = {cell[0].strip("`/"): cell[-1] for cell in cells}
    found = []
    for folder in sorted(path.parent.relative_to(package) for path in package.rglob("__init__.py")):
        if (top := folder.parts[:1]) and folder.parts[1:]:
            inside = folder.relative_to(top[0])
            named = f"`{inside}/`" in rows.get(top[0], "")
        else:
            named = not top or top[0] in rows
        found += [] if named else [f"{folder}/"]
    loose = [path.name for path in package.glob("*.py") if path.name != "__init__.py"]
    return found + [name for name in sorted(loose) if f"`{name}`" not in rows.get("loose files", "")]


def test_the_architecture_page_names_each_folder_and_each_loose_file() -> None:
    page = (ROOT / "docs" / "internals" / "architecture.md").read_text("utf-8")
    assert unnamed(ROOT / "src" / "pidts", page) == []


def test_a_folder_that_the_architecture_page_does_not_name_is_found(tmp_path: Path) -> None:
    for name in ("__init__", "a/__init__", "a/b/__init__", "a/c/__init__", "d/__init__", "e", "f"):
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.touch()
    page = "# A\n\n## Folders\n\n| folder | holds |\n|---|---|\n| `a/` | `b/` does b |\n| loose files | `e.py` |\n"
    assert unnamed(tmp_path, page) == ["a/c/", "d/", "f.py"]


def test_the_modules_that_the_pages_name_are_there() -> None:
    """A path with a folder is below src/pidts, or begins at the root."""
    pages = [page for page in PAGES if page.name != "CHANGELOG.md"]
    named = {found for page in pages for found in MODULE.findall(page.read_text("utf-8"))}
    assert len(named) > 40
    assert {
        found for found in named if not any((root / found).exists() for root in (ROOT / "src" / "pidts", ROOT))
    } == set()


def test_the_pages_that_messages_name_are_there() -> None:
    """Messages of the program, comments and test files name pages by their path from the root of the repository."""
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "bench").rglob("*.py")]
    named = {found.rstrip("./") for path in sources for found in NAMED_IN_CODE.findall(path.read_text("utf-8"))}
    assert {found for found in named if not (ROOT / found).exists()} == set()
    assert any(found.endswith(".md") for found in named)


def test_the_headings_that_messages_name_are_there() -> None:
    sources = [JOINED_TEXTS.sub("", path.read_text("utf-8")) for path in (ROOT / "src").rglob("*.py")]
    named = {found for source in sources for found in HEADING_IN_CODE.findall(source)}
    missing = {found for found in named if (found[1] or anchor(found[2])) not in anchors(ROOT / found[0])}
    assert missing == set()
    assert any(place for _, place, _ in named)
    assert any(heading for _, _, heading in named)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_each_yaml_example_can_be_parsed(page: Path) -> None:
    for indent, block in YAML_BLOCK.findall(page.read_text("utf-8")):
        yaml.safe_load(block.replace("\n" + indent, "\n").removeprefix(indent))
