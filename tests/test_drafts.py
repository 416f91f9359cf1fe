"""Drafts: estimates with intervals that cover, tables and pages of what to look at first."""

import base64
import gzip
import hashlib
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import spearmanr
from sklearn.linear_model import Ridge
from typer.testing import CliRunner

import foveate
import foveate.documents.drafts as drafts
import foveate.engine.packed as packed
from foveate.cli import app
from foveate.config import ConfigError
from foveate.data.text import TextData, read_pairs
from foveate.documents.folders import weights_of
from foveate.documents.trust import COVERAGE, RIDGE, Trust, mean_of, ridge, signals
from foveate.tasks.metrics import sentence_scores
from small_runs import invoked

PACKAGED = Path(foveate.__file__).parent / "packaged"
RUN, DATA = PACKAGED / "en-fr", PACKAGED / "data"

CATALOGUE = """msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\\n"

msgid "Ruth, my daughter will become intelligent."
msgstr ""

msgid "Done before."
msgstr "Faite."

msgid "Who will become %(how)s?"
msgstr ""
"""


def texts(name: str) -> list[str]:
    text = gzip.decompress((DATA / f"{name}.gz").read_bytes()).decode()
    return text.removesuffix("\n").split("\n")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("drafts") / "en-fr.safetensors"
    shutil.copy(RUN / "packed.safetensors", file)
    drafts.calibrate(packed.load(file, 1), texts("valid.en"), texts("valid.fr"))
    return file


