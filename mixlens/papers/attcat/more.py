"""AttCAT's Figure 3: answers to questions (Qiang et al. 2022)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ...base.errors import InputError
from ...data import span_tokens
from ...metrics import mean_with_interval
from ...metrics.plausibility import precision_at_k
from ...runs.experiments.claims import Claim, Measured, Verdict, above, incomparable
from ...runs.experiments.experiment import Setup
from ...runs.experiments.figures import bars
from ...runs.experiments.prepare import one_of
from ...runs.experiments.tables import Table, by, interval_of
from ...scoring.asking import MethodRequest, every_score
from ...types import Attribution, Example, Record, Trace
from .main import METHODS, paper, requests_of

READS = ("span", "released", "released_v2")
FEWEST_ANSWERS = 30  # below, the claim of Figure 3 is not judged
SQUAD = {"raw_attention": "released_squad", "attention_rollout": "released_squad"}

# --- Figure 3: Precision@K --------------------------------------------------------------------------------------------


def _finish_qa(setup: Setup, records: list[Record]) -> list[Table]:
    k, rows = setup.options["k"], []
    shares = by([record for record in records if record.metric == "precision_at_k"], "method")
    for (method,), group in shares.items():
        count = mean_with_interval([r.info["count"] for r in group], seed=setup.seed)
        right = interval_of([r for r in group if r.info["answered"]], setup.seed)
        rows.append((method, count, interval_of(group, setup.seed), right))
    first = shares.get((setup.methods[0],), [])
    most = sum(min(record.info["answer"], k) for record in first) / max(1, len(first))
    answered = sum(r.info["answered"] for r in first)
    note = (
        f"count: answer tokens among the highest scores, as in Figure 3; no method can have more than {most:.2f} "
        f"here, the mean length of an answer, of which at most {k} tokens count (the caption of Figure 3 has “max "
        "scores” of 3.72, marked as the paper's own, on SQuAD v1 and 3.84 on v2; it does not say what they are of). "
        "share: of the answer's tokens. right: the share where the model's own answer overlaps the gold one "
        f"({answered} of {len(first)} examples)."
    )
    title = f"Precision@{k}: answer tokens among the {k} highest scores"
    return [Table("precision", title, ("method", "count", "share", "right"), tuple(rows), note)]


def _more_of_the_answer(run: Measured) -> Verdict:
    """AttCAT against the methods of the paper, on the questions that the model answers: a span that is wrong has other
    tokens to explain."""
    counts = run.where(lambda record: record.metric == "count")
    right = counts.where(lambda record: record.info["answered"])
    answered, asked = (len({r.example for r in some.records}) for some in (right, counts))
    if answered < FEWEST_ANSWERS:
        return incomparable(
            f"the model answers {answered} of {asked} questions, and what it explains is its own answer"
        )
    verdict = above("attcat", [method for method in METHODS if method not in ("attcat", "random")], "count")(right)
    return replace(verdict, ours=f"on the {answered} of {asked} questions that the model answers: {verdict.ours}")


def _prepare_qa(setup: Setup) -> None:
    k = setup.options["k"]
    if not isinstance(k, int) or isinstance(k, bool) or k < 1:
        raise InputError(f"k is a number of tokens, at least 1, not {k!r}.")
    one_of(setup, read=READS)


@paper(
    name="attcat-qa",
    shows="Figure 3, Precision@20 on SQuAD",
    data="squad1",
    model="a question-answering model, such as deepset/bert-base-cased-squad2",
    methods=METHODS,
    task=("question-answering",),
    needs=("pair", "answers"),
    options={"k": 20, "read": "span"},
    prepare=_prepare_qa,
    finish=_finish_qa,
    figure=lambda setup, tables, figure: bars(figure.subplots(), tables[0], "count"),
    claims=(
        Claim(
            "Figure 3, section 6.1",
            "AttCAT has more answer tokens among its 20 highest scores than the other methods (the figure has "
            "selected ones, which the text does not name; here all of Table 1)",
            "highest for BERT, DistilBERT and RoBERTa on SQuAD v1 and v2 (bars without numbers)",
            _more_of_the_answer,
        ),
    ),
    differs=(
        "The paper does not say where a map is read. read=span: every method explains the predicted span; maps, "
        "RawAtt, Rollout and the relevances are read at its start and its end, mean of the two; gradients are of the "
        "sum of both logits.",
        "read=released: as the notebooks: RawAtt is the mean over layers, last row; Rollout has no residual and is "
        "averaged over layers and rows; AttCAT takes layer inputs; special tokens are hidden from attention.",
        "Scores of the start and of the end are added with their signs, which is what gradients of the sum of both "
        "logits give. The notebook of SQuAD v1 does so: read=released. That of v2 adds the magnitudes of the two, of "
        "400 questions drawn at random: read=released_v2, which differs in the methods that explain a class. The "
        "paper has one protocol for both, and its impact scores have a sign.",
        "The notebooks read the validation sets (the paper does not name the split), cut the paragraph so that 384 "
        "tokens are left, and take [CLS] for an answer that is cut away. Here --truncate cuts at what the model "
        "reads, and a question whose answer is cut away is refused or left out.",
        "The notebooks have AttCAT, RawAtt and Rollout alone. Their perfect count is the mean length of an answer; "
        "here an answer counts with at most k tokens, which is what the k highest scores can hold.",
        "The paper does not say which tokens compete for the 20 places: here all do, [CLS], [SEP] and the question's "
        "too.",
        "Questions without an answer are left out.",
        "The paper's models answer most questions. What is explained is the model's own answer, so the claim is "
        f"judged on the questions whose gold answer it overlaps, where they are {FEWEST_ANSWERS} or more; the tables "
        "have all questions.",
        "The figure shows selected methods, and the text does not name them; here all of Table 1 and random are "
        "compared.",
    ),
)
def answers(setup: Setup, example: Example) -> list[Record]:
    """Are the tokens of the gold answer among those with the highest scores? The predicted span is explained."""
    trace = setup.model.trace(example)
    gold = span_tokens(example.info["answers"][:1], trace, pair=True)
    if not gold or trace.logits is None:
        raise InputError(f"no token of {setup.model.name!r} covers the answer of example {example.id}.")
    start, end = _span(trace)
    answered = start <= gold[-1] and gold[0] <= end
    records = []
    for method, (of_method, seconds) in _scores(setup, trace).items():
        found = precision_at_k(of_method, (gold[0], gold[-1]), k=setup.options["k"])
        info = {"count": found.count, "answer": found.answer, "answered": answered, "seconds": seconds}
        for metric, value in (("precision_at_k", found.value), ("count", float(found.count))):
            records.append(Record(str(example.id), method, metric, value, info))
    return records


Scores = dict[str, tuple[Attribution, float]]  # of each method, and its seconds


def _scores(setup: Setup, trace: Trace) -> Scores:
    """Every method's scores, as the option `read` has it; as released, in the form that the notebooks of SQuAD have."""
    if setup.options["read"] == "span":
        return span_scores(trace, setup.requests)
    forms = requests_of(setup, "released")
    squad = {written: replace(one, variant=SQUAD.get(one.name, one.variant)) for written, one in forms.items()}
    return released_scores(trace, squad, magnitudes=setup.options["read"] == "released_v2")


