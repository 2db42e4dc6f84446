"""What each written word rests on: one pass gives every row, rows sum to 1, leaving out is deleting, files come
back."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import CAUSAL, SHARED, TWINS, hf_model, ids, needs_shared
from made import talker, tokenizer

import mixlens
from mixlens.answers.generation import explaining, wording
from mixlens.scoring import attributions

pytestmark = pytest.mark.filterwarnings("ignore::mixlens.scoring.completeness.IncompleteWarning")
PROMPT = "the cat likes the red ball. the dog is a cat! where is the park"
WRITTEN = "open the ball. playing dogs likes red"
FAMILIES = [case for case in CAUSAL if case not in TWINS]
# Some norms of these families compute in float32, and a shorter pass adds up in another order.
CLOSE = {"rtol": 1e-5, "atol": 1e-6}


@pytest.fixture(scope="module")
def generation() -> Any:
    return talker().explain(PROMPT, continuation=WRITTEN).with_effects()


def logits_of(model: Any, numbers: list[int]) -> torch.Tensor:
    """Of the stock model, nothing of ours."""
    with torch.no_grad():
        return model.hf_model(torch.tensor([numbers])).logits[0]


# --- one pass for all rows ---


@pytest.mark.parametrize("case", FAMILIES)
def test_rows_of_one_pass_are_those_of_each_text_alone(case: str) -> None:
    model = mixlens.load(hf_model(case, head="AutoModelForCausalLM"))
    prompt = model.encode_ids(ids(5))
    written = explaining.written_after(model, prompt, ids(3, seed=1), given=True)
    for name in ("alti", "grad_x_input"):
        for step, place in zip(explaining.steps_of(written, name, {}), written.places, strict=True):
            alone = model.trace(input_ids=list(written.whole.input_ids[:place]))
            target = {} if name == "alti" else {"target": written.whole.input_ids[place]}
            torch.testing.assert_close(step.scores, attributions.attribute(alone, name, **target).scores, **CLOSE)


@pytest.mark.parametrize(
    "name", ["attention", "globenc", "value_zeroing", "hta", "attcat", "blank_out", "deeplift", "context_cite"]
)
def test_every_kind_of_method_gives_what_each_text_alone_gives(name: str) -> None:
    model = talker()
    written = explaining.write(model, "the cat is red. the dog", continuation="likes playing")
    options = {"replacement": "delete"} if name == "blank_out" else {}
    for step, place in zip(explaining.steps_of(written, name, options), written.places, strict=True):
        alone = model.trace(input_ids=list(written.whole.input_ids[:place]))
        target = {"target": written.whole.input_ids[place]} if name in mixlens.scoring.attributions.known() else {}
        expected = attributions.attribute(alone, name, **target, **options)
        torch.testing.assert_close(step.scores, expected.scores, **CLOSE)
        assert step.tokens == alone.tokens
        rollout = step.info.get("rollout")
        assert rollout == expected.info.get("rollout")


def test_the_beginning_of_a_trace_is_the_trace_of_the_beginning() -> None:
    written = explaining.write(talker(), "the cat is red. the dog", continuation="likes playing")
    place = written.places[1]
    begun, alone = written.before(place), talker().trace(input_ids=list(written.whole.input_ids[:place]))
    assert (begun.tokens, begun.predicts, len(begun.layers)) == (alone.tokens, alone.predicts, len(alone.layers))
    for one, other in zip(begun.layers, alone.layers, strict=True):
        torch.testing.assert_close(one.input, other.input, **CLOSE)
        torch.testing.assert_close(one.attention, other.attention, **CLOSE)
    torch.testing.assert_close(begun.logits, alone.logits, **CLOSE)


def test_a_map_is_made_once_for_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    known = mixlens.answers.generation.explaining.mix
    monkeypatch.setattr(
        mixlens.answers.generation.explaining,
        "mix",
        lambda *args, **options: calls.append(1) or known(*args, **options),
    )
    assert len(talker().explain(PROMPT, continuation=WRITTEN)) == 10
    assert calls == [1]


# --- the table ---


def test_a_generation_is_a_sequence_of_attributions(generation: Any) -> None:
    assert len(generation) == len(list(generation)) == len(generation.probabilities)
    assert generation[0].info["generated"] == generation.text.tokens[generation.text.begin]
    assert [len(step.tokens) for step in generation[-2:]] == [
        len(generation.text.tokens) - 2,
        len(generation.text.tokens) - 1,
    ]


@pytest.mark.parametrize("name", ["alti", "globenc", "attention", "grad_x_input"])
def test_rows_sum_to_one_with_own_words_and_the_begin_mark(name: str) -> None:
    generation = talker().explain(PROMPT, method=name, continuation=WRITTEN)
    torch.testing.assert_close(generation.matrix.abs().sum(-1), torch.ones(len(generation.rows), dtype=torch.float64))
    begin = (
        generation.matrix[:, [number for number, word in enumerate(generation.columns) if word.special]].abs().sum(-1)
    )
    parts = wording.own_shares(generation) + wording.prompt_shares(generation) + begin
    torch.testing.assert_close(parts, torch.ones_like(parts))


def test_words_join_what_their_tokens_have() -> None:
    """A map's row of a word is the mean of its tokens' rows, an attribution's the sum; columns are sums."""
    model = talker()
    for name in ("alti", "grad_x_input"):
        generation = model.explain("the cat is", method=name, continuation="playing the dogs.")
        assert [word.text for word in generation.rows] == ["playing", "the", "dogs", "."]
        assert [len(word.tokens) for word in generation.rows] == [2, 1, 2, 1]
        first, second = generation[0].scores, generation[1].scores
        column = generation.columns[2]
        whole = first[list(column.tokens)].sum() + second[list(column.tokens)].sum()
        expected = whole / 2 if name == "alti" else whole
        torch.testing.assert_close(generation.word_scores[0, 2], expected.double(), rtol=1e-9, atol=1e-12)
        product = generation.probabilities[0] * generation.probabilities[1]
        assert generation.row_probabilities[0] == pytest.approx(product, rel=1e-12)
        assert float(generation.matrix[0, 5:].abs().sum()) == 0  # nothing looks ahead


