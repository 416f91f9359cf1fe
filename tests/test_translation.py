"""Translation end to end at a small size, alone, by ensembles and by a language model."""

import copy
import math
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
import torch

from foveate.cli.answers import evaluation_text
from foveate.config import ConfigError
from foveate.data import tokenizer as tokenizers
from foveate.data.catalogue import DataError
from foveate.data.text import SKIPPED, Corpus, TextData
from foveate.data.tokenizer import BOS, EOS, PAD
from foveate.decode.beam import Beam
from foveate.decode.engine import SearchRequest
from foveate.decode.sample import Sample
from foveate.decode.search import Greedy
from foveate.models.encoder_decoder import EncoderDecoder
from foveate.models.language_model import LanguageModel
from foveate.models.recurrent import RecurrentAttention, RecurrentDecoder, RecurrentEncoder
from foveate.models.transformer import TransformerDecoder, TransformerEncoder
from foveate.nn.spec import Tokens
from foveate.run import RunEngine, answering, evaluation
from foveate.run.evaluation import as_examples, read_examples, swapped
from foveate.run.passes import forced as forced_pass
from foveate.tasks.base import Task
from foveate.tasks.engine import Ensemble, check_pieces, together
from foveate.tasks.objectives import CrossEntropy
from foveate.tasks.prefix_translation import PrefixTranslation, join
from foveate.tasks.text import collate
from foveate.tasks.translation import Translation
from task_tools import check_losses, fit, model_of
from tolerances import MODEL, close, near

# ---- The translation task on small files of our own: data, loss, search, scores, explanations
TRAIN = [
    ("The small dog runs.", "Le petit chien court."),
    ("A woman drinks cold water.", "Une femme boit de l'eau froide."),
    ("The man doesn't see the bird.", "L'homme ne voit pas l'oiseau."),
    ("Children play.", "Des enfants jouent."),
    ("The red house is old.", "La maison rouge est vieille."),
    ("The small dog runs.", "Le petit chien court."),
    ("Yes.", "Oui, bien sûr, et avec beaucoup de plaisir, mon cher ami de toujours."),
    ("", "Rien."),
]
VALID = [("A man runs.", "Un homme court."), ("The water is cold.", "L'eau est froide.")]
SMALL: dict[str, Any] = {"hidden_size": 16, "num_heads": 2, "num_layers": 1, "ffn_size": 16}
TRANSFORMER = EncoderDecoder.Config(
    encoder=TransformerEncoder.Config(**SMALL), decoder=TransformerDecoder.Config(**SMALL)
)
SIZES: dict[str, Any] = {"embedding_size": 8, "hidden_size": 8}
RECURRENT = EncoderDecoder.Config(
    encoder=RecurrentEncoder.Config(**SIZES, bidirectional=True),
    decoder=RecurrentDecoder.Config(**SIZES, attention=RecurrentAttention()),
)
MODELS = pytest.mark.parametrize("config", [TRANSFORMER, RECURRENT], ids=["transformer", "rnn"])
SPLIT = {
    "bpe": tokenizers.BPE.Config(vocab_size=300),
    "unigram": tokenizers.Unigram.Config(vocab_size=280),
    "character": tokenizers.Character.Config(),
    "byte": tokenizers.Byte.Config(),
}
WORDS = tokenizers.WordTokenizer.Config(min_frequency=1)


def write(folder: Path) -> Path:
    for split, pairs in (("train", TRAIN), ("valid", VALID)):
        for column, language in enumerate(("en", "fr")):
            lines = "".join(pair[column] + "\n" for pair in pairs)
            (folder / f"{split}.{language}").write_text(lines, encoding="utf-8")
    return folder


def make(folder: Path, data: TextData | None = None, **fields: Any) -> Translation:
    files = {"source": str(folder / "{split}.en"), "target": str(folder / "{split}.fr")}
    config = Translation.Config(**{"tokenizer": WORDS} | files | fields)
    task: Translation = config.build(data or TextData())
    return task


def prepared(folder: Path, data: TextData | None = None, **fields: Any) -> Translation:
    task = make(write(folder), data, **fields)
    task.prepare(folder, seed=0)
    return task


