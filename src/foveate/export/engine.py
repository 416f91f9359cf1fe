"""A run that translates through CTranslate2: the same answers, found by another program.

    run = through_ctranslate2(foveate.load("runs/en-fr"), Path("runs/en-fr.ct2"))
    run.translate(["A black dog runs."])

CTranslate2 divides log p by |y|^α, we by lp(y) of Wu et al. (2016). It is asked for as many outputs
as its beam is wide, and these are ranked by our score: since neither score says which beginnings a
beam keeps, it is the same search. Where in the end there are more outputs than the beam is wide,
the last ones of an n-best list may be others.

Lives here: searching with it. Does not live here: how its model is made
(`foveate.export.ctranslate2`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from foveate.data.tokenizer import EOS
from foveate.decode.beam import Beam
from foveate.decode.greedy import Greedy
from foveate.decode.steps import Hypothesis, Search
from foveate.export.compare import by_length
from foveate.export.huggingface_rules import ExchangeError
from foveate.run import Run

Ids = list[int]


def through_ctranslate2(run: Run, folder: Path, compute_type: str = "default") -> Run:
    """The run with its searches carried out on an export of it; all else is the run's own.

    Raises `ExchangeError` where the folder is no export, or one of other pieces.
    """
    if not (folder / "model.bin").is_file():
        raise ExchangeError(
            f"{folder} is no model of CTranslate2: foveate export RUN {folder} --to ctranslate2"
        )
    engine = Engine(run, folder, compute_type)
    task = copy.copy(run.task)
    task.search = engine.search
    return Run(run.path, run.config, task, run.model, run.checkpoint)


class Engine:
    """Searches of a run that CTranslate2 carries out, on a folder that `foveate export` wrote.

    ``compute_type`` is one of CTranslate2's; without it, that of the weights.
    """

    def __init__(self, run: Run, folder: Path, compute_type: str = "default") -> None:
        import ctranslate2  # type: ignore[import-untyped]

        self.run, threads = run, torch.get_num_threads()
        self.translator = ctranslate2.Translator(
            str(folder), device="cpu", compute_type=compute_type, intra_threads=threads
        )
        self.source = run.task.source_tokenizer.pieces
        self.target = run.task.target_tokenizer.pieces
        self.ids = {piece: i for i, piece in enumerate(self.target)}

    def search(
        self,
        model: Any,
        sources: Sequence[Ids],
        search: Search,
        batch_tokens: int = 4096,
        progress: Callable[[int], None] | None = None,
    ) -> list[list[Hypothesis]]:
        """What `foveate.tasks.translation.Translation.search` gives: the best outputs, in order.

        Raises `ExchangeError` for a search that CTranslate2 does not have.
        """
        _refuse(search)
        found: list[list[Hypothesis]] = [[] for _ in sources]
        for length, numbers in by_length(sources).items():
            limit = search.limits([length])[0]
            lines = [[self.source[i] for i in sources[n]] for n in numbers]
            for number, one in zip(
                numbers, self._translated(lines, limit, search, batch_tokens), strict=True
            ):
                found[number] = one
            if progress is not None:
                progress(len(numbers))
        return found

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
        found = []
        for tokens, mean in zip(answer.hypotheses, answer.scores, strict=True):
            ids = [self.ids[token] for token in tokens]
            log_p = mean * len(ids) ** exponent
            ended = bool(ids) and ids[-1] == EOS
            score = log_p / search.penalty(len(ids)) if isinstance(search, Beam) else log_p
            found.append(Hypothesis(ids[:-1] if ended else ids, log_p, score, ended))
        return sorted(found, key=lambda one: -one.score)


def _exponent(search: Search, limit: int) -> float:
    """The α of |y|^α that is our lp(y) for the shortest output and for one of the limit.

    Where more outputs end than the beam is wide, CTranslate2 keeps the best by its own score. Not
    0: there it would stop at the first output.
    """
    if not isinstance(search, Beam):
        return 0.0
    return max(math.log(search.penalty(limit)) / math.log(max(limit, 2)), 1e-3)


def _refuse(search: Search) -> None:
    known = type(search) in (Beam, Greedy)
    if not known or search.config.rules or search.prefixes or search.listener is not None:
        raise ExchangeError(
            "CTranslate2 has the searches greedy and beam here, without rules and beginnings; "
            "leave out --engine for others"
        )
