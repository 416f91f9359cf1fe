"""One search answers a request, whichever engine does: all settings of a run and of a request."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foveate.engine.packed import PackedModel
from foveate.errors import UserError
from foveate.nn.native.kernels import without_kernels
from foveate.run import Run
from foveate.run.pack import content

LINES = ["the dog runs", "a girl"]
RULES: list[list[dict[str, Any]]] = [
    [],
    [{"kind": "no_repeat", "size": 2}, {"kind": "no_repeat", "size": 3}],
    [{"kind": "min_length", "length": 6}, {"kind": "no_repeat", "size": 1},
     {"kind": "min_length", "length": 2}],
]  # fmt: skip
OWN: list[dict[str, Any]] = [
    {"kind": "greedy"},
    {"kind": "beam", "beam_size": 3},
    {"kind": "beam", "beam_size": 2, "length_penalty": 0.0},
    {"kind": "beam", "beam_size": 1, "length_penalty": 0.0},
    {"kind": "beam", "beam_size": 1, "length_penalty": 1.0},
    {"kind": "sample", "num_samples": 2, "seed": 5, "top_k": 4, "temperature": 0.7},
]
LIMITS = {"max_ratio": 1.0, "max_extra": 4}
SEARCHES = [own | LIMITS | {"rules": rules} for own, rules in product(OWN, RULES)]
Asked = dict[str, Any]
TRANSLATING: list[Asked] = [
    {"beam_size": size, "length_penalty": penalty, "num_hypotheses": count}
    for size, penalty, count in product((None, 0, 1, 2), (None, 0.0, 0.8), (0, 1, 3))
]
CONTINUING: list[Asked] = [
    {"beam_size": size, "max_length": longest} | choices
    for size, longest in product((None, 0, 1, 2), (0, 1, 9))
    for choices in (
        {}, {"num": 2, "seed": 1}, {"temperature": 0.5}, {"top_k": 0}, {"length_penalty": 1.0},
        {"rules": []}, {"whole_lines": True},
    )
]  # fmt: skip


def outcome(model: Any, name: str, asked: Asked) -> tuple[list[list[str]], list[float]]:
    """Texts and scores; of an error no text and the number −1."""
    try:
        if name == "language":
            texts = model.generate(["a\nthe", ""], **asked)
            return [[each.text] for each in texts], [each.log_probability for each in texts]
        answers = model.translate(LINES, **asked)
    except UserError:
        return [], [-1.0]
    return [a.hypotheses for a in answers], [score for a in answers for score in a.scores]


@pytest.mark.parametrize(("name", "requests"), [("rnn", TRANSLATING), ("language", CONTINUING)])
@pytest.mark.parametrize("search", SEARCHES, ids=lambda tree: str(tree)[:60])
def test_every_request_has_the_same_outcome_in_both_engines(runs, name, requests, search) -> None:
    run = runs[name].decoding(**search)
    packed = PackedModel(Path("m.safetensors"), *content(run, "fp32"), threads=1)
    failed = 0
    with without_kernels():
        for asked in requests:
            (texts, scores), (right, others) = (outcome(r, name, asked) for r in (packed, run))
            assert texts == right, asked
            np.testing.assert_allclose(scores, others, rtol=0, atol=1e-4, err_msg=str(asked))
            failed += not texts
    assert 0 < failed < len(requests)


def test_lists_of_another_length_than_the_lines_are_refused(runs: dict[str, Run]) -> None:
    run = runs["rnn"]
    packed = PackedModel(Path("m.safetensors"), *content(run, "fp32"), threads=1)
    lists = ({"required": [[["chat"]]]}, {"required": [[]] * 3}, {"prefix": ["le"] * 3})
    for model, wrong in product((run, packed), lists):
        with pytest.raises(UserError, match=r"\d .* for 2 lines"):
            model.translate(LINES, beam_size=2, **wrong)
