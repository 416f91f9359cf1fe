"""Packed files of each family that stay as they are, with their answers; also a program.

python -m stored_models FOLDER            prints the answers of its files, by their names
python -m stored_models FOLDER --write    trains models and writes files and answers (needs PyTorch)

Later versions of foveate must read the files of earlier layouts and answer the same
(`test_packed_stored`). A folder is written once: a new layout gets a new one.
"""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import foveate.engine.packed
from foveate.engine.packed import PackedModel

SOURCES = ["the dog runs", "a cat sleeps", "the man reads", "a girl", ""]
PAIRS = [("the dog runs", "le chien court"), ("a cat", "une fille dort")]
BEAM = {"beam_size": 4, "num_hypotheses": 2, "length_penalty": 0.6}
TERMS = [[["mange", "dort"]], [], [["homme"], ["chante"]], [["une fille"]], []]
ANSWERS = "answers.json"

TRANSFORMER = 'kind = "transformer", hidden_size = 16, num_heads = 2, num_layers = 2, ffn_size = 32'
RECURRENT = 'kind = "recurrent", embedding_size = 16, hidden_size = 16'
MAMBA = 'kind = "mamba", hidden_size = 16, num_layers = 2'
Sides = tuple[str, str]
TRANSLATORS: dict[str, tuple[str, Sides]] = {  # precision; encoder and decoder
    "transformer_pre": ("fp32", (TRANSFORMER + ', norm_order = "pre"',) * 2),
    "transformer_post": ("int8", (TRANSFORMER + ', norm_order = "post"',) * 2),
    "ssru": ("int8", (TRANSFORMER, TRANSFORMER.replace("transformer", "ssru"))),
    "guided": ("fp16", (TRANSFORMER, TRANSFORMER)),
    "gru_bahdanau": (
        "int8",
        (RECURRENT + ", bidirectional = true",
         RECURRENT + ', attention = {{ score = "additive", query = "previous" }}'),
    ),
    "lstm_luong": (
        "fp32",
        (RECURRENT + ', cell = "lstm"',
         RECURRENT + ', cell = "lstm", attention = {{ score = "general", query = "current" }}'),
    ),
    "without_attention": ("int8", (RECURRENT + ', cell = "gru"',) * 2),
    "mamba": ("fp32", (MAMBA, MAMBA)),
}  # fmt: skip
LANGUAGE_MODELS = {  # precision; decoder; task
    "decoder_only": ("fp32", TRANSFORMER + ', position = "rope"', "language"),
    "prefix": ("int8", TRANSFORMER, "prefix_translation"),
    "recurrent_language": ("int8", RECURRENT + ', readout = "state"', "language"),
}


def answers(model: PackedModel) -> dict[str, Any]:
    """What is asked of a model of each task: texts, and numbers of them."""
    if model.header.task == "classification":
        return {"labels": [answer.probabilities for answer in model.classify(SOURCES)]}
    if model.header.task == "language":
        prompts, how = ["the dog", "a "], {"max_length": 24}
        drawn = {"seed": 3, "temperature": 0.8, "top_k": 5, "num": 2}
        return {
            name: [[each.text, each.log_probability] for each in model.generate(prompts, **more)]
            for name, more in (("beam", how | {"beam_size": 2}), ("drawn", how | drawn))
        }
    asked = {"greedy": {"beam_size": 1}, "beam": BEAM, "terms": BEAM | {"required": TERMS}}
    translations = {
        name: [[list(a.hypotheses), list(a.scores)] for a in model.translate(SOURCES, **more)]
        for name, more in asked.items()
    }
    links = [sorted(each) for each in model.links(PAIRS)] if model.aligns else []
    scores = [[score.tokens, score.log_probability] for score in model.score(PAIRS)]
    return translations | {"scores": scores, "links": links}


def answers_of(folder: Path) -> dict[str, Any]:
    """The answers of all files of a folder, as JSON has them."""
    files = sorted(folder.glob("*.safetensors"))
    each = {file.stem: answers(foveate.engine.packed.load(file, threads=1)) for file in files}
    return json.loads(json.dumps(each))


def configs() -> dict[str, tuple[str, str]]:
    """Precision and config of each model."""
    from small_runs import CLASSIFIER, LANGUAGE, TRANSLATOR

    made = {
        name: (precision, TRANSLATOR.replace("{encoder}", a).replace("{decoder}", b))
        for name, (precision, (a, b)) in TRANSLATORS.items()
    }
    guided = made["guided"][1].replace('"translation"', '"guided_translation"')
    made["guided"] = made["guided"][0], guided
    data = LANGUAGE.partition("[model]")[0]
    pairs = TRANSLATOR.partition("[model]")[0].replace('"translation"', '"prefix_translation"')
    for name, (precision, decoder, task) in LANGUAGE_MODELS.items():
        model = f'[model]\nkind = "language_model"\ndecoder = {{{{ {decoder}, dropout = 0.0 }}}}\n'
        made[name] = precision, (data if task == "language" else pairs) + model
    return made | {"classifier": ("fp32", CLASSIFIER)}


def write(folder: Path) -> None:
    """Train the models, and write their files and answers. Raises ``FileExistsError``."""
    from foveate.run.pack import pack
    from foveate.run.training import train
    from small_runs import config_file, write_data

    folder.mkdir(parents=True)
    with TemporaryDirectory() as made:
        write_data(Path(made))
        for name, (precision, text) in configs().items():
            config = config_file(Path(made), text, 80, name=name)
            run = train(config, folder=Path(made, "runs", name))
            pack(run, folder / f"{name}.safetensors", precision)
    content = json.dumps(answers_of(folder), ensure_ascii=False, indent=1)
    (folder / ANSWERS).write_text(content + "\n", "utf-8")


if __name__ == "__main__":
    if sys.argv[2:] == ["--write"]:
        write(Path(sys.argv[1]))
    else:
        print(json.dumps(answers_of(Path(sys.argv[1]))))
