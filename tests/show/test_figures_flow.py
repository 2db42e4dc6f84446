"""Paper figures of a flow and of a matrix by words: they draw the numbers, grouped without loss, and nothing covers
another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.collections import QuadMesh
from matplotlib.colors import to_hex
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.text import Text
from test_cli import refuse, run
from test_figures import inside_and_apart, svg, texts

import mixlens
from mixlens import Map
from mixlens.base import errors
from mixlens.base.text import at_most, percent
from mixlens.show import colors, flow_groups, flow_numbers, flow_page
from mixlens.show.figure.flow import REST

INFO: dict[str, Any] = {
    "model": "m",
    "variant": "paper",
    "causal": False,
    "query": 0,
    "prediction": [("positive", 0.75)],
}
PIECES = ("[CLS]", "the", "un", "##hap", "##py", "keys", ".", "[SEP]", "they", "rust", "##ed", ".", "[SEP]")
WORDS = (
    *(("[CLS]", (0,)), ("The", (1,)), ("unhappy", (2, 3, 4)), ("keys", (5,)), (".", (6,)), ("[SEP]", (7,))),
    *(("They", (8,)), ("rusted", (9, 10)), (".", (11,)), ("[SEP]", (12,))),
)
SPECIAL = tuple(token in ("[CLS]", "[SEP]") for token in PIECES)


def scores_of(depth: int, n: int, seed: int = 0) -> torch.Tensor:
    made = np.random.default_rng(seed).gamma(0.4, size=(depth, n, n))
    return torch.from_numpy(made / made.sum(-1, keepdims=True))


def pair(depth: int = 3, **info: Any) -> Map:
    about = {**INFO, "text": "The unhappy keys.", "pair": "They rusted.", **info}
    return Map(scores_of(depth, len(PIECES)), PIECES, "alti", about, SPECIAL, WORDS)


def long_text(count: int = 40, sentence: int = 8) -> Map:
    """Words of which every `sentence`-th ends a sentence."""
    names = [
        f"Word{i}" if i % sentence == 0 else f"w{i}." if i % sentence == sentence - 1 else f"word{i}"
        for i in range(count)
    ]
    tokens = ("[CLS]", *names, "[SEP]")
    special = (True, *[False] * count, True)
    words = tuple((token, (place,)) for place, token in enumerate(tokens))
    return Map(scores_of(4, len(tokens), 1), tokens, "alti", {**INFO, "text": " ".join(names)}, special, words)


def patches(made: Any, kind: type, colour: str) -> list[Any]:
    return [
        one for one in made.axes[0].patches if isinstance(one, kind) and to_hex(one.get_facecolor()) == colour.lower()
    ]


def wide(band: PathPatch) -> float:
    """The width of a band at its lower end."""
    corners = band.get_path().vertices
    return float(corners[7][0] - corners[0][0])


# --- the flow ---------------------------------------------------------------------------------------------------------


def test_bands_are_as_wide_as_their_shares_and_every_level_adds_up() -> None:
    made, numbers = pair().plot(kind="flow", width="double"), flow_page.picture_of(pair())
    bands = patches(made, PathPatch, REST)
    assert len(bands) == len(numbers.flow.bands.share)
    scale = max(
        bar.get_width() for bar in made.axes[0].patches if isinstance(bar, Rectangle)
    )  # the answer's bar: 100 %
    np.testing.assert_allclose(sorted(map(wide, bands)), np.sort(numbers.flow.bands.share) * scale, atol=1e-9)
    heights = {round(float(band.get_path().vertices[0][1]), 6) for band in bands}
    assert len(heights) == 3
    for height in heights:
        level = sum(wide(band) for band in bands if abs(band.get_path().vertices[0][1] - height) < 1e-5) / scale
        assert 1 - numbers.flow.undrawn - 1e-9 <= level <= 1 + 1e-9
    bars = [bar.get_width() / scale for bar in made.axes[0].patches if isinstance(bar, Rectangle)]
    assert abs(sum(bars) - 4) < 0.1  # four levels; a bar has a least width, so that it is seen


@pytest.mark.parametrize("top", [1, 3])
def test_what_is_violet_came_from_the_strongest_words(top: int) -> None:
    made, numbers = pair().plot(kind="flow", width="double", top=top), flow_page.picture_of(pair())
    words = [place for place, group in enumerate(numbers.groups) if group.kind == "word"]
    first = sorted(words, key=lambda place: -numbers.flow.shares[0, place])[:top]
    scale = max(bar.get_width() for bar in made.axes[0].patches if isinstance(bar, Rectangle))
    parts = numbers.flow.bands.parts[:, first].sum(1)
    drawn = sorted(map(wide, patches(made, PathPatch, colors.LIGHT["share"])))
    np.testing.assert_allclose(drawn, np.sort(parts[parts > 0.0004]) * scale, atol=1e-9)
    named = next(text for text in texts(svg(made)) if text.startswith("from "))
    assert all(f"“{numbers.groups[place].name}”" in named for place in first)
    assert named.count("“") == top


def test_the_legend_has_a_width_and_what_is_left_out() -> None:
    made = pair().plot(kind="flow", width="double")
    said = texts(svg(made))
    assert "this wide: 10 % of the answer" in [text.replace("\u202f", " ") for text in said]
    assert any(f"{100 * flow_numbers.DRAWN:.2f}" in text and "not drawn" in text for text in said)
    assert {"first text", "second text", "the answer: positive", "read at the start mark", "input", "layer 3"} <= set(
        said
    )
    scale = max(bar.get_width() for bar in made.axes[0].patches if isinstance(bar, Rectangle))
    sample = [
        box.get_width() for box in made.axes[1].patches if to_hex(box.get_facecolor()) == colors.LIGHT["soft"].lower()
    ]
    np.testing.assert_allclose(sample, [0.1 * scale])


def test_a_flow_leads_into_the_position_that_is_chosen() -> None:
    for made in (pair().plot(kind="flow", query=5), pair(query=5, prediction=[]).plot(kind="flow")):
        said = texts(svg(made))
        assert {"ALTI · into “keys”", "“keys”"} <= set(said)
        assert not any("answer" in text for text in said)  # no class is predicted there
        assert any(text.replace("\u202f", " ") == "this wide: 10 % of the flow" for text in said)


def test_a_flow_leads_into_all_pieces_of_a_word_or_names_the_piece() -> None:
    """Of a word: the average of the flows into its pieces, each by itself."""
    scores = pair()
    word, pieces = (
        flow_page.picture_of(scores, query=(2, 3, 4)),
        [flow_page.picture_of(scores, query=place) for place in (2, 3, 4)],
    )
    np.testing.assert_allclose(word.flow.shares, np.mean([one.flow.shares for one in pieces], 0), atol=1e-12)
    np.testing.assert_allclose(word.flow.words, np.mean([one.flow.words for one in pieces], 0), atol=1e-12)
    said = texts(svg(scores.plot(kind="flow", query="unhappy")))
    share = next(text for text in said if text.startswith("keys  "))
    assert share == f"keys  {percent(float(word.flow.words[3]))}"
    assert {"ALTI · into “unhappy”", "“unhappy”"} <= set(said)
    piece = texts(svg(scores.plot(kind="flow", query=3)))
    assert {"ALTI · into “##hap” of “unhappy”", "“##hap” of “unhappy”"} <= set(piece)
    assert "read at “##py” of “unhappy”" in texts(svg(pair(query=4).plot(kind="flow")))
    with pytest.raises(errors.InputError, match=r"the word '\.' occurs 2 times, at \[6, 11\]"):
        scores.plot(kind="flow", query=".")


def test_marks_look_alike_and_small_losses_are_words() -> None:
    made = pair().plot(kind="flow", width="double")
    styles = {text.get_text().split("  ")[0]: text.get_style() for text in made.axes[0].texts if "%" in text.get_text()}
    assert {name: styles[name] for name in ("start", "middle", "end", "keys")} == {
        **dict.fromkeys(("start", "middle", "end"), "italic"),
        "keys": "normal",
    }
    assert "a bar is violet where more than half of it is" in texts(svg(made))
    assert [at_most(one).replace("\u202f", " ") for one in (0.04, 0.0001, 0.0)] == [
        "at most 4.0 %",
        "under 0.1 %",
        "at most 0 %",
    ]


# --- the matrix -------------------------------------------------------------------------------------------------------


def mesh(made: Any) -> np.ndarray:
    (found,) = [one for one in made.axes[0].collections if isinstance(one, QuadMesh)]
    return np.asarray(found.get_array())


def test_a_matrix_has_words_as_rows_and_columns() -> None:
    scores = pair()
    made = scores.plot(layer=1)
    np.testing.assert_allclose(mesh(made), scores.by_word().scores[1].numpy(), atol=1e-12)
    said = texts(svg(made))
    for name in ("start", "The", "unhappy", "keys", "rusted", "middle", "end"):
        assert said.count(name) == 2, name  # beside a row and above a column
    assert "##hap" not in said
    assert said.count("first text") == said.count("second text") == 2
    assert "gave: words of the layer below" in said
    assert any(text.replace("\u202f", " ") == "percent of the row; every row adds up to 100 %" for text in said)


def test_pieces_stand_under_a_bracket_of_their_word() -> None:
    scores = pair()
    plain, made = scores.plot(layer=0), scores.plot(layer=0, pieces=True)
    np.testing.assert_array_equal(mesh(made), scores.scores[0].numpy())
    assert texts(svg(made)).count("##hap") == 2
    assert "gave: tokens of the input" in texts(svg(made))

    def brackets(page: Any) -> int:
        return len([line for line in page.axes[0].lines if isinstance(line, Line2D)])

    assert brackets(plain) == 4  # two texts, beside rows and above columns
    assert brackets(made) == 8  # and two words of several pieces


def test_special_tokens_are_outside_the_scale_and_the_answer_is_framed() -> None:
    scores = pair()
    loud = scores.scores.clone()
    loud[0, :, 12] = 50.0  # an end mark that takes nearly all
    loud = loud / loud.sum(-1, keepdim=True)
    made = Map(loud, PIECES, "alti", scores.info, SPECIAL, WORDS).plot(layer=0)
    (found,) = [one for one in made.axes[0].collections if isinstance(one, QuadMesh)]
    words = Map(loud, PIECES, "alti", scores.info, SPECIAL, WORDS).by_word().scores[0].numpy()
    inside = [1, 2, 3, 4, 6, 7, 8]
    others = words[:, inside][~np.eye(10, dtype=bool)[:, inside]]
    assert found.norm.vmax <= others.max() + 1e-12
    hatched = [box for box in made.axes[0].patches if box.get_hatch()]
    assert len(hatched) == 3
    frames = [box for box in made.axes[0].patches if not box.get_fill() and not box.get_hatch()]
    assert len(frames) == 1
    top = min(float(box.get_y()) for box in hatched)
    assert abs(frames[0].get_y() - top) < 1e-9  # the first row


def test_a_framed_row_is_the_answers_only_where_the_answer_is_read() -> None:
    def framed(**info: Any) -> str:
        return next(text for text in texts(svg(pair(**info).plot(layer=0))) if "row" in text and "percent" not in text)

    assert framed() == "the answer’s row"
    assert framed(query=5, prediction=[]) == "the row of “keys”"
    assert (
        framed(query=4) == "the row of “unhappy”, where the answer is read"
    )  # its last piece; the row is of all three


def test_numbers_stand_in_the_cells_of_words_and_of_pieces() -> None:
    scores = pair()
    for made, values in (
        (scores.plot(layer=0, numbers=True), scores.by_word().scores[0].numpy()),
        (scores.plot(layer=0, numbers=True, pieces=True, width="double"), scores.scores[0].numpy()),
    ):
        inside_and_apart(made)
        np.testing.assert_allclose(mesh(made), values, atol=1e-12)
        said = sorted(text for text in texts(svg(made)) if text == "·" or text.isdigit())
        assert said == sorted(f"{100 * one:.0f}" if one >= 0.005 else "·" for one in values.flat)
        assert {"the answer’s row", "first text", "second text"} <= set(texts(svg(made)))
    with pytest.raises(errors.InputError, match="too small for numbers"):
        scores.plot(layer=0, numbers=True, width=1.5)


def test_words_that_have_no_room_are_grouped_without_loss() -> None:
    """Slowly, pair by pair: what a sentence gave is a sum, what it took an average."""
    scores = long_text(48)
    made = scores.plot(layer=2, width="single")
    groups = flow_groups.groups_of(list(_words(scores)), 0, causal=False, most=10)
    layer, expected = scores.scores[2].numpy(), np.zeros((len(groups), len(groups)))
    for r, row in enumerate(groups):
        for c, column in enumerate(groups):
            expected[r, c] = sum(layer[i, j] for i in row.words for j in column.words) / len(row.words)
    assert len(groups) == 8
    np.testing.assert_allclose(mesh(made), expected, atol=1e-12)
    np.testing.assert_allclose(mesh(made).sum(1), 1, atol=1e-12)
    assert any("rows and columns are sentences" in text for text in texts(svg(made)))
    assert mesh(scores.plot(layer=2, width="double")).shape == (50, 50)


def _words(scores: Map) -> Any:
    from mixlens.base.words import words_in

    return words_in(scores)


def test_few_long_sentences_are_cut_into_runs() -> None:
    """One column for all of the text would tell nothing."""
    words = _words(long_text(45, sentence=100))
    groups = [group for group in flow_groups.groups_of(words, 0, causal=False) if group.kind == "part"]
    assert [len(group.words) for group in groups] == [9] * 5
    assert len(groups) >= flow_groups.FEW
    assert max(len(group.words) for group in groups) <= flow_groups.RUN


def test_a_wide_page_is_filled() -> None:
    """Cells of a page for both columns are wider than high; those of one column are square."""
    for scores in (long_text(5), long_text(12)):
        for width in ("single", "double"):
            made = scores.plot(width=width)
            (found,) = [one for one in made.axes[0].collections if isinstance(one, QuadMesh)]
            corners = np.asarray(found.get_coordinates())
            assert width == "single" or corners[..., 0].max() > 0.8 * made.get_figwidth()
            assert corners[1, 0, 1] - corners[0, 0, 1] <= 0.24 + 1e-9


def test_a_rollout_by_the_methods_own_convention_is_not_named_twice() -> None:
    own, other = ({"convention": name, "residual": False, "normalize": True} for name in ("alti", "toolkit"))
    assert "ALTI · rollout · layer 1" in texts(svg(pair(rollout=own).plot(layer=0)))
    assert "ALTI · rollout toolkit · layer 1" in texts(svg(pair(rollout=other).plot(layer=0)))


# --- both -------------------------------------------------------------------------------------------------------------

EVERY = {
    "pair": pair,
    "many layers": lambda: pair(13),
    "one word": lambda: Map(
        scores_of(1, 2), ("[CLS]", "no"), "alti", INFO, (True, False), (("[CLS]", (0,)), ("no", (1,)))
    ),
    "40 words": lambda: long_text(40),
    "one long sentence": lambda: long_text(70, sentence=100),
    "200 words": lambda: long_text(200),
}


@pytest.mark.parametrize(
    ("name", "width"),
    [*((name, "single") for name in EVERY), *((name, "double") for name in ("pair", "40 words", "200 words"))],
)
def test_nothing_covers_another(name: str, width: str) -> None:
    scores = EVERY[name]()
    made = [scores.plot(kind="flow", width=width), scores.plot(width=width)]
    if name == "pair":
        made.append(scores.plot(width=width, pieces=True))
    for page in made:
        inside_and_apart(page)
        assert page.get_figheight() <= 9
        assert min(text.get_fontsize() for text in page.findobj(Text) if text.get_text()) >= 6.5


def long_word() -> Map:
    tokens = ("[CLS]", "wonder" * 13, "[SEP]")
    words = tuple((token, (place,)) for place, token in enumerate(tokens))
    return Map(scores_of(3, 3), tokens, "alti", {**INFO, "text": tokens[1]}, (True, False, True), words)


def test_a_long_name_in_the_legend_is_shortened() -> None:
    made = long_word().plot(kind="flow")
    inside_and_apart(made)
    named = next(text for text in texts(svg(made)) if text.startswith("from "))
    assert "wonderw" in named
    assert "…”: " in named


def test_the_narrowest_matrix_is_whole() -> None:
    """At 1.5 inches the unit of the colour bar takes two lines, and the words of a short text stand side by side."""
    short = long_text(5)
    made = short.plot(width=1.5)
    inside_and_apart(made)
    assert mesh(made).shape == (7, 7)
    with pytest.raises(errors.InputError, match=r"12 words have no room side by side in 1\.5 inches"):
        long_text(10, sentence=20).plot(width=1.5)


def test_signed_maps_are_hatched_where_they_are_against() -> None:
    scores = pair(target="positive", score="logit")
    signed = Map(scores.scores - 0.08, PIECES, "attcat", scores.info, SPECIAL, WORDS)
    made = signed.plot(layer=0)
    values = mesh(made)
    inside = np.array([name not in (0, 5, 9) for name in range(10)])
    end = float(next(one for one in made.axes[0].collections if isinstance(one, QuadMesh)).norm.vmax)
    against = int((values[:, inside] <= -0.05 * end).sum())
    hatched = [box for box in made.axes[0].patches if box.get_hatch() == "/////"]
    assert len(hatched) == against > 0
    with pytest.raises(errors.InputError, match="scores below 0"):
        signed.plot(kind="flow")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pair().plot(kind="flow", layer=1), "'flow' of one result takes no layer="),
        (lambda: pair().plot(kind="flow", top=0), "top must be a whole number of at least 1"),
        (lambda: pair().plot(kind="grid", pieces=True), "takes no pieces="),
        (lambda: mixlens.plot([pair(), pair()], pieces=True), "'matrix' takes no pieces="),
        (lambda: mixlens.plot([pair(), pair()], kind="flow"), "several Maps cannot be drawn as 'flow'"),
        (lambda: pair().plot(kind="flow", query=13), "13"),
        (lambda: long_text(60).plot(pieces=True), "62 pieces have no room side by side"),
    ],
)
def test_what_does_not_fit_is_refused(make: Any, message: str) -> None:
    with pytest.raises(errors.InputError, match=message):
        make()


SENTENCE = "The keys to the cabinet [MASK] rusty."


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--kind", "flow", "--rollout"], "multiplies them itself"),
        (["--kind", "flow", "--layer", "2"], "multiplies them itself"),
        (["--kind", "flow", "--method", "alti,attention"], "of one method"),
        (["--kind", "grid", "--pieces"], "--pieces is for --kind matrix"),
        (["--kind", "matrix", "--pieces", "--words"], "Give one of the two"),
        (["--kind", "flow", "--method", "globenc"], "globenc:rollout=toolkit"),
    ],
)
def test_the_command_refuses_in_one_line(
    options: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert message in refuse(capsys, monkeypatch, "plot", SENTENCE, "-o", str(tmp_path / "x.svg"), *options)
    assert not (tmp_path / "x.svg").exists()


def test_the_command_draws_what_python_draws(tmp_path: Path) -> None:
    model = mixlens.load("agreement")
    trace = model.trace(SENTENCE)
    info = {"query": trace.query, "prediction": trace.prediction()}
    plain = mixlens.mix(trace, "alti")
    scores = Map(plain.scores, plain.tokens, plain.method, {**plain.info, **info}, plain.special, plain.words)
    run("plot", SENTENCE, "-o", str(tmp_path / "flow.svg"), "--kind", "flow", "--top", "2")
    assert (tmp_path / "flow.svg").read_text() == svg(scores.plot(kind="flow", top=2))
    run("plot", SENTENCE, "-o", str(tmp_path / "matrix.svg"), "--kind", "matrix", "--layer", "2")
    assert (tmp_path / "matrix.svg").read_text() == svg(scores.plot(layer=1))


def test_the_command_takes_a_word_where_the_figure_is_by_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = ("plot", "The unhappy keys were unbelievably rusty.", "-o")
    run(*text, str(tmp_path / "flow.svg"), "--kind", "flow", "--query", "unbelievably")
    assert "ALTI · into “unbelievably”" in texts((tmp_path / "flow.svg").read_text())
    run(*text, str(tmp_path / "matrix.svg"), "--kind", "matrix", "--query", "unbelievably")
    assert "the row of “unbelievably”" in texts((tmp_path / "matrix.svg").read_text())
    refused = refuse(
        capsys, monkeypatch, *text, str(tmp_path / "x.svg"), "--kind", "matrix", "--pieces", "--query", "unbelievably"
    )
    assert "no token 'unbelievably'" in refused


@pytest.mark.filterwarnings("default")
def test_the_command_tells_of_missing_letters_in_one_line(tmp_path: Path) -> None:
    said = run(
        "plot", "The keys [MASK] rusty.", "-o", str(tmp_path / "x.png"), "--kind", "strip", "--title", "日"
    ).splitlines()
    (line,) = [one for one in said if not one.startswith("wrote")]
    assert line == (
        "mixlens: no font of this figure has 日 (U+65E5). Save it as .svg, or name a font that has: --font ..."
    )
