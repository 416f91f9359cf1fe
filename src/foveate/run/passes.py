"""One forced pass of each task: a model reads an example with its whole target.

    forced(task, model, source, target) -> ForcedPass

`forced_pass` is registered for the class of each task; a task of one's own has that of the class it
derives from, and registers another by ``@forced_pass.register(MyTask)``. `word_maps` are the maps
between the words of many pairs, from which `foveate.engine.links.Head.links` reads links.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial, singledispatch

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foveate.data.catalogue import DataError
from foveate.data.series import labels
from foveate.data.tokenizer import EOS, UNK, Tokenizer
from foveate.data.words import behind_tag, between_words, split_words
from foveate.decode.engine import SearchRequest, best
from foveate.decode.search import Greedy, Search, token_log_probabilities
from foveate.engine.answers import Picture
from foveate.engine.links import Rows
from foveate.errors import UserError, checks
from foveate.look.hooks import ForcedPass, capture
from foveate.look.records import (
    END,
    AttentionRecord,
    Maps,
    TokenizedText,
    Units,
    attention_record,
    encoder_record,
    joined_record,
    lines_axis,
    lines_record,
)
from foveate.models.classifier import Classifier, First
from foveate.models.encoder_decoder import EncoderDecoder
from foveate.models.forecaster import Forecaster
from foveate.models.language_model import LanguageModel, MaskedLanguageModel
from foveate.tasks.abilities import Generates
from foveate.tasks.base import AnyTask, Batch, Module
from foveate.tasks.captioning import Captioning
from foveate.tasks.classification import TextClassification, numbers_of
from foveate.tasks.engine import TorchEngine
from foveate.tasks.forecasting import Forecasting
from foveate.tasks.image_classification import ImageClassification, PictureTask, place_labels
from foveate.tasks.language import Language
from foveate.tasks.masked import MaskedLanguage
from foveate.tasks.prefix_translation import PrefixTranslation, join
from foveate.tasks.single_text import wrapped
from foveate.tasks.text import Ids, TextBatch, TextTask, TextToText, collate, decoder_sides, namer
from foveate.tasks.translation import Translation

UNEXPLAINED = "has nothing to explain: register forced_pass (foveate.run.passes) for its class"
AT_ONCE = 32  # pairs in one forced pass of `word_maps`
WordMaps = dict[str, NDArray[np.float32]]  # by layer (H, T, S + 1)
Cut = Callable[[str], list[tuple[int, int]]]  # the spans of the words of a text


def forced(
    task: AnyTask,
    model: Module,
    source: object,
    target: object = None,
    search: Search | None = None,
    units: Units = "auto",
) -> ForcedPass:
    """Return a forced pass over a source and a target, to look inside the model.

    Without a target it is the best output of the search (greedy if None), or the model's answer.
    The axes of its `ForcedPass.record` have the ``units``.
    """
    if target is None:
        target = default_target(task, model, source, search or Greedy.Config().build())
    return replace(forced_pass(task, model, source, target), units=units)


@checks(ForcedPass)
@singledispatch
def forced_pass(task: AnyTask, model: Module, source: object, target: object) -> ForcedPass:
    """Return the forced pass of a source and a target; `forced` finds one where none is given.

    A task without a `default_target` takes None: the model's answer, or the source alone. Raises
    `UserError` if nothing is registered for the class of the task.
    """
    raise UserError(f"the task {task.config.kind} {UNEXPLAINED}")


@singledispatch
def default_target(task: AnyTask, model: Module, source: object, search: Search) -> object:
    """Return the target of a forced pass if none is given: a search's best output, or None."""
    return None


@singledispatch
def first_example(task: AnyTask) -> tuple[object, object]:
    """Return source and target of `forced_pass` for the first example that is not trained on.

    They are None where the task has one of its own.
    """
    return None, None


def first_of(tokenizer: Tokenizer, word: str) -> int:
    """Return the first token of a word. Raises `UserError` for a blank or unknown one."""
    ids = tokenizer.encode_ids([word])[0]
    if not ids or ids[0] == UNK:
        why = "is not in the model's vocabulary" if ids else "is blank"
        raise UserError(f"{word!r} {why}: give a word that the model can write")
    return ids[0]


