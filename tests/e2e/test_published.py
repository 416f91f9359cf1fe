"""Published pages in Chromium, from a disk: answers are those of Python, nothing is requested."""

import base64
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import foveate.engine.packed
from foveate.config import PACKAGED
from foveate.data.tokenizer import EOS
from foveate.studio.publish import PublishedFile, assemble, asset, publish

ROOT = Path(__file__).parents[2]
AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
STORED = ROOT / "tests" / "packed" / "v1"
SOURCES = ["the dog runs", "a cat sleeps", "the man reads", "a girl"]
ASK = """async ([run, question]) => {
  const events = [];
  for await (const event of foveate.events(run, question, new AbortController().signal))
    events.push(event);
  return events;
}"""
Visit = Callable[..., Any]
pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(not importlib.util.find_spec("ziglang"), reason="no zig: make wheels"),
    pytest.mark.skipif(
        not (
            Path(foveate.engine.packed.__file__).parents[1] / "look" / "draw" / "publish.js"
        ).is_file(),
        reason="make web builds the page",
    ),
]


def stored(*names: str) -> list[PublishedFile]:
    return [PublishedFile(STORED / f"{name}.safetensors", name, SOURCES) for name in names]


def address(folder: Path, files: list[PublishedFile], single: bool) -> str:
    publish(files, folder / "page.html" if single else folder, "models", single)
    return (folder / ("page.html" if single else "index.html")).as_uri()


def asked(page: Any, run: str, **question: Any) -> dict[str, Any]:
    *_, done = page.evaluate(ASK, [run, question])
    return dict(done)


@pytest.mark.parametrize("single", [True, False])
def test_a_page_translates_as_python_does(open_url: Visit, tmp_path: Path, single: bool) -> None:
    names = sorted(path.stem for path in STORED.glob("*.safetensors"))
    page = open_url(address(tmp_path, stored(*names), single))
    for name in names:
        model = foveate.engine.packed.load(STORED / f"{name}.safetensors", threads=1)
        if model.header.task == "classification":
            right = model.classify(SOURCES)
            own = [asked(page, name, text=line)["labels"] for line in SOURCES]
            each = [{odds["label"]: odds["p"] for odds in labels} for labels in own]
            assert each == [pytest.approx(dict(answer.probabilities), abs=1e-5) for answer in right]
        elif "translation" in model.header.task:
            for beam in (1, 4):
                texts = ({"text": line, "search": {"beamSize": beam}} for line in SOURCES)
                outputs = [asked(page, name, **question)["hypotheses"][0] for question in texts]
                ids = [[token["id"] for token in output["tokens"]] for output in outputs]
                answers = model.translate(SOURCES, beam_size=beam, length_penalty=0.6)
                right_ids = [list(answer.outputs[0].ids) for answer in answers]
                assert [[i for i in each if i != EOS] for each in ids] == right_ids, (name, beam)
        else:
            question = {"text": "the dog", "search": {"seed": 3, "temperature": 0.8, "maxExtra": 9}}
            [continuation] = model.generate(["the dog"], 9, seed=3, temperature=0.8)
            assert asked(page, name, **question)["hypotheses"][0]["text"] == continuation.text, name


def test_a_word_is_forced_a_head_silenced_and_a_text_cut(open_url: Visit, tmp_path: Path) -> None:
    page = open_url(address(tmp_path, stored("transformer_pre"), single=True))
    answer = page.locator("[data-testid=transformer_pre]")
    before = page.locator(".output").inner_text()
    page.locator(".word").nth(1).click()
    page.locator("section[aria-label^=alternatives] li button").first.click()
    page.get_by_text("undo what was forced").wait_for()
    assert page.locator(".word.forced").count() == 1
    assert page.locator(".output").inner_text() != before
    page.get_by_role("button", name="Silence all heads of decoder cross-attention").click()
    page.get_by_text("with all heads:").wait_for()
    answer.locator("[data-kind=attention]").wait_for()
    assert "Silenced" in answer.locator("[data-kind=attention]").inner_text()
    page.get_by_label("Source").fill("a dog " * 200)
    page.get_by_role("button", name="Translate", exact=True).click()
    page.get_by_text("The text is too long for this model").wait_for()


def test_a_head_is_looked_at_step_by_step(open_url: Visit, tmp_path: Path) -> None:
    page = open_url(address(tmp_path, stored("transformer_pre"), single=True))
    page.get_by_role("button", name="Step by step").click()
    walk = page.get_by_test_id("walk")
    walk.locator("[data-kind=scene]").wait_for()
    assert "head 0" in walk.inner_text() and "Computed by the engine" in walk.inner_text()
    cells = page.locator("section[aria-label=attention] .fv-cells[role=application]")
    cells.focus()
    cells.press(".")  # another head, whose stages are shown then
    cells.press(".")
    walk.locator(".fv-title", has_text="head 1").wait_for()
    drawing = page.evaluate(
        "look => foveate.look('transformer_pre', look)",
        {
            "view": "scene",
            "block": "encoder.self_attention",
            "layer": 0,
            "head": 1,
            "text": "a dog",
        },
    )
    assert drawing["panels"][0]["rows"] == ["a", "dog", "</s>"]


