"""Translation end to end at a small size, alone and by ensembles."""

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from foveate.data.catalogue import DataError
from foveate.data.text import SKIPPED, Corpus, TextData
from foveate.data.tokenizer import (
    BOS,
    BPE,
    EOS,
    PAD,
    Byte,
    Character,
    Tokenizer,
    Unigram,
    WordTokenizer,
)
from foveate.data.words import words
from foveate.decode.beam import Beam
from foveate.decode.engine import SearchRequest
from foveate.decode.sample import Sample
from foveate.decode.search import Greedy
from foveate.errors import NoOutputError
from foveate.look.hooks import capture
from foveate.models.encoder_decoder import Decoder, EncoderDecoder
from foveate.models.language_model import LanguageModel
from foveate.models.recurrent import RecurrentAttention, RecurrentDecoder, RecurrentEncoder
from foveate.models.transformer import TransformerDecoder, TransformerEncoder
from foveate.nn.spec import Tokens
from foveate.run import RunEngine, answering
from foveate.run.evaluation import (
    as_examples,
    baseline,
    beside_baseline,
    evaluate,
    read_examples,
    swapped,
)
from foveate.run.passes import forced as forced_pass
from foveate.tasks.base import Task
from foveate.tasks.engine import Ensemble, check_pieces, steps_of, together
from foveate.tasks.objectives import CrossEntropy
from foveate.tasks.prefix_translation import PrefixTranslation
from foveate.tasks.text import collate
from foveate.tasks.translation import Translation
from task_tools import check_losses
from tolerances import MODEL, ROW, close, near

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
SMALL = {"hidden_size": 16, "num_heads": 2, "num_layers": 1, "ffn_size": 16}
TRANSFORMER = EncoderDecoder.Config(
    encoder=TransformerEncoder.Config(**SMALL),  # type: ignore[arg-type]
    decoder=TransformerDecoder.Config(**SMALL),  # type: ignore[arg-type]
)
RECURRENT = EncoderDecoder.Config(
    encoder=RecurrentEncoder.Config(embedding_size=8, hidden_size=8, bidirectional=True),
    decoder=RecurrentDecoder.Config(
        embedding_size=8, hidden_size=8, attention=RecurrentAttention()
    ),
)
MODELS = pytest.mark.parametrize("config", [TRANSFORMER, RECURRENT], ids=["transformer", "rnn"])


def write(folder: Path) -> Path:
    for split, pairs in (("train", TRAIN), ("valid", VALID)):
        for column, language in enumerate(("en", "fr")):
            lines = "".join(pair[column] + "\n" for pair in pairs)
            (folder / f"{split}.{language}").write_text(lines, encoding="utf-8")
    return folder


def make(folder: Path, data: TextData | None = None, **fields: Any) -> Translation:
    config = Translation.Config(
        **{
            "source": str(folder / "{split}.en"),
            "target": str(folder / "{split}.fr"),
            "tokenizer": WordTokenizer.Config(min_frequency=1),
        }
        | fields
    )
    task: Translation = config.build(data or TextData())
    return task


@pytest.fixture
def task(tmp_path: Path) -> Translation:
    made = make(write(tmp_path))
    made.prepare(tmp_path, seed=0)
    return made


