"""A studio that is served, pages of it that are visited, and waiting for what they show."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="no uvicorn here: pip install '.[studio]'")
pytest.importorskip("fastapi", reason="no FastAPI here: pip install '.[studio]'")

import screenshots
from e2e.conftest import watching
from foveate.studio.api import BUILT, STATIC


def require_page() -> None:
    """Skip where the page has not been built."""
    if not (STATIC / BUILT).is_file():
        pytest.skip("the studio's page is not built: `make web`")


def served(folder: Path, lectures: Path | None = None) -> AbstractContextManager[str]:
    """Where the studio of a folder of runs is served."""
    return screenshots.served([folder], lectures)


@contextmanager
def visitor(browser: Any, address: str) -> Iterator[Callable[..., Any]]:
    """Open places of the studio; errors, dialogs and requests elsewhere fail at the end."""

    def own(url: str, place: str) -> bool:
        return url.startswith((place.partition("#")[0], "blob:", "data:"))

    with watching(browser, own) as open_page:

        def visited(place: str = "", width: int = 1280, scheme: str = "light", at: str = "") -> Any:
            page = open_page((at or address) + place, width, 900, scheme, reduced_motion="reduce")
            page.wait_for_selector("main [data-testid]")
            return page

        yield visited


def wait(page: Any, name: str, status: str = "done") -> Any:
    """An element with a status, once it has it."""
    page.wait_for_selector(f'[data-testid="{name}"][data-status="{status}"]')
    return page.get_by_test_id(name)


def until(page: Any, true: str, about: Any = None, seconds: float = 30) -> None:
    """Wait until an expression holds; asked from here, since the page's policy forbids eval."""
    end = time.monotonic() + seconds
    while not page.evaluate(true, about):
        assert time.monotonic() < end, f"never came true: {true}"
        page.wait_for_timeout(50)


def downloaded(button: Any, folder: Path) -> Path:
    """The file that a button saves, under the name that it suggests."""
    with button.page.expect_download() as saved:
        button.click()
    saved.value.save_as(path := folder / saved.value.suggested_filename)
    return path


def words(page: Any) -> list[str]:
    """The tokens that are shown."""
    texts: list[str] = page.get_by_test_id("output").locator(".word").all_inner_texts()
    return [text.strip() for text in texts]
