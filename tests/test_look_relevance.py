"""Rollout, and relevance by five methods: as in papers, equal to captum, complete, by hand."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cosine_similarity

from foveate.config import ConfigError
from foveate.data.catalogue import DataError
from foveate.data.tokenizer import BOS, EOS, UNK
from foveate.errors import UserError
from foveate.look.edits import edit, force, silence
from foveate.look.hooks import ForcedPass, calls_of, capture
from foveate.look.relevance import (
    METHODS,
    Embedded,
    Relevance,
    area,
    by_occlusion,
    by_values,
    contrasted,
    faithfulness,
    incompleteness,
    mixing_of,
    relevance,
    rolled,
)
from foveate.look.views import find
from foveate.look.views.options import Question
from foveate.run import Run
from inside_toys import language, language_model, recurrent, transformer, translating
from small_runs import invoked
from tolerances import ROW, close, rounding

PAIR, TEXT = Question(text="the dog runs", target="le chien court"), Question(text="the dog runs")
QUESTIONS = {"rnn": PAIR, "transformer": PAIR, "language": TEXT, "classifier": TEXT}
LACKING = {("rnn", "values"), ("language", "attention"), ("language", "values")}  # both recurrent


def forced_of(run: Run, name: str) -> ForcedPass:
    question = QUESTIONS[name]
    return run.forced(str(question.text), question.target)


def by_captum(embedded: Embedded, method: str) -> list[list[np.ndarray[Any, Any]]]:
    """For each score the attributions of each side, (S,), as captum computes them."""
    attr = pytest.importorskip("captum.attr", reason="needs captum (extra: dev)")
    sides = [*embedded.vectors]

    def forward(*vectors: Tensor) -> Tensor:
        return embedded.scores(dict(zip(sides, vectors, strict=True)))[None]

    inputs = tuple(own.detach().requires_grad_() for own in embedded.vectors.values())
    blank = tuple(own.detach() for own in embedded.blank.values())
    results = []
    for t in range(len(embedded.forced.produced)):
        if method == "gradient":
            theirs = attr.InputXGradient(forward).attribute(inputs, target=t)
        elif method == "integrated":
            theirs = attr.IntegratedGradients(forward).attribute(
                inputs, blank, target=t, n_steps=50, internal_batch_size=1
            )
        else:
            windows = tuple((1, own.shape[-1]) for own in inputs)
            with torch.no_grad():
                how = {"baselines": blank, "target": t}
                theirs = attr.Occlusion(forward).attribute(inputs, windows, **how)
        whole = (own.detach()[0].numpy() for own in theirs)
        results.append([own[:, 0] if method == "occlusion" else own.sum(-1) for own in whole])
    return results


@pytest.mark.parametrize("method", ["gradient", "integrated", "occlusion"])
@pytest.mark.parametrize("name", QUESTIONS)
def test_it_is_that_of_captum(runs: dict[str, Run], name: str, method: str) -> None:
    forced = forced_of(runs[name], name)
    rows = METHODS[method][0](forced)
    embedded = Embedded.of(forced)
    assert [*rows] == [*embedded.vectors]
    for t, theirs in enumerate(by_captum(embedded, method)):
        for own, expected in zip(rows.values(), theirs, strict=True):
            np.testing.assert_allclose(own[t], expected, atol=1e-5)


@pytest.mark.parametrize("name", QUESTIONS)
def test_integrated_gradients_are_complete(
    runs: dict[str, Run], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As far as their sum over points goes, which ReLU makes rough."""
    forced = forced_of(runs[name], name)
    rows = METHODS["integrated"][0](forced)
    embedded = Embedded.of(forced)
    with torch.no_grad():
        change = embedded.scores(embedded.vectors) - embedded.scores(embedded.blank)
    gap = abs(sum(own.sum(axis=-1) for own in rows.values()) - change.numpy()).max()
    assert incompleteness(forced, rows) == pytest.approx(gap, abs=1e-5) and gap < 0.03
    monkeypatch.setattr("foveate.look.relevance.POINTS", 400)
    assert incompleteness(forced, METHODS["integrated"][0](forced)) < max(2e-3, gap / 4)
    assert "complete: sums are log p" in relevance(forced, "integrated").notes[-1]


