"""Published pages in Chromium beside Python: answers, maps, size, seconds, what is requested.

    make web; python benchmarks/publish.py RUN [--lines 500] [--part page] [--only NAME]

The page of RUN, a translator, is opened from a disk: its size in int8, milliseconds from its load
to the first translation, and greedy sentences a second with alternatives and maps of every head,
the median of five rounds over the lines, which are test and validation data that ship, each once.
Then they are answered by a page of RUN in int8 and in fp32, of each run that ships (int8), and of
each stored file of tests/packed/v1: greedily and by a beam of 5 (language models: 20 tokens drawn
after half a line), in Chromium and in Node. Answers are counted that are Python's, and of 50 lines
the largest difference of a weight is taken; of 5 those of the stages of one head of every attention
of RUN, in fp32 from PyTorch's, in int8 from the engine's in Python, by the largest number of the
stage where it is above 1. Of each kind of tokenizer ids and texts of 5,000 lines of Tatoeba are
compared. Axe, widths and requests are examined at 360, 1280, 1920 and 2560 pixels, light and dark.
`--part` (repeated) measures a part alone, `page` the seconds, `--only` (repeated) models of these
names; what is there of others stays. Each is written when it is done, to docs/results/publish.json
or ``--out``.
"""

from __future__ import annotations

import base64
import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Collection, Iterator
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch

import foveate.engine.packed
import harness
from foveate.config import PACKAGED
from foveate.data.tokenizer import BOS, EOS, Tokenizer
from foveate.engine.compiled import CompiledSearch, Settings, web_engine
from foveate.engine.packed import PackedModel
from foveate.look.hooks import ForcedPass
from foveate.look.stages import attention_stages, capture_stages
from foveate.nn.attention import BaseAttention
from foveate.run import Run, load
from foveate.run.pack import pack
from foveate.studio.publish import PublishedFile, publish

WEB = harness.ROOT / "web"
SHIPPED = ("en-fr", "no-attention", "rnn", "kinds-of-sentences", "lm", "lm-lstm", "lm-rnn")
MAPPED, STEPPED = 50, 5  # lines whose maps, and whose stages, are compared
MINUTES = 600_000  # milliseconds that Chromium may take beside other programs
DRAWN, SEED, TATOEBA = 20, 3, 5000  # tokens of a continuation; lines for tokenizers
TOKENIZERS: dict[str, dict[str, Any]] = {
    "byte": {}, "character": {}, "word": {"vocab_size": 8000}, "symbol": {},
    "bpe": {"vocab_size": 4000}, "unigram": {"vocab_size": 4000},
}  # fmt: skip
BEAMS = {"greedy": 1, "beam": 5}
PARTS = "page", "models", "stages", "tokenizers", "looks"
# Every line is asked as a visitor asks it; maps come of the first ones.
ASK = """async ([run, lines, question, mapped]) => {
  const answers = [], begin = performance.now();
  for (const text of lines) {
    let done;
    const asked = { ...question, text, units: "tokens" }, { signal } = new AbortController();
    for await (done of foveate.events(run, asked, signal));
    const maps = answers.length < mapped ? done.drawings.find(d => d.kind === "attention") : null;
    const named = ({ name, layers }) => layers.map(({ data }) => [name, data]);
    const layers = maps?.blocks.flatMap(named);
    answers.push({ labels: done.labels, layers,
      ids: done.hypotheses?.[0].tokens.map(({ id }) => id), text: done.hypotheses?.[0].text });
  }
  return [answers, performance.now() - begin];
}"""
TOKENIZE = """async ([engine, tree, lines]) => {
  const url = URL.createObjectURL(new Blob([engine], { type: "text/javascript" }));
  const tokenizer = new (await import(url)).Tokenizer(JSON.parse(tree));
  const ids = lines.map(line => tokenizer.encode(line));
  return ids.map(each => [each, tokenizer.decode(each)]);
}"""
FIRST = """() => new Promise((go) => {
  const look = () => document.querySelector("[data-status=done]")
    ? go([performance.now(), performance.getEntriesByType("navigation")[0].loadEventEnd])
    : requestAnimationFrame(look);
  look();
})"""


