"""AttCAT's Figures 3 and 4: answers to questions, and layers summed or multiplied (Qiang et al. 2022)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..asking import MethodRequest, every_score
from ..attributions import attribute
from ..data import span_tokens
from ..errors import InputError, nearest
from ..metrics import mean_with_interval
from ..metrics.faithfulness import aopc, lodds
from ..metrics.plausibility import precision_at_k
from ..types import Attribution, Example, Record, Trace
from .attcat import METHODS, PAPER, refuse_variant, requests_of
from .claims import Check, Claim, Verdict, above, incomparable, values_of
from .experiment import Setup, experiment
from .figure_style import signed_fills
from .figures import bars
from .layer_curves import verdict_on_trend
from .prepare import removable
from .tables import Table, by

READS = ("span", "released", "released_v2")
FEWEST_ANSWERS = 30  # below, the claim of Figure 3 is not judged
SQUAD = {"raw_attention": "released_squad", "attention_rollout": "released_squad"}

# --- Figure 3: Precision@K ----------------------------------------------------------------------------------------------


def _finish_qa(setup: Setup, records: list[Record]) -> list[Table]:
    shares = [record for record in records if record.metric == "precision_at_k"]
    rows = tuple(_qa_row(setup, method, group) for (method,), group in by(shares, "method").items())
    k = setup.options["k"]
    first = [record for record in shares if record.method == setup.methods[0]]
    lengths = [record.info["answer"] for record in first]
    most = sum(min(length, k) for length in lengths) / max(1, len(lengths))
    answered = sum(r.info["answered"] for r in first)
    note = (
        f"count: answer tokens among the highest scores, as in Figure 3; no method can have more than {most:.2f} here, the mean "
        'length of an answer (the caption of Figure 3 has "max scores" of 3.72, marked as the paper\'s own, on SQuAD v1 and 3.84 '
        "on v2; it does not say what they are of). share: of the answer's tokens. right: the share where the model's own answer "
        f"overlaps the gold one ({answered} of {len(first)} examples)."
    )
    title = f"Precision@{k}: answer tokens among the {k} highest scores"
    return [Table("precision", title, ("method", "count", "share", "right"), rows, note)]


def _qa_row(setup: Setup, method: str, records: Sequence[Record]) -> tuple[Any, ...]:
    right = [r.value for r in records if r.info["answered"]]
    return (
        method,
        mean_with_interval([r.info["count"] for r in records], seed=setup.seed),
        mean_with_interval([r.value for r in records], seed=setup.seed),
        mean_with_interval(right, seed=setup.seed) if right else None,
    )


def _more_of_the_answer(setup: Setup, records: Sequence[Record], tables: Sequence[Table]) -> Verdict:
    """AttCAT against the methods of the paper, on the questions that the model answers: a span that is wrong has other tokens to
    explain."""
    counts = [r for r in records if r.metric == "count"]
    right = [r for r in counts if r.info["answered"]]
    others = [method for method in METHODS if method not in ("attcat", "random")]
    answered, asked = (len({r.example for r in some}) for some in (right, counts))
    told = f"on the {answered} of {asked} questions that the model answers"
    if answered < FEWEST_ANSWERS:
        return incomparable(f"the model answers {answered} of {asked} questions, and what it explains is its own answer")
    verdict = above("attcat", others, "count")(setup, right, tables)
    return replace(verdict, ours=f"{told}: {verdict.ours}")


def _prepare_qa(setup: Setup) -> None:
    k, read = setup.options["k"], setup.options["read"]
    if not isinstance(k, int) or isinstance(k, bool) or k < 1:
        raise InputError(f"k is a number of tokens, at least 1, not {k!r}.")
    if read not in READS:
        raise InputError(f"unknown read {read!r}. {nearest(str(read), READS)}")


@experiment(
    name="attcat-qa",
    paper=PAPER,
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
            "AttCAT has more answer tokens among its 20 highest scores than the other methods (the figure has selected ones, "
            "which the text does not name; here all of Table 1)",
            "highest for BERT, DistilBERT and RoBERTa on SQuAD v1 and v2 (bars without numbers)",
            _more_of_the_answer,
        ),
    ),
    differs=(
        "The paper does not say where a map is read. read=span: every method explains the predicted span; maps, RawAtt, Rollout "
        "and the relevances are read at its start and its end, mean of the two; gradients are of the sum of both logits.",
        "read=released: as the notebooks: RawAtt is the mean over layers, last row; Rollout has no residual and is averaged over "
        "layers and rows; AttCAT takes layer inputs; special tokens are hidden from attention.",
        "Scores of the start and of the end are added with their signs, which is what gradients of the sum of both logits give. "
        "The notebook of SQuAD v1 does so: read=released. That of v2 adds the magnitudes of the two, of 400 questions drawn at "
        "random: read=released_v2, which differs in the methods that explain a class. The paper has one protocol for both, and "
        "its impact scores have a sign.",
        "The paper does not say which tokens compete for the 20 places: here all do, [CLS], [SEP] and the question's too.",
        "Questions without an answer are left out.",
        "The paper's models answer most questions. What is explained is the model's own answer, so the claim is judged on the "
        f"questions whose gold answer it overlaps, where they are {FEWEST_ANSWERS} or more; the tables have all questions.",
        "The figure shows selected methods, and the text does not name them; here all of Table 1 and random are compared.",
    ),
)
def answers(setup: Setup, example: Example) -> list[Record]:
    """Are the tokens of the gold answer among those with the highest scores? The predicted span is explained."""
    trace = setup.model.trace(example)
    gold = span_tokens(example.info["answers"][:1], trace, pair=True)
    if not gold or trace.logits is None:
        raise InputError(f"no token of {setup.model.name!r} covers the answer of example {example.id}.")
    start, end = (int(i) for i in trace.logits.argmax(0))
    answered = start <= gold[-1] and gold[0] <= end
    scores = _scores(setup, trace)
    records = []
    for method, (of_method, seconds) in scores.items():
        found = precision_at_k(of_method, (gold[0], gold[-1]), k=setup.options["k"])
        info: Mapping[str, Any] = {"count": found.count, "answer": found.answer, "answered": answered, "seconds": seconds}
        records.append(Record(str(example.id), method, "precision_at_k", found.value, info))
        records.append(Record(str(example.id), method, "count", float(found.count), info))
    return records


def _scores(setup: Setup, trace: Trace) -> dict[str, tuple[Attribution, float]]:
    """Every method's scores, as the option `read` has it."""
    if setup.options["read"] == "span":
        return span_scores(trace, setup.requests)
    return released_scores(trace, _released_forms(setup), magnitudes=setup.options["read"] == "released_v2")


