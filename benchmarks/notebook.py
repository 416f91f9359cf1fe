"""A view in a real JupyterLab: live with a kernel, and still seen without kernel or network.

    python benchmarks/notebook.py --jupyter VENV/bin [--shots FOLDER]

VENV holds jupyterlab, nbconvert, anywidget and foveate. A notebook of three cells is run in
Chromium: a view as the value of a cell, the same as a widget, and what was chosen in it as Python
knows it. Then it is saved, its kernel ended, and it is opened again in JupyterLab, and, made into
HTML by nbconvert, as a file without a network. Requests to any other host are counted.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from typer import Option

import harness
from drawn import chromium

CELLS = [
    """import numpy as np
from foveate.look import AttentionRecord, attention
words, mots = "the cat sleeps </s>".split(), "le chat dort </s>".split()
heads = np.random.default_rng(0).dirichlet(np.ones(4), (2, 4)).astype("float32")
record = AttentionRecord({"decoder.cross_attention": heads}, {"": mots}, {"": words})
view = attention(record)
view""",
    "live = view.widget()\nlive",
    "print('row', live.selection.get('row'), 'column', live.selection.get('column'))",
    "live.selection = {'head': 1, 'layer': 0}",
]
PATIENCE = 120_000  # milliseconds


def notebook() -> str:
    cells = [
        {"cell_type": "code", "id": f"cell{k}", "execution_count": None, "metadata": {},
         "outputs": [], "source": source}
        for k, source in enumerate(CELLS)
    ]  # fmt: skip
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return json.dumps(
        {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    )


@contextlib.contextmanager
def lab(bin_folder: Path, root: Path) -> Iterator[str]:
    """A JupyterLab server that holds this folder; gives its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        str(bin_folder / "jupyter-lab"), "--no-browser", "--allow-root", f"--port={port}",
        "--ServerApp.disable_check_xsrf=True", "--ServerApp.token=",
        "--ServerApp.password=", f"--ServerApp.root_dir={root}",
        "--LabApp.news_url=None", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]  # fmt: skip
    with (root / "lab.log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
    address = f"http://127.0.0.1:{port}"
    try:
        wait_for(f"{address}/api/status", server)
        yield address
    finally:
        server.terminate()
        server.wait()


def wait_for(address: str, server: subprocess.Popen[bytes]) -> None:
    for _ in range(240):
        with contextlib.suppress(OSError):
            urllib.request.urlopen(address, timeout=2)
            return
        if server.poll() is not None:
            raise RuntimeError(f"JupyterLab ended with {server.returncode}; see lab.log")
        time.sleep(0.5)
    raise TimeoutError("JupyterLab did not answer within two minutes")


def open_lab(browser: Any, address: str, foreign: list[str]) -> Any:
    tab = browser.new_page(viewport={"width": 1280, "height": 2600})
    tab.set_default_timeout(PATIENCE)
    tab.on("request", lambda r: foreign.append(r.url) if is_foreign(r.url, address) else None)
    tab.goto(f"{address}/lab/tree/view.ipynb")
    tab.wait_for_selector(".jp-Notebook .jp-CodeCell")
    return tab


def is_foreign(url: str, address: str) -> bool:
    own = (address, address.replace("http", "ws"), "data:", "blob:", "about:")
    return not url.startswith(own)


def run_cell(tab: Any, number: int) -> float:
    """Run a cell, and when that was; again where JupyterLab was not ready to hear it."""
    cell = tab.locator(".jp-CodeCell").nth(number)
    for _ in range(5):
        cell.locator(".cm-content").click()
        start = time.monotonic()
        tab.keyboard.press("Control+Enter")
        with contextlib.suppress(Exception):
            cell.locator(".jp-InputPrompt", has_text=re.compile(r"[0-9*]")).wait_for(timeout=8000)
            return start
    raise TimeoutError(f"cell {number} does not run")


def output(tab: Any, number: int) -> Any:
    return tab.locator(".jp-CodeCell").nth(number).locator(".jp-OutputArea")


def with_kernel(tab: Any, shots: Path | None) -> dict[str, Any]:
    """Run the cells, choose a cell of the matrix, ask Python; choose in Python, see it."""
    tab.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]")
    result: dict[str, Any] = {}
    for number, name in ((0, "view"), (1, "widget")):
        start = run_cell(tab, number)
        place = output(tab, number)
        inside = place.frame_locator("iframe") if name == "view" else place
        inside.locator(".fv-reading b").first.wait_for()
        result[f"{name}_seconds_after_enter"] = round(time.monotonic() - start, 2)
    result["frames_seen_beside_the_widget"] = output(tab, 1).locator("iframe:visible").count()
    cells = output(tab, 1).locator(".fv-cells[role=application]")
    cells.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        tab.keyboard.press(key)
    message = output(tab, 1).locator(".fv-reading").inner_text()
    run_cell(tab, 2)
    output(tab, 2).get_by_text("row").wait_for()
    result["widget_says"], result["python_says"] = message, output(tab, 2).inner_text().strip()
    run_cell(tab, 3)
    output(tab, 1).locator(".fv-others", has_text="head 1").wait_for()
    result["chosen_in_python_is_shown"] = True
    if shots:
        tab.screenshot(path=shots / "notebook-live.png")
    tab.keyboard.press("Control+s")
    tab.wait_for_timeout(3000)
    return result


