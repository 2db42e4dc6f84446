"""AOPC, LOdds, comprehensiveness, sufficiency, blank-out: each changed text run by itself through the stock model."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from conftest import hf_model, ids
from test_untouched import assert_same, state_of

import mixlens
from mixlens import metrics
from mixlens.base.errors import InputError
from mixlens.metrics import faithfulness
from mixlens.scoring import targets

TEXT = "The plot was not dull, and the music was good."


def sentiment(text: str = TEXT) -> Any:
    return mixlens.load("sentiment", dtype="float64").trace(text)


def scores_of(trace: Any, seed: int = 0) -> torch.Tensor:
    return torch.randn(len(trace), dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def probability(trace: Any, kept: list[int], replaced: dict[int, int], label: int) -> float:
    """One text by itself: these positions, some of them replaced, through the stock model and a softmax."""
    given = torch.tensor([[replaced.get(i, trace.input_ids[i]) for i in kept]])
    with torch.no_grad():
        return float(trace.model.hf_model(given).logits[0].softmax(-1)[label])


def in_order(trace: Any, scores: torch.Tensor) -> list[int]:
    movable = [i for i in range(len(trace)) if not trace.special[i]]
    return sorted(movable, key=lambda i: -float(scores[i]))


def test_aopc_and_lodds_written_out() -> None:
    trace = sentiment()
    scores, n, label = scores_of(trace), len(trace), int(trace.logits.argmax())
    order = in_order(trace, scores)
    whole = probability(trace, list(range(n)), {}, label)
    drops, odds = [], []
    for percent in range(0, 101, 10):
        gone = order[: round(percent / 100 * len(order))]
        drops.append(whole - probability(trace, [i for i in range(n) if i not in gone], {}, label))
        padded = probability(trace, list(range(n)), dict.fromkeys(gone, trace.model.pad_id), label)
        odds.append(math.log(padded / whole))
    made, other = faithfulness.aopc(trace, scores), faithfulness.lodds(trace, scores)
    assert made.points == pytest.approx(drops, abs=1e-12)
    assert other.points == pytest.approx(odds, abs=1e-12)
    assert (made.value, other.value) == pytest.approx((np.mean(drops), np.mean(odds)), abs=1e-12)
    assert (made.points[0], other.points[0]) == (0, 0)
    assert made.whole == pytest.approx(whole)


def test_comprehensiveness_and_sufficiency_written_out() -> None:
    trace = sentiment()
    scores, n, label = scores_of(trace, 1), len(trace), int(trace.logits.argmax())
    order, special = in_order(trace, scores), [i for i in range(n) if trace.special[i]]
    whole = probability(trace, list(range(n)), {}, label)
    left_out, left_in = [], []
    for percent in (0, 1, 5, 10, 20, 50):
        top = order[: math.ceil(percent * len(order) / 100)]
        left_out.append(whole - probability(trace, [i for i in range(n) if i not in top], {}, label))
        left_in.append(whole - probability(trace, sorted([*special, *top]), {}, label))
    for measure, points in ((faithfulness.comprehensiveness, left_out), (faithfulness.sufficiency, left_in)):
        assert measure(trace, scores).points == pytest.approx(points, abs=1e-12)
        assert measure(trace, scores).value == pytest.approx(np.mean(points), abs=1e-12)
        assert measure(trace, scores, variant="released").value == pytest.approx(np.mean(points[1:]), abs=1e-12)


def test_all_tokens_kept_is_the_text_itself_and_none_kept_is_all_gone() -> None:
    trace = sentiment()
    scores = scores_of(trace)
    assert faithfulness.sufficiency(trace, scores, percents=(100,)).points[-1] == pytest.approx(0, abs=1e-12)
    emptied = [
        measure(trace, scores, percents=(p,)).points[-1]
        for measure, p in ((faithfulness.comprehensiveness, 100), (faithfulness.sufficiency, 0))
    ]
    assert emptied[0] == pytest.approx(emptied[1], abs=1e-12)


def test_the_best_order_beats_the_worst() -> None:
    """Blank-out's own order removes what speaks for the class first; the other way round it goes last."""
    traces = mixlens.load("sentiment").trace([TEXT, "The film was dull.", "A good story and a fine cast."])
    best = [mixlens.attribute(trace, "blank_out", replacement="delete").scores for trace in traces]
    made = {
        name: [metrics.summary(name, traces, [sign * scores for scores in best]).mean for sign in (1, -1)]
        for name in ("aopc", "comprehensiveness", "lodds", "sufficiency")
    }
    assert made["aopc"][0] > made["aopc"][1]
    assert made["comprehensiveness"][0] > made["comprehensiveness"][1]
    assert made["lodds"][0] < made["lodds"][1]
    assert made["sufficiency"][0] < made["sufficiency"][1]


