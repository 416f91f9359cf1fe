"""The page on scaling is what its program computes from the numbers that are stated."""

from __future__ import annotations

import json

import pytest

import scaling


def test_no_figure_is_typed() -> None:
    result = json.loads(scaling.RESULT.read_text(encoding="utf-8"))
    again = json.loads(json.dumps(scaling.compute(result["plan_bytes_per_pair"])))
    assert again == result
    text = scaling.PAGE.read_text(encoding="utf-8")
    assert scaling.page(text, result) == text


def test_the_formulas() -> None:
    base = scaling.MODELS[0]
    assert base.parameters == pytest.approx(63e6, rel=0.01)  # Vaswani et al. (2017): 65 million
    seconds, sent = scaling.replicas(scaling.MACHINE, base, 1)
    alone = base.batch * base.flops / (base.utilisation * scaling.MACHINE.flops)
    assert (seconds, sent) == (pytest.approx(alone), 0)
    _, two = scaling.replicas(scaling.MACHINE, base, 2)
    assert two == 4 * base.parameters  # a ring of two sends each half there and back
    _, parts = scaling.shards(scaling.MACHINE, base, 2)
    assert parts == 1.5 * two