def test_words_tile_the_prompt_and_the_written_text(generation: Any) -> None:
    text = "".join(word.before + word.text for word in generation.columns if word.counts)
    assert text.strip() == PROMPT
    places = [place for word in generation.columns for place in word.tokens]
    assert places == list(range(len(generation.text.tokens)))
    assert [len(group.words) for group in generation.text.groups] == [7, 6, 4]
    assert {word.segment for word in generation.rows} == {"written"}


def test_a_written_piece_that_goes_on_with_the_prompt_is_a_row() -> None:
    generation = talker().explain("the cat is play", continuation="##ing. the")
    assert [word.text for word in generation.columns if word.counts] == ["the", "cat", "is", "play"]
    assert [word.text for word in generation.rows] == ["ing", ".", "the"]


def test_probabilities_are_those_of_the_stock_model(generation: Any) -> None:
    whole = generation.whole
    shares = logits_of(talker(), list(whole.input_ids)).softmax(-1)
    expected = [float(shares[place - 1, whole.input_ids[place]]) for place in range(generation.text.begin, len(whole))]
    assert list(generation.probabilities) == pytest.approx(expected, rel=1e-5)


# --- what leaving out does ---


def test_leaving_out_is_what_deleting_gives(generation: Any) -> None:
    """Every word and every sentence deleted by hand, and the stock model asked for every written word again."""
    model, whole, begin = talker(), list(generation.whole.input_ids), generation.text.begin
    assert begin > max(place for word in generation.columns if word.counts for place in word.tokens)

    def by_hand(gone: set[int]) -> list[float]:
        prompt = [token for place, token in enumerate(whole[:begin]) if place not in gone]
        shares = logits_of(model, prompt + whole[begin:]).log_softmax(-1)
        logs = [shares[len(prompt) + k - 1, token] for k, token in enumerate(whole[begin:])]
        rows = [[place - begin for place in row.tokens] for row in generation.rows]
        return [float(torch.stack([logs[k] for k in row]).sum().exp()) for row in rows]

    before = by_hand(set())
    for number, word in enumerate(generation.columns):
        if word.counts:
            expected = [after - whole for after, whole in zip(by_hand(set(word.tokens)), before, strict=True)]
            assert generation.effects.words[:, number].tolist() == pytest.approx(expected, rel=1e-4, abs=1e-6)
    for number, group in enumerate(generation.text.groups):
        gone = {place for one in group.words for place in generation.columns[one].tokens}
        expected = [after - whole for after, whole in zip(by_hand(gone), before, strict=True)]
        assert generation.effects.groups[:, number].tolist() == pytest.approx(expected, rel=1e-4, abs=1e-6)
    summed = generation.effects.words[:, list(generation.text.groups[0].words)].sum(-1)
    assert not torch.allclose(summed, generation.effects.groups[:, 0], atol=1e-3)  # a group is left out as a group


