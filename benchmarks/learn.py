"""Training in a page (``foveate publish --train``), measured in Chromium: docs/results/learn.json.

    python benchmarks/learn.py [--out docs/results/learn.json] [--browser /usr/bin/chromium]

Of each task and model: steps per second, the step and the seconds after which at least 0.8 of the
weight (mean of all heads) is on the right position of an example that training draws by chance, and
whether a second run with the same seed has the same losses. Each run has one worker; a race two.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import harness
from foveate.studio.publish import publish

FORMED, SECONDS = 0.8, 120
PAGE = Path(__file__).parent.parent / "docs" / "guide" / "engine.md"
READ = """() => {
  const { frames, pace, size } = foveateLearn()[0];
  return { pace, size, frames: frames.map(({ step, loss, right, output }) =>
    [step, Number.isNaN(loss) ? null : loss, right, output.join('')]) };
}"""
RUNS: dict[str, list[dict[str, Any]]] = {
    "reverse, Transformer": [{}],
    "reverse, GRU with attention": [{"model": "recurrent"}],
    "dates, Transformer": [{"task": "dates"}],
    "adjectives, Transformer": [{"task": "adjectives"}],
    "race: with and without positions": [{}, {"positions": False}],
}


def film(page: Any, address: str, runs: list[dict[str, Any]], steps: int) -> dict[str, Any]:
    """Train in a page up to a number of steps, and return what it shows."""
    page.goto("about:blank")
    page.goto(f"{address}#learn={quote(json.dumps({'runs': runs}))}")
    page.wait_for_selector(".fv-learn-lane")
    ready = f"() => foveateLearn().every(run => run.step >= {steps})"
    page.wait_for_function(ready, timeout=1000 * SECONDS)
    return dict(page.evaluate(READ))


def main() -> None:
    """Measure, print, and write the result."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--browser", default=None)
    parser.add_argument("--steps", type=int, default=1000)
    arguments = parser.parse_args()
    result: dict[str, Any] = {"formed": FORMED, "steps": arguments.steps, "runs": {}}
    with sync_playwright() as play, tempfile.TemporaryDirectory() as folder:
        browser = play.chromium.launch(executable_path=arguments.browser)
        page, requests = browser.new_page(), list[str]()
        page.on("request", lambda request: requests.append(request.url))
        file = Path(folder) / "learn.html"
        result["bytes"] = publish([], file, train=True)
        result["browser"] = browser.version
        for name, runs in RUNS.items():
            one, again = (film(page, file.as_uri(), runs, arguments.steps) for _ in range(2))
            shared = min(len(one["frames"]), len(again["frames"]))
            formed = [step for step, _, right, _ in one["frames"] if right >= FORMED]
            step, loss, right, output = one["frames"][-1]
            result["runs"][name] = {
                "weights": one["size"], "steps_per_second": round(one["pace"], 1),
                "formed_at_step": formed[0] if formed else None,
                "formed_after_seconds": round(formed[0] / one["pace"], 1) if formed else None,
                "same_losses_again": one["frames"][:shared] == again["frames"][:shared],
                "last": {"step": step, "loss": loss, "right": right, "output": output},
            }  # fmt: skip
            print(name, json.dumps(result["runs"][name], ensure_ascii=False), flush=True)
        away = [
            url for url in requests if not url.startswith(("file:", "blob:", "about:", "data:"))
        ]
        result["requests"] = away
        browser.close()
    harness.write("learn", result, arguments.out)
    harness.fill(PAGE, "learn", table(result))


def table(result: dict[str, Any]) -> str:
    """The runs as rows of the guide."""
    rows = [
        "| | weights | steps per second | formed | last loss |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, run in result["runs"].items():
        step, seconds = run["formed_at_step"], run["formed_after_seconds"]
        formed = f"step {step}, {seconds} s" if step else f"not in {result['steps']:,} steps"
        loss = f"{run['last']['loss']:.3f}"
        rows.append(
            f"| {name} | {run['weights']:,} | {run['steps_per_second']:.0f} | {formed} | {loss} |"
        )
    return "\n".join([*rows, "", f"The page has {result['bytes'] / 1e6:.2f} MB."])


if __name__ == "__main__":
    main()
