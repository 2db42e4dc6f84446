"""Paper figures: the numbers in them are those of the arrays, the text is text, the same value gives the same bytes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import threading
import warnings
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import mixlens
from mixlens import Attribution, Map, metrics
from mixlens.base import errors, optional
from mixlens.show import colors, figure

TOKENS = ("[CLS]", "the", "un", "##happy", "keys", "[MASK]")
HOSTILE = ("$x$", "a_b", "\\frac{1}{2}", "{", "<b>&", "z\u200bw", "\x1b[31m", "$", "^{2}", "שלום")
INFO = {"model": "m", "variant": "paper", "rollout": {"convention": "alti"}, "causal": False}


def read(
    scores: Any = (0.0, 0.1, 0.2, 0.3, 0.4, 0.0), tokens: tuple[str, ...] = TOKENS, method: str = "alti", **info: Any
) -> Any:
    about = {**INFO, "layer": 2, "query": 5, "query_token": "[MASK]", **info}
    return Attribution(torch.as_tensor(scores, dtype=torch.float32), tokens, method, about)


def map_of(layers: int = 3, tokens: tuple[str, ...] = TOKENS, method: str = "alti", seed: int = 0) -> Map:
    n = len(tokens)
    scores = torch.rand(layers, n, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return Map(scores / scores.sum(-1, keepdim=True), tokens, method, INFO)


def images(made: Figure) -> list[np.ndarray]:
    """The arrays of the heat maps; the colour bar's own is left out."""
    return [np.asarray(ax.images[0].get_array()) for ax in made.axes if ax.images and ax.get_gid() != "colours"]


def svg(made: Figure) -> str:
    return figure.content(made, ".svg").decode()


def texts(page: str) -> list[str]:
    from html import unescape

    return [unescape(re.sub(r"<[^>]+>", "", found)) for found in re.findall(r"<text[^>]*>(.*?)</text>", page, re.S)]


SIGNED = (0.0, -0.5, 1.0, 0.25, -1.0, 0.0)
EVERY = {
    "strip": lambda: read().plot(),
    "signed strip": lambda: read(SIGNED, target="were", score="logit").plot(),
    "bars": lambda: read(SIGNED).plot(kind="bars"),
    "matrix": lambda: map_of().plot(layer=1),
    "numbers": lambda: map_of().plot(numbers=True),
    "layers": lambda: map_of().plot(kind="layers"),
    "grid": lambda: map_of(7).plot(kind="grid"),
    "rows": lambda: mixlens.plot([read(), read(SIGNED, method="attcat")]),
    "strips": lambda: mixlens.plot([read(), read(SIGNED, method="attcat")], kind="strip"),
    "maps": lambda: mixlens.plot({"one": map_of(), "two": map_of(seed=1)}, layer=0),
    "maps by layer": lambda: mixlens.plot([map_of(), map_of(seed=1, method="globenc")], kind="layers", query="keys"),
    "curves": lambda: figure.curves({"a": [0.1, 0.4, 0.2], "b": [metrics.Interval(0.2, 0.1, 0.3, 9, 0.1)] * 3}),
}

PRINTED = (
    "signed strip",
    "bars",
    "numbers",
    "rows",
    "curves",
)  # as PDF too: what they draw is all that the others draw


# --- the numbers ------------------------------------------------------------------------------------------------------


def test_a_strip_has_the_colours_of_its_scores() -> None:
    made = read(SIGNED).plot()
    boxes = [patch for patch in made.axes[0].patches if str(patch.get_gid()).startswith("token-")]
    hues = ["for-tint" if score > 0 else "against-tint" for score in SIGNED]
    assert [to_hex(box.get_facecolor()) for box in boxes] == [
        colors.scaled(score, hue) for score, hue in zip(SIGNED, hues, strict=True)
    ]
    assert to_hex(boxes[2].get_facecolor()) == colors.LIGHT["for-tint"].lower()
    assert to_hex(boxes[4].get_facecolor()) == colors.LIGHT["against-tint"].lower()
    assert to_hex(boxes[0].get_facecolor()) == "#ffffff"
    written = [text for text in made.axes[0].texts if text.get_fontsize() == 8]
    assert [text.get_text() for text in written] == ["[CLS]", "the", "un", "happy", "keys", "[MASK]"]
    assert {to_hex(text.get_color()) for text in written} == {colors.LIGHT["ink"].lower()}


