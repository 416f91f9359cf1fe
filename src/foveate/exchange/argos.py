"""Export a translator as a package that `argostranslate`, and so LibreTranslate, installs.

It is a zip archive of one folder: metadata.json, a CTranslate2 model in model/, and
sentencepiece.model. Argos splits sentences itself, with a model that it downloads at first use.
It computes in eight bits unless ``ARGOS_COMPUTE_TYPE=default`` leaves the weights as they are.
"""

import json
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from foveate.data.tokenizer import Tokenizer
from foveate.decode.beam import Beam
from foveate.decode.constraints import MinLength
from foveate.decode.engine import SearchRequest
from foveate.exchange.base import (
    POINTER,
    Checked,
    CheckSample,
    Different,
    ExchangeError,
    Export,
    held_by_chrf,
    translator,
)
from foveate.exchange.ctranslate2 import CTranslate2, specification
from foveate.exchange.tokenizers import differing, named, refuse, sentencepiece_model
from foveate.run.answering import answer

MODEL, METADATA = "sentencepiece.model", "metadata.json"
BEAM, EXPONENT, LONGEST = 4, 0.2, 256  # Argos' search
RARE = 0.01  # the share of lines that may be split differently
WHEN = (1980, 1, 1, 0, 0, 0)  # zip's earliest time, so that the bytes are reproducible


class Argos(Export):
    """A single file, NAME.argosmodel."""

    to = "argos"
    packages = ("ctranslate2", "sentencepiece", "protobuf")
    precisions = ("float32", "int8")
    suffix = ".argosmodel"

    def refuse(self) -> None:
        CTranslate2(self.run, self.quantization).refuse()
        task: Any = self.run.config.task
        if not task.joint:
            raise ExchangeError(
                "Argos has one tokenizer for both sides: train with task.joint = true, or export "
                "to ctranslate2"
            )
        refuse(self._tokenizer)
        self._codes()

    @property
    def _tokenizer(self) -> Tokenizer:
        return translator(self.run).source_tokenizer

    def _codes(self) -> tuple[str, str]:
        """Return the language codes: those requested, else the extensions of the data files."""
        task: Any = self.run.config.task
        languages = self.languages or tuple(
            Path(str(name).removesuffix(".gz")).suffix[1:] for name in (task.source, task.target)
        )
        if len(languages) != 2 or not all(2 <= len(code) <= 3 for code in languages):
            raise ExchangeError(
                "Argos needs the languages: --language en --language fr (source, target)"
            )
        return languages[0], languages[1]

    def write(self, place: Path, pointer: dict[str, object]) -> None:
        source, target = self._codes()
        pieces = named(self._tokenizer)
        spec = specification(self.run, self.quantization, pieces, pieces)
        metadata = {"package_version": "1.0", "argos_version": "1.9", "type": "translate"}
        metadata |= {"from_code": source, "from_name": source, "to_code": target, "to_name": target}
        with tempfile.TemporaryDirectory() as name, zipfile.ZipFile(place, "w") as archive:
            spec.save(name)
            for path in sorted(Path(name).iterdir()):
                _put(archive, f"{self._folder}/model/{path.name}", path.read_bytes())
            _put(archive, f"{self._folder}/{MODEL}", sentencepiece_model(self._tokenizer))
            _put(archive, f"{self._folder}/{METADATA}", _text(metadata))

    @property
    def _folder(self) -> str:
        return "translate-{}_{}-1_0".format(*self._codes())

    def finish(self, place: Path, pointer: dict[str, object]) -> None:
        with zipfile.ZipFile(place, "a") as archive:
            _put(archive, f"{self._folder}/{POINTER}", _text(pointer))

    def check(self, place: Path, sample: CheckSample) -> Checked:
        with unpacked(place) as folder:
            model = (folder / MODEL).read_bytes()
            lines = [line for line in sample.sources if line.strip()]
            other = differing(self._tokenizer, model, lines)
            if len(other) > RARE * len(lines):
                raise Different(
                    f"{len(other)} of {len(lines)} lines are cut differently by SentencePiece, as "
                    f"{lines[other[0]]!r}: this tokenizer cannot be converted; nothing was written"
                )
            comparable = [line for number, line in enumerate(lines) if number not in set(other)]
            theirs = answers(folder, comparable)
        ours = self._ours(comparable)
        name = f"Argos' beam of {BEAM}"
        if self.quantization != "float32":
            if sample.references is None:
                raise ExchangeError(
                    "int8 is compared by chrF: SOURCE TAB REFERENCE in --sample FILE"
                )
            right = dict(zip(sample.sources, sample.references, strict=True))
            scores = held_by_chrf(ours, theirs, [right[line] for line in comparable])
            return Checked(len(comparable), [name], chrf=scores)
        for number, (line, mine, there) in enumerate(zip(comparable, ours, theirs, strict=True)):
            if mine != there:
                raise Different(
                    f"sentence {number + 1} of the sample comes out differently: {line!r} gives "
                    f"{mine!r} here and {there!r} there; nothing was written"
                )
        tokens = sum(map(len, self._tokenizer.encode_ids(ours)))
        return Checked(len(comparable), [name], tokens, cut_otherwise=len(other))

    def _ours(self, lines: list[str]) -> list[str]:
        """Return the outputs of the run by Argos' search, in which no output is empty.

        Argos replaces each _ by a space.
        """
        fields: dict[str, Any] = {
            "beam_size": BEAM,
            "length_penalty": EXPONENT,  # log p / |y|^0.2, as CTranslate2 ranks
            "length_offset": 0,
            "max_ratio": 0,
            "max_extra": LONGEST,
            "rules": (MinLength.Config(length=1),),
        }
        task, request = translator(self.run), SearchRequest(Beam.Config(**fields).build())
        answers = answer(task, self.run.engine, lines, request)
        return [str(answer).replace("_", " ") for answer in answers]


@contextmanager
def unpacked(place: Path) -> Iterator[Path]:
    """Yield the folder in a package, unpacked."""
    with tempfile.TemporaryDirectory() as name:
        with zipfile.ZipFile(place) as archive:
            archive.extractall(name)
        (folder,) = Path(name).iterdir()
        yield folder


def answers(folder: Path, lines: list[str]) -> list[str]:
    """Return the answers of Argos' components to lines of one sentence each."""
    import ctranslate2  # type: ignore[import-untyped]
    import sentencepiece

    translator = ctranslate2.Translator(str(folder / "model"), compute_type="default")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / MODEL))
    results = translator.translate_batch(
        processor.encode(lines, out_type=str),
        replace_unknowns=True,
        max_batch_size=32,
        beam_size=BEAM,
        num_hypotheses=BEAM,
        length_penalty=EXPONENT,
    )
    texts = (processor.decode_pieces(result.hypotheses[0]) for result in results)
    return [text.replace("▁", " ").replace("_", " ").removeprefix(" ") for text in texts]


def _put(archive: zipfile.ZipFile, name: str, content: bytes | str) -> None:
    archive.writestr(zipfile.ZipInfo(name, WHEN), content, zipfile.ZIP_DEFLATED)


def _text(tree: Mapping[str, object]) -> str:
    return json.dumps(tree, indent=2, sort_keys=True) + "\n"
