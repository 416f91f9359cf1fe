"""Demos by name: drawings of equations and of untrained models, which need no run and no data.

A demo is a function decorated with `demo` that returns a drawing. Its parameters, annotated with a
type and a ``Field``, become the options of ``foveate demo``. Nothing heavy is imported before a
demo is looked up in detail.
"""

from __future__ import annotations

import inspect
import textwrap
import typing
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from foveate.errors import ConfigError
from foveate.look.views import Entry, nearest

if TYPE_CHECKING:
    from foveate.config import Config
    from foveate.look.draw.drawings import Drawing

P = ParamSpec("P")
C = TypeVar("C", bound="Config")
D = TypeVar("D", bound="Drawing")
LARGEST = 10_000_000  # for a number of a demo, which is drawn in single precision
FACTS = Path(__file__).with_name("facts.toml")
LETTERS = 68  # in a line of a caption: as wide as a figure, and narrower than a terminal
_FUNCTIONS: dict[str, Callable[..., Drawing]] = {}


def facts(kind: type[C], name: str) -> C:
    """Return what a demo draws and does not compute."""
    from foveate.config import load_tree, parse_tree

    return parse_tree(kind, load_tree(FACTS)[name], FACTS)


def demo(function: Callable[P, D]) -> Callable[P, D]:
    """Register a function as the demo with its name; its drawing's caption is wrapped.

    Raises `ConfigError` if another has the name.
    """
    DemoEntry.add(function, DEMOS)

    @wraps(function)
    def draw(*args: P.args, **kwargs: P.kwargs) -> D:
        drawing = function(*args, **kwargs)
        return drawing.model_copy(update={"caption": textwrap.fill(drawing.caption, LETTERS)})

    _FUNCTIONS[function.__name__] = draw
    return draw


class DemoEntry(Entry["Callable[..., Drawing]"]):
    """A demo in the table: its name, what it shows in one line, and its function's module."""

    package = __name__
    registered = _FUNCTIONS

    @property
    def options(self) -> type[Config]:
        """A config with a field for each parameter of the function."""
        from pydantic import create_model

        from foveate.config import Config

        types = typing.get_type_hints(self.spec, include_extras=True)
        parameters = inspect.signature(self.spec).parameters.values()
        fields: dict[str, typing.Any] = {p.name: (types[p.name], p.default) for p in parameters}
        return create_model(self.name, __base__=Config, **fields)

    def draw(self, values: Mapping[str, object] | None = None) -> Drawing:
        """Draw with some options; the others have their defaults.

        Raises `ConfigError` for an unknown option or a value out of range.
        """
        config = self.options.parse(values or {})
        for name, value in config:
            for number in value if isinstance(value, tuple) else (value,):
                if isinstance(number, int | float) and not abs(number) <= LARGEST:
                    raise ConfigError(f"{number:g} is too large: at most {LARGEST:,}", (name,))
        return self.spec(**dict(config))


DEMOS = DemoEntry.table(
    ("beam", "text", "Greedy and beam search in a model that is a small table."),
    ("lookup", "attention", "Attention as a lookup: a query, keys, and a mix of values."),
    ("scaling", "attention", "Why scores are divided by √K: the gradient of softmax."),
    ("reach", "networks", "Which inputs each output depends on, in eleven families."),
    ("vanishing", "networks", "The gradient against distance, by cell and forget gate."),
    ("scores", "formulas", "The score of a key anywhere in the plane, for six scores."),
    ("normalizers", "formulas", "The weights that five normalizers give to the same scores."),
    ("local", "attention", "Local attention: a window, and a Gaussian, around a position."),
    ("sinusoids", "formulas", "Sinusoidal positions: the vectors and their products."),
    ("alibi", "formulas", "What ALiBi adds to a score, by distance, in each head."),
    ("rotary", "formulas", "Rotary positions: vectors that turn, equal products."),
    ("noam", "formulas", "Learning rates with warm-up, for several D:steps."),
    ("em", "text", "IBM Model 1 learns t(f|e) by expectation maximization."),
    ("bpe", "text", "The merges of byte pair encoding, one after another."),
    ("masks", "attention", "Masks of encoder, decoder and encoder-decoder, one sentence."),
    ("paths", "formulas", "Longest path, serial steps and operations against length."),
    ("parallel", "attention", "Training in one pass, generation row by row with a cache."),
    ("chain", "text", "The probability of a sentence, word by word."),
    ("bag", "text", "Texts as word counts, and what remains of word order."),
    ("parameters", "networks", "Parameter counts of published models, by part."),
    ("memory", "networks", "How many numbers a model stores, against text length."),
    ("residual", "networks", "The gradient of each layer with and without residuals."),
    ("rnn", "networks", "A recurrent network unrolled, every step with its numbers."),
    ("weights", "attention", "Fixed weights against weights computed from the input."),
    ("permutation", "attention", "Shuffled inputs: attention gives shuffled outputs."),
    ("bottleneck", "text", "BLEU by source length: three models on the same data, measured."),
    ("block", "layer", "Attention, feed-forward, norms, dropout in small numbers."),
    ("pixels", "layer", "A picture as patches for a Transformer, or as one glimpse."),
    ("targets", "text", "What a model reads in training, and what it predicts."),
    ("angle", "formulas", "Two vectors, the angle between them, and their product."),
    ("activations", "formulas", "Activations and their slopes: sigmoid, tanh, ReLU, GELU."),
    ("smoothing", "formulas", "The target vector of label smoothing, as used by the loss."),
    ("averaging", "formulas", "Losses of the last checkpoints and of their average."),
    ("heads", "attention", "One softmax or two heads: subject and object, and the split."),
    ("quadratic", "attention", "Scores are quadratic in the inputs, outputs linear."),
    ("leak", "attention", "Without a mask, the first step can see the future."),
    ("landscape", "trained", "The loss around a trained network: x + f(x), and f(x)."),
    ("steadiness", "trained", "Losses of short training runs with and without layer norm."),
    ("coreference", "trained", "What “it” attends to in a Transformer that resolves it."),
    ("sampling", "trained", "Scheduled sampling for a Transformer, in two passes."),
    ("signs", "trained", "Classification with a language model: which mark comes next."),
    ("learn", "trained", "A small Transformer learns to reverse words; live in a browser."),
    ("growth", "trained", "Published model sizes, and hardware speed."),
    ("mixing", "layer", "Attention by position: affine, softmax, and ReLU."),
)


def find(name: str) -> DemoEntry:
    """Return the demo with a name. Raises `ConfigError` with the nearest name, or all."""
    return nearest("demo", name, DEMOS)
