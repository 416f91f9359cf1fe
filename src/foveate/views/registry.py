"""The table of all views. Nothing heavy is imported before one is drawn."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from foveate.errors import ConfigError
from foveate.views import fits

if TYPE_CHECKING:
    from foveate.look.view import View
    from foveate.run import Run
    from foveate.views.question import Question

PART = ("block", "layer", "head", "scale", "units")  # the fields that name a map and its axes


@dataclass(frozen=True)
class Entry:
    """A view: its name, what it shows in a line, and where the function is that makes it.

    ``home`` is ``module:function`` of this package, a function (runs, question) → View. ``reads``
    are the fields of the `Question` that it heeds, ``second`` the one that the command line takes
    by place, behind the run. ``needs`` are what a run must have. ``runs`` are the least and the
    most runs that it takes.
    """

    name: str
    summary: str
    home: str
    reads: tuple[str, ...] = ()
    needs: tuple[fits.Need, ...] = ()
    runs: tuple[int, float] = (1, 1)
    second: str = ""

    def unfit(self, run: Run) -> str | None:
        """Why the view does not fit a run; nothing where it does."""
        return next((reason for need in self.needs if (reason := need(run))), None)

    def draw(self, runs: Sequence[Run], question: Question) -> View:
        """The view of some runs.

        Raises `ConfigError` where it takes more runs or fewer, does not fit one of them, or is
        asked for what is not there.
        """
        least, most = self.runs
        if not least <= len(runs) <= most:
            wanted = f"{least}" if most == least else f"at least {least}"
            raise ConfigError(f"the view {self.name} takes {wanted} runs, not {len(runs)}")
        for run in runs:
            if reason := self.unfit(run):
                raise ConfigError(f"{run.path}: no view {self.name!r} of it: {reason}")
        try:
            return self._asked(runs, question)
        except LookupError as error:
            raise ConfigError(str(error.args[0])) from None

    def _asked(self, runs: Sequence[Run], question: Question) -> View:
        """The view, of models in which the heads that the question names are silent."""
        from contextlib import ExitStack

        with ExitStack() as stack:
            if question.silence:
                from foveate.look.edit import edit, silenced

                for run in runs:
                    stack.enter_context(edit(run.model, silenced(question.silence)))
            return self._function()(runs, question)

    def _function(self) -> Callable[[Sequence[Run], Question], View]:
        module, _, name = self.home.partition(":")
        found: Callable[[Sequence[Run], Question], View] = getattr(
            importlib.import_module(f"foveate.views.{module}"), name
        )
        return found


MANY = (1, float("inf"))

ENTRIES = (
    Entry(
        "attention", "Which source words each target word attends to.", "attention:attention",
        ("text", "target", "image", *PART, "silence"), (fits.attends, fits.explains),
    ),
    Entry(
        "links", "What each word looks at, as lines between words.", "attention:links",
        ("text", "target", *PART), (fits.attends, fits.explains, fits.worded),
    ),
    Entry(
        "coverage", "How much of all looks fell on each source word.", "attention:coverage",
        ("text", "target", "block", "layer", "head", "units"), (fits.crosses, fits.translates),
    ),
    Entry(
        "heads", "All layers and heads of a block side by side.", "attention:heads",
        ("text", "target", "image", "block", "scale", "units", "silence"),
        (fits.attends, fits.explains),
    ),
    Entry(
        "beam", "What a beam search kept and dropped, step by step.", "search:beam",
        ("text", "image", "beam_size", "silence"), (fits.writes,),
    ),
    Entry(
        "picture", "Where the model looked, over the picture.", "attention:picture",
        ("image", "target", *PART), (fits.sees,), second="image",
    ),
    Entry(
        "probabilities", "How sure each token was, and what else might stand there.",
        "forced:probabilities", ("text", "target", "image", "top", "silence"), (fits.forced,),
    ),
    Entry(
        "nbest", "The n best outputs, and how they differ from the best.", "hypotheses:nbest",
        ("text", "num", "beam_size", "silence"), (fits.translates,),
    ),
    Entry(
        "lengths", "BLEU and chrF by the length of the source, with intervals.", "lengths:lengths",
        ("split", "beam_size", "source", "reference", "hypotheses"), (fits.translates,),
        (0, float("inf")),
    ),
    Entry(
        "importance", "Which heads align, are sure, or look broadly.", "importance:importance",
        ("text", "target", "split", "gold"), (fits.crosses_words,),
    ),
    Entry(
        "masks", "Which keys each query may see: causal, window, padding.", "masks:masks",
        ("text", "target", "image", "block"), (fits.attends, fits.explains),
    ),
    Entry(
        "rollout", "What each place has of each input, through all layers.", "inside:rollout",
        ("text", "target", "image", "block", "layer", "units", "silence"),
        (fits.attends, fits.explains),
    ),
    Entry(
        "relevance", "What mattered for each word or label, by gradients.", "inside:relevance",
        ("text", "target", "image", "block", "units", "silence"), (fits.attends, fits.says),
    ),
    Entry(
        "ablation", "What the model loses without each head.", "inside:ablation",
        ("text", "target", "image", "block"), (fits.attends, fits.explains),
    ),
    Entry(
        "lens", "What the model would say if it ended after each layer.", "inside:lens",
        ("text", "target", "image", "silence"), (fits.says, fits.layered),
    ),
    Entry(
        "permutation", "Whether the order of the input matters.", "inside:permutation",
        ("text", "target", "image"), (fits.explains, fits.stemmed),
    ),
    Entry(
        "states", "The path of hidden states over time.", "inside:states",
        ("text", "target", "image", "layer"), (fits.explains, fits.recurs),
    ),
    Entry(
        "surface", "The loss around the weights, over two directions.", "inside:surface",
        ("text", "target", "image", "steps"), (fits.says,), MANY,
    ),
    Entry(
        "gates", "The gates of a recurrent network over time.", "inside:gates",
        ("text", "target", "image", "layer"), (fits.explains, fits.recurs),
    ),
    Entry(
        "gradients", "How far back language models can learn.", "time:gradients",
        ("text",), (fits.models_language, fits.embeds), MANY,
    ),
    Entry(
        "horizon", "How a forecast errs at each step ahead.", "series:horizon",
        ("split",), (fits.forecasts,), MANY,
    ),
    Entry(
        "forecast", "One forecast with its quantiles and what was looked at.", "series:forecast",
        ("text", "target", "layer", "head"), (fits.forecasts,),
    ),
    Entry(
        "curves", "How trainings went: loss, rate, scores, speed.", "journal:curves",
        ("across",), (fits.trained,), MANY,
    ),
    Entry(
        "health", "Gradients and updates of each module over training.", "journal:health",
        (), (fits.watched,),
    ),
    Entry(
        "positions", "What a run's position encoding tells of each place.", "training:positions",
        ("length",), (fits.places,),
    ),
    Entry("schedule", "The learning rates of runs.", "training:schedule", (), (), MANY),
)  # fmt: skip
VIEWS: Mapping[str, Entry] = {entry.name: entry for entry in ENTRIES}


def find(name: str) -> Entry:
    """The view of a name. Raises `ConfigError` naming the nearest one, or all."""
    if name not in VIEWS:
        near = difflib.get_close_matches(name, VIEWS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(VIEWS)}"
        raise ConfigError(f"no view {name!r}; {hint}")
    return VIEWS[name]
