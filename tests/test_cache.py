"""A cache of the last words: the equation place by place, its choice, and evaluation with it."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from foveate.tasks import cache as module
from foveate.tasks.cache import Cache, Predicted, fit
from tolerances import close

T, D, V, SIZE = 40, 6, 5, 7


def text() -> Predicted:
    scores = torch.randn(T, V)
    token = torch.randint(V, (T,))
    log_p = scores.log_softmax(dim=1).gather(1, token[:, None])[:, 0]
    return Predicted(torch.randn(T, D), token, log_p)


def equation(text: Predicted, cache: Cache) -> torch.Tensor:
    """Log p of each token, one place after the other."""
    log_p = [text.log_p[0]]
    for t in range(1, T):
        before = slice(max(0, t - cache.size), t)
        cosine = F.cosine_similarity(text.hidden[t], text.hidden[before], dim=1)
        weights = (cache.flatness * cosine).softmax(dim=0)
        p = float(weights[text.token[before] == text.token[t]].sum())
        model = float(text.log_p[t].exp())
        log_p.append(torch.tensor((1 - cache.share) * model + cache.share * p).log())
    return torch.stack(log_p)


@pytest.mark.parametrize("rows", [1, 3, T, 2 * T])
@pytest.mark.parametrize("size", [1, SIZE, T, 3 * T])
def test_equals_the_equation_however_the_text_is_cut(
    rows: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, cache = text(), Cache(size, flatness=4.0, share=0.3)
    monkeypatch.setattr(module, "ROWS", rows)
    for piece in (rows, T):
        alone, both = cache.log_p(whole.split(piece))
        close(alone.float(), whole.log_p)
        close(both.float(), equation(whole, cache))


def test_probabilities_of_all_tokens_are_one() -> None:
    """What follows a text, by model and cache, over the vocabulary."""
    base, cache = text(), Cache(SIZE, flatness=4.0, share=0.3)
    last = torch.randn(V).log_softmax(dim=0)
    total = 0.0
    for token in range(V):
        tokens = torch.cat((base.token[:-1], torch.tensor([token])))
        log_p = torch.cat((base.log_p[:-1], last[token : token + 1]))
        total += float(cache.log_p([Predicted(base.hidden, tokens, log_p)])[1][-1].exp())
    assert total == pytest.approx(1.0, abs=1e-5)


def test_chooses_what_makes_the_text_likeliest() -> None:
    """Words that come twice in like contexts are worth a cache; those that never return are not."""
    half = torch.randn(T, D)
    token = torch.randint(V, (T,))
    log_p = torch.full((2 * T,), math.log(1 / V))
    again = Predicted(torch.cat((half, half)), torch.cat((token, token)), log_p)
    cache = fit([again], 2 * T)
    assert cache.share == max(module.SHARES)
    assert cache.flatness == max(module.FLATNESS)
    assert float(cache.log_p([again])[1].sum()) > float(log_p.sum())
    never = Predicted(half, torch.arange(T), torch.full((T,), math.log(0.5)))
    assert fit([never], SIZE) == Cache(SIZE)
    assert str(fit([never], SIZE)) == "no cache"
    close(fit([never], SIZE).log_p([never])[1].float(), never.log_p)
