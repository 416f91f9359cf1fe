"""A shortlist: what it holds, that a search over all of it is the search, that rows are rows."""

import io
import itertools
import zipfile

import pytest
import torch

import foveate
from foveate.align.shortlist import learn, partners, reach
from foveate.config import ConfigError
from foveate.look.views.text import Watched
from foveate.run import Run
from foveate.tasks.shortlist import FILE, Shortlist
from small_runs import trained, translator_text

WORDS = {"dog": "chien", "cat": "chat", "runs": "court", "sleeps": "dort", "the": "le"}
WHICH = itertools.product(("dog", "cat"), ("runs", "sleeps"))
PAIRS = [(f"the {a} {b}", f"le {WORDS[a]} {WORDS[b]}") for a, b in WHICH]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("shortlist")
    for split in ("train", "valid", "test"):
        rows = (f"{source}\t{target}\n" for source, target in PAIRS * 8)
        (folder / f"pairs.{split}.tsv").write_text("".join(rows), encoding="utf-8")
    sizes = 'kind = "transformer", hidden_size = 16, num_heads = 2, num_layers = 1, ffn_size = 32'
    return trained(folder, translator_text(sizes, sizes), steps=40)


def test_partners_are_the_words_that_translate() -> None:
    """Word i is said as word 10 + i, 19 stands in every pair."""
    sources = [[a, b] for a in range(4, 9) for b in range(4, 9) if a != b]
    targets = [[10 + a, 10 + b, 19] for a, b in sources]
    result = partners(sources, targets, 10, 2)
    assert result[4:9, 0].tolist() == [14, 15, 16, 17, 18]
    assert (result[4:9, 1] == 19).all()
    assert not result[:4].any() and not result[9].any()  # never seen


def test_what_a_search_may_choose_from(run: Run) -> None:
    made = learn(run.task, often=1, likely=1)
    source, target = run.task.source_tokenizer, run.task.target_tokenizer
    ids = torch.tensor(source.encode_ids(["the dog"]))
    pieces = [target.pieces[i] for i in made.tokens(ids).tolist()]
    assert pieces[:4] == target.pieces[:4]
    assert set(pieces[4:]) >= {"le", "chien"} and not {"chat", "dort"} & set(pieces)
    assert reach(run.task, made)[0] == 1
    narrow = Shortlist(torch.arange(4), made.likely * 0)
    assert reach(run.task, narrow)[0] == 0


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_search_over_the_list_of_all_tokens_is_the_search(run: Run, beam_size: int) -> None:
    lines = [source for source, _ in PAIRS] + ["", "the"]
    run.task.shortlist = Shortlist(torch.arange(run.task.target_tokenizer.vocab_size), empty(run))
    short = run.decoding(shortlist=True)
    ours, all_tokens = short.translate(lines, beam_size), run.translate(lines, beam_size)
    assert [a.hypotheses for a in ours] == [a.hypotheses for a in all_tokens]
    scores = [[s for a in answers for s in a.scores] for answers in (ours, all_tokens)]
    assert scores[0] == pytest.approx(scores[1])


def test_nothing_else_comes_out_but_where_a_beginning_is_given(run: Run) -> None:
    target = run.task.target_tokenizer
    ids = [*range(4), *(target.pieces.index(piece) for piece in ("le", "chat"))]
    run.task.shortlist = Shortlist(torch.tensor(ids), empty(run))
    short = run.decoding(shortlist=True)
    answers = short.translate(["the dog runs", "the cat sleeps"], beam_size=2)
    assert {i for a in answers for i in a.outputs[0].ids} <= set(ids)
    begun = short.translate(["the dog runs"], beam_size=2, prefix="le chien")
    assert begun[0].hypotheses[0].startswith("le chien")
    watched = Watched(short)
    outputs = watched.write("the dog runs", short.search(2, None, 2))
    assert outputs[0].ids == answers[0].outputs[0].ids
    tokens = {i for p in outputs[0].path for i in watched.instead(p)[0].tokens}
    assert tokens <= set(ids)


def test_it_lies_in_the_run(run: Run) -> None:
    with pytest.raises(ConfigError, match="foveate shortlist"):
        Shortlist.load(run.path)
    made = learn(run.task, 3, 2)
    made.save(run.path)
    again = foveate.load(run.path).task.shortlist
    assert torch.equal(again.often, made.often) and torch.equal(again.likely, made.likely)
    content = (run.path / FILE).read_bytes()
    with zipfile.ZipFile(other := io.BytesIO(), "w") as archive:
        archive.writestr("often.npy", b"what is no array, NumPy gives as it is")
    for damaged in (content[: len(content) // 2], other.getvalue()):
        (run.path / FILE).write_bytes(damaged)
        with pytest.raises(ConfigError, match="damaged"):
            Shortlist.load(run.path)


def empty(run: Run) -> torch.Tensor:
    """No partners but the token 0."""
    return torch.zeros(run.task.source_tokenizer.vocab_size, 1, dtype=torch.long)
