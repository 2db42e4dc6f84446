"""What a report is for: its presets, and texts that have no answer."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import mixlens
from mixlens.base import errors
from mixlens.show.report import PRESET_METHODS


@cache
def agreement() -> Any:
    return mixlens.load("agreement")


SENTENCE = "The keys [MASK] rusty."


def written(folder: Path, text: str = SENTENCE, **options: Any) -> dict[str, Any]:
    """The data of a page."""
    place = mixlens.report(agreement(), folder / "r.html", texts=text, **options)
    found = re.search(r'id="data">(.*?)</script>', place.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return dict(json.loads(found[1]))


def test_every_preset_has_its_methods_and_the_answer(tmp_path: Path) -> None:
    wanted = agreement().why(SENTENCE).to_dict()
    for preset in ("why", "methods"):  # "flow" is a page of its own: test_flow_page.py
        methods, data = PRESET_METHODS[preset], written(tmp_path, preset=preset)
        (entry,) = data["entries"]
        assert data["preset"] == preset
        assert [one["name"] for one in entry["methods"]] == list(methods)
        assert entry["why"]["sentence"] == wanted["sentence"]
        shares = [word["share"] for word in entry["why"]["words"]]
        assert shares == pytest.approx(
            [word["share"] for word in wanted["words"]], rel=1e-5, abs=1e-9
        )  # seven digits are kept


def test_an_unknown_preset_is_refused_before_anything_is_computed(tmp_path: Path) -> None:
    with pytest.raises(errors.InputError, match="preset is one of why, flow, methods, not 'all'"):
        mixlens.report(agreement(), tmp_path / "r.html", texts=SENTENCE, preset="all")
    assert list(tmp_path.iterdir()) == []


def test_a_text_without_an_answer_shows_its_maps_and_says_why(tmp_path: Path) -> None:
    (entry,) = written(tmp_path, "The keys are rusty.")["entries"]
    assert "why" not in entry
    assert "has no [MASK]" in entry["unanswered"]
    assert len(entry["methods"]) == 3
    with pytest.raises(errors.InputError, match="has no \\[MASK\\]"):
        written(tmp_path, "The keys are rusty.", preset="why")


def test_no_path_is_on_a_page(tmp_path: Path) -> None:
    folder = tmp_path / "some" / "model-of-mine"
    folder.parent.mkdir()
    agreement().hf_model.save_pretrained(folder)
    agreement().tokenizer.save_pretrained(folder)
    place = mixlens.report(mixlens.load(str(folder)), tmp_path / "r.html", texts=SENTENCE, methods=["alti", "attcat"])
    page = place.read_text(encoding="utf-8")
    assert "model-of-mine" in page
    assert str(tmp_path) not in page