@pytest.fixture
def task(tmp_path: Path) -> Translation:
    return prepared(tmp_path)


def forced_score(task: Translation, model: Any, source: list[int], output: Any) -> float:
    """log p of an output, by forcing; a search that has no end leaves it out."""
    (log_p,) = task.force(model, [(source, output.ids)])
    assert len(log_p) == len(output.ids) + 1 and max(log_p) <= 0
    return sum(log_p) if output.ended else sum(log_p[:-1])


@pytest.mark.parametrize("joint", [True, False])
def test_a_restored_task_has_the_vocabularies_of_its_sides(tmp_path: Path, joint: bool) -> None:
    before = prepared(tmp_path, joint=joint)
    assert ("chien" in before.source_tokenizer.pieces) == joint
    for file in tmp_path.glob("*.??"):
        file.unlink()  # a run is used without its training data
    after = make(tmp_path, joint=joint)
    after.restore(tmp_path)
    assert (after.source_tokenizer is after.target_tokenizer) == joint
    for name in ("source_tokenizer", "target_tokenizer"):
        assert getattr(before, name).pieces == getattr(after, name).pieces
    model = model_of(after, TRANSFORMER)
    assert model.encoder.embedding.num_embeddings == after.source_tokenizer.vocab_size
    assert model.output.out_features == after.target_tokenizer.vocab_size


def test_a_batch_is_its_pairs_with_starts_and_ends(task: Translation) -> None:
    indices, sides = [4, 0, 1], (task.source_tokenizer, task.target_tokenizer)
    batch = task.batch("train", indices)
    lengths = task.lengths("train")
    assert (lengths.dtype, len(lengths)) == (np.int32, 7)  # a pair with an empty side is left out
    longest = lengths[indices].max(axis=0)
    assert batch.source.shape == (3, longest[0])
    assert batch.inputs.shape == batch.targets.shape == (3, longest[1])
    places = []
    for row, index in enumerate(indices):
        source, target = (t.encode_ids([x])[0] for t, x in zip(sides, TRAIN[index], strict=True))
        assert lengths[index].tolist() == [len(source) + 1, len(target) + 1]
        fill = [PAD] * (longest[0] - len(source) - 1), [PAD] * (longest[1] - len(target) - 1)
        assert batch.source[row].tolist() == [*source, EOS, *fill[0]]
        assert batch.source_mask[row].tolist() == [i <= len(source) for i in range(longest[0])]
        assert batch.inputs[row].tolist() == [BOS, *target, *fill[1]]
        assert batch.targets[row].tolist() == [*target, EOS, *fill[1]]
        places += [row * longest[1] + t for t in range(len(target) + 1)]
    assert batch.counted.tolist() == places
    even = collate([[5, 6], [7, 8]], [[5], [6]])
    assert even.source_mask is None and even.counted is None


@MODELS
def test_losses_of_pairs_add_up(task: Translation, config: EncoderDecoder.Config) -> None:
    whole = check_losses(task, model_of(task, config), 6)
    assert whole.count == task.lengths("train")[:6, 1].sum()


def test_what_is_dropped_is_counted_and_bad_lines_are_named(tmp_path: Path) -> None:
    task = prepared(tmp_path, TextData(drop_duplicates=True, max_length=12))
    assert len(task.lengths("train")) == 5
    output = "\n".join(task.describe_data())
    counts = "train: 7 pairs", "duplicate pair: 1", "empty side: 1", "max_length = 12: 1"
    assert all(part in output for part in (*counts, f"{task.source_tokenizer.vocab_size:,}"))
    for side, line in (("fr", b"caf\xe9\n"), ("en", b"coffee\n")):
        with (tmp_path / f"train.{side}").open("ab") as file:
            file.write(line)
    task = make(tmp_path, TextData(on_bad_line="skip"))
    task.prepare(tmp_path, seed=0)
    assert any("train.fr:9" in line and "UTF-8" in line for line in task.describe_data())
    assert len(task.lengths("train")) == 7


