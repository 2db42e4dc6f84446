"""Scores of other tools: put to the right tokens or refused, and judged by the numbers that the same scores have as
ours."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import mixlens
from mixlens.base import errors
from mixlens.scoring import attributions

TEXTS = [
    "A dull film with a wonderful cast.",
    "The plot was not dull.",
    "The music was good and the cast was dreadful.",
]


@pytest.fixture(scope="module")
def trace() -> Any:
    return mixlens.load("sentiment").trace(TEXTS[0])


def words_of(trace: Any) -> list[str]:
    return [word for word, places in trace.words if not trace.special[places[0]]]


@pytest.mark.parametrize("kind", [list, tuple, np.array, torch.tensor, lambda v: torch.tensor(v, requires_grad=True)])
def test_one_number_for_each_token(kind: Any, trace: Any, capsys: pytest.CaptureFixture[str]) -> None:
    values = [0.5 * i for i in range(len(trace))]
    made = mixlens.attribution_from(trace, kind(values), name="mine", target="positive")
    assert made.scores.tolist() == values
    assert (made.tokens, made.words, made.special) == (trace.tokens, trace.words, trace.special)
    assert (made.method, made.info["target"], made.info["model"]) == ("mine", "positive", "sentiment")
    made.show(color=False, top=1)
    assert "mine" in capsys.readouterr().out


@pytest.mark.parametrize("lead", [(), (1,)])
def test_vectors_as_captum_gives_them_are_summed(lead: tuple[int, ...], trace: Any) -> None:
    vectors = torch.randn(*lead, len(trace), 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    made = mixlens.attribution_from(trace, vectors)
    assert made.scores.tolist() == pytest.approx(vectors.reshape(len(trace), 6).sum(-1).tolist(), abs=1e-12)
    assert made.info["foreign"]["summed_over"] == 6


def test_captums_own_output_is_taken_as_it_is(trace: Any) -> None:
    captum = pytest.importorskip("captum.attr")
    stock, given = trace.model.hf_model, torch.tensor([trace.input_ids])
    x = stock.get_input_embeddings()(given).detach()
    theirs = captum.InputXGradient(lambda e: stock(inputs_embeds=e).logits).attribute(x.requires_grad_(), target=1)
    ours = mixlens.attribute(trace, "grad_x_input", target=1, embedding="word")
    made = mixlens.attribution_from(trace, theirs)
    torch.testing.assert_close(made.scores.float(), ours.scores, rtol=1e-4, atol=1e-6)  # float32 sums in another order


def test_shap_explanations_are_read(trace: Any) -> None:
    """By what they have, values, base_values and data; the library is not needed."""
    values = np.arange(2.0 * len(trace)).reshape(1, len(trace), 2)
    theirs = SimpleNamespace(values=values, base_values=np.zeros(2), data=[list(trace.tokens)])
    assert mixlens.attribution_from(trace, theirs, output=1).scores.tolist() == values[0, :, 1].tolist()
    with pytest.raises(errors.InputError, match=r"shap's outputs are 2: say which, output=0 to 1"):
        mixlens.attribution_from(trace, theirs)
    single = SimpleNamespace(values=values[0, :, 0], base_values=0.0, data=None)
    assert mixlens.attribution_from(trace, single).scores.tolist() == values[0, :, 0].tolist()


def test_a_real_shap_explanation(trace: Any) -> None:
    shap = pytest.importorskip("shap")
    values = np.arange(float(len(trace)))
    made = mixlens.attribution_from(trace, shap.Explanation(values, base_values=0.0, data=np.array(trace.tokens)))
    assert made.scores.tolist() == values.tolist()
    assert made.info["foreign"]["from"] == "shap.Explanation"


def test_ferret_and_inseq_are_read_by_what_they_have(trace: Any) -> None:
    n = len(trace)
    ferret = SimpleNamespace(tokens=list(trace.tokens), scores=np.arange(float(n)), explainer="LIME")
    assert mixlens.attribution_from(trace, ferret).scores.tolist() == list(range(n))
    ferret.tokens[1] = "another"
    with pytest.raises(errors.InputError, match="ferret's tokens are not those of the trace"):
        mixlens.attribution_from(trace, ferret)
    written = np.full((n + 2, 2, 3), np.nan)
    written[:n, 0] = 1.0
    inseq = SimpleNamespace(source_attributions=None, target_attributions=written)
    assert mixlens.attribution_from(trace, inseq, output=0).scores.tolist() == [3.0] * n
    with pytest.raises(errors.InputError, match="the written tokens are 2: say which"):
        mixlens.attribution_from(trace, inseq)


def test_words_with_scores_are_put_to_their_tokens(trace: Any) -> None:
    pairs = [(word, float(i + 1)) for i, word in enumerate(words_of(trace))]
    made = mixlens.attribution_from(trace, pairs)
    by_word = made.by_word()
    assert [float(score) for score, special in zip(by_word.scores, by_word.special, strict=True) if not special] == [
        s for _, s in pairs
    ]
    assert float(made.scores[torch.tensor(trace.special)].abs().sum()) == 0
    assert (
        mixlens.attribution_from(trace, list(zip(trace.tokens, made.scores.tolist(), strict=True))).scores.tolist()
        == made.scores.tolist()
    )
    for wrong in (pairs[:-1], pairs[::-1], [("other", 1.0), *pairs[1:]]):
        with pytest.raises(errors.InputError, match="the words do not fit the text"):
            mixlens.attribution_from(trace, wrong)


def test_tokens_alone_are_enough() -> None:
    made = mixlens.attribution_from(["a", "b"], [1, -2], name="x")
    assert (made.tokens, made.scores.tolist(), made.method) == (("a", "b"), [1.0, -2.0], "x")
    assert made.to_dict()["tokens"] == ["a", "b"]


@pytest.mark.parametrize(
    ("scores", "options", "why"),
    [
        ([1.0, 2.0], {}, r"there are 13 tokens .* and scores of the shape \[2\]"),
        (np.zeros((2, 13)), {}, r"scores of the shape \[2, 13\]"),
        ("text", {}, "scores are numbers, one for each token"),
        ([None] * 13, {}, "scores are numbers|not a finite number"),
        ([float("inf")] * 13, {}, "score 0 is not a finite number"),
        ([0.0, -1.0, *[0.0] * 11], {"signed": False}, r"signed=False, and score 1 is -1"),
    ],
)
def test_what_does_not_fit_is_refused(scores: Any, options: Any, why: str, trace: Any) -> None:
    with pytest.raises(errors.InputError, match=why):
        mixlens.attribution_from(trace, scores, **options)


# --- judged -----------------------------------------------------------------------------------------------------------


def records(outcome: Any, method: str) -> list[tuple[str, str, float]]:
    return [(one.example, one.metric, one.value) for one in outcome.records if one.method == method]


def test_judged_scores_of_a_function_and_of_a_list_are_those_of_the_method_they_repeat() -> None:
    model = mixlens.load("sentiment")

    def repeated(trace: Any, target: Any) -> Any:
        """attcat again, of what is explained."""
        return mixlens.attribute(trace, "attcat", target=target.ids[0], foil=target.foil, score=target.score).scores

    def other(trace: Any) -> Any:
        return [len(token) for token in trace.tokens]

    stored = [[float(len(token)) for token in model.trace(text).tokens] for text in TEXTS]
    methods = ["attcat", repeated, other, {"stored": stored}]
    outcome = mixlens.judge(model, TEXTS, methods=methods, metrics="aopc,insertion", progress=False)
    assert records(outcome, "repeated") == records(outcome, "attcat")
    assert records(outcome, "stored") == records(outcome, "other") != records(outcome, "attcat")
    assert outcome.setup.methods == ("attcat", "repeated", "other", "stored")
    assert not {"repeated", "other", "stored"} & set(attributions.known())  # they are methods while they are judged


@pytest.mark.parametrize(
    ("methods", "why"),
    [
        ([{"attcat": lambda trace: []}], "there is a method 'attcat' already"),
        ([{"a,b": lambda trace: []}], "a method's name is of letters"),
        ([{"mine": [[1.0]]}], r"'mine' has the scores of 1, and there are 3 texts"),
        ([{"mine": 3}], "no list"),
        ([3], "a method is a name, a function of a trace"),
        ([{"mine": lambda trace: [1.0]}], r"scores of the shape \[1\]"),
    ],
)
def test_methods_from_outside_that_are_none_are_refused(methods: Any, why: str) -> None:
    before = set(attributions.known())
    with pytest.raises(errors.InputError, match=why):
        mixlens.judge("sentiment", TEXTS, methods=methods, metrics="aopc", progress=False)
    assert set(attributions.known()) == before


def test_groups_of_methods() -> None:
    from mixlens.runs.judge import ask

    assert {
        "shap",
        "lime",
        "gradient_shap",
        "smooth_grad",
        "layer_conductance",
        "sequential_integrated_gradients",
    } <= set(ask.peers())
    assert "discretized_integrated_gradients" in ask.peers()
    assert not set(ask.peers()) & set(ask.every_method()[0])
    assert ask.asked_methods("all,peers")[0] == [*ask.every_method()[0], *ask.peers()]
    assert ask.asked_methods("shap,peers")[0] == ["shap", *(name for name in ask.peers() if name != "shap")]
