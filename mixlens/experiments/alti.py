"""ALTI's evaluations (Ferrando et al. 2022, Measuring the Mixing of Contextual Information in the Transformer)."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from ..asking import every_score, parse_method, scores_of
from ..errors import InputError
from ..metrics import mean_with_interval
from ..metrics.agreement import model_agreement, spearman, special_token_ranks
from ..metrics.geometry import anisotropy, transformed_anisotropy
from ..types import Example, Record
from .experiment import Setup, experiment
from .figures import bars, curves_of, lines
from .tables import Table, by

PAPER = "Ferrando et al. 2022, Measuring the Mixing of Contextual Information in the Transformer"
METHODS = ("attention_rollout", "norm_residual_ln:rollout=alti", "globenc", "alti")
CLASSIFIER = "sentiment"


def _finish_table2(setup: Setup, records: list[Record]) -> list[Table]:
    rows = []
    for (method,), some in by(records, "method").items():
        paper = mean_with_interval([r.value for r in some if r.metric == "spearman"], seed=setup.seed)
        released = mean_with_interval([r.value for r in some if r.metric == "spearman_released"], seed=setup.seed)
        rows.append((method, paper, paper.std, released))
    title = f"Spearman's rank correlation with {setup.options['reference']}"
    note = "Means with 95 % bootstrap intervals; released: dense ranks, as in the authors' code."
    return [Table("correlations", title, ("method", "spearman", "std", "released"), tuple(rows), note)]


def _prepare_table2(setup: Setup) -> None:
    parse_method(setup.options["reference"])


@experiment(
    name="alti-table2",
    packages=("scipy",),
    paper=PAPER,
    shows="Table 2, correlation with gradients",
    data="sentiment",
    model=CLASSIFIER,
    methods=METHODS,
    task=("classification",),
    options={"reference": "grad_l2", "keep_special": True},
    prepare=_prepare_table2,
    finish=_finish_table2,
    figure=lambda setup, tables, figure: bars(figure.subplots(), tables[0], "spearman"),
)
def table2(setup: Setup, example: Example) -> list[Record]:
    """Does a map rank the tokens as the gradient of the predicted class does? Read at the position that predicts."""
    trace = setup.model.trace(example)
    reference, _ = scores_of(trace, setup.options["reference"])
    kept = [i for i, special in enumerate(trace.special) if setup.options["keep_special"] or not special]
    records = []
    for method, (scores, seconds) in every_score(trace, setup.requests).items():
        for metric, variant in (("spearman", "paper"), ("spearman_released", "released")):
            value = spearman(scores.scores[kept], reference.scores[kept], variant=variant)
            records.append(Record(str(example.id), method, metric, value, {"seconds": seconds}))
    return records


# --- anisotropy -------------------------------------------------------------------------------------------------------


def _finish_anisotropy(setup: Setup, records: list[Record]) -> list[Table]:
    rows = [
        (method, layer, mean_with_interval([r.value for r in some], seed=setup.seed))
        for (method, layer), some in by(records, "method", "layer").items()
    ]
    note = "Layer 0 is what enters the first layer. All pairs of tokens of a text count; the authors draw one pair for each text."
    return [Table("anisotropy", "Mean cosine similarity within a text", ("vectors", "layer", "cosine"), tuple(rows), note)]


def _draw_anisotropy(setup: Setup, tables: list[Table], figure: Any) -> None:
    lines(figure.subplots(), curves_of(tables[0], "cosine", name="vectors"), x="layer", y="mean cosine similarity")


@experiment(
    name="alti-anisotropy",
    paper=PAPER,
    shows="Figure 3, anisotropy",
    data="sentiment",
    model=CLASSIFIER,
    methods=(),
    finish=_finish_anisotropy,
    figure=_draw_anisotropy,
)
def alike(setup: Setup, example: Example) -> list[Record]:
    """How alike are two tokens' representations, and how alike the transformed vectors that one position is made of?"""
    trace = setup.model.trace(example)
    curves = {"representations": (0, anisotropy(trace)), "transformed vectors": (1, transformed_anisotropy(trace))}
    return [
        Record(str(example.id), name, "cosine", float(value), {"layer": layer})
        for name, (first, values) in curves.items()
        for layer, value in enumerate(values, first)
    ]


# --- special tokens ---------------------------------------------------------------------------------------------------