@MODELS
@pytest.mark.parametrize("budget", [1, 12, 4096])
def test_answers_come_in_order(task, config, budget) -> None:
    model, search = model_of(task, config), Beam.Config(beam_size=3, max_extra=3).build()
    texts = ["Children play.", "", "The small dog runs.", "Yes.", "", "A woman drinks cold water."]
    sources = task.source_tokenizer.encode_ids(texts)
    engine, request = RunEngine(task, model), SearchRequest(search, batch_tokens=3 * budget)
    answers = answering.answer(task, engine, texts, request)
    result = [answer.outputs for answer in answers]
    assert [bool(outputs) for outputs in result] == [bool(text) for text in texts]
    for ids, outputs in zip(sources, result, strict=True):
        if ids:
            (alone,) = engine.outputs([ids], request)
            assert [h.ids for h in outputs] == [h.ids for h in alone]
    assert engine.outputs([], request) == []
    assert engine.outputs([[], []], request) == [[], []]


@MODELS
def test_outputs_are_as_long_as_their_own_source_allows(task, config) -> None:
    model, search = model_of(task, config), Greedy.Config(max_ratio=1.0, max_extra=2).build()
    with torch.no_grad():
        model.output.weight[EOS] = 0  # an end is never the most probable
        model.output.weight[4:] *= 5
    sources = task.source_tokenizer.encode_ids(["Yes.", "The small dog runs.", "Children play."])
    outputs = RunEngine(task, model).outputs(sources, SearchRequest(search))
    for ids, (output,) in zip(sources, outputs, strict=True):
        assert len(output.ids) == len(ids) + 2
        assert not output.ended


@MODELS
def test_measures_agree_with_forcing(task: Translation, config: EncoderDecoder.Config) -> None:
    model = model_of(task, config)
    measures = task.measure(model, "valid", Greedy.Config(max_extra=3).build(), samples=1)
    sides = task.source_tokenizer, task.target_tokenizer
    pairs = [tuple(t.encode_ids([x])[0] for t, x in zip(sides, p, strict=True)) for p in VALID]
    forced = [log_p for item in task.force(model, pairs) for log_p in item]
    assert measures.figures["loss"] == near(-sum(forced) / len(forced), terms=MODEL)
    assert measures.figures["perplexity"] == pytest.approx(math.exp(measures.figures["loss"]))
    assert {"bleu", "chrf"} <= set(measures.figures)
    assert [(s.source, s.reference) for s in measures.samples] == [VALID[0]]


@MODELS
@pytest.mark.parametrize("tokenizer", [*SPLIT.values(), WORDS], ids=lambda config: config.kind)
def test_an_explanation_speaks_in_words(tmp_path, config, tokenizer) -> None:
    task = prepared(tmp_path, tokenizer=tokenizer)
    model, (source, target) = model_of(task, config), TRAIN[2]
    ids = task.target_tokenizer.encode_ids([target])[0]
    record, by_ids = (
        forced_pass(task, model, source, each, units="words").record() for each in (target, ids)
    )
    source_words = ["The", "man", "doesn't", "see", "the", "bird", ".", "</s>"]
    target_words = ["L'", "homme", "ne", "voit", "pas", "l'", "oiseau", ".", "</s>"]
    axes = {
        "encoder.layers.0.self_attention": (source_words, source_words),
        "decoder.layers.0.self_attention": (target_words, ["<s>", *target_words[:-1]]),
        "decoder.layers.0.cross_attention": (target_words, source_words),
    }
    if config is RECURRENT:
        axes = {"decoder.cross_attention": (target_words, source_words)}
    for each in (record, by_ids):
        assert {name: each.axes(name) for name in each.maps} == axes
    for name, weights in record.maps.items():
        assert weights.shape[1:] == tuple(map(len, axes[name]))
        assert np.array_equal(weights, by_ids.maps[name])
        close(weights.sum(axis=-1), 1)
        assert record.drawn(name).shape == weights.shape
    assert record.select("cross_attention").shape == (9, 8)
    assert source in record.title and target in record.title


