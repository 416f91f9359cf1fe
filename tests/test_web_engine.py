"""The engine as WebAssembly, driven by TypeScript in Node: the answers are those of Python."""

import base64
import gzip
import importlib.util
from collections.abc import Iterator
from functools import cache, partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import foveate.engine.packed
from foveate.config import PACKAGED
from foveate.data.tokenizer import BOS, EOS, PAD, Tokenizer
from foveate.decode.engine import best
from foveate.engine.compiled import CompiledSearch, Floats, Settings, _map_of
from foveate.engine.packed import PackedModel
from foveate.look.edits import edit, silence
from foveate.look.stages import attention_stages, capture_stages, joined
from foveate.run import Run, load
from foveate.run.pack import pack
from piece_models import hostile, trained, wrapped
from stored_models import BEAM, PAIRS, SOURCES
from web_engine import in_node, needs_web

ROOT = Path(__file__).parent
FILES = sorted((ROOT / "packed" / "v1").glob("*.safetensors"))
LONG = " ".join(f"the old dog {number} sees a red house and sleeps ." for number in range(12))
PROMPTS, LENGTH = ["the dog", "a ", "un\nchat é"], 24
BEAMS: list[Any] = [{"beam_size": 1}, {}, BEAM]  # greedy, its own search, several outputs
DRAWN: list[Any] = [
    {"beam_size": 2}, {"seed": 3, "temperature": 0.8, "top_k": 5, "num": 2},
]  # fmt: skip
NAMES = {"beam_size": "beamSize", "length_penalty": "lengthPenalty", "num_hypotheses": "count",
         "num": "count", "top_k": "topK"}  # fmt: skip
pytestmark = [pytest.mark.slow, needs_web]


def renamed(options: dict[str, Any]) -> dict[str, Any]:
    return {NAMES.get(name, name): value for name, value in options.items()}


@cache
def model(file: Path) -> PackedModel:
    return foveate.engine.packed.load(file, threads=1)


def maps(model: PackedModel, line: str, target: list[int]) -> dict[str, Floats]:
    engine, read = model.engine, model.tokenizers[0]
    if model.header.task == "classification":
        ids = [BOS, *read.encode(line).ids, EOS]
        search = CompiledSearch(engine.compiled, Settings(BOS, EOS))
        scored = partial(search.label_scores, ids, len(model.header.labels))
        return search.maps(dict(enumerate(engine.attentions)), scored, len(ids), 0)
    if model.header.task == "language":
        return engine._maps([], [*read.encode_lines(line), EOS])
    return engine._maps([*read.encode(line).ids, EOS], [*target, EOS])


def asked(model: PackedModel) -> list[tuple[list[Any], Any]]:
    """Calls in Node and the answers of Python."""
    if model.header.task == "classification":
        return [(["classify", each.source], each.probabilities) for each in model.classify(SOURCES)]
    if model.header.task == "language":
        return [answer for prompt in PROMPTS for answer in continued(model, prompt)]
    answers: list[tuple[list[Any], Any]] = []
    for options in BEAMS:
        for each in model.translate(SOURCES, **options):
            ids = [list(output.ids) for output in each.outputs or [best([])]]
            rows = zip(each.hypotheses, each.scores, ids, strict=True)
            right = [dict(zip(("text", "score", "ids"), row, strict=True)) for row in rows]
            answers.append((["translate", each.source, renamed(options)], right))
    scores = [each.token_log_probabilities for each in model.score(PAIRS)]
    return answers + [(["score", *pair], row) for pair, row in zip(PAIRS, scores, strict=True)]


def continued(model: PackedModel, prompt: str) -> Iterator[tuple[list[Any], Any]]:
    for options in DRAWN:
        texts = model.generate([prompt], LENGTH, **options)
        right = [{"text": each.text, "logP": each.log_probability} for each in texts]
        yield ["generate", prompt, LENGTH, renamed(options)], right


def assert_equal(own: Any, right: Any) -> None:
    """Texts and ids are the same, numbers nearly."""
    if isinstance(right, dict):
        assert own.keys() == right.keys()
        for name in right:
            assert_equal(own[name], right[name])
    elif isinstance(right, (list, tuple)):
        assert len(own) == len(right)
        for pair in zip(own, right, strict=True):
            assert_equal(*pair)
    else:
        assert own == (pytest.approx(right, abs=1e-5) if isinstance(right, float) else right)


@pytest.mark.parametrize(("engine", "runs"), [("engine-wasm", "wasm"), ("engine-scalar", "base")])
def test_a_file_of_each_family_answers_in_node_as_in_python(engine, runs, script) -> None:
    each = {str(file): asked(model(file)) for file in FILES}
    answers = in_node(script, engine, {file: [c for c, _ in calls] for file, calls in each.items()})
    assert answers.pop("instructionSet") == runs
    for file, calls in each.items():
        assert_equal(answers[file], [right for _, right in calls])


