"""The scene of a model in hand: where its boxes are, and the numbers of one forward pass."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby, pairwise, takewhile, zip_longest
from math import hypot, log
from pathlib import Path

import numpy as np

from foveate.config import ConfigError
from foveate.look.draw.blocks import ModelBlock, ModelPart, blocks_of, equation_of, parts_of
from foveate.look.draw.colors import Hue
from foveate.look.draw.parts import Numbers
from foveate.look.draw.scene import HIGH, WIDE, Box, SceneDrawing, SceneMaker, ScenePanel
from foveate.look.forward import GRADIENT, Array, ForwardFrame, frames, places_of, produced_of
from foveate.look.hooks import ForcedPass
from foveate.look.records import block_of, suffixes
from foveate.look.stages import traced
from foveate.nn.attention import Attention

Stages = dict[str, ForwardFrame]  # by name
Blocks = Sequence[ModelBlock]
MOST = 12  # positions of a part that are drawn
WORDS, STEM, LAYERS, OUTPUT = 484.0, 434.0, 416.0, 62.0  # tops of rows, but bottom of the layers
HEAD = 36.0  # of the box of layers, its heading
SIDE, ALONE = 570.0, 1090.0  # width of one of two parts, and of one alone
SUMS, STREAM, NORMED = 66.0, 110.0, 258.0  # from the left of a part to layers, stream and blocks
CELLS, CELL, PITCH, ROWS = 380.0, 50.0, 84.0, 3  # cells: top, height, pitch and number of rows
FAINT, SHOWN = 0.02, 8  # smaller weights are not drawn; keys beside a query in numbers
NUMBER, UNITS = 60.0, 8  # width of a number in a box; numbers of a vector at most
LETTER, EDGE = 13.0, 20.0  # width of a letter of a word at least, and free beside a part
BEST = 4  # tokens of an output, the most probable at each position
RECTIFIED = "activation", "ReLU"  # stages whose negative numbers are 0
CITED = re.compile(r",?( added)? \([^()]*\d{4}[^()]*\)\.?")  # the source of an equation
TEXTS = tomllib.loads(Path(__file__).with_name("scenery.toml").read_text(encoding="utf-8"))
ALL = "whole", "words", "stream"
STAGES = {"v": "value", "α": "weights", "e": "score", "k": "key", "c": "context", "q": "query"}
POOLED = "value", "weights", "context", "softmax"
LOW = str.maketrans({"₁": "_1", "₂": "_2"})  # indices of matrices
OF_HEAD = re.compile(r"\b([qkveαc]|[Wb](?=_[QKV]))(?=_|\b)")  # letters that differ by head
WIDEST = 24  # letters of an equation beside the numbers that it gives


def scene(
    forced: ForcedPass, title: str = "", block: str | None = None, layer: int = -1, head: int = 0,
    query: int | None = None, stop: str | None = None, train: bool = False,
) -> SceneDrawing:  # fmt: skip
    """Return the scene of a forced pass.

    ``block`` selects a box whose stages are shown one by one, for a ``head`` and a ``query`` (or
    step, or position). With ``train`` the stops are the loss and its gradient, from the output
    back. Only stops whose names begin with ``stop`` are kept. Raises `ConfigError` for what does
    not exist.
    """
    made = _Scene(forced, layer, train)
    made.build(block, head, query)
    stops = [each for each in made.stops if each.name.startswith(stop or "")]
    if not stops:
        names = ", ".join(dict.fromkeys(each.name.split(" numbers")[0] for each in made.stops))
        raise ConfigError(f"--stop {stop}: expected the beginning of one of {names}")
    return made.drawing(title, stops)


class _Scene(SceneMaker):
    """Collects the scene of one forced pass."""

    def __init__(self, forced: ForcedPass, layer: int, train: bool) -> None:
        super().__init__()
        trace = traced(forced, train)
        self.film = frames(forced, blocks_of(forced.model), equation_of, train, trace)
        self.parts = parts_of(forced, trace)
        self.forced, self.layer, self.train = forced, layer, train
        places = places_of(forced, self.film).items()
        self.places = {part: _pieces(words) for part, words in places}
        cut = any(word[:1] in {*"▁Ġ"} for _, words in places for word in words)
        self.unit = "token" if cut else "word"
        self.produced = _pieces(produced_of(forced, self.places.get("decoder", ())))
        for some, sign in ((self.produced, "</s>"), *((p, "<s>") for p in self.places.values())):
            some[:] = [sign if word == "⏎" else word for word in some]  # of a language model
        chances = trace.scores.double().exp().tolist() * (forced.score_name == "log p")
        self.chances = dict[int, float](enumerate(chances, forced.first))  # by position
        self.homes: dict[str, str] = {}  # by block, the node that it is drawn in
        blocks = [block for part in self.parts for block in part.blocks]
        self.recurs = recurs = any(block.steps for block in blocks)
        self.lone = all(block.family != "attention" for block in blocks)
        self.memory = SIDE + 20, 84.0  # where what a decoder reads of an encoder begins
        self.output = OUTPUT + 18 * (recurs or train)
        self.stem = STEM + 40 * train  # of the embeddings; below other layers than the drawn one
        is_pair = recurs and {*self.places} >= {"encoder", "decoder"}
        self.words = WORDS + (24 * train or 8 * recurs, -30 - 20 * self.lone)[is_pair]
        self.whole: tuple[str, ...] = ALL  # what the whole shows

    def box_of(self, name: str) -> Box:
        """Return where a block is drawn; of one that is drawn at each step, the first."""
        boxes = self.boxes
        return boxes[name if name in boxes else f"{name} 0"]

    def stop(
        self, name: str, caption: str, shows: Sequence[str], lit: Sequence[str] = (), **more: object
    ) -> None:
        """Stop where the names of the parts are always lit; pieces of words are called tokens."""
        caption = re.sub(r"(“[^”]*”)|\bword", lambda match: match[1] or self.unit, caption)
        if lit and "panel" not in more:
            lit = [*lit, *(n.name for n in self.nodes if n.name.endswith((" head", " below")))]
        super().stop(name, caption, shows, lit=lit, **more)

    def build(self, block: str | None, head: int, query: int | None) -> None:
        """Draw the parts side by side, then stop at the whole, in each layer, inside, over time."""
        sides = [part for part in self.parts if part.name in self.places]
        self.query = min([query or 0, *(len(words) - 1 for words in self.places.values())])
        last = [b for part in self.parts if part not in sides for b in part.blocks]
        wide = SIDE if len(sides) > 1 else ALONE
        for number, part in enumerate(sides):
            rest, cells = last if part is sides[-1] else [], [b for b in part.blocks if b.steps]
            left = 20 + (SIDE + 60) * number if len(sides) > 1 else (WIDE - wide) / 2
            if cells and len(sides) > 1 and self.lone and not self.train:  # room of what is fed
                left, wide = 20 + SIDE * number, SIDE - 60 + 120 * number
            self._words(part.name, left, wide)
            if cells:
                self._unrolled(part, cells[:ROWS], rest, left, wide)
            else:
                self._stack(part, rest, left, wide)
        caption = TEXTS["whole"].get(" ".join(p.name for p in sides), TEXTS["whole"]["encoder"])
        if self.recurs:
            caption = TEXTS["fed" if "fed" in self.whole else "pair" if len(sides) > 1 else "same"]
        if self.train:
            return self._going_back()
        if not self.recurs and {"encoder reads 0", "decoder reads 1"} <= {*self.boxes}:
            self._fed_back()
        self.stop("whole", caption, [*self.whole, "fed back"])
        if self.recurs and len(sides) > 1:
            self._reading(sides)
        for part in [] if self.recurs else sides:
            inner = [b for b in _layer_of(part, self.layer) if b.branch is not None]
            if inner:
                x, y, w, _ = self.box_of(part.name)
                wide = max(w + 122, (self.stem + 56 - y) * WIDE / HIGH)
                high = wide * HIGH / WIDE  # from below the layer to above, with what is beside it
                box = x - (190 if x > WIDE / 2 else 102), self.stem + 32 - high, wide, high
                word = self.places[part.name][self.query]
                adds = "f(norm(x))" if any(b.family == "norm" for b in inner) else "f(x)"
                text = f"Each + adds {adds} to x, here in one number of “{word}”."
                chosen = [b for b in inner if block and block in b.name and b.family != "norm"]
                lit = [b.name for b in inner if b.branch in [each.branch for each in chosen]]
                for each in chosen:
                    x_of, f_of, _ = self._summands(each.name)
                    text = f"{x_of} of “{word}” stays in the sum; {_name(each)} adds {f_of}."
                    lit.append(f"{part.name} stream")
                shows = ["stream", "layer", *["decoder"] * any("encoder" in b.reads for b in inner)]
                self.stop(f"{part.name} layer", text, shows, box=box, lit=lit)
        self._insides(block, head, query)
        if "decoder" in self.places:
            self._steps()
        return None

    def _words(self, part: str, left: float, wide: float) -> None:
        """Write what a part reads below it, and what a decoder writes above."""
        words = self.places[part]
        if len(words) > MOST:
            self.notes.append(f"{part}: the first {MOST} of {len(words)} positions are drawn")
        recurs = any(b.steps for side in self.parts if side.name == part for b in side.blocks)
        if self.words < WORDS:
            self.label(f"{part} below", part, (left, HIGH - 42, wide, 40), tag="words")
        written, side = self.produced if part == "decoder" else (), 6 if recurs else 2
        for kind, top, texts in (("reads", self.words, words), ("writes", -10.0, written)):
            least = 4 * self.train  # letters of a loss
            letters = [max(least, len(word.removeprefix("‑"))) for word in texts[:MOST]]
            pairs = zip_longest(words[: len(letters)], written[: len(letters)], fillvalue="")
            lengths = [1 if recurs else 1.4 + max(least, *map(len, pair)) for pair in pairs]
            ends = left + wide * np.cumsum([0.0, *lengths]) / max(1.0, sum(lengths))
            rooms, middles = np.diff(ends) - 2 * side, (ends[1:] + ends[:-1]) / 2
            needs = LETTER * np.array(letters)
            crowded = bool((rooms < needs).any()) and not self.train and not (self.lone and recurs)
            if crowded:  # every other word is a line lower, and as wide as its neighbours allow
                around = np.diff(ends, prepend=ends[0] - EDGE, append=ends[-1] + EDGE)
                rooms += np.minimum(around[:-2], around[2:])
            for k, (x, room) in enumerate(zip(middles.tolist(), rooms.tolist(), strict=True)):
                y, high = (top + 8 + 26 * (k % 2), 26.0) if crowded else (top + 10, 40.0)
                box = x - room / 2, y, room, high
                self.node(f"{part} {kind} {k}", texts[k], box, form="word", tag="words")
                low = 498.0 - 6 * crowded, STEM + 46
                up = (self.output, 36.0 + 18 * crowded) if top < 0 else low
                if not self.train and (not recurs or kind == "writes"):
                    self.edge(f"{part} {kind} {k} arrow", *((x, y) for y in up), tag="words")

    def _stack(self, part: ModelPart, rest: Blocks, left: float, wide: float) -> None:
        """Draw embedding, layers and output of a part, from below, along the residual stream.

        A decoder that reads an encoder has its stream at the right, away from the encoder.
        """
        drawn, name, stream = _layer_of(part, self.layer), part.name, left + STREAM
        nodes, edges = len(self.nodes), len(self.edges)
        before = [*takewhile(lambda b: b.layer is None, part.blocks)]
        after = [b for b in part.blocks[len(before) :] if b.layer is None] + [*rest]
        layers = len({b.layer for b in part.blocks} - {None})
        groups = [list(run) for _, run in groupby(drawn, key=lambda b: b.branch)]
        branches = [group for group in groups if group[0].branch is not None]
        most = max(len({b.branch for b in _layer_of(p, self.layer)} - {None}) for p in self.parts)
        tall = LAYERS - self.output - 60
        pitch = (tall - HEAD) / max(1, most)  # the same in both parts
        tall -= pitch * (most - len(branches))
        top, inner = LAYERS - tall, wide - 2 * SUMS
        if layers:
            self.node(name, "", (left + SUMS, top, inner, tall), form="group", tag="whole")
            head = left + SUMS + 40, top + 2, inner - 40, 34.0
            number = 1 + (drawn[0].layer or 0)
            label = f"{name}, layer {number} of {layers}" if self.train else f"{name}, {layers} ×"
            self.label(f"{name} head", label, head, tag="words")
            if self.train and layers > 1:
                text, others = f"the other {layers - 1} layers", f"{name} others"
                text = f"layer {3 - number}" if layers == 2 else text
                self.node(others, text, (left + SUMS, LAYERS + 6, inner, 36), tag="whole")
                away = [b.name for b in part.blocks if b.layer not in (None, drawn[0].layer)]
                self.homes |= dict.fromkeys(away, others)
        self._row(name, before, (left, self.stem, wide, 44), " + ")
        is_source = name == "encoder" and wide == SIDE  # of a decoder's keys and values
        end = top - (16 if after else 38 if is_source else 60)
        self.memory = (left + wide if after else stream, top - 38) if is_source else self.memory
        self._row(name, after, (left, top - 60, wide, 44), " → ")
        self.edge(f"{name} stream", (stream, self.stem), (stream, end), hue=Hue.STATE)
        for number, group in enumerate(branches, start=1):
            y = LAYERS - pitch * number
            after_it = groups[groups.index(group) + 1 :][:1]
            norms = after_it[0] if after_it and after_it[0][0].branch is None else []
            high, down = (min(64.0, pitch - 20), 19) if norms else (min(80.0, pitch - 17), 14)
            self._branch(group, (left, y + 6, wide, high), down, number == 1)
            for norm in norms:
                self._block(norm, (stream - 46, y - 21, 92, 30), tag="stream")
        if wide == SIDE and name == "decoder":
            self._mirror(nodes, edges, 2 * left + wide)

    def _fed_back(self) -> None:
        """Lead the first word that a decoder writes to where it is read."""
        (x, y, w, h), (u, v, wide, tall) = map(self.box_of, ("decoder writes 0", "decoder reads 1"))
        high, low, beside, end = y + h / 2, v + tall, SIDE + 66, u + wide / 2
        start = x + w / 2 - 9 * len(self.produced[0]) - 10, high
        points = start, (beside, high), (beside, low + 16), (end, low + 16), (end, low - 4)
        self.edge("fed back", *points, hue=Hue.INPUT, tag="fed back")

    def _mirror(self, nodes: int, edges: int, both: float) -> None:
        """Exchange left and right of what was drawn last; ``both`` is the sum of two sides."""
        for k, node in enumerate(self.nodes[nodes:], nodes):
            (x, y, w, h) = node.box
            self.nodes[k] = node.model_copy(update={"box": (both - x - w, y, w, h)})
        for k, edge in enumerate(self.edges[edges:], edges):
            points = [(both - x, y) for x, y in edge.points]
            self.edges[k] = edge.model_copy(update={"points": points})

    def _branch(self, group: Blocks, row: Box, down: float, lowest: bool) -> None:
        """Draw one residual branch: it leaves the stream, is added ``down`` from the row's top."""
        left, y, wide, high = row
        main = next((b for b in group if b.family != "norm"), group[-1])
        stream, x, low, top = left + STREAM, left + NORMED, y + high - 16, y + down
        join = 24 * self.train  # where the line of the gradient is
        self.edge(f"{main.name} in", (stream + join, low), (x, low))
        self.edge(f"{main.name} out", (x, top), (stream + max(14, join), top))
        plus = stream - 14, top - 14, 28.0, 28.0
        self.node(f"{main.name} plus", "+", plus, form="plus", tag="stream", detail=["x + f(x)"])
        maps = [f for f in self.film if (f.block, f.name) == (main.name, "weights")]
        masked, box = any(map(_looks_back, maps)), (x, y, wide - NORMED - SUMS - 12, high)
        lines = [_name(main), "(masked)"] * (masked and not self.train)
        self._block(main, box, "masked " * bool(lines) + _name(main), texts=lines)
        x_of, f_of, after = self._summands(main.name)
        road = f"{main.name.split('.')[0]} stream {main.name}"
        more: dict[str, object] = {"hue": Hue.STATE, "level": 0.25, "tag": "layer"}
        if lowest:  # of the others, the sum below says it
            self.node(f"{road} x", x_of, (stream - 52, self.stem, 104, 24), **more)
        self.node(f"{road} sum", after, (left - 18, top - 15, 104, 30), **more)
        beside = stream + 18, top - 26, x - stream - 20, 22
        self.label(f"{main.name} f", f_of, beside, tag="layer")
        if "encoder" in main.reads:  # its output comes from the other side of the stream
            tip, gap = (x + box[2], y + high / 2), left + wide + 30
            begin = 2 * left + wide - self.memory[0], self.memory[1]
            points = begin, (gap, begin[1]), (gap, tip[1]), tip
            self.edge(f"{main.name} memory", *points, hue=Hue.KEY, tag="whole")
            more = {"hue": Hue.KEY, "level": 0.25, "tag": "decoder", "texts": ["encoder", "h_i"]}
            self.node(f"{main.name} memory box", "", (gap - 10, tip[1] - 34, 96, 68), **more)
            ends, label = ((gap - 10, tip[1]), tip), (tip[0] + 16, tip[1] - 40, 84, 34)
            self.edge(f"{main.name} memory arrow", *ends, hue=Hue.KEY, tag="decoder")
            self.label(f"{main.name} memory label", "K, V", label, tag="stream")
        for block in group:
            if block.family == "norm":
                self._block(block, (stream + 48, low - 17, 74, 34), tag="stream")

    def _summands(self, block: str) -> list[str]:
        """Return a number of x, of f(x) and of their sum, exact as printed where possible."""
        sums = [f for f in self.film if f.name == "residual sum" and f.rows == block.split(".")[0]]
        row = self.query
        pairs = {f.block: np.stack([self.film[k].values[0, row] for k in f.reads]) for f in sums}
        wrong = [abs(p.round(2).sum(axis=0) - p.sum(axis=0).round(2)) for p in pairs.values()]
        unit = int(np.argmin(sum(wrong, np.zeros(1)).round(2)))
        if block not in pairs:
            return ["x", "f", "x + f"]
        x, f = pairs[block][:, unit]
        return [f"x = {_number(x)}", f"f = {_number(f)}", f"x = {_number(x + f)}"]

    def _unrolled(
        self, part: ModelPart, cells: Blocks, rest: Blocks, left: float, wide: float
    ) -> None:
        """Draw the cells of a part once for each position, and the contexts of its attention."""
        letter = "s" if part.name == "decoder" and "encoder" in self.places else "h"
        attends = next((b for b in part.blocks if b.family == "attention"), None)
        count = min(len(cells[0].steps), MOST)
        pitch, first = wide / count, CELLS - 50 * (attends is not None) - 70 * self.lone
        stacked = len(cells) > 1 and not cells[1].backwards
        after = [*(b for b in part.blocks if b.label == "readout"), *rest]
        feeds = self.lone and letter == "s" and not self.train  # a written word is read next
        self._row(part.name, after, (left, self.output, wide, 44), " → ", count if feeds else 0)
        more: dict[str, object] = {"hue": Hue.OUTPUT} if letter == "s" else {}
        alone = len(cells) == 1 and len(self.places) == 1 and count < MOST
        first, tall = (204.0, 104.0) if alone else (first, CELL)
        top = first - PITCH * (len(cells) - 1)
        fed = (cells[0].name, "fed") in {(f.block, f.name) for f in self.film}
        for k in range(count):
            x, wider = left + pitch * (k + 0.15), pitch * 0.7
            for row, block in enumerate(cells):
                y, middle = first - PITCH * row, x + wider / 2
                floor = y + PITCH if row else self.words
                if alone:
                    floor = 364.0
                    more = self._vectors(part.name, block.name, k, (x, floor, wider, tall), letter)
                label = letter + f"^{row + 1}" * stacked + "^{←}" * block.backwards + f"_{k + 1}"
                self._block(block, (x, y, wider, tall), label, f" {k}", **more)
                ends = [(x - 0.3 * pitch, y + tall / 2), (x, y + tall / 2)]
                if k:
                    self.edge(f"{block.name} {k} on", *ends[:: -1 if block.backwards else 1])
                ends = [(middle, floor), (middle, y + tall)]
                if block.backwards and row == 1:  # it reads the words as well
                    beside = x + wider + 0.15 * pitch
                    ends = [(beside, self.words), (beside, y + CELL + 17), (x + wider, y + CELL)]
                self.edge(f"{block.name} {k} in", *ends)
                if alone and k == 1 and "U h" in block.equation:
                    self._beside(block.name, middle, (x - 0.3 * pitch, y + tall / 2), 0.3 * pitch)
            if attends:
                box = x - pitch * 0.13, 190.0, pitch * 0.6, 44.0
                self._block(attends, box, f"c_{k + 1}", f" {k}")
                middle, end = x + pitch * 0.17, top if fed else self.output + 44
                self.edge(f"{attends.name} {k} on", (middle, 234 if fed else 190), (middle, end))
            if after:
                across = x + pitch * (0.58 if attends else 0.35)
                self.edge(f"{part.name} output {k}", (across, top), (across, self.output + 44))
            if alone and k in self.chances:
                text, box = f"p = {self.chances[k]:.2f}", (x - 0.15 * pitch, 40.0, pitch, 36.0)
                self.edges = [e for e in self.edges if e.name != f"{part.name} writes {k} arrow"]
                self.label(f"{part.name} p {k}", text, box, tag="words")
            if feeds and k + 1 < count:
                right, low, half = left + pitch * (k + 1), self.words + 76, pitch / 2
                back = (right - half, 58), (right, 58), (right, low), (right + half, low)
                into, self.whole = (right + half, self.words + 52), (*ALL, "fed")
                self.edge(f"decoder {k} fed", *back, into, hue=Hue.INPUT, tag="fed")
        embeddings = [block.name for block in part.blocks if block.family == "embedding"]
        self.homes |= dict.fromkeys(embeddings, f"{part.name} reads 0")

    def _beside(self, cell: str, x: float, gap: tuple[float, float], wide: float) -> None:
        """Write the matrices of a simple cell beside its arrows."""
        over = gap[0], gap[1] - 42, wide, 40.0
        boxes: list[Box] = [(x + 6, y, 40.0, 34.0) for y in (472, 318, 146)]
        for name, box in zip("EWVU", (*boxes, over), strict=True):
            self.label(f"{cell} {name}", name, box, tag="stream")

    def _vectors(self, part: str, cell: str, k: int, box: Box, letter: str) -> dict[str, object]:
        """Draw the vector of a word with its first numbers, and return those of the state."""
        stages = {f.name: f.values[0] for f in self.film if f.block == cell}
        read, state = ([_number(x) for x in stages[n][k, :2]] for n in ("input", "state"))
        texts, middle = [f"x_{k + 1}", *read], box[0] + box[2] / 2
        for stage, y in (("input", box[1]), ("state", 204.0)) if k == 0 else ():
            few, aside = ["2 of", str(stages[stage].shape[-1])], (box[0] - 92, y, 84.0, box[3])
            self.label(f"{part} {stage} few", "", aside, texts=few, tag="stream")
        self.node(f"{part} reads {k} vector", "", box, texts=texts, hue=Hue.INPUT, tag="stream")
        self.edge(f"{cell} {k} embed", (middle, self.words), (middle, box[1] + box[3]))
        return {"texts": [f"{letter}_{k + 1}", *state]}

    def _reading(self, sides: Sequence[ModelPart]) -> None:
        """Stop at each word that the encoder reads, then at what it hands to the decoder."""
        read, write = ([b for b in part.blocks if b.steps][:ROWS] for part in sides[:2])
        part, last = sides[0].name, len(self.places[sides[0].name][:MOST]) - 1
        both = " The second row reads from the end." * any(b.backwards for b in read)
        for k, word in enumerate(self.places[part][: last + 1] if read else ()):
            lit = [f"{b.name} {last - j if b.backwards else j}" for b in read for j in range(k + 1)]
            text = f"Reading “{word}”: the new state depends on the word and on the state before."
            self.stop(f"reading {k + 1}", text + both, self.whole, lit=[*lit, f"{part} reads {k}"])
        if not read or not write:
            return
        ends = [f"{b.name} {0 if b.backwards else last}" for b in read if b.layer == read[-1].layer]
        u, v, _, _ = self.box_of(begin := f"{write[0].name} 0")
        for number, end in enumerate(ends):
            x, y, w, _ = self.box_of(end)
            start = (x + w / 2, y) if number else (x + w, y + CELL / 2)
            high, into = y - 24 if number else y + CELL / 2, v + CELL / 2
            points = start, (start[0], high), (u - 16, high), (u - 16, into), (u, into)
            self.edge(f"bridge {number}", *points, hue=Hue.OUTPUT)
        attends = any(b.family == "attention" for b in sides[1].blocks)
        box, state = (u - 150, v - 52.0, 142.0, 44.0), "s_0"
        if not attends:
            box, state = (u - 135, v - 76.0, 180.0, 44.0), f"c = h_{last + 1}" * (len(ends) == 1)
            fill: dict[str, object] = {"hue": Hue.OUTPUT, "level": 0.8, "tag": "stream"}
            self.node("bridge c", "c", (u - 70, v - 20, 44, CELL + 40), **fill)
        self.label("bridge label", state, box, tag="stream")
        ways, after = " in both directions" * bool(both), "." if attends else TEXTS["bottleneck"]
        text = TEXTS["bridge"] + ways + after
        lit = ["bridge", *(b.name for b in read), begin, f"{part} reads", "decoder reads 0"]
        self.stop("bridge" if attends else "bottleneck", text, ALL, lit=lit)

    def _row(self, part: str, blocks: Blocks, box: Box, join: str, steps: int = 0) -> None:
        """Draw blocks that follow one another as one box, if there are any; or one at each step."""
        named = [_name(block) for block in blocks if block.label != "readout"]
        label, detail = join.join(named or map(_name, blocks)), [block.equation for block in blocks]
        self.homes |= {block.name: f"{part} {label}" for block in blocks}
        hue = Hue.INPUT if join == " + " else Hue.OUTPUT
        fields: dict[str, object] = {"hue": hue, "tag": "whole", "detail": detail}
        left, y, wide, high = box
        if blocks and not steps:
            self.node(f"{part} {label}", label, box, **fields)
        elif blocks:
            self.label(f"{part} named", f"p: {label}", (left - 270, y, 266, high))
        for k in range(steps if blocks else 0):
            each = left + wide / steps * (k + 0.15), y, 0.7 * wide / steps, high
            self.node(f"{part} {label} {k}", f"p_{k + 1}", each, **fields)

    def _block(
        self, block: ModelBlock, box: Box, label: str = "", suffix: str = "", **more: object
    ) -> None:
        amount = f"{block.parameters:,} parameters" if block.parameters else ""
        detail = [text for text in (block.equation, block.output, amount) if text]
        fields: dict[str, object] = {"hue": block.hue, "detail": detail, **more}
        self.homes[block.name] = block.name
        self.node(block.name + suffix, label or _name(block), box, **fields)

    def _insides(self, block: str | None, head: int, query: int | None) -> None:
        """Stop inside each box, in the order of computation; of cells in one, of norms if chosen.

        The chosen box has a stop for each stage: by default the first attention, else a cell.
        """
        stages: dict[str, Stages] = {}
        for frame in self.film:
            if frame.block in self.homes:
                stages.setdefault(frame.block, {})[frame.name] = frame
        fitting = [name for name in stages if not block or block in suffixes(block_of(name))]
        if not fitting:
            names = ", ".join(dict.fromkeys(map(block_of, stages)))
            raise ConfigError(f"--block {block}: expected one of {names}")
        special = [n for stage in ("weights", "state") for n in stages if stage in stages[n]]
        chosen = next((n for n in special if not block), fitting[0])
        cells = [n for n in (chosen, *stages) if "state" in stages[n]]
        for home in dict.fromkeys(self.homes[name] for name in stages):
            blocks = [name for name in stages if self.homes[name] == home]
            deep, last = chosen in blocks, stages[blocks[-1]]
            if "weights" in last:
                self._attention(last["weights"], last, head, query, deep)
            elif blocks[-1] in cells[:1]:
                self._cell(blocks[-1], query if deep else None)
            elif "state" not in last and (deep or not home.endswith("norm")):
                self._positions(home, blocks, query if deep else None, deep)

    def _positions(self, home: str, blocks: Sequence[str], query: int | None, deep: bool) -> None:
        """Add the inside of a box that computes each position alone, with its stages as stops.

        Unless ``deep``, all stages are one stop.
        """
        inside = [k for k, f in enumerate(self.film) if f.block in blocks]
        own = {k: self.film[k].name for k in inside if self.film[k].name != "residual sum"}
        before = self.film[min(own)].reads
        if pools := "weights" in own.values():  # an attention whose one query is learned
            pooled = [each for each in own.items() if each[1] in POOLED]
            own, before = dict(sorted(pooled, key=lambda each: each[1] != "value")), ()
        names = {k: "x" for k in before if len(before) == 1 and k not in own} | own
        stages = {name: self.film[k] for k, name in names.items()}
        values, tokens = {n: f.values for n, f in stages.items()}, dict[str, list[list[str]]]()
        token = self.forced.token
        for output in [n for n in stages if n in ("logits", "softmax")]:
            best = BEST if pools or output == "softmax" else 2  # logits without tokens
            order = np.argsort(-values[output][0], axis=-1, kind="stable")[:, :best]
            if token is not None:
                values[output] = np.take_along_axis(values[output][0], order, axis=-1)[None]
                tokens = tokens if pools else {}  # one vector has room for its names twice
                tokens[output] = [[_plain(token(i)) for i in row] for row in order.tolist()]
        reads = {n: [names[k] for k in f.reads if k in names] for n, f in stages.items()}
        if pools:
            values["weights"] = values["weights"].swapaxes(1, 2)
            reads |= {"weights": ["value"], "context": ["weights"], "softmax": ["context"]}
            stages["softmax"] = replace(stages["softmax"], equation="p = softmax(W c + b)")
        longest = max(stages.values(), key=lambda frame: frame.values.shape[1])
        rows = self._named(longest.rows, longest.values.shape[1])
        row, names_of = _checked("--query", query or 0, len(rows)), _names(blocks)
        units = {} if pools else _units(values, reads)
        more = {"rows": rows, "row": row, "reads": reads, "tokens": tokens, "units": units}
        self._panel(home, stages, values, **more)
        equations = {"embedding": "x"} | self.panels[-1].equations
        equations |= {"position": "PE(t)", "input": f"{equations['embedding']} + PE(t)"}
        text = TEXTS["pooled" if pools else "added" if "position" in own.values() else "signs"]
        every, spoken = _tags(["words", *stages]), " ".join(names_of)
        reader = " of the ".join(reversed(names_of)).replace("feed-forward", "feed-forward layer")
        twice = [k for k, word in enumerate(rows) if rows.count(word) > 1]
        if deep and twice and "position" in stages:
            text = f"“{rows[twice[0]]}” twice: one embedding, two positions, two inputs."
        self._enter(spoken + " numbers" * deep, text, every)
        for k, stage in enumerate(stages if deep else (), start=1):
            where = "" if pools and stage in ("context", "softmax") else ", at each position"
            text = f"{stage.capitalize()}{where}: {equations[stage]}."
            text = f"x: what the {reader} reads." if stage == "x" else text
            text += " Negative numbers become 0." * (stage in RECTIFIED and not values[stage].all())
            text += " The largest come first." * (stage == "logits" and bool(tokens))
            self._enter(f"{spoken} numbers {stage}", text, every, every[: k + 1])

    def _enter(
        self, name: str, caption: str, shows: Sequence[str], lit: Sequence[str] = (), home: str = ""
    ) -> None:
        """Stop at the inside that was added last: in its box, or in the one in ``home``."""
        node, panel = self.panels[-1].node, len(self.panels) - 1
        box, some = self._inside(home or node), (shows, lit or shows)
        shown, lighted = ([f"{node} {each}" for each in names] for names in some)
        self.stop(name, caption, shown, lit=lighted, panel=panel, box=box)

    def _going_back(self) -> None:
        """Stop at the loss, and at its gradient in each box from the last one back."""
        self._losses()
        back: dict[str, list[ForwardFrame]] = {}
        for frame in self.film:
            if frame.name.startswith(("loss", GRADIENT)) and frame.block in self.homes:
                back.setdefault(self.homes[frame.block], []).append(frame)
        for home, of_home in back.items():
            if home.endswith(("norm", "others")):
                continue
            stages = {frame.name: frame for frame in reversed(of_home)}
            values = {name: frame.values.swapaxes(1, 2) for name, frame in stages.items()}
            rows = self._named(of_home[-1].columns, max(v.shape[1] for v in values.values()))
            more: dict[str, object] = {"rows": rows}
            more["reads"] = {lower: [upper] for lower, upper in pairwise(stages)}
            spoken = _spoken([frame.block for frame in reversed(of_home)])
            if "loss" in stages:
                before, words = self.forced.first, map(_plain, self.forced.produced)
                blank = np.full((1, before, 1), np.nan)  # positions without a target
                values["loss"] = np.concatenate([blank, values["loss"]], axis=1)
                more["tokens"] = {"loss": [[]] * before + [[word] for word in words]}
            self._panel(home, stages, values, **more)
            if "loss" in stages:
                self._enter("loss", "−log p of each target; their mean is L.", ["words", "loss"])
            text = f"The gradient in the {spoken}: ‖∂L/∂x_t‖ at each position."
            self._enter(f"gradient {spoken}", text, _tags(["words", *stages]))
        self._of_weights(self.film[-1])

    def _losses(self) -> None:
        """Write −log p below each target, and stop at the whole."""
        words = [n for n in self.nodes if n.name.startswith("decoder writes ")]
        losses = [-log(max(p, 1e-30)) for p in self.chances.values()]
        for word, loss in zip(words[self.forced.first :], losses, strict=False):
            (left, y, w, _), name = word.box, f"{word.name} loss"
            x = left + w / 2
            self.label(name, f"{loss:.2f}", (x - 38, y + 34, 76, 32), tag="back")
            self.edge(f"{name} back", (x, 63.0), (x, self.output), hue=Hue.GRADIENT, tag="back")
        roads = [(e.name, e.points[-1]) for e in self.edges if e.name.endswith(" stream")]
        for name, (x, y) in roads:
            x += 24 if x < WIDE / 2 else -24
            self.edge(f"{name} back", (x, y + 4), (x, self.stem - 2), hue=Hue.GRADIENT, tag="back")
        if words and (x := words[self.forced.first].box[0]) > SIDE:
            mean = f"L = {np.mean(losses):.2f}, the mean of −log p:"
            self.label("losses", mean, (x - 420, 34, 410, 32), tag="back")
        for edge in [e for e in self.edges if e.name.endswith((" memory", " in", " out"))]:
            points = edge.points[::-1]
            if edge.name.endswith(" memory"):  # beside the line forwards
                points = [(x - 14 * (0 < k < 3), y + 14) for k, (x, y) in enumerate(points)]
            else:
                self.edges.remove(edge)
            self.edge(f"{edge.name} back", *points, hue=Hue.GRADIENT, tag="back")
        text = "Training: the decoder reads the true words. " * bool(words)
        text += f"L = mean of −log p = {sum(losses) / max(1, len(losses)):.2f}"
        nodes = [n.name for n in self.nodes if n.tag != "stream"]  # the way back is lit
        edges = [e.name for e in self.edges if e.tag != "stream"]
        lit, text = [*nodes, *edges], f"{text}. Its gradient goes back to every weight."
        self.stop("whole", text, [*ALL, "back"], lit=[n for n in lit if n not in self.places])

    def _of_weights(self, frame: ForwardFrame) -> None:
        """Write the gradient norm of the weights in each box, of narrow ones below the picture."""
        norms: dict[str, dict[str, float]] = {}  # by box and block
        for name, norm in zip(frame.names, frame.values[0, 0].tolist(), strict=True):
            if name in self.homes:
                norms.setdefault(self.homes[name], {})[name] = norm
        caption, added = self.stops[0].caption, dict[str, float]()
        for home, of_block in norms.items():
            norm = hypot(*of_block.values())
            if self.box_of(home)[2] > 2 * NUMBER:
                added[home] = norm
            else:
                caption += f" {_spoken([*of_block]).capitalize()} ‖∇‖ {norm:#.2g}."
        caption += " In a box, ‖∇‖: ‖∂L/∂W‖." * bool(added)
        for k, node in enumerate(self.nodes):
            if norm := added.get(node.name, 0.0):
                lines = [node.label, f"{norm:#.2g}"]
                more = {"texts": lines * (node.box[3] > CELL), "label": ": ".join(lines)}
                level = 0.7 * norm / max(added.values())
                self.nodes[k] = node.model_copy(update={"level": level, **more})
            elif added and re.search(" embedding|softmax$", node.name):
                self.nodes[k] = node.model_copy(update={"label": f"{node.label}, W shared"})
        self.stops[0] = self.stops[0].model_copy(update={"caption": caption})

    def _attention(
        self, weights: ForwardFrame, stages: Stages, head: int, query: int | None, deep: bool
    ) -> None:
        """Add the inside of an attention, with a stop for all heads; and for each if ``deep``."""
        heads, count, keys = weights.values.shape
        row = _checked("--query", min(1, count - 1) if query is None or not deep else query, count)
        _checked("--head", head, heads)
        rows, columns = self._named(weights.rows, count), self._named(weights.columns, keys)
        if not weights.columns:  # neither words nor rows of a part: cells of a picture
            record = self.forced.label({weights.block: weights.values}, "tokens")
            columns = record.labels(weights.block)[1]
        name, values = weights.block, {n: f.values for n, f in stages.items()}
        itself, part = weights.rows == weights.columns, weights.rows
        writes = self.produced[:count] if part == "decoder" else []
        recurs = any(f.block.startswith(part) and f.name == "state" for f in self.film)
        own, memory = "s_{t−1}" if recurs and not itself else "x", "x_i" if itself else "h_i"
        is_same = "value" in stages and "W_" not in stages["value"].equation
        letters = {"own": own, "memory": memory, "h": memory, "v": memory if is_same else "v_i"}
        stages = {n: _renamed(f, letters, f"^{head}" * (heads > 1)) for n, f in stages.items()}
        letters |= {short: stages[n].equation.split(" = ")[0] for short, n in STAGES.items()
                    if n in stages and " = " in stages[n].equation}  # fmt: skip
        tokens = {"writes": [[word] for word in writes]} if writes else {}
        more = {"letters": letters, "tokens": tokens, **self._kinds(name, stages)}
        self._panel(name, stages, values, rows=rows, columns=columns, head=head, row=row, **more)
        every, plural = [f"head {k} query {row}" for k in range(heads)], "s" * (heads > 1)
        words, spoken = [f"query {row}", "key"], _spoken([name])
        text = f"“{rows[row]}” in {heads} head{plural}: above, what each attends to most."
        shows = ["heads", *(f"head {k}" for k in range(heads))]
        self._enter(spoken, text, shows, [*words, "chip", "faint", *every])
        for k in range(heads if deep else 0):
            best, alpha = int(weights.values[k, row].argmax()), weights.values[k, row].max()
            to = "itself" if itself and best == row else f"“{columns[best]}”"
            text = f"Head {k}: “{rows[row]}” attends most to {to}, α = {alpha:.2f}."
            lit = [*words, *(f"chip {j}" for j in range(k + 1)), every[k]]
            self._enter(f"{spoken} head {k}", text, shows[: k + 2], lit)
        if deep:
            self._query(spoken, stages)

    def _kinds(self, name: str, stages: Stages) -> dict[str, str]:
        """Return the kinds of score and normalizer whose numbers follow from those that are drawn.

        A rotated query, a matrix of the score's own or another temperature is not drawn.
        """
        module = dict(self.forced.model.named_modules()).get(name)
        if not isinstance(module, Attention):
            return {}
        score, normalizer = module.config.score, module.config.normalizer
        hidden = {"rotated query", "normed query"} & {*stages} or score.joins_sizes
        hot = getattr(normalizer, "temperature", 1) != 1
        kinds = ("score", hidden or score.kind), ("normalizer", hot or normalizer.kind)
        return {name: kind for name, kind in kinds if isinstance(kind, str)}

    def _query(self, spoken: str, stages: Stages) -> None:
        """Stop at each stage of one query, and at the products of all of them."""
        panel = self.panels[-1]
        values, rows, columns, row = panel.values, panel.rows, panel.columns, panel.row
        if not {"query", "key", "score", "value", "context", "output"} <= set(values):
            return
        itself, written = rows == columns, panel.tokens.get("writes")
        facts = {n: f.equation for n, f in stages.items()} | {"c": panel.letters["c"]}
        wish = TEXTS["wish"]["after" if written and not itself else "itself"]
        facts |= self._worked(values["query"].shape[-1]) | {"wish": wish.format(rows[row])}
        facts |= TEXTS["values" if panel.letters["v"][0] == "v" else "states"]
        facts["asks"] = written[row][0] if written else rows[row]
        heads, of_head = len(values["weights"].array), f"head {panel.head}"
        facts |= {"heads": str(heads), "taker": of_head if heads > 1 else "c"}
        few = f" The {SHOWN} with the largest α of {len(columns)} are drawn."
        texts = {"": TEXTS["query"] + few * (len(columns) > SHOWN), **TEXTS["build"]}
        omitted = [*"EA" * (not itself or len(rows) == 1), *"o" * (heads == 1)]
        order = list("qkeαvc")  # all are drawn, first whole, then those that come later dimmed
        for k, stage in enumerate(stage for stage in texts if stage not in omitted):
            alone = stage in ("o", "E", "A")
            shows = [stage] if alone else ["h", *order, f"{stage} work"]
            done = [stage] if alone else order[:k] or order
            lit = [*done, "h", *(f"name {own}{s}" for s in ["h", *done] for own in ("", "own "))]
            text, name = texts[stage].format(**facts), f"{spoken} numbers {stage}".rstrip()
            prefix = f"{of_head.capitalize()}. " * (heads > 1 and stage not in ("", "o"))
            self._enter(name, prefix + text, shows, lit)

    def _worked(self, size: int) -> dict[str, str]:
        """Return the largest score of a panel's query, and its first mean, with some summands."""
        p = self.panels[-1]
        row, made = p.row, {n: v.array[p.head % len(v.array)] for n, v in p.values.items()}
        weights, first = made["weights"][row], made["value"][:, 0]
        best, largest = int(weights.argmax()), np.sort(np.argsort(-abs(weights * first))[:2])
        dot = _products(made["query"][row, :2], made["key"][best, :2])
        mean = _products(weights[largest], first[largest])
        text = f"({dot} + …) / √{size} = {_number(made['score'][row, best])}"
        if p.score != "scaled_dot":
            text = f"the scores of “{p.rows[row]}”"
        facts = {"worked": text, "mean": mean, "first": _number(made["context"][row, 0])}
        return facts | {"most": f"{weights[best]:.2f}", "best": p.columns[best]}

    def _panel(
        self, node: str, stages: Stages, values: Mapping[str, Array], **more: object
    ) -> None:
        equations = {name: CITED.sub("", frame.equation) for name, frame in stages.items()}
        if {"rotated query", "normed query"} & {*equations}:
            equations["score"] = re.sub(r"\b([qk][\^\d]*)(?=_i| ·)", r"\1′", equations["score"])
        letters = {n: t.translate(LOW) for n, t in equations.items() if 0 < len(t) < WIDEST}
        letters |= {"weights": "α_i, learned q"} if "context" in stages else {}
        letters |= {"position": "PE(t)", "input": "x_t"} if "position" in equations else {}
        more.setdefault("letters", letters)
        numbers = {name: Numbers.exact(array) for name, array in values.items()}
        fields = {"node": node, "equations": equations, "values": numbers, **more}
        self.panels.append(ScenePanel.model_validate(fields))

    def _inside(self, name: str) -> Box:
        """Return the largest rectangle of a stop's proportions in the middle of a node."""
        x, y, w, h = self.box_of(name)
        unit = min(w / WIDE, h / HIGH)
        return x + (w - unit * WIDE) / 2, y + (h - unit * HIGH) / 2, unit * WIDE, unit * HIGH

    def _cell(self, name: str, query: int | None) -> None:
        """Add the inside of a recurrent cell at one step, with a stop for each of its stages."""
        stages = {f.name: f for f in self.film if f.block == name}
        count, part = stages["state"].values.shape[1], name.split(".")[0]
        row = _checked("--query", min(2, count - 1) if query is None else query, count)
        names = {k: f.name for k, f in enumerate(self.film) if f.block == name}
        reads = {n: [names[k] for k in f.reads if k in names] for n, f in stages.items()}
        rows, home = self._named(part, count), f"{name} {min(row, MOST - 1)}"
        more = {"letters": {n: f.equation.split(" = ")[0] for n, f in stages.items() if f.equation}}
        values = {n: f.values for n, f in stages.items()}
        self._panel(name, stages, values, rows=rows, row=row, reads=reads, **more)
        first, later = ([n for n in stages if bool(reads[n]) is c] for c in (False, True))
        every = _tags([*first, *later])
        text = TEXTS["gated" if "kept" in stages else "cell"].format(rows[row])
        self._enter(f"{part} cell numbers", text, every, home=home)
        for k, stage in enumerate(["reads", *later]):
            text = f"Inside the cell, at “{rows[row]}”: what it reads, by its first two numbers."
            text = f"{stage.capitalize()}: {stages[stage].equation}." if k else text
            self._enter(f"{part} cell numbers {stage}", text, every, every[: len(first) + k], home)

    def _named(self, part: str, count: int) -> list[str]:
        words = self.places.get(part, ())
        return [words[k] if k < len(words) else str(k) for k in range(count)]

    def _steps(self) -> None:
        """Stop at each step of decoding: the words read so far, and the one that is written."""
        drawn, read = {n.name.split(" ")[0] for n in self.nodes}, next(iter(self.places))
        maps = [f for f in self.film if f.name == "weights" and f.block in drawn]
        cross = [f for f in maps if (f.rows, f.columns) == ("decoder", read)]
        cells = [f.block for f in self.film if f.name == "state" and f.block.startswith("decoder")]
        layer = [b for p in self.parts if p.name == "decoder" for b in _layer_of(p, self.layer)]
        reading = {b.branch for b in layer if "encoder" in b.reads}
        dim = {b.name for b in layer if reading and b.branch not in (None, *reading)}
        names = [n.name for n in self.nodes if n.form != "group" and n.tag != "words"]
        names = [*names, *(e.name for e in self.edges if e.tag != "words")] * (not cells)
        for t, word in enumerate(self.places["decoder"][:MOST]):
            lit = [f"decoder reads {k}" for k in range(t + 1)] + [f"decoder writes {t}"]
            lit += [f"{block} {k}" for block in cells for k in range(t + 1)]
            lit += [name for name in names if name.split(" ")[0] not in dim]
            lit += self._arcs(cross[-1], t) if cross else []
            comes = f"“{self.produced[t]}”"
            comes += f", p = {self.chances[t]:.2f}" if t in self.chances else ""
            text = f"After “{word}” comes {comes}."
            if cross:
                row = cross[-1].values.mean(axis=0)[t]
                top = self.places[cross[-1].columns][int(row.argmax())]
                text = f"{comes}: the decoder attends most to “{top}”, α = {row.max():.2f}."
            if read != "decoder" and not cells:  # of two stacks, left of what is written
                x, y, _, high = self.box_of("decoder writes 0")
                lit, box = [*lit, f"step {t} p", f"{read} reads"], (x - 300, y, 300, high)
                self.label(f"step {t} p", comes, box, tag=f"step {t}")
            self.stop(f"step {t + 1}", text, [*self.whole, *[f"step {t}"] * bool(cross)], lit=lit)

    def _arcs(self, frame: ForwardFrame, t: int) -> list[str]:
        """Draw the weights of one step, the mean of all heads, to the words or states read."""
        names = [node.name for node in reversed(self.nodes)]
        home = f"{frame.block} {t}"
        made = [home] * (home in names)
        for s, alpha in enumerate((row := frame.values.mean(axis=0)[t]).tolist()[:MOST]):
            states = (n for n in names if n.startswith(frame.columns) and f"cell {s}" in n)
            if alpha >= FAINT:
                u, v, w, tall = self.box_of(next(states, f"{frame.columns} reads {s}"))
                made.append(f"{frame.block} step {t} {s}")
                if home not in names:  # of a stack: the words themselves
                    fill = {"hue": Hue.WEIGHT, "level": alpha / row.max(), "tag": f"step {t}"}
                    sign = "α " if alpha == row.max() else ""
                    word, below = self.places[frame.columns][s], (u - 20, v + tall, w + 40, 26)
                    wide = min(w, 17 * len(word) + 28)
                    self.node(made[-1], word, (u + (w - wide) / 2, v + 2, wide, tall - 6), **fill)
                    if tall > 26:  # in one line of words
                        fill |= {"form": "label", "level": 0.0}
                        self.node(f"{made[-1]} weight", f"{sign}{alpha:.2f}", below, **fill)
                    continue
                x, y, across, _ = self.box_of(home)
                middle, end = x + across / 2, u + w / 2
                points = (middle, y), (middle, y - 40), (end, 84), (end, v)
                self.edge(made[-1], *points, weight=alpha, hue=Hue.WEIGHT, tag=f"step {t}")
        return made