def test_runs_are_batched() -> None:
    trace = sentiment()
    calls: list[int] = []
    run = trace.model.outputs
    trace.model.outputs = lambda rows, **more: calls.append(len(rows)) or run(rows, **more)
    try:
        faithfulness.aopc(trace, scores_of(trace))
    finally:
        del trace.model.outputs
    assert calls == [12]


@pytest.mark.parametrize(
    "measure", [faithfulness.aopc, faithfulness.lodds, faithfulness.comprehensiveness, faithfulness.sufficiency]
)
def test_where_a_token_predicts_it_stays_and_is_found_again(measure: Any) -> None:
    """A masked-LM: tokens before [MASK] go, and its probability is read where it has moved to."""
    trace = mixlens.load("agreement", dtype="float64").trace("The keys to the cabinet [MASK] rusty.")
    made = measure(trace, scores_of(trace), percents=(50,), replacement="delete")
    mask = trace.query
    order = [i for i in in_order(trace, scores_of(trace)) if i != mask]
    half = {faithfulness.aopc: round, faithfulness.lodds: round}.get(measure, math.ceil)(len(order) / 2)
    gone = order[half:] if measure is faithfulness.sufficiency else order[:half]
    kept = [i for i in range(len(trace)) if i not in gone]
    with torch.no_grad():
        logits = trace.model.hf_model(torch.tensor([[trace.input_ids[i] for i in kept]])).logits[0, kept.index(mask)]
    wanted = int(trace.logits[0].argmax())
    assert made.left[-1] == pytest.approx(float(logits.softmax(-1)[wanted]), abs=1e-12)


def test_a_span_is_found_again() -> None:
    model = mixlens.load(hf_model("bert", head="AutoModelForQuestionAnswering"))
    trace = model.trace(input_ids=ids(8))
    target = targets.resolve(trace, (3, 6), score="log_probability")
    made = faithfulness.outcomes(trace, [[], [0, 4], [1, 2]], target)
    for value, gone in zip(made, ([], [0, 4], [1, 2]), strict=True):
        kept = [i for i in range(8) if i not in gone]
        with torch.no_grad():
            out = model.hf_model(torch.tensor([[trace.input_ids[i] for i in kept]]))
        start = out.start_logits[0].log_softmax(-1)[kept.index(3)]
        end = out.end_logits[0].log_softmax(-1)[kept.index(6)]
        assert value == pytest.approx(float(start + end), abs=1e-12)


def test_a_causal_model_and_one_without_special_tokens() -> None:
    """The last token predicts, so it stays; a classifier with nothing to protect keeps one token."""
    causal = mixlens.load(hf_model("gpt2", head="AutoModelForCausalLM")).trace(input_ids=ids(6))
    assert faithfulness.aopc(causal, scores_of(causal)).removed[-1] == 5
    trace = mixlens.load(hf_model("bert", head="AutoModelForSequenceClassification")).trace(input_ids=ids(6))
    assert not any(trace.special)
    assert faithfulness.aopc(trace, scores_of(trace)).removed[-1] == 5


def test_the_model_is_left_as_it_was() -> None:
    stock = copy.deepcopy(hf_model("bert", head="AutoModelForSequenceClassification")).train()
    trace = mixlens.load(stock).trace(input_ids=ids(6))
    before = state_of(stock)
    for measure in (faithfulness.aopc, faithfulness.lodds, faithfulness.comprehensiveness, faithfulness.sufficiency):
        measure(trace, scores_of(trace))
    faithfulness.blank_out_faithfulness(trace, scores_of(trace), replacement=7)
    assert_same(before, state_of(stock))


def test_blank_out_agrees_with_itself() -> None:
    trace = sentiment()
    for replacement in ("unk", "mask", "delete"):
        for absolute in (False, True):
            own = mixlens.attribute(trace, "blank_out", replacement=replacement, absolute=absolute)
            for keep in (True, False):
                options = {"replacement": replacement, "absolute": absolute, "keep_special": keep}
                assert faithfulness.blank_out_faithfulness(trace, own, **options) == pytest.approx(1)
                assert faithfulness.blank_out_faithfulness(
                    trace, -own.scores, how="kendall", **options
                ) == pytest.approx(-1)


