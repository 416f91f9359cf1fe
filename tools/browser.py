"""The browser of tests and of pictures."""

import os
import shutil

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome", "msedge")


def find_browser() -> str | None:
    """Return the path of a Chromium-like browser, if any; FOVEATE_BROWSER names another."""
    named = os.environ.get("FOVEATE_BROWSER")
    return named or next((path for name in BROWSERS if (path := shutil.which(name))), None)
