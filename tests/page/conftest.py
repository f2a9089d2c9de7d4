"""The browser that the tests of the page share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from tests.page.browser import Browser, programs


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    found = programs()
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail("chromium and chromium-driver are missing; in CI they must be there (setup/packages.sh)")
        pytest.skip("chromium and chromium-driver are not installed")
    browser = Browser(*found)
    yield browser
    browser.close()


@pytest.fixture
def browser(chromium: Browser) -> Iterator[Browser]:
    """Returns the window, in its usual size and with light colours.

    No script may fail in it, and the policy may forbid nothing that it does.
    """
    chromium.look()
    chromium.complaints()
    yield chromium
    assert chromium.complaints() == []