def test_special_tokens_alone_leave_nothing_to_compare() -> None:
    model = mixlens.load("sentiment", dtype="float64")
    trace = model.trace(input_ids=[model.tokenizer.cls_token_id, model.tokenizer.sep_token_id])
    assert all(trace.special)
    with pytest.raises(InputError, match="every token is special"):
        faithfulness.blank_out_faithfulness(trace, scores_of(trace), keep_special=False)
    assert isinstance(faithfulness.blank_out_faithfulness(trace, scores_of(trace)), float)


def test_blank_out_by_hand_for_target_against_foil() -> None:
    trace = mixlens.load("agreement", dtype="float64").trace("The keys to the cabinet [MASK] rusty.")
    scores, mask, unk = scores_of(trace), trace.query, trace.model.tokenizer.unk_token_id
    pair = [trace.model.tokenizer.convert_tokens_to_ids(word) for word in ("are", "is")]

    def among_two(given: list[int]) -> float:
        with torch.no_grad():
            return float(trace.model.hf_model(torch.tensor([given])).logits[0, mask, pair].softmax(-1)[0])

    whole = among_two(list(trace.input_ids))
    drops = [
        whole - among_two([unk if i == j else t for i, t in enumerate(trace.input_ids)]) for j in range(len(trace))
    ]
    from scipy import stats

    made = faithfulness.blank_out_faithfulness(trace, scores, target="are", foil="is")
    assert made == pytest.approx(stats.spearmanr(scores, drops).statistic)


def test_curves_over_examples() -> None:
    traces = mixlens.load("sentiment").trace([TEXT, "The film was dull.", "A good story."])
    made = [faithfulness.aopc(trace, scores_of(trace)) for trace in traces]
    points = faithfulness.curve(made)
    assert len(points) == 11
    assert points[4].mean == pytest.approx(np.mean([one.points[4] for one in made]))
    assert points[4].n == 3
    with pytest.raises(InputError, match=r"\[6, 11\] points"):
        faithfulness.curve([*made, faithfulness.comprehensiveness(traces[0], scores_of(traces[0]))])


def test_released_explains_the_gold_label_and_leaves_short_texts_out() -> None:
    trace = sentiment()
    other = 1 - int(trace.logits.argmax())
    made = faithfulness.aopc(trace, scores_of(trace), label=other, variant="released")
    assert made.whole == pytest.approx(probability(trace, list(range(len(trace))), {}, other))
    assert len(made.points) == 9
    assert min(made.points) >= 0
    short = sentiment("The film was dull.")
    assert math.isnan(faithfulness.aopc(short, scores_of(short), label=0, variant="released").value)
    both = metrics.summary(
        "aopc", [trace, short], [scores_of(trace), scores_of(short)], label=other, variant="released"
    )
    assert (both.n, both.undefined) == (1, 1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"variant": "released"}, "give label="),
        ({"variant": "old"}, "Known: paper, released"),
        ({"replacement": "hide"}, "Known: delete, infill, mask, pad, unk"),
        ({"percents": (10, 120)}, "from 0 to 100"),
        ({"percents": ()}, "at least one"),
        ({"label": "good", "target": "gold"}, "no class 'good'"),
    ],
)
def test_what_cannot_be_done_is_refused(options: dict[str, Any], said: str) -> None:
    trace = sentiment()
    with pytest.raises(InputError, match=said):
        faithfulness.aopc(trace, scores_of(trace), **options)


def test_scores_must_be_of_the_traces_tokens() -> None:
    trace = sentiment()
    with pytest.raises(InputError, match=f"3 tokens, the trace has {len(trace)}"):
        faithfulness.aopc(trace, [1, 2, 3])
    without = mixlens.load(hf_model("bert", head="AutoModelForSequenceClassification")).trace(input_ids=ids(6))
    with pytest.raises(InputError, match="has no mask token"):
        faithfulness.aopc(without, scores_of(without), replacement="mask")
    ends = mixlens.load("sentiment").trace(input_ids=[trace.input_ids[0], trace.input_ids[-1]])
    with pytest.raises(InputError, match="no token to take away"):
        faithfulness.aopc(ends, [1.0, 2.0])