@pytest.mark.parametrize("name", ["en-fr", "rnn", "kinds-of-sentences"])
def test_an_int8_model_has_the_same_bits_in_a_browser(name, script, tmp_path) -> None:
    """Of a long line too: sines of far positions are those of another C library."""
    file, line = pack(load(PACKAGED / name), tmp_path / "model.safetensors", "int8"), LONG
    ids = [] if name == "kinds-of-sentences" else model(file).tokenizers[-1].encode(LONG).ids
    right = maps(model(file), line, ids)
    for engine in ("engine-wasm", "engine-scalar"):
        [own] = in_node(script, engine, {str(file): [["maps", line, ids]]})[str(file)]
        for each, (attention, weights) in zip(own, right.items(), strict=True):
            assert np.array_equal(np.float32(each["values"]), weights.ravel()), attention


def test_the_maps_of_all_attentions_are_those_of_python(
    run: Run, script: Path, tmp_path: Path
) -> None:
    line, target = PAIRS[0]
    files = [*FILES, pack(run, tmp_path / "run.safetensors")]
    ids: dict[Path, Any] = {f: model(f).tokenizers[-1].encode(target).ids for f in files}
    ids |= {f: None for f in files if "translation" not in model(f).header.task}
    calls = {str(f): [["maps", line, ids[f], None, "auto"]] for f in files}
    answers = in_node(script, "engine-wasm", calls)
    for file in files:
        [own], record = answers[str(file)], model(file).explain(line, ids[file])
        assert [each["name"] for each in own] == list(record.maps)
        for each, (name, weights) in zip(own, record.maps.items(), strict=True):
            assert (each["rowLabels"], each["columnLabels"]) == record.labels(name), file
            shape = each["heads"], each["rows"], each["columns"]
            assert shape == weights.shape, name
            assert np.abs(np.reshape(each["values"], shape) - weights).max() < 1e-5, name


def inside_in_node(
    script: Path, file: Path, head: int, line: str, target: str = ""
) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """The inside of each attention by its name: its panel, and the stages as arrays."""
    names, ids = model(file).engine.attentions, model(file).tokenizers[-1].encode(target).ids
    calls = [["inside", name, head, line, ids] for name in names]
    drawings = in_node(script, "engine-wasm", {str(file): calls})[str(file)]
    made = {}
    for name, drawing in zip(names, drawings, strict=True):
        [panel] = drawing["panels"]
        assert (panel["node"], panel["head"]) == (name, head)
        stages = {
            stage: np.frombuffer(base64.b64decode(each["data"]), np.float32).reshape(each["shape"])
            for stage, each in panel["values"].items()
        }
        made[name] = panel, stages
    return made


@pytest.mark.parametrize("name", ["", "rnn", "lm", "kinds-of-sentences"])
def test_the_inside_of_an_attention_is_that_of_pytorch(run, script, tmp_path, name) -> None:
    """Each stage; what a page hides, −∞, is not compared."""
    own_run = load(PACKAGED / name) if name else run
    line, *target = PAIRS[0][: 1 if name in ("lm", "kinds-of-sentences") else 2]
    head, forced = 0 if name else 1, own_run.forced(line, *target)
    file = pack(own_run, tmp_path / "run.safetensors")
    for attention, (panel, own) in inside_in_node(script, file, head, line, *target).items():
        module = own_run.model.get_submodule(attention)
        with torch.inference_mode(), capture_stages(module) as calls:
            forced.run()
        for number in range(module.num_heads):
            stages = attention_stages(module, calls, number, forced.row)
            right = {stage.name: stage.values for stage in stages}
            for stage, values in own.items():
                mine, other = values[min(number, len(values) - 1)], right[stage]
                other = other[: mine.shape[0]]  # no padding
                seen, largest = np.isfinite(mine), max(1, np.abs(other).max())
                assert np.abs(mine - other)[seen].max() / largest < 1e-5, (attention, stage)
        weights = calls["weights"].values
        labels = forced.label({attention: joined("weights", weights)[forced.row].numpy()}, "tokens")
        written = [word for [word] in panel["tokens"].get("writes", [])]  # rows are its inputs then
        assert (written or panel["rows"], panel["columns"]) == labels.labels(attention)


def test_the_inside_in_int8_is_that_of_the_engine(run: Run, script: Path, tmp_path: Path) -> None:
    """Whose sums of int8 PyTorch does not have: inputs of a map are rounded too."""
    file = pack(run, tmp_path / "run.safetensors", "int8")
    drawings, (reads, writes) = inside_in_node(script, file, 0, *PAIRS[0]), model(file).tokenizers
    sides = zip((reads, writes), PAIRS[0], strict=True)
    source, target = ([*tokenizer.encode(text).ids, EOS] for tokenizer, text in sides)
    search = CompiledSearch(model(file).engine.compiled, Settings(BOS, EOS))
    forced = partial(search.log_probabilities, source, target)
    for number, (name, (_, own)) in enumerate(drawings.items()):
        for stage, values in own.items():
            [flat] = search.stages([(number, stage)], forced)
            if stage in ("score", "weights"):
                right = _map_of(name, flat, len(source), len(target))
            else:
                right = flat.reshape(values.shape[1], -1, values.shape[2]).swapaxes(0, 1)
            assert np.abs(values - right)[np.isfinite(values)].max() < 1e-3, (name, stage)


