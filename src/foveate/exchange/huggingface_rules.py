"""A Hugging Face family as a config of ours, a table of keys and a table of names."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from foveate.config import Config, Tree
from foveate.data.tokenizer import BOS, EOS, PAD
from foveate.exchange.base import ExchangeError
from foveate.models.classifier import Classifier
from foveate.models.encoder_decoder import EncoderDecoder
from foveate.nn.embedding import Stem
from foveate.nn.positions import Sinusoidal, SinusoidalHalves
from foveate.nn.spec import Input, Labels, Pixels, Tokens

Settings = dict[str, Any]  # the contents of config.json
SPECIAL_IDS = {"pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS}
START = {"decoder_start_token_id": BOS, "forced_eos_token_id": None, "is_encoder_decoder": True}

# Keys in config.json that do not change scores, or that `Family.complete` has checked.
IDLE = """
    architectures model_type transformers_version dtype torch_dtype auto_map tokenizer_class prefix
    task_specific_params finetuning_task id2label label2id num_labels problem_type torchscript
    use_bfloat16 tf_legacy_loss tie_weights_ model_parallel use_cache output_past output_attentions
    output_hidden_states output_scores return_dict return_dict_in_generate chunk_size_feed_forward
    gradient_checkpointing pretraining_tp reorder_and_upcast_attn initializer_range
    initializer_factor init_std pooler_act pooler_type directionality encoder_stride
    bad_words_ids suppress_tokens begin_suppress_tokens force_bos_token_to_be_generated do_sample
    early_stopping num_beams num_beam_groups num_return_sequences temperature top_k top_p typical_p
    length_penalty repetition_penalty diversity_penalty no_repeat_ngram_size max_length min_length
    max_new_tokens encoder_no_repeat_ngram_size exponential_decay_length_penalty
    remove_invalid_values is_decoder n_ctx n_positions max_position_embeddings num_hidden_layers
    extra_pos_embeddings vocab_size decoder_vocab_size scale_decoder_outputs num_channels image_size
    rope_parameters rope_scaling rope_theta rope_local_base_freq sliding_window_pattern
    cache_implementation places tie_word_embeddings dense_act_fn is_gated_act
"""
IDLE_FORMS = re.compile(r"_.*|summary_.*|pooler_\w*size|pooler_num_.*|.*(drop|dropout|_token_id)")


def ends_of(model: nn.Module) -> Settings:
    """Return the config.json entries for our model's vocabulary, or for its pictures and labels."""
    source = read_by(model)
    if isinstance(source, Tokens):
        ends = SPECIAL_IDS | {"vocab_size": source.vocab_size}
        if not isinstance(model, EncoderDecoder):
            return ends
        written = len(model.output.weight)
        own = {"decoder_vocab_size": written} if written != source.vocab_size else {}
        return ends | START | own
    assert isinstance(source, Pixels)
    square = source.height == source.width
    size = source.height if square else [source.height, source.width]
    settings: Settings = {"image_size": size, "num_channels": source.channels}
    if isinstance(model, Classifier):
        names = dict(enumerate(model.labels.names))
        settings |= {"id2label": names, "label2id": {name: n for n, name in names.items()}}
    return settings


def sides(size: int | Sequence[int]) -> tuple[int, int]:
    """Return height and width, which config.json gives as one number if they are equal."""
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return int(height), int(width)


def read_by(model: nn.Module) -> Input:
    """Return what the first stem of a model reads."""
    return next(part.source for part in model.modules() if isinstance(part, Stem))


Tensors = Mapping[str, Tensor]
FREE = ("dropout", "output_bias")  # dropout acts only in training; an absent bias is zero


class Form(NamedTuple):
    """A storage form of tensors: ``read`` converts theirs to ours, ``write`` ours to theirs.

    Both get config.json; ``write`` also gets what other tensors of ours have already put there.
    """

    read: Callable[[Tensor, Settings], Tensor]
    write: Callable[[Tensor, Tensor | None, Settings], Tensor]


SAME = Form(lambda theirs, settings: theirs, lambda ours, there, settings: ours)