def main(
    run: Path,
    lines: int = 500,
    part: Annotated[list[str] | None, harness.among(PARTS, "a part; repeat")] = None,
    only: list[str] | None = None,
    out: Path | None = None,
) -> None:
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        flags = ["--no-sandbox"]
        browser = playwright.chromium.launch(executable_path=harness.browser(), args=flags)
        own = pack(load(run), folder / "own.safetensors", "int8")
        task: Any = load(PACKAGED / "en-fr").task
        labelled: Any = load(PACKAGED / "kinds-of-sentences").task  # single sentences of the same
        splits = (t.corpus(split).sources for t in (task, labelled) for split in ("test", "valid"))
        texts = list(dict.fromkeys(chain.from_iterable(splits)))[:lines]
        result = harness.previous("publish", out) | {"lines": len(texts)}
        parts = part or PARTS
        if "page" in parts:
            result["page"] = measured(browser, own, texts, folder)
            result["page"]["machine"] = harness.describe()
            harness.write("publish", result, out)
        for key, values in all_compared(browser, run, own, texts, folder, parts, only):
            result[key] = result.get(key, {}) | values if key == "models" else values
            harness.write("publish", result, out)
        browser.close()


def all_compared(
    browser: Any, run: Path, own: Path, texts: list[str], folder: Path,
    parts: Collection[str], only: Collection[str] | None,
) -> Iterator[tuple[str, Any]]:  # fmt: skip
    """What does not depend on the speed of a machine: models, stages, tokenizers, looks."""
    subprocess.run(
        ["node", "scripts/build.mjs", "engine"], cwd=WEB, check=True,
        env=os.environ | {"OUT": str(folder)},
    )  # fmt: skip
    fp32 = pack(load(run), folder / "fp32.safetensors")
    files = {f"{own.stem}, int8": own, f"{own.stem}, fp32": fp32}
    files |= {n: pack(load(PACKAGED / n), folder / f"{n}.safetensors", "int8") for n in SHIPPED}
    stored = sorted((harness.ROOT / "tests/packed/v1").glob("*.safetensors"))
    files |= {f"stored {path.stem}": path for path in stored}
    for name, path in files.items() if "models" in parts else ():
        if not only or name in only:
            yield "models", {name: compared(browser, path, texts, folder)}
    if "stages" in parts:
        stages = {
            "of": texts[:STEPPED],
            "fp32_from_pytorch": stepped(folder, fp32, texts, load(run)),
            "int8_from_the_engine": stepped(folder, own, texts, None),
        }
        yield "stages", stages
    if "tokenizers" in parts:
        yield "tokenizers", tokenized(browser, folder)
    if "looks" in parts:
        yield "looks", looks(browser, own, texts[0], folder)


def opened(browser: Any, file: Path, example: str, folder: Path, **options: Any) -> Any:
    """The page of a file, and what it has requested and written to its console."""
    publish([PublishedFile(file, "model", [example])], folder / "page.html", single=True)
    page = browser.new_context(**options).new_page()
    page.set_default_timeout(MINUTES)
    page.heard = []
    page.on("console", lambda message: page.heard.append(message.text))
    page.on("pageerror", lambda error: page.heard.append(str(error)))
    page.on("request", lambda request: page.heard.append(request.url[:5]))
    page.goto((folder / "page.html").as_uri())
    return page


def measured(browser: Any, file: Path, texts: list[str], folder: Path) -> dict[str, Any]:
    first = []
    for _ in range(5):
        page = opened(browser, file, texts[0], folder)
        shown, loaded = page.evaluate(FIRST)
        first.append((shown, loaded))
        if len(first) < 5:
            page.context.close()
    question = {"search": {"beamSize": 1}}
    rounds = [page.evaluate(ASK, ["model", texts, question, 0])[1] for _ in range(5)]
    heard, version = page.heard, browser.version
    page.context.close()
    return {
        "chromium": version,
        "bytes": (folder / "page.html").stat().st_size,
        "first_translation_ms_after_load": statistics.median(a - b for a, b in first),
        "first_translation_ms_after_navigation": statistics.median(a for a, _ in first),
        "greedy_sentences_per_second": statistics.median(1000 * len(texts) / t for t in rounds),
        "each_round": [1000 * len(texts) / t for t in rounds],
        "requests_and_console": heard,
    }


