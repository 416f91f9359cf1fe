"""Models of others as ours, and folders of strangers."""

import json
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import tokenizers as rust
import torch
import transformers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import foveate
from foveate.data.tokenizer import EOS, PAD, SPECIALS, Tokenizer
from foveate.errors import FOR_THE_USER, ConfigError
from foveate.exchange.base import CheckSample, ExchangeError, export, sample_of
from foveate.exchange.huggingface import from_huggingface, to_huggingface
from foveate.exchange.importing import import_from
from foveate.exchange.published import hub_vocabulary
from foveate.exchange.tokenizers import tokenizer_json
from foveate.models.language_model import LanguageModel
from foveate.models.transformer import TransformerDecoder
from foveate.nn.spec import Tokens
from foveate.train import journal
from variants import transformer, translator


# ------------------------------ Models of others as ours
@pytest.mark.parametrize("tokenizer", ["bpe", "unigram"])
def test_export_and_import_translate_the_same(tokenizer: str, tmp_path: Path) -> None:
    run = transformer(translator(tmp_path, tokenizer))
    export(run, tmp_path / "there", "huggingface", CheckSample(sample_of(run, 3).sources))
    assert "task.source" in import_from(tmp_path / "there", tmp_path / "back")
    back = foveate.load(tmp_path / "back")
    back.config = run.config  # how long outputs may be is not said there
    lines = ["the dog runs", "", "Ünknown ☃"]
    cut = [each.task.source_tokenizer.encode_ids(lines) for each in (back, run)]
    assert cut[0] == cut[1]
    for theirs, ours in zip(back.translate(lines, 1), run.translate(lines, 1), strict=True):
        padded = any(PAD in output.ids for output in ours.outputs)  # an opened model writes none
        assert str(theirs) == str(ours) or padded
    with pytest.raises(FileExistsError, match="already exists"):
        import_from(tmp_path / "there", tmp_path / "back")

    path = tmp_path / "there/tokenizer.json"
    tree = json.loads(path.read_text("utf-8"))
    tree["model"] |= {"type": "WordPiece"}
    path.write_text(json.dumps(tree), "utf-8")
    with pytest.raises(ExchangeError, match=r"tokenizer\.json .* of the kind WordPiece is not"):
        import_from(tmp_path / "there", tmp_path / "other")
    (tmp_path / "there/vocab.json").write_text("[]", "utf-8")
    (tmp_path / "there/model.safetensors").rename(tmp_path / "there/pytorch_model.bin")
    with pytest.raises(ExchangeError, match="weights in other formats are not read"):
        import_from(tmp_path / "there", tmp_path / "other")
    with pytest.raises(ExchangeError, match=r"may hold a pickle.*save_pretrained"):
        import_from(tmp_path / "there/pytorch_model.bin", tmp_path / "other")
    with pytest.raises(ExchangeError, match="foveate downloads nothing: fetch it yourself"):
        import_from(Path("Helsinki-NLP/opus-mt-en-fr"), tmp_path / "other")
    with pytest.raises(ExchangeError, match=r"vocab\.json is a file; give the folder"):
        import_from(tmp_path / "there/vocab.json", tmp_path / "other")
    assert not (tmp_path / "other").exists()


