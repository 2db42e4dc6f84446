"""Heads on the command line, in the terminal, in a notebook and on paper."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from test_cli import SENTENCE, refuse, run

import mixlens
from mixlens.show import text


@pytest.fixture(scope="module")
def heads() -> mixlens.HeadMaps:
    made = mixlens.mix(mixlens.load("agreement").trace(SENTENCE), "attention", head="all")
    assert isinstance(made, mixlens.HeadMaps)
    return made


def test_all_heads_are_a_table_of_what_each_does_most(heads: mixlens.HeadMaps) -> None:
    out = run("map", SENTENCE, "--method", "attention", "--head", "all", "--layer", "2", "--no-color")
    assert "method attention · after layer 2" in out
    lines = re.findall(r"head (\d)  (.+?)  +(\d[\d.]*) %", out)
    roles = heads.layer(1).roles()
    shown = [f"{100 * role.share:.0f}" if role.share >= 0.1 else f"{100 * role.share:.1f}" for role in roles]
    assert lines == [(str(role.head + 1), role.name, share) for role, share in zip(roles, shown, strict=True)]
    assert out.count("←") == 1 + len(roles)  # in the line that says what it means, and once for each head


def test_one_head_counts_from_one(heads: mixlens.HeadMaps, tmp_path: Path) -> None:
    place = tmp_path / "head.safetensors"
    printed = run("map", SENTENCE, "--method", "norm", "--head", "3", "--json", "--save", str(place))
    told = json.loads(printed.splitlines()[0])  # the line below it, on stderr, names the file
    expected = mixlens.mix(mixlens.load("agreement").trace(SENTENCE), "norm", head=2).scores
    assert told["info"]["options"] == {"head": 2}
    assert told["scores"][1][4] == pytest.approx(expected[1, 4].tolist(), rel=1e-5)
    assert mixlens.load_result(place).info["options"] == {"head": 2}
    assert "method attention · head 3 · after layer 4" in run(
        "map", SENTENCE, "--method", "attention", "--head", "3", "--no-color"
    )


def test_wrong_heads_are_refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def said(*arguments: str) -> str:
        return refuse(capsys, monkeypatch, "map", SENTENCE, *arguments)

    assert "'alti' has no option 'head'" in said("--head", "3")
    assert "--head is a number, counted from 1, or all, not '0'" in said("--method", "attention", "--head", "0")
    assert "head 5 does not exist: 'agreement' has heads 1 to 4" in said("--method", "attention", "--head", "5")
    assert "leave --rollout and --query out" in said("--method", "attention", "--head", "all", "--rollout")
    assert "explains a prediction" in said("--method", "attcat", "--head", "all")
    assert "gives a map for each head" in refuse(capsys, monkeypatch, "explain --method attention:head=all", SENTENCE)


def test_a_figure_and_a_notebook_name_the_heads(heads: mixlens.HeadMaps, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    place = tmp_path / "heads.svg"
    run("plot", SENTENCE, "--method", "attention", "--kind", "heads", "--layer", "2", "-o", str(place))
    drawn = place.read_text()
    for role in heads.layer(1).roles():
        assert role.name in drawn or role.name.split()[0] in drawn
    assert "heads of layer 2" in drawn
    html = heads._repr_html_()
    assert html.count("<td style") == len(heads.roles())
    with pytest.raises(mixlens.MixlensError, match="cannot be drawn as 'matrix'"):
        heads.plot(kind="matrix")


def test_the_view_fits_a_narrow_terminal(heads: mixlens.HeadMaps) -> None:
    for width in (40, 80):
        assert all(len(line) <= width for line in text.rendered(text.view(heads), width=width).splitlines())