def test_a_strip_has_values_and_lines_that_show_the_sign() -> None:
    axes = read(SIGNED, target="were", score="logit").plot().axes[0]
    values = [text.get_text() for text in axes.texts if text.get_fontsize() == 6.5]
    assert values == ["−0.5", "+1", "+0.25", "−1"]  # those of 0 have none
    assert [line.get_linestyle() for line in axes.lines] == ["--", "-", "-", "--"]  # dashed: against
    shares = read((0.05, 0.05, 0.1, 0.3, 0.49, 0.01)).plot().axes[0]
    assert [text.get_text() for text in shares.texts if text.get_fontsize() == 6.5] == [
        f"{share}\u2009%" for share in (5, 5, 10, 30, 49)
    ]
    long = read([0.01] * 70, ("a",) * 70).plot().axes[0]
    assert {text.get_fontsize() for text in long.texts} == {8.0}  # a long text has no values


def test_the_target_and_both_sides_are_named() -> None:
    made = read(SIGNED, target="were - was", score="logit").plot()
    assert made.get_suptitle().endswith("logit of were − was")
    (bar,) = [ax for ax in made.axes if ax.get_gid() == "colours"]
    assert [label.get_text() for label in bar.get_xticklabels()] == ["−1\nagainst", "0", "1\nfor were − was"]
    assert bar.get_xlabel() == "logit of were − was"
    reads = [read(SIGNED, method="attcat", target="were", score="logit"), read()]
    rows = mixlens.plot(reads)
    assert rows.get_suptitle().startswith("logit of were")


@pytest.mark.parametrize("name", sorted(EVERY))
def test_no_text_is_smaller_than_can_be_read(name: str) -> None:
    from matplotlib.text import Text

    made = EVERY[name]()
    sizes = [text.get_fontsize() for text in made.findobj(Text) if text.get_visible() and text.get_text().strip()]
    assert min(sizes) >= 6.5
    assert max(sizes) <= 8


def test_bars_are_as_long_as_their_scores() -> None:
    made = read(SIGNED).plot(kind="bars")
    drawn = made.axes[0].patches
    assert [bar.get_width() for bar in drawn] == pytest.approx(sorted(SIGNED, reverse=True))
    assert [to_hex(bar.get_facecolor()) for bar in (drawn[0], drawn[-1])] == [
        colors.LIGHT["for"].lower(),
        colors.LIGHT["against"].lower(),
    ]
    assert [bool(bar.get_hatch()) for bar in drawn] == [bar.get_width() < 0 for bar in drawn]
    assert made.axes[0].texts[0].get_text().strip() == "+1"
    largest = read((0.1, -0.9, 0.2, 0.3, 0.5, 0.0)).plot(kind="bars", top=2)
    assert [bar.get_width() for bar in largest.axes[0].patches] == pytest.approx([0.5, -0.9])
    assert [label.get_text() for label in largest.axes[0].get_yticklabels()] == ["keys", "the"]
    assert "the largest 2" in largest.get_suptitle()


def test_a_matrix_is_the_layer() -> None:
    whole = map_of()
    for layer in (0, 2, -1):
        made = whole.plot(layer=layer)
        (image,) = images(made)
        np.testing.assert_array_equal(image, whole.scores[layer].numpy())
        assert f"layer {layer % 3 + 1}" in made.get_suptitle()
        assert "ALTI" in made.get_suptitle()
        given = whole.scores[layer] - whole.scores[layer].diag().diag()  # what tokens keep does not set the scale
        assert made.axes[0].images[0].get_clim() == (0.0, float(given.max()))


def test_rows_are_queries_and_columns_are_keys() -> None:
    scores = torch.zeros(1, 6, 6)
    scores[0, 1, 4] = 1.0
    made = Map(scores, TOKENS, "alti", INFO).plot()
    axes = made.axes[0]
    assert axes.images[0].get_array()[1, 4] == 1
    labels = [[label.get_text() for label in side] for side in (axes.get_yticklabels(), axes.get_xticklabels())]
    assert (labels[0][1], labels[1][4]) == ("the", "keys")
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # the first position on top
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("position (query)", "taken from (key)")