# ---- Folders of `transformers` from strangers: whatever is in them, a model comes out or an error
SHARED = [HealthCheck.function_scoped_fixture]
FEW = settings(max_examples=40, deadline=None, suppress_health_check=SHARED)
SIZES: dict[str, Any] = {"hidden_size": 8, "num_heads": 2, "num_layers": 1}
SIZES |= {"stem": {"kind": "tokens", "scale": "none"}, "feed_forward": "gelu_tanh"}
SIZES |= {"position": {"kind": "learned", "max_length": 12}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GPT-2 of a few hundred weights."""
    place = tmp_path_factory.mktemp("theirs")
    torch.manual_seed(0)
    decoder = TransformerDecoder.Config.parse(SIZES)
    to_huggingface(LanguageModel.Config(decoder=decoder).build(Tokens(20)), place)
    from_huggingface(place)
    return place


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3),
    st.lists(st.integers(), max_size=2), st.just({}), st.sampled_from([0, -1, 7, 10**7, 2**63]),
)  # fmt: skip


@FEW
@given(data=st.data())
def test_a_setting_of_any_value_is_read_or_refused_by_name(folder, data) -> None:
    tree = json.loads((folder / "config.json").read_text("utf-8"))
    tree[data.draw(st.sampled_from(sorted(tree)))] = data.draw(VALUES)
    check(folder / "config.json", json.dumps(tree).encode())


@FEW
@given(data=st.data())
def test_weights_with_bytes_changed_are_read_or_refused_by_name(folder, data) -> None:
    file = folder / "model.safetensors"
    content = bytearray(file.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, 1500))  # the header is there
        content[min(place, len(content) - 1)] = data.draw(st.integers(0, 255))
    check(file, bytes(content[: data.draw(st.integers(0, len(content)))]))


def check(file: Path, content: bytes) -> None:
    """Assert that a folder with this file is a model, or an error for the user with its name."""
    saved = file.read_bytes()
    file.write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            from_huggingface(file.parent)
        except Exception as error:
            assert isinstance(error, FOR_THE_USER), repr(error)
            assert re.search(r"config\.json|model\.safetensors", str(error)), str(error)
        finally:
            file.write_bytes(saved)


TOKENIZERS: dict[str, Any] = {
    "a list": [],
    "a number": 5,
    "no model": {},
    "a model of text": {"model": "BPE"},
    "pieces that are none": {"model": {"type": "BPE", "vocab": 5}},
    "lists of three": {"model": {"type": "Unigram", "vocab": [["<unk>", 0.0, 1]]}},
    "merges of what is not there": {
        "model": {"type": "BPE", "vocab": dict(zip([*SPECIALS, "a"], range(5), strict=True)),
                  "merges": [["x", "y"]] * 5},
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_a_tokenizer_that_is(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(TOKENIZERS[kind]), "utf-8")
    settings = {"model_type": "t5", "vocab_size": 9, "pad_token_id": 1, "eos_token_id": 3}
    with pytest.raises(ExchangeError, match=r"tokenizer\.json"):
        hub_vocabulary(tmp_path, settings | {"decoder_start_token_id": 2}, {})


# ------------------------------ Imported runs train in place from their weights
SIDES = {
    "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 12, "decoder_ffn_dim": 12,
    "max_position_embeddings": 256, "d_model": 8, "dropout": 0.0, "attention_dropout": 0.0,
    "activation_dropout": 0.0, "forced_eos_token_id": None,
}  # fmt: skip
T5 = {"d_model": 8, "d_kv": 4, "d_ff": 12, "num_layers": 1, "num_heads": 2, "dropout_rate": 0.0}
# every family whose models become runs
PUBLISHED: dict[str, Any] = {"T5": T5} | dict.fromkeys(("Bart", "Marian", "Pegasus"), SIDES)


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A translator with a tokenizer over bytes, which has been trained for two steps."""
    return translator(tmp_path_factory.mktemp("toy"), "bpe")


def published(family: str, toy: Any, folder: Path) -> Path:
    """A folder as transformers and tokenizers write it, with weights drawn by chance."""
    tokenizer = toy.task.source_tokenizer
    ids = {"pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 3, "decoder_start_token_id": 2}
    fields = PUBLISHED[family] | ids | {"vocab_size": tokenizer.vocab_size}
    config = getattr(transformers, f"{family}Config")(**fields)
    name = {"Marian": "MarianMTModel"}.get(family, f"{family}ForConditionalGeneration")
    torch.manual_seed(3)
    getattr(transformers, name)(config).save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json(tokenizer)), "utf-8")
    return folder


def first_loss(run: Any, step: int = 0) -> float:
    """The mean loss of the first batch of training, by the weights of a run."""
    plan = run.task.plan(run.task.lengths("train"), run.config.train.batch_tokens, run.config.seed)
    batch = run.task.batch("train", plan.epoch(0)[step].tolist())
    loss = run.task.loss(run.model, batch, run.config.objective.build())
    return float(loss.total.detach()) / loss.count