@MODELS
@pytest.mark.parametrize(
    ("source", "target"),
    [("", "Oui."), ("Yes.", ""), ("", ""), ("Zebra 🦓 ?", "Oui."), ("Yes.", "Oui zèbre zébu .")],
)
def test_odd_texts_are_explained(task, config, source, target) -> None:
    record = forced_pass(task, model_of(task, config), source, target).record()
    for name, weights in record.maps.items():
        rows, columns = record.axes(name)
        assert weights.shape[1:] == (len(rows), len(columns))
        close(weights.sum(axis=-1), 1)
    if "zèbre" in target:  # an unknown word is one word
        assert rows == ["Oui", "<unk>", "<unk>", ".", "</s>"]


TABLES: list[tuple[str, str, dict[str, Any]]] = [
    ("a.tsv", "one\tun\ntwo\tdeux\n", {}),
    ("a.tsv", "one\tun\ntwo\tdeux\n", {"columns": ("body", "summary")}),  # has no names
    ("a.csv", "id;body;summary\n1;one;un\n2;two;deux\n", {"columns": ("body", "summary")}),
    ("a.tsv", "un\tone\ndeux\ttwo\n", {"columns": (2, 1)}),
    ("a.jsonl", '{"en": "one", "fr": "un"}\n{"en": "two", "fr": "deux"}\n', {"keys": ("en", "fr")}),
]


def test_examples_come_from_tables_laid_out_as_the_run_has_them_or_lists(tmp_path: Path) -> None:
    for name, text, data in TABLES:
        (tmp_path / name).write_text(text)
        task = Translation.Config(source="unused").build(TextData(**data))
        corpus = read_examples(task, tmp_path / name)
        assert (corpus.sources, corpus.targets) == (["one", "two"], ["un", "deux"]), name
    corpus = as_examples(task, ["one", "two"], ["un", "deux"])
    assert (corpus.sources, corpus.targets) == (["one", "two"], ["un", "deux"])
    (tmp_path / "b.tsv").write_text("")
    with pytest.raises(DataError, match="empty"):
        read_examples(task, tmp_path / "b.tsv")
    with pytest.raises(ValueError, match="2 sources but 1 references"):
        as_examples(task, ["one", "two"], ["un"])


def test_skipped_lines_of_two_files_are_noted(task: Translation, tmp_path: Path) -> None:
    task.data = TextData(on_bad_line="skip")
    (tmp_path / "a.en").write_bytes(b"A man runs.\ncaf\xe9\nYes.\n")
    (tmp_path / "a.fr").write_bytes(b"Un homme court.\ncaf\xe9\nOui.\n")
    examples = read_examples(task, tmp_path / "a.en", tmp_path / "a.fr")
    request = SearchRequest(Greedy.Config().build())
    engine = RunEngine(task, model_of(task, RECURRENT))
    result = evaluation.evaluate(task, engine, examples, request)
    assert (len(result.outputs), result.noted) == (2, {SKIPPED: [2]})


@pytest.mark.parametrize("tokenizer", SPLIT.values(), ids=SPLIT)
@MODELS
def test_answers_begin_with_the_text_that_is_given(tmp_path, tokenizer, config) -> None:
    task = prepared(tmp_path, tokenizer=tokenizer)
    model = model_of(task, config)
    lines = ["The small dog runs.", "", "Yes.", "Children play."]
    prefixes = ["Le petit", "Rien", "", "Des enfants "]
    search = Beam.Config(beam_size=3, max_ratio=0.0, max_extra=4).build()
    prefix_ids = task.target_tokenizer.beginnings(prefixes, len(lines))
    engine = RunEngine(task, model)
    for budget in (1, 4096):
        request = SearchRequest(search, prefix_ids, batch_tokens=budget)
        answers = answering.answer(task, engine, lines, request)
        assert answers[1].outputs == []
        for answer, prefix in zip(answers, prefixes, strict=True):
            assert all(text.startswith(prefix.rstrip()) for text in answer.hypotheses if text)
    [source] = task.source_tokenizer.encode_ids(lines[:1])
    for item in answers[0].outputs:
        assert forced_score(task, model, source, item) == near(item.log_probability, terms=MODEL)
    alone = answering.answer(task, engine, lines, SearchRequest(search))
    assert answers[2].outputs == alone[2].outputs