def test_numbers_in_cells() -> None:
    made = Map(torch.tensor([[[0.25, 0.75], [1.0, 0.0]]]), ("a", "b"), "alti", INFO).plot(numbers=True)
    assert [text.get_text() for text in made.axes[0].texts] == ["25", "75", "100", "·"]
    made = Map(torch.tensor([[[0.25, 2.5], [1.0, 0.0]]]), ("a", "b"), "norm", INFO).plot(numbers=True)
    assert [text.get_text() for text in made.axes[0].texts] == [".25", "2.50", "1.00", ".00"]


def test_layers_are_rows_for_one_query() -> None:
    whole = map_of()
    for query, place in ((None, 5), ("keys", 4), (0, 0)):
        made = whole.plot(kind="layers", query=query)
        np.testing.assert_array_equal(images(made)[0], whole.scores[:, place].numpy())
        assert f"at {TOKENS[place]}" in made.get_suptitle()
    assert [label.get_text() for label in made.axes[0].get_yticklabels()] == ["1", "2", "3"]


def test_layers_that_grow_are_each_by_their_own_largest() -> None:
    grown = Map(map_of().scores * torch.tensor([1.0, 10.0, 100.0])[:, None, None], TOKENS, "globenc", INFO)
    rows = grown.scores[:, 4].numpy()
    np.testing.assert_allclose(images(grown.plot(kind="layers", query=4))[0], rows / rows.max(-1, keepdims=True))
    np.testing.assert_array_equal(images(grown.plot(kind="layers", query=4, scale="all"))[0], rows)


def test_a_grid_has_every_layer_on_one_scale() -> None:
    whole = map_of(7)
    made = whole.plot(kind="grid")
    for layer, image in enumerate(images(made)):
        np.testing.assert_array_equal(image, whole.scores[layer].numpy())
    panels = [ax for ax in made.axes if ax.get_gid() != "colours"]
    assert [ax.get_title(loc="left") for ax in panels] == [f"layer {number}" for number in range(1, 8)]
    assert {ax.images[0].get_clim() for ax in panels} == {(0.0, float(whole.scores.max()))}


def test_methods_are_rows_each_by_its_own_largest() -> None:
    reads = [read(), read(SIGNED, method="attcat")]
    made = mixlens.plot(reads)
    np.testing.assert_allclose(
        images(made)[0], [SIGNED, reads[0].scores.numpy() / reads[0].scores.max().item()], rtol=1e-6
    )
    assert [label.get_text() for label in made.axes[0].get_yticklabels()] == ["AttCAT", "ALTI"]  # signed first
    below = made.axes[0].images[1]  # scores without a sign have colours and a legend of their own
    assert np.ma.getmaskarray(below.get_array()).tolist() == [[True] * 6, [False] * 6]
    assert to_hex(below.cmap(1.0)) == colors.LIGHT["share"].lower()
    assert len([ax for ax in made.axes if ax.get_gid() == "colours"]) == 2
    hatched = [patch for patch in made.axes[0].patches if patch.get_hatch()]
    assert len(hatched) == sum(score < 0 for score in SIGNED)
    made = mixlens.plot(reads, scale="all")
    np.testing.assert_allclose(images(made)[0], [SIGNED, reads[0].scores.numpy()], rtol=1e-6)
    assert made.axes[0].images[0].get_clim() == (-1.0, 1.0)


def test_maps_side_by_side() -> None:
    maps = {"one": map_of(), "two": map_of(seed=1)}
    made = mixlens.plot(maps, layer=1)
    for image, whole in zip(images(made), maps.values(), strict=True):
        np.testing.assert_array_equal(image, whole.scores[1].numpy())
    raw = Map(map_of().scores * 7, TOKENS, "norm", INFO)  # other units: each by its own largest
    made = mixlens.plot([map_of(), raw])
    assert [float(image.max()) for image in images(made)] == [1.0, 1.0]


