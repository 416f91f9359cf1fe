"""Demos of untrained networks: the effects of their structure alone."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from foveate.config import ConfigError
from foveate.errors import UserError
from foveate.kinds import load_kinds
from foveate.look.draw.analyses import gradients
from foveate.look.draw.charts import LinesDrawing, line_chart
from foveate.look.draw.parts import Floats
from foveate.look.draw.scene import BESIDE, CELL, HIGH, WIDE, SceneDrawing, SceneMaker
from foveate.look.relevance import DRAWS, Figures, influence
from foveate.look.views.demos import TABLES, demo
from foveate.look.views.demos.trained import learned
from foveate.models.classic import BagEncoder, WindowDecoder
from foveate.models.encoder_decoder import Decoder, Encoder, EncoderDecoder, Model
from foveate.models.language_model import LanguageModel
from foveate.models.mamba import MambaDecoder
from foveate.models.recurrent import RecurrentDecoder, RecurrentEncoder
from foveate.models.transformer import TransformerDecoder, TransformerEncoder
from foveate.nn.context import DecoderState
from foveate.nn.efficient_attention import LocalAttention
from foveate.nn.linear import ReLU
from foveate.nn.recurrent import ElmanCell, LSTMCell
from foveate.nn.spec import Tokens

SMALL = {"hidden_size": 64, "dropout": 0.0}
NARROW = {"embedding_size": 64, "dropout": 0.0}


def decoder(config: Decoder.Config) -> Decoder:
    """Return a decoder as a language model of 100 tokens, with the same weights at every call."""
    torch.manual_seed(1)
    return config.build(Tokens(100), None).eval()


def encoder(config: Encoder.Config, tokens: int = 100) -> Encoder:
    """Return an encoder of some tokens, with the same weights at every call."""
    torch.manual_seed(1)
    return config.build(Tokens(tokens)).eval()


def ids(length: int) -> Tensor:
    """Return random tokens (1, T)."""
    return torch.randint(5, 100, (1, length), generator=torch.Generator().manual_seed(2))


def recurrent(cell: str, forget: float = 0.0) -> Decoder:
    """Return one layer of a cell; ``forget`` is added to the LSTM's forget gate, before σ."""
    fields = {"cell": cell, "readout": "state", **SMALL, **NARROW}
    built = decoder(RecurrentDecoder.Config.parse(fields))
    inner = built.get_submodule("cells.0")
    with torch.no_grad():
        if isinstance(inner, LSTMCell):
            inner.bias_ih[inner.hidden_size : 2 * inner.hidden_size] += forget
    return built


def transformer(**values: object) -> Decoder:
    """Return a small Transformer language model."""
    shape = {"num_layers": 2, "num_heads": 4, **SMALL, **values}
    return decoder(TransformerDecoder.Config.parse(shape))


def bidirectional() -> Encoder:
    """Return a small Transformer encoder, without a mask."""
    return encoder(TransformerEncoder.Config.parse({"num_layers": 2, "num_heads": 4, **SMALL}))


def attends(model: Encoder | Decoder, run: Callable[[], Tensor], draws: int = DRAWS) -> Figures:
    """Return how strongly each output depends on each input, (T, S): the norm of a gradient."""
    return influence(run, model.get_submodule("stem"), draws)


Family = Literal[
    "bag", "window", "elman", "lstm", "gpt", "local", "mamba", "bi-gru", "bert", "seq2seq",
    "attention", "bi-attention",
]  # fmt: skip
FAMILIES: dict[Family, str] = TABLES["families"]
SIZES = {"embedding_size": 620, "hidden_size": 1000}  # of both sides of RNNsearch
READ: dict[str, str] = TABLES["models of papers"]
PUBLISHED = {"bahdanau-2015": {"encoder": SIZES, "decoder": SIZES, "tie": "none"}}
TOKENS = {"bahdanau-2015": 30_000, "gpt-2": 50_257}  # of the papers; others: 37,000
ATTENDING = "attention", "bi-attention"  # translators with attention
TRANSLATORS = {"seq2seq": "sutskever-2014"} | dict.fromkeys(ATTENDING, "bahdanau-2015")
LOOKS = 6, 5, 3, 4, 2  # hues of the parts of a model
Matrices = Counter[tuple[str, str]]  # their number by layer and shape
CHAINED = "elman", "lstm", "mamba", "bi-gru", *TRANSLATORS  # from state to state