def test_too_long_a_text_is_refused_and_the_next_one_answered(open_url, tmp_path) -> None:
    page = open_url(address(tmp_path, stored("decoder_only"), single=True))
    page.locator("textarea").fill("a dog " * 20_000)
    page.locator("button.primary").click()
    page.get_by_text("120,000 characters; this page takes 100,000 at a time").wait_for()
    page.locator("textarea").fill("a dog " * 1100)
    page.locator("button.primary").click()
    page.get_by_text(" tokens; this page reads 2,000 at once").wait_for()
    page.locator("textarea").fill("a dog")
    page.locator("button.primary").click()
    page.locator("[data-status=done]").wait_for()


def test_the_maps_of_a_page_are_those_of_python(open_url: Visit, tmp_path: Path) -> None:
    page = open_url(address(tmp_path, stored("gru_bahdanau"), single=True))
    model = foveate.engine.packed.load(STORED / "gru_bahdanau.safetensors", threads=1)
    done = asked(page, "gru_bahdanau", text=SOURCES[0], search={"beamSize": 1})
    [block] = done["drawings"][0]["blocks"]
    own = np.frombuffer(base64.b64decode(block["layers"][0]["data"]), np.float32)
    ids = list(model.translate(SOURCES[:1], beam_size=1)[0].outputs[0].ids)
    source = [*model.tokenizers[0].encode(SOURCES[0]).ids, EOS]
    (name, right), *_ = model.engine._maps(source, [*ids, EOS]).items()
    assert name.endswith(block["name"].split(".")[-1])
    assert np.abs(np.reshape(own, right.shape) - right).max() < 1e-5


def test_without_simd_the_scalar_engine_answers(browser: Any, tmp_path: Path) -> None:
    page = browser.new_page()
    page.add_init_script("WebAssembly.validate = () => false")
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url.rpartition("/")[2]))
    page.goto(address(tmp_path, stored("transformer_post"), single=False))
    page.locator("[data-status=done]").wait_for()
    model = foveate.engine.packed.load(STORED / "transformer_post.safetensors", threads=1)
    [own] = asked(page, "transformer_post", text=SOURCES[1], search={"beamSize": 1})["hypotheses"]
    assert own["text"] == str(model.translate(SOURCES[1:2], beam_size=1)[0])
    assert "engine-scalar.js" in requests and "engine-wasm.js" not in requests
    assert "WebAssembly without SIMD, which this browser lacks" in page.inner_text("footer")
    page.close()


def test_a_file_that_is_missing_is_named(browser: Any, tmp_path: Path) -> None:
    place = address(tmp_path, stored("classifier"), single=False)
    (tmp_path / "files" / "model-0.js").unlink()
    page = browser.new_page()
    page.goto(place)
    alert = page.get_by_role("alert")
    alert.wait_for()
    assert alert.inner_text() == "files/model-0.js is missing beside this page"
    page.close()


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1280, "dark"), (1920, "light")])
def test_axe_finds_nothing(open_url: Visit, tmp_path: Path, width: int, scheme: str) -> None:
    if not AXE.is_file():
        pytest.skip("no axe-core here: `npm ci` in web/")
    files = stored("transformer_pre", "guided", "classifier")
    page = open_url(address(tmp_path, files, single=False), width=width, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.evaluate(AXE.read_text("utf-8"))
    for tab in ("Translate", "Classify"):
        page.get_by_role("button", name=tab).first.click()
        page.locator("[data-status=done]").first.wait_for()
        page.wait_for_timeout(300)
        violations = page.evaluate("axe.run().then(({violations}) => violations)")
        assert [(v["id"], v["nodes"][0]["html"][:200]) for v in violations] == [], tab


def test_the_policy_names_the_script_and_nothing_else() -> None:
    page = assemble({"title": "</script><b>"}, {"model-0": "AAAA"})
    assert "<b>" not in page.replace(asset("publish.js"), "")
    assert "http://" not in page.replace(asset("publish.js"), "")
    assert "script-src 'sha256-" in page and "'self'" not in page and "unsafe-inline" not in page


def test_a_run_that_ships_is_published_with_examples(call: Any, tmp_path: Path) -> None:
    done = call("publish", PACKAGED / "lm", "--out", tmp_path / "site", "--title", "letters")
    assert done.code == 0, done.err
    files = sorted(path.name for path in (tmp_path / "site" / "files").iterdir())
    assert files == ["engine-scalar.js", "engine-wasm.js", "model-0.js"]
    assert '"examples": ["' in (tmp_path / "site" / "index.html").read_text("utf-8")