def test_colours_are_one_hue_from_zero_or_two_around_it() -> None:
    for values, low, signed in (((0.0, 0.5), 0.0, False), ((-0.25, 0.5), -0.5, True)):
        made = mixlens.plot([read(values, ("a", "b"))], scale="all")
        image = made.axes[0].images[0]
        assert image.get_clim() == (low, 0.5)
        assert to_hex(image.cmap(image.norm(0.5))) == colors.LIGHT["for" if signed else "share"].lower()
        assert to_hex(image.cmap(image.norm(0.0))) == "#ffffff"
        if signed:
            assert to_hex(image.cmap(image.norm(-0.5))) == colors.LIGHT["against"].lower()
    assert map_of().plot(vmax=0.9).axes[0].images[0].get_clim() == (0.0, 0.9)


def test_the_colour_bar_says_what_it_means() -> None:
    def meaning(made: Figure) -> str:
        (bar,) = [ax for ax in made.axes if ax.get_gid() == "colours"]
        return bar.get_xlabel() + bar.get_ylabel()

    assert meaning(map_of().plot()) == "share"
    assert meaning(Map(map_of().scores * 3, TOKENS, "norm", INFO).plot()) == "score"
    assert meaning(read(SIGNED).plot()) == "score"
    assert meaning(read(SIGNED, target="were", score="logit").plot()) == "logit of were"
    assert meaning(mixlens.plot([read(), read(method="b")])) == "of the largest in each row"
    assert not [ax for ax in map_of().plot(colorbar=False).axes if ax.get_gid() == "colours"]


def test_curves_have_their_points_and_bands() -> None:
    points = [metrics.Interval(0.2, 0.1, 0.3, 9, 0.1), metrics.Interval(0.5, 0.4, 0.7, 9, 0.1)]
    made = figure.curves({"a": points, "b_$x$": [0.1, 0.3]}, at=[0, 10], x="percent", y="fall")
    axes = made.axes[0]
    np.testing.assert_array_equal(axes.lines[0].get_xydata(), [[0, 0.2], [10, 0.5]])
    np.testing.assert_array_equal(axes.lines[1].get_xydata(), [[0, 0.1], [10, 0.3]])
    band = axes.collections[0].get_paths()[0].vertices
    assert {tuple(point) for point in band} >= {(0, 0.1), (0, 0.3), (10, 0.4), (10, 0.7)}
    assert len(axes.collections) == 1
    assert {"b_$x$", "percent", "fall"} <= set(texts(svg(made)))
    half = figure.curves({"one end has no interval": [points[0], 0.3]}, at=[0, 10], x="percent", y="fall")
    assert not half.axes[0].collections


# --- text -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(EVERY))
def test_text_is_text_and_the_same_value_gives_the_same_bytes(name: str) -> None:
    first, second = EVERY[name](), EVERY[name]()
    page = svg(first)
    assert page == svg(second) == svg(first)
    if name != "curves":
        assert "[MASK]" in texts(page)
    assert "<dc:date>" not in page
    for kind in (".pdf", ".png") if name in PRINTED else (".png",):
        assert figure.content(first, kind) == figure.content(second, kind)


@pytest.mark.parametrize("name", list(EVERY))
def test_labels_stay_inside_and_do_not_touch(name: str) -> None:
    made = EVERY[name]()
    inside_and_apart(made)


