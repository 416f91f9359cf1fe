"""A translator in transformers.js: the graphs that it reads, and how fast Chromium answers.

    npm install --prefix FOLDER @huggingface/transformers
    python benchmarks/transformers_js.py RUN FOLDER [--lines 100]

The same weights in ONNX, under the names that its class of Marian models expects; int8 by
onnxruntime's dynamic quantisation of matrices. It is given ids and gives ids, greedily and by one
thread: no tokenizer, alternatives or maps, which a page of foveate has in its time. The sources are
the first test sentences of the run; "beside" of docs/results/publish.json is written.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import foveate.engine.packed
import harness
from foveate.data.tokenizer import BOS, EOS, PAD
from foveate.exchange.onnx import Encoding, Stepping, write_graph
from foveate.run import Run, load
from foveate.run.evaluation import examples

GRAPHS = "encoder_model", "decoder_model_merged"
PAGE = """<!doctype html><script type="module">
import { MarianMTModel, Tensor, env } from "/package/dist/transformers.min.js";
env.allowRemoteModels = env.useBrowserCache = false;
env.allowLocalModels = true;
env.localModelPath = "/models/";
env.backends.onnx.wasm.wasmPaths = "/ort/";
env.backends.onnx.wasm.numThreads = 1;
const of = (ids, value) =>
  new Tensor("int64", BigInt64Array.from(ids, (id) => BigInt(value ?? id)), [1, ids.length]);
globalThis.load = async (dtype) => {
  const begin = performance.now();
  globalThis.model = await MarianMTModel.from_pretrained("ours", { dtype, device: "wasm" });
  return performance.now() - begin;
};
globalThis.ask = async (sources) => {
  const begin = performance.now(), outputs = [];
  for (const ids of sources) {
    const asked = { inputs: of(ids), attention_mask: of(ids, 1), do_sample: false };
    const output = await model.generate({ ...asked, max_new_tokens: 2 * ids.length + 18 });
    outputs.push([...output.data].map(Number));
  }
  return [outputs, performance.now() - begin];
};
globalThis.ready = true;
</script>"""


class Encoder(nn.Module):
    """The encoder with a mask of whole numbers."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.inner = Encoding(model)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return self.inner(ids, mask > 0)