def _turned(matrix: Tensor) -> Tensor:
    return matrix.T if matrix.ndim == 2 else matrix


# A matrix (inputs, outputs), not (outputs, inputs): GPT-2's "Conv1D".
TRANSPOSED = Form(
    lambda theirs, settings: _turned(theirs), lambda ours, there, settings: _turned(ours)
)
# A table of positions that begins with two rows that no real token uses (BART, RoBERTa).
AFTER_TWO = Form(
    lambda theirs, settings: theirs[2:],
    lambda ours, there, settings: torch.cat((ours.new_zeros(2, ours.shape[1]), ours)),
)


def scaled(factor: Callable[[Settings], float], less: float = 0.0) -> Form:
    """Return the form of a tensor that is divided by a factor, and then less by a number."""
    return Form(
        lambda theirs, settings: (theirs + less) * factor(settings),
        lambda ours, there, settings: ours / factor(settings) - less,
    )


def third(number: int) -> Form:
    """Return the form of queries, keys or values, concatenated in a transposed matrix."""
    return Form(
        lambda theirs, settings: _turned(theirs).chunk(3)[number],
        lambda ours, there, settings: (
            _turned(ours) if there is None else torch.cat((there, _turned(ours)), dim=-1)
        ),
    )


def inside(axes: int) -> Form:
    """Return the form of a tensor with extra outer axes of size 1, as a vector in a row matrix."""
    return Form(
        lambda theirs, settings: theirs.reshape(theirs.shape[axes:]),
        lambda ours, there, settings: ours[(None,) * axes],
    )


@dataclass(frozen=True)
class Rule:
    """A tensor, or all of a module, under its two names; ``*`` is the number of a layer."""

    ours: str
    theirs: str
    form: Form = SAME

    def match(self, name: str) -> str | None:
        """Return their name for our tensor, or None if the rule does not apply."""
        match = re.fullmatch(re.escape(self.ours).replace(r"\*", r"(\d+)") + r"(\..*)?", name)
        if match is None:
            return None
        *layer, rest = match.groups()
        return self.theirs.replace("*", "".join(layer)) + (rest or "")


def rules(
    names: Mapping[str, str | tuple[str, Form]], ours: str = "", theirs: str = ""
) -> tuple[Rule, ...]:
    """Return the rules for names, each prefixed with those of a part of the model.

    Braces hold corresponding names: ``a.{x,y}`` and ``b.{v,w}`` are two rules.
    """
    made = []
    for own, other in names.items():
        name, *form = (other,) if isinstance(other, str) else other
        for our, their in zip(_each(ours + own), _each(theirs + name), strict=True):
            made.append(Rule(our, their, *form))
    return tuple(made)


def _each(name: str) -> list[str]:
    before, brace, rest = name.partition("{")
    parts, _, behind = rest.partition("}")
    names = (f"{before}{part}{behind}" for part in parts.split(","))
    return [each for name in names for each in _each(name)] if brace else [name]


@dataclass(frozen=True)
class Key:
    """A key in config.json and the equivalent fields of our config, as dotted names.

    ``default`` is the value of an absent key in transformers; ``values`` translates their values
    to ours if they differ; ours is less by ``shift``.
    """

    theirs: str
    default: Any
    ours: tuple[str, ...]
    values: Mapping[Any, object] | None = None
    shift: int = 0

    def read(self, settings: Settings) -> object:
        """Return our value. Raises `ExchangeError` for an unsupported one."""
        value = settings.get(self.theirs, self.default)
        if self.values is not None:
            if value not in self.values:
                raise ExchangeError(
                    f"{self.theirs} = {value!r} is not supported; supported: "
                    f"{', '.join(map(str, self.values))}"
                )
            return self.values[value]
        return value - self.shift if self.shift else value

    def write(self, tree: Tree) -> object:
        """Return their value, from the first of our fields that is set, else its default."""
        value = next((v for path in self.ours if (v := look_up(tree, path)) is not None), None)
        if self.values is not None:
            names = [theirs for theirs, ours in self.values.items() if ours == value]
            return names[0] if names else self.default
        if value is None:
            return self.default
        return value + self.shift if isinstance(value, int) and self.shift else value


