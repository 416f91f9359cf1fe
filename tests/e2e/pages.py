"""A studio that is served, pages of it that are visited, and waiting for what they show."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="no uvicorn here: pip install '.[studio]'")
pytest.importorskip("fastapi", reason="no FastAPI here: pip install '.[studio]'")

import uvicorn

from foveate.studio.api import BUILT, STATIC, studio_application


def require_page() -> None:
    """Skip where the page has not been built."""
    if not (STATIC / BUILT).is_file():
        pytest.skip("the studio's page is not built: `make web`")


@contextmanager
def served(folder: Path, lectures: Path | None = None) -> Iterator[str]:
    """Where the studio of a folder of runs is served."""
    app = studio_application([folder], lectures=lectures)
    config = uvicorn.Config(app, port=0, log_level="error", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    server.should_exit = True
    thread.join(20)


@contextmanager
def visitor(browser: Any, address: str) -> Iterator[Callable[..., Any]]:
    """Open places of the studio; errors, dialogs and requests elsewhere fail at the end."""
    contexts, errors, requests = [], [], []

    def refuse(dialog: Any) -> None:
        errors.append(dialog.message)
        dialog.dismiss()

    def open_page(
        place: str = "", width: int = 1280, scheme: str = "light", at: str = address
    ) -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(30_000)
        page.on("console", lambda m: errors.append(m.text) if m.type != "log" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("dialog", refuse)
        page.on("request", lambda r: requests.append((r.url, (at, "blob:", "data:"))))
        page.goto(at + place)
        page.wait_for_selector("main [data-testid]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not errors, errors
    assert not [url for url, own in requests if not url.startswith(own)]


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


def words(page: Any) -> list[str]:
    """The tokens that are shown."""
    texts: list[str] = page.get_by_test_id("output").locator(".word").all_inner_texts()
    return [text.strip() for text in texts]