def label_number(names: tuple[str, ...], label: str) -> int:
    """Return the number of a label. Raises ``DataError`` listing some labels."""
    return numbers_of([label], names, lambda i: "answer")[0]


@forced_pass.register(Translation)
def _translation_pass(
    task: Translation, model: EncoderDecoder, source: str, target: Ids | str
) -> ForcedPass:
    """A target being produced."""
    source = task.sides.addressed([source])[0]
    reads, writes = task.tokenizers
    output = writes.written(target, source)[1].ids
    batch = collate(reads.encode_ids([source]), [output]).to(model.output.weight.device)
    read, written = TokenizedText.read(reads, source), TokenizedText.written(writes, output)

    def run() -> Tensor:
        memory = model.encode(batch.source, batch.source_mask)  # which several models refuse
        return token_log_probabilities(model.predict(batch.inputs, memory), batch.targets)[0]

    return ForcedPass(
        model,
        run,
        partial(attention_record, source=read, target=written),
        [*written.labels, END],
        {"encoder": [*read.labels, END], "decoder": [written.start, *written.labels]},
        token=namer(writes),
        number=partial(first_of, writes),
        target=[*output, EOS],
    )


@forced_pass.register(PrefixTranslation)
def _prefix_pass(
    task: PrefixTranslation, model: LanguageModel, source: str, target: Ids | str
) -> ForcedPass:
    """One sequence of both sides: rows are what is produced, columns what was read before it.

    Scores are of the target's tokens alone.
    """
    pieces, source = task.target_tokenizer, task.sides.addressed([source])[0]
    output = pieces.encode_ids([target])[0] if isinstance(target, str) else target
    read = pieces.encode(source)
    batch = join([read.ids], [output]).to(model.output.weight.device)
    first = TokenizedText.of(pieces, source, read)
    second = TokenizedText.written(pieces, output)
    written = [*first.labels, END, *second.labels]
    return ForcedPass(
        model,
        lambda: token_log_probabilities(model(batch.inputs), batch.targets)[0][batch.counted],
        partial(joined_record, source=first, target=second),
        [*second.labels, END],
        {"decoder": [first.start, *written]},
        first=len(read.ids) + 1,
        token=namer(pieces),
        number=partial(first_of, pieces),
    )


@forced_pass.register(Language)
def _language_pass(
    task: Language, model: LanguageModel, source: str, target: str | None
) -> ForcedPass:
    """A text, and the target after it, being predicted, and the end of its last line.

    Rows are what is produced, columns what was read before it. The row of a word is the mean
    of its tokens' rows. Models without attention (recurrent networks, windows of words)
    have no map.
    """
    ids = task.tokenizer.encode_lines(source + (target or ""))
    limit = task.reach(model)
    notes = []
    if limit is not None and len(ids) >= limit:
        notes.append(f"the first {limit - 1} of {len(ids)} tokens: the model reads no more")
        ids = ids[: limit - 1]
    text = torch.tensor([[task.start, *ids, EOS]], device=model.output.weight.device)
    label = partial(lines_record, tokenizer=task.tokenizer, ids=ids, notes=notes)
    pieces = lines_axis(task.tokenizer, [task.start, *ids, EOS], "tokens")[1]
    return ForcedPass(
        model,
        lambda: token_log_probabilities(model(text[:, :-1]), text[:, 1:])[0],
        label,
        pieces[1:],
        {"decoder": pieces[:-1]},
        token=task.name_of,
        number=partial(first_of, task.tokenizer),
    )


@forced_pass.register(MaskedLanguage)
def _masked_pass(
    task: MaskedLanguage, model: MaskedLanguageModel, source: str, target: str | None
) -> ForcedPass:
    """A text being read, nothing of it hidden, and log p of each of its own tokens."""
    encoded = task.tokenizer.encode(source)
    ids, source_mask = wrapped([encoded.ids], model.output.weight.device)
    text = TokenizedText.of(task.tokenizer, source, encoded)
    return ForcedPass(
        model,
        lambda: token_log_probabilities(model(ids, source_mask), ids)[0, 1:-1],
        partial(encoder_record, source=text, produced=target or source),
        text.labels,
        {"encoder": [text.start, *text.labels, END]},
        first=1,
        token=namer(task.tokenizer),
        number=partial(first_of, task.tokenizer),
    )