def synthetic(count: int, seed: int) -> tuple[list[tuple[float, ...]], NDArray[np.float64]]:
    """Signals, and a chrF that depends on them and varies more where it is high."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(count, 3))
    right = 50 + 20 * np.tanh(x[:, 0] - 0.5 * x[:, 2])
    return list(map(tuple, x)), np.clip(right + draw.normal(size=count) * right / 8, 0, 100)


def test_intervals_cover_four_fifths_of_other_sentences() -> None:
    x, chrf = synthetic(4000, 2)
    inside, chapters = [], []
    for seed in range(3, 11):
        trust = Trust.fit(*synthetic(2000, seed))
        each = [trust.estimate(own) for own in x]
        inside += [low <= c <= high for (_, low, high, _), c in zip(each, chrf, strict=True)]
        for first in range(0, 4000, 40):
            _, low, high, _ = mean_of(each[first : first + 40])
            chapters.append(low <= chrf[first : first + 40].mean() <= high)
    assert abs(np.mean(inside) - COVERAGE) < 0.02
    assert 0.65 <= np.mean(chapters) <= 0.95
    assert np.corrcoef([e.chrf for e in each], chrf)[0, 1] > 0.85
    widths = [own.deviation for own in sorted(each)]
    assert widths[-1] > widths[0], "the interval is wider where errors are larger"


def test_the_regressions_are_those_of_scikit_learn() -> None:
    own, chrf = synthetic(600, 3)
    x = np.array(own)
    spread = x.std(axis=0)
    *weights, constant = ridge(x, chrf)
    right = Ridge(RIDGE).fit(x / spread, chrf)
    np.testing.assert_allclose(weights, right.coef_ / spread)
    np.testing.assert_allclose(constant, right.intercept_)
    column = np.concatenate([x, np.full((len(x), 1), 7.0)], axis=1)
    np.testing.assert_allclose(ridge(column, chrf)[3], 0, atol=1e-6)


def test_the_estimates_rank_real_translations(model: Path) -> None:
    loaded = packed.load(model, 1)
    trust = drafts.trust_of(loaded, "m")
    assert trust.sentences == 100
    answers = loaded.translate(texts("test.en"))
    chrf = sentence_scores("chrf", list(map(str, answers)), texts("test.fr"))
    each = [trust.estimate(own) for own in signals(loaded, answers)]
    inside = np.mean([low <= c <= high for (_, low, high, _), c in zip(each, chrf, strict=True)])
    assert inside > 0.7
    assert spearmanr([e.chrf for e in each], chrf).statistic > 0.3
    assert signals(loaded, loaded.translate(["", " "])) == [(), ()]


def test_a_calibration_belongs_to_weights(model: Path, tmp_path: Path) -> None:
    other = tmp_path / "en-fr.safetensors"
    shutil.copy(model, other)
    text = drafts.trust_file(model).read_text("utf-8")
    digest = drafts.digest_of(packed.load(model))
    assert drafts.trust_file(other) == tmp_path / "en-fr.trust.json" and digest in text
    drafts.trust_file(other).write_text(text.replace(digest, "0" * 64), "utf-8")
    with pytest.raises(ConfigError, match="m has no calibration for its weights"):
        drafts.trust_of(packed.load(other), "m")
    run = tmp_path / "run"
    shutil.copytree(RUN, run)
    drafts.trust_file(run).write_text(text, "utf-8")
    assert drafts.trust_file(run / "packed.safetensors") == run / "trust.json"
    file = packed.load(run / "packed.safetensors")
    assert drafts.trust_of(file, "m") == drafts.trust_of(foveate.load(run), "m"), "same weights"
    drafts.trust_file(run).unlink()
    checkpoint = str(run / foveate.load(run).checkpoint)
    before = weights_of(checkpoint)
    drafts.trust_file(run).write_text("{}", "utf-8")
    assert weights_of(checkpoint) == before, "a folder's translation, begun before, is resumed"
    with pytest.raises(ConfigError, match=r"trust\.json is damaged"):
        drafts.trust_of(foveate.load(run), "m")
    with pytest.raises(ConfigError, match="2 held-out lines are too few: give 50, better 500"):
        drafts.calibrate(packed.load(model, 1), texts("valid.en")[:2], texts("valid.fr")[:2])


def test_a_catalogue_is_drafted_with_a_table_and_a_page(model: Path, tmp_path: Path) -> None:
    book, out = tmp_path / "a.po", tmp_path / "a.fr.po"
    book.write_text(CATALOGUE, "utf-8")
    said = invoked("draft", model, book, out, "--second", PACKAGED / "rnn", "--red", "50").output
    assert "expected chrF" in said and "1 messages left" in said
    assert out.read_text("utf-8").count("#, fuzzy") == 2
    header, *rows = (r.split("\t") for r in Path(f"{out}.trust.tsv").read_text().split("\n")[:-1])
    assert header == list(drafts.COLUMNS)
    units = {row[0]: row for row in rows}
    assert set(units) == {"line 4", "line 10"}
    assert units["line 10"][2] == "Who will become %(how)s?" and units["line 4"][9] == "Ruth"
    chrf = [float(row[4] or -1) for row in rows]
    assert chrf == sorted(chrf)
    for row, own in zip(rows, chrf, strict=True):
        assert row[7] == ("red" if own < 50 else "yellow" if own < 60 else "green")
        assert 0 <= float(row[8]) <= 100
    page = Path(f"{out}.trust.html").read_text("utf-8")
    shown = json.loads(re.findall(r"json\">(.*?)</script>", page)[0])
    assert shown["rows"] == rows and shown["chapters"][0][0] == "whole book"
    script = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)[0].encode()
    digest = base64.b64encode(hashlib.sha256(script).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page and "{{" not in page


BOOK = r"""\id RUT
\h Ruth
\c 1
\p
\v 1 My daughter \add will\add* become \w intelligent|lemma="sophos"\w*.\f + \fr 1:1 \ft Or: wise\f*
\v 2 Who will become sick,
\q1 and she is kind?
\c 2
\v 1-2 She is kind.
"""
XLIFF = """<xliff version="1.2"><file original="a.ts" target-language="fr"><body><trans-unit id="7">
<source>She is <g id="1">kind</g>.</source></trans-unit></body></file></xliff>"""


def test_verses_and_units_are_drafted_by_chapters(model: Path, tmp_path: Path) -> None:
    (tmp_path / "rut.SFM").write_text(BOOK, "utf-8")
    said = invoked("draft", model, tmp_path / "rut.SFM", tmp_path / "out.usfm").output
    assert "footnotes (1)" in said
    markers = re.compile(r"\\\+?[a-z]+\d?\*?")
    done = (tmp_path / "out.usfm").read_text("utf-8")
    assert sorted(markers.findall(done)) == sorted(markers.findall(BOOK))
    rows = [r.split("\t") for r in (tmp_path / "out.usfm.trust.tsv").read_text().split("\n")[1:-1]]
    sources = {row[0]: row[2] for row in rows}
    assert sources == {
        "RUT 0:\\h": "Ruth",
        "RUT 1:1": "My daughter will become intelligent.",
        "RUT 1:2": "Who will become sick, and she is kind?",
        "RUT 2:1-2": "She is kind.",
    }
    assert {row[1] for row in rows} == {"RUT 0", "RUT 1", "RUT 2"}
    page = (tmp_path / "out.usfm.trust.html").read_text("utf-8")
    chapters = json.loads(re.findall(r"json\">(.*?)</script>", page)[0])["chapters"]
    assert {part for part, *_ in chapters} >= {"whole book", "RUT 1", "RUT 2"}
    (tmp_path / "a.xlf").write_text(XLIFF, "utf-8")
    invoked("draft", model, tmp_path / "a.xlf", tmp_path / "out.xlf")
    assert (tmp_path / "out.xlf.trust.tsv").read_text("utf-8").split("\n")[1].startswith("a.ts:7\t")
    corpus, left = read_pairs(tmp_path / "out.xlf", None, TextData()), "needs-review-translation"
    assert corpus.dropped == {f"state {left}": 1}, "a draft is no data before it is corrected"
    corrected = (tmp_path / "out.xlf").read_text("utf-8").replace(left, "final")
    (tmp_path / "out.xlf").write_text(corrected, "utf-8")
    assert len(read_pairs(tmp_path / "out.xlf", None, TextData())) == 1


def test_a_draft_without_a_calibration_says_how_to_make_it(tmp_path: Path) -> None:
    run, book = tmp_path / "run", tmp_path / "book.txt"
    shutil.copytree(RUN, run)
    book.write_text("Chapter 1\nShe is kind.\n\nChapter 2\nWho will become sick?\n", "utf-8")
    done = CliRunner().invoke(app, ["draft", str(run), str(book), str(tmp_path / "out.txt")])
    message = r"has no calibration for its weights: .*--calibrate valid.src"
    assert re.search(message, str(done.exception))
    held = [DATA / f"valid.{side}.gz" for side in ("en", "fr")]
    said = invoked("draft", run, book, tmp_path / "out.txt", "--calibrate", *held).output
    assert "trust.json: fitted to 100 sentences" in said and (run / "trust.json").is_file()
    table = (tmp_path / "out.txt.trust.tsv").read_text("utf-8")
    assert {row.split("\t")[1] for row in table.split("\n")[1:-1]} == {"Chapter 1", "Chapter 2"}


def test_what_is_too_large_is_refused_in_a_sentence(model: Path, tmp_path: Path) -> None:
    book = tmp_path / "book.txt"
    with book.open("wb") as file:
        file.truncate(2**30)
    with pytest.raises(OSError, match="it has 1,073,741,824 bytes; at most 104,857,600 are read"):
        drafts.write_draft(packed.load(model, 1), "m", book, tmp_path / "out.txt")
    assert not (tmp_path / "out.txt").exists()
