"""Whether the engine gives what PyTorch gives: trained models of every family, 500 lines each.

    python benchmarks/engine.py [--lines 500] [--only NAME] [--folder build/engine]

The models are trained where they are not there, some hundred steps on sentences of the embedded
grammar and on SST-2. Of each the test data are answered by PyTorch's own modules, by the engine in
fp32 and in int8. Translations: outputs of greedy search and of a beam of 5, all hypotheses of the
beam, log p of the references, weights of the attentions to the source, chrF in fp32 and int8.
Language models: continuations of the lines by both searches, and samples. Classifiers: labels, p.
A law beside: the same bits for a line alone, among all others, and on one thread or several.
Writes docs/results/engine.json, or ``--out``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import sacrebleu
import torch

import harness
from foveate.data import synthetic
from foveate.engine.packed import PackedModel
from foveate.nn.native.kernels import without_kernels
from foveate.run import Run, load
from foveate.run.evaluation import examples
from foveate.run.pack import content

TRAINED = """
seed = 1
model = "transformer-tiny"

[task]
kind = "translation"
source = "DATA/{split}.en"
target = "DATA/{split}.fr"
tokenizer = { kind = "bpe", vocab_size = 2000 }

[train]
batch_tokens = 1024
max_steps = 400
optimizer = { kind = "adamw", lr = 3e-3 }
schedule = { kind = "cosine", warmup_steps = 60 }
validation = { every = 600, samples = 0 }
"""
PAIRS = {"train": 20_000, "valid": 200, "test": 1000}
LANGUAGE = (
    "task={ kind = 'language', text = 'DATA/{split}.en', "
    "tokenizer = { kind = 'bpe', vocab_size = 2000 } }"
)
DECODER = "model={ kind = 'language_model', decoder = { kind = 'KIND', hidden_size = 128 } }"
FAMILIES = {  # how each differs from TRAINED; or its config
    "transformer": ["model.encoder.num_layers=2", "model.decoder.num_layers=2"],
    "transformer, norm after": [
        *("model.encoder.norm_order=post", "model.decoder.norm_order=post"),
        *("model.encoder.num_layers=2", "model.decoder.num_layers=2", "train.optimizer.lr=1e-3"),
    ],
    "transformer, SSRU": ["model=transformer-ssru"],
    "GRU, Bahdanau": ["model=bahdanau-2015"],
    "LSTM, Luong": ["model=luong-2015"],
    "LSTM, no attention": ["model=sutskever-2014"],
    "GRU, no attention": ["model=cho-2014"],
    "prefix": ["task.kind=prefix_translation", DECODER.replace("KIND", "transformer")],
    "language, Llama": [LANGUAGE, "model=llama-tiny"],
    "language, LSTM": [LANGUAGE, "model=lstm-zaremba"],
    "language, Mamba": [LANGUAGE, DECODER.replace("KIND", "mamba")],
    "classifier, CBOW": ["sst2-cbow.toml"],
    "classifier, LSTM": ["sst2-lstm.toml"],
    "classifier, transformer": ["sst2-transformer.toml"],
}
LONGEST = 40  # tokens of a continuation
ALONE = 50  # lines that are answered one by one
Figures = dict[str, Any]
Answers = Sequence[Any]


def main(
    lines: int = 500,
    only: Annotated[list[str] | None, harness.among(FAMILIES, "these alone")] = None,
    folder: Path = harness.ROOT / "build" / "engine",
    threads: int = 2,
    out: Path | None = None,
) -> None:
    torch.set_num_threads(threads)
    result = harness.previous("engine", out).get("models", {})
    for name in only or FAMILIES:
        run = load(made(name, folder))
        models = {each: packed(run, each, threads) for each in ("fp32", "int8")}
        kind = models["fp32"].header.task
        compare = {"language": continued, "classification": labelled}.get(kind, translated)
        result[name] = {"task": kind, "lines": lines} | compare(run, models, lines)
        print(name, json.dumps(result[name]), flush=True)
        harness.write("engine", {"models": result}, out)


def made(name: str, folder: Path) -> Path:
    """The run of a family, trained where it is not there."""
    data, (first, *_) = folder / "data", FAMILIES[name]
    if not data.is_dir():
        synthetic.write(data, PAIRS)
    run = folder / re.sub(r"\W+", "-", name.lower())
    if first.endswith(".toml"):
        config = harness.ROOT / "configs" / "classification" / first
        return harness.trained(run, config, ("train.max_steps=150",))
    config = folder / "config.toml"
    config.write_text(TRAINED.replace("DATA", str(data)), encoding="utf-8", newline="\n")
    choices = [choice.replace("DATA", str(data)) for choice in FAMILIES[name]]
    return harness.trained(run, config, choices)


def packed(run: Run, precision: str, threads: int) -> PackedModel:
    """The packed model of a run, as a file would hold it."""
    return PackedModel(Path(f"{run.path.name}.{precision}"), *content(run, precision), threads)


def share(answers: Answers, others: Answers) -> float:
    """Of all lines, those whose texts are equal."""
    same = sum(str(a) == str(b) for a, b in zip(answers, others, strict=True))
    return round(same / len(answers), 4)


def beside(answer: Callable[[Any], Answers], run: Run, models: dict[str, PackedModel]) -> Figures:
    """What share of the engine's answers are PyTorch's, in each precision."""
    with without_kernels():
        expected = answer(run)
    return {name: share(answer(model), expected) for name, model in models.items()}


def same_bits(
    model: PackedModel, answer: Callable[[Any, Sequence[str]], Answers], lines: Sequence[str]
) -> bool:
    """Whether lines have the same answers and log p alone, all together, and on one thread."""
    together, threads = answer(model, lines), model.engine.threads
    alone = [answer(model, [line])[0] for line in lines[:ALONE]]
    model.engine.threads = 1
    single = answer(model, lines[::-1])[::-1]
    model.engine.threads = threads
    return together[:ALONE] == alone and together == single


def translated(run: Run, models: dict[str, PackedModel], count: int) -> Figures:
    sources, references = (list(side[:count]) for side in run.pairs("test"))
    figures: Figures = {}
    outputs: dict[str, Answers] = {}

    def searched(beam: int) -> Callable[[Any], Answers]:
        def answer(model: Any) -> Answers:
            found = model.translate(sources, beam_size=beam, num_hypotheses=beam)
            outputs[getattr(model, "precision", "torch")] = found
            return [each.hypotheses for each in found]

        return answer

    figures["greedy"] = beside(searched(1), run, models)
    every = beside(searched(5), run, models)
    first = {name: [str(each) for each in found] for name, found in outputs.items()}
    figures["beam 5"] = {name: share(first[name], first["torch"]) for name in models}
    figures["beam 5, all five"] = every
    chrf = {n: sacrebleu.corpus_chrf(texts, [references]).score for n, texts in first.items()}
    figures["chrF"] = {name: round(value, 2) for name, value in chrf.items()}
    pairs = list(zip(sources, references, strict=True))
    with without_kernels():
        expected = [each.log_probability for each in run.score(pairs)]
        maps = run.links(pairs) if run.aligns else []
    figures["largest difference of log p"] = {
        name: float(
            max(
                abs(a - b.log_probability)
                for a, b in zip(expected, model.score(pairs), strict=True)
            )
        )
        for name, model in models.items()
    }
    if run.aligns:
        figures["word links"] = {
            name: share(list(map(sorted, model.links(pairs))), list(map(sorted, maps)))
            for name, model in models.items()
        }

    def bits(model: Any, lines: Sequence[str]) -> Answers:
        found = model.translate(lines, beam_size=5, num_hypotheses=5)
        return [(each.hypotheses, each.scores) for each in found]

    return figures | {"the same bits": {n: same_bits(m, bits, sources) for n, m in models.items()}}


def continued(run: Run, models: dict[str, PackedModel], count: int) -> Figures:
    text = Path(run.config.task.text.replace("{split}", "test")).read_text("utf-8")
    lines = [line[: len(line) // 2] for line in text.splitlines()[:count]]
    figures: Figures = {}
    for name, choices in {
        "greedy": {"beam_size": 1},
        "beam 5": {"beam_size": 5},
        "samples": {"seed": 7},
    }.items():
        figures[name] = beside(
            lambda model, own=choices: [c.text for c in model.generate(lines, LONGEST, **own)],
            run,
            models,
        )

    def bits(model: Any, texts: Sequence[str]) -> Answers:
        return [(c.text, c.log_probability) for c in model.generate(texts, LONGEST, beam_size=5)]

    return figures | {"the same bits": {n: same_bits(m, bits, lines) for n, m in models.items()}}


def labelled(run: Run, models: dict[str, PackedModel], count: int) -> Figures:
    lines = list(examples(run.task, "test").sources[:count])
    with without_kernels():
        expected = run.classify(lines)
    figures: Figures = {"labels": {}, "largest difference of p": {}}
    for name, model in models.items():
        answers = model.classify(lines)
        figures["labels"][name] = share(answers, expected)
        figures["largest difference of p"][name] = max(
            float(np.abs(a.probabilities[label] - p))
            for a, b in zip(answers, expected, strict=True)
            for label, p in b.probabilities.items()
        )

    def bits(model: Any, texts: Sequence[str]) -> Answers:
        return [each.probabilities for each in model.classify(texts)]

    return figures | {"the same bits": {n: same_bits(m, bits, lines) for n, m in models.items()}}


if __name__ == "__main__":
    harness.run(main)