def inside_and_apart(made: Figure) -> None:
    """Every text lies within the figure, and no two texts cover each other."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    renderer = FigureCanvasAgg(made).get_renderer()
    made.draw_without_rendering()  # places everything; the pixels are not looked at
    seen = list(made.texts)
    for ax in made.findobj(Axes):
        seen += [*ax.texts, ax.title, ax._left_title, ax.xaxis.label, ax.yaxis.label]  # type: ignore[attr-defined]
        for axis in (ax.xaxis, ax.yaxis) if ax.axison else ():
            low, high = sorted(axis.get_view_interval())
            seen += [
                tick.label1 if tick.label1.get_visible() else tick.label2
                for tick in axis.get_major_ticks()
                if low <= tick.get_loc() <= high
            ]
    seen += [text for legend in made.legends for text in legend.get_texts()]
    boxes = [
        (text.get_text(), text.get_window_extent(renderer))
        for text in seen
        if text.get_text().strip() and text.get_visible()
    ]
    assert boxes
    whole = made.bbox
    for told, box in boxes:
        assert box.x0 >= whole.x0 - 1 and box.x1 <= whole.x1 + 1, (told, box, whole)  # noqa: PT018
        assert box.y0 >= whole.y0 - 1 and box.y1 <= whole.y1 + 1, (told, box, whole)  # noqa: PT018
    for i, (one, a) in enumerate(boxes):
        for other, b in boxes[i + 1 :]:
            wide, high = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
            assert wide <= 1.5 or high <= 1.5, (one, other)


@pytest.mark.parametrize("n", [1, 2, 30, 90, 200])
@pytest.mark.parametrize("kind", ["strip", "bars", "rows", "matrix", "layers", "grid"])
def test_few_and_many_tokens(kind: str, n: int) -> None:
    """Labels get smaller, then fewer; they never cover each other, and the figure stays on a page."""
    tokens = tuple(f"word{i}" if i % 7 else "incomprehensibilities" for i in range(n))
    if kind in ("matrix", "layers", "grid"):
        made = map_of(3, tokens).plot(kind=kind)
    else:
        scores = torch.linspace(-1, 1, n)
        made = (
            mixlens.plot([read(scores, tokens), read(scores, tokens, "b")])
            if kind == "rows"
            else read(scores, tokens).plot(kind=kind)
        )
    inside_and_apart(made)
    assert made.get_figheight() <= 13


@pytest.mark.parametrize("width", ["single", "double", 2.0, 10])
@pytest.mark.parametrize("name", ["strip", "bars", "matrix", "layers", "grid"])
def test_widths(name: str, width: Any) -> None:
    result = map_of(4) if name in ("matrix", "layers", "grid") else read(SIGNED)
    made = result.plot(kind=name, width=width)
    assert made.get_figwidth() == pytest.approx({"single": 84 / 25.4, "double": 174 / 25.4}.get(width, width))
    inside_and_apart(made)


def test_hostile_tokens_are_written_as_they_are() -> None:
    n = len(HOSTILE)
    expected = {"$x$", "a_b", "\\frac{1}{2}", "{", "<b>&", "z\\u200bw", "\\u001b[31m", "$", "^{2}", "שלום"}
    whole = map_of(2, HOSTILE)
    reads = [read(torch.linspace(-1, 1, n), HOSTILE, method) for method in ("$a$_{b}", "b")]
    for made in (
        reads[0].plot(),
        reads[0].plot(kind="bars"),
        mixlens.plot(reads, width=9),
        whole.plot(width=9),
        whole.plot(kind="layers", width=9),
        whole.plot(kind="grid", width=12),
    ):
        page = svg(made)
        assert expected <= set(texts(page)), set(texts(page))
        if made.axes[0].get_ylabel() == "position (query)":  # as rows and as columns
            assert all(texts(page).count(token) >= 2 for token in expected), texts(page)
        assert "<b>" not in page
        assert "\x1b" not in page
        figure.content(made, ".png")
    for made in (reads[0].plot(), whole.plot(width=9)):  # as text of a drawing, and of an axis
        figure.content(made, ".pdf")
    assert "$a$_{b}" in " ".join(texts(svg(reads[0].plot())))
    assert "$a$_{b}" in texts(svg(mixlens.plot(reads, width=9)))


def test_letters_that_no_font_has_stay_text_in_svg_and_are_told_of_elsewhere() -> None:
    made = read((0.5, 1.0), ("日本", "👍")).plot()
    assert {"日本", "👍"} <= set(texts(svg(made)))
    with pytest.warns(UserWarning, match=r"no font of this figure has .*U\+65E5.*name a font"):
        figure.content(made, ".png")


def test_pdf_fonts_are_truetype(tmp_path: Path) -> None:
    import zlib

    for made in (read().plot(), map_of().plot(numbers=True)):
        made.save(tmp_path / "x.pdf")
        data = (tmp_path / "x.pdf").read_bytes()
        streams = b"".join(_inflated(part, zlib) for part in re.findall(rb"stream\r?\n(.*?)endstream", data, re.S))
        assert b"/Type3" not in data + streams
        assert b"/Subtype /CIDFontType2" in data + streams or b"/Subtype /TrueType" in data + streams
        assert b"CreationDate" not in data


def _inflated(part: bytes, zlib: Any) -> bytes:
    try:
        return zlib.decompressobj().decompress(part)
    except zlib.error:
        return b""


# --- state ------------------------------------------------------------------------------------------------------------


def test_nothing_global_is_changed_and_pyplot_is_not_needed() -> None:
    before = dict(matplotlib.rcParams)
    for make in EVERY.values():
        figure.content(make(), ".svg")
    assert dict(matplotlib.rcParams) == before
    out = subprocess.run(
        [
            sys.executable,
            "-c",
            textwrap.dedent(
                """
                import sys, torch
                from mixlens.types import Attribution
                made = Attribution(torch.ones(2), ("a", "b"), "alti", {}).plot()
                made._repr_png_()
                assert "matplotlib.pyplot" not in sys.modules
                print("ok")
                """
            ),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert out.stdout == "ok\n"


def test_a_style_of_the_users_changes_no_figure_of_ours() -> None:
    plain = svg(map_of().plot())
    with matplotlib.style.context("dark_background"), matplotlib.rc_context({"font.size": 30, "text.usetex": False}):
        assert svg(map_of().plot()) == plain


def test_threads_draw_the_same() -> None:
    before = dict(matplotlib.rcParams)
    alone = svg(map_of().plot())
    found: list[str] = []

    def draw() -> None:
        found.extend(svg(map_of().plot()) for _ in range(2))

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [alone] * 8
    assert dict(matplotlib.rcParams) == before


def test_axes_that_are_given_are_drawn_on() -> None:
    page = Figure(figsize=(8, 6), layout="constrained")
    axes = page.subplots(2, 3)
    whole = map_of()
    assert read().plot(ax=axes[0, 0]) is axes[0, 0]
    assert read(SIGNED).plot(kind="bars", ax=axes[0, 1]) is axes[0, 1]
    assert whole.plot(ax=axes[0, 2]) is axes[0, 2]
    assert whole.plot(kind="layers", ax=axes[1, 0]) is axes[1, 0]
    assert mixlens.plot([read(), read(method="b")], ax=axes[1, 1]) is axes[1, 1]
    assert figure.curves({"a": [1.0, 2.0]}, ax=axes[1, 2]) is axes[1, 2]
    np.testing.assert_array_equal(axes[0, 2].images[0].get_array(), whole.scores[-1].numpy())
    assert "layer 3" in axes[0, 2].get_title(loc="left")
    assert len(axes[0, 0].patches) == len(TOKENS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "[MASK]" in texts(svg(page))


def test_pictures_show_themselves() -> None:
    data, size = read().plot(width=4)._repr_png_()
    assert data.startswith(b"\x89PNG")
    assert size["width"] == 384


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["svg", "pdf", "png", "SVG"])
def test_saved_whole_by_both_ways(kind: str, tmp_path: Path) -> None:
    read().plot(save=tmp_path / f"a.{kind}").save(tmp_path / f"b.{kind}")
    one, other = ((tmp_path / f"{name}.{kind}").read_bytes() for name in "ab")
    assert one == other
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"a.{kind}", f"b.{kind}"]
    (tmp_path / "plain").write_text("")
    modes = {path.stat().st_mode for path in tmp_path.iterdir()}
    assert len(modes) == 1  # readable by whoever reads other files


def test_savefig_has_real_text_too(tmp_path: Path) -> None:
    read().plot().savefig(tmp_path / "x.svg")
    assert "[MASK]" in texts((tmp_path / "x.svg").read_text())


def test_a_failure_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "x.svg"
    place.write_text("old")

    def full(file: int) -> None:
        os.ftruncate(file, 10)
        raise OSError(28, "No space left on device")

    made = read().plot()
    monkeypatch.setattr("mixlens.base.files.sync", full)
    with pytest.raises(errors.InputError, match="No space left"):
        made.save(place)
    assert place.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["x.svg"]


def test_matplotlib_is_asked_for_by_name() -> None:
    out = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; sys.modules['matplotlib'] = None\n"
            "import torch, mixlens\nfrom mixlens.types import Attribution\n"
            "try:\n    Attribution(torch.ones(1), ('a',), 'alti', {}).plot()\n"
            "except mixlens.MixlensError as error:\n    print(error)",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert out.stdout == f"figures need matplotlib: {optional.installing('plot')}.\n"


def test_one_token_of_no_score() -> None:
    for made in (read((0.0,), ("a",)).plot(), Map(torch.zeros(1, 1, 1), ("a",), "alti", {}).plot()):
        assert "a" in texts(svg(made))