def model_of(task: Translation, config: EncoderDecoder.Config) -> EncoderDecoder:
    torch.manual_seed(0)
    model = task.build(config)
    assert isinstance(model, EncoderDecoder)
    return model.eval()


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize(
    "tokenizer",
    [
        BPE.Config(vocab_size=300),
        Unigram.Config(vocab_size=280),
        WordTokenizer.Config(),
        Character.Config(),
        Byte.Config(),
    ],
    ids=lambda config: config.kind,
)
def test_restored_is_prepared(tmp_path: Path, tokenizer: Tokenizer.Config, joint: bool) -> None:
    run = tmp_path / "run"
    run.mkdir()
    before = make(write(tmp_path), tokenizer=tokenizer, joint=joint)
    before.prepare(run, seed=0)
    for file in tmp_path.glob("*.??"):
        file.unlink()  # a run is used without its training data
    after = make(tmp_path, tokenizer=tokenizer, joint=joint)
    after.restore(run)
    texts = [text for pair in TRAIN + VALID for text in pair]
    for name in ("source_tokenizer", "target_tokenizer"):
        old, new = getattr(before, name), getattr(after, name)
        assert old.encode_ids(texts) == new.encode_ids(texts)
        assert old.vocab_size == new.vocab_size
    assert (after.source_tokenizer is after.target_tokenizer) == joint
    model = model_of(after, TRANSFORMER)
    sizes = after.source_tokenizer.vocab_size, after.target_tokenizer.vocab_size
    assert model.encoder.embedding.num_embeddings == sizes[0]
    assert model.output.out_features == sizes[1]


def test_separate_vocabularies_know_their_side_alone(tmp_path: Path) -> None:
    task = make(write(tmp_path), joint=False)
    task.prepare(tmp_path, seed=0)
    assert "dog" in task.source_tokenizer.pieces
    assert "dog" not in task.target_tokenizer.pieces
    assert "chien" in task.target_tokenizer.pieces


def test_one_file_for_both_sides(tmp_path: Path) -> None:
    lines = [f"{source} {n}\t{target}\n" for n in range(20) for source, target in TRAIN[:5]]
    (tmp_path / "pairs.tsv").write_text("".join(lines), encoding="utf-8")
    config = Task.Config.parse(
        {"kind": "translation", "source": str(tmp_path / "pairs.tsv"), "tokenizer": "character"}
    )
    task = config.build(TextData(holdout=0.2))
    task.prepare(tmp_path, seed=0)
    sizes = [len(task.lengths(split)) for split in ("train", "valid", "test")]
    assert sum(sizes) == 100
    assert all(sizes)
    sources = [set(task.corpus(split).sources) for split in ("train", "valid", "test")]
    assert not sources[0] & sources[1] | sources[0] & sources[2] | sources[1] & sources[2]


def test_lengths_count_the_end(task: Translation) -> None:
    lengths = task.lengths("train")
    assert lengths.dtype == np.int32
    expected = [[len(words(s)) + 1, len(words(t)) + 1] for s, t in TRAIN if s]
    assert lengths.tolist() == expected
    assert len(task.lengths("valid")) == 2


def test_a_batch_is_its_pairs_with_starts_and_ends(task: Translation) -> None:
    indices = [4, 0, 1]
    batch = task.batch("train", indices)
    longest = task.lengths("train")[indices].max(axis=0)
    assert batch.source.shape == (3, longest[0])
    assert batch.inputs.shape == batch.targets.shape == (3, longest[1])
    assert batch.source_mask is not None
    assert batch.counted is not None
    places = []
    for row, index in enumerate(indices):
        source, target = (
            tokenizer.encode_ids([text])[0]
            for tokenizer, text in zip(
                (task.source_tokenizer, task.target_tokenizer), TRAIN[index], strict=True
            )
        )
        fill = [PAD] * (longest[0] - len(source) - 1), [PAD] * (longest[1] - len(target) - 1)
        assert batch.source[row].tolist() == [*source, EOS, *fill[0]]
        assert batch.source_mask[row].tolist() == [i <= len(source) for i in range(longest[0])]
        assert batch.inputs[row].tolist() == [BOS, *target, *fill[1]]
        assert batch.targets[row].tolist() == [*target, EOS, *fill[1]]
        places += [row * longest[1] + t for t in range(len(target) + 1)]
    assert batch.counted.tolist() == places


def test_even_pairs_need_no_mask() -> None:
    batch = collate([[5, 6], [7, 8]], [[5], [6]])
    assert batch.source_mask is None
    assert batch.counted is None


@MODELS
def test_losses_of_pairs_add_up(task: Translation, config: EncoderDecoder.Config) -> None:
    whole = check_losses(task, model_of(task, config), 6)
    assert whole.count == task.lengths("train")[:6, 1].sum()