def _units(values: Mapping[str, Array], reads: Mapping[str, list[str]]) -> dict[str, list[int]]:
    """Return the units to draw of a sum, exact as printed and varied; of a ReLU, those at work."""
    total = next((stage for stage, read in reads.items() if len(read) == 2), None)
    if total is not None:
        stages = [*reads[total], total]
        x, y, whole = (values[stage].round(2) for stage in stages)
        order = np.lexsort((-np.ptp(y, (0, 1)), (abs(x + y - whole) > 1e-3).sum((0, 1))))
        order = np.append(order[0], order[(order - order[0]) % 2 > 0])  # a sine and a cosine
    elif hidden := next((stage for stage in RECTIFIED if stage in values), None):
        stages = [s for s in values if values[s].shape == values[hidden].shape]
        z, n = values[stages[0]][0], values[hidden].shape[1]
        above = (z > 0).sum(axis=0)  # of both signs, if any is
        order = np.argsort(-z.var(axis=0) * (0.01 + above * (n - above)), kind="stable")
        also = ((z > 0) & (z[:, order[:1]] <= 0)).sum(axis=0)  # where the first is 0
        order = np.append(order[0], order[1:][np.argsort(-also[order[1:]], kind="stable")])
    else:
        return {}
    return dict.fromkeys(stages, order[:UNITS].tolist())