@pytest.mark.parametrize("family", PUBLISHED)
@pytest.mark.parametrize("edited", [True, False], ids=["edited", "overrides"])
def test_an_imported_run_trains_in_place(family, edited, toy, tmp_path, call) -> None:
    """Its data are named in its config.toml or on the command line; validation is not needed."""
    run = tmp_path / "run"
    printed = call("import", published(family, toy, tmp_path / "theirs"), run)
    assert printed.code == 0 and "foveate train" in printed.out, printed
    keys = {"task.source": toy.config.task.source, "train.max_steps": "2"}
    keys |= {"train.log_every": "1", "train.batch_tokens": "256", "train.optimizer.lr": "0.01"}
    keys |= {"train.precision": "fp32"} | ({"train.validation.every": "none"} if edited else {})
    text = (run / "config.toml").read_text("utf-8")
    if edited:
        text = text.replace("{split}.source", keys.pop("task.source"))
        (run / "config.toml").write_text(text.replace('target = "{split}.target"\n', ""), "utf-8")
    else:
        keys["task.target"] = "none"
    before = foveate.load(run)
    overrides = [f"{key}={value}" for key, value in keys.items()]
    printed = call("train", run / "config.toml", *overrides)
    assert printed.code == 0, printed
    assert f"starts from the weights of {run}" in printed.err
    run_after = foveate.load(run)
    before.task.config, before.config = run_after.task.config, run_after.config
    log = [line for line in journal.read(run) if line["event"] == "train"]
    assert [line["step"] for line in log] == [1, 2]
    assert log[0]["loss"] == pytest.approx(first_loss(before), rel=1e-5)
    assert first_loss(run_after) < log[0]["loss"], "what answers are the trained weights"
    assert call("translate", run, text=b"the dog runs\n").code == 0
    longer = call("train", run / "config.toml", *overrides, "train.max_steps=3")
    assert longer.code == 0 and "resuming from step 2" in longer.err
    assert call("translate", run, "--checkpoint", "3", text=b"the dog runs\n").code == 0


def test_another_model_is_refused_before_the_first_step(toy, tmp_path, call) -> None:
    run = tmp_path / "run"
    import_from(published("Bart", toy, tmp_path / "theirs"), run)
    keys = ["task.source=a", "train.max_steps=2", "model.decoder.num_layers=3"]
    printed = call("train", run / "config.toml", *keys)
    assert printed.code == 2 and "model.decoder.num_layers is 1 there and 3 now" in printed.err


# ---- Special tokens: in texts, and at the start and end of outputs
WAYS = {
    "bpe": {"kind": "bpe", "vocab_size": 320, "min_frequency": 1},
    "unigram": {"kind": "unigram", "vocab_size": 320},
    "byte": {"kind": "byte"},
    "character": {"kind": "character"},
    "symbols": {"kind": "character", "symbols": "<[^<>]+>"},
    "symbol": {"kind": "symbol"},
}


@pytest.mark.parametrize("kind", WAYS)
def test_a_tokenizer_json_cuts_every_text_as_ours_does(kind: str, tmp_path: Path) -> None:
    """Names of special tokens in a text are text."""
    texts = ["le chien dort .", "", " ", "a<b", "<e6> l'été 🙂"]
    for name in SPECIALS:
        texts += [name, f"le {name} dort", f"{name}{name}x", f"x{name}", f" {name} ", name.upper()]
    own: Tokenizer = Tokenizer.Config.parse(WAYS[kind]).build()
    own.train(["le chien dort .", "the dog runs", "<N> <s> a"] * 3)
    standard = rust.Tokenizer.from_str(json.dumps(tokenizer_json(own)))
    for text in texts:
        ids = standard.encode(text, add_special_tokens=False).ids
        assert ids == own.encode(text).ids, text
        assert standard.encode(text).ids == [*ids, EOS]


@pytest.mark.parametrize("place", [".", "run", "run/checkpoints/x"])
def test_a_folder_of_another_library_is_named_in_its_errors(tmp_path, monkeypatch, place) -> None:
    """It is named itself, not the folder around it, whatever weights it holds."""
    monkeypatch.chdir(tmp_path)
    folder = Path(place)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text("{}", "utf-8")
    for weights in ("pytorch_model.bin", "model.safetensors"):
        (folder / weights).write_bytes(b"")
        named = re.escape(str(folder / "config.json"))
        with pytest.raises(ExchangeError, match=rf"^{named}: model_type = 'None'"):
            foveate.load(folder)
    (folder / "config.json").unlink()
    with pytest.raises(ConfigError, match="hf download some-lab/a-model"):
        foveate.load("some-lab/a-model")
