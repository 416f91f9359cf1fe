"""Laws of whole parts and models: encoders, decoders and models of tokens."""

from collections.abc import Callable
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from foveate.config import Config
from foveate.measure.laws.layers import (
    COMPUTATIONS,
    FUTURE,
    Apart,
    LayerOutput,
    computations,
    on_x,
    padding_mask,
    without_dropout,
)
from foveate.measure.laws.trial import Trial, law, require_same
from foveate.models.classifier import Classifier
from foveate.models.encoder_decoder import Decoder, Encoder, EncoderDecoder, Memory, Writer
from foveate.models.language_model import LanguageModel, MaskedLanguageModel
from foveate.models.transformer import TransformerDecoder, TransformerEncoder
from foveate.nn.context import DecoderState
from foveate.nn.spec import Labels, Tokens

VOCABULARY = 12
LABELS = Labels(("a", "b", "c"))
KNOWN = EncoderDecoder, LanguageModel, MaskedLanguageModel, Classifier
SMALL = {"hidden_size": 8, "embedding_size": 8, "ffn_size": 8, "num_heads": 2, "num_layers": 2}
PAST = Apart("position", ("x",), 1, 1, FUTURE, exact=True)
PARTS: dict[str, Config] = {  # for a model whose config requires them
    "encoder": TransformerEncoder.Config(),
    "decoder": TransformerDecoder.Config(),
}


def untried(config: Config) -> str:
    """Return why these laws do not apply to a kind, or an empty string."""
    if config.family == "model" and not issubclass(cast(type, config.owner), KNOWN):
        return f"it is derived from none of {', '.join(known.__name__ for known in KNOWN)}"
    return "" if _reads_tokens(config) else "it does not read tokens"


def _reads_tokens(config: Config) -> bool:
    parts = [getattr(config, name) for name in type(config).model_fields]
    own = getattr(config.owner, "reads", Tokens) is Tokens
    return own and all(_reads_tokens(part) for part in parts if isinstance(part, Config))


def _ids(x: Tensor) -> Tensor:
    """Return token ids (B, T) for numbers; other numbers give other tokens."""
    return 4 + x.mul(10).round().long().remainder(VOCABULARY - 4)


def _memory(trial: Trial, rows: int, size: int) -> Memory:
    length = trial.sizes.length
    return Memory(trial.draw(rows, length, size), padding_mask(rows, length))


def _encoded(trial: Trial) -> list[LayerOutput]:
    rows, length, _, _, _ = trial.sizes
    encoder: Encoder = trial.prepare(without_dropout(trial.config, SMALL).build(Tokens(VOCABULARY)))
    shape, keys = (rows, length, encoder.output_size), padding_mask(rows, length)
    x = trial.draw(rows, length)
    return on_x(x, encoder, lambda x: encoder(_ids(x), keys).values, shape, "(B, S, D)")


def _decoded(trial: Trial) -> list[LayerOutput]:
    rows, length, _, width, _ = trial.sizes
    config, owner = without_dropout(trial.config, SMALL), cast(type[Decoder], trial.config.owner)
    size = 2 * width if owner.reads_memory else None
    decoder: Decoder = trial.prepare(config.build(Tokens(VOCABULARY), size))
    memory = None if size is None else _memory(trial, rows, size)
    x, shape = trial.draw(rows, length), (rows, length, decoder.output_size)
    return on_x(x, decoder, lambda x: decoder(_ids(x), memory), shape, "(B, T, D)", PAST)


