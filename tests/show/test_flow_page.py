"""The flow page's numbers: every band by all paths through the layers, grouped without loss, and on the page as
computed."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import ids, loaded

import mixlens
from mixlens import HeadMaps, Map
from mixlens.base import errors
from mixlens.base.words import Word
from mixlens.show import flow_groups, flow_numbers, flow_page, packing

LONG = (
    "I came to see the film and it was bad. But I was not right. The plot was good and the cast was great. "
    "She was good and kind. One thing this movie did well was the music. I loved this movie! It was warm, funny and "
    "long."
)


def layers(depth: int, n: int, seed: int = 0) -> np.ndarray:
    made = np.random.default_rng(seed).gamma(0.4, size=(depth, n, n))
    return made / made.sum(-1, keepdims=True)


def test_bands_are_sums_over_paths() -> None:
    """A path i_3 = q, i_2, i_1, i_0 carries C3(q, i_2) C2(i_2, i_1) C1(i_1, i_0) of the answer: sums over all 125 of
    them."""
    matrices, query, depth = layers(3, 5), 3, 3
    columns, words = [[0], [1, 2], [3], [4]], [[0], [1], [2], [3], [4]]
    flow = flow_numbers.flow_of(matrices, query, columns, words)
    column = {token: number for number, group in enumerate(columns) for token in group}
    bands, shares, origins = np.zeros((depth, 4, 4, 4)), np.zeros((depth + 1, 4)), np.zeros((depth + 1, 4, 4))
    inputs, by_word = np.zeros((4, 5)), np.zeros(5)
    for path in itertools.product(range(5), repeat=3):
        steps = [*path, query]  # from the input up
        carried = np.prod([matrices[level, steps[level + 1], steps[level]] for level in range(depth)])
        source = column[steps[0]]
        for level in range(depth + 1):
            shares[level, column[steps[level]]] += carried
            origins[level, column[steps[level]], source] += carried
        for level in range(depth):
            bands[level, column[steps[level + 1]], column[steps[level]], source] += carried
        inputs[column[steps[1]], steps[0]] += carried
        by_word[steps[0]] += carried
    close = {"rtol": 0, "atol": 1e-14}  # float64; 125 products are summed
    np.testing.assert_allclose(flow.shares, shares, **close)
    np.testing.assert_allclose(flow.origins, origins, **close)
    np.testing.assert_allclose(flow.input_bands, inputs, **close)
    np.testing.assert_allclose(flow.words, by_word, **close)
    drawn = flow.bands
    np.testing.assert_allclose(drawn.share, bands.sum(-1)[drawn.layer, drawn.above, drawn.below], **close)
    np.testing.assert_allclose(drawn.parts, bands[drawn.layer, drawn.above, drawn.below], **close)
    assert len(drawn.share) == int((bands.sum(-1) >= flow_numbers.DRAWN).sum())
    assert drawn.share.min() >= flow_numbers.DRAWN


def test_levels_add_up_to_one_and_rows_too() -> None:
    flow = flow_numbers.flow_of(
        layers(4, 12, seed=1), 0, [[0], [1, 2, 3], [4, 5], [6, 7, 8, 9, 10], [11]], [[place] for place in range(12)]
    )
    for total in (
        flow.shares.sum(-1),
        flow.origins.sum((-1, -2)),
        flow.rolled.sum(-1),
        flow.alone.sum(-1),
        flow.rolled_words.sum(-1),
    ):
        np.testing.assert_allclose(total, 1, rtol=0, atol=1e-12)
    np.testing.assert_allclose(flow.shares[0], flow.rolled[-1, 0], rtol=0, atol=1e-14)  # one number, wherever it stands
    np.testing.assert_allclose(flow.bands.parts.sum(-1), flow.bands.share, rtol=0, atol=1e-14)
    for level in range(4):
        held = np.bincount(flow.bands.above[flow.bands.layer == level], flow.bands.share[flow.bands.layer == level], 5)
        assert (flow.shares[level + 1] - held).max() <= flow.undrawn + 1e-14


# --- columns ----------------------------------------------------------------------------------------------------------


def words_of(text: str) -> list[Word]:
    words = [Word("[CLS]", "", (0,), -1, True)]
    for match in re.finditer(r"(\s*)(\w+|[^\w\s])", text):
        words.append(Word(match[2], match[1], (len(words),), 0, False))
    return [*words, Word("[SEP]", "", (len(words),), -1, True)]


@pytest.mark.parametrize(
    ("text", "kind", "count"),
    [
        ("A short text.", "word", 4),
        (" ".join(["word"] * 40), "word", 40),
        ("One two three four five six seven eight. " * 10, "sentence", 10),
        (" ".join(["word"] * 150), "part", 15),
        ("One two. " * 90, "part", flow_groups.COLUMNS),
    ],
)
def test_columns_hold_every_word_once(text: str, kind: str, count: int) -> None:
    words = words_of(text)
    groups = flow_groups.groups_of(words, 0, causal=False)
    assert sorted(place for group in groups for place in group.words) == list(range(len(words)))
    assert [group.kind for group in groups] == ["answer", *[kind] * count, "mark"]
    assert count <= flow_groups.COLUMNS
    assert next(group.name for group in groups) == "start"


def test_the_position_that_is_read_stands_alone() -> None:
    words = words_of("One two three four five six seven eight. " * 10)
    groups = flow_groups.groups_of(words, 5, causal=True)
    assert [group.words for group in groups if group.kind == "answer"] == [(5,)]
    assert sorted(place for group in groups for place in group.words) == list(range(len(words)))
    assert groups[0].title == "the begin mark"
    short = flow_groups.groups_of(words_of("A short text."), 2, causal=False)
    assert [(group.kind, group.words) for group in short[1:4]] == [("word", (1,)), ("answer", (2,)), ("word", (3,))]


# --- the page ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def results() -> tuple[Map, HeadMaps]:
    return flow_page.flow_results(mixlens.load("sentiment"), LONG)


def data_in(page: str) -> Any:
    return json.loads(page.partition('<script type="application/json" id="data">')[2].partition("</script>")[0])


def test_the_page_holds_the_numbers(results: tuple[Map, HeadMaps]) -> None:
    scores, heads = results
    picture, data = flow_page.picture_of(scores, heads=heads), data_in(flow_page.flow_page(scores, heads=heads))
    rolled, n = scores.rollout().scores[-1, 0].double().numpy(), len(data["columns"])
    for column, share in zip(data["columns"], packing.decode(data["blocks"]["shares"])[0], strict=True):
        tokens = [token for place in column["words"] for token in picture.words[place].tokens]
        assert share == pytest.approx(
            rolled[tokens].sum(), abs=1e-6
        )  # the map is float32, its products here are float64
    np.testing.assert_array_equal(
        packing.decode(data["blocks"]["shares"])[0], packing.decode(data["blocks"]["rolled"]).reshape(-1, n, n)[-1, 0]
    )
    words = np.array([word["share"] for word in data["words"]])
    assert words.sum() == pytest.approx(1, abs=1e-6)
    attention = packing.decode(data["blocks"]["heads"]).reshape(*heads.scores.shape[:2], n, n)
    tokens = [group.tokens for group in picture.groups]
    expected = heads.scores[1, 2][tokens[3]][:, tokens[5]].sum(-1).mean()
    assert attention[1, 2, 3, 5] == pytest.approx(float(expected), abs=1e-5)  # 16 bits of the row's largest


def test_the_answer_in_words(results: tuple[Map, HeadMaps]) -> None:
    scores, heads = results
    picture = flow_page.picture_of(scores, heads=heads)
    said = "".join(text for text, _ in flow_page.answer_of(picture)).replace("\u202f", " ")
    shares = {
        group.name: share
        for group, share in zip(picture.groups, picture.flow.shares[0], strict=True)
        if group.kind == "sentence"
    }
    first = sorted(shares, key=lambda name: -shares[name])[:3]
    together = 100 * sum(shares[name] for name in first)
    assert said.startswith(f"{together:.0f} % of it comes from three of 7 sentences: number {first[0]} (")
    assert f"and {first[2]} (" in said
    assert "The strongest words are " in said


def test_what_cannot_flow_is_refused(results: tuple[Map, HeadMaps], tmp_path: Path) -> None:
    trace = mixlens.load("agreement").trace("The keys to the cabinet [MASK] rusty.")
    norms, alti = (mixlens.mix(trace, name) for name in ("globenc", "alti"))
    signed = mixlens.load("sentiment").mix(LONG, "effective_attention")
    with pytest.raises(errors.InputError, match="'globenc' is rolled out by 'globenc', whose rows do not add up to 1"):
        flow_page.flow_page(norms)
    assert "What flowed into" in flow_page.flow_page(norms, rollout="toolkit")
    with pytest.raises(errors.InputError, match="has scores below 0"):
        flow_page.flow_page(signed)
    with pytest.raises(errors.InputError, match="rolled out already"):
        flow_page.flow_page(alti.rollout())
    with pytest.raises(errors.InputError, match="not of the same tokens"):
        flow_page.flow_page(alti, heads=results[1])
    with pytest.raises(errors.InputError, match="query 99 is out of range"):
        flow_page.flow_page(alti, query=99)
    with pytest.raises(errors.InputError, match="made of a Map"):
        flow_page.flow_page(results[1])  # type: ignore[arg-type]
    place = tmp_path / "mine.html"
    place.write_text("mine")
    with pytest.raises(mixlens.MixlensError, match="is not a mixlens report"):
        flow_page.write_flow(alti, place)
    assert alti.report(place, force=True) == place
    assert "What flowed into the mask?" in place.read_text().replace("“[MASK]”", "the mask")


def test_ids_without_words_have_tokens() -> None:
    scores = mixlens.mix(loaded("bert").trace(input_ids=ids(9)), "alti")
    data = data_in(flow_page.flow_page(scores))
    assert len(data["columns"]) == len(data["words"]) == 9
    assert data["heads"] == {}


def test_512_tokens_of_twelve_layers_and_heads_stay_under_two_megabytes() -> None:
    """Random numbers deflate worst; sentences of eleven words, so that there are many columns."""
    generator = torch.Generator().manual_seed(0)
    n, depth = 512, 12
    tokens = ["[CLS]", *(("." if place % 12 == 11 else f"w{place}") for place in range(1, n - 1)), "[SEP]"]
    words = tuple((token, (place,)) for place, token in enumerate(tokens))
    special = (True, *[False] * (n - 2), True)
    text = " ".join(tokens[1:-1])
    info = {"text": text, "convention": "alti", "model": "random"}
    scores = torch.rand(depth, n, n, generator=generator).softmax(-1)
    heads = (6 * torch.rand(depth, depth, n, n, generator=generator)).softmax(-1)
    page = flow_page.flow_page(
        Map(scores, tuple(tokens), "alti", info, special, words),
        heads=HeadMaps(heads, tuple(tokens), "attention", info, special, words),
    )
    data = data_in(page)
    assert len(data["columns"]) == flow_groups.COLUMNS + 2
    assert len(page.encode()) < 2_000_000
    assert len(data["heads"]["roles"]) == depth
    assert len(data["heads"]["roles"][0]) == depth


@pytest.mark.parametrize(
    ("text", "kind"), [(LONG, "sentence"), ("the story was good and the cast was great and " * 6, "part")]
)
def test_a_group_is_the_sum_of_its_words(text: str, kind: str) -> None:
    """Every number of a column is the sum (of what its words gave) over the words it opens into."""
    scores, _ = flow_page.flow_results(mixlens.load("sentiment"), text)
    picture = flow_page.picture_of(scores)
    assert picture.unit == kind
    groups = [list(group.words) for group in picture.groups]
    assert max(map(len, groups)) > 1
    flow = picture.flow
    for words, columns in (
        (flow.rolled_words, flow.rolled),
        (flow.alone_words, flow.alone),
        (flow.words, flow.shares[0]),
    ):
        summed = np.stack([words[..., group].sum(-1) for group in groups], -1)
        np.testing.assert_allclose(summed, columns, rtol=0, atol=1e-12)  # float64, other order of the same sums
    first = np.zeros((len(groups), len(groups)))
    mine = flow.bands.layer == 0
    first[flow.bands.above[mine], flow.bands.below[mine]] = flow.bands.share[mine]
    summed = np.stack([flow.input_bands[:, group].sum(-1) for group in groups], -1)
    np.testing.assert_allclose(summed[first > 0], first[first > 0], rtol=0, atol=1e-12)
    assert summed[first == 0].max() < flow_numbers.DRAWN


def test_bands_are_drawn_from_their_limit_on() -> None:
    drawn = flow_numbers.DRAWN
    for least, shares, undrawn in (
        (drawn, [drawn, 1 - drawn], 0.0),
        (np.nextafter(drawn, 0), [1 - np.nextafter(drawn, 0)], np.nextafter(drawn, 0)),
    ):
        layers = np.array([[[least, 1 - least], [0.5, 0.5]]])
        flow = flow_numbers.flow_of(layers, 0, [[0], [1]], [[0], [1]])
        assert (flow.bands.share.tolist(), flow.undrawn) == (shares, undrawn)


@pytest.mark.parametrize(("factor", "fits"), [(0.9995, True), (1.0005, True), (0.9985, False), (1.0015, False)])
def test_rows_are_shares_if_they_miss_one_by_little(factor: float, fits: bool) -> None:
    scores = torch.tensor([[[1.0, 0.0], [0.5, 0.5]]], dtype=torch.float64) * factor
    one = Map(scores, ("a", "b"), "alti", {})
    if fits:
        assert flow_numbers.layers_of(one, "globenc")[0].tolist() == [[[1.0, 0.0], [0.5, 0.5]]]
    else:
        with pytest.raises(errors.InputError, match="whose rows do not add up to 1"):
            flow_numbers.layers_of(one, "globenc")
