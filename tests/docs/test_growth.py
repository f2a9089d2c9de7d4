"""The page about growth has the recorded measurements, and the bench can measure them and draw their curves."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "bench" / "growth"
MODULES = ("curves", "drawing", "page")


@pytest.fixture(scope="module")
def bench() -> Iterator[Any]:
    """Yields the modules of the bench, which is not a package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCH))
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in MODULES})
        for name in MODULES:
            del sys.modules[name]


def curve(bench: Any, *points: tuple[int, float, int]) -> Any:
    """Returns a curve with one part, of points with a size, seconds and megabytes."""
    made = (bench.curves.Point(size, {"work": bench.curves.Spent(cpu, 9.0, mb)}) for size, cpu, mb in points)
    return bench.curves.Curve("axis", "tables & columns", tuple(made))


def circles(picture: str) -> list[tuple[float, float]]:
    tree = ET.fromstring(picture)
    found = tree.iter("{http://www.w3.org/2000/svg}circle")
    return [(float(each.attrib["cx"]), float(each.attrib["cy"])) for each in found]


@pytest.mark.parametrize(("power", "expected"), [(0, 0.0), (1, 1.0), (2, 2.0)])
def test_the_exponent_is_the_power_of_the_size_with_which_the_time_grows(bench, power, expected):
    sizes = (10, 100, 1000)
    found = curve(bench, *((size, float(size) ** power, 1) for size in sizes)).exponent("work")
    assert found == pytest.approx(expected)


def test_the_exponent_is_that_of_the_last_two_sizes_which_differ_much(bench):
    assert curve(bench, (10, 1, 1), (100, 1, 1), (1000, 10, 1)).exponent("work") == pytest.approx(1)
    assert curve(bench, (10, 1, 1), (100, 100, 1), (150, 1, 1)).exponent("work") == pytest.approx(2)
    assert curve(bench, (10, 1, 1)).exponent("work") is None


def test_a_larger_size_is_further_right_and_a_larger_value_is_higher(bench):
    picture = bench.drawing.svg(curve(bench, (10, 1, 500), (100, 5, 400), (1000, 300, 300)))
    cpu, memory = circles(picture)[:3], circles(picture)[3:]
    assert [x for x, _ in cpu] == sorted({x for x, _ in cpu})
    assert [y for _, y in cpu] == sorted({y for _, y in cpu}, reverse=True)
    assert [y for _, y in memory] == sorted({y for _, y in memory})
    # Each power of ten has the same width.
    assert cpu[1][0] - cpu[0][0] == pytest.approx(cpu[2][0] - cpu[1][0], abs=0.2)
    assert "tables &amp; columns" in picture


def test_a_curve_of_one_point_without_time_can_be_drawn(bench):
    assert len(circles(bench.drawing.svg(curve(bench, (1, 0.0, 0))))) == 2


def test_a_table_has_a_row_for_each_size_and_the_exponent(bench):
    *_, small, large, last = bench.page.table(curve(bench, (10, 2.04, 300), (100, 20.4, 1300)))
    assert small == "| 10 | **2.0**, 9.0 s, 300 MB | 0 |"
    assert large == "| 100 | **20.4**, 9.0 s, 1,300 MB | 0 |"
    assert last == "| *exponent* | 1.00 | |"


def test_a_point_is_kept_in_the_file_until_the_same_size_is_measured_again(bench, tmp_path):
    axis = bench.curves.Axis("axis", "tables", (10, 100), 100, lambda *_: {})
    path, machine = tmp_path / "growth.json", {"cores": 2}
    for size, cpu in ((100, 1.0), (10, 2.0), (100, 3.0)):
        point = bench.curves.Point(size, {"work": bench.curves.Spent(cpu, 1.0, 1)}, {"load": 0.5})
        bench.curves.keep(path, axis, machine, point)
    (found,) = bench.curves.curves(bench.curves.read(path))
    assert [(point.size, point.parts["work"].cpu) for point in found.points] == [(10, 2.0), (100, 3.0)]
    assert found.points[0].about == {"load": 0.5}


def test_the_page_and_its_pictures_are_drawn_from_the_results(bench):
    drawn = bench.curves.curves(bench.curves.read(bench.page.RESULT))
    text = bench.page.PAGE.read_text("utf-8")
    assert bench.page.filled(text, drawn) == text, "run bench/growth/page.py"
    for each in drawn:
        picture = bench.page.IMAGES / f"growth-{each.axis}.svg"
        assert picture.read_text("utf-8") == bench.drawing.svg(each), "run bench/growth/page.py"
        assert f"(../images/{picture.name})" in text
    marks = set(re.findall(r"<!-- (\w+) -->", text)) - {"end"}
    assert marks == {each.axis for each in drawn}


@pytest.mark.server
@pytest.mark.timeout(300)
def test_the_smallest_point_of_an_axis_is_measured(tmp_path):
    result = tmp_path / "growth.json"
    words = (sys.executable, BENCH / "run.py", "--axis", "transaction", "--to", "1", "--json", result)
    done = subprocess.run(words, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    (point,) = json.loads(result.read_text())["axes"]["transaction"]["points"]
    start, changes = point["parts"]["start"], point["parts"]["changes"]
    assert (point["size"], changes["amount"]) == (1, 1)
    assert start["processes"].keys() >= {"driver", "replicator"}
    assert start["cpu_seconds"] == pytest.approx(sum(start["processes"].values()), abs=0.05)
    assert 0.2 < start["cpu_seconds"] < 60
    assert 50 < start["mb"] < 2000