def test_a_prompt_that_would_be_empty_has_no_effect() -> None:
    """Without a begin mark, nothing is left when the only sentence is left out: that is not a number, and said as
    None."""
    model = mixlens.load(hf_model("gpt2", head="AutoModelForCausalLM"))
    generation = mixlens.answers.generation.explaining.explain_written(
        explaining.written_after(model, model.encode_ids(ids(1)), ids(2, seed=1), given=True), "alti"
    ).with_effects()
    assert bool(generation.effects.words[:, 0].isnan().all())
    assert generation.to_dict()["rows"][0]["effects"][0] is None


def test_the_answer_names_the_largest_loss(generation: Any) -> None:
    loss = wording.largest_loss(generation)
    rows = [number for number, row in enumerate(generation.rows) if not row.mark and not row.special]
    assert loss is not None
    assert loss.change == float(generation.effects.groups[rows].min())


def with_rows(generation: Any, made_of_prompt: list[float]) -> Any:
    """The same texts and effects, with other scores: how much of each row the first word of the prompt holds; the rest
    is own."""
    first, begin = generation.columns[1].tokens[0], generation.text.begin
    scores = torch.zeros_like(generation.scores)
    for row, share in zip(generation.rows, made_of_prompt, strict=True):
        for place in row.tokens:
            scores[place - begin, first] += share
            scores[place - begin, begin] += 1 - share
    return dataclasses.replace(generation, scores=scores)


def test_the_word_that_the_prompt_counts_most_for_has_the_largest_share_in_it(generation: Any) -> None:
    """Chosen by the share that the sentence gives, whichever word loses most; no other word of the table has more."""
    assert generation.columns[1].counts
    loss = wording.largest_loss(generation)
    other = next(row for row, word in enumerate(generation.rows) if row != loss.row and not word.mark)
    for best in (loss.row, other):
        shares = [0.45] * len(generation.rows)
        shares[best] = 0.9
        made = with_rows(generation, shares)
        table = made.matrix[:, [number for number, word in enumerate(made.columns) if word.counts]].abs().sum(-1)
        assert wording.named_row(made) == best == int(table.argmax())
        told = made.sentence.replace("\u202f", " ")
        assert f"The prompt counts most for {made.rows[best].text}: 90 % of that word" in told
        effect = float(made.effects.groups[best].min())
        assert ("instead of" in told) == (effect <= -0.01)


def test_the_prompt_comes_back_for_the_word_that_loses_most(generation: Any) -> None:
    loss = wording.largest_loss(generation)
    shares = [0.5] * len(generation.rows)
    shares[loss.row] = 0.9 * (1 - wording.BACK)
    made = with_rows(generation, shares)
    assert wording.named_row(made) == loss.row
    assert f"The prompt comes back for {made.rows[loss.row].text}: 36" in made.sentence


@needs_shared
def test_the_answer_on_a_story_model() -> None:
    """The numbers of the design's mock-up, which were computed apart."""
    model = mixlens.load(SHARED / "models" / "stories260K", dtype="float32")
    prompt = (
        "Once upon a time, there was a little girl named Lily. She loved to play with her red ball in the park. "
        "One day, Lily lost her ball. She was very"
    )
    told = model.explain(prompt, generate=41).with_effects().sentence.replace("\u202f", " ")
    assert told == (
        "Mostly on the words just written: 84 % on average. The prompt comes back for ball: 26 % of that word is made "
        "of the "
        "prompt, and without sentence 2 (“… with her red ball …”) its probability would be 54 % instead of 71 %."
    )


# --- what is given instead of generated ---


