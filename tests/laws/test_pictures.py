"""Laws of models that read pictures: labels by patches, grids and glimpses; captions."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from foveate.data.image import IDX, ImageFiles
from foveate.data.text import TextData
from foveate.data.tokenizer import WordTokenizer
from foveate.decode.engine import SearchRequest
from foveate.decode.search import Greedy
from foveate.look.hooks import capture
from foveate.models.classifier import Classifier, First, Mean
from foveate.models.encoder_decoder import EncoderDecoder, Model
from foveate.models.recurrent import RecurrentAttention, RecurrentDecoder, RecurrentEncoder
from foveate.models.transformer import TransformerDecoder
from foveate.models.vision import ConvolutionalEncoder, Glimpse
from foveate.nn.context import DecoderState
from foveate.nn.embedding import PatchStem
from foveate.nn.normalizers import Sampled, choices
from foveate.nn.spec import Labels, Pixels, Tokens
from foveate.run import RunEngine
from foveate.run.evaluation import evaluate
from foveate.tasks.attention_losses import Reinforce
from foveate.tasks.base import Loss
from foveate.tasks.captioning import Captioning
from foveate.tasks.image_classification import ImageClassification
from foveate.tasks.objectives import CrossEntropy
from laws.conftest import check_half_precision, gradients_reach, ids, shrink
from pictures import vit, write_bars, write_squares
from task_tools import fit
from tolerances import close, differ

SOURCE, VOCABULARY = Pixels(3, 8, 8), 12
CONVOLUTIONAL = ConvolutionalEncoder.Config(channels=(6, 8), hidden_size=12, dropout=0.0)
VIT = vit(4, 5, (16, 2, 2, 20))
RECURRENT = shrink(RecurrentEncoder.Config(stem=PatchStem.Config(patch_size=2)))
CLASSIFIERS: dict[str, Any] = {
    "vit": Classifier.Config(encoder=VIT, pooling=First.Config(), dropout=0.0),
    "convolutional": Classifier.Config(encoder=CONVOLUTIONAL, pooling=Mean.Config(), dropout=0.0),
    "patches in turn": Classifier.Config(encoder=RECURRENT, dropout=0.0),
    "glimpse": shrink(Glimpse.Config(patch_size=4, scales=2, num_glimpses=3)),
}
HARD = RecurrentAttention(normalizer=Sampled.Config())
DECODERS: dict[str, Any] = {
    "recurrent": shrink(RecurrentDecoder.Config(attention=RecurrentAttention())),
    "hard": shrink(RecurrentDecoder.Config(attention=HARD)),
    "transformer": shrink(TransformerDecoder.Config()),
}
CAPTIONERS = {
    f"{encoder} {decoder}": EncoderDecoder.Config(encoder=chosen, decoder=words)
    for encoder, chosen in (("vit", VIT), ("convolutional", CONVOLUTIONAL))
    for decoder, words in DECODERS.items()
}
BOTH = CLASSIFIERS | CAPTIONERS
each_classifier = pytest.mark.parametrize("config", CLASSIFIERS.values(), ids=CLASSIFIERS)
each_captioner = pytest.mark.parametrize("config", CAPTIONERS.values(), ids=CAPTIONERS)
each_model = pytest.mark.parametrize("config", BOTH.values(), ids=BOTH)
PIXELS = torch.randn(3, 3, 8, 8, generator=torch.Generator().manual_seed(4))
CAPTIONS = ids(3, 5, vocabulary=VOCABULARY)


def made_of(config: Model.Config) -> tuple[Any, list[Tensor]]:
    """A model, and what it reads."""
    torch.manual_seed(0)
    writes = isinstance(config, EncoderDecoder.Config)
    model = config.build(SOURCE, Tokens(VOCABULARY) if writes else Labels(("a", "b", "c")))
    return model.eval(), [PIXELS, CAPTIONS] if writes else [PIXELS]


@each_model
@torch.no_grad()
def test_a_picture_does_not_depend_on_its_neighbours(config: Any) -> None:
    model, inputs = made_of(config)
    scores = model(*inputs)
    close(model(*(part[1:2] for part in inputs)), scores[1:2])
    assert differ(model(PIXELS.roll(1, 0), *inputs[1:]), scores), "deaf to the picture"


@each_captioner
@torch.no_grad()
def test_whole_captions_equal_captions_step_by_step(config: Any) -> None:
    model, _ = made_of(config)
    memory, state = model.encode(PIXELS), DecoderState()
    steps = [model.decode(CAPTIONS[:, t : t + 1], memory, state) for t in range(5)]
    with capture(model, lambda name: name.endswith("cross_attention")) as maps:
        close(torch.cat(steps, dim=1), model.decode(CAPTIONS, memory))
    places = getattr(model.encoder, "labels", None) or model.encoder.stem.labels
    for weights in maps.values():
        assert weights.shape == (3, weights.shape[1], 5, len(places))
        close(weights.sum(-1), torch.ones(weights.shape[:3]))


@each_model
def test_every_parameter_receives_a_gradient(config: Any) -> None:
    model, inputs = made_of(config)
    with choices(model) as made:
        total = model(*inputs).square().sum()
    for choice in made if len(inputs) == 1 else ():
        total = total + choice.log_probability.sum() + choice.baseline.square().sum()
    total.backward()
    gradients_reach(model)


@each_model
def test_half_precision_trains(config: Any) -> None:
    model, inputs = made_of(config)
    check_half_precision(model, *inputs)


def learn(task: Any, model: Any, objective: Any, steps: int, rate: float = 1e-2) -> None:
    count = min(8, len(task.lengths("train")))

    def loss_of(step: int) -> Loss:
        torch.manual_seed(step)
        return task.loss(model, task.batch("train", range(count)), objective)

    fit(model, loss_of, steps, rate)


@pytest.fixture(scope="module")
def labelling(tmp_path_factory: pytest.TempPathFactory) -> ImageClassification:
    folder: Path = tmp_path_factory.mktemp("bars")
    pattern = write_bars(folder, count=12)
    pictures = IDX.Config(images=f"{pattern}-images", labels=f"{pattern}-labels", held_out=4)
    task: ImageClassification = ImageClassification.Config(pictures=pictures).build(TextData())
    task.prepare(folder, seed=0)
    return task


@each_classifier
def test_classification_overfits_eight_pictures(labelling, config) -> None:
    torch.manual_seed(0)
    model = labelling.build(config)
    learn(labelling, model, Reinforce.Config().build(), steps=60)
    figures = labelling.measure(model, "train", None).figures
    assert figures["accuracy"] == 100
    assert figures["loss"] < 0.3


@pytest.fixture(scope="module")
def describing(tmp_path_factory: pytest.TempPathFactory) -> Captioning:
    folder = write_squares(tmp_path_factory.mktemp("squares"))
    task: Captioning = Captioning.Config(
        pictures=ImageFiles.Config(
            files=str(folder / "pictures.tar"), table=str(folder / "table.tsv"), size=8
        ),
        tokenizer=WordTokenizer.Config(min_frequency=1),
        doubly_stochastic=0.1,
    ).build(TextData())
    task.prepare(folder, seed=0)
    return task


@pytest.mark.parametrize(
    "name", ["convolutional recurrent", "convolutional hard", "vit transformer"]
)
def test_captioning_overfits_its_captions(describing: Captioning, name: str) -> None:
    torch.manual_seed(0)
    model: Any = describing.build(CAPTIONERS[name])
    learn(describing, model, Reinforce.Config().build(), steps=80)
    request = SearchRequest(Greedy.Config().build())
    outputs = evaluate(describing, RunEngine(describing, model), "train", request).outputs
    for output, colour in zip(outputs, ("red", "green", "blue"), strict=True):
        assert output in (f"A {colour} square on grey.", f"The square is {colour}."), outputs


def test_what_draws_is_not_trained_by_cross_entropy_alone(labelling: ImageClassification) -> None:
    model = labelling.build(CLASSIFIERS["glimpse"])
    with pytest.raises(ValueError, match='kind = "reinforce"'):
        labelling.loss(model, labelling.batch("train", [0]), CrossEntropy.Config().build())