def test_blank_is_the_text_of_unknown_words() -> None:
    model, ids = transformer(), torch.tensor([4, 5, 6])
    embedded = Embedded.of(translating(model, ids, ids))
    unknown = torch.tensor([[UNK, UNK, UNK, EOS]])
    assert torch.equal(embedded.blank["encoder"], model.encoder.stem(unknown))  # type: ignore[operator]
    begun = torch.tensor([[BOS, UNK, UNK, UNK]])
    assert torch.equal(embedded.blank["decoder"], model.decoder.stem(begun))
    assert embedded.words("encoder") == [0, 1, 2] and embedded.words("decoder") == [1, 2, 3]


def test_value_zeroing_sets_one_value_of_one_layer_to_zero() -> None:
    """By a hook on the value projection itself, as Mohebbi et al. (2023) describe it."""
    model = language_model(num_layers=2)
    forced = language(model, torch.tensor([4, 5, 6]))
    mixing = mixing_of(forced)
    read = torch.tensor([[BOS, 4, 5, 6]])
    for number, layer in enumerate(model.decoder.layers):  # type: ignore[arg-type,union-attr]
        with torch.no_grad(), calls_of(layer) as calls:
            model(read)
            for s in range(4):

                def zero(module: Any, args: Any, output: Tensor, s: int = s) -> Tensor:
                    changed = output.clone()
                    changed[:, s] = 0
                    return changed

                with layer.self_attention.value.register_forward_hook(zero):
                    model(read)
        outputs = [call.output[0] for call in calls]
        turns = [1 - cosine_similarity(after, outputs[0], dim=-1) for after in outputs[1:]]
        expected = torch.stack(turns, dim=-1)
        expected = expected / expected.sum(dim=-1, keepdim=True)
        own = mixing[f"decoder.layers.{number}.self_attention"][0]
        np.testing.assert_allclose(own, expected, atol=1e-4)
    first, second = (mixing[f"decoder.layers.{n}.self_attention"][0] for n in range(2))
    np.testing.assert_allclose(by_values(forced)["decoder"], second @ first, atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", QUESTIONS)
def test_the_view_draws_it_over_words(runs: dict[str, Run], name: str, method: str) -> None:
    question = QUESTIONS[name].model_copy(update={"method": method})
    entry = find("relevance")
    if (name, method) in LACKING:
        with pytest.raises(ConfigError, match="this model has no"):
            entry.draw([runs[name]], question)
        return
    drawing: Any = entry.draw([runs[name]], question)
    record = relevance(forced_of(runs[name], name), method)
    if method in ("attention", "values"):
        assert np.array_equal(drawing.array, record.select())
        return
    assert len(drawing.sheets) == len(record.maps)
    for sheet, (key, own) in zip(drawing.sheets, record.maps.items(), strict=True):
        close(sheet.values.array, own[0])
        assert (sheet.rows, sheet.columns) == record.axes(key)


def test_rather_than_another_word(runs: dict[str, Run]) -> None:
    run = runs["transformer"]
    forced = forced_of(run, "transformer")
    other = contrasted(forced, "chat")
    ids = run.task.target_tokenizer.encode_ids(["le chien court", "chat"])
    inputs = torch.tensor([[BOS, *ids[0]]])
    source = run.task.source_tokenizer.encode_ids(["the dog runs"])[0]
    with torch.no_grad():
        log_p = run.model(torch.tensor([[*source, EOS]]), inputs)[0].log_softmax(dim=-1)
    expected = [log_p[t, i] - log_p[t, ids[1][0]] for t, i in enumerate([*ids[0], EOS])]
    np.testing.assert_allclose(other.scores(), expected, atol=1e-5)
    with edit(run.model, {"cross_attention": silence()}):  # heads without a part
        assert not by_occlusion(forced)["encoder"].any() and by_occlusion(forced)["decoder"].any()
    rows = [by_occlusion(each)["encoder"] for each in (forced, other)]
    assert abs(rows[0] - rows[1]).max() > 1e-4
    for word, why in ((" ", "' ' is blank"), ("zèbre", "'zèbre' is not in the model's vocabulary")):
        with pytest.raises(UserError, match=f"{why}: give a word that the model can write"):
            contrasted(forced, word)
    own: Any = contrasted(forced, "chien")
    assert abs(own.scores()[1]) < 1e-6 and abs(by_occlusion(own)["encoder"][1]).max() < 1e-6


def test_rather_than_another_label(runs: dict[str, Run]) -> None:
    run = runs["classifier"]
    forced = forced_of(run, "classifier")
    other = next(name for name in run.task.label_names if name != forced.produced[0])
    expected = forced.scores() - run.forced("the dog runs", other).scores()
    close(contrasted(forced, other).scores(), expected)
    drawn = find("relevance").draw(
        [run], QUESTIONS["classifier"].model_copy(update={"method": "occlusion", "foil": other})
    )
    assert f"log p − log p({other})" in str(drawn.title)
    with pytest.raises(DataError, match="no such"):
        contrasted(forced, "no such")


def test_options_of_the_command(runs: dict[str, Run]) -> None:
    words = ["look", "relevance", runs["transformer"].path, "--text", "the dog runs"]
    call = invoked(*words, "--method", "gradient", "--not", "chat")
    assert "gradient × input" in call.output and "log p(chat)" in call.output
    values = QUESTIONS["transformer"].model_copy(update={"method": "values", "foil": "chat"})
    with pytest.raises(ConfigError, match="--not needs scores"):
        find("relevance").draw([runs["transformer"]], values)


@pytest.mark.parametrize(
    ("name", "asked", "missing"),
    [("captioner", Question(image="0"), "attention, values"), ("rnn", PAIR, "values")],
)
def test_methods_that_a_model_lacks_are_left_out(runs, name, asked, missing) -> None:
    """A caption loses its own words, without vectors of the picture."""
    drawn: Any = find("faithfulness").draw([runs[name]], asked)
    names = [curve.name.partition(" (")[0] for curve in drawn.curves]
    assert names == ["random order", *(m for m in METHODS if m not in missing.split(", "))]
    assert drawn.caption.endswith(f"not for this model: {missing}")


@pytest.mark.parametrize("name", ["transformer", "classifier"])
def test_words_are_deleted_in_the_order_of_their_relevance(runs: dict[str, Run], name: str) -> None:
    forced = forced_of(runs[name], name)
    curves = faithfulness(forced)
    embedded = Embedded.of(forced)
    words = embedded.words("encoder")
    order = [words[n] for n in by_occlusion(forced)["encoder"].sum(axis=0)[words].argsort()[::-1]]
    for count, value in enumerate(curves["occlusion"]):
        assert value == pytest.approx(embedded.deleted("encoder", order[:count]).mean(), abs=1e-6)
    assert all(len(curve) == len(words) + 1 for curve in curves.values())
    for curve in curves.values():  # all begin and end alike
        ends = [curves["occlusion"][0], curves["occlusion"][-1]]
        assert curve[[0, -1]].tolist() == pytest.approx(ends, abs=1e-5)
    assert area(curves, "occlusion") > 0
    drawn: Any = find("faithfulness").draw([runs[name]], QUESTIONS[name])
    assert len(drawn.curves) == len(METHODS) + 1


# ---- Rollout, and the rules of attention × gradient, as their papers write them
RANDOM = np.random.default_rng(7)
STEP = 4e-3  # of a weight; log p is in single precision


def rows(*shape: int, causal: bool = False) -> NDArray[np.float32]:
    drawn = RANDOM.random(shape)
    drawn = np.tril(drawn) if causal else drawn
    return (drawn / drawn.sum(-1, keepdims=True)).astype(np.float32)


def test_rollout_is_the_product_of_means_with_residuals() -> None:
    encoder, decoder = [rows(2, 4, 4) for _ in range(3)], [rows(2, 3, 3, causal=True) for _ in "ab"]
    cross = [rows(2, 3, 4) for _ in "ab"]
    maps = {f"encoder.layers.{n}.self_attention": w for n, w in enumerate(encoder)}
    for n in range(2):
        maps[f"decoder.layers.{n}.self_attention"] = decoder[n]
        maps[f"decoder.layers.{n}.cross_attention"] = cross[n]
    result = rolled(maps)
    assert result.keys() == maps.keys()
    mixed = [0.5 * w.mean(0) + 0.5 * np.eye(4) for w in encoder]
    for n, product in enumerate([mixed[0], mixed[1] @ mixed[0], mixed[2] @ mixed[1] @ mixed[0]]):
        seen = result[f"encoder.layers.{n}.self_attention"]
        close(seen[0], product, terms=ROW)
        close(seen.sum(-1), 1)
    flow = cross[1].mean(0) @ mixed[2] @ mixed[1] @ mixed[0]
    close(result["decoder.layers.1.cross_attention"][0], flow, terms=ROW)
    assert not np.triu(result["decoder.layers.1.self_attention"][0], 1).any()


def test_the_rules_are_those_of_the_paper() -> None:
    """Equations 5 to 11 of Chefer et al. (2021), written out for two layers of each kind."""
    encoder, own, cross = rows(2, 4, 4), rows(2, 3, 3), rows(2, 3, 4)
    of = Relevance()
    for n in range(2):
        of.add(f"encoder.layers.{n}.self_attention", encoder[n].astype(float))
    for n in range(2):
        of.add(f"decoder.layers.{n}.self_attention", own[n].astype(float))
        of.add(f"decoder.layers.{n}.cross_attention", cross[n].astype(float))

    def even(r: NDArray[np.float64]) -> NDArray[np.float64]:
        rest = r - np.eye(len(r))
        return np.asarray(rest / rest.sum(-1, keepdims=True) + np.eye(len(r)))

    r_ii = np.eye(4)
    for n in range(2):
        r_ii = r_ii + encoder[n] @ r_ii
    r_qq, r_qi = np.eye(3), np.zeros((3, 4))
    for n in range(2):
        r_qi = r_qi + own[n] @ r_qi
        r_qq = r_qq + own[n] @ r_qq
        r_qi = r_qi + even(r_qq).T @ cross[n] @ even(r_ii)
    np.testing.assert_allclose(of.encoder, r_ii, atol=1e-9)
    np.testing.assert_allclose(of.decoder, r_qq, atol=1e-9)
    np.testing.assert_allclose(of.source, r_qi, atol=1e-9)


def by_differences(forced: ForcedPass, name: str, t: int) -> NDArray[np.float64]:
    """A ⊙ ∂ log p_t / ∂A for one attention, by changing one weight after the other."""
    weights = torch.from_numpy(forced.maps(name)[name])
    result = np.zeros(weights.shape)
    for place in np.ndindex(*weights.shape):
        ends = []
        for step in (STEP, -STEP):
            moved = weights.clone()
            moved[place] += step
            with edit(forced.model, {name: force(moved)}):
                ends.append(forced.scores()[t])
        result[place] = weights[place] * (ends[0] - ends[1]) / (2 * STEP)
    return result


def last_layers(kind: str) -> tuple[ForcedPass, list[str]]:
    """RNNsearch with its one attention, or a language model of two layers."""
    if kind == "rnn":
        pair = torch.tensor([4, 9, 6]), torch.tensor([7, 8])
        return translating(recurrent().double(), *pair), ["decoder.cross_attention"]
    model = language_model(num_layers=2).double()
    names = [f"decoder.layers.{n}.self_attention" for n in range(2)]
    return language(model, torch.tensor([4, 5, 6])), names


@pytest.mark.parametrize(("kind", "t"), [("rnn", 1), ("rnn", 2), ("language", 3)])
def test_it_is_their_gradients_by_differences_by_the_rules(kind: str, t: int) -> None:
    forced, names = last_layers(kind)
    of = Relevance()
    for name in names:
        of.add(name, np.maximum(by_differences(forced, name, t), 0).mean(axis=0))
    expected = of.source if of.decoder is None else of.decoder - np.eye(len(of.decoder))
    [seen] = relevance(forced).maps.values()
    expected = expected[t] / max(expected[t].sum(), 1e-12)
    np.testing.assert_allclose(seen[0, t], expected, rtol=1e-2, atol=1e-3)
    assert kind == "rnn" or not np.triu(seen[0], 1).any()


def test_looking_leaves_nothing_behind() -> None:
    model = transformer()
    forced = translating(model, torch.tensor([4, 5, 6]), torch.tensor([7, 8]))
    before = forced.scores()
    model.requires_grad_(False)  # frozen weights can be looked at too
    record = relevance(forced)
    assert np.array_equal(forced.scores(), before)
    assert all(p.grad is None for p in model.parameters())
    for weights in record.maps.values():
        sums = weights.sum(-1)
        assert ((abs(sums - 1) < rounding()) | (sums == 0)).all()
    with capture(model) as maps:
        forced.run()
    assert len(maps) == 6