def looks(browser: Any, file: Path, example: str, folder: Path) -> list[dict[str, Any]]:
    axe = (WEB / "node_modules/axe-core/axe.min.js").read_text("utf-8")
    found = []
    for width in (360, 1280, 1920, 2560):
        for scheme in ("light", "dark"):
            view = {"width": width, "height": 900}
            page = opened(browser, file, example, folder, viewport=view, color_scheme=scheme)
            page.wait_for_selector("[data-status=done]")
            wide = page.evaluate("document.documentElement.scrollWidth")
            heard = list(page.heard)
            page.evaluate(axe)
            violations = page.evaluate(
                "axe.run().then(({violations}) => violations.map(v => v.id))"
            )
            found.append({"width": width, "scheme": scheme, "scroll_width": wide,
                          "violations": violations, "requests_and_console": heard})  # fmt: skip
            page.context.close()
    return found


def compared(browser: Any, file: Path, texts: list[str], folder: Path) -> dict[str, Any]:
    """How many lines a page, and Node, answer as Python does."""
    model = foveate.engine.packed.load(file)
    page = opened(browser, file, texts[0], folder)
    page.wait_for_selector("[data-status=done], [data-status=failed]")
    result: dict[str, Any] = {"task": model.header.task, "precision": model.precision}
    result["lines"] = len(texts)
    if model.header.task == "classification":
        answers, _ = page.evaluate(ASK, ["model", texts, {}, 0])
        own = [{odds["label"]: odds["p"] for odds in answer["labels"]} for answer in answers]
        node = in_node(folder, file, [["classify", line] for line in texts])
        right = [answer.probabilities for answer in model.classify(texts)]
        for name, each in (("", own), ("_in_node", node)):
            pairs = [(a, b) for a, b in zip(each, right, strict=True)]
            apart = max(abs(a[label] - b[label]) for a, b in pairs for label in b)
            result[f"largest_difference_of_p{name}"] = apart
            result[f"equal{name}"] = sum(
                max(a, key=a.__getitem__) == next(iter(b)) for a, b in pairs
            )
    elif model.header.task == "language":
        halves = [line[: len(line) // 2] for line in texts]
        question = {"search": {"seed": SEED, "maxExtra": DRAWN}}
        answers, _ = page.evaluate(ASK, ["model", halves, question, 0])
        right = [model.generate([half], DRAWN, seed=SEED)[0].text for half in halves]
        node = in_node(folder, file, [["generate", half, DRAWN, {"seed": SEED}] for half in halves])
        result["equal"] = sum(a["text"] == r for a, r in zip(answers, right, strict=True))
        result["equal_in_node"] = sum(a[0]["text"] == r for a, r in zip(node, right, strict=True))
    else:
        result |= translated(page, model, file, texts, folder)
    result["requests_and_console"] = page.heard
    page.context.close()
    return result


def translated(
    page: Any, model: PackedModel, file: Path, texts: list[str], folder: Path
) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, beam in BEAMS.items():
        question = {"search": {"beamSize": beam}}
        answers, _ = page.evaluate(ASK, ["model", texts, question, MAPPED if beam == 1 else 0])
        ids = [[i for i in answer["ids"] if i != EOS] for answer in answers]
        right = [list(a.outputs[0].ids) for a in model.translate(texts, beam_size=beam)]
        node = in_node(folder, file, [["translate", line, {"beamSize": beam}] for line in texts])
        result[f"{name}_equal"] = sum(a == b for a, b in zip(ids, right, strict=True))
        result[f"{name}_equal_in_node"] = sum(
            answer[0]["ids"] == b for answer, b in zip(node, right, strict=True)
        )
        if beam == 1:
            pairs = zip(texts, right, answers[:MAPPED], strict=False)
            apart = [difference(model, line, output, own["layers"]) for line, output, own in pairs]
            result["largest_difference_of_a_weight"] = max(apart)
    return result


def difference(model: PackedModel, line: str, output: list[int], layers: Any) -> float:
    """The largest of a line's maps; the page has them block by block."""
    source = [*model.tokenizers[0].encode(line).ids[: model.header.max_length], EOS]
    right = model.engine._maps(source, [*output, EOS])
    blocks = dict[str, list[Any]]()
    for name, weights in right.items():
        block = ".".join(p for p in name.split(".") if p != "layers" and not p.isdecimal())
        blocks.setdefault(block, []).append(weights)
    flat = [(name, weights) for name, each in blocks.items() for weights in each]
    apart = [0.0]
    for (block, weights), (own_block, text) in zip(flat, layers or [], strict=True):
        assert block == own_block
        own = np.frombuffer(base64.b64decode(text), np.float32).reshape(weights.shape)
        apart.append(float(np.abs(own - weights).max()))
    return max(apart)


def of_pytorch(forced: ForcedPass, name: str) -> dict[str, Any]:
    """The stages of all heads of an attention, (H, T, N), as PyTorch computes them."""
    module = forced.model.get_submodule(name)
    assert isinstance(module, BaseAttention)
    with torch.inference_mode(), capture_stages(module) as calls:
        forced.run()
    heads = [
        {each.name: each.values for each in attention_stages(module, calls, head, forced.row)}
        for head in range(module.num_heads)
    ]
    return {stage: np.stack([head[stage] for head in heads]) for stage in heads[0]}


def stepped(folder: Path, file: Path, texts: list[str], run: Run | None) -> dict[str, float]:
    """The largest difference of each stage of all attentions, from PyTorch where a run
    is given, else from the engine in Python.
    """
    model, head = foveate.engine.packed.load(file), 0
    apart: dict[str, float] = {}
    for line in texts[:STEPPED]:
        ids = list(model.translate([line], beam_size=1)[0].outputs[0].ids)
        source = [*model.tokenizers[0].encode(line).ids, EOS]
        search = CompiledSearch(model.engine.compiled, Settings(BOS, EOS))
        forced = partial(search.log_probabilities, source, [*ids, EOS])
        names = model.engine.attentions
        drawings = in_node(folder, file, [["inside", name, head, line, ids] for name in names])
        for number, (name, drawing) in enumerate(zip(names, drawings, strict=True)):
            right = {} if run is None else of_pytorch(run.forced(line, ids), name)
            [panel] = drawing["panels"]
            for stage, numbers in panel["values"].items():
                own = np.frombuffer(base64.b64decode(numbers["data"]), np.float32)
                own = own.reshape(numbers["shape"])
                if run is None and stage == "weights":
                    right[stage] = model.engine._maps(source, [*ids, EOS])[name]
                elif run is None and stage != "score":
                    [flat] = search.stages([(number, stage)], forced)
                    flat = flat.reshape(own.shape[1], -1, own.shape[2])
                    right[stage] = flat.swapaxes(0, 1)
                if stage in right:
                    seen, other = np.isfinite(own), right[stage][: len(own)]
                    most = float(np.abs(own - other)[seen].max())
                    most /= max(1.0, float(np.abs(other).max()))
                    apart[stage] = max(apart.get(stage, 0.0), most)
    return apart


def tokenized(browser: Any, folder: Path) -> dict[str, Any]:
    """Of each kind of tokenizer, how many lines have the ids and the text of Python."""
    sides = chain.from_iterable(islice(harness.tatoeba(), TATOEBA))
    lines = list(islice(dict.fromkeys(sides), TATOEBA))
    engine, page = (folder / "engine.js").read_text("utf-8"), browser.new_page()
    counts: dict[str, Any] = {"lines": len(lines)}
    for kind, options in TOKENIZERS.items():
        tokenizer: Tokenizer = Tokenizer.Config.parse({"kind": kind, **options}).build()
        tokenizer.train(lines)
        tokenizer.save(file := folder / f"{kind}.json")
        ids = tokenizer.encode_ids(lines)
        right = [[each, tokenizer.decode(each)] for each in ids]
        own = page.evaluate(TOKENIZE, [engine, file.read_text("utf-8"), lines])
        calls = [["encode", line] for line in lines] + [["decode", each] for each in ids]
        node = in_node(folder, file, calls)
        both = [list(each) for each in zip(node[: len(lines)], node[len(lines) :], strict=True)]
        counts[kind] = {
            name: sum(a == b for a, b in zip(each, right, strict=True))
            for name, each in (("equal", own), ("equal_in_node", both))
        }
    page.close()
    return counts


def in_node(folder: Path, file: Path, calls: list[list[Any]]) -> list[Any]:
    script = harness.ROOT / "tests" / "web_engine.mjs"
    command = ["node", str(script), str(folder / "engine.js"), str(web_engine("engine-wasm"))]
    text = json.dumps({str(file): calls})
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, check=True, encoding="utf-8"
    )
    return list(json.loads(done.stdout)[str(file)])


if __name__ == "__main__":
    harness.run(main)