def changed(
    keys: tuple[Key, ...], *own: Key, gone: tuple[str, ...] = (), **defaults: object
) -> tuple[Key, ...]:
    """Return keys with other defaults, without those ``gone``; ``own`` are new, or replace some."""
    apart = {*gone, *(key.theirs for key in own)}
    same = (replace(key, default=defaults.get(key.theirs, key.default)) for key in keys)
    return (*(key for key in same if key.theirs not in apart), *own)


def without(settings: Settings, *names: str) -> Settings:
    """Return the other settings."""
    return {name: value for name, value in settings.items() if name not in names}


ROPES = {  # kinds of rotations, ours, and our names of their settings besides rope_theta
    "default": ("rope", {}),
    "linear": ("rope_linear", {"factor": "factor"}),
    "llama3": (
        "rope_llama3",
        {
            "factor": "factor",
            "low_freq_factor": "low",
            "high_freq_factor": "high",
            "original_max_position_embeddings": "length",
        },
    ),
}


class Rope(Key):
    """A key whose value is a table of the kind of a rotation and its settings."""

    def read(self, settings: Settings) -> object:
        table: Any = look_up(settings, self.theirs)
        kind, names = ROPES.get(table["rope_type"], ("", {}))
        unknown = table.keys() - {"rope_type", "rope_theta", *names}
        if not kind or any(table[n] not in (None, 1.0) for n in unknown) or names.keys() - table:
            able = "; ".join(", ".join((name, *own)) for name, (_, own) in ROPES.items())
            raise ExchangeError(
                f"rope_type = {table['rope_type']!r}: {table} is not supported; supported are, "
                f"with their settings: {able}"
            )
        fields = {ours: table[name] for name, ours in names.items()}
        return {"kind": kind, "base": table["rope_theta"]} | fields

    def write(self, tree: Tree) -> object:
        own: Any = look_up(tree, self.ours[0])
        for name, (kind, names) in ROPES.items():
            if isinstance(own, dict) and own["kind"] == kind:
                fields = {theirs: own[ours] for theirs, ours in names.items()}
                return {"rope_type": name, "rope_theta": own["base"]} | fields
        return {"rope_type": "default", "rope_theta": 10_000.0}


LAYERS = {"sliding_attention": "local", "full_attention": "full"}


class Layers(Key):
    """A key whose value lists the kind of each layer; ours is the part that is repeated.

    By default, and in older files, one layer in so many is full.
    """

    def read(self, settings: Settings) -> object:
        listed, period = settings[self.theirs], settings.get("sliding_window_pattern", self.default)
        if listed in (None, self.default):
            listed = ["sliding_attention"] * (period - 1) + ["full_attention"]
        if not (isinstance(listed, list) and listed and set(listed) <= LAYERS.keys()):
            raise ExchangeError(f"{self.theirs} = {listed!r} is not a list of {', '.join(LAYERS)}")
        return next(
            [LAYERS[name] for name in listed[:period]]
            for period in range(1, len(listed) + 1)
            if all(name == listed[n % period] for n, name in enumerate(listed))
        )

    def write(self, tree: Tree) -> object:
        own: Any = look_up(tree, self.ours[0]) or ["full"]
        names: dict[str, str] = {ours: theirs for theirs, ours in LAYERS.items()}
        count: Any = look_up(tree, "decoder.num_layers") or 1
        return [names[own[n % len(own)]] for n in range(count)]