def test_the_likely_tokens_have_the_probabilities_of_python(script: Path) -> None:
    line, files = SOURCES[0], [f for f in FILES if "translation" in model(f).header.task]
    ids = {f: list(model(f).translate([line], beam_size=1)[0].outputs[0].ids) for f in files}
    calls = {str(f): [["tokens", line, {"ids": ids[f], "ended": True}, [], 3]] for f in files}
    answers = in_node(script, "engine-wasm", calls)
    for file in files:
        [tokens], (reads, writes) = answers[str(file)], model(file).tokenizers
        assert [token["id"] for token in tokens] == [*ids[file], EOS]
        assert "".join(token["text"] for token in tokens) == writes.decode(ids[file])
        never = (PAD, BOS) if model(file).header.task == "prefix_translation" else ()
        search = CompiledSearch(model(file).engine.compiled, Settings(BOS, EOS, never=never))
        source = [*reads.encode(line).ids, EOS]
        for place, token in enumerate(tokens):
            assert len(token["alternatives"]) == 3, file
            assert token["alternatives"][0]["id"] == token["id"], file  # the output is greedy
            for other in token["alternatives"]:
                output = [*ids[file][:place], other["id"]]
                log_p = search.log_probabilities(source, output)[-1]
                assert other["p"] == pytest.approx(np.exp(log_p), abs=1e-5), file


def test_silenced_heads_add_nothing(run: Run, script: Path, tmp_path: Path) -> None:
    heads = [("decoder.layers.0.cross_attention", 1), ("encoder.layers.0.self_attention", None)]
    file, pair = str(pack(run, tmp_path / "run.safetensors")), PAIRS[0]
    calls: list[list[Any]] = [["score", *pair]]
    right = [run.score([pair])[0].token_log_probabilities]
    for name, head in heads:
        calls += [["silence", [{"name": name, "head": head}]], ["score", *pair]]
        with edit(run.model, {name: silence(*([] if head is None else [head]))}):
            right.append(run.score([pair])[0].token_log_probabilities)
    calls += [["silence", []], ["score", *pair]]
    answers = in_node(script, "engine-wasm", {file: calls})[file][::2]
    assert answers[0] != answers[1] != answers[2]
    assert_equal(answers, [*map(list, right), answers[0]])


TOKENIZERS: dict[str, Any] = {
    "byte": {"kind": "byte"},
    "character": {"kind": "character"},
    "word": {"kind": "word", "vocab_size": 3000, "lowercase": True},
    "symbol": {"kind": "symbol"},
    "bpe": {"kind": "bpe", "vocab_size": 1200},
    "bpe, lowercase": {"kind": "bpe", "vocab_size": 1200, "lowercase": True},
    "unigram": {"kind": "unigram", "vocab_size": 1200},
}
ODD = [
    "", " ", "  two  blanks ", "L'ἐν ἀρχῇ ἦν ὁ ΛΌΓΟΣ. ΟΔΟΣ",
    "İstanbul ſ K 3,5 1.000:2 l’été d'ſe aujourd'hui", "e\u0301te\u0301 x\u200dy \u0301a",
    "日本語 🙂👩\u200d🚀", "a\u0085b\ufeffc\u00a0d\u3000e\x1cf\tg", "<s> </s> <unk> <2fr> x",
    "qu'il s'est-ce ?! «bon» (x) [y] 'tis", "__proto__ constructor ² ½ Ⅷ ٣ 〇",
]  # fmt: skip


@pytest.mark.parametrize("lines", [300, pytest.param(5000, marks=pytest.mark.scale)])
def test_tokenizers_give_the_ids_and_texts_of_python(lines, script, tmp_path, data_folder) -> None:
    path = data_folder / "tatoeba-en-fr" / "pairs.tsv.gz"
    with gzip.open(path, "rt", encoding="utf-8") as corpus:
        pairs = [line.rstrip("\n").split("\t")[:2] for line in islice(corpus, lines // 2)]
    texts = list(chain(*pairs))
    asked: dict[str, list[list[Any]]] = {}
    right: dict[str, list[Any]] = {}
    made: dict[str, Tokenizer] = {}
    for name, config in TOKENIZERS.items():
        made[name] = Tokenizer.Config.parse(config).build()
        made[name].train(texts)
        made[name].add_tags(["<2fr>"])
    if importlib.util.find_spec("sentencepiece"):
        made["sentencepiece"] = wrapped(trained(tmp_path))
    for name, tokenizer in made.items():
        file = str(tmp_path / f"{name}.json")
        tokenizer.save(file)
        odd = hostile(1000) if name == "sentencepiece" else ODD
        read = [*texts, *odd, "<2fr> un", "<2fr>deux"]
        ids = tokenizer.encode_ids(read)
        asked[file] = [["encode", line] for line in read] + [["decode", each] for each in ids]
        right[file] = ids + [tokenizer.decode(each) for each in ids]
    answers = in_node(script, "engine-wasm", asked)
    for file, expected in right.items():
        each = zip(asked[file], answers[file], expected, strict=True)
        assert not [(call, own, ids) for call, own, ids in each if own != ids][:3], file
