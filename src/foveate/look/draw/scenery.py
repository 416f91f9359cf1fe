"""The scene of a model in hand: where its boxes are, and the numbers of one forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from foveate.config import ConfigError
from foveate.look.draw.blocks import ModelBlock, ModelPart, blocks_of, equation_of, parts_of
from foveate.look.draw.forward import places_of, produced_of
from foveate.look.draw.parts import Numbers
from foveate.look.draw.scene import (
    HIGH,
    WIDE,
    Box,
    SceneDrawing,
    SceneEdge,
    SceneNode,
    ScenePanel,
    SceneStop,
)
from foveate.look.forward import ForwardFrame, frames
from foveate.look.hooks import ForcedPass
from foveate.look.records import block_of, suffixes
from foveate.look.stages import traced

MOST = 12  # positions of a part that are drawn
WORDS, STEM, LAYERS, OUTPUT = 488.0, 424.0, 144.0, 80.0  # tops of the rows of the whole picture
TALL = 258.0  # of the box of layers, which is as wide as a part
SIDE, ALONE = 570.0, 900.0  # width of one of two parts, and of one alone
STREAM = 88.0  # from the left of a part to its residual stream
FAINT = 0.02  # smaller weights are not drawn
WHOLE = {  # by the parts of the model
    ("encoder", "decoder"): "The encoder reads all words at once. The decoder reads what it has "
    "written and the encoder's output, and writes the next word.",
    ("decoder",): "The decoder reads the words so far and predicts the next one at each position.",
    ("encoder",): "The encoder reads all positions at once; its output gives the answer.",
}
BUILD = {  # stops inside an attention: what it shows, after these stages
    "h": "Each word is a vector h (its first numbers). The query is “{row}”.",
    "q": "Query, what “{row}” asks for: {query}.",
    "k": "Keys, what each word offers: {key}. The same W_k for all words.",
    "e": "Scores, query times key: {score}. With “{best}” the score is {e:.2f}.",
    "α": "Weights: the softmax of the scores; they sum to 1. “{best}” has {alpha:.2f}.",
    "v": "Values, what each word gives: {value}.",
    "c": "The answer is the mean of the values, by weight: {context}.",
    "o": "The c of all heads are joined, and W_o maps them to the size of the stream: {output}.",
}


def scene(
    forced: ForcedPass, title: str = "", block: str | None = None, layer: int = -1, head: int = 0,
    query: int | None = None, stop: str | None = None,
) -> SceneDrawing:  # fmt: skip
    """Return the scene of a forced pass.

    ``block`` selects an attention or a cell, whose ``head`` and ``query`` (or step) are shown in
    numbers; only stops whose names begin with ``stop`` are kept. Raises `ConfigError` for what
    does not exist.
    """
    made = _Scene(forced, layer)
    made.build(block, head, query)
    stops = [each for each in made.stops if each.name.startswith(stop or "")]
    if not stops:
        names = ", ".join(dict.fromkeys(each.name.split(" numbers")[0] for each in made.stops))
        raise ConfigError(f"--stop {stop}: expected the beginning of one of {names}")
    return SceneDrawing(
        title=title, nodes=made.nodes, edges=made.edges, panels=made.panels, stops=stops,
        notes=made.notes,
    )  # fmt: skip


class _Scene:
    """Collects nodes, edges, panels and stops."""

    def __init__(self, forced: ForcedPass, layer: int) -> None:
        trace = traced(forced)
        self.film = frames(forced, blocks_of(forced.model), equation_of, trace=trace)
        self.parts = parts_of(forced.model, forced, trace)
        self.forced, self.layer = forced, layer
        self.places = {
            part: [_plain(word) for word in words]
            for part, words in places_of(forced, self.film).items()
        }
        self.produced = produced_of(forced, self.places.get("decoder", ()))
        self.chances = trace.scores.double().exp().tolist() * (forced.score_name == "log p")
        self.nodes: list[SceneNode] = []
        self.edges: list[SceneEdge] = []
        self.panels: list[ScenePanel] = []
        self.stops: list[SceneStop] = []
        self.notes: list[str] = []

    def box_of(self, name: str) -> Box:
        return next(node.box for node in self.nodes if node.name == name)

    def node(self, name: str, label: str, box: Box, **more: object) -> None:
        fields = {"name": name, "label": label, "box": box, **more}
        self.nodes.append(SceneNode.model_validate(fields))

    def edge(self, name: str, *points: tuple[float, float], **more: object) -> None:
        fields = {"name": name, "points": points, "tag": "stream", **more}
        self.edges.append(SceneEdge.model_validate(fields))

    def stop(self, name: str, caption: str, shows: Sequence[str], **more: object) -> None:
        fields = {"name": name, "caption": caption, "shows": shows, **more}
        self.stops.append(SceneStop.model_validate(fields))

    def build(self, block: str | None, head: int, query: int | None) -> None:
        """Draw the parts side by side, then stop at the whole, in each layer, inside, over time."""
        sides = [part for part in self.parts if part.name in self.places]
        last = [b for part in self.parts if part not in sides for b in part.blocks]
        wide = SIDE if len(sides) > 1 else ALONE
        for number, part in enumerate(sides):
            left = 20 + (SIDE + 60) * number if len(sides) > 1 else (WIDE - wide) / 2
            self._words(part.name, left, wide)
            self._stack(part, last if part is sides[-1] else [], left, wide)
        caption = WHOLE.get(tuple(part.name for part in sides), WHOLE["encoder",])
        self.stop("whole", caption, ["whole", "words", "stream"])
        for part in sides:
            inner = [b for b in _layer_of(part, self.layer) if b.branch is not None]
            if inner:
                x, y, w, _ = self.box_of(part.name)
                text = " → ".join(map(_name, inner))
                self.stop(
                    f"{part.name} layer",
                    f"Layer {inner[0].layer} of the {part.name}: {text}. "
                    "The result of each branch is added to the stream.",
                    ["stream", "layer"], box=(x + (w - SIDE) / 2, y, SIDE, SIDE * HIGH / WIDE),
                )  # fmt: skip
        self._insides(block, head, query)
        if "decoder" in self.places:
            self._steps()

    def _words(self, part: str, left: float, wide: float) -> None:
        """Write what a part reads below it, and what a decoder writes above, in two rows."""
        words = self.places[part]
        if len(words) > MOST:
            self.notes.append(f"{part}: the first {MOST} of {len(words)} positions are drawn")
        pitch = wide / min(len(words), MOST)
        close = pitch < 110
        written = self.produced if part == "decoder" else ()
        for kind, top, texts in (("reads", WORDS, words), ("writes", 0.0, written)):
            for k, word in enumerate(texts[:MOST]):
                y = top + 34 * (k % 2 if close else 0.5)
                room = pitch * (1 + close)
                x = max(0.0, min(WIDE - room, left + pitch * (k + 0.5) - room / 2))
                box = x, y, room - 6, 34.0
                self.node(f"{part} {kind} {k}", _plain(word), box, form="word", tag="words")

    def _stack(self, part: ModelPart, rest: Sequence[ModelBlock], left: float, wide: float) -> None:
        """Draw embedding, layers and output of a part, from below, along the residual stream."""
        drawn, name, stream = _layer_of(part, self.layer), part.name, left + STREAM
        start = next(
            (k for k, b in enumerate(part.blocks) if b.layer is not None), len(part.blocks)
        )
        before = [b for b in part.blocks[:start] if b.layer is None]
        after = [b for b in part.blocks[start:] if b.layer is None] + [*rest]
        layers = len({b.layer for b in part.blocks} - {None})
        self.node(name, f"{layers} ×", (left, LAYERS, wide, TALL), form="group")
        for row, y, blocks, hue in ((" + ", STEM, before, 5), (" → ", OUTPUT, after, 3)):
            if blocks:
                detail = [b.equation for b in blocks]
                label, box = row.join(map(_name, blocks)), (left, y, wide, 44)
                self.node(f"{name} {label}", label, box, hue=hue, tag="whole", detail=detail)
        self.edge(f"{name} stream", (stream, STEM), (stream, OUTPUT + 44 * bool(after)))
        groups = [list(run) for _, run in groupby(drawn, key=lambda b: b.branch)]
        branches = [group for group in groups if group[0].branch is not None]
        pitch = (TALL - 6) / max(1, len(branches))
        for number, group in enumerate(branches, start=1):
            y = LAYERS + TALL - pitch * number
            self._branch(group, (left, y + 8, wide, min(64.0, pitch - 16)))
            after_it = groups[groups.index(group) + 1 :][:1]
            for norm in after_it[0] if after_it and after_it[0][0].branch is None else ():
                self._block(norm, (stream - 42, y - 14, 84, 26), tag="layer")

    def _branch(self, group: Sequence[ModelBlock], row: Box) -> None:
        """Draw one residual branch: it leaves the stream, passes its blocks and is added."""
        left, y, wide, high = row
        main = next((b for b in group if b.family != "norm"), group[-1])
        stream, x, low, top = left + STREAM, left + 194, y + high - 16, y + 14
        self.edge(f"{main.name} in", (stream, low), (x, low))
        self.edge(f"{main.name} out", (x, top), (stream + 9, top))
        plus = stream - 9, top - 9, 18.0, 18.0
        self.node(f"{main.name} plus", "+", plus, form="plus", tag="stream", detail=["x + f(x)"])
        self._block(main, (x, y, wide - 210, high))
        if "encoder" in main.reads:
            memory = self.box_of("encoder")[0] + STREAM
            points = (memory, OUTPUT), (memory, OUTPUT - 8), (left - 22, OUTPUT - 8)
            self.edge(f"{main.name} memory", *points, (left - 22, y + 26), (x, y + 26), hue=0)
        for block in group:
            if block.family == "norm":
                self._block(block, (left + 110, low - 13, 74, 26), tag="layer")

    def _block(self, block: ModelBlock, box: Box, tag: str = "") -> None:
        amount = f"{block.amount} parameters" if block.parameters else ""
        detail = [text for text in (block.equation, block.output, amount) if text]
        self.node(block.name, _name(block), box, hue=block.hue, tag=tag, detail=detail)

    def _insides(self, block: str | None, head: int, query: int | None) -> None:
        """Stop at the heads of each attention, and at the numbers of one query in one of them."""
        drawn = [node.name for node in self.nodes]
        maps = {f.block: f for f in self.film if f.name == "weights" and f.block in drawn}
        chosen = [n for n in maps if not block or block in suffixes(block_of(n))]
        if block and not chosen:
            raise ConfigError(f"--block {block}: expected one of {', '.join(map(block_of, maps))}")
        for name, weights in maps.items():
            stages = {f.name: f for f in self.film if f.block == name}
            self._attention(weights, stages, head, query, name == chosen[0])

    def _attention(
        self, weights: ForwardFrame, stages: dict[str, ForwardFrame], head: int, query: int | None,
        deep: bool,
    ) -> None:  # fmt: skip
        """Add the inside of an attention, with a stop for all heads; and for each if ``deep``."""
        heads, count, _ = weights.values.shape
        row = min(1, count - 1) if query is None or not deep else query
        if row >= count or head >= heads:
            wrong = f"--query {query}" if row >= count else f"--head {head}"
            raise ConfigError(f"{wrong}: there are {count if row >= count else heads}, from 0")
        rows, columns = (self._named(w, n) for w, n in zip(
            (weights.rows, weights.columns), weights.values.shape[1:], strict=True))  # fmt: skip
        number, name = len(self.panels), weights.block
        values = {n: f.values for n, f in stages.items() if f.values.ndim == 3}
        read = {"h": stages["query"].reads, "memory": stages["key"].reads}
        values |= {n: self.film[numbers[0]].values for n, numbers in read.items() if numbers}
        equations = {n: f.equation for n, f in stages.items()}
        self.panels.append(ScenePanel(
            node=name, rows=rows, columns=columns, head=head, row=row, equations=equations,
            values={n: Numbers.exact(v) for n, v in values.items()},
        ))  # fmt: skip
        x, y, w, h = self.box_of(name)
        box = x + (w - h * WIDE / HIGH) / 2, y, h * WIDE / HIGH, h
        spoken = f"{name.split('.')[0]} {name.split('.')[-1].replace('_', '-')}"

        def stop(suffix: str, caption: str, shows: Sequence[str], lit: Sequence[str]) -> None:
            named = [[f"{name} {each}" for each in names] for names in (shows, lit)]
            self.stop(spoken + suffix, caption, named[0], lit=named[1], panel=number, box=box)

        every = [f"head {k} query {row}" for k in range(heads)]
        words = [f"query {row}", "key"]
        text = f"{heads} heads: what “{rows[row]}” attends to. The wider an arc, the larger α."
        stop("", text, ["heads", *(f"head {k}" for k in range(heads))], [*words, "chip", *every])
        for k in range(heads if deep else 0):
            best = int(weights.values[k, row].argmax())
            text = f"Head {k}: “{rows[row]}” attends most to “{columns[best]}”, α = "
            text += f"{weights.values[k, row, best]:.2f}."
            stop(f" head {k}", text, ["heads", f"head {k}"], [*words, f"chip {k}", every[k]])
        if not deep or not {"query", "key", "score", "value", "context", "output"} <= set(values):
            return
        best = int(weights.values[head, row].argmax())
        e = float(values["score"][min(head, len(values["score"]) - 1), row, best])
        facts = {"row": rows[row], "best": columns[best], "e": e}
        facts |= equations | {"alpha": float(weights.values[head, row, best])}
        for k, (stage, template) in enumerate(BUILD.items(), start=1):
            shows = ["o"] if stage == "o" else [*BUILD][:k]
            lit = [stage, "h word", f"name {stage}"]
            stop(f" numbers {stage}", template.format(**facts), shows, lit)

    def _named(self, part: str, count: int) -> list[str]:
        words = self.places.get(part, ())
        return [words[k] if k < len(words) else str(k) for k in range(count)]

    def _steps(self) -> None:
        """Stop at each step of decoding: the words read so far, and the one that is written."""
        cross = [f for f in self.film if f.name == "weights" and f.columns == "encoder"]
        cross = [
            f for f in cross if f.rows == "decoder" and f.block in {n.name for n in self.nodes}
        ]
        for t, word in enumerate(self.places["decoder"][:MOST]):
            lit = [f"decoder reads {k}" for k in range(t + 1)] + [f"decoder writes {t}"]
            shows = ["whole", "words", "stream", *[f"step {t}"] * bool(cross)]
            if cross:
                lit += [cross[-1].block, *self._arcs(cross[-1], t)]
            text = f"Step {t + 1}: the decoder reads “{word}” and writes “{self.produced[t]}”"
            k = t - self.forced.first
            text += f", p = {self.chances[k]:.2f}." if 0 <= k < len(self.chances) else "."
            self.stop(f"step {t + 1}", text, shows, lit=lit)

    def _arcs(self, frame: ForwardFrame, t: int) -> list[str]:
        """Draw the weights of one step, the mean of all heads, to the words of the source."""
        x, y, _, h = self.box_of(frame.block)
        weights, made = frame.values.mean(axis=0)[t].tolist(), []
        for s, alpha in enumerate(weights[:MOST]):
            if alpha >= FAINT:
                u, v, w, _ = self.box_of(f"encoder reads {s}")
                points = (x, y + h / 2), (x - 160, y + h), (u + w / 2, v - 160), (u + w / 2, v)
                made.append(f"{frame.block} step {t} {s}")
                self.edge(made[-1], *points, weight=alpha, hue=0, tag=f"step {t}")
        return made


def _layer_of(part: ModelPart, layer: int) -> list[ModelBlock]:
    """Return the blocks of one layer of a part."""
    layers = sorted({b.layer for b in part.blocks if b.layer is not None})
    if layers and not -len(layers) <= layer < len(layers):
        raise ConfigError(f"--layer {layer}: the {part.name} has {len(layers)}, counting from 0")
    return [b for b in part.blocks if b.layer == layers[layer]] if layers else []


def _name(block: ModelBlock) -> str:
    """Return the label without the number of the layer."""
    spoken = {"stem": "embedding", "output": "linear → softmax"}
    return spoken.get(block.label, block.label.rstrip("0123456789 "))


def _plain(word: str) -> str:
    """Return a piece of a word without the sign of the space before it."""
    return word.lstrip("▁Ġ ") or word