def test_what_is_dropped_is_counted(tmp_path: Path) -> None:
    data = TextData(drop_duplicates=True, max_length=12)
    task = make(write(tmp_path), data)
    task.prepare(tmp_path, seed=0)
    assert len(task.lengths("train")) == 5
    output = "\n".join(task.describe_data())
    assert "train: 7 pairs" in output
    assert "duplicate pair: 1" in output
    assert "empty side: 1" in output
    assert "max_length = 12: 1" in output
    assert f"{task.source_tokenizer.vocab_size:,}" in output


def test_lines_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    folder = write(tmp_path)
    with (folder / "train.fr").open("ab") as file:
        file.write(b"caf\xe9\n")
    with (folder / "train.en").open("ab") as file:
        file.write(b"coffee\n")
    task = make(folder, TextData(on_bad_line="skip"))
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


@pytest.mark.parametrize("search", [Greedy.Config(), Beam.Config(), Sample.Config()])
def test_weights_that_are_no_numbers_give_no_answer(task, search) -> None:
    model = model_of(task, TRANSFORMER)
    with torch.no_grad():
        model.output.weight.fill_(torch.nan)
    engine, request = RunEngine(task, model), SearchRequest(search.build())
    for call in (
        lambda: answering.answer(task, engine, ["Yes."], request),
        lambda: evaluate(task, engine, task.corpus("valid"), request),
        lambda: task.measure(model, "valid", search.build()),
    ):
        with pytest.raises(NoOutputError, match=r"source \d has no output: .*NaN"):
            call()
    assert answering.answer(task, engine, [" "], request)[0].scores == [0.0]


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
def test_the_score_of_an_output_is_that_of_forcing_it(task, config) -> None:
    model, sources = model_of(task, config), task.source_tokenizer.encode_ids([s for s, _ in VALID])
    pairs, scores = [], []
    request = SearchRequest(Beam.Config(max_extra=3).build())
    result = RunEngine(task, model).outputs(sources, request)
    for ids, outputs in zip(sources, result, strict=True):
        pairs += [(ids, h.ids) for h in outputs]
        scores += [(h.log_probability, h.ended) for h in outputs]
    forcing = task.force(model, pairs)
    for (_, target), (score, ended), forced in zip(pairs, scores, forcing, strict=True):
        assert len(forced) == len(target) + 1
        assert all(log_p <= 0 for log_p in forced)
        total = sum(forced) if ended else sum(forced[:-1])
        assert total == near(score, terms=MODEL)


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
@pytest.mark.parametrize(
    "tokenizer",
    [
        BPE.Config(vocab_size=280),
        Character.Config(),
        Byte.Config(),
        WordTokenizer.Config(min_frequency=1),
    ],
    ids=lambda config: config.kind,
)
def test_an_explanation_speaks_in_words(tmp_path, config, tokenizer) -> None:
    task = make(write(tmp_path), tokenizer=tokenizer)
    task.prepare(tmp_path, seed=0)
    model, (source, target) = model_of(task, config), TRAIN[2]
    record = forced_pass(task, model, source, target, units="words").record()
    source_words = ["The", "man", "doesn't", "see", "the", "bird", ".", "</s>"]
    target_words = ["L'", "homme", "ne", "voit", "pas", "l'", "oiseau", "."]
    axes = {
        "encoder.layers.0.self_attention": (source_words, source_words),
        "decoder.layers.0.self_attention": ([*target_words, "</s>"], ["<s>", *target_words]),
        "decoder.layers.0.cross_attention": ([*target_words, "</s>"], source_words),
        "decoder.cross_attention": ([*target_words, "</s>"], source_words),
    }
    assert set(record.maps) <= set(axes)
    assert len(record.maps) == (3 if config is TRANSFORMER else 1)
    for name, weights in record.maps.items():
        rows, columns = record.axes(name)
        assert (rows, columns) == axes[name]
        assert weights.shape[1:] == (len(rows), len(columns))
        close(weights.sum(axis=-1), 1)
        assert record.drawn(name).shape == weights.shape
    assert record.select("cross_attention").shape == (9, 8)
    assert source in record.title
    assert target in record.title


