"""docs/claims.md: the verdicts that need no training, and that the page is what the JSON gives."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
RECORD = json.loads((ROOT / "docs" / "results" / "claims.json").read_text("utf-8"))
VERDICTS = {row["name"]: row["verdict"] for row in RECORD["claims"]}


@pytest.fixture(scope="module")
def tool() -> Any:
    """benchmarks/claims.py, imported from its folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        return importlib.import_module("claims")


def test_every_claim_is_in_the_record_and_there_are_thirty_at_least(tool: Any) -> None:
    assert set(VERDICTS) == set(tool.CLAIMS)
    assert len(VERDICTS) >= 30
    assert all(row["criterion"] for row in RECORD["claims"])


def test_the_verdicts_are_those_of_the_record(tool: Any) -> None:
    decided = {row["name"]: row["verdict"] for row in tool.results()}
    assert decided == VERDICTS


def test_the_page_is_what_the_record_gives(tool: Any) -> None:
    assert (ROOT / "docs" / "claims.md").read_text("utf-8") == tool.page(RECORD)


def test_a_verdict_needs_its_criterion(tool: Any) -> None:
    assert tool.verdict(False, "it is so") == "does not hold here"
    assert tool.verdict(True, "it is so") == "holds only if it is so"
    assert tool.verdict(True) == "holds"
