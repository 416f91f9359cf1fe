"""The health of modules: norms and ratios are those of the step, and nothing changes by looking."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from foveate.train.journal import Health, Journal, module_of, read
from tolerances import MODEL, near


def test_modules_are_layers_or_parts() -> None:
    assert module_of("decoder.layers.3.cross_attention.query.weight") == "decoder.layers.3"
    assert module_of("encoder.stem.embedding.weight") == "encoder.stem"
    assert module_of("output.weight") == "output"
    assert module_of("scale") == "scale"


def test_a_step_of_plain_gradient_descent(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    journal = Journal(tmp_path, 0)
    health = Health(model, 2, journal)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    wanted = []
    for step in (1, 2, 3, 4):
        model(torch.ones(4, 3)).sum().backward()
        before = torch.cat([p.detach().flatten() for p in model[0].parameters()]).norm()
        gradient = torch.cat(
            [p.grad.flatten() for p in model[0].parameters() if p.grad is not None]
        ).norm()
        wanted.append((float(gradient), float(0.1 * gradient / before)))
        with health.watching(step):
            optimizer.step()
        optimizer.zero_grad()
    journal.close()
    lines = read(tmp_path)
    assert [(line["event"], line["step"]) for line in lines] == [("health", 2), ("health", 4)]
    for line, (gradient, ratio) in zip(lines, wanted[1::2], strict=True):
        assert line["gradient"]["0"] == near(gradient)
        assert line["ratio"]["0"] == near(ratio, terms=MODEL)
        assert set(line["ratio"]) == {"0", "1"}