def _tags(stages: Sequence[str]) -> list[str]:
    return [stage.replace(" ", "-") for stage in stages]


def _checked(option: str, value: int, count: int) -> int:
    """Return a number below a count. Raises `ConfigError` for others."""
    if value >= count:
        raise ConfigError(f"{option} {value}: there are {count}, from 0 to {count - 1}")
    return value


def _layer_of(part: ModelPart, layer: int) -> list[ModelBlock]:
    """Return the blocks of one layer of a part."""
    layers = sorted({b.layer for b in part.blocks if b.layer is not None})
    if layers and not -len(layers) <= layer < len(layers):
        raise ConfigError(f"--layer {layer}: the {part.name} has {len(layers)}, counting from 0")
    return [b for b in part.blocks if b.layer == layers[layer]] if layers else []


def _names(blocks: Sequence[str]) -> list[str]:
    """Return the part and the name of the box of some blocks: encoder, feed-forward."""
    block = next((name for name in blocks if name.endswith("stem")), blocks[-1])
    names = block_of(block).replace("stem", "embedding").replace("_", "-").split(".")
    return list(dict.fromkeys((names[0], names[-1])))


def _spoken(blocks: Sequence[str]) -> str:
    """Return what stops call the box of some blocks: ``encoder feed-forward``."""
    return " ".join(_names(blocks))