def reached(family: Family, text: Tensor) -> Figures:
    """Return how strongly each output of an untrained model depends on each input, (T, S)."""
    if family in TRANSLATORS:
        load_kinds()
        torch.manual_seed(1)
        sides = {"num_layers": 1, "cell": "gru", **SMALL, **NARROW}
        reads = {**sides, "bidirectional": family == "bi-attention"}
        fields = {"kind": TRANSLATORS[family], "encoder": reads, "decoder": sides}
        pair = Model.Config.parse(fields).build(Tokens(100), Tokens(100)).eval()
        return influence(lambda: pair.decode(text, pair.encode(text)), pair.encoder.stem)
    if family == "bag":
        bag = encoder(BagEncoder.Config.parse(NARROW))
        return attends(bag, lambda: bag(text).mean()[:, None].expand(-1, text.shape[1], -1))
    both = {"bidirectional": True, "cell": "gru", **SMALL, **NARROW}
    made: dict[str, Callable[[], Encoder | Decoder]] = {
        "bi-gru": lambda: encoder(RecurrentEncoder.Config.parse(both)),
        "bert": bidirectional,
        "window": lambda: decoder(WindowDecoder.Config.parse({**SMALL, **NARROW})),
        "elman": lambda: recurrent("rnn"),
        "lstm": lambda: recurrent("lstm", 2.0),
        "gpt": transformer,
        "local": lambda: transformer(attention=LocalAttention.Config(window=3)),
        "mamba": lambda: decoder(MambaDecoder.Config.parse({"num_layers": 2, **SMALL})),
    }
    model = made[family]()
    if isinstance(model, Encoder):
        return attends(model, lambda: model(text).values)
    return attends(model, partial(model, text, None))


@demo
def reach(
    text: Annotated[str, Field(description="words, signs")] = "the movie was terribly exciting",
    families: Annotated[tuple[Family, ...], Field(min_length=1, max_length=2, strict=False,
                        description="kinds; repeat")] = ("elman", "bi-gru"),
    query: Annotated[int, Field(ge=-1, description="the output; −1: the last")] = -1,
    trained: Annotated[bool, Field(description="packaged runs, for elman and attention")] = False,
) -> SceneDrawing:  # fmt: skip
    """Draw how strongly an output depends on each input, through states in a row or directly.

    Raises `ConfigError` for an output that does not exist.
    """
    if query >= (count := len(words := text.split())) or not words:
        raise ConfigError(f"--query {query}: there are {count} words, from 0")
    made, at, parts = SceneMaker(), range(count)[query], list[str]()
    of = partial(learned, text=text) if trained else partial(reached, text=ids(count))
    rows = [row / row.max() for row in (of(family)[at, :count] for family in families)]
    least, room = int(np.argmin(rows[0])), WIDE - (440 if {*families} & {*TRANSLATORS} else 20)
    for number, (family, shares) in enumerate(zip(families, rows, strict=True)):
        end = HIGH / len(families) * (number + 0.5) + 118
        middles = made.row(family, FAMILIES[family].split("\n"), words, end - 54, room, up=95)
        wide = float(min(78, np.diff(middles, append=WIDE + 78).min() - 16))
        texts = [f"{share:.2f}" if share else "0" for share in shares]
        made.cells(family, middles, end - CELL, wide, texts, shares, hue=2)
        box, measure = (0.0, end - 58, BESIDE - 10, 66.0), ["influence on", f"y_{at + 1} (max 1)"]
        made.label(f"{family} measure", "", box, texts=measure)
        half = max(wide, 15.0 * len(words[least])) / 2 + 7
        frame = middles[least] - half, end - 101, 2 * half, 107.0
        made.node(f"{family} frame", "", frame, form="frame", hue=1)
        _network(made, family, middles, shares, at, end)
        parts.append(f"{texts[least]} {TABLES['families in a sentence'][family]}")
    title = f"Influence: ‖∂y_{at + 1} / ∂x_i‖, {'un' * (not trained)}trained; the largest is 1"
    return made.drawing(title, caption=f"Influence of “{words[least]}”: {', '.join(parts)}.")


