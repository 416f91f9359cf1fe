"""A browser without a network for the tests of pages."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


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


@pytest.fixture
def open_url(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open an address offline, at a width and in a colour scheme.

    An error in the page or on its console, a dialog, or a request for anything but the page
    fails the test at its end.
    """
    contexts, errors, requests = [], [], []

    def open_page(address: str, width: int = 1280, scheme: str = "light") -> Any:
        options = {"viewport": {"width": width, "height": 800}, "color_scheme": scheme}
        context = browser.new_context(**options, offline=True)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda m: errors.append(m.text) if m.type != "log" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("dialog", lambda dialog: (errors.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: requests.append((request.url, address)))
        page.goto(address)
        page.wait_for_selector(".fv")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not errors
    same = lambda *urls: len({url.partition("#")[0] for url in urls}) == 1  # noqa: E731
    strange = [url for url, place in requests if not same(url, place) and url[:5] != "blob:"]
    beside = tuple(f"{address.rsplit('/', 1)[0]}/files/" for _, address in requests)  # `publish`
    assert not [url for url in strange if not url.startswith(beside)]


@pytest.fixture
def visit(browser: Any, address: str) -> Iterator[Callable[..., Any]]:
    """Open places of the studio that a module serves at its ``address``."""
    from pages import visitor

    with visitor(browser, address) as open_page:
        yield open_page


@pytest.fixture
def contrasts() -> Callable[[Any], list[Any]]:
    """Of every text seen in a page: how far its ink is from what is behind, and what it says."""
    return lambda page: page.evaluate(_CONTRAST)