def test_beginnings_that_no_output_can_have_are_refused(task: Translation) -> None:
    [begun] = task.target_tokenizer.beginnings(["Le petit"], 1)
    assert task.target_tokenizer.beginnings("Le petit", 2) == [begun] * 2
    assert task.target_tokenizer.beginnings("", 1) == [[]]
    match = "'Le zèbre' contains characters that are not in the target vocabulary"
    with pytest.raises(ValueError, match=match):
        task.target_tokenizer.beginnings(["Le petit", "Le zèbre"], 2)
    with pytest.raises(ValueError, match="1 prefixes for 3 lines"):
        task.target_tokenizer.beginnings(["Le"], 3)


def test_swapped_sides_are_told_by_their_languages() -> None:
    english, french = ["The dog is on the beach with a man"] * 9, ["Le chien est dans la rue"] * 9
    note = swapped(Corpus(french, english, range(9)), french)
    assert "read as fr, as the outputs do, not as en" in note
    assert swapped(Corpus(english, french, range(9)), french) == ""


# ---- Ensembles of trained models: in searches, in forced scores, and which models go together
def test_families_decode_together_and_their_score_is_the_forced_one(task: Any) -> None:
    """A Transformer and a recurrent network; p is the mean of theirs, token by token."""
    models = [model_of(task, TRANSFORMER), model_of(task, RECURRENT)]
    both = together([task.pieces()] * 2, models, ["a", "b"])
    request, sources = SearchRequest(Beam.Config(max_extra=3).build()), [s for s, _ in VALID]
    ids = task.source_tokenizer.encode_ids(sources)
    answers = answering.answer(task, RunEngine(task, both), sources, request)
    for source, answer in zip(ids, answers, strict=True):
        for item in answer.outputs:
            each = [task.force(model, [(source, item.ids)])[0] for model in (both, *models)]
            mean = [math.log(sum(map(math.exp, p)) / 2) for p in zip(*each[1:], strict=True)]
            assert each[0] == near(mean, terms=MODEL)
            assert forced_score(task, both, source, item) == near(item.log_probability, MODEL)


def test_what_does_not_go_together_is_refused(task: Any) -> None:
    pair = model_of(task, RECURRENT)
    config = LanguageModel.Config(decoder=TRANSFORMER.decoder)
    language = config.build(Tokens(task.target_tokenizer.vocab_size))
    with pytest.raises(ValueError, match="cannot decode together"):
        Ensemble([pair, language])
    with pytest.raises(ValueError, match="look at a run by itself"):
        forced_pass(task, Ensemble([pair, pair]), *VALID[1]).record()


def test_other_vocabularies_are_named_with_the_remedy() -> None:
    own = {"encoder": ["a", "b"], "decoder": ["c", "d"]}
    check_pieces(own, dict(own), ("x", "y"))
    with pytest.raises(ValueError, match=r"2 and 3 tokens in the decoder; give them one vocab"):
        check_pieces(own, own | {"decoder": ["c", "d", "e"]}, ("x", "y"))
    with pytest.raises(ValueError, match=r"x and y cannot .* token 1 is 'b' and 'z'"):
        check_pieces(own, own | {"encoder": ["a", "z"]}, ("x", "y"))


@pytest.mark.parametrize("metrics", [("bleu", "chrf"), ("ter",)])
def test_the_baseline_copies_the_source_and_a_model_below_it_is_told(task, metrics) -> None:
    own = copy.copy(task)
    own.config = task.config.model_copy(update={"metrics": metrics})
    sources = ["the red house is old", "a small dog sleeps here"]
    examples = as_examples(own, sources, ["the red house is old", "a small cat sleeps here"])
    fitted = evaluation.baseline(own, examples)
    assert fitted.about == "copying the source" and fitted.figures.keys() == {*metrics}
    for worse, told in ((True, True), (False, False)):
        model = {n: v - own.better(n) * (1 if worse else -1) for n, v in fitted.figures.items()}
        seen = evaluation.beside_baseline(own, examples, evaluation.Evaluation(model, {}, sources))
        assert seen.baseline.better == (list(metrics) if told else [])
        assert ("warning: the baseline beats the model in" in evaluation_text(seen, False)) == told


