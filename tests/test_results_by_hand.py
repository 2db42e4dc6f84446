"""Sums, parts, means and heads of results made by hand: whole values, whole `.info`, whole messages. And what a result rests on:
fingerprints and names of models made of names alone."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from mixlens.base.errors import InputError
from mixlens.base.words import Word
from mixlens.metrics import averages, mean_with_interval
from mixlens.scoring import arithmetic, head_maps, provenance
from mixlens.scoring.head_maps import HeadRole
from mixlens.types import Attribution, Example, HeadMaps, Map

TOKENS = ("[CLS]", "un", "##do", "it")
WORDS = (("[CLS]", (0,)), ("undo", (1, 2)), ("it", (3,)))
SPECIAL = (True, False, False, False)


def attribution(*scores: float, method: str = "m", info: Any = None, **changes: Any) -> Attribution:
    given = {"tokens": TOKENS, "special": SPECIAL, "words": WORDS, **changes}
    return Attribution(torch.tensor(scores, dtype=torch.float64), method=method, info=info or {}, **given)  # type: ignore[arg-type]


def refused(call: Any, *given: Any, **options: Any) -> str:
    with pytest.raises(InputError) as error:
        call(*given, **options)
    return str(error.value)


# --- sums -----------------------------------------------------------------------------------------------------------------


def test_a_sum_and_what_it_says() -> None:
    one = attribution(
        1, 2, 3, 4, info={"model": "x", "target": "t", "score": "logit", "query": 1, "query_token": "un", "gap": 0.5}
    )
    other = attribution(
        10,
        20,
        30,
        40,
        method="n",
        info={"model": "x", "target": "t", "score": "logit", "query": 1, "query_token": "un", "text": "a"},
    )
    told = {"model": "x", "target": "t", "score": "logit", "query": 1, "query_token": "un"}
    made = one + other
    assert made.scores.tolist() == [11.0, 22.0, 33.0, 44.0]
    assert (made.method, made.words, made.tokens, made.special) == ("m + n", WORDS, TOKENS, SPECIAL)
    left, right = {**told, "method": "m"}, {**told, "text": "a", "method": "n"}
    assert made.info == {
        **told,
        "signed": True,
        "arithmetic": {"operation": "+", "left": left, "right": right, "differ": ["method", "text"]},
    }
    less = one - other
    assert less.scores.tolist() == [-9.0, -18.0, -27.0, -36.0]
    assert (less.method, less.info["arithmetic"]["operation"]) == ("m - n", "-")
    again = made + one
    assert again.info["arithmetic"]["left"]["arithmetic"] == made.info["arithmetic"]
    assert "arithmetic" not in again.info["arithmetic"]["right"]


def test_facts_that_differ_are_not_said() -> None:
    one = attribution(1, 2, 3, 4, info={"target": "t", "score": "logit", "query": 1, "query_token": "un", "layer": 1})
    other = attribution(
        1, 2, 3, 4, info={"target": "t", "score": "probability", "query": 2, "query_token": "un", "layer": True}
    )
    made = one + other
    assert set(made.info) == {"signed", "arithmetic"}
    assert made.info["arithmetic"]["differ"] == ["score", "query"]
    assert made.method == "m (logit) + m (probability)"
    assert (one + one).method == "m + m"
    assert (one + attribution(1, 2, 3, 4, info=dict(one.info), words=None)).words is None
    named = attribution(1, 2, 3, 4, info={**one.info, "target": "u"})
    assert (one - named).method == "m (t) - m (u)"


def test_sums_that_are_refused() -> None:
    one = attribution(1, 2, 3, 4)
    layers = Map(torch.zeros(2, 4, 4), TOKENS, "m")
    assert refused(arithmetic.combined, one, 3, 1) == (
        "Attribution and int do not add up: give two of the same kind, or Attribution * number."
    )
    assert refused(arithmetic.combined, one, attribution(1, 2, 3, 4, tokens=("[CLS]", "un", "##do", "at")), 1) == (
        "the two are not of the same tokens: at 3 they are 'it' and 'at'."
    )
    assert refused(arithmetic.combined, one, attribution(1, tokens=("a",)), 1) == (
        "the two are not of the same tokens: 4 and 1 tokens. For the mean over different texts use mixlens.mean(..., by='word')."
    )
    assert (
        refused(arithmetic.combined, layers, Map(torch.zeros(3, 4, 4), TOKENS, "m"), 1)
        == "the two have 2 and 3 layers."
    )


def test_multiples_and_quotients() -> None:
    one = attribution(1, -2, 3, 0, info={"model": "x", "completeness": {}, "target": "t"})
    made = one * 2.5
    assert (made.scores.tolist(), made.method) == ([2.5, -5.0, 7.5, 0.0], "2.5 * m")
    left = {"model": "x", "target": "t", "method": "m"}
    assert made.info == {"model": "x", "signed": True, "arithmetic": {"operation": "*", "factor": 2.5, "left": left}}
    assert ((-one).method, (one * -1).scores.tolist(), (one * -2).method) == ("-m", [-1.0, 2.0, -3.0, 0.0], "-2 * m")
    assert (one / 4).scores.tolist() == [0.25, -0.5, 0.75, 0.0]
    for wrong in (True, "2", math.inf, math.nan):
        assert (
            refused(arithmetic.multiplied, one, wrong)
            == f"a result is multiplied by a finite number, not by {wrong!r}."
        )
    for wrong in (0, 0.0, False, "2"):
        assert refused(arithmetic.divided, one, wrong) == (
            f"a result is divided by a number other than 0, not by {wrong!r}. For shares use .normalize()."
        )


# --- parts ----------------------------------------------------------------------------------------------------------------


def test_parts_of_an_attribution() -> None:
    info = {
        "query": 3,
        "query_token": "it",
        "input_ids": [1],
        "completeness": {},
        "distribution": True,
        "model": "x",
        "t": torch.ones(1),
    }
    one = attribution(1, 2, 4, 8, info=info)
    assert (one[1], one["undo"], one["##do"], one[-1], one["it"]) == (2.0, 6.0, 4.0, 8.0, 8.0)
    part = one[1:]
    assert (part.scores.tolist(), part.tokens, part.special) == ([2.0, 4.0, 8.0], TOKENS[1:], SPECIAL[1:])
    assert part.words == (("undo", (0, 1)), ("it", (2,)))
    assert part.info == {"model": "x", "query": 2, "query_token": "it", "part": {"positions": [1, 2, 3], "of": 4}}
    few = one[["it", "undo", 1]]
    assert (few.tokens, few.info["part"]["positions"]) == (("un", "##do", "it"), [1, 2, 3])
    assert one[:2].info == {"model": "x", "part": {"positions": [0, 1], "of": 4}}
    assert attribution(1, 2, 4, 8, special=())[1:3].special == ()
    layers = Map(torch.arange(16.0).reshape(1, 4, 4), TOKENS, "m", {}, SPECIAL, WORDS)
    assert layers[1:4:2].scores.tolist() == [[[5.0, 7.0], [13.0, 15.0]]]
    assert attribution(1, 2, 4, 8, info={"query": 1})[1:].info["query"] == 0


def test_parts_that_are_none() -> None:
    one = attribution(
        1, 2, 4, 8, tokens=("a", "b", "a", "c"), words=(("a", (0,)), ("b", (1,)), ("a", (2,)), ("c", (3,)))
    )
    assert refused(arithmetic.part, one, slice(2, 2)) == "no token is left: there are 4, 0 to 3."
    assert refused(arithmetic.part, one, slice("a", None)) == (
        "a slice is of positions, such as a[2:5], not of 'a'. A word is a['word']."
    )
    assert refused(arithmetic.part, one, "a") == "the word 'a' occurs 2 times, at [0, 2]. Say which one by an index."
    layers = Map(torch.zeros(1, 4, 4), TOKENS, "m")
    assert refused(arithmetic.part, layers, 1) == (
        "of a map a slice or a list is taken, such as m[2:5]; one row is m.readout(token)."
    )


def test_normalized_scores() -> None:
    one = attribution(3, -4, 0, 0, info={"completeness": {}, "distribution": True, "rollout": "x", "model": "x"})
    sizes = {"share": 7.0, "max": 4.0, "length": 5.0}
    for how, size in sizes.items():
        made = one.normalize(how)
        assert made.scores.tolist() == pytest.approx([3 / size, -4 / size, 0.0, 0.0])
        assert made.info == {"model": "x", "normalized": how}
        rows = Map(torch.tensor([[[3.0, -4.0], [0.0, 0.0]]]), ("a", "b"), "m").normalize(how).scores
        assert rows.tolist() == [[pytest.approx([3 / size, -4 / size]), [0.0, 0.0]]]
    assert one.normalize().info["normalized"] == "share"
    assert refused(one.normalize, "sum").startswith("unknown normalization 'sum'. ")
    assert refused(one.normalize, 3).startswith("unknown normalization 3. ")


# --- means ----------------------------------------------------------------------------------------------------------------


def test_means_by_token_word_and_group() -> None:
    first = attribution(1, 2, 3, -9, info={"model": "x", "target": "t", "score": "logit"})
    second = attribution(3, 2, 5, -8, method="n", info={"model": "x", "target": "t", "score": "probability"})
    made = averages.mean([first, second, first], confidence=0.9, seed=3)
    assert made.scores.tolist() == pytest.approx([5 / 3, 2.0, 11 / 3, -26 / 3])
    assert (made.tokens, made.special, made.words, made.method) == (TOKENS, SPECIAL, WORDS, "mean of m, n")
    ends = [
        mean_with_interval(row, confidence=0.9, seed=3, how="studentised")
        for row in ([1, 3, 1], [2, 2, 2], [3, 5, 3], [-9, -8, -9])
    ]
    low, high, n = (made.info[key].tolist() for key in ("low", "high", "n"))
    assert (low, high, n) == ([one.low for one in ends], [one.high for one in ends], [3, 3, 3, 3])
    left = {key: value for key, value in made.info.items() if key not in ("low", "high", "n")}
    assert left == {
        **{"model": "x", "signed": True, "unit": "token"},
        "mean": {"results": 3, "confidence": 0.9, "interval": "studentised"},
    }
    by_word = averages.mean([first, second], by="word")
    assert (by_word.tokens, by_word.scores.tolist()) == (("it", "undo"), [-8.5, 6.0])
    assert (by_word.special, by_word.words) == ((False, False), (("it", (0,)), ("undo", (1,))))
    assert by_word.info["unit"] == "word"
    assert averages.mean([first, first]).info["target"] == "t"
    grouped = averages.mean([first, second], by=lambda word: None if word == "it" else "rest")
    assert (grouped.tokens, grouped.scores.tolist(), grouped.info["unit"]) == (("rest",), [6.0], "group")
    bare = attribution(1, 2, 3, -9, words=None, special=())
    assert averages.mean([bare], by="word").tokens == ("it", "##do", "un", "[cls]")
    alone = averages.mean(iter([first]))
    assert (alone.scores.tolist(), alone.info["n"].tolist()) == ([1.0, 2.0, 3.0, -9.0], [1, 1, 1, 1])


def test_ties_of_means_are_in_the_order_of_their_names() -> None:
    made = averages.mean([attribution(0, 0, 3, -3, special=(), words=None)], by="word")
    assert made.tokens == ("##do", "it", "[cls]", "un")


def test_means_that_are_refused() -> None:
    one = attribution(1, 2, 3, 4)
    assert refused(averages.mean, []) == "there is nothing to average: no attributions were given."
    assert refused(averages.mean, 3) == "mean takes a list of attributions, not of int."
    assert refused(averages.mean, [one, "x"]) == "mean takes a list of attributions, not of str."
    assert refused(averages.mean, [one, attribution(1, tokens=("a",))]) == (
        "number 1 is of other tokens than the first. Give by='word' for the mean over texts."
    )
    assert refused(averages.mean, [one], by="words").startswith(
        "by is 'token', 'word' or a function of a word, not 'words'. "
    )
    assert refused(averages.mean, [one], by=lambda word: None) == (
        "no word is left to average: all are special, or the function gives None for every one of them."
    )


# --- heads ----------------------------------------------------------------------------------------------------------------


def heads_of(scores: torch.Tensor, **changes: Any) -> HeadMaps:
    given: dict[str, Any] = {"info": {}, "special": SPECIAL, "words": WORDS, **changes}
    return HeadMaps(scores, TOKENS, "attention", **given)


def test_one_head_and_one_layer() -> None:
    scores = torch.arange(2 * 3 * 16.0).reshape(2, 3, 4, 4)
    heads = heads_of(scores, info={"options": {"x": 1, "head": "all"}})
    one = heads.head(2)
    assert torch.equal(one.scores, scores[:, 2])
    assert (one.info, one.method, one.tokens, one.special, one.words) == (
        *({"options": {"x": 1, "head": 2}}, "attention", TOKENS, SPECIAL, WORDS),
    )
    assert heads_of(scores, info={"options": None}).head(0).info == {"options": {"head": 0}}
    for wrong in (3, -1, "0", True):
        assert refused(heads.head, wrong) == f"head {wrong!r} does not exist: a layer has heads 0 to 2."
    for layer, number in ((0, 0), (1, 1), (-1, 1), (-2, 0)):
        made = heads.layer(layer)
        assert torch.equal(made.scores, scores[number : number + 1])
        assert made.info["layer"] == number
    for wrong in (2, -3, "0"):
        assert refused(heads.layer, wrong) == f"layer {wrong!r} is out of range: there are 2 layers, 0 to 1."


def test_heads_by_word() -> None:
    scores = torch.arange(16.0).reshape(1, 1, 4, 4)
    made = heads_of(scores, info={"a": 1, "t": torch.ones(1)}).by_word()
    assert made.scores.tolist() == [[[[0.0, 3.0, 3.0], [6.0, 15.0, 9.0], [12.0, 27.0, 15.0]]]]
    assert (made.tokens, made.special, made.words) == (
        *(("[CLS]", "undo", "it"), (True, False, False), (("[CLS]", (0,)), ("undo", (1,)), ("it", (2,)))),
    )
    assert made.info == {"a": 1, "unit": "word"}
    assert heads_of(scores, special=()).by_word().special == ()
    assert refused(heads_of(scores, words=None).by_word).startswith("the words are not known: the input was ids")
    loose = head_maps.grouped(scores, (("un", (1,)), ("it", (3,))), 4)
    assert loose.tolist() == [[[[5.0, 7.0], [13.0, 15.0]]]]


def test_cells_of_each_share() -> None:
    def word(text: str, special: bool = False) -> Word:
        return Word(text, " ", (0,), -1 if special else 0, special)

    words = [word("[CLS]", True), word("a"), word("b"), word("[SEP]", True), word("c")]
    places = head_maps._places(words, False)
    assert [name for name, cells in places.items() if cells[1].any()] == [
        "start",
        "end",
        "itself",
        "ahead",
        "spread",
        "sentence",
    ]
    assert places["start"][:, 0].tolist() == [1.0] * 5
    assert places["end"][:, 3].tolist() == [1.0] * 5
    assert np.argwhere(places["back"]).tolist() == [[2, 1], [4, 2]]
    assert np.argwhere(places["ahead"]).tolist() == [[1, 2], [2, 4]]
    parted = np.sum([cells for name, cells in places.items() if name != "sentence"], 0)
    assert (parted == 1).all()
    assert np.argwhere(places["spread"][1]).tolist() == [[4]]
    causal = head_maps._places([word("a"), word("b"), word("c")], True)
    assert causal["first"][:, 0].tolist() == [1.0] * 3
    assert np.argwhere(causal["back"]).tolist() == [[2, 1]]
    assert head_maps._places(words, True)["begin"][:, 0].tolist() == [1.0] * 5
    plain = head_maps._places([word("a"), word("b")], False)
    assert not plain["first"].any()
    assert not plain["start"].any()
    assert plain["sentence"].tolist() == [[1.0, 1.0], [1.0, 1.0]]


@pytest.mark.parametrize(
    ("shares", "role"),
    [
        ({"start": 0.3, "spread": 0.7}, "start"),
        ({"start": 0.29, "sentence": 0.6, "spread": 0.71}, "sentence"),
        ({"start": 0.29, "sentence": 0.59, "spread": 0.71}, "spread"),
        ({"start": 0.29, "itself": 0.25, "spread": 0.28}, "start"),
        ({"start": 0.1, "spread": 0.5, "few": 0.25}, "few"),
        ({"start": 0.1, "spread": 0.5, "few": 0.24}, "spread"),
    ],
)
def test_the_share_that_names_a_head(shares: dict[str, float], role: str) -> None:
    whole = {**dict.fromkeys(("begin", "first", "end", "itself", "back", "ahead", "few"), 0.0), **shares}
    assert head_maps._role(2, 5, whole) == HeadRole(2, 5, role, head_maps.ROLES[role].name, whole[role], whole)


def test_the_words_that_are_looked_at_most() -> None:
    def told(count: int) -> list[float]:
        """Of a text of `count` words, looked at from 0 to 19 and, on average, as often as their number says."""
        rows = np.tile(np.arange(20.0), (1, count, 1))
        rows[:, 0] *= 2
        return list(head_maps._few(rows) / (1 + 1 / count))

    assert [*told(12), *told(16)] == pytest.approx([19.0 + 18 + 17] * 2)
    assert [*told(11), *told(8)] == pytest.approx([19.0 + 18] * 2)
    assert [*told(7), *told(4), *told(3)] == pytest.approx([19.0] * 3)


def test_roles_of_layers() -> None:
    own = torch.eye(4).expand(2, 1, 4, 4).clone()
    roles = heads_of(own, info={"text": "undo it", "layer": 7}).roles()
    assert [(one.layer, one.head, one.id, one.share) for one in roles] == [(0, 0, "itself", 1.0), (1, 0, "itself", 1.0)]
    assert [one.layer for one in heads_of(own[:1], info={"text": "undo it", "layer": 7}).roles()] == [7]
    assert "sentence" not in roles[0].shares
    silent = heads_of(torch.zeros(1, 1, 4, 4), info={"text": "undo it"}).roles()[0]
    assert set(silent.shares.values()) == {0.0}


# --- what a result rests on -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "public"),
    [
        *(
            ("org/name", "org/name"),
            ("/a/b/name", "name"),
            ("~/x/name", "name"),
            ("./name", "name"),
            ("../up/name", "name"),
        ),
        *(("/", "/"), ("name", "name"), (Path("/a/b"), "b"), ("a/../b", "a/../b")),
    ],
)
def test_names_that_others_may_read(name: object, public: str) -> None:
    assert provenance.public_name(name) == public


def test_where_a_model_is() -> None:
    model: Any = SimpleNamespace(
        devices=["cuda:0", "cpu", "cuda:1"], device=torch.device("cpu"), dispatched=False, quantization=None
    )
    plain = provenance.whereabouts(model)
    assert plain == {"device": "cpu+cuda", "kernels": provenance.used(model.device)}
    model.dispatched, model.quantization = True, "4 bits"
    assert provenance.whereabouts(model) == {**plain, "device_map": "dispatched", "quantization": "4 bits"}


def test_plain_values_of_a_configuration() -> None:
    given = {
        **{"b": (1, 2.5), "a": {"x": torch.float32, 3: None}, "_name_or_path": "here", "transformers_version": "9"},
        **{"set": {2, 1}, "object": SimpleNamespace(), "device": torch.device("cpu"), "flag": True},
    }
    assert provenance._plain(given) == {
        **{"b": [1, 2.5], "a": {"x": "torch.float32", "3": None}, "set": ["1", "2"], "object": "SimpleNamespace"},
        **{"device": "cpu", "flag": True},
    }


def model_of(**changes: Any) -> Any:
    layer = torch.nn.Linear(2, 2)
    torch.nn.init.ones_(layer.weight)
    torch.nn.init.zeros_(layer.bias)
    layer.register_buffer("kept", torch.ones(1))
    layer.register_buffer("computed", torch.ones(1), persistent=False)
    layer.config = SimpleNamespace(to_dict=lambda: {"width": 2, "_name_or_path": changes.pop("path", "x")})  # type: ignore[assignment]
    tokenizer = SimpleNamespace(get_vocab=lambda: {"a": 1}, padding_side="right", special_tokens_map={"pad": "[PAD]"})
    given: dict[str, Any] = {"hf_model": layer, "task": "base", "tokenizer": tokenizer, **changes}
    return SimpleNamespace(**given)


def test_fingerprints_of_models() -> None:
    """The same numbers give the same; a weight, a stored buffer, a setting, a task or a word more gives another."""
    same = provenance.model_fingerprint(model_of())
    assert len(same) == 16
    assert provenance.model_fingerprint(model_of(path="elsewhere")) == same
    others = []
    for change in ("weight", "bias", "kept"):
        other = model_of()
        with torch.no_grad():
            getattr(other.hf_model, change).view(-1)[0] += 1
        others.append(provenance.model_fingerprint(other))
    computed = model_of()
    computed.hf_model.computed += 1
    assert provenance.model_fingerprint(computed) == same
    wide = model_of()
    wide.hf_model.config = SimpleNamespace(width=3)
    others += [provenance.model_fingerprint(one) for one in (wide, model_of(task="x"), model_of(tokenizer=None))]
    for change in ({"padding_side": "left"}, {"special_tokens_map": {"pad": "[P]"}}, {"get_vocab": lambda: {"a": 2}}):
        other = model_of()
        vars(other.tokenizer).update(change)
        others.append(provenance.model_fingerprint(other))
    assert len({same, *others}) == len(others) + 1


def test_fingerprints_of_data() -> None:
    base = Example("a", "b", "t", "f", ((0, 1),), "1", {"x": 1})
    same = provenance.data_fingerprint([base, base])
    assert len(same) == 16
    assert provenance.data_fingerprint([Example("a", "b", "t", "f", ((0, 1),), "1", {"x": 1}), base]) == same
    changed = [
        *(Example("A", "b", "t", "f", ((0, 1),), "1", {"x": 1}), Example("a", "B", "t", "f", ((0, 1),), "1", {"x": 1})),
        *(Example("a", "b", "T", "f", ((0, 1),), "1", {"x": 1}), Example("a", "b", "t", "F", ((0, 1),), "1", {"x": 1})),
        *(Example("a", "b", "t", "f", ((0, 2),), "1", {"x": 1}), Example("a", "b", "t", "f", ((0, 1),), "2", {"x": 1})),
        Example("a", "b", "t", "f", ((0, 1),), "1", {"x": 2}),
    ]
    prints = [provenance.data_fingerprint([base, one]) for one in changed] + [provenance.data_fingerprint([base])]
    assert len({same, *prints}) == len(prints) + 1
    path = Example("a", info={"path": Path("x")})
    assert provenance.data_fingerprint([path]) == provenance.data_fingerprint([Example("a", info={"path": "x"})])


def test_checksums_of_large_tensors_are_of_all_their_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    import hashlib
    from concurrent.futures import ThreadPoolExecutor

    monkeypatch.setattr(provenance, "PIECE", 8)
    with ThreadPoolExecutor(1) as pool:
        for count in (8, 9, 20):
            numbers = torch.arange(count, dtype=torch.uint8)
            data = bytes(range(count))
            pieces = [hashlib.sha256(data[i : i + 8]).digest() for i in range(0, count, 8)]
            expected = hashlib.sha256(data if count <= 8 else b"".join(pieces)).hexdigest()
            assert provenance._checksum(numbers, pool) == expected


def test_vocabularies_of_tokenizers(tmp_path: Path) -> None:
    import hashlib

    fast = SimpleNamespace(
        backend_tokenizer=SimpleNamespace(to_str=lambda: '{"model": 1, "truncation": 2, "padding": 3}')
    )
    assert provenance._vocabulary(fast) == {"backend": {"model": 1}}

    def save(folder: str) -> None:
        (Path(folder) / "b.txt").write_text("two")
        (Path(folder) / "a.txt").write_text("one")
        (Path(folder) / "folder").mkdir()

    slow = SimpleNamespace(get_vocab=lambda: {"a": 1}, save_vocabulary=save)
    sums = [f"{name} {hashlib.sha256(text).hexdigest()}" for name, text in (("a.txt", b"one"), ("b.txt", b"two"))]
    assert provenance._vocabulary(slow) == {"vocabulary": {"a": 1}, "files": sums}
    assert provenance._vocabulary(SimpleNamespace()) == {"vocabulary": None, "files": []}
    assert provenance._tokenizer(None) is None
