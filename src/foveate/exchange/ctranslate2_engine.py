"""Translate with a run through CTranslate2: the same answers from another program.

    run = foveate.load("runs/en-fr")
    run = run.by(CTranslate2Engine(run, Path("runs/en-fr.ct2")))
    run.translate(["A black dog runs."])

CTranslate2 divides log p by |y|^α, we by lp(y) of Wu et al. (2016). It returns as many outputs as
its beam is wide, and these are ranked by our score: since neither score decides which hypotheses a
beam retains, the search is the same. If more outputs end than the beam is wide, the last ones of an
n-best list may differ.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from foveate.data.tokenizer import EOS
from foveate.decode.beam import Beam
from foveate.decode.engine import (
    Example,
    Hypothesis,
    Ids,
    Module,
    Result,
    SearchRequest,
    check_outputs,
)
from foveate.decode.search import Greedy, Search
from foveate.engine.answers import ModelEngine
from foveate.engine.links import Head, Links
from foveate.exchange.base import ExchangeError, by_length, translator
from foveate.look.records import AttentionRecord, Units
from foveate.run import Run, RunEngine


class CTranslate2Engine(ModelEngine):
    """Runs a run's searches in CTranslate2, in a folder that `foveate export` wrote.

    What it cannot do is done by PyTorch: scores, links and maps.
    """

    name = "ctranslate2"
    can = frozenset(("links", "scores"))

    def __init__(self, run: Run, folder: Path) -> None:
        """Raise `ExchangeError` if the folder is not an export."""
        if not (folder / "model.bin").is_file():
            raise ExchangeError(
                f"{folder} is not a CTranslate2 model: foveate export RUN {folder} --to ctranslate2"
            )
        import ctranslate2  # type: ignore[import-untyped]

        task, threads = translator(run), torch.get_num_threads()
        self.torch = RunEngine(task, run.model)
        self.translator = ctranslate2.Translator(
            str(folder), device="cpu", compute_type="default", intra_threads=threads
        )
        self.source, self.target = task.source_tokenizer.pieces, task.target_tokenizer.pieces
        self.ids = {piece: i for i, piece in enumerate(self.target)}

    @property
    def model(self) -> Module:
        return self.torch.model

    def search(self, sources: Sequence[Ids], request: SearchRequest) -> Iterator[Result]:
        self.check(request)
        search = request.search
        if type(search) not in (Beam, Greedy) or not isinstance(search, Search):
            raise self.cannot(f"do {search.config.kind} search, only greedy and beam")
        for length, places in by_length(sources).items():
            limit = search.limits([length])[0]
            lines = [[self.source[i] for i in sources[n]] for n in places]
            outputs = self._translated(lines, limit, search, request.batch_tokens // search.width)
            check_outputs(outputs, places)
            yield Result(places, [ranked[: request.num] for ranked in outputs])

    def score(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[list[float]]:
        return self.torch.score(pairs)

    def links(self, pairs: Sequence[tuple[str, str | Ids]], head: Head | None) -> list[Links]:
        return self.torch.links(pairs, head)

    def explain(self, source: Example, target: str | Ids | None, units: Units) -> AttentionRecord:
        return self.torch.explain(source, target, units)

    def _translated(
        self, lines: list[list[str]], limit: int, search: Search, batch_tokens: int
    ) -> list[list[Hypothesis]]:
        answers = self.translator.translate_batch(
            lines,
            beam_size=search.width,
            num_hypotheses=search.width,
            length_penalty=_exponent(search, limit),
            return_scores=True,
            return_end_token=True,
            min_decoding_length=0,
            max_decoding_length=limit,
            max_input_length=0,
            max_batch_size=max(batch_tokens, *(search.width * (len(line) + 1) for line in lines)),
            batch_type="tokens",
        )
        return [self._ranked(answer, search, _exponent(search, limit)) for answer in answers]

    def _ranked(self, answer: Any, search: Search, exponent: float) -> list[Hypothesis]:
        hypotheses = []
        for tokens, mean in zip(answer.hypotheses, answer.scores, strict=True):
            ids = [self.ids[token] for token in tokens]
            log_p = mean * len(ids) ** exponent
            ended = bool(ids) and ids[-1] == EOS
            score = log_p / search.penalty(len(ids)) if isinstance(search, Beam) else log_p
            hypotheses.append(Hypothesis(ids[:-1] if ended else ids, log_p, score, ended))
        return sorted(hypotheses, key=lambda hypothesis: -hypothesis.score)


def _exponent(search: Search, limit: int) -> float:
    """Return the α for which |y|^α is our lp(y), at the shortest output and at the limit.

    If more outputs end than the beam is wide, CTranslate2 retains the best by its own score. α is
    not 0: then it would stop at the first output.
    """
    if not isinstance(search, Beam):
        return 0.0
    return max(math.log(search.penalty(limit)) / math.log(max(limit, 2)), 1e-3)