# ---- Source and target in one sequence: what is joined, what is predicted, and that it learns
WIDER = {"hidden_size": 32, "num_layers": 2, "ffn_size": 32}
PAIRS = {
    "the small dog runs": "le petit chien court",
    "a woman drinks": "une femme boit",
    "the red house is old": "la maison rouge est vieille",
    "yes": "oui bien sûr",
}


@pytest.fixture(scope="module")
def learnt() -> tuple[PrefixTranslation, Any]:
    """A model that has learnt the pairs by heart."""
    folder = Path(mkdtemp())
    text = "".join(f"{source}\t{target}\n" for source, target in PAIRS.items())
    for split in ("train", "valid"):
        (folder / f"{split}.tsv").write_text(text, encoding="utf-8")
    config = PrefixTranslation.Config(source=str(folder / "{split}.tsv"), tokenizer=WORDS)
    task: PrefixTranslation = config.build(TextData())
    task.prepare(folder, 1)
    torch.manual_seed(0)
    decoder = TransformerDecoder.Config(**SMALL | WIDER, dropout=0.0)
    model: Any = task.build(LanguageModel.Config(decoder=decoder))
    objective = CrossEntropy.Config(label_smoothing=0.0).build()
    fit(model, lambda _: task.loss(model, task.batch("train", range(len(PAIRS))), objective), 60)
    return task, model


def test_a_pair_is_one_sequence_of_which_the_target_counts() -> None:
    batch = join([[5, 6], [7]], [[8], [9, 10]])
    assert batch.inputs.tolist() == [[BOS, 5, 6, EOS, 8], [BOS, 7, EOS, 9, 10]]
    expected = batch.targets.flatten()[batch.counted].tolist()
    assert expected == [8, EOS, 9, 10, EOS]
    longer = join([[5, 6], [7]], [[8], []])
    assert longer.targets.flatten()[longer.counted].tolist() == [8, EOS, EOS]


def test_what_it_has_read_it_says_again(learnt: tuple[PrefixTranslation, Any]) -> None:
    task, model = learnt
    for search in (Greedy.Config(), Beam.Config(beam_size=3), Sample.Config(top_k=1)):
        request = SearchRequest(search.build(), batch_tokens=16)
        answers = answering.answer(task, RunEngine(task, model), [*PAIRS, ""], request)
        assert [str(answer) for answer in answers[:-1]] == list(PAIRS.values())
        assert answers[-1].outputs == []
    measures = task.measure(model, "valid", Greedy.Config().build())
    assert measures.figures["loss"] < 0.2 and measures.figures["bleu"] > 90


def test_forced_scores_are_the_searchs(learnt: tuple[PrefixTranslation, Any]) -> None:
    task, model = learnt
    engine, request = RunEngine(task, model), SearchRequest(Greedy.Config().build())
    answers = answering.answer(task, engine, list(PAIRS), request)
    sources = task.source_tokenizer.encode_ids(list(PAIRS))
    pairs = [(s, a.outputs[0].ids) for s, a in zip(sources, answers, strict=True)]
    for log_p, answer in zip(task.force(model, pairs), answers, strict=True):
        assert len(log_p) == len(answer.outputs[0].ids) + 1
        assert sum(log_p) == pytest.approx(answer.outputs[0].log_probability, abs=0.02)


def test_rows_are_what_comes_next(learnt: tuple[PrefixTranslation, Any]) -> None:
    task, model = learnt
    record = forced_pass(task, model, "a woman drinks").record()
    name = next(iter(record.maps))
    words = ["a", "woman", "drinks", "</s>", "une", "femme", "boit"]
    assert record.axes(name) == ([*words, "</s>"], ["<s>", *words])
    close(record.drawn(name).sum(axis=2), 1)
    assert not np.triu(record.drawn(name)[0], 1).any()


def test_two_vocabularies_are_refused() -> None:
    with pytest.raises(ConfigError, match="leave joint = true"):
        Task.Config.parse({"kind": "prefix_translation", "source": "a.tsv", "joint": False})
