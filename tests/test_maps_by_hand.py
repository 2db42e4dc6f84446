"""Maps, rows and attributions on numbers written by hand: which traces are scored together, how rows are found, rolled out and
cut, how questions are batched and refused, and how attention becomes scores of tokens."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mixlens.base.errors import MixlensError
from mixlens.scoring import aggregate, sequences
from mixlens.scoring.continuing import Continuation
from mixlens.types import Attribution, Map, Trace

TOKENS = ("[CLS]", "un", "##do", "it")
WORDS = (("[CLS]", (0,)), ("undo", (1, 2)), ("it", (3,)))
SPECIAL = (True, False, False, False)


def refused(call: Any, *given: Any, **options: Any) -> str:
    with pytest.raises(MixlensError) as error:
        call(*given, **options)
    return str(error.value)


def trace_of(n: int = 3, model: Any = None, layers: Any = (), **changes: Any) -> Trace:
    given: dict[str, Any] = {
        **{
            "model": model or SimpleNamespace(dtype=torch.float32, name="tiny"),
            "tokens": tuple("abcdefgh"[:n]),
            "layers": layers,
        },
        **{"input_ids": tuple(range(n)), "special": (False,) * n, "attention_mask": (1,) * n},
    }
    return Trace(**{**given, **changes})


# --- which traces are scored together ----------------------------------------------------------------------------------------


def map_of(scores: Any, n: int | None = None, **changes: Any) -> Map:
    tensor = torch.tensor(scores, dtype=torch.float64)
    given: dict[str, Any] = {"info": {}, "special": (), "words": None, **changes}
    return Map(tensor, tuple("abcdefgh"[: tensor.shape[-1]]), "m", **given)


def test_positions_of_tokens() -> None:
    find = aggregate.find
    assert [find(TOKENS, query) for query in (0, 3, -1, -4, "un", "do", "it")] == [0, 3, 3, 0, 1, 2, 3]
    assert find(("do", "##do"), "do") == 0
    for wrong in (4, -5):
        assert refused(find, TOKENS, wrong) == f"query {wrong} is out of range: there are 4 tokens, -4 to 3."
    assert refused(find, TOKENS, 1.5) == "a query is an index or a token, not 1.5."
    assert refused(find, ("a", "b", "a"), "a") == "token 'a' occurs 2 times, at [0, 2]. Say which one by its index."
    assert refused(find, ("a", "b"), "c") == "no token 'c'. The tokens are: a b. An index works too."
    assert (
        refused(find, ("a",) * 41, "c")
        == f"no token 'c'. The tokens are: {' '.join('a' * 40)} .... An index works too."
    )
    assert "..." not in refused(find, ("a",) * 40, "c")
    marked = ("Ġa", "▁b", "##c", "Ċ", "d</w>", "##", "e")
    assert list(map(aggregate.bare, marked)) == ["a", "b", "c", "", "d", "", "e"]


def test_rows_made_to_sum_to_one() -> None:
    scores = torch.tensor([[[1.0, 3.0, 0.0], [0.0, 0.0, 0.0]]])
    made, facts = aggregate.rows_to_one(scores)
    assert made.tolist() == [[[0.25, 0.75, 0.0], [0.0, 1.0, 0.0]]]
    assert facts["rows_without_score"].tolist() == [[0, 1]]
    assert aggregate.rows_to_one(scores, offset=1)[0].tolist() == [[[0.25, 0.75, 0.0], [0.0, 0.0, 1.0]]]


LAYERS = [[[1.0, 3.0], [2.0, 2.0]], [[4.0, 0.0], [1.0, 3.0]], [[0.0, 5.0], [5.0, 5.0]]]


def test_a_rolled_row_is_the_row_of_the_rollout() -> None:
    made = map_of(
        LAYERS, info={"convention": "globenc", "x": 1}, special=(True, False), words=(("a", (0,)), ("b", (1,)))
    )
    whole = torch.tensor(LAYERS, dtype=torch.float64)
    products = [whole[0], whole[1] @ whole[0], whole[2] @ whole[1] @ whole[0]]
    for layer in (0, 1, 2, -1, -3):
        for query in (0, "b"):
            row = aggregate.rolled_row(made, query, layer=layer)
            number, place = layer % 3, int(query == "b")
            assert row.scores.tolist() == products[number][place].tolist()
            facts = {"convention": "globenc", "residual": False, "normalize": False, "rescaled_layers": []}
            assert row.info == {
                "convention": "globenc",
                "x": 1,
                "rollout": facts,
                "query": place,
                "query_token": "ab"[place],
                "layer": number,
            }
            assert (row.special, row.words, row.method) == (made.special, made.words, "m")
    several = aggregate.rolled_rows([made, made], [0, "b"])
    assert [one.scores.tolist() for one in several] == [products[2][0].tolist(), products[2][1].tolist()]
    assert [one.info for one in several] == [aggregate.rolled_row(made, place).info for place in (0, 1)]
    for wrong in (3, -4):
        assert refused(aggregate.rolled_row, made, 0, layer=wrong) == (
            f"layer {wrong} is out of range: the map has 3 layers, 0 to 2."
        )
    assert refused(aggregate.rolled_row, made, 0, layer="1") == "a layer is a number, not '1'."


def test_rows_of_maps_of_other_lengths() -> None:
    short = map_of(LAYERS)
    long = map_of([[[1.0, 2.0, 3.0], [3.0, 2.0, 1.0], [1.0, 1.0, 0.0]]] * 3)
    for convention in ("alti", "abnar", "globenc"):
        together = aggregate.rolled_rows([short, long], [1, 2], convention=convention)
        alone = [aggregate.rolled_row(one, query, convention=convention) for one, query in ((short, 1), (long, 2))]
        for one, other in zip(together, alone, strict=True):
            assert one.scores.tolist() == pytest.approx(other.scores.tolist(), rel=1e-12)
            assert one.info == other.info
    mixed = [short, map_of(LAYERS, info={"convention": "abnar"})]
    assert refused(aggregate.rolled_rows, mixed, [0, 0]) == "maps of several conventions cannot be rolled out as one."
    empty = map_of([[[0.0, 0.0], [1.0, 1.0]]] * 3)
    assert refused(aggregate.rolled_rows, [short, empty], [0, 1]) == aggregate.ROW_OF_ZEROS
    deep = map_of(LAYERS[:2])
    assert [len(one.scores) for one in aggregate.rolled_rows([short, deep], [0, 1])] == [2, 2]


def test_rows_out_of_range_stay_near_one() -> None:
    row = aggregate.rolled_row(map_of([[[1e200, 0.0], [0.0, 1.0]]] * 3), 0, convention="globenc")
    assert row.info["rollout"]["rescaled_layers"] == [2]
    assert 0.5 <= float(row.scores.abs().max()) <= 1
    fits = aggregate.rolled_row(map_of([[[1e40, 0.0], [0.0, 1.0]]] * 3), 0, convention="globenc")
    assert (fits.info["rollout"]["rescaled_layers"], fits.scores.tolist()) == ([], [pytest.approx(1e120), 0.0])


def test_flows_sums_and_readouts() -> None:
    pytest.importorskip("igraph")
    made = map_of(LAYERS[:2])
    first = [[0.25, 0.75], [0.5, 0.5]]
    # from b after layer 2: 0.25 to a and 0.75 to b, which pass on at most what their rows carry
    to_a, to_b = 0.25 + 0.5, 0.25 + 0.5
    whole: Any = aggregate.flow(made)
    assert whole.scores[0].tolist() == first
    assert whole.scores[1, 1].tolist() == pytest.approx([to_a / (to_a + to_b), to_b / (to_a + to_b)])
    assert whole.info["rollout"] == {"convention": "alti", "residual": False, "normalize": True, "flow": True}
    one: Any = aggregate.flow(made, query="b")
    assert one.scores.tolist() == pytest.approx(whole.scores[1, 1].tolist())
    assert (one.info["query"], one.info["layer"]) == (1, 1)
    early: Any = aggregate.flow(made, query=0, layer=0)
    assert early.scores.tolist() == first[0]
    assert refused(aggregate.flow, map_of([[[1.0, -0.5], [1.0, 1.0]]])) == (
        "'m' has negative scores, and a capacity cannot be negative."
    )
    summed = aggregate.layer_sum(made)
    assert summed.scores.tolist() == [[[5.0, 3.0], [3.0, 5.0]]]
    assert summed.info == {"rollout": {"convention": "sum", "residual": False, "normalize": False, "sum": True}}
    assert refused(aggregate.layer_sum, summed) == "this map is rolled out already. Sum the map that mix gave."
    row = aggregate.readout(made, "b", layer=0)
    assert (row.scores.tolist(), row.info) == ([2.0, 2.0], {"query": 1, "query_token": "b", "layer": 0})


def test_special_tokens_left_out() -> None:
    def row(**info: Any) -> Attribution:
        return Attribution(torch.tensor([0.5, 0.25, 0.125, 0.125]), TOKENS, "m", info, SPECIAL, WORDS)

    shares = aggregate.without_special(row(distribution=True))
    assert shares.scores.tolist() == [0.5, 0.25, 0.25]
    assert (shares.tokens, shares.special, shares.words) == (TOKENS[1:], (False,) * 3, (("undo", (0, 1)), ("it", (2,))))
    told = {"tokens": 1, "sum": 0.5, "rest_made_to_sum_to_1": True, "share": 0.5}
    assert shares.info == {"distribution": True, "special_tokens": "removed", "special_removed": told}
    plain = aggregate.without_special(row())
    assert plain.scores.tolist() == [0.25, 0.125, 0.125]
    assert plain.info["special_removed"] == {"tokens": 1, "sum": 0.5, "rest_made_to_sum_to_1": False}
    assert (
        aggregate.readout(Map(torch.ones(1, 4, 4), TOKENS, "m", {}, SPECIAL), 0, keep_special=False).tokens
        == TOKENS[1:]
    )
    alone = Attribution(torch.ones(1), ("a",), "m", {}, (True,))
    assert refused(aggregate.without_special, alone) == "every token is special; nothing would be left."
    nothing = Attribution(torch.zeros(2), ("a", "b"), "m", {"distribution": True}, (True, False))
    assert aggregate.without_special(nothing).info["special_removed"] == {
        "tokens": 1,
        "sum": 0.0,
        "rest_made_to_sum_to_1": False,
    }
    assert aggregate.words_at(None, [0]) is None
    assert aggregate.words_at(WORDS, [1, 3]) == (("it", (1,)),)


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
        ({"distribution": False, "rollout": {"residual": False, "normalize": False}}, False),
    ],
)
def test_rows_that_are_shares(info: dict[str, Any], shares: bool) -> None:
    assert aggregate.shares_of_one(info) is shares


# --- questions ------------------------------------------------------------------------------------------------------------


def test_predictions_are_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    from mixlens.model import predict

    monkeypatch.setattr(predict, "prediction", lambda trace, k=0: [("a", 1.0)] * k)
    assert (len(trace_of().prediction()), len(trace_of().prediction(2))) == (5, 2)
    made = Attribution(torch.tensor([1.0, -3.0, 2.0]), ("a", "b", "c"), "m")
    assert made.top(2) == [("b", -3.0), ("c", 2.0)]
    assert len(made.top()) == 3


# --- texts that a model went on with ------------------------------------------------------------------------------------------


def test_a_continuation_and_the_space_before_it() -> None:
    joined = sequences.joined_to
    assert joined("a", "b") == " b"
    assert joined("a ", "b") == "b"
    assert joined("", "b") == "b"
    assert joined("a", "3") == " 3"
    assert joined("a", ", b") == ", b"
    assert joined("a", "##ing") == "ing"
    for wrong in (3, "\ud800"):
        assert refused(sequences.continuation_ids, None, None, wrong) == f"a continuation is a text, not {wrong!r}."
    for empty in ("", " ", "##"):
        assert refused(sequences.continuation_ids, None, None, empty) == (
            "the continuation is empty. Give at least one word, or let the model write: generate=."
        )


def test_tokens_of_a_continuation() -> None:
    table = {"a": [1], "a b": [1, 2], "b": [3], "ab": [9], "": [], "p": [5], "p b": [5, 6]}
    model: Any = SimpleNamespace(tokenizer=SimpleNamespace(encode=lambda text, add_special_tokens: list(table[text])))

    def prompt(text: str, pair: str | None = None, turns: Any = None) -> Any:
        return SimpleNamespace(text=text, pair=pair, turns=turns)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sequences, "pieces_of", lambda model, word: (7, 8) if word == "##b" else ())
        assert sequences.continuation_ids(model, prompt("a"), "b") == [2]
        assert sequences.continuation_ids(model, prompt("a", "p"), "b") == [6]
        assert sequences.continuation_ids(model, prompt("a", turns=1), "b") == [3]
        assert sequences.continuation_ids(model, prompt("a"), "##b") == [7, 8]


def continuation(
    pair: str | None = None, offsets: Any = ((0, 1),), special: Any = (False, False, True)
) -> Continuation:
    letters = {1: "x", 2: " yy", 3: "z"}
    tokenizer = SimpleNamespace(decode=lambda ids, clean_up_tokenization_spaces: "".join(letters[one] for one in ids))
    prompt: Any = SimpleNamespace(input_ids=(1,), text="x", pair=pair, offsets=offsets, sequences=(0,))
    whole = trace_of(3, input_ids=(1, 2, 3), special=special, text="whole")
    return Continuation(SimpleNamespace(tokenizer=tokenizer), prompt, whole)  # type: ignore[arg-type]


def test_the_text_before_every_written_token() -> None:
    made = continuation()
    assert (made.written, made.ends, made.last) == (" yyz", [0, 3, 4], "x")
    assert [made.text_before(place) for place in (1, 2, 3)] == ["x", "x yy", "x yyz"]
    assert made.spans() == [(0, 0, 1), (0, 1, 4), (None, 4, 5)]
    assert (made.text_of(0), made.text_of(1)) == ("x yyz", "x")
    paired = continuation("p")
    assert (paired.last, paired.text_before(2)) == ("p", "x")
    assert (paired.text_of(0), paired.text_of(1)) == ("x", "p yyz")
    assert paired.spans() == [(0, 0, 1), (1, 1, 4), (None, 4, 5)]
    assert continuation(offsets=None).words_before(2) is None
    made.tokenizer = None
    assert made.text_before(2) == "whole"
    assert made.words_before(2) is None