def _renamed(stage: ForwardFrame, letters: Mapping[str, str], power: str) -> ForwardFrame:
    """Return a stage of an attention with the letters of its head and of what it reads."""
    reads = {"x": letters["own"], "x_i": letters["memory"], "v_i": letters["v"]}
    text = re.sub(r"\b(x|[xv]_i)\b", lambda match: reads[match[0]], stage.equation)
    text = text.removeprefix(f"{letters['memory']} = ")  # a value is a state
    return replace(stage, equation=OF_HEAD.sub(rf"\1{power}", text))


def _name(block: ModelBlock) -> str:
    """Return the label without the number of the layer."""
    spoken = {"stem": "embedding", "output": "linear → softmax"}
    return spoken.get(block.label, block.label.rstrip("0123456789 "))


def _looks_back(f: ForwardFrame) -> bool:
    """Return whether no position attends to a later one."""
    return f.rows == f.columns and f.values.shape[1] > 1 and not np.triu(f.values, 1).any()


def _number(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")


def _products(a: Array, b: Array) -> str:
    """Return a sum of products, of which no line breaks within one."""
    text = " + ".join(f"{_number(x)}\u00a0·\u00a0{_number(y)}" for x, y in zip(a, b, strict=True))
    return re.sub(r"(?<=·.)−[\d.]+", r"(\g<0>)", text).replace("+ −", "−\u00a0")


def _plain(word: str) -> str:
    """Return a piece of a word without the sign of the space before it."""
    return word.lstrip("▁Ġ ") or word


def _pieces(words: Sequence[str]) -> list[str]:
    """Return the pieces of a text, with a hyphen where one continues a word."""
    cut, plain = any(word[:1] in {*"▁Ġ"} for word in words), [*map(_plain, words)]
    for k, (before, word) in enumerate(pairwise(words), start=1):
        # behind a blank, or a special piece, a word begins
        if cut and word[:1].isalnum() and before.strip("▁Ġ ") and before[-1:] != ">":
            plain[k] = f"‑{word}"
    return plain