def _finish_ranks(setup: Setup, records: list[Record]) -> list[Table]:
    tokens = list(dict.fromkeys(r.info["token"] for r in records))
    grouped = by(records, "method", "token")
    rows = []
    for method in setup.methods:
        cells = [grouped.get((method, token)) for token in tokens]
        found = [None if some is None else mean_with_interval([r.value for r in some], seed=setup.seed) for some in cells]
        rows.append((method, *found))
    title = "Normalised relevance rank of special tokens and punctuation (1: the most relevant token)"
    return [Table("ranks", title, ("method", *tokens), tuple(rows))]


def _draw_ranks(setup: Setup, tables: list[Table], figure: Any) -> None:
    tokens = tables[0].columns[1:]
    for axes, token in zip(figure.subplots(1, len(tokens), sharey=True, squeeze=False)[0], tokens, strict=True):
        axes.set_xlim(0, 1)
        kept = tuple(row for row in tables[0].rows if row[tables[0].columns.index(token)] is not None)
        bars(axes, Table("", "", tables[0].columns, kept), token)


@experiment(
    name="alti-special-tokens",
    packages=("scipy",),
    paper=PAPER,
    shows="the relevance of special tokens and punctuation",
    data="sentiment",
    model=CLASSIFIER,
    methods=(*METHODS, "grad_l2"),
    task=("classification", "masked-lm"),
    finish=_finish_ranks,
    figure=_draw_ranks,
)
def special_tokens(setup: Setup, example: Example) -> list[Record]:
    """Where do special tokens and punctuation stand among all tokens of a text, by each method?"""
    trace = setup.model.trace(example)
    records = []
    for method, (scores, seconds) in every_score(trace, setup.requests).items():
        for token, rank in special_token_ranks(scores).items():
            records.append(Record(str(example.id), method, "rank", rank, {"token": token, "seconds": seconds}))
    return records


# --- consistency ------------------------------------------------------------------------------------------------------


def _finish_consistency(setup: Setup, records: list[Record]) -> list[Table]:
    names = model_names(setup)
    rows, pairs = [], []
    for (method,), some in by(records, "method").items():
        alike = [r for r in some if r.info["alike"]]
        if not alike:
            raise InputError("no two of the models predict an example alike, so there is nothing to compare.")
        groups = [r.example for r in alike]
        whole = mean_with_interval([r.value for r in alike], groups=groups, seed=setup.seed)
        rows.append((method, whole, len(alike), len(some) - len(alike)))
        for (pair,), own in by(alike, "pair").items():
            both = " and ".join(names[int(i)] for i in pair.split("-"))
            pairs.append((method, both, mean_with_interval([r.value for r in own], seed=setup.seed)))
    columns = ("method", "spearman", "compared", "predicted differently")
    return [
        Table("agreement", "Agreement of models on examples that both predict alike", columns, tuple(rows)),
        Table("pairs", "Every two models", ("method", "models", "spearman"), tuple(pairs)),
    ]


def model_names(setup: Setup) -> list[str]:
    return [f"{i}: {str(model.name).rstrip('/').rpartition('/')[2]}" for i, model in enumerate(setup.models, 1)]


def _prepare_consistency(setup: Setup) -> None:
    first, *others = setup.models
    for example in setup.examples:
        own = first.encode(example).input_ids
        for other in others:
            if other.encode(example).input_ids != own:
                raise InputError(
                    f"{first.name!r} and {other.name!r} read example {example.id} as different tokens: models can be compared "
                    "token by token where they share a tokenizer."
                )


@experiment(
    name="alti-consistency",
    packages=("scipy",),
    paper=PAPER,
    shows="the agreement of models that differ in their seed",
    data="sentiment",
    model="two or more models with the same tokenizer, such as seeds of one training",
    methods=(*METHODS, "grad_l2"),
    task=("classification",),
    n_models=2,
    prepare=_prepare_consistency,
    finish=_finish_consistency,
    figure=lambda setup, tables, figure: bars(figure.subplots(), tables[0], "spearman"),
)
def consistency(setup: Setup, example: Example) -> list[Record]:
    """Do models that differ in their seed alone, and predict the same, rest on the same tokens?"""
    traces = [model.trace(example) for model in setup.models]
    predicted = [int(trace.logits.argmax()) for trace in traces if trace.logits is not None]
    of_models = [every_score(trace, setup.requests) for trace in traces]
    records = []
    for method in setup.methods:
        scores = [of_model[method][0] for of_model in of_models]
        for a, b in combinations(range(len(traces)), 2):
            value = model_agreement([scores[a]], [scores[b]]).mean
            info = {"pair": f"{a}-{b}", "alike": predicted[a] == predicted[b]}
            records.append(Record(str(example.id), method, "spearman", value, info))
    return records