def is_seen(place: Any, seconds: float = 8) -> str:
    """What stands in an output: a picture, or the words in its place."""
    with contextlib.suppress(Exception):
        place.locator("iframe").first.wait_for(timeout=1000 * seconds)
        place.frame_locator("iframe").locator(".fv-reading b").first.wait_for()
        if place.frame_locator("iframe").locator(".fv-reading b").first.is_visible():
            return "picture"
    if place.locator("img").count():
        return "png"
    return str(place.inner_text()).strip()[:80]


def end_kernels(address: str) -> None:
    for kind in ("sessions", "kernels"):
        with urllib.request.urlopen(f"{address}/api/{kind}") as answer:
            for item in json.load(answer):
                wish = urllib.request.Request(f"{address}/api/{kind}/{item['id']}", method="DELETE")
                urllib.request.urlopen(wish)


def main(
    jupyter: Annotated[Path, Option(help="bin folder of its environment")],
    shots: Annotated[Path | None, Option(help="where screenshots are written")] = None,
) -> None:
    foreign: list[str] = []
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        root = Path(folder)
        (root / "view.ipynb").write_text(notebook(), "utf-8")
        with lab(jupyter, root) as address:
            tab = open_lab(browser, address, foreign)
            result["with_kernel"] = with_kernel(tab, shots)
            tab.close()
            end_kernels(address)
            tab = open_lab(browser, f"{address}", foreign)
            places = [output(tab, number) for number in (0, 1)]
            result["saved_in_lab"] = [is_seen(place) for place in places]
            if shots:
                tab.screenshot(path=shots / "notebook-saved.png")
        saved = json.loads((root / "view.ipynb").read_text("utf-8"))
        kinds = [sorted(o.get("data", {})) for cell in saved["cells"][:2] for o in cell["outputs"]]
        result["saved_kinds"], result["notebook_bytes"] = (
            kinds,
            (root / "view.ipynb").stat().st_size,
        )
        result["as_html"] = as_html(browser, jupyter, root, shots)
        result["browser"] = browser.version
    result["requests_to_other_hosts"] = sorted(set(foreign))
    print(json.dumps(result, indent=1, ensure_ascii=False))
    print(harness.write("notebook", result))


def as_html(browser: Any, bin_folder: Path, root: Path, shots: Path | None) -> list[str]:
    """What a file of nbconvert shows of both outputs without a network."""
    command = [str(bin_folder / "jupyter-nbconvert"), "--to", "html", str(root / "view.ipynb")]
    subprocess.run(command, check=True, capture_output=True)
    context = browser.new_context(viewport={"width": 1280, "height": 2600}, offline=True)
    tab = context.new_page()
    tab.goto((root / "view.html").as_uri())
    outputs = tab.locator(".jp-CodeCell .jp-OutputArea")
    result = [is_seen(outputs.nth(number)) for number in (0, 1)]
    if shots:
        tab.screenshot(path=shots / "notebook-html.png")
    return result


if __name__ == "__main__":
    harness.run(main)