def span_scores(trace: Trace, requests: Mapping[str, MethodRequest]) -> Scores:
    """Every method's scores for the predicted span. What explains a position is read at the start and the end, mean of
    both."""
    of_positions, of_classes = _parted(requests)
    read = [every_score(trace, of_positions, query=place) for place in _span(trace)]
    both = {written: _joined([scores[written] for scores in read], "mean") for written in of_positions}
    every = both | every_score(trace, of_classes)
    return {written: every[written] for written in requests}


def released_scores(trace: Trace, forms: Mapping[str, MethodRequest], *, magnitudes: bool) -> Scores:
    """Scores of the predicted span. `magnitudes`: what explains a class is |score of the start| + |score of the end|,
    as in the notebook of SQuAD v2; else the scores of both logits together, as in that of v1."""
    if not magnitudes:
        return every_score(trace, forms)
    of_positions, of_classes = _parted(forms)
    start, end = _span(trace)
    ends = [every_score(trace, of_classes, target=target) for target in ((start, None), (None, end))]
    sums = {written: _joined([scores[written] for scores in ends], "magnitudes") for written in of_classes}
    every = every_score(trace, of_positions) | sums
    return {written: every[written] for written in forms}


def _span(trace: Trace) -> tuple[int, int]:
    assert trace.logits is not None
    start, end = (int(i) for i in trace.logits.argmax(0))
    return start, end


def _parted(requests: Mapping[str, MethodRequest]) -> tuple[dict[str, MethodRequest], dict[str, MethodRequest]]:
    """What explains a position, and what explains a class."""
    by_kind = [{w: one for w, one in requests.items() if one.class_specific is kind} for kind in (False, True)]
    return by_kind[0], by_kind[1]


def _joined(results: Sequence[tuple[Attribution, float]], how: str) -> tuple[Attribution, float]:
    """The mean of the scores, or the sum of their magnitudes; and the seconds of all."""
    every = torch.stack([scores.scores for scores, _ in results])
    joined: Tensor = every.mean(0) if how == "mean" else every.abs().sum(0)
    return replace(results[0][0], scores=joined), sum(seconds for _, seconds in results)