def test_a_given_continuation_is_explained_as_if_it_were_written() -> None:
    model = talker()
    written = model.explain("the cat is", generate=4)
    given = model.explain("the cat is", continuation=written.text.written.strip())
    if given.whole.input_ids == written.whole.input_ids:
        torch.testing.assert_close(given.matrix, written.matrix)
    assert given.given
    assert not written.given
    assert given[0].info["given"] is True


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"generate": 2, "continuation": "the"}, "Give one of them"),
        ({"continuation": " "}, "continuation is empty"),
        ({"continuation": 5}, "a continuation is a text"),
        ({"continuation": "the", "target": "cat"}, "leave target= and query= out"),
        ({"continuation": "the cat " * 90}, "are over the 160"),
        ({"generate": 0}, "at least 1"),
        ({"generate": "3"}, "generate is a whole number of tokens, not '3'"),
        ({"generate": 2.5}, "generate is a whole number of tokens, not 2.5"),
        ({"generate": True}, "generate is a whole number of tokens, not True"),
        ({"generate": 2, "foil": "dog"}, "'alti' explains a position, whatever the token there: leave foil= out"),
        (
            {"generate": 2, "foil": "dog", "score": "logit", "method": "raw_attention"},
            "'raw_attention' .* leave foil= and score= out",
        ),
        ({"generate": 2, "label": "dog", "method": "attcat"}, "leave label= out"),
    ],
)
def test_refusals(options: dict[str, Any], message: str) -> None:
    with pytest.raises(mixlens.MixlensError, match=message):
        talker().explain("the cat", **options)


def test_a_masked_model_writes_nothing() -> None:
    with pytest.raises(mixlens.MixlensError, match="needs a causal language model"):
        mixlens.load("agreement").explain("The keys [MASK] rusty.", continuation="were")


# --- files ---


def test_a_file_comes_back_whole(generation: Any, tmp_path: Path) -> None:
    generation.save(tmp_path / "g.json")
    again = mixlens.Generation.load(tmp_path / "g.json")
    assert again.to_dict() == generation.to_dict()
    assert torch.equal(again.scores, generation.scores)
    assert [step.tokens for step in again] == [step.tokens for step in generation]
    with pytest.raises(mixlens.MixlensError, match="no model to run again"):
        mixlens.Generation.load(tmp_path / "g.json").__class__(**{**vars_of(again), "effects": None}).with_effects()


def vars_of(generation: Any) -> dict[str, Any]:
    return {name: getattr(generation, name) for name in generation.__dataclass_fields__}


def test_csv_has_a_line_for_every_cell(generation: Any, tmp_path: Path) -> None:
    generation.to_csv(tmp_path / "g.csv")
    lines = list(csv.DictReader(io.StringIO((tmp_path / "g.csv").read_text())))
    first = generation.text.first
    assert len(lines) == sum(first + number + 1 for number in range(len(generation.rows)))
    sums: dict[str, float] = {}
    for line in lines:
        sums[line["row"]] = sums.get(line["row"], 0) + abs(float(line["share"]))
    assert all(total == pytest.approx(1) for total in sums.values())


@pytest.mark.parametrize("change", ["kind", "scores", "words", "probabilities", "text"])
def test_a_file_that_does_not_fit_is_refused(generation: Any, tmp_path: Path, change: str) -> None:
    content = generation.to_dict()
    content[change] = {
        "kind": "why",
        "scores": [[1.0]],
        "words": content["words"][:-1],
        "probabilities": [],
        "text": 1,
    }[change]
    if change == "text":
        del content["rows"]
    (tmp_path / "g.json").write_text(json.dumps(content))
    with pytest.raises(mixlens.MixlensError):
        mixlens.Generation.load(tmp_path / "g.json")


def test_what_cannot_be_written_is_refused(generation: Any, tmp_path: Path) -> None:
    with pytest.raises(mixlens.MixlensError, match=r"saved as \.json"):
        generation.save(tmp_path / "g.safetensors")
    with pytest.raises(mixlens.MixlensError, match="no folder"):
        generation.to_csv(tmp_path / "nowhere" / "g.csv")


def test_tokens_stand_for_words_where_words_are_not_known() -> None:
    model = mixlens.load(hf_model("llama", head="AutoModelForCausalLM"))
    written = explaining.written_after(model, model.encode_ids(ids(4)), ids(2, seed=1), given=True)
    generation = mixlens.answers.generation.explaining.explain_written(written, "alti")
    assert generation.text.unit == "token"
    assert len(generation.rows) == 2
    assert tokenizer().is_fast  # those of the other tests tell their characters
