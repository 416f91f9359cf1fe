"""CTranslate2: decoding alone, of a model of the shape with weights drawn by chance.

Modes: ``fp32``, ``bf16``, ``int8``, and behind a blank-less ``x`` the number of workers, among
which the threads are shared: ``int8x2``. Several workers need several batches at once. Sentences
one by one are measured with one thread and with all, since two can be several times slower; the
faster is reported, and ``fastest`` names it.
"""

from __future__ import annotations

import math
from typing import Any

import common
import ctranslate2
import numpy as np
from common import Job
from ctranslate2.specs import common_spec, transformer_spec

ONE_BY_ONE = [case for case, (_, rows) in common.CASES.items() if rows == 1]
TOGETHER_CASES = [case for case in common.CASES if case not in ONE_BY_ONE]
TYPES = {"fp32": "float32", "bf16": "bfloat16", "int8": "int8"}


def write_model(job: Job) -> str:
    """A Transformer with norms before, in CTranslate2's form; where it lies."""
    sizes, tokens = job.sizes, job.vocabulary()
    if job.shape == "tiny11":
        tokens += [f"<{n}>" for n in range(len(tokens), common.TINY11_PIECES)]
    size, ffn = sizes["size"], sizes["ffn"]
    spec = transformer_spec.TransformerSpec.from_config(
        (sizes["layers"], job.layers_that_write), sizes["heads"], pre_norm=True,
        activation=common_spec.Activation.RELU,
    )  # fmt: skip
    draw = np.random.default_rng(1)

    def linear(part: Any, rows: int, columns: int, bias: bool = True) -> None:
        part.weight = (draw.standard_normal((rows, columns)) * columns**-0.5).astype(np.float32)
        if bias:
            part.bias = np.zeros(rows, dtype=np.float32)

    def norm(part: Any) -> None:
        part.gamma = np.ones(size, dtype=np.float32)
        part.beta = np.zeros(size, dtype=np.float32)

    def attention(part: Any, widths: list[int]) -> None:
        norm(part.layer_norm)
        for piece, width in zip(part.linear, widths, strict=True):
            linear(piece, width, size)

    table = (draw.standard_normal((len(tokens), size)) * size**-0.5).astype(np.float32)
    spec.encoder.embeddings[0].weight = spec.decoder.embeddings.weight = table
    spec.decoder.projection.weight = table
    for side in (spec.encoder, spec.decoder):
        side.position_encodings.encodings = sinusoids(512, size)
        norm(side.layer_norm)
        for layer in side.layer:
            attention(layer.self_attention, [3 * size, size])
            if side is spec.decoder:
                attention(layer.attention, [size, 2 * size, size])
            norm(layer.ffn.layer_norm)
            linear(layer.ffn.linear_0, ffn, size)
            linear(layer.ffn.linear_1, size, ffn)
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.config.add_source_eos = True
    if job.shape == "tiny11":
        spec.register_vocabulary_mapping(mapping(job, tokens))
    spec.validate()
    spec.optimize()
    place = job.folder / "model"
    place.mkdir()
    spec.save(str(place))
    return str(place)


def mapping(job: Job, tokens: list[str]) -> str:
    """Where the pieces stand that may translate each piece, as CTranslate2 reads them."""
    often, likely = common.shortlist(job)
    lines = ["\t" + " ".join(tokens[i] for i in often)]
    lines += [f"{tokens[n]}\t" + " ".join(tokens[i] for i in some) for n, some in enumerate(likely)]
    place = job.folder / "mapping.txt"
    place.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    return str(place)


def sinusoids(length: int, size: int) -> np.ndarray:
    at = np.arange(length)[:, None]
    rate = np.exp(np.arange(0, size, 2) * (-math.log(10_000.0) / size))
    return np.concatenate((np.sin(at * rate), np.cos(at * rate)), axis=1).astype(np.float32)


def decode(job: Job) -> dict[str, Any]:
    kind, _, count = job.mode.partition("x")
    workers = int(count or 1)
    threads = max(1, job.threads // workers)
    model, together = write_model(job), common.TOGETHER if workers > 1 else 1
    report = common.speeds(job, searcher(model, kind, workers, threads), together=together) | {
        "versions": common.versions("ctranslate2"),
        "batches": f"{workers} worker(s), {threads} thread(s) each",
        "computes": TYPES[kind],
    }
    speeds = report["sentences_per_second"]
    report["fastest"] = {case: threads for case in speeds if case in ONE_BY_ONE}
    if threads > 1:
        alone = common.speeds(job, searcher(model, kind, 1, 1), leave_out=TOGETHER_CASES)
        for case, speed in alone["sentences_per_second"].items():
            if speed > speeds[case]:
                speeds[case], report["fastest"][case] = speed, 1
    return report


def batches(job: Job) -> dict[str, Any]:
    """By as many workers of one thread as there are threads, or by one worker of them all."""
    model, both = write_model(job), sorted({1, job.threads})

    def shared(workers: int) -> common.Search:
        """A search in which each worker takes its share of a batch."""
        threads = job.threads // workers
        search = searcher(model, job.mode, workers, threads, job.shape == "tiny11")
        return lambda lines, beam, rows: search(lines, beam, -(-(rows or 64) // workers))

    searches = [shared(workers) for workers in both]
    return common.curve(job, searches) | {"versions": common.versions("ctranslate2")}


def searcher(
    model: str, kind: str, workers: int, threads: int, shortlist: bool = False
) -> common.Search:
    """Searches with so many workers of so many threads."""
    translator = ctranslate2.Translator(
        model, device="cpu", compute_type=TYPES[kind], inter_threads=workers,
        intra_threads=threads,
    )  # fmt: skip

    def search(sentences: list[common.Pieces], beam: int, rows: int | None) -> None:
        translator.translate_batch(
            sentences, beam_size=beam, max_batch_size=rows or 64,
            use_vmap=shortlist,
            min_decoding_length=common.OUTPUT, max_decoding_length=common.OUTPUT,
        )  # fmt: skip

    return search


if __name__ == "__main__":
    common.main({"decode": decode, "batches": batches})