def span_scores(trace: Trace, requests: Mapping[str, MethodRequest]) -> dict[str, tuple[Attribution, float]]:
    """Every method's scores for the predicted span. What explains a position is read at the start and the end, mean of both."""
    assert trace.logits is not None
    places = [int(i) for i in trace.logits.argmax(0)]
    read = [every_score(trace, _of_positions(requests), query=place) for place in places]
    of_span = every_score(trace, {written: one for written, one in requests.items() if one.class_specific})
    both = {written: _mean([scores[written] for scores in read]) for written in read[0]}
    return {written: (both | of_span)[written] for written in requests}


def _of_positions(requests: Mapping[str, MethodRequest]) -> dict[str, MethodRequest]:
    return {written: request for written, request in requests.items() if not request.class_specific}


def _mean(results: Sequence[tuple[Attribution, float]]) -> tuple[Attribution, float]:
    """The mean of the scores, and the seconds of all."""
    scores = torch.stack([scores.scores for scores, _ in results]).mean(0)
    return replace(results[0][0], scores=scores), sum(seconds for _, seconds in results)


def _released_forms(setup: Setup) -> dict[str, MethodRequest]:
    """Every method as the notebooks of SQuAD have it, where they have it."""
    forms = requests_of(setup, "released")
    return {written: replace(one, variant=SQUAD.get(one.name, one.variant)) for written, one in forms.items()}


def released_scores(
    trace: Trace, forms: Mapping[str, MethodRequest], *, magnitudes: bool
) -> dict[str, tuple[Attribution, float]]:
    """Scores of the predicted span. `magnitudes`: what explains a class is |score of the start| + |score of the end|, as in the
    notebook of SQuAD v2; else the scores of both logits together, as in that of v1."""
    if not magnitudes:
        return every_score(trace, forms)
    assert trace.logits is not None
    start, end = (int(i) for i in trace.logits.argmax(0))
    of_class = {written: one for written, one in forms.items() if one.class_specific}
    ends = [every_score(trace, of_class, target=target) for target in ((start, None), (None, end))]
    sums = {written: _sum_of_magnitudes([scores[written] for scores in ends]) for written in of_class}
    every = every_score(trace, _of_positions(forms)) | sums
    return {written: every[written] for written in forms}


