"""A headless Chromium: a test finds parts of the page by what a reader sees, or by what a screen reader says."""

from __future__ import annotations

import base64
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.common.exceptions import ElementClickInterceptedException, StaleElementReferenceException
from selenium.webdriver.chrome.service import Service as Driver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

SECONDS = 120.0
IMAGES = Path(__file__).parents[2] / "docs" / "images"
TAKES_PICTURES = os.environ.get("PIDTS_SCREENSHOTS") == "1"
"""If this variable is set, the test replaces the pictures in docs/images. Otherwise the tree does not change."""


def programs() -> tuple[str, str] | None:
    """Returns the paths of the browser and of its driver; None if one of them is not installed."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    return (browser, driver) if browser and driver else None


class Browser:
    """The window of a browser that a test controls."""

    def __init__(self, browser: str, driver: str) -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = browser
        for argument in (
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--no-first-run",
            "--hide-scrollbars",
        ):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Driver(driver))
        self.url = ""

    def close(self) -> None:
        self.driver.quit()

    def look(self, width: int = 1200, height: int = 800, *, dark: bool = False) -> None:
        """Sets the size of the window, and whether the reader's system uses dark colours."""
        self._command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._command("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, view: str = "", url: str = "") -> None:
        """Loads the page anew."""
        self.url = url or self.url
        self.driver.get("about:blank")
        self.driver.get(f"{self.url}/#/{view}")

    def go(self, view: str) -> None:
        """Changes to another view as a link does, without loading the page again."""
        self.run("location.hash = arguments[0]", f"#/{view}")

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def all(self, css: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def one(self, css: str) -> WebElement:
        """Returns the element as soon as it exists."""
        self.until(lambda: self.all(css), f"{css} is there")
        return self.all(css)[0]

    def text(self, css: str = "main") -> str:
        """Returns the text that a reader sees of this part; empty if the part does not exist."""
        return self.run("return [...document.querySelectorAll(arguments[0])].map((e) => e.innerText).join('\\n')", css)

    def click(self, css: str, text: str = "") -> None:
        """Clicks on the first element with this text, as soon as it can be clicked."""

        def done() -> bool:
            for element in self.all(css):
                if text in element.text and element.is_enabled():
                    self.run("arguments[0].scrollIntoView({block: 'center'})", element)
                    element.click()
                    return True
            return False

        self.until(done, f"{css} {text!r} can be clicked")

    def key(self, name: str) -> None:
        ActionChains(self.driver).send_keys(getattr(Keys, name)).perform()

    def write(self, css: str, text: str) -> None:
        """Pastes a text in place of what an input has."""
        element = self.one(css)
        element.clear()
        self.run("arguments[0].focus()", element)
        self._command("Input.insertText", text=text)

    def sees(self, text: str, css: str = "main", seconds: float = SECONDS) -> None:
        self.until(lambda: text in self.text(css), f"{css} shows {text!r}", seconds)

    def sees_no(self, text: str, css: str = "main", seconds: float = SECONDS) -> None:
        self.until(lambda: text not in self.text(css), f"{css} does not show {text!r}", seconds)

    def until(self, condition: Callable[[], Any], says: str, seconds: float = SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while True:
            try:
                if condition():
                    return
            except (StaleElementReferenceException, ElementClickInterceptedException):
                pass  # The element was redrawn meanwhile.
            assert time.monotonic() < deadline, (
                f"not within {seconds:.0f} s: {says}. The page: {self.text('body')[:3000]}"
            )
            time.sleep(0.2)  # Each look takes some milliseconds of processor time, here and in the browser.

    def overflow(self) -> int:
        """Returns the pixels by which the page is wider than the window."""
        return self.run("return document.documentElement.scrollWidth - innerWidth")

    def nameless(self) -> list[str]:
        """Returns the controls for which a screen reader has no name."""
        found = self.all("main a, main button, main input, main select, main textarea, main summary, nav a")
        return [one.get_attribute("outerHTML") for one in found if not one.accessible_name.strip()]

    def complaints(self) -> list[str]:
        """Returns the errors that the browser has logged since the last call: of scripts, and of what the policy
        forbids.
        """
        lines = self.driver.get_log("browser")
        return [one["message"] for one in lines if one["level"] == "SEVERE" and one["source"] != "network"]

    def picture(self, name: str, height: int = 0) -> None:
        """Replaces a picture of the documentation, if that is requested; only its upper part if a height is given."""
        if not TAKES_PICTURES:
            return
        self.run("document.activeElement?.blur()")
        time.sleep(0.3)
        size = {"x": 0, "y": 0, "width": self.run("return innerWidth"), "height": height, "scale": 1}
        clip = {"clip": size} if height else {}
        found = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png", **clip})
        IMAGES.mkdir(parents=True, exist_ok=True)
        (IMAGES / f"page-{name}.png").write_bytes(base64.b64decode(found["data"]))

    def _command(self, name: str, **values: Any) -> None:
        self.driver.execute_cdp_cmd(name, values)