@dataclass(frozen=True)
class Family:
    """A kind of model with one ``model_type``, described in our terms."""

    name: str
    architecture: str
    config: Config  # ours, with the kinds that all of them share
    keys: tuple[Key, ...]
    rules: tuple[Rule, ...]
    rules_of: Callable[[Settings], tuple[Rule, ...]] = lambda settings: ()  # further ones
    only: Mapping[str, object] = field(default_factory=dict)  # keys with one supported value
    older: Mapping[str, object] = field(default_factory=dict)  # such keys that are not written
    # of several with one ``model_type``: the settings it is for, and a tensor that only it has
    when: Callable[[Settings], bool] = lambda settings: True
    head: str | None = None
    prefix: str = ""  # what precedes names if the model has a head
    copies: Mapping[str, str] = field(default_factory=dict)  # other names of tied tensors
    heads: tuple[str, ...] = ()  # prefixes of the names of parts that we do not support
    computed: tuple[str, ...] = ()  # suffixes of the names of tensors that are not weights
    optional: tuple[str, ...] = ()  # names that mean zeros if they are absent
    zeros: tuple[str, ...] = ()  # suffixes of the names of ours that theirs lack: zeros
    waves: tuple[str, ...] = ()  # tables of sines that are written although they are not learned
    # adds what config.json and the defaults of keys leave open; adds what it also requires
    complete: Callable[[Settings, Tensors], Settings] = lambda settings, tensors: settings
    finish: Callable[[Settings], Settings] = dict

    def completed(self, settings: Settings, tensors: Tensors) -> Settings:
        """Return settings in which every key has a value."""
        return self.complete({key.theirs: key.default for key in self.keys} | settings, tensors)

    def ends(self, settings: Settings) -> tuple[Input | Labels, ...]:
        """Return what else our model is built with: vocabularies, or pictures and their labels."""
        if not any(key.theirs == "image_size" for key in self.keys):
            tokens = Tokens(settings["vocab_size"])
            if not isinstance(self.config, EncoderDecoder.Config):
                return (tokens,)
            return tokens, Tokens(settings.get("decoder_vocab_size") or tokens.vocab_size)
        pixels = Pixels(settings["num_channels"], *sides(settings["image_size"]))
        if not isinstance(self.config, Classifier.Config):
            return (pixels,)
        numbered = settings["id2label"]  # JSON has the numbers as text
        return pixels, Labels(tuple(numbered[n] for n in sorted(numbered, key=int)))

    def read_config(self, settings: Settings) -> Config:
        """Return our config. Raises `ExchangeError` for an unsupported setting."""
        single = {**self.older, **self.only}
        for key, value in single.items():
            if settings.get(key, value) != value:
                raise ExchangeError(
                    f"{key} = {settings[key]!r}: for {self.name}, only {key} = {value!r} fits"
                )
        known = {*IDLE.split()} | single.keys() | {key.theirs for key in self.keys}
        for key in sorted(settings.keys() - known):
            if settings[key] and not IDLE_FORMS.fullmatch(key):
                raise ExchangeError(
                    f"{key} = {settings[key]!r} is not a setting of our {self.name}: remove it if "
                    "the model computes the same without it"
                )
        tree = self.config.tree()
        for entry in self.keys:
            value = entry.read(settings)
            for path in entry.ours:
                tree = _set(tree, path, value)
        return type(self.config).parse(tree)

    def write_config(self, config: Config) -> Settings:
        """Return the config.json for our config.

        Raises `ExchangeError` with those of our fields that have no key.
        """
        tree = _explicit(config.tree())
        settings = dict(self.only)
        for key in self.keys:
            settings = _set(settings, key.theirs, key.write(tree))
        back = _explicit(self.read_config(settings).tree())
        wrong = [
            f"{path} = {look_up(tree, path)!r} (there it is {look_up(back, path)!r})"
            for path in sorted({*_paths(tree), *_paths(back)} - {"kind"})
            if look_up(tree, path) != look_up(back, path) and not path.endswith(FREE)
        ]
        if wrong:
            raise ExchangeError(f"{self.name} does not support {', '.join(wrong)}")
        return settings

    def their_name(self, name: str, settings: Settings) -> tuple[str, Form]:
        """Return their name for our tensor, and how it is stored there."""
        for rule in (*self.rules_of(settings), *self.rules):
            if (theirs := rule.match(name)) is not None:
                return theirs, rule.form
        raise ExchangeError(f"{self.name} does not have the tensor {name}")