def test_words_add_up_their_pieces(tmp_path: Path) -> None:
    """By hand: "ab c" → "de" by characters, one head."""
    for split, line in (("train.en", "ab c\n"), ("train.fr", "de\n")):
        (tmp_path / split).write_text(line * 3, encoding="utf-8")
    task = make(tmp_path, tokenizer=Character.Config())
    task.prepare(tmp_path, seed=0)
    model = model_of(task, RECURRENT)
    pair = zip((task.source_tokenizer, task.target_tokenizer), ("ab c", "de"), strict=True)
    batch = collate(*(side.encode_ids([text]) for side, text in pair))
    with capture(model) as maps, torch.no_grad():
        model.decode(batch.inputs, model.encode(batch.source, batch.source_mask))
    (pieces,) = maps.values()
    d, e, end = pieces[0, 0].tolist()  # over a, b, the space, c and the end
    expected = [
        [(x[0] + x[1] + y[0] + y[1]) / 2, (x[2] + x[3] + y[2] + y[3]) / 2, (x[4] + y[4]) / 2]
        for x, y in ((d, e), (end, end))
    ]
    record = forced_pass(task, model, "ab c", "de", units="words").record()
    close(record.select(), expected, terms=ROW)
    assert record.axes("decoder.cross_attention") == (["de", "</s>"], ["ab", "c", "</s>"])


@MODELS
def test_ids_are_explained_as_their_text(task: Translation, config: EncoderDecoder.Config) -> None:
    model, (source, target) = model_of(task, config), TRAIN[0]
    ids = task.target_tokenizer.encode_ids([target])[0]
    by_text, by_ids = (forced_pass(task, model, source, each).record() for each in (target, ids))
    for name, weights in by_text.maps.items():
        assert np.array_equal(weights, by_ids.maps[name])
        assert by_text.axes(name) == by_ids.axes(name)


@MODELS
@pytest.mark.parametrize(
    ("source", "target"), [("", "Oui."), ("Yes.", ""), ("", ""), ("Zebra 🦓 ?", "Oui.")]
)
def test_odd_texts_are_explained(task, config, source, target) -> None:
    record = forced_pass(task, model_of(task, config), source, target).record()
    for name, weights in record.maps.items():
        rows, columns = record.axes(name)
        assert weights.shape[1:] == (len(rows), len(columns))
        close(weights.sum(axis=-1), 1)


@MODELS
def test_an_unknown_word_is_one_word(task: Translation, config: EncoderDecoder.Config) -> None:
    record = forced_pass(task, model_of(task, config), "Yes.", "Oui zèbre zébu .").record()
    rows, _ = record.axes(record.names("cross_attention")[-1])
    assert rows == ["Oui", "<unk>", "<unk>", ".", "</s>"]
    close(record.select().sum(axis=-1), 1)


@MODELS
def test_explaining_leaves_the_model_as_it_was(task, config) -> None:
    model, batch = model_of(task, config), task.batch("train", [0, 2])
    objective = CrossEntropy.Config().build()
    before = task.loss(model, batch, objective).total.detach()
    forced_pass(task, model, *TRAIN[0]).record()
    loss = task.loss(model, batch, objective)
    assert torch.equal(loss.total.detach(), before)
    loss.total.backward()


def test_examples_come_from_two_files_or_a_table(tmp_path: Path) -> None:
    (tmp_path / "a.en").write_text("one\ntwo\n")
    (tmp_path / "a.fr").write_text("un\ndeux\n")
    (tmp_path / "a.tsv").write_text("one\tun\ntwo\tdeux\n")
    task = Translation.Config(source="unused").build(TextData())
    for corpus in (
        read_examples(task, tmp_path / "a.en", tmp_path / "a.fr"),
        read_examples(task, tmp_path / "a.tsv"),
        as_examples(task, ["one", "two"], ["un", "deux"]),
    ):
        assert (corpus.sources, corpus.targets) == (["one", "two"], ["un", "deux"])
    (tmp_path / "b.tsv").write_text("")
    with pytest.raises(DataError, match="empty"):
        read_examples(task, tmp_path / "b.tsv")
    with pytest.raises(ValueError, match="2 sources but 1 references"):
        as_examples(task, ["one", "two"], ["un"])