@forced_pass.register(TextClassification)
def _classification_pass(
    task: TextClassification, model: Classifier, source: str, target: str | None
) -> ForcedPass:
    """A text being read, and log p of the label, or of the most probable one.

    A pooling that attends has one row: what the label was read from.
    """
    encoded = task.tokenizer.encode(source)
    ids, source_mask = wrapped([encoded.ids], model.output.weight.device)
    number_of = partial(label_number, task.label_names)
    with torch.inference_mode():
        number = int(model(ids, source_mask).argmax()) if target is None else number_of(target)
    label = task.label_names[number]
    text = TokenizedText.of(task.tokenizer, source, encoded)
    return ForcedPass(
        model,
        lambda: model(ids, source_mask).log_softmax(dim=-1)[0, number][None],
        partial(encoder_record, source=text, produced=label),
        [label],
        {"encoder": [text.start, *text.labels, END]},
        token=task.label_names.__getitem__,
        number=number_of,
        answer_at=0 if isinstance(model.pooling, First) else None,
    )


@forced_pass.register(ImageClassification)
def _picture_pass(
    task: ImageClassification, model: Classifier, source: Picture, target: str | None
) -> ForcedPass:
    """A picture being read, and log p of the label, or of the most probable one.

    Rows and columns are "row,column" of the patches.
    """
    pixels, picture = task.shown(source)
    seen = task.tensor([pixels]).to(model.output.weight.device)
    number_of = partial(label_number, task.label_names)
    with torch.inference_mode():
        number = int(model(seen)[0].argmax()) if target is None else number_of(str(target))
    label = task.label_names[number]

    def named(maps: Maps, units: Units) -> AttentionRecord:
        if not maps:
            raise UserError(
                f"the model {model.config.kind!r} has no attention over patches; a path of "
                "glimpses is drawn by: foveate look picture"
            )
        places = place_labels(model.encoder)
        rows = {n: places if w.shape[1] == len(places) else [label] for n, w in maps.items()}
        return AttentionRecord(dict(maps), rows, {"": places}, f"{picture} → {label}")

    first = isinstance(model, Classifier) and isinstance(model.pooling, First)
    return ForcedPass(
        model,
        lambda: model(seen).log_softmax(dim=-1)[0, number][None],
        named,
        [label],
        token=task.label_names.__getitem__,
        number=number_of,
        answer_at=0 if first else None,
    )


@forced_pass.register(Captioning)
def _caption_pass(
    task: Captioning, model: EncoderDecoder, source: Picture, target: Ids | str
) -> ForcedPass:
    """A caption being written: rows are words, columns "row,column" of cells."""
    ids = task.tokenizer.encode_ids([target])[0] if isinstance(target, str) else target
    pixels, name = task.shown(source)
    batch = TextBatch(task.tensor([pixels]), None, *decoder_sides([ids]))
    batch = batch.to(model.output.weight.device)
    caption, places = TokenizedText.written(task.tokenizer, ids), place_labels(model.encoder)
    return ForcedPass(
        model,
        lambda: token_log_probabilities(model(batch.source, batch.inputs), batch.targets)[0],
        partial(attention_record, source=places, target=caption, name=name),
        [*caption.labels, END],
        {"encoder": places, "decoder": [caption.start, *caption.labels]},
        token=namer(task.tokenizer),
        number=partial(first_of, task.tokenizer),
    )


