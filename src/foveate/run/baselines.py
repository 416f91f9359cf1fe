"""Methods of seconds whose figures stand beside those of a model: what training has to beat."""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import one_hot

from foveate.data.series import Floats, Windows
from foveate.data.words import UNSPACED, words
from foveate.tasks.base import spread

MOST = 100_000  # texts, or windows of a column, that a baseline learns from
STRENGTH = 10.0  # C of the logistic regression
PENALTY = 1e-3  # λ of the ridge regression, as a share of the mean square of the inputs
TOGETHER = 256  # windows at once


def terms(text: str) -> list[str]:
    """The words of a text in lower case; its characters where no blanks stand between words."""
    return list(text) if UNSPACED.search(text) else words(text.lower())


def inverse_frequencies(documents: Sequence[Sequence[str]]) -> dict[str, float]:
    """ln((1 + N) / (1 + documents with the term)) + 1 of each term (Spärck Jones, 1972)."""
    frequency = Counter(term for document in documents for term in dict.fromkeys(document))
    total = 1 + len(documents)
    return {term: math.log(total / (1 + count)) + 1 for term, count in frequency.items()}


def tf_idf(documents: Sequence[Sequence[str]], idf: dict[str, float]) -> Tensor:
    """Count of each term times its inverse frequency, rows of length 1: sparse (N, V)."""
    column = {term: number for number, term in enumerate(idf)}
    places: list[tuple[int, int]] = []
    values: list[float] = []
    for row, document in enumerate(documents):
        weights = {term: n * idf[term] for term, n in Counter(document).items() if term in idf}
        length = math.hypot(*weights.values())
        places += [(row, column[term]) for term in weights]
        values += [weight / length for weight in weights.values()]
    index = torch.tensor(places, dtype=torch.long).view(-1, 2).T
    return torch.sparse_coo_tensor(
        index, values, (len(documents), len(idf)), dtype=torch.float32, check_invariants=True
    ).coalesce()


def logistic_regression(
    texts: Sequence[str], target: Sequence[int], classes: int, queries: Sequence[str]
) -> NDArray[np.float32]:
    """Log p of every label for each of the queries, (N, C), from the TF-IDF x of their terms.

    p = softmax(Wx + b), where W and b minimise mean −log p(target) + ‖W‖² / (2 · C · N).
    """
    documents = [terms(text) for text in texts]
    idf = inverse_frequencies(documents)
    x, decay = tf_idf(documents, idf), 1 / (STRENGTH * len(texts))
    x_t, wanted = x.t().coalesce(), one_hot(torch.tensor(target), classes)
    weight, bias = torch.zeros(len(idf), classes), torch.zeros(classes)
    optimizer = torch.optim.LBFGS(
        [weight, bias], max_iter=100, history_size=10, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        log_p = (torch.sparse.mm(x, weight) + bias).log_softmax(dim=-1)
        gradient = (log_p.exp() - wanted) / len(texts)
        weight.grad = torch.sparse.mm(x_t, gradient) + decay * weight
        bias.grad = gradient.sum(dim=0)
        return decay / 2 * weight.square().sum() - (wanted * log_p).sum() / len(texts)

    optimizer.step(closure)
    scores = torch.sparse.mm(tf_idf([terms(text) for text in queries], idf), weight) + bias
    return scores.log_softmax(dim=-1).numpy()


def ridge_regression(train: Windows, queries: Windows) -> Floats:
    """Forecast the queries by a linear map of each column, (M, H, C).

    With x and y the rows read and the rows to forecast, less the last row read:
    ŷ = xW, W = (XᵀX + λI)⁻¹ XᵀY, one W for all columns, λ = `PENALTY` · trace(XᵀX) / L.
    """
    squares, products = np.zeros((train.look_back,) * 2), np.zeros((train.look_back, train.horizon))
    chosen = spread(len(train), max(1, MOST // train.values.shape[1]))
    for first in range(0, len(chosen), TOGETHER):
        x, y, _ = _from_last(train, chosen[first : first + TOGETHER])
        x, y = x.reshape(-1, train.look_back), y.reshape(-1, train.horizon)
        squares += x.T @ x
        products += x.T @ y
    penalty = max(PENALTY * np.trace(squares) / train.look_back, 1e-9)
    weight = np.linalg.solve(squares + penalty * np.eye(train.look_back), products)
    forecasts = []
    for first in range(0, len(queries), TOGETHER):
        x, _, last = _from_last(queries, range(first, min(first + TOGETHER, len(queries))))
        forecasts.append((x @ weight + last).swapaxes(1, 2))
    return np.concatenate(forecasts).astype(queries.values.dtype)


def _from_last(windows: Windows, indices: Sequence[int]) -> tuple[Floats, Floats, Floats]:
    """Rows read (M, C, L) and to forecast (M, C, H), less the last row read (M, C, 1)."""
    read, _, target = windows.take(indices)
    last = read[:, -1:]
    x, y, last = (part.swapaxes(1, 2) for part in (read - last, target - last, last))
    return x, y, last