class Decoder(nn.Module):
    """A step of the decoder, whose place is the length of what it has read."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.inner = Stepping(model)

    def forward(self, ids: Tensor, mask: Tensor, values: Tensor, *old: Tensor) -> object:
        at = torch._shape_as_tensor(old[0])[2]
        logits, *new = self.inner(ids[:, 0], at, values, mask > 0, *old)
        return logits[:, None], *new


def write_model(run: Run, folder: Path) -> None:
    """The graphs of a run, fp32 and int8, and the settings that transformers.js reads."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model: Any = run.model.eval()
    (onnx := folder / "onnx").mkdir(parents=True)
    ids = torch.full((1, 5), 4)
    layers = [layer.self_attention for layer in model.decoder.layers]
    shapes = [
        (each.key_heads, size) for each in layers for size in (each.key_size, each.value_size)
    ]
    state = [torch.zeros(1, heads, 3, size) for heads, size in shapes]
    sides = [f"{n}.decoder.{kind}" for n in range(len(layers)) for kind in ("key", "value")]
    source = {0: "rows", 1: "source"}
    write_graph(
        Encoder(model), (ids, torch.ones_like(ids)), onnx / "encoder_model.onnx",
        {"input_ids": source, "attention_mask": source}, {"last_hidden_state": source},
    )  # fmt: skip
    with torch.no_grad():
        values = model.encode(ids, ids > 0).values
    write_graph(
        Decoder(model), (ids[:, :1], torch.ones_like(ids), values, *state),
        onnx / "decoder_model_merged.onnx",
        {"input_ids": {0: "rows"}, "encoder_attention_mask": source}
        | {"encoder_hidden_states": source}
        | {f"past_key_values.{side}": {0: "rows", 2: "read"} for side in sides},
        {"logits": {0: "rows"}} | {f"present.{side}": {0: "rows", 2: "grown"} for side in sides},
    )  # fmt: skip
    for name in GRAPHS:
        quantize_dynamic(
            onnx / f"{name}.onnx", onnx / f"{name}_quantized.onnx", weight_type=QuantType.QInt8
        )
    heads, size = shapes[0]
    ends = {"eos_token_id": EOS, "pad_token_id": PAD, "decoder_start_token_id": BOS}
    config = {
        "model_type": "marian", "is_encoder_decoder": True, "d_model": heads * size,
        "encoder_layers": len(layers), "decoder_layers": len(layers), "vocab_size": 0,
        "encoder_attention_heads": heads, "decoder_attention_heads": heads, **ends,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8", newline="\n")
    (folder / "generation_config.json").write_text(json.dumps(ends), encoding="utf-8", newline="\n")


def size_of(answer: Any) -> int:
    """The bytes of an answer of the server, as its header has them."""
    return int(answer.headers.get("content-length", 0))


def beside(
    browser: Any,
    run: Run,
    package: Path,
    sources: list[list[int]],
    right: list[list[int]],
    folder: Path,
) -> dict[str, Any]:
    """Bytes, milliseconds and greedy sentences a second, and outputs that are Python's in fp32."""
    root, modules = folder / "peer", package / "node_modules"
    root.mkdir()
    write_model(run, root / "models" / "ours")
    (root / "index.html").write_text(PAGE, encoding="utf-8", newline="\n")
    (root / "package").symlink_to(modules / "@huggingface" / "transformers")
    (root / "ort").symlink_to(modules / "onnxruntime-web" / "dist")
    quiet = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(quiet, directory=str(root)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    version = json.loads((root / "package" / "package.json").read_text(encoding="utf-8"))["version"]
    result: dict[str, Any] = {"transformers.js": version}
    for dtype, suffix in (("fp32", ""), ("q8", "_quantized")):
        page = browser.new_page()
        page.set_default_timeout(60_000)  # beside other programs
        fetched: list[int] = []
        page.on("response", lambda answer, to=fetched: to.append(size_of(answer)))
        page.goto(f"http://127.0.0.1:{server.server_port}/index.html")
        page.wait_for_function("globalThis.ready")
        loaded = page.evaluate("load", dtype)
        first = page.evaluate("ask", sources[:1])[1]
        rounds = [page.evaluate("ask", sources) for _ in range(3)]
        outputs = [[i for i in ids if i not in (BOS, EOS, PAD)] for ids in rounds[0][0]]
        result[dtype] = {
            "bytes_fetched": sum(fetched),
            "bytes_of_the_graphs": sum(
                (root / f"models/ours/onnx/{graph}{suffix}.onnx").stat().st_size
                for graph in GRAPHS
            ),
            "load_ms": loaded,
            "first_ms": first,
            "sentences_per_second": statistics.median(1000 * len(sources) / ms for _, ms in rounds),
            "equal_to_python": sum(a == b for a, b in zip(outputs, right, strict=True)),
        }  # fmt: skip
        page.close()
    server.shutdown()
    return result


def main(run: Path, package: Path, lines: int = 100) -> None:
    """Measure both precisions, and write what came out beside the page of foveate."""
    from playwright.sync_api import sync_playwright

    loaded = load(run)
    engine = foveate.engine.packed.load(run / "packed.safetensors")
    texts = [str(source) for source in examples(loaded.task, "test").sources[:lines]]
    sources = [[*engine.tokenizers[0].encode(text).ids, EOS] for text in texts]
    right = [list(answer.outputs[0].ids) for answer in engine.translate(texts, beam_size=1)]
    with sync_playwright() as player, tempfile.TemporaryDirectory() as folder:
        browser = player.chromium.launch(executable_path=harness.browser(), args=["--no-sandbox"])
        result = beside(browser, loaded, package, sources, right, Path(folder))
    measured = result | {"lines": len(texts), "machine": harness.describe()}
    harness.write("publish", harness.previous("publish") | {"beside": measured})


if __name__ == "__main__":
    harness.run(main)