def _network(
    made: SceneMaker, family: Family, middles: Floats, shares: Floats, at: int, end: float
) -> None:
    """Draw the states of a network over its words, and the ways from those to an output."""
    x, lands, count, both = middles[at], end - 228, len(middles), family[:2] == "bi"
    if family in CHAINED:
        after = np.linspace(WIDE - 370, WIDE - 44, count * (family in TRANSLATORS))
        wide = CELL - 8 * both
        ways = [(-26.0, end - 192, 1), (26.0, end - 172, -1)] if both else [(0.0, end - 174, 1)]
        for aside, top, sign in ways:  # a bidirectional network has two chains
            own = np.append(middles + aside, after if sign > 0 else [])
            letters = "gh"[sign > 0] * count + "s" * len(after)
            names = [f"{letters[k]}_{k % count + 1}" for k in range(len(own))]
            made.cells(f"{family} state {sign}", own, top, wide, names, 0 * own, hue=2)
            high = top + CELL / 2 - 15 * sign * both - 10 * (family == "lstm")
            made.chain(f"{family} {sign}", own, wide / 2, high, sign, hue=2)
            for k, middle in enumerate(middles + aside):
                made.edge(f"{family} in {sign} {k}", (middle, end - 102), (middle, top + CELL))
            if sign > 0 or not len(after):
                x = own[-count:][at]
                made.edge(f"{family} out {sign}", (x, top), (x, lands + 22), hue=2, tag="")
        if family == "lstm":
            made.chain("lstm c", middles, CELL / 2, end - 139, hue=1)
        x = np.append(middles, after)[-count:][at]
    if family not in CHAINED or family in ATTENDING:
        foot = end - (174 if family in CHAINED else 102)
        for s in np.flatnonzero(shares).tolist():
            start, side = float(middles[s]), np.sign(middles[s] - x)  # of the output
            bends = (start, foot), (start, lands + 22 * (not side)), (x + 40 * side, lands)
            made.edge(f"{family} direct {s} {at}", *bends[: 3 if side else 2], hue=5, tag="")
    if family in ATTENDING:
        made.label("α", f"α_{{{at + 1},i}}", (x - 145, lands + 2 - 46 * both, 100, 40))
    made.node(f"{family} y", f"y_{at + 1}", (x - 40, lands - 22, 80, 44), hue=3, level=0.25)


