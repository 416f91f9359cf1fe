"""Check a site: every link leads to a page and a place in it, and no page loads anything foreign.

python tools/website/site_links.py build/site
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlparse

LOADS = {
    "script": "src", "img": "src", "iframe": "src", "link": "href", "source": "srcset",
    "video": "src", "audio": "src", "object": "data", "embed": "src", "form": "action",
}  # fmt: skip
QUIET = {"canonical", "alternate", "author", "license", "search", "next", "prev", "index"}


class Page(HTMLParser):
    """What a page links to, what a browser loads with it, and the places in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.places.update(given[name] for name in ("id", "name") if name in given)
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if (name := LOADS.get(tag, "")) in given and given.get("rel") not in QUIET:
            self.loads.append(given[name])
        self.loads += re.findall(r"url\(['\"]?([^'\")]+)", given.get("style", ""))


def is_foreign(address: str) -> bool:
    """Whether an address names a host."""
    return bool(urlparse(address).netloc)


def pages_of(site: Path) -> list[Path]:
    """The pages of a site; what a theme keeps among its files is none."""
    return [path for path in sorted(site.rglob("*.html")) if "_static" not in path.parts]


def faults(site: Path) -> Iterator[str]:
    """What is wrong with the pages and style sheets of a site."""
    pages = {path: Page(path.read_text("utf-8")) for path in pages_of(site)}
    for path, page in pages.items():
        name = path.relative_to(site)
        yield from (f"{name} loads {load[:80]}" for load in page.loads if is_foreign(load))
        for link in [*page.links, *page.loads]:
            address, place = urldefrag(link)
            if is_foreign(link) or urlparse(link).scheme:
                continue
            target = path if not address else path.parent / unquote(urlparse(address).path)
            target = (target / "index.html" if target.is_dir() else target).resolve()
            if not target.is_file():
                yield f"{name}: {link} leads nowhere"
            elif place and target in pages and unquote(place) not in pages[target].places:
                yield f"{name}: {link}: no such place in the page"
    for path in sorted(site.rglob("*.css")):
        for address in re.findall(r"(?:url\(|@import )['\"]?([^'\")\s]+)", path.read_text("utf-8")):
            if is_foreign(address):
                yield f"{path.relative_to(site)} loads {address[:80]}"


def main(site: Path) -> None:
    """Print what is wrong, and end with 1 where anything is."""
    site = site.resolve()
    wrong = sorted(set(faults(site)))
    print("\n".join(wrong))
    count = len(pages_of(site))
    print(f"{site}: {count} pages, {len(wrong)} faults")
    sys.exit(bool(wrong) or not count)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
