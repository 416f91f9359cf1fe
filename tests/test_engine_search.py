"""Searches of the compiled engine have the outputs of `foveate.decode`, token by token."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from foveate.data.tokenizer import Tokenizer
from foveate.decode.beam import Beam
from foveate.decode.constraints import (
    FREE,
    Banned,
    Constraints,
    DecodingBatch,
    Forbids,
    RequiredPhrases,
    Steps,
    byte_table,
)
from foveate.decode.engine import Outputs
from foveate.decode.lexical_beam import LexicalBeam
from foveate.decode.phrases import Phrase, Spelling, WordPieces
from foveate.decode.sample import Sample, uniform
from foveate.decode.search import Greedy, Hypothesis, Search
from foveate.engine.compiled import (
    STAGES,
    CompiledModel,
    CompiledSearch,
    EngineFailure,
    Settings,
)
from foveate.engine.program import Program
from foveate.errors import NoOutputError, UserError
from foveate.look.stages import capture_stages, joined
from foveate.models.encoder_decoder import DecoderSteps
from foveate.models.language_model import LanguageSteps
from foveate.nn.attention import BaseAttention
from foveate.nn.spec import Labels, Tokens
from test_engine_compiled import (
    ADDITIVE,
    END,
    NEVER,
    PLACES,
    SIZE,
    START,
    attention,
    built,
    compiled,
    mamba,
    pair,
    recurrent,
    tensor,
    texts,
    transformer,
)

LANGUAGE = "language model"
FAMILIES = {
    "transformer": (transformer(), transformer()),
    "ssru": (transformer(norm_order="post"), transformer(kind="ssru")),
    "gru": (recurrent(bidirectional=True), recurrent(attention={"query": "previous"})),
    "lstm": (recurrent(cell="lstm"), recurrent(cell="lstm", attention={"query": "current"})),
    "mamba": (mamba(), mamba()),
    f"transformer {LANGUAGE}": transformer(position="rope", norm="rms_norm"),
    f"recurrent {LANGUAGE}": recurrent(num_layers=2),
    f"mamba {LANGUAGE}": mamba(),
}
ROOT = Path(__file__).parent.parent
SOURCES = texts(6)
LIMITS = [2 * len(source) + 8 for source in SOURCES]
PREFIXES = [[], [5], [9, 8, 7], [4] * 12, [30, END], [6, 6]]
LONGER = [max(n, len(prefix) + 8) for n, prefix in zip(LIMITS, PREFIXES, strict=True)]


@dataclass(frozen=True)
class Family:
    """A model with weights of which few outputs are equally good, in PyTorch and in the engine."""

    steps: Callable[..., Steps]  # of a source
    engine: CompiledModel
    names: list[str]  # of its attentions
    settings: Settings  # greedy search
    ends: tuple[int, ...]  # after each source

    def read(self, sources: Sequence[Sequence[int]]) -> list[list[int]]:
        return [[*source, *self.ends] for source in sources]

    def search(self, forbids: Any = None, **fields: Any) -> Callable[..., Any]:
        """Outputs of the sources by a search with other settings, of their limits and the rest."""
        search = CompiledSearch(self.engine, replace(self.settings, **fields), forbids)
        return partial(search.outputs, self.read(SOURCES))


@cache
def family(name: str, size: int = SIZE, int8: bool = False) -> Family:
    language = name.endswith(LANGUAGE)
    if language:
        tree = {"kind": "language_model", "decoder": FAMILIES[name]}
    else:
        encoder, decoder = FAMILIES[name]
        tree = {"kind": "encoder_decoder", "encoder": encoder, "decoder": decoder}
    model = built(tree | {"tie": "none"}, *[Tokens(size)] * (1 if language else 2))
    with torch.no_grad():
        model.output.weight.mul_(3)

    def steps(source, **options) -> Steps:
        if language:
            return LanguageSteps(model, tensor(*source), never=NEVER, **options)
        return DecoderSteps(model, model.encode(tensor(*source, END)), never=NEVER, **options)

    ends = () if language else (END,)
    names = Program(model).attentions
    return Family(steps, compiled(model, int8), names, Settings(START, END, never=NEVER), ends)


KINDS: dict[str, tuple[Search.Config, dict[str, Any]]] = {
    "greedy": (Greedy.Config(), {}),
    "beam": (Beam.Config(beam_size=4), {"width": 4, "best": 4, "length_penalty": 0.6}),
    "sample": (Sample.Config(num_samples=2), {"width": 2, "best": 2, "sampling": True}),
}
families = pytest.mark.parametrize("name", FAMILIES)


@torch.inference_mode()
def in_pytorch(
    own: Family,
    config: Search.Config,
    constraints: Constraints = FREE,
    changes: Mapping[str, Any] | None = None,
    vocabularies: Sequence[Sequence[int]] = (),
    **options: int,
) -> list[list[Hypothesis]]:
    """The outputs of each source, decoded alone; it keeps its number."""
    fields = config.tree() | {"max_ratio": 2.0, "max_extra": 8} | dict(changes or {})
    search, outputs = type(config).parse(fields).build(), []
    if constraints.required:
        search = LexicalBeam(search.config)
    for n, source in enumerate(SOURCES):
        allowed = torch.tensor(vocabularies[n]) if vocabularies and vocabularies[n] else None
        steps = own.steps(source, **options, **({} if allowed is None else {"tokens": allowed}))
        batch = DecodingBatch([n], steps, [len(source)], allowed)
        outputs += search(batch, START, END, constraints)
    return outputs


def same(outputs: Outputs, right: Outputs) -> None:
    for own, other in zip(outputs, right, strict=True):
        assert [(o.ids, o.ended) for o in own] == [(h.ids, h.ended) for h in other]
        for name in ("log_probability", "score"):
            expected = [getattr(h, name) for h in other]
            np.testing.assert_allclose([getattr(o, name) for o in own], expected, 2e-4, 2e-4)


SAMPLERS = {
    "plain": {},
    "temperature": {"temperature": 0.7},
    "top_k": {"top_k": 5},
    "top_p": {"top_p": 0.8},
    "min_p": {"min_p": 0.1},
    "repetition": {"repetition_penalty": 1.5},
    "every filter": {
        "temperature": 1.3, "top_k": 20, "top_p": 0.9, "min_p": 0.02, "repetition_penalty": 1.2,
        "seed": 2**63 + 7,
    },
}  # fmt: skip


def test_numbers_are_drawn_by_counters() -> None:
    """splitmix64 begins with these numbers (Vigna, 2015: the reference implementation, seed 0)."""
    assert uniform(0) == (0xE220A8397B1DCDAF >> 11) / 2**53
    places = itertools.product(range(2), range(50), range(50), range(1))
    drawn = [uniform(*place) for place in places]
    assert len(set(drawn)) == len(drawn)
    assert np.histogram(drawn, 10, (0, 1))[0].tolist() == pytest.approx([500] * 10, abs=90)


@families
@pytest.mark.parametrize("kind", SAMPLERS)
def test_a_seed_draws_what_it_draws_in_pytorch(name: str, kind: str) -> None:
    own, fields = family(name), {"width": 3, "best": 3, "sampling": True, **SAMPLERS[kind]}
    outputs = own.search(**fields)(LIMITS)
    same(outputs, in_pytorch(own, Sample.Config(num_samples=3, **SAMPLERS[kind])))
    assert own.search(**fields | {"seed": 3})(LIMITS) != outputs


@families
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_begin_with_a_prefix(name: str, kind: str) -> None:
    own, (config, fields) = family(name), KINDS[kind]
    right = in_pytorch(own, config, Constraints(prefixes=PREFIXES))
    same(own.search(**fields)(LONGER, PREFIXES), right)


def test_a_prefix_of_unknown_ids_is_refused() -> None:
    own = family("transformer")
    with pytest.raises(EngineFailure, match="source 2 has an id that the model does not know"):
        CompiledSearch(own.engine, own.settings).outputs([[4], [4]], [5, 5], [[], [SIZE]])


RULES = {
    "no_repeat": ({"kind": "no_repeat", "size": 2}, {"no_repeat": 2}),
    "no_repeat 1": ({"kind": "no_repeat", "size": 1}, {"no_repeat": 1}),
    "min_length": ({"kind": "min_length", "length": 9}, {"min_length": 9}),
}


@families
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rule", [*RULES, "both"])
def test_outputs_keep_to_rules(name: str, kind: str, rule: str) -> None:
    """Where no n-gram is left before the least length, the output ends with p = 1."""
    own, (config, fields) = family(name), KINDS[kind]
    chosen = [RULES["no_repeat 1"], RULES["min_length"]] if rule == "both" else [RULES[rule]]
    changes = {"rules": [tree for tree, _ in chosen], "max_extra": 60}
    right = in_pytorch(own, config, changes=changes)
    for _, field in chosen:
        fields = fields | field
    same(own.search(**fields)([2 * len(source) + 60 for source in SOURCES]), right)


@pytest.mark.parametrize("name", ["transformer", "mamba language model"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("prefixed", [False, True])
@pytest.mark.parametrize("pieces", ["word", "bpe"])
def test_no_output_holds_a_banned_phrase(name: str, kind: str, prefixed: bool, pieces: str) -> None:
    words = tokenizer(pieces)
    own, (config, fields) = family(name, words.vocab_size), KINDS[kind]
    limits, prefixes = (LONGER, PREFIXES) if prefixed else (LIMITS, [])
    free, phrases = own.search(**fields)(limits, prefixes), set[str]()
    for outputs, prefix in zip(free, prefixes or [[]] * 6, strict=True):
        for ids in (output.ids[len(prefix) :] for output in outputs):
            phrases |= {words.decode(ids[at : at + 1 + at % 2]) for at in range(0, len(ids), 3)}
    ban = Banned([phrase.upper() for phrase in sorted(phrases)], words)
    assert len(ban.phrases.phrases) > 3

    def forbids(ids: Sequence[int]) -> list[int]:
        return ban.forbidden(tensor(*ids).long(), END)[1].tolist()

    outputs = own.search(forbids, **fields)(limits, prefixes)
    same(outputs, in_pytorch(own, config, Constraints(prefixes, [ban])))
    assert outputs != free


PIECES = WordPieces([i % 7 == 5 for i in range(SIZE)], [i % 5 > 1 for i in range(SIZE)])


def phrases_of(seed: int, count: int) -> list[Phrase]:
    """Phrases of any ids, in several spellings that begin alike or lie in each other."""
    rng, phrases = np.random.default_rng(seed), list[Phrase]()
    for _ in range(count):
        ids = rng.integers(4, SIZE, 4).tolist()
        every = [ids[:2], ids[:1] * 2 + ids[:1] + ids[1:2], ids[1:], ids[2:3], ids]
        chosen = rng.choice(len(every), rng.integers(1, 4), replace=False)
        phrases.append(tuple(Spelling(tuple(every[n]), bool(rng.integers(2))) for n in chosen))
    return phrases


@families
@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize("kind", ["plain", "prefixed", "ruled", "banned"])
def test_outputs_hold_what_is_required(name: str, width: int, kind: str) -> None:
    """Those of sources without phrases are as before, alone and beside others."""
    own, lists = family(name), [phrases_of(n, n % 4) for n in range(len(SOURCES))]
    limits, prefixes = (LONGER, PREFIXES) if kind == "prefixed" else (LIMITS, ())
    changes = {"length_penalty": 0.6, "beam_size": width}
    settings = replace(own.settings, width=width, best=width, length_penalty=0.6, pieces=PIECES)
    if kind == "ruled":
        changes["rules"] = [RULES["no_repeat 1"][0], RULES["min_length"][0]]
        settings = replace(settings, no_repeat=1, min_length=9)
    rules = [NotAfter()] if kind == "banned" else []
    required = [RequiredPhrases(tuple(phrases), PIECES) for phrases in lists]
    search = CompiledSearch(own.engine, settings, not_after if rules else None)
    outputs = search.outputs(own.read(SOURCES), limits, prefixes, required=lists)
    same(outputs, in_pytorch(own, Beam.Config(), Constraints(prefixes, rules, required), changes))
    free = search.outputs(own.read(SOURCES), limits, prefixes)
    assert outputs[0::4] == free[0::4]  # without phrases
    assert outputs != free
    for n, source in enumerate(own.read(SOURCES)):
        begun = prefixes[n : n + 1] if prefixes else ()
        alone = search.outputs([source], limits[n : n + 1], begun, required=lists[n : n + 1])
        assert alone == outputs[n : n + 1]


def not_after(ids: Sequence[int]) -> list[int]:
    return [(3 * ids[-1] + n) % (SIZE - 4) + 4 for n in range(9)] if ids else []


class NotAfter(Forbids):
    def forbidden(self, written, end):
        pairs = [(n, i) for n, ids in enumerate(written.tolist()) for i in not_after(ids)]
        return torch.tensor(pairs, dtype=torch.long).view(-1, 2).unbind(dim=1)


def test_a_phrase_that_cannot_be_held_is_refused_or_missed() -> None:
    own = family("transformer")
    settings = replace(own.settings, width=4, best=4, length_penalty=0.6, pieces=PIECES)

    def outputs(ids: Sequence[int], settings: Settings = settings) -> list[Hypothesis]:
        search = CompiledSearch(own.engine, settings)
        return search.outputs([[4, END]], [6], required=[[(Spelling(tuple(ids)),)]])[0]

    for refused in ((), (5, SIZE), (-1,)):
        with pytest.raises(EngineFailure, match="source 1 must hold"):
            outputs(refused)
    for other in (replace(settings, pieces=None), replace(settings, sampling=True)):
        with pytest.raises(EngineFailure, match="a search that holds none"):
            outputs((5,), other)
    longer = outputs(range(4, 24))
    assert longer and not any(output.ended for output in longer)
    assert [4, 5, 6, 7, 8, 9] in [output.ids for output in longer]


def tokenizer(kind: str) -> Tokenizer:
    fields = {"vocab_size": 300} if kind == "bpe" else {}
    chosen = Tokenizer.Config.parse({"kind": kind, **fields}).build()
    chosen.train((ROOT / "LICENSE").read_text(encoding="utf-8").splitlines())
    return chosen


@families
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ruled", [False, True])
def test_characters_are_whole(name: str, kind: str, ruled: bool) -> None:
    """Outputs of tokens that are bytes are UTF-8, also where rules and a limit leave few tokens."""
    letters, (config, fields) = tokenizer("byte"), KINDS[kind]
    table, own = byte_table(letters), family(name, letters.vocab_size)
    changes: dict[str, Any] = {"max_ratio": 0.0, "max_extra": 11}
    if ruled:
        changes["rules"] = [RULES["no_repeat 1"][0]]
        fields = fields | {"no_repeat": 1}
    outputs = own.search(characters=table.states.numpy(), **fields)([11] * len(SOURCES))
    same(outputs, in_pytorch(own, config, Constraints(characters=table), changes))
    for output in (output for each in outputs for output in each):
        bytes(letters.surfaces[i][0] for i in output.ids).decode()
    assert own.search(**fields)([11] * len(SOURCES)) != outputs


@pytest.mark.parametrize("name", [name for name in FAMILIES if LANGUAGE not in name])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("letters", [False, True])
def test_outputs_hold_tokens_of_a_shortlist(name: str, kind: str, letters: bool) -> None:
    """Each source has its own; p is over its tokens alone, and characters are made of these."""
    size, (config, fields) = (260 if letters else SIZE), KINDS[kind]
    own, table = family(name, size), byte_table(tokenizer("byte")) if letters else None
    rng, lists = np.random.default_rng(4), list[list[int]]()
    for n in range(len(SOURCES)):
        some = rng.choice(np.arange(4, size), 12 * (n > 0), replace=False).tolist()
        lists.append([*range(4 * (n > 0)), *sorted(some)])  # the first: all tokens
    characters = None if table is None else table.states.numpy()
    outputs = own.search(characters=characters, **fields)(LIMITS, vocabularies=lists)
    same(outputs, in_pytorch(own, config, Constraints(characters=table), vocabularies=lists))
    for allowed, each in zip(lists, outputs, strict=True):
        assert all(set(output.ids) <= set(allowed or range(size)) for output in each)


# ------------------------------------------------------------------------------- how many, how long
@families
def test_the_best_of_a_beam_are_given(name: str) -> None:
    own = family(name)
    right = in_pytorch(own, Beam.Config(beam_size=12, length_penalty=1.0))
    for best in (1, 7, 12):
        outputs = own.search(width=12, length_penalty=1.0, best=best)(LIMITS)
        same(outputs, [each[:best] for each in right])


@families
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_are_cut_at_their_limit(name: str, kind: str) -> None:
    own, (config, fields) = family(name), KINDS[kind]
    limits, rule = [1, 2, 3, 4, 5, 6], [{"kind": "min_length", "length": 6}]
    outputs = own.search(min_length=6, **fields)(limits)
    for n, limit in enumerate(limits):
        changes = {"max_ratio": 0.0, "max_extra": limit, "rules": rule}
        same(outputs[n : n + 1], in_pytorch(own, config, changes=changes)[n : n + 1])
        assert {len(output.ids) for output in outputs[n]} == {limit}
        assert not any(output.ended for output in outputs[n])


@pytest.mark.parametrize("name", [name for name in FAMILIES if LANGUAGE in name])
@pytest.mark.parametrize(
    ("kind", "reach"),  # with 1 some outputs of a beam are equally good
    [*itertools.product(KINDS, (6, 13)), ("greedy", 1), ("sample", 1)],
)
def test_a_language_model_reads_past_its_reach(name: str, kind: str, reach: int) -> None:
    own, (config, fields) = family(name), KINDS[kind]
    same(own.search(reach=reach, **fields)(LIMITS), in_pytorch(own, config, reach=reach))


POSITIONED = [
    (transformer(position={"kind": "learned", "max_length": 8}), transformer(), "source"),
    (transformer(), transformer(position={"kind": "learned", "max_length": 8}), "output"),
    (transformer(), recurrent(attention={"query": "current", "score": PLACES | {"max_length": 8}}),
     "source"),
]  # fmt: skip


@pytest.mark.parametrize(("encoder", "decoder", "side"), POSITIONED)
def test_more_tokens_than_positions_are_refused(encoder, decoder, side: str) -> None:
    model = pair(encoder, decoder)
    search = CompiledSearch(compiled(model), Settings(START, END, min_length=8, width=2))
    short, long = [5] * 8, [5] * 9
    assert search.outputs([short], [8])
    read, written = (long, short) if side == "source" else (short, long)
    with pytest.raises(UserError):
        model(tensor(*read), tensor(*written))
    with pytest.raises(EngineFailure, match="more tokens than the model has positions"):
        search.log_probabilities(read, written)
    with pytest.raises(EngineFailure, match="more tokens than the model has positions"):
        search.outputs([short, read], [8, len(written)])
    assert search.outputs([short], [8]), "a search goes on after a refusal"


@families
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("int8", [False, True])
def test_the_order_of_sources_changes_nothing(name: str, kind: str, int8: bool) -> None:
    """Places of finished sources are taken by the next; each source has the same bits."""
    own, (_, fields) = family(name, int8=int8), KINDS[kind]
    if kind == "sample":  # its draws go by the number of the source
        fields = fields | {"sampling": True, "top_k": 1}
    sources = texts(30)
    limits = [1 + n * 7 % 23 for n in range(len(sources))]
    search = CompiledSearch(own.engine, replace(own.settings, **fields))
    right = search.outputs(own.read(sources), limits)
    for seed, room in ((1, 1), (2, 5), (3, 64)):
        search = CompiledSearch(own.engine, replace(own.settings, room=room, **fields))
        order = np.random.default_rng(seed).permutation(len(sources)).tolist()
        outputs = search.outputs(own.read([sources[n] for n in order]), [limits[n] for n in order])
        assert outputs == [right[n] for n in order]


def test_partial_outputs_are_those_of_the_search() -> None:
    own, seen = family("transformer"), list[tuple[int, ...]]()

    def forbids(ids: Sequence[int]) -> list[int]:
        seen.append(tuple(ids))
        return []

    search = CompiledSearch(own.engine, replace(own.settings, width=3), forbids)
    (outputs,) = search.outputs(own.read(SOURCES[:1]), [9])
    assert seen[0] == ()
    assert tuple(outputs[0].ids[:-1]) in seen
    assert len(set(seen)) == len(seen)
    assert search.partial() == []


WRONG = {
    "width": 0, "best": 0, "reach": -1, "no_repeat": -1, "start": SIZE, "end": -1,
    "never": (SIZE,), "length_penalty": np.nan, "room": 2**21,
}  # fmt: skip
WRONG_SAMPLING = {"temperature": 0, "top_k": -1, "top_p": 0, "min_p": -1, "repetition_penalty": 0}


@pytest.mark.parametrize("field", [*WRONG, *WRONG_SAMPLING])
def test_settings_out_of_bounds_are_refused(field: str) -> None:
    own = family("transformer")
    settings = replace(own.settings, **{field: (WRONG | WRONG_SAMPLING)[field]})
    with pytest.raises(EngineFailure, match="a setting is out of bounds"):
        CompiledSearch(own.engine, settings)


def test_scores_that_are_no_numbers_are_refused() -> None:
    model = built({"kind": "language_model", "tie": "none", "decoder": transformer()}, Tokens(SIZE))
    with torch.no_grad():
        model.decoder.norm.norm.bias[7] = torch.nan
    for sampling, int8 in itertools.product((False, True), repeat=2):
        search = CompiledSearch(compiled(model, int8), Settings(START, END, sampling=sampling))
        with pytest.raises(NoOutputError, match="the search has no finite scores: the model's"):
            search.outputs([[5]], [4])


TAPPED = [
    (transformer(), transformer()),
    (transformer(position="rope"), transformer(position="rope", norm_order="post")),
    (transformer(position="alibi"), transformer(position="t5_causal")),
    *((transformer(attention=attention(**each)), transformer(attention=attention(**each)))
      for each in ({"key_heads": 2}, {"head_size": 6, "value_size": 5}, {"score": "general"},
                   {"score": "additive"}, {"score": "cosine"}, {"normalizer": "entmax15"})),
    *((transformer(attention=attention(score=ADDITIVE), position="rope"),) * 2,),
    *((recurrent(bidirectional=True), recurrent(attention={"query": query, "score": score}))
      for query in ("previous", "current") for score in ("additive", "scaled_dot")),
    (mamba(), mamba()),
]  # fmt: skip


@pytest.mark.parametrize(("encoder", "decoder"), TAPPED)
@torch.inference_mode()
def test_taps_take_what_pytorch_records(encoder, decoder) -> None:
    """Every stage of every head of every attention, while an output is forced."""
    model = pair(encoder, decoder)
    source, target = [*SOURCES[2], END], [*SOURCES[3], *SOURCES[1], END]
    names = Program(model).attentions
    modules = [model.get_submodule(name) for name in names]
    assert len(modules) == sum(isinstance(module, BaseAttention) for module in model.modules())
    with ExitStack() as stack:
        calls = [stack.enter_context(capture_stages(module)) for module in modules]
        model(tensor(*source), tensor(START, *target[:-1]))
    search = CompiledSearch(compiled(model), Settings(START, END))
    for number, (name, module) in enumerate(zip(names, modules, strict=True)):
        taken = [stage for stage in STAGES if stage in calls[number]]
        assert {"query", "value", "score", "weights", "context", "output"} <= set(taken)
        taps = [(number, stage) for stage in taken]
        own = search.stages(taps, lambda: search.log_probabilities(source, target))
        for stage, flat in zip(taken, own, strict=True):
            right = joined(stage, calls[number][stage].values)[0].numpy()  # (H, T, …)
            heads, keys = module.num_heads, "self" in name and "decoder" in name
            if stage == "bias":
                right = np.broadcast_to(right, (heads, *right.shape[1:]))
            if stage in ("score", "bias", "weights") and keys:  # of keys up to the query
                rows = [right[:, t, : t + 1].ravel() for t in range(right.shape[1])]
                expected = np.concatenate(rows)
            else:
                expected = right.swapaxes(0, 1).ravel()
            np.testing.assert_allclose(flat, expected, 1e-5, 1e-5, err_msg=f"{name}: {stage}")


@torch.inference_mode()
def test_taps_of_a_search_and_of_a_classifier() -> None:
    own = family("transformer")
    search = CompiledSearch(own.engine, own.settings)
    [source], [limit] = own.read(SOURCES[:1]), LIMITS[:1]
    [[output]] = search.outputs([source], [limit])
    last = len(own.names) - 1
    written = [*output.ids, *[END] * output.ended]
    taps = [(last, "weights")]
    (forced,) = search.stages(taps, lambda: search.log_probabilities(source, written))
    (searched,) = search.stages(taps, lambda: search.outputs([source], [limit]))
    np.testing.assert_allclose(searched, forced, 1e-5, 1e-6)
    tree = {"kind": "classifier", "encoder": transformer(), "pooling": "attention"}
    model = built(tree, Tokens(SIZE), Labels(("a", "b")))
    with capture_stages(model.pooling.attention) as calls:
        model(tensor(*source))
    search = CompiledSearch(compiled(model), Settings(START, END))
    number = Program(model).attentions.index("pooling.attention")
    (weights,) = search.stages([(number, "weights")], lambda: search.label_scores(source, 2))
    np.testing.assert_allclose(weights, calls["weights"].values[0].numpy().ravel(), 1e-5, 1e-5)