@demo
def vanishing(
    length: Annotated[int, Field(ge=4, le=256, description="positions")] = 40,
    forget: Annotated[tuple[float, ...], Field(description="biases of forget gates; repeat")]
    = (0.0, 3.0),
) -> LinesDrawing:  # fmt: skip
    """Draw the gradient's norm against distance, as a mean over several positions."""
    models, text = {"RNN (tanh)": recurrent("rnn")}, ids(length)
    for bias in forget:
        models[f"LSTM, forget bias\xa0{bias:g}"] = recurrent("lstm", bias)
    norms = {name: attends(model, partial(model, text, None), 1) for name, model in models.items()}
    caption = "Before training: each step multiplies the RNN's gradient; an open gate keeps it."
    return gradients(norms, max(3, length * 3 // 4)).model_copy(update={"caption": caption})


@demo
def residual(
    layers: Annotated[int, Field(ge=2, le=100, description="feed-forward layers")] = 20,
) -> LinesDrawing:
    """Draw ‖∂L / ∂x_l‖ at each layer's input, with x + f(x) (He et al., 2016) and with f(x)."""
    curves = {}
    for name, carried in (("residual, x + f(x)", 1.0), ("plain, f(x)", 0.0)):
        torch.manual_seed(1)
        states = [torch.randn(32, 64, requires_grad=True)]
        for _ in range(layers):
            states.append(carried * states[-1] + ReLU.Config().build(64, 64)(states[-1]))
        derivatives = torch.autograd.grad(states[-1].square().sum(), states)
        norms = torch.stack([derivative.norm() for derivative in derivatives[:-1]])
        curves[name] = (norms / norms[-1]).double().numpy()
    return line_chart(
        np.arange(1.0, layers + 1), curves, "layer, from first to last",
        "gradient norm relative to the last layer", "Deep networks before training", log="y",
        caption="Default initialisation. x + f(x) carries the gradient past each layer.",
    )  # fmt: skip


@demo
def parameters(
    models: Annotated[tuple[str, ...], Field(min_length=1, description="kinds of model; repeat")]
    = ("vaswani-base",),
) -> SceneDrawing:  # fmt: skip
    """Draw parameter counts by module. Raises `ConfigError` for a model that writes no tokens."""
    load_kinds()
    counts, matrices = dict[str, Floats](), [Matrices() for _ in range(5)]
    parts = "self_attention", "cross_attention", "feed_forward"
    for kind in models:
        config = Model.Config.parse({"kind": kind, **PUBLISHED.get(kind, {})})
        if not isinstance(config, EncoderDecoder.Config | LanguageModel.Config):
            raise ConfigError(f"{kind} does not write tokens: choose another model", ("models",))
        sides = 1 if isinstance(config, LanguageModel.Config) else 2
        with torch.device("meta"):
            model: nn.Module = config.build(*[Tokens(TOKENS.get(kind, 37_000))] * sides)
        sizes = np.zeros(5)
        for name, parameter in model.named_parameters():
            words = "embedding" in name or "position." in name or name.startswith("output.")
            of = [words, *(part in name for part in parts), True].index(True)
            sizes[of] += parameter.numel() / 1e6
            shape = " × ".join(f"{side:,}" for side in sorted(parameter.shape))
            layer = name.partition(f".{parts[of - 1]}")[0] if 0 < of < 4 else ""
            matrices[of][layer, shape] += parameter.dim() > 1
        counts[f"{READ.get(kind, kind)}, {sizes.sum():.{len(models) == 1:d}f} M"] = sizes
    labels = ["embeddings", *(part.replace("_", "-") for part in parts), "recurrent"]
    if len(counts) == 1:
        return _parts(*counts.popitem(), labels, [+shapes for shapes in matrices])
    return _shares(counts, labels)


def _parts(
    name: str, sizes: Floats, labels: Sequence[str], matrices: Sequence[Matrices]
) -> SceneDrawing:
    """Draw the parts of one model as bars, and the matrices of those that have equal ones."""
    made, kinds = SceneMaker(), np.flatnonzero(sizes >= 0.1).tolist()
    for row, k in enumerate(kinds):
        y, wide = HIGH / len(kinds) * (row + 0.5) - 45, 500 * sizes[k] / sizes.max()
        made.label(labels[k], labels[k], (-6, y, 262, 90), level=1)
        fill = {"texts": [f"{sizes[k]:.1f} M"], "hue": LOOKS[k], "level": 0.5}
        made.node(f"{name}: {labels[k]}", "", (272, y, wide, 90), **fill)
        each = [f"{n} × " * (n > 1) + shape for (_, shape), n in matrices[k].items()]
        text = f"{len(each)} layers × " * (len(each) > 1) + each[0]
        box = 282 + wide, y, 954 - wide, 90
        made.label(f"{labels[k]} of", text * (len({*each}) == 1), box, level=1)
    caption = "Millions of parameters (M); right: layers × matrices × rows × columns."
    return made.drawing(f"Parameters: {name}", caption=caption)


def _shares(counts: dict[str, Floats], labels: Sequence[str]) -> SceneDrawing:
    """Draw each model as a bar as long as it is large, with its parts one after another."""
    made, pitch = SceneMaker(), (HIGH - 60) / len(counts)
    unit = (WIDE - 8) / max(sizes.sum() for sizes in counts.values())
    most, left = np.max([*counts.values()], axis=0), 4.0
    for k, label in enumerate(labels):
        if most[k] >= 0.1:
            made.node(label, label, (left, 4, 16.0 * len(label) + 40, 44), hue=LOOKS[k], level=0.5)
            left += 16.0 * len(label) + 52
    for row, (name, sizes) in enumerate(counts.items()):
        y, text = 70 + pitch * row, f"{name}: {sizes[0] / sizes.sum():.0%} embeddings"
        made.label(name, text, (-6, y, 40 + 16.6 * len(text), 40), level=1)
        for k, (start, size) in enumerate(zip(np.cumsum(sizes) - sizes, sizes, strict=True)):
            texts = [f"{size:.0f} M"]
            box = 4 + unit * start, y + 42, unit * size, pitch - 92
            if size >= 0.1:
                below = min(box[0] + box[2] / 2, WIDE - 34) - 30, y + pitch - 50, 60.0, 36.0
                if box[2] <= 80:
                    made.node(f"{name}, {labels[k]}", texts.pop(), below, form="word")
                made.node(f"{name}: {labels[k]}", "", box, texts=texts, hue=LOOKS[k], level=0.5)
    caption = "In millions of parameters; bars are drawn to scale."
    return made.drawing(f"Parameters: {'; '.join(counts)}", caption=caption)


@demo
@torch.no_grad()
def memory(
    length: Annotated[int, Field(ge=1, le=4096, description="maximum length")] = 1024,
) -> LinesDrawing:
    """Draw how many numbers the state stores after each length of text."""
    shape = {"hidden_size": 128, "num_layers": 1, "dropout": 0.0}
    cell = {"cell": "lstm", "readout": "state", "embedding_size": 128, **shape}
    models = {
        f"Transformer at n\xa0=\xa0{length}:": TransformerDecoder.Config.parse(shape),
        "Mamba: always": MambaDecoder.Config.parse(shape),
        "LSTM: always": RecurrentDecoder.Config.parse(cell),
    }
    lengths = np.unique(np.linspace(1, length, 33).round()).astype(int)
    curves = dict[str, Floats]()
    for name, config in models.items():
        model, stored = decoder(config), list[float]()
        for count in lengths.tolist():
            state = DecoderState()
            model(ids(count), None, state)
            stored.append(state.numbers)
        curves[f"{name}\xa0{stored[-1]:,}"] = np.array(stored)
    return line_chart(
        lengths, curves, "tokens read, n", "numbers stored in a layer, D = 128", "State",
        caption="Keys and values grow with every token; h and c of an LSTM do not, nor does Mamba.",
    )  # fmt: skip


OUTPUTS = {"linear": nn.Identity(), "sigmoid": nn.Sigmoid(), "tanh": nn.Tanh()}
ASIDE = 300.0  # width of what is written once, beside the steps


@demo
@torch.no_grad()
def rnn(
    inputs: Annotated[tuple[float, ...], Field(min_length=1, max_length=9, description="x; repeat")]
    = (1.0, 0.0, 0.0, -1.0, 0.0),
    w: Annotated[tuple[float, ...], Field(min_length=1, description="input weight, per layer")]
    = (1.5,),
    u: Annotated[tuple[float, ...], Field(min_length=1, description="state weight, per layer")]
    = (0.8,),
    b: Annotated[float, Field(description="bias")] = 0.0,
    v: Annotated[float, Field(description="weight of the output; 0: none")] = 2.0,
    c: Annotated[float, Field(description="bias of the output")] = 0.0,
    output: Annotated[Literal["linear", "sigmoid", "tanh"], Field(description="σ_o, of the output")]
    = "linear",
    head: Annotated[float | None, Field(description="weight of a regression head")] = None,
) -> SceneDrawing:  # fmt: skip
    """Draw h_t = tanh(W x_t + U h_{t−1} + b), o_t = σ_o(V h_t + c), one unit a layer (Elman, 1990).

    A layer reads the states of the one below. Raises `UserError` for a layer without W or U.
    """
    if len(w) != len(u):
        raise UserError(f"{len(w)} --w but {len(u)} --u: give one of each for every layer")
    values, rows = torch.tensor(inputs).view(1, -1, 1), dict[str, list[float]]()
    texts: dict[str, list[str]] = {"x_t": ["x_t"]}
    for layer, (of_input, of_state) in enumerate(zip(w, u, strict=True), start=1):
        cell = ElmanCell(ElmanCell.Config(), 1, 1)
        for weight, value in zip(cell.parameters(), (of_input, of_state, b, 0.0), strict=True):
            weight.fill_(value)
        values, _ = cell.run(values, cell.start(values[:, 0]))
        own = f"^{{({layer})}}" * (len(w) > 1)
        name, written = f"h_t{own}", [f"W{own} = {of_input:g}", f"U{own} = {of_state:g}"]
        rows[name], begins = values.flatten().tolist(), f"tanh, b = {b:g}" + ", h_0 = 0" * any(u)
        texts[name] = [name + f", layer {layer}" * bool(own), *written[: 1 + any(u)], begins]
    outputs = OUTPUTS[output](v * values + c)
    rows |= {"o_t": outputs.flatten().tolist()} if v else {}
    texts["o_t"] = ["o_t", f"V = {v:g}, c = {c:g}", *[output] * (output != "linear")]
    rows |= {} if head is None else {"y_t": (head * outputs).flatten().tolist()}
    texts["y_t"] = ["y_t", f"W_yo = {head or 0:g}"]
    made = _unrolled({"x_t": [*inputs], **rows}, texts, any(u))
    states = [name for name in rows if name.startswith("h")]
    h, o, n, y = rows[states[-1]], outputs[0, 0, 0], len(inputs), rows.get("y_t", [0.0])
    below = [inputs, *map(rows.__getitem__, states)][-2][1 % n]
    sums = f"{w[-1]:g} · {round(below, 2):g} + {u[-1]:g} · {h[0]:.2f} + {b:g}"
    captions = {  # of the rows that are new
        f"Without a sigmoid, y may be below 0: y_{y.index(min(y)) + 1} = {min(y):.2f}":
            ["y_t"] * (head is not None),
        f"Layer {len(w)} reads layer {len(w) - 1}: h_2{own} = tanh({sums}) = {h[1 % n]:.2f}":
            ["x_t", *states] * (len(w) > 1 < n),
        f"Each output from its own state: o_1 = {output}({v:g} · {h[0]:.2f} + {c:g}) = {o:.2f}":
            ["o_t"] * (output != "linear"),
        f"The same W and U at each step: h_2 = tanh({sums}) = {h[1 % n]:.2f}":
            [*texts] * (any(u) and n > 1),
        "Each state has its own input alone. Equal inputs, equal states (same colour).": [*texts],
    }  # fmt: skip
    caption, lit = next(pair for pair in captions.items() if pair[1])
    made.stop("whole", caption.replace("-", "−").replace(" · ", "\xa0·\xa0"), ["stream"], lit=lit)
    what = "output" if len(rows) > len(w) else "state"
    for step in range(1, any(u) * n + 1):  # without U all are computed at once
        now = [f"{row} {k}" for row in ("x_t", *rows) for k in ("says", *range(1, step + 1))]
        text = f"Step {step}: the {what} depends on {', '.join(now[1 : step + 1])}."
        made.stop(f"step {step}", text.replace("x_t ", "x_"), ["stream"], lit=now)
    return made.drawing("A recurrent network, unrolled", caption="Inputs below, outputs above.")


def _unrolled(
    rows: dict[str, list[float]], texts: dict[str, list[str]], recurs: bool
) -> SceneMaker:
    """Draw rows of numbers, a column for each step: arrows go up, and from state to state."""
    made, across = SceneMaker(), (WIDE - ASIDE) / len(rows["x_t"])
    wide, apart = min(116.0, across - 44), (HIGH - 16) / len(rows)
    high = min(80.0, apart - 40)
    letters = {name: lines[1].split(" = ")[0] for name, lines in texts.items() if lines[1:]}
    for level, (name, values) in enumerate(rows.items()):
        y, is_state = HIGH - 8 - apart * level - (apart + high) / 2, name.startswith("h")
        for k, line in enumerate(lines := texts[name]):
            place = 0, y + high / 2 + 37 * (k - len(lines) / 2), ASIDE - 30, 37
            made.label(f"{name} says {k}", line, place)
        for step, value in enumerate(values, start=1):
            x, hue = ASIDE + across * (step - 0.5) - wide / 2, {"h": 2, "o": 3, "y": 1}.get(name[0])
            if not recurs:
                hue = rows["x_t"].index(rows["x_t"][step - 1])  # of equal inputs
            box, own = (x, y, wide, high), f"{name} {step}"
            number = f"{value:g}" if name == "x_t" else f"{value:.2f}"
            texts_of = [name.replace("t", str(step)), number.replace("-", "−")]
            made.node(own, "", box, hue=hue, level=0.3 * (level > 0), texts=texts_of, tag="stream")
            if level == len(rows) - 1 and apart - high > 100:
                made.label(f"{own} step", f"step {step if recurs else 1}", (x, y - 48, wide, 40.0))
            if level:
                middle, below = x + wide / 2, (y + high + y + apart) / 2
                made.edge(f"{own} in", (middle, y + apart), (middle, y + high))
                right = middle, below - 20, 60.0, 40.0
                made.label(f"{own} W", letters[name], right, tag="stream", level=1)
            if is_state and (step > 1 or recurs):
                beside = x - across + wide if step > 1 else ASIDE - 20, x
                if recurs:
                    made.edge(f"{own} on", *((end, y + high / 2) for end in beside), hue=1)
                between = (beside[0], y + high / 2 - 26 * recurs - 20, x - beside[0], 40)
                loop = letters[name].replace("W", "U" if recurs else "no U")
                made.label(f"{own} U", loop, between, tag="stream")
    return made
