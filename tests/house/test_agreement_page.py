"""The page of results on the embedded model is written by its recipe, and the commands that it shows make its
tables."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from mixlens.runs.judge import ask
from recipes.pages import agreement


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The text of the page from two sentences and few methods, and the methods of each run by the folder of the run."""
    asked: dict[str, list[str]] = {}
    slow = ask.every_method()[1][:1]
    monkeypatch.setattr(agreement, "DOCS", tmp_path / "docs")
    monkeypatch.setattr(agreement, "every_method", lambda: (["random", "alti", "blank_out"], slow))
    monkeypatch.setattr(agreement, "GRADIENTS", ("attcat", "grad_x_input"))
    monkeypatch.setattr(agreement, "SEVERAL", ("random", "alti", "attcat"))
    made = agreement.Runs.judged

    def judged(runs: Any, name: str, methods: Any, **options: Any) -> Any:
        asked[name] = list(methods)
        return made(runs, name, methods, **options)

    monkeypatch.setattr(agreement.Runs, "judged", judged)
    agreement.main(str(tmp_path / "runs"), "2")
    return (tmp_path / "docs" / "agreement.md").read_text("utf-8"), asked


def test_the_page_says_what_was_run(page: Any) -> None:
    text, asked = page
    slow = ask.every_method()[1][0]
    found = re.search(r"n = 2 held-out sentences, of which the model gets (\d)\nright", text)
    assert found is not None
    assert int(found[1]) <= 2
    assert re.search(rf"leaves out `{slow}`, .*:\n(\d+\.\d\d) to \1 seconds", text)
    assert "LIME" not in text
    commands = [shlex.split(line) for line in re.findall(r"(?m)^    (mixlens judge .*)$", text)]
    methods = [one[one.index("--methods") + 1].split(",") for one in commands]
    assert methods[0] == ["all", slow]
    assert methods[1:] == [asked[f"agreement-{name}"] for name in ("measured", "logit", "fillers")]
    assert all("--n 2 " in " ".join(one) for one in commands)


def test_the_page_is_made_without_arguments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As its third line says."""
    seen: list[Any] = []
    monkeypatch.setattr(agreement, "DOCS", tmp_path)
    monkeypatch.setattr(agreement, "page", lambda runs: seen.append((runs.folder, runs.n)) or "text")
    agreement.main()
    assert seen == [(Path("runs/agreement-page"), 100)]