def _modelled(trial: Trial) -> list[LayerOutput]:
    rows, length, _, _, _ = trial.sizes
    owner, tokens = cast(type[nn.Module], trial.config.owner), Tokens(VOCABULARY)
    several = {EncoderDecoder: (tokens, tokens), Classifier: (tokens, LABELS)}
    kind = next(known for known in KNOWN if issubclass(owner, known))
    model: nn.Module = trial.prepare(
        without_dropout(trial.config, SMALL).build(*several.get(kind, (tokens,)))
    )
    source, keys = _ids(trial.draw(rows, length)), padding_mask(rows, length)

    def forward(x: Tensor) -> Tensor:
        ids = _ids(x)
        if isinstance(model, EncoderDecoder):
            return cast(Tensor, model(source, ids, keys))
        return cast(Tensor, model(ids) if isinstance(model, LanguageModel) else model(ids, keys))

    past = (PAST,) if isinstance(model, Writer) else ()
    labels = len(LABELS.names)
    shape = (rows, labels) if isinstance(model, Classifier) else (rows, length, VOCABULARY)
    axes = "(B, C)" if len(shape) == 2 else "(B, T, V)"
    return on_x(trial.draw(rows, length), model, forward, shape, axes, *past)


COMPUTATIONS.update(encoder=_encoded, decoder=_decoded, model=_modelled)


@law("padding changes nothing", "encoder")
def encodes_without_padding(trial: Trial) -> None:
    """Check that another token in padding leaves the vectors of other positions unchanged."""
    (part,) = computations(trial)
    x, last = part.inputs["x"], trial.sizes.length - 1
    if last:
        other = x.clone()
        other[:, -1] += 0.3
        before, after = part()[:, :-1], part(x=other)[:, :-1]
        require_same(after, before, "the output changes when padding changes", {"x": x})


def _steps(compute: Callable[[Tensor, DecoderState], Tensor], ids: Tensor) -> Tensor:
    """Return the outputs computed one token at a time."""
    state = DecoderState()
    return torch.cat([compute(token, state) for token in ids.split(1, dim=1)], dim=1)


@law("step by step equals the whole sequence at once", "decoder")
def decodes_step_by_step(trial: Trial) -> None:
    """Check single steps with a memory shared by two hypotheses per source, as in a beam."""
    (part,) = computations(trial)
    decoder, rows, length = cast(Decoder, part.module), trial.sizes.rows, trial.sizes.length
    ids, memory = _ids(trial.draw(2 * rows, length)), None
    if type(decoder).reads_memory:
        memory = _memory(trial, rows, 2 * trial.sizes.width)
    both = None if memory is None else memory.select(torch.arange(rows).repeat_interleave(2))
    alone = decoder(ids, both)
    why = "step by step it gives another output than at once"
    require_same(_steps(lambda x, state: decoder(x, memory, state), ids), alone, why, {})
    if memory is not None:
        why = "two hypotheses of a source get something else than each with a memory of its own"
        require_same(decoder(ids, memory), alone, why, {})


@law("it is trained on the probabilities that it answers with", "model")
def trains_on_its_answers(trial: Trial) -> None:
    """Compare the scores of `forward`, of the parts that a loss calls, and of search steps."""
    (part,) = computations(trial)
    model, ids = part.module, _ids(part.inputs["x"])
    scores, ways = part(), dict[str, Tensor]()
    keys = padding_mask(*ids.shape)
    vectors: Callable[[], Tensor]
    if isinstance(model, Writer):
        source, memory = _ids(Trial(trial.config, trial.sizes).draw(*ids.shape)), None
        if isinstance(model, EncoderDecoder):
            memory = model.encode(source, keys)
        ways["predict"] = model.predict(ids, memory)
        ways["predict, step by step,"] = _steps(lambda x, s: model.predict(x, memory, s), ids)
        vectors = partial(model.decode, ids, memory)
    elif isinstance(model, MaskedLanguageModel):
        vectors = partial(model.features, model.encode(ids, keys).values)
    else:
        vectors = partial(cast(Classifier, model).features, ids, keys)
    if cast(EncoderDecoder, model).scores_are_product:
        output = cast(nn.Linear, model.output)
        ways["the output layer"] = nn.functional.linear(vectors(), output.weight, output.bias)
    for name, other in ways.items():
        why = f"{name} gives other scores than forward: training and answers would differ"
        require_same(other, scores, why, {})
