"""What a figure is not made of: refused in one line, before anything is drawn."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("matplotlib")
import made_values as made
from matplotlib.figure import Figure

import mixlens
from mixlens import Attribution, Map
from mixlens.base import errors
from mixlens.show import figure


def said(call: Any) -> str:
    with pytest.raises(errors.InputError) as refusal:
        call()
    return str(refusal.value)


ONE, MAP, HEADS = made.attribution(), made.a_map(2, 3), made.heads()
OTHER = made.attribution((1.0, 2.0))


def scored(*scores: Any, tokens: tuple[str, ...] = ("a", "b")) -> Attribution:
    return Attribution(torch.tensor(scores, dtype=torch.float64), tokens, "x", {})


REFUSED: list[tuple[Any, str]] = [
    (
        lambda: ONE.plot(kind="matrix"),
        "an Attribution cannot be drawn as 'matrix'. Did you mean 'strip'? Known: bars, strip.",
    ),
    (
        lambda: MAP.plot(kind="matix"),
        "a Map cannot be drawn as 'matix'. Did you mean 'matrix'? Known: flow, grid, layers, matrix.",
    ),
    (lambda: HEADS.plot(kind="x"), "a HeadMaps cannot be drawn as 'x'. Known: heads."),
    (
        lambda: mixlens.plot([ONE], kind="bars"),
        "several Attributions cannot be drawn as 'bars'. Did you mean 'rows'? Known: rows, strip.",
    ),
    (lambda: mixlens.plot([MAP], kind="grid"), "several Maps cannot be drawn as 'grid'. Known: layers, matrix."),
    (lambda: mixlens.plot([]), "there is nothing to draw: no results were given."),
    (lambda: mixlens.plot({}), "there is nothing to draw: no results were given."),
    (lambda: mixlens.plot(3), "a figure is made of an Attribution, a Map or several of one kind, not of int."),  # type: ignore[arg-type]
    (lambda: mixlens.plot([ONE, 3]), "a figure is made of an Attribution, a Map or several of one kind, not of list."),  # type: ignore[list-item]
    (
        lambda: mixlens.plot({"a": HEADS}),
        "a figure is made of an Attribution, a Map or several of one kind, not of dict.",
    ),  # type: ignore[dict-item]
    (
        lambda: mixlens.plot([ONE, MAP]),
        "attributions and maps cannot stand in one figure. Read the maps out first: map.readout(query).",
    ),
    (lambda: mixlens.plot([ONE, OTHER]), "these results are not of the same tokens, so they cannot share one axis."),
    (lambda: ONE.plot(layer=0), "a figure of kind 'strip' of one result takes no layer=."),
    (lambda: ONE.plot(kind="bars", numbers=False), "a figure of kind 'bars' of one result takes no numbers=."),
    (lambda: MAP.plot(scale="all"), "a figure of kind 'matrix' of one result takes no scale=."),
    (lambda: MAP.plot(query=0), "a figure of kind 'matrix' of one result takes no query=."),
    (lambda: MAP.plot(kind="layers", layer=0), "a figure of kind 'layers' of one result takes no layer=."),
    (lambda: MAP.plot(kind="grid", layer=0), "a figure of kind 'grid' of one result takes no layer=."),
    (lambda: HEADS.plot(top=3), "a figure of kind 'heads' of one result takes no top=."),
    (lambda: mixlens.plot([ONE, ONE], top=3), "a figure of kind 'rows' takes no top=."),
    (lambda: mixlens.plot([ONE, ONE], labels=["a"]), "1 labels for 2 results. Give one for each."),
    (lambda: mixlens.plot([ONE], scale="al"), "unknown scale 'al'. Did you mean 'all'? Known: all, own."),
    (lambda: ONE.plot(vmax=0), "vmax must be a number above 0, not 0."),
    (lambda: ONE.plot(vmax=float("inf")), "vmax must be a number above 0, not inf."),
    (lambda: ONE.plot(ax=3), "ax must be matplotlib Axes, not int."),
    (lambda: MAP.plot(kind="grid", ax=axes()), "a figure of kind 'grid' has many axes, so it takes no ax=."),
    (lambda: HEADS.plot(ax=axes()), "a figure of kind 'heads' has many axes, so it takes no ax=."),
    (lambda: mixlens.plot([MAP], ax=axes()), "a figure of kind 'matrix' has many axes, so it takes no ax=."),
    (
        lambda: mixlens.plot([ONE], kind="strip", ax=axes()),
        "a figure of kind 'strip' has many axes, so it takes no ax=.",
    ),
    (lambda: ONE.plot(width="wide"), "unknown width 'wide': single, double, or inches. Known: double, single."),
    (lambda: ONE.plot(width=1.49), "a width is single, double, or 1.5 to 30 inches, not 1.49."),
    (lambda: ONE.plot(width=30.1), "a width is single, double, or 1.5 to 30 inches, not 30.1."),
    (lambda: ONE.plot(width=True), "a width is single, double, or 1.5 to 30 inches, not True."),
    (lambda: ONE.plot(kind="bars", top=0), "top must be a whole number of at least 1, not 0."),
    (lambda: ONE.plot(kind="bars", top=True), "top must be a whole number of at least 1, not True."),
    (lambda: ONE.plot(kind="bars", top=1.5), "top must be a whole number of at least 1, not 1.5."),
    (
        lambda: ONE.plot(font="No Such"),
        "no font 'No Such' here. Give the name of an installed one, or leave font= out.",
    ),
    (lambda: scored(tokens=()).plot(), "there are no tokens to draw."),
    (lambda: scored(1.0).plot(), "scores of shape (1,) do not fit 2 tokens."),
    (lambda: scored(1.0, float("inf")).plot(), "'x' has scores that are not finite: there is nothing true to draw."),
    (lambda: Map(torch.ones(0, 2, 2), ("a", "b"), "x", {}).plot(), "scores of shape (0, 2, 2) do not fit 2 tokens."),
    (lambda: Map(torch.ones(1, 2, 3), ("a", "b"), "x", {}).plot(), "scores of shape (1, 2, 3) do not fit 2 tokens."),
    (
        lambda: made.HeadMaps(torch.ones(1, 2, 2, 1), ("a", "b"), "x", {}).plot(),
        "scores of shape (1, 2, 2, 1) do not fit 2 tokens.",
    ),
    (lambda: MAP.plot(layer=2), "layer 2 is out of range: the map has 2 layers, 0 to 1."),
    (lambda: MAP.plot(layer=-3), "layer -3 is out of range: the map has 2 layers, 0 to 1."),
    (lambda: MAP.plot(layer=True), "layer True is out of range: the map has 2 layers, 0 to 1."),
    (lambda: mixlens.plot([made.a_map(3, 3), MAP], layer=2), "layer 2 is out of range: the map has 3 layers, 0 to 2."),
    (
        lambda: mixlens.plot([made.a_map(3, 3), MAP], kind="layers"),
        "these maps have different numbers of layers, so they cannot share one axis.",
    ),
    (
        lambda: made.a_map(1, 3, tokens=("[MASK]", "a", "<mask>")).plot(kind="layers"),
        "there are 2 mask tokens, at [0, 2]. Say which one: query=INDEX.",
    ),
    (
        lambda: made.a_map(1, 40).plot(numbers=True),
        "cells of 0.05 inches are too small for numbers. Give a larger width=, or leave numbers out.",
    ),
    (lambda: figure.curves({}), "there is nothing to draw: no curves were given."),
    (lambda: figure.curves({"a": []}), "curve 'a' has no points."),
    (lambda: figure.curves({"a": [1]}, at=[1, 2]), "curve 'a' has 1 points and at= has 2 places. Give one for each."),
    (lambda: figure.curves({"a": [1]}, ax=3), "ax must be matplotlib Axes, not int."),  # type: ignore[arg-type]
    (lambda: figure.curves({"a": [1]}, save="x.gif"), "a figure is saved as .svg, .pdf, .png, not 'x.gif'."),
    (lambda: figure.histogram_rows({}, edges=[0, 1]), "there is nothing to draw: no rows were given."),
    (
        lambda: figure.histogram_rows({"a": [1]}, edges=[0, 1], save="no/x.svg"),
        "no folder 'no' to save in.",
    ),
    (
        lambda: figure.histogram_rows({"a": [1], "b": [1, 2]}, edges=[0, 1]),
        "row 'b' has 2 counts, and 2 edges have 1 columns between them.",
    ),
    (lambda: made.generation().plot(layer=0), "a figure of a Generation takes no layer=."),
    (lambda: made.generation().plot(numbers=False), "a figure of a Generation takes no numbers=."),
    (lambda: made.generation().plot(scale="all"), "a figure of a Generation takes no scale=."),
    (lambda: made.generation().plot(vmax=-1), "vmax must be a number above 0, not -1."),
    (lambda: made.generation().plot(save="x.gif"), "a figure is saved as .svg, .pdf, .png, not 'x.gif'."),
    (lambda: ONE.plot(save="x.gif"), "a figure is saved as .svg, .pdf, .png, not 'x.gif'."),
    (
        lambda: made.generation().plot(kind="word"),
        "a Generation cannot be drawn as 'word'. Did you mean 'words'? Known: left_out, sentences, words.",
    ),
    (
        lambda: made.generation(effects=False).plot(kind="left_out"),
        "what leaving out does was not measured: draw generation.with_effects().",
    ),
    (
        lambda: made.generation().plot(kind="words", width=1.5),
        "the words of this prompt are too many for the width. Give a larger width=, or kind='sentences'.",
    ),
]


def axes() -> Any:
    return Figure().add_subplot()


@pytest.mark.parametrize("place", range(len(REFUSED)))
def test_what_cannot_be_drawn_is_refused_in_one_line(place: int) -> None:
    call, message = REFUSED[place]
    assert said(call) == message