def _sum_of_magnitudes(results: Sequence[tuple[Attribution, float]]) -> tuple[Attribution, float]:
    """The sum of the scores' magnitudes, and the seconds of all."""
    scores = torch.stack([scores.scores.abs() for scores, _ in results]).sum(0)
    return replace(results[0][0], scores=scores), sum(seconds for _, seconds in results)


# --- Figure 4: layers summed or multiplied ------------------------------------------------------------------------------

SUM, ROLLOUT = "attcat", "attcat:aggregation=rollout"
CHANGES = {"aopc": aopc, "lodds": lodds}


def _falls_with_depth(metric: str) -> Check:
    """The rank correlation of layer and `metric` in each example is below 0."""

    def check(setup: Setup, records: Sequence[Record], tables: Sequence[Table]) -> Verdict:
        depth = max((r.info["layer"] for r in records), default=0)
        curve = [values_of(records, SUM, metric, partial(_in_layer, layer)) for layer in range(1, depth + 1)]
        return verdict_on_trend({metric: curve}, falls=True, seed=setup.seed)

    return check


def _in_layer(layer: int, record: Record) -> bool:
    return bool(record.info["layer"] == layer)


def _by_construction(setup: Setup, records: Sequence[Record], tables: Sequence[Table]) -> Verdict:
    """Sizes of a sum and of a product are not on one scale."""
    return incomparable("a product of numbers of at most 1 is small by construction, and the paper gives no formula for it")


SPREADS = "spread: standard deviation over the tokens. relative spread: in mean magnitudes of the layer, 0 where all are equal."


def _finish_layers(setup: Setup, records: list[Record]) -> list[Table]:
    grouped = by(records, "method", "metric", "layer")

    def mean(method: str, metric: str, layer: int) -> Any:
        return mean_with_interval([r.value for r in grouped[method, metric, layer]], seed=setup.seed)

    depth = max(r.info["layer"] for r in records)
    layers = tuple(
        (layer, *(mean(SUM, metric, layer) for metric in ("size", "spread", "relative spread"))) for layer in range(1, depth + 1)
    )
    ways = tuple(
        (name, *(mean(m, metric, 0) for metric in ("size", *CHANGES))) for name, m in (("Sum", SUM), ("Rollout", ROLLOUT))
    )
    note = (
        "size: mean of the scores' magnitudes, where the largest is 1 (of a layer over all layers, of Sum over its own scores, "
    )
    note += "of Rollout: in each factor). "
    note += "AOPC: higher is better; LOdds: lower is better."
    return [
        Table("operations", "Layers added (Sum) and multiplied (Rollout)", ("operation", "size", *CHANGES), ways, note),
        Table("layers", "AttCAT by layer", ("layer", "size", "spread", "relative spread"), layers, SPREADS),
        _heatmap(records),
    ]


def _heatmap(records: Sequence[Record]) -> Table:
    """The first example as in Figure 4: a row for each token, its score in each layer, and the rows Rollout and Sum."""
    picture = next(r.info["picture"] for r in records if "picture" in r.info)
    names = tuple(picture["rows"])
    rows = tuple((token, *scores) for token, scores in zip(picture["tokens"], zip(*picture["scores"], strict=True), strict=True))
    return Table("heatmap", "Normalised impact scores of the first example", ("token", *names), rows)


def _draw_layers(setup: Setup, tables: list[Table], figure: Any) -> None:
    table, axes = tables[2], figure.subplots()
    scores = [list(row[1:]) for row in table.rows]
    picture = axes.imshow(list(zip(*scores, strict=True)), cmap=signed_fills(), vmin=-1, vmax=1, aspect="auto")
    axes.set_xticks(range(len(scores)), table.column("token"), rotation=90)
    axes.set_yticks(range(len(table.columns) - 1), table.columns[1:])
    figure.colorbar(picture, ax=axes, label="against ← impact score, largest of the row of layers = 1 → for")


def _prepare_layers(setup: Setup) -> None:
    refuse_variant(setup)
    removable(setup)