def headed(
    encoder: Family,
    keys: tuple[Key, ...],
    rules: tuple[Rule, ...],
    also: Mapping[str, tuple[str, ...]],
    **changes: Any,
) -> Family:
    """Return the family of an encoder with a head: ``encoder`` in ours, their prefix in theirs.

    ``keys`` and ``rules`` are those of the head; ``also`` lists fields of the head that keys of the
    encoder determine as well.
    """
    inner = (
        replace(key, ours=(*(f"encoder.{o}" for o in key.ours), *also.get(key.theirs, ())))
        for key in encoder.keys
    )
    own = (Rule(f"encoder.{r.ours}", encoder.prefix + r.theirs, r.form) for r in encoder.rules)
    return replace(encoder, keys=(*inner, *keys), rules=(*own, *rules), **changes)


def look_up(tree: Tree, path: str) -> object:
    """Return the value at a dotted name, or None."""
    value: object = tree
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _set(tree: Tree, path: str, value: object) -> Tree:
    """Return the tree with a new value at a dotted name; its neighbours stay."""
    name, _, rest = path.partition(".")
    inner: Tree = tree.get(name, {})
    return tree | {name: _set(inner, rest, value) if rest else value}


def _paths(tree: Tree, before: str = "") -> list[str]:
    """Return the dotted names of all plain values."""
    names: list[str] = []
    for key, value in tree.items():
        names += _paths(value, f"{before}{key}.") if isinstance(value, dict) else [before + key]
    return names


def _explicit(tree: Tree) -> Tree:
    """Return a tree with explicit heads of each attention and their size."""
    filled: Settings = {k: _explicit(v) if isinstance(v, dict) else v for k, v in tree.items()}
    for name in ("attention", "cross_attention"):
        if name in filled and "hidden_size" in filled:
            heads = filled["num_heads"]
            sizes = {"key_heads": heads, "head_size": filled["hidden_size"] // heads}
            filled[name] = sizes | filled[name] | {"num_heads": heads}
    return filled


# Sines and cosines alternate in our encodings; in other libraries they are in two halves.
#
# Only the encoding depends on the order of the D numbers of a vector; if every weight that uses
# them is permuted in the same way, the model computes the same:
#
#     x'_j = x_order(j),   order = 0, 2, 4, …, 1, 3, 5, …

AXES = {  # which tensors have the D numbers of a vector along which axis
    r"(.*\.)?stem\.\w+\.weight": 1,
    r"(.*\.)?position\.table\.weight": 1,
    r"output\.weight": 1,
    r".*norm\.(weight|bias)": 0,
    r".*attention\.(query|key|value)\.weight": 1,
    r".*attention\.output\.(weight|bias)": 0,
    r".*feed_forward\.(inner|gate)\.weight": 1,
    r".*feed_forward\.outer\.(weight|bias)": 0,
}


def in_halves(model: nn.Module) -> tuple[Any, Mapping[str, Tensor]]:
    """Return a model's config and weights with sinusoids in halves, if it has sinusoids."""
    config: Any = model.config
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    changed, size = {}, 0
    for side in ("encoder", "decoder"):
        part: Any = getattr(config, side, None)
        if type(getattr(part, "position", None)) is Sinusoidal.Config:
            halves = SinusoidalHalves.Config(base=part.position.base)
            changed[side] = part.model_copy(update={"position": halves})
            size = part.hidden_size
    if not changed:
        return config, weights
    permutation = torch.cat((torch.arange(0, size, 2), torch.arange(1, size, 2)))
    return config.model_copy(update=changed), {
        name: _ordered(name, weight, permutation) for name, weight in weights.items()
    }


def wave_table(places: int, size: int) -> Tensor:
    """Return the encoding of positions (T, D), from double-precision angles as in their files."""
    powers = torch.arange(0, size, 2, dtype=torch.float64) / size
    angles = torch.arange(places, dtype=torch.float64)[:, None] / 10_000**powers
    return torch.cat((angles.sin(), angles.cos()), dim=1)[:, :size].float()


def _ordered(name: str, weight: Tensor, permutation: Tensor) -> Tensor:
    for pattern, axis in AXES.items():
        if re.fullmatch(pattern, name) and weight.shape[axis] == len(permutation):
            return weight.index_select(axis, permutation.to(weight.device))
    return weight