@forced_pass.register(Forecasting)
def _forecast_pass(
    task: Forecasting, model: Forecaster, source: str | None, target: str | None
) -> ForcedPass:
    """One forecast of a channel, dates on both axes of its maps.

    ``source`` is the date of the first row to forecast (the first of the test rows if absent),
    ``target`` the channel (the last if absent).
    """
    windows = task.at(source)
    channel = task.channel(target)
    device = next(model.parameters()).device
    read = [torch.from_numpy(part).to(device) for part in windows.take([0])[:2]]
    first, row = int(windows.starts[0]), int(windows.starts[0]) + windows.look_back
    dates_ahead = labels(windows.table.dates[row : row + windows.horizon], windows.table.dates)

    def run() -> Tensor:
        ahead: Tensor = model(*read)[0, :, channel]
        return ahead[:, ahead.shape[1] // 2]

    def dated(maps: Maps, units: Units) -> AttentionRecord:
        if not maps:
            raise UserError(f"{model.config.kind} has no attention to look at")
        rows = [first + start for start in model.starts()]
        dates = labels(windows.table.dates[rows], windows.table.dates)
        title = f"{task.names[channel]} from {dates_ahead[0]}; each label is the start of a patch"
        return AttentionRecord(dict(maps), {"": dates}, {"": dates}, title)

    dates = labels(windows.table.dates[first : row + windows.horizon - 1], windows.table.dates)
    return ForcedPass(
        *(model, run, dated, dates_ahead),
        {"stack": dates},  # what a recurrent forecaster reads, its own forecasts last
        row=channel,
        score_name="forecast",
    )


@default_target.register(TextToText)
@default_target.register(Captioning)
def _best_text(task: Generates[object], model: Module, source: object, search: Search) -> Ids:
    request = SearchRequest(search, task.output_tokenizer.begun([source]))
    [outputs] = TorchEngine(task, model).outputs(task.encode([source]), request)
    return best(outputs).ids


@first_example.register(TextTask)
def _first_text(task: TextTask[Batch]) -> tuple[str, str | None]:
    corpus = task.corpus("valid")
    if not len(corpus):
        raise DataError("the validation data contain no examples")
    return corpus.sources[0], corpus.targets[0] or None


@first_example.register(Language)
def _first_line(task: Language) -> tuple[str, None]:
    return next(filter(str.strip, task.text("valid").lines), ""), None


@first_example.register(Captioning)
def _first_caption(task: Captioning) -> tuple[Picture, Ids]:
    return task.pairs("test")[0]


first_example.register(PictureTask, lambda task: (0, None))


def word_maps(
    task: Translation,
    model: EncoderDecoder,
    pairs: Sequence[tuple[str, str | Ids]],
    rows: Rows = "produced",
    cut: Cut = split_words,
) -> Iterator[WordMaps]:
    """Yield for each pair the maps (H, T, S + 1) by layer: T target words, S source words, the end.

    One forced pass over (source, target). Step t reads y_{t−1} and produces y_t: a word's row
    is the mean of its pieces' steps, or of the steps that follow them (``rows = "read"``).
    ``cut`` says where the words of a text stand; the tag of a language is none. A target may be
    given as ids.
    """
    later = rows == "read"
    for start in range(0, len(pairs), AT_ONCE):
        chosen = pairs[start : start + AT_ONCE]
        lines = task.sides.sources([line for line, _ in chosen])
        chosen = [(source, target) for source, (_, target) in zip(lines, chosen, strict=True)]
        reads, writes = task.tokenizers
        sources = [reads.encode(source) for source, _ in chosen]
        targets = [writes.written(target, source) for source, target in chosen]
        batch = collate([s.ids for s in sources], [encoded.ids for _, encoded in targets])
        batch = batch.to(model.output.weight.device)
        with (
            torch.inference_mode(),
            capture(model, lambda name: name.endswith("cross_attention")) as weights,
        ):
            model.decode(batch.inputs, model.encode(batch.source, batch.source_mask))
        maps = {name: w.cpu().numpy() for name, w in weights.items()}
        for row, (read, (target, encoded)) in enumerate(zip(sources, targets, strict=True)):
            source = chosen[row][0]
            reading = behind_tag(source, task.source_tokenizer.bare(source), read.offsets, cut)
            own = {name: w[row] for name, w in maps.items()}
            yield between_words(own, reading, (encoded.offsets, cut(target)), later)