@experiment(
    name="attcat-layers",
    paper=PAPER,
    shows="Figure 4, impact scores by layer, summed and rolled out",
    data="sentiment",
    model="sentiment",
    methods=(),
    task=("classification",),
    options={"variant": "released"},
    prepare=_prepare_layers,
    finish=_finish_layers,
    figure=_draw_layers,
    claims=(
        Claim(
            "Figure 4, section 6.2",
            "The scores become more uniform as the layer goes deeper: their spread over the tokens, in mean magnitudes, falls",
            "a heat map without numbers",
            _falls_with_depth("relative spread"),
        ),
        Claim(
            "Figure 4, section 6.2",
            "The scores become less impactful as the layer goes deeper: their mean magnitude falls with depth",
            "a heat map without numbers",
            _falls_with_depth("size"),
        ),
        Claim(
            "Figure 4, section 6.2",
            "The rollout gives only minimal scores, the sum does not",
            "a heat map without numbers; with the sum 0.72 for 'not' and -0.37 for 'like'",
            _by_construction,
        ),
        Claim(
            "Sections 4.3 and 6.2",
            "The sum over layers is more effective than the rollout (AOPC)",
            "said of Figure 4, one sentence; no number",
            above(SUM, (ROLLOUT,), "aopc"),
        ),
        Claim(
            "Sections 4.3 and 6.2",
            "The sum over layers is more effective than the rollout (LOdds)",
            "said of Figure 4, one sentence; no number",
            above(SUM, (ROLLOUT,), "lodds", lower=True),
        ),
    ),
    differs=(
        "The paper gives no formula for the rollout of vectors: here the layers' scores are multiplied, each layer divided by "
        "its largest magnitude.",
        "The paper shows one sentence; here the claims are measured on all, and the first is drawn.",
        "Layer inputs, as released: a head that reads one token has no gradient at the last layer's other outputs, so that by "
        "eq. 10 the last row and the product would be 0 for every word (variant=paper).",
        "Special tokens are left out of the rows.",
        "AOPC and LOdds of the two operations are ours: the paper judges them by eye.",
    ),
)
def layers(setup: Setup, example: Example) -> list[Record]:
    """Do AttCAT's layers fade with depth, and is their sum more faithful than their product?"""
    trace = setup.model.trace(example)
    words = [i for i, special in enumerate(trace.special) if not special]
    variant = setup.options["variant"]
    added = attribute(trace, "attcat", variant=variant)
    multiplied = attribute(trace, "attcat", variant=variant, aggregation="rollout")
    of_layers = _scaled(added.info["per_layer"].cpu()[:, words])
    total, product = _scaled(added.scores[words]), multiplied.scores[words].double()
    records = _layer_records(str(example.id), of_layers)
    picture = _picture([trace.tokens[i] for i in words], [*of_layers, product, total])
    records[0] = replace(records[0], info={**records[0].info, "picture": picture})
    for name, scores, row in ((SUM, added, total), (ROLLOUT, multiplied, product)):
        records.append(Record(str(example.id), name, "size", float(row.abs().mean()), {"layer": 0}))
        records += [Record(str(example.id), name, m, change(trace, scores).value, {"layer": 0}) for m, change in CHANGES.items()]
    return records


def _scaled(scores: Tensor) -> Tensor:
    """The scores in float64, with a largest magnitude of 1 (all of them 0 where they are)."""
    return scores.double() / scores.double().abs().max().clamp(min=torch.finfo(torch.float64).tiny)


def _size_and_spread(row: Tensor) -> dict[str, float]:
    """Of the scores of a layer: mean magnitude, standard deviation, and the one in units of the other."""
    size, spread = float(row.abs().mean()), float(row.std(correction=0))
    return {"size": size, "spread": spread, "relative spread": spread / size if size else 0.0}


def _layer_records(example: str, scores: Tensor) -> list[Record]:
    """What `_size_and_spread` says of every layer: [layer pos]."""
    return [
        Record(example, SUM, metric, value, {"layer": layer})
        for layer, row in enumerate(scores, 1)
        for metric, value in _size_and_spread(row).items()
    ]


def _picture(tokens: Sequence[str], rows: Sequence[Tensor]) -> dict[str, Any]:
    """What Figure 4 draws of one text: rounded to four digits, so that records stay small."""
    names = [*(f"L{layer}" for layer in range(len(rows) - 2)), "Rollout", "Sum"]
    return {"tokens": list(tokens), "rows": names, "scores": [[round(float(x), 4) for x in row] for row in rows]}
