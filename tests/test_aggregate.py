"""Rollout, readout and words."""

from __future__ import annotations

import itertools

import pytest
import torch
from conftest import hf_model, ids, loaded
from hypothesis import given
from hypothesis import strategies as st

import mixlens
from mixlens import Attribution, Map
from mixlens.model import words as word_groups
from mixlens.scoring import aggregate, conventions


def a_map(scores: torch.Tensor, **info: object) -> Map:
    n = scores.shape[-1]
    return Map(
        scores,
        tuple(f"t{i}" for i in range(n)),
        "attention",
        {"convention": "alti", "rollout": None, **info},
        (False,) * n,
    )


def written_out(layers: torch.Tensor, *, residual: bool, normalize: bool) -> torch.Tensor:
    """Last layer on the left, one row at a time."""
    n = layers.shape[-1]
    joint = []
    for layer in layers:
        m = layer + torch.eye(n, dtype=layer.dtype) if residual else layer
        m = torch.stack([row / row.sum() for row in m]) if normalize else m
        joint.append(m if not joint else torch.stack([sum(m[i, k] * joint[-1][k] for k in range(n)) for i in range(n)]))
    return torch.stack(joint)


@pytest.mark.parametrize("name", list(conventions.CONVENTIONS))
def test_every_convention_is_its_product(name: str) -> None:
    layers = torch.rand(4, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 0.1
    rolled = a_map(layers).rollout(name)
    used = conventions.CONVENTIONS[name]
    torch.testing.assert_close(rolled.scores, written_out(layers, residual=used.residual, normalize=used.normalize))
    assert rolled.info["rollout"] == {
        "convention": name,
        "residual": used.residual,
        "normalize": used.normalize,
        "rescaled_layers": [],
    }


def test_published_conventions() -> None:
    """Which paper adds the identity, which normalises rows."""
    assert {name: (c.residual, c.normalize) for name, c in conventions.CONVENTIONS.items()} == {
        "abnar": (True, True),
        "globenc": (False, False),
        "toolkit": (False, True),
        "alti": (False, True),
        "value_zeroing": (False, True),
        "chefer": (True, True),
    }


@given(st.integers(1, 6), st.integers(1, 5), st.integers(0, 1000))
def test_rolled_out_distributions_stay_distributions(n: int, depth: int, seed: int) -> None:
    layers = torch.rand(depth, n, n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) + 1e-3
    for name in ("abnar", "toolkit"):
        torch.testing.assert_close(
            a_map(layers).rollout(name).scores.sum(-1), torch.ones(depth, n, dtype=torch.float64)
        )


@pytest.mark.parametrize("size", [1e30, 1e-30])
def test_a_deep_model_does_not_overflow_and_keeps_its_shares(size: float) -> None:
    layers = torch.rand(40, 6, 6, dtype=torch.float32, generator=torch.Generator().manual_seed(0))
    rolled = a_map(layers * size).rollout("globenc")
    assert bool(torch.isfinite(rolled.scores).all())
    assert rolled.info["rollout"]["rescaled_layers"]
    exact = a_map(layers.double() / 3).rollout("globenc").scores
    for layer in (1, 20, 39):
        share, expected = rolled.scores[layer].double(), exact[layer]
        torch.testing.assert_close(share / share.sum(), expected / expected.sum(), rtol=1e-4, atol=1e-7)
    row, expected = aggregate.rolled_row(a_map(layers * size), 2, convention="globenc"), exact[-1, 2]
    torch.testing.assert_close(
        row.scores.double() / row.scores.double().sum(), expected / expected.sum(), rtol=1e-4, atol=1e-7
    )
    assert row.info["rollout"]["rescaled_layers"]
    assert 0.5 <= float(row.scores.max()) <= 1


@given(
    st.integers(1, 6),
    st.integers(1, 6),
    st.sampled_from(list(conventions.CONVENTIONS)),
    st.integers(0, 1000),
    st.data(),
)
def test_a_rolled_row_is_the_row_of_the_rollout(n: int, depth: int, name: str, seed: int, data: st.DataObject) -> None:
    layers = 9 * torch.rand(depth, n, n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) + 1e-3
    layer, query = data.draw(st.integers(-depth, depth - 1)), data.draw(st.integers(-n, n - 1))
    made = aggregate.rolled_row(a_map(layers), query, layer=layer, convention=name)
    whole = a_map(layers).rollout(name).readout(query, layer=layer)
    torch.testing.assert_close(made.scores, whole.scores, rtol=1e-13, atol=0)
    assert made.info == whole.info
    assert (made.tokens, made.method, made.special, made.words) == (
        whole.tokens,
        whole.method,
        whole.special,
        whole.words,
    )


@pytest.mark.parametrize("name", list(conventions.CONVENTIONS))
def test_rows_of_several_maps_at_once_are_those_of_each_alone(name: str) -> None:
    seeded = torch.Generator().manual_seed(0)
    sizes = ((5, 1.0), (9, 1e20), (3, 1.0), (7, 1e-20), (9, 1.0))
    maps = [a_map((torch.rand(9, n, n, generator=seeded, dtype=torch.float64) + 0.01) * size) for n, size in sizes]
    queries = [1, -1, 0, 3, "t8"]
    for made, one, query in zip(aggregate.rolled_rows(maps, queries, convention=name), maps, queries, strict=True):
        alone = aggregate.rolled_row(one, query, convention=name)
        torch.testing.assert_close(made.scores, alone.scores, rtol=1e-12, atol=0)
        assert (made.info, made.tokens) == (alone.info, alone.tokens)
    with pytest.raises(mixlens.MixlensError, match="sums to 0"):
        aggregate.rolled_rows([maps[0], a_map(torch.zeros(9, 4, 4, dtype=torch.float64))], [0, 0], convention="alti")


def test_several_maps_are_rolled_out_as_each_alone() -> None:
    """Also where some of them have to be rescaled, and where they differ in shape."""
    seeded = torch.Generator().manual_seed(0)
    maps = [
        a_map(torch.rand(9, n, n, generator=seeded) * size) for n, size in ((5, 1.0), (5, 1e20), (3, 1.0), (5, 1e-20))
    ]
    rolled = mixlens.rollout(maps, "globenc")
    assert len(rolled) == 4
    for one, together in zip(maps, rolled, strict=True):
        alone = one.rollout("globenc")
        torch.testing.assert_close(together.scores, alone.scores)
        assert together.info == alone.info
    assert [bool(one.info["rollout"]["rescaled_layers"]) for one in rolled] == [False, True, False, True]
    named = mixlens.rollout(dict(zip("abcd", maps, strict=True)), "globenc")
    assert list(named) == list("abcd")
    assert torch.equal(named["c"].scores, rolled[2].scores)
    with pytest.raises(mixlens.MixlensError, match="rollout takes a Map"):
        mixlens.rollout("alti")


def test_a_map_is_rolled_out_once() -> None:
    rolled = a_map(torch.ones(2, 2, 2)).rollout()
    with pytest.raises(mixlens.MixlensError, match="already"):
        rolled.rollout()


def test_readout_is_a_row() -> None:
    scores = mixlens.mix(loaded("bert").trace(input_ids=[7, 8, 9, 8]), "alti")
    assert scores.tokens == ("7", "8", "9", "8")
    for query, place in ((0, 0), (-1, 3), (2, 2), ("9", 2), ("7", 0)):
        read = scores.readout(query)
        assert torch.equal(read.scores, scores.scores[-1, place])
        assert (read.info["query"], read.info["layer"]) == (place, 2)
    assert torch.equal(scores.readout(1, layer=0).scores, scores.scores[0, 1])


def test_readout_without_special_tokens_shares_the_rest() -> None:
    special = (True, False, False, True)
    tokens = ("[CLS]", "a", "b", "[SEP]")

    def row(scores: list[float], **info: object) -> Map:
        return Map(torch.tensor(scores).expand(1, 4, 4), tokens, "any", info, special)

    kept = row([0.5, 0.1, 0.3, 0.1], distribution=True).readout(0, keep_special=False)
    torch.testing.assert_close(kept.scores, torch.tensor([0.25, 0.75]))
    assert kept.info["special_removed"]["tokens"] == 2
    assert kept.info["special_removed"]["sum"] == pytest.approx(0.6, abs=1e-6)  # float32
    assert kept.info["special_removed"]["rest_made_to_sum_to_1"]


@pytest.mark.parametrize("scores", [[0.5, 0.1, 0.3, 0.1], [0.5, -0.1, 0.3, 0.1]])
@pytest.mark.parametrize("info", [{}, {"distribution": False}])
def test_leaving_special_tokens_out_never_changes_the_unit_of_other_scores(
    scores: list[float], info: dict[str, object]
) -> None:
    """Whether scores are shares is the method's to say: logits that happen to be positive stay logits."""
    read = Attribution(torch.tensor(scores), ("[CLS]", "a", "b", "[SEP]"), "deeplift", info, (True, False, False, True))
    kept = aggregate.without_special(read)
    assert kept.scores.tolist() == read.scores[1:3].tolist()
    told = dict(kept.info["special_removed"])
    share = told.pop("share", None)
    assert told == {"tokens": 2, "sum": pytest.approx(0.6, abs=1e-6), "rest_made_to_sum_to_1": False}
    assert share == (pytest.approx(0.6, abs=1e-6) if info else None)  # of the absolute scores of a map's row


def test_what_is_left_without_special_tokens_is_whole() -> None:
    """Tokens, marks, words and facts are those of the tokens that stay; a word with a special token in it goes."""
    words = (("[CLS]", (0,)), ("a", (1,)), ("xb", (2, 3)), ("cd", (4, 5)))
    special = (True, False, True, False, False, False)
    info = {"distribution": True, "model": "m", "query": 1}
    read = Attribution(torch.tensor([0.4, 0.1, 0.2, 0.1, 0.1, 0.1]), tuple("0abcde"), "alti", info, special, words)
    kept = aggregate.without_special(read)
    assert kept.tokens == ("a", "c", "d", "e")
    assert kept.special == (False, False, False, False)
    assert kept.words == (("a", (0,)), ("cd", (2, 3)))
    assert kept.method == "alti"
    assert kept.scores.tolist() == pytest.approx([0.25, 0.25, 0.25, 0.25])
    assert (kept.info["model"], kept.info["query"], kept.info["special_tokens"]) == ("m", 1, "removed")
    assert kept.info["special_removed"]["share"] == pytest.approx(0.6)
    assert aggregate.without_special(Attribution(torch.ones(2), ("a", "b"), "m", {}, (True, False))).words is None
    with pytest.raises(mixlens.MixlensError, match="every token is special"):
        aggregate.without_special(Attribution(torch.ones(1), ("a",), "m", {}, (True,)))


def test_a_rollout_says_whether_its_rows_are_shares() -> None:
    layers = torch.rand(2, 4, 4, generator=torch.Generator().manual_seed(1)) + 0.1
    for distribution, convention, shares in (
        (False, "globenc", False),
        (False, "toolkit", True),
        (True, "globenc", True),
        (True, "abnar", True),
    ):
        made = a_map(layers / layers.sum(-1, keepdim=True) if distribution else layers, distribution=distribution)
        rolled = made.rollout(convention)
        assert aggregate.shares_of_one(rolled.info) == shares, (distribution, convention)
        sums = rolled.scores[-1].sum(-1)
        assert bool((sums - 1).abs().max() < 1e-5) == shares  # float32; the other rows sum to 2 and more
    assert not aggregate.shares_of_one(a_map(layers, distribution=True).sum().info)  # two layers added: rows sum to 2


def test_no_tensor_by_token_is_left_beside_scores_by_word() -> None:
    words = (("t0t1", (0, 1)), ("t2", (2,)))
    info = {"mixing_ratio": torch.zeros(1, 3), "gap": 1e-7}
    made = Map(torch.rand(1, 3, 3), ("t0", "t1", "t2"), "alti", info, (False,) * 3, words)
    for read in (made.by_word(), made.readout(0).by_word()):
        assert not [key for key, value in read.info.items() if isinstance(value, torch.Tensor)]
        assert read.info["gap"] == 1e-7
        assert read.info["unit"] == "word"


def test_words_sum_over_keys_and_average_over_queries() -> None:
    scores = torch.arange(16, dtype=torch.float64).view(1, 4, 4)
    words = (("[CLS]", (0,)), ("unhappy", (1, 2)), (".", (3,)))
    by_word = Map(scores, ("[CLS]", "un", "##happy", "."), "alti", {}, (True, False, False, False), words).by_word()
    assert by_word.tokens == ("[CLS]", "unhappy", ".")
    assert by_word.scores.tolist() == [[[0, 3, 3], [6, 15, 9], [12, 27, 15]]]
    read = Attribution(
        scores[0, 0], (*by_word.tokens[:1], "un", "##happy", "."), "alti", {}, (True, False, False, False), words
    )
    assert read.by_word().scores.tolist() == [0, 3, 3]
    assert read.by_word().by_word().scores.tolist() == [0, 3, 3]


def test_words_without_offsets_are_refused() -> None:
    with pytest.raises(mixlens.MixlensError, match="words are not known"):
        mixlens.mix(mixlens.load(hf_model("bert")).trace(input_ids=ids(3)), "alti").by_word()


@pytest.mark.parametrize(
    ("text", "offsets", "expected"),
    [
        ("unhappy end.", [(0, 2), (2, 7), (8, 11), (11, 12)], [("unhappy", (0, 1)), ("end", (2,)), (".", (3,))]),
        ("the keys", [(0, 3), (3, 8)], [("the", (0,)), ("keys", (1,))]),  # byte-level: the space belongs to the token
        ("it's well-known", [(0, 2), (2, 4), (5, 9), (9, 10), (10, 15)], [("it's", (0, 1)), ("well-known", (2, 3, 4))]),
        ("a [MASK] b", [(0, 1), (2, 8), (9, 10)], [("a", (0,)), ("[MASK]", (1,)), ("b", (2,))]),
        ("你好 ok", [(0, 1), (1, 2), (3, 5)], [("你", (0,)), ("好", (1,)), ("ok", (2,))]),
        ("😀!", [(0, 1), (0, 1), (1, 2)], [("😀", (0, 1)), ("!", (2,))]),  # one character in two byte-level tokens
        ("ab cd", [(0, 1), (1, 4), (4, 5)], [("ab cd", (0, 1, 2))]),  # a token over two words joins them
    ],
)
def test_tokens_are_grouped_by_their_characters(text: str, offsets: list[tuple[int, int]], expected: object) -> None:
    tokens = [str(i) for i in range(len(offsets))]
    assert list(word_groups.group_words((text, None), offsets, [0] * len(offsets), tokens)) == expected


@given(st.text(max_size=40), st.lists(st.integers(0, 40), max_size=8))
def test_every_token_is_in_exactly_one_word(text: str, cuts: list[int]) -> None:
    edges = sorted({0, len(text), *(cut for cut in cuts if cut <= len(text))})
    offsets = list(itertools.pairwise(edges))
    words = word_groups.group_words((text, None), offsets, [0] * len(offsets), ["x"] * len(offsets))
    assert [i for _, places in words for i in places] == list(range(len(offsets)))


@pytest.mark.parametrize(
    ("tokens", "query", "message"),
    [
        (("a", "b"), 4, "query 4 is out of range: there are 2 tokens, -2 to 1."),
        (("a", "b"), -3, "query -3 is out of range: there are 2 tokens, -2 to 1."),
        (("a", "b"), True, "a query is an index or a token, not True."),
        (("a", "b"), 1.5, "a query is an index or a token, not 1.5."),
        (("a", "b", "a"), "a", "token 'a' occurs 2 times, at [0, 2]. Say which one by its index."),
        (("a", "b"), "c", "no token 'c'. The tokens are: a b. An index works too."),
        (("a",) * 41, "c", f"no token 'c'. The tokens are: {' '.join('a' * 40)} .... An index works too."),
    ],
)
def test_positions_that_cannot_be_found(tokens: tuple[str, ...], query: int | str, message: str) -> None:
    with pytest.raises(mixlens.MixlensError) as error:
        aggregate.find(tokens, query)
    assert str(error.value) == message


def test_positions_of_tokens_and_of_their_letters() -> None:
    assert [aggregate.find(("[CLS]", "un", "##do", "it"), one) for one in (0, -1, "un", "do")] == [0, 3, 1, 2]
    assert aggregate.find(("do", "##do"), "do") == 0


@pytest.mark.parametrize(
    ("info", "shares"),
    [
        ({"distribution": True}, True),
        ({}, False),
        ({"distribution": True, "signed": True}, False),
        ({"distribution": True, "rollout": {"residual": False, "normalize": False}}, True),
        ({"distribution": True, "rollout": {"residual": True, "normalize": False}}, False),
        ({"distribution": True, "rollout": {"residual": False, "normalize": False, "sum": True}}, False),
        ({"distribution": False, "rollout": {"residual": True, "normalize": True}}, True),
        ({"distribution": False, "rollout": {"residual": True, "normalize": False, "flow": True}}, True),
    ],
)
def test_rows_that_are_shares(info: dict[str, object], shares: bool) -> None:
    assert aggregate.shares_of_one(info) is shares


def test_a_row_out_of_range_stays_near_one_and_a_row_of_zeros_is_refused() -> None:
    large = torch.tensor([[[1e200, 0.0], [0.0, 1.0]]] * 3, dtype=torch.float64)
    row = aggregate.rolled_row(a_map(large), 0, convention="globenc")
    assert row.info["rollout"]["rescaled_layers"] == [2]
    assert 0.5 <= float(row.scores.abs().max()) <= 1
    fits = aggregate.rolled_row(a_map(large.clamp(max=1e40)), 0, convention="globenc")
    assert (fits.info["rollout"]["rescaled_layers"], fits.scores.tolist()) == ([], [pytest.approx(1e120), 0.0])
    empty, full = a_map(torch.tensor([[[0.0, 0.0], [1.0, 1.0]]] * 3)), a_map(torch.ones(3, 2, 2))
    for asked in (lambda: aggregate.rolled_rows([full, empty], [0, 1]), empty.rollout):
        with pytest.raises(mixlens.MixlensError, match="a row of this map sums to 0"):
            asked()
    with pytest.raises(mixlens.MixlensError, match="maps of several conventions"):
        aggregate.rolled_rows([full, a_map(torch.ones(3, 2, 2), convention="abnar")], [0, 0])
