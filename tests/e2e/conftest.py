"""A browser without a network for the tests of pages."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
AXE = Path(__file__).parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"

_CONTRAST = """() => {
  const channel = (c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = (node) => {
    const layers = [];
    for (; node; node = node.parentElement)
      layers.unshift(parse(getComputedStyle(node).backgroundColor));
    return layers.reduce((under, [r, g, b, a = 1]) =>
      [r, g, b].map((c, i) => c * a + under[i] * (1 - a)), [255, 255, 255]);
  };
  const inkOf = (e) => getComputedStyle(e)[e.namespaceURI.endsWith('svg') ? 'fill' : 'color'];
  return [...document.querySelectorAll('body *')]
    .filter((e) => e.checkVisibility())
    .filter((e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()))
    .map((e) => {
      const ink = light(parse(inkOf(e))), paper = light(behind(e));
      const [a, b] = [Math.max(ink, paper), Math.min(ink, paper)];
      return [(a + 0.05) / (b + 0.05), e.tagName + ' ' + e.textContent.slice(0, 30)];
    });
}"""


@pytest.fixture(scope="session")
def browser(browser_path: str) -> Iterator[Any]:
    """Chromium under Playwright, or a skip that says why."""
    reason = "no playwright here: pip install '.[dev]'"
    api = pytest.importorskip("playwright.sync_api", reason=reason)
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=browser_path, args=FLAGS)
        yield started
        started.close()


@contextmanager
def watching(browser: Any, own: Callable[[str, str], bool]) -> Iterator[Callable[..., Any]]:
    """Open addresses; an error in a page or on its console, a dialog, or a request for what is not
    the page's ``own`` fails the test at its end.
    """
    contexts, errors, requests = [], [], []

    def open_page(address: str, width: int, height: int, scheme: str, **options: Any) -> Any:
        view = {"width": width, "height": height}
        context = browser.new_context(viewport=view, color_scheme=scheme, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(30_000)
        page.on("console", lambda m: errors.append(m.text) if m.type != "log" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("dialog", lambda dialog: (errors.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: requests.append((request.url, address)))
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not errors, errors
    assert not [url for url, address in requests if not own(url, address)]


@pytest.fixture
def open_url(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open an address offline, at a width and in a colour scheme."""

    def own(url: str, address: str) -> bool:
        beside = f"{address.rpartition('/')[0]}/files/"  # `publish`
        same = url.partition("#")[0] == address.partition("#")[0]
        return same or url.startswith(("blob:", beside))

    with watching(browser, own) as open_page:

        def opened(address: str, width: int = 1280, scheme: str = "light", **options: Any) -> Any:
            page = open_page(address, width, 800, scheme, offline=True, **options)
            page.wait_for_selector(".fv")
            return page

        yield opened


@pytest.fixture
def visit(browser: Any, address: str) -> Iterator[Callable[..., Any]]:
    """Open places of the studio that a module serves at its ``address``."""
    from pages import visitor

    with visitor(browser, address) as open_page:
        yield open_page


@pytest.fixture
def axe() -> Callable[[Any], list[Any]]:
    """What axe-core finds in a page: of each fault its rule, its gravity and its first element."""

    def faults(page: Any) -> list[Any]:
        if not AXE.is_file():  # what a test asserts before needs none
            pytest.skip("no axe-core here: `npm ci` in web/")
        page.evaluate(AXE.read_text("utf-8"))
        found = page.evaluate("axe.run().then(({violations}) => violations)")
        return [(f["id"], f["impact"], f["nodes"][0]["html"][:200]) for f in found]

    return faults


@pytest.fixture
def contrasts() -> Callable[[Any], list[Any]]:
    """Of every text seen in a page: how far its ink is from what is behind, and what it says."""
    return lambda page: page.evaluate(_CONTRAST)
