"""Rollout and relevance are the sums that their papers write, and find what is known."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from foveate.look.edits import edit, force
from foveate.look.hooks import ForcedPass, capture
from foveate.look.relevance import Relevance, relevance, rolled
from inside_toys import language, language_model, translating
from test_look_capture import recurrent as small_rnn
from test_look_capture import transformer
from tolerances import ROW, close, rounding

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


def double(forced: ForcedPass) -> ForcedPass:
    forced.model.double()
    return forced


@pytest.mark.parametrize("t", [1, 2])
def test_of_a_single_attention_it_is_the_gradient_by_differences(t: int) -> None:
    """RNNsearch: one head, one layer, so R = (∇A ⊙ A)⁺ in the row of the word."""
    forced = double(translating(small_rnn(), torch.tensor([4, 9, 6]), torch.tensor([7, 8])))
    expected = np.maximum(by_differences(forced, "decoder.cross_attention", t)[0, t], 0)
    seen = relevance(forced).maps["decoder.cross_attention"][0, t]
    np.testing.assert_allclose(seen, expected / max(expected.sum(), 1e-12), rtol=1e-2, atol=1e-3)


def test_of_layers_it_is_their_gradients_by_the_rules() -> None:
    forced, t = double(language(language_model(num_layers=2), torch.tensor([4, 5, 6]))), 3
    of = Relevance()
    for name in ("decoder.layers.0.self_attention", "decoder.layers.1.self_attention"):
        of.add(name, np.maximum(by_differences(forced, name, t), 0).mean(axis=0))
    expected = (of.decoder - np.eye(4))[t]
    seen = relevance(forced).maps["decoder.self_attention"]
    expected /= max(expected.sum(), 1e-12)
    np.testing.assert_allclose(seen[0, t], expected, rtol=1e-2, atol=1e-3)
    assert not np.triu(seen[0], 1).any()


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