def test_a_table_of_the_user_is_laid_out_as_the_run_has_it(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id;body;summary\n1;one;un\n2;two;deux\n")
    (tmp_path / "a.jsonl").write_text('{"en": "one", "fr": "un"}\n{"en": "two", "fr": "deux"}\n')
    (tmp_path / "swapped.tsv").write_text("un\tone\ndeux\ttwo\n")
    (tmp_path / "a.tsv").write_text("one\tun\ntwo\tdeux\n")
    named = TextData(columns=("body", "summary"))
    for name, data in (
        ("a.csv", named),
        ("a.tsv", named),  # has no names
        ("a.jsonl", TextData(keys=("en", "fr"))),
        ("swapped.tsv", TextData(columns=(2, 1))),
    ):
        corpus = read_examples(Translation.Config(source="unused").build(data), tmp_path / name)
        assert (corpus.sources, corpus.targets) == (["one", "two"], ["un", "deux"]), name


def test_skipped_lines_are_noted(task: Translation, tmp_path: Path) -> None:
    task.data = TextData(on_bad_line="skip")
    (tmp_path / "a.en").write_bytes(b"A man runs.\ncaf\xe9\nYes.\n")
    (tmp_path / "a.fr").write_bytes(b"Un homme court.\ncaf\xe9\nOui.\n")
    examples = read_examples(task, tmp_path / "a.en", tmp_path / "a.fr")
    request = SearchRequest(Greedy.Config().build())
    evaluation = evaluate(task, RunEngine(task, model_of(task, RECURRENT)), examples, request)
    assert (len(evaluation.outputs), evaluation.noted) == (2, {SKIPPED: [2]})


@pytest.mark.parametrize(
    "tokenizer",
    [BPE.Config(vocab_size=300), Unigram.Config(vocab_size=280), Character.Config(), Byte.Config()],
    ids=lambda config: config.kind,
)
@MODELS
def test_answers_begin_with_the_text_that_is_given(tmp_path, tokenizer, config) -> None:
    task = make(write(tmp_path), tokenizer=tokenizer)
    task.prepare(tmp_path, seed=0)
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
    forced = task.force(model, [(source, h.ids) for h in answers[0].outputs])
    for log_p, item in zip(forced, answers[0].outputs, strict=True):
        expected = sum(log_p) if item.ended else sum(log_p[:-1])
        assert expected == near(item.log_probability, terms=MODEL)
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
SEARCH = Beam.Config(beam_size=3, max_extra=3).build()
SOURCES = [source for source, _ in VALID]


def test_a_model_with_itself_is_the_model(task: Any) -> None:
    model = model_of(task, TRANSFORMER).double()
    alone = answering.answer(task, RunEngine(task, model), SOURCES, SearchRequest(SEARCH))
    engine = RunEngine(task, Ensemble([model, model]))
    twice = answering.answer(task, engine, SOURCES, SearchRequest(SEARCH))
    assert [a.hypotheses for a in alone] == [a.hypotheses for a in twice]
    for item, other in zip(alone, twice, strict=True):
        expected = [h.log_probability for h in item.outputs]
        assert [h.log_probability for h in other.outputs] == near(expected)


def test_families_decode_together_and_their_score_is_the_forced_one(task: Any) -> None:
    """A Transformer and a recurrent network; p is the mean of theirs, token by token."""
    models = [model_of(task, TRANSFORMER), model_of(task, RECURRENT)]
    both = together([task.pieces()] * 2, models, ["a", "b"])
    ids = task.source_tokenizer.encode_ids(SOURCES)
    answers = answering.answer(task, RunEngine(task, both), SOURCES, SearchRequest(SEARCH))
    for source, answer in zip(ids, answers, strict=True):
        for item in answer.outputs:
            (log_p,) = task.force(both, [(source, item.ids)])
            each = [task.force(model, [(source, item.ids)])[0] for model in models]
            mean = [math.log(sum(map(math.exp, p)) / 2) for p in zip(*each, strict=True)]
            assert log_p == near(mean, terms=MODEL)
            expected = sum(log_p) if item.ended else sum(log_p[:-1])
            assert expected == near(item.log_probability, terms=MODEL)


def test_joined_models_decode_together(tmp_path: Path) -> None:
    write(tmp_path)
    task = PrefixTranslation.Config(
        source=str(tmp_path / "{split}.en"), target=str(tmp_path / "{split}.fr"),
        tokenizer=WordTokenizer.Config(min_frequency=1),
    ).build(make(tmp_path).data)  # fmt: skip
    task.prepare(tmp_path, seed=0)
    decoder: Decoder.Config = TRANSFORMER.decoder
    models = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        models.append(task.build(LanguageModel.Config(decoder=decoder)).eval())
    both = Ensemble(models)
    ids = task.source_tokenizer.encode_ids(SOURCES)
    answers = answering.answer(task, RunEngine(task, both), SOURCES, SearchRequest(SEARCH))
    for source, answer in zip(ids, answers, strict=True):
        for item in answer.outputs:
            (log_p,) = task.force(both, [(source, item.ids)])
            expected = sum(log_p) if item.ended else sum(log_p[:-1])
            assert expected <= item.log_probability + 1e-3  # a search leaves out <pad> and <s>


def test_what_does_not_go_together_is_refused(task: Any) -> None:
    pair = model_of(task, RECURRENT)
    config = LanguageModel.Config(decoder=TRANSFORMER.decoder)
    language = config.build(Tokens(task.target_tokenizer.vocab_size))
    with pytest.raises(ValueError, match="cannot decode together"):
        Ensemble([pair, language])
    with pytest.raises(ValueError, match="look at a run by itself"):
        forced_pass(task, Ensemble([pair, pair]), SOURCES[0], "L'eau").record()


def test_other_vocabularies_are_named_with_the_remedy() -> None:
    own = {"encoder": ["a", "b"], "decoder": ["c", "d"]}
    check_pieces(own, dict(own), ("x", "y"))
    with pytest.raises(ValueError, match=r"2 and 3 tokens in the decoder; give them one vocab"):
        check_pieces(own, own | {"decoder": ["c", "d", "e"]}, ("x", "y"))
    with pytest.raises(ValueError, match=r"x and y cannot .* token 1 is 'b' and 'z'"):
        check_pieces(own, own | {"encoder": ["a", "z"]}, ("x", "y"))


def test_one_model_needs_no_ensemble(task: Any) -> None:
    model = model_of(task, RECURRENT)
    assert steps_of(model, lambda item: item) is model


@pytest.mark.parametrize("metrics", [("bleu", "chrf"), ("ter",)])
def test_the_baseline_copies_the_source_and_a_model_below_it_is_told(task, metrics) -> None:
    from foveate.cli.answers import evaluation_text
    from foveate.run.evaluation import Evaluation

    own = copy.copy(task)
    own.config = task.config.model_copy(update={"metrics": metrics})
    sources = ["the red house is old", "a small dog sleeps here"]
    examples = as_examples(own, sources, ["the red house is old", "a small cat sleeps here"])
    fitted = baseline(own, examples)
    assert fitted.about == "copying the source" and fitted.figures.keys() == {*metrics}
    for worse, told in ((True, True), (False, False)):
        model = {n: v - own.better(n) * (1 if worse else -1) for n, v in fitted.figures.items()}
        seen = beside_baseline(own, examples, Evaluation(model, {}, sources))
        assert seen.baseline.better == (list(metrics) if told else [])
        assert ("warning: the baseline beats the model in" in evaluation_text(seen, False)) == told
