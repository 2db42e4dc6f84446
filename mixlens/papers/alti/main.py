"""ALTI's Table 2 and Figure 6 (Ferrando et al. 2022, Measuring the Mixing of Contextual Information in the
Transformer)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...metrics.agreement import spearman, special_token_ranks
from ...runs.experiments.claims import (
    Claim,
    Examples,
    Measured,
    Published,
    Rule,
    Values,
    Verdict,
    above,
    incomparable,
    mean_over,
    short_names,
)
from ...runs.experiments.experiment import Outcome, Setup, experiment
from ...runs.experiments.figures import bars
from ...runs.experiments.layer_curves import verdict_between_runs
from ...runs.experiments.tables import Table, by, interval_of, long_rows
from ...scoring.asking import every_score, parse_method, scores_of
from ...types import Attribution, Example, Record, Trace

PAPER = "Ferrando et al. 2022, Measuring the Mixing of Contextual Information in the Transformer"
paper = partial(experiment, paper=PAPER, data="sentiment", model="sentiment")
ATTENTION, NORM, ALTI = "attention_rollout", "norm_residual_ln:rollout=alti", "alti"  # Attn Rollout, Norm Rollout, ALTI
METHODS = (ATTENTION, NORM, ALTI)
MODELS = ("DistilBERT", "BERT", "RoBERTa")
GRADIENT, RELEASED = (
    "grad_l2",
    "grad_l2:variant=released",
)  # as the paper writes it, and as the authors' code computes it
BLANK_OUT = "blank_out:replacement=mask:absolute=true"
LOGIT = (
    "The gradient is that of the predicted class's logit. The paper writes f and does not say which number it is; its "
    "released code takes the probability."
)
PLACE = (
    "grad_l2 is taken at the sum of the embeddings, before their norm. The paper writes x^0. Its released code takes "
    "it at the output of the embeddings, which it puts through the embeddings once more: grad_l2:variant=released "
    "(for Table 2 `reference=grad_l2:variant=released`)."
)
NORM_ROLLOUT = (
    "The paper does not say how Norm Rollout joins the layers. Here the rows of each layer's map are made to sum to 1 "
    "and no identity is added, as for ALTI (eq. 11): the map has the residual connection already."
)


# --- Table 2 ----------------------------------------------------------------------------------------------------------


def _finish_table2(setup: Setup, records: list[Record]) -> list[Table]:
    rows = []
    groups = by(records, "method", "metric")
    for (method, metric), group in groups.items():
        if metric == "spearman":
            mean, released = (interval_of(some, setup.seed) for some in (group, groups[method, "spearman_released"]))
            rows.append((method, mean, mean.std, released))
    title = f"Spearman's rank correlation with {setup.options['reference']}"
    note = "Means with 95 % bootstrap intervals; released: dense ranks, as in the authors' code."
    return [Table("correlations", title, ("method", "spearman", "std", "released"), tuple(rows), note)]


def correlations(setup: Setup, example: Example, trace: Trace, reference: Attribution, target: Any) -> list[Record]:
    """Spearman's correlation of every method with the reference, by average ranks and as in the released code."""
    counted = [i for i, special in enumerate(trace.special) if setup.options["keep_special"] or not special]
    records = []
    for method, (scores, seconds) in every_score(trace, setup.requests, target=target).items():
        for metric, variant in (("spearman", "paper"), ("spearman_released", "released")):
            value = spearman(scores.scores[counted], reference.scores[counted], variant=variant)
            records.append(Record(str(example.id), method, metric, value, {"seconds": seconds}))
    return records


def steadier(method: str, rivals: Sequence[str], metric: str) -> Rule:
    """The claim that a method's values vary less from example to example: the squared distance from the mean is
    smaller."""
    names = short_names((method, *rivals))

    def rule(run: Measured) -> Verdict:
        values = {short: _squared_distances(run[name, metric]) for name, short in names.items()}
        return run.order(values, [(names[method], names[rival]) for rival in rivals], lower=True)

    return rule


def _squared_distances(values: Values) -> Values:
    away = values - (float(np.nanmean(list(values.values()))) if values else 0.0)
    return away * away


def rollout_needs_few_layers(runs: Sequence[Outcome]) -> Verdict:
    """Attn Rollout's correlation in the first run, of a model with fewer layers, above that in the second."""
    return higher_with_fewer_layers(runs, [{"Attn Rollout": run[ATTENTION, "spearman"]} for run in runs])


def higher_with_fewer_layers(runs: Sequence[Outcome], values: Sequence[Mapping[str, Examples]]) -> Verdict:
    """The values of the first run above those of the second; not comparable where its model does not have fewer
    layers."""
    depths = [run.setup.model.n_layers for run in runs]
    if depths[0] >= depths[1]:
        return incomparable(f"the first model has {depths[0]} layers, the second {depths[1]}")
    return verdict_between_runs(*values, seed=runs[0].setup.seed)


def lower_in_the_second(runs: Sequence[Outcome]) -> Verdict:
    """The mean correlation of the three methods in the first run above that in the second."""
    first, second = ({"SST2 - SVA": mean_over([run[name, "spearman"] for name in METHODS])} for run in runs)
    return verdict_between_runs(first, second, seed=runs[0].setup.seed)


def _published(dataset: str, *columns: Sequence[str]) -> tuple[Published, ...]:
    """Three columns of Table 2, one for each model."""
    return tuple(
        Published("Table 2", f"{model}, {dataset}", "spearman", dict(zip(METHODS, column, strict=True)), std=True)
        for model, column in zip(MODELS, columns, strict=True)
    )


@paper(
    name="alti-table2",
    packages=("scipy",),
    shows="Table 2, SST2: correlation with gradients",
    methods=METHODS,
    task=("classification",),
    options={"reference": GRADIENT, "keep_special": True},
    prepare=lambda setup: parse_method(setup.options["reference"]),
    finish=_finish_table2,
    figure=lambda setup, tables, figure: bars(figure.subplots(), tables[0], "spearman"),
    differs=(LOGIT, PLACE, "grad_l2 is not divided by its sum, which changes no rank.", NORM_ROLLOUT),
    published=_published(
        "SST2",
        ("0.23 ± 0.24", "0.29 ± 0.26", "0.54 ± 0.17"),
        ("-0.03 ± 0.29", "0.41 ± 0.26", "0.55 ± 0.19"),
        ("0.01 ± 0.24", "0.37 ± 0.21", "0.68 ± 0.17"),
    ),
    claims=(
        Claim(
            "Table 2, section 5",
            "On SST2, ALTI correlates with grad_l2 far more than Attn Rollout and Norm Rollout do (here: by any "
            "margin).",
            "BERT: 0.55 against -0.03 and 0.41; DistilBERT: 0.54 against 0.23 and 0.29; RoBERTa: 0.68 against 0.01 "
            "and 0.37",
            above(ALTI, (ATTENTION, NORM), "spearman"),
        ),
        Claim(
            "Table 2, section 5",
            "ALTI's correlations with grad_l2 vary less from sentence to sentence (squared distances from the mean).",
            "standard deviations, BERT: 0.19 against 0.29 and 0.26; DistilBERT: 0.17, 0.24, 0.26; RoBERTa: 0.17, "
            "0.24, 0.21",
            steadier(ALTI, (ATTENTION, NORM), "spearman"),
        ),
    ),
)
def table2(setup: Setup, example: Example) -> list[Record]:
    """Does a map rank the tokens as the gradient of the predicted class does? Read at the position that predicts."""
    trace = setup.model.trace(example)
    reference, _ = scores_of(trace, setup.options["reference"])
    return correlations(setup, example, trace, reference, "predicted")


# --- Table 2, agreement of subject and verb ---------------------------------------------------------------------------

LAST, EVEN, IGNORED = "share of the last special token", "even share, 1 / n", "tokens with next to nothing"
NOTHING = 0.1  # a token with less than this part of an even share counts as ignored


def _finish_sva(setup: Setup, records: list[Record]) -> list[Table]:
    shares = [record for record in records if record.metric in (LAST, EVEN, IGNORED)]
    note = "Shares of the sum of all scores. Next to nothing: less than a tenth of an even share, as a share of all "
    note += "tokens."
    table = Table(
        "reference",
        "What the reference looks at",
        ("what", "share"),
        long_rows(shares, "metric", seed=setup.seed),
        note,
    )
    return [*_finish_table2(setup, records), table]


def reference_shares(example: Example, trace: Trace, reference: Attribution, method: str) -> list[Record]:
    """How much of the reference's sum is at the last special token, and how many tokens have next to nothing of it."""
    sizes, even = reference.scores.double().abs().cpu().numpy(), 1 / len(trace)
    shares = sizes / sizes.sum() if sizes.any() else np.full(len(sizes), np.nan)
    numbers = [(EVEN, even), (IGNORED, float((shares < NOTHING * even).mean()))]
    places = [place for place, special in enumerate(trace.special) if special and place != trace.query]
    numbers += [(LAST, float(shares[place])) for place in places[-1:]]
    return [Record(str(example.id), method, metric, number, {}) for metric, number in numbers]


@paper(
    name="alti-table2-sva",
    packages=("scipy",),
    shows="Table 2, SVA: correlation with blank-out",
    data="agreement",
    model="agreement",
    methods=METHODS,
    task=("masked-lm",),
    needs=("target",),
    options={"reference": BLANK_OUT, "keep_special": True},
    prepare=lambda setup: parse_method(setup.options["reference"]),
    finish=_finish_sva,
    figure=lambda setup, tables, figure: bars(figure.subplots(), tables[0], "spearman"),
    differs=(
        "The paper takes Goldberg's selection of Linzen's sentences (`--data sva_goldberg=lgd_dataset.tsv`); `sva` "
        "reads another selection of Linzen's sentences.",
        "Scores of blank-out are compared by their size (absolute=true); the paper does not say whether by size or by "
        "sign.",
        "A sentence whose verb is not one token of the model is left out; the paper does not say what it does with it.",
        NORM_ROLLOUT,
    ),
    published=_published(
        "SVA",
        ("0.23 ± 0.22", "0.31 ± 0.20", "0.41 ± 0.17"),
        ("-0.02 ± 0.20", "0.19 ± 0.19", "0.40 ± 0.16"),
        ("-0.09 ± 0.22", "0.08 ± 0.22", "0.43 ± 0.18"),
    ),
    claims=(
        Claim(
            "Table 2, section 5",
            "On SVA, ALTI correlates with blank-out more than Attn Rollout and Norm Rollout do.",
            "BERT: 0.40 against -0.02 and 0.19; DistilBERT: 0.41 against 0.23 and 0.31; RoBERTa: 0.43 against -0.09 "
            "and 0.08",
            above(ALTI, (ATTENTION, NORM), "spearman"),
        ),
        Claim(
            "Table 3, section 5",
            "Blank-out gives [SEP] a large score: more than an even share of the sum.",
            "one sentence is shown",
            lambda run: run.order(
                {metric: run[run.setup.options["reference"], metric] for metric in (LAST, EVEN)}, [(LAST, EVEN)]
            ),
        ),
        Claim(
            "Table 3, section 5",
            "Blank-out ignores most words: more than half of the tokens have less than a tenth of an even share.",
            "one sentence is shown",
            lambda run: run.positive({IGNORED: run[run.setup.options["reference"], IGNORED]}, bound=0.5),
        ),
    ),
)
def table2_sva(setup: Setup, example: Example) -> list[Record]:
    """Does a map, read at [MASK], rank the tokens by how much the correct verb's probability changes without them?"""
    trace = setup.model.trace(example)
    method = setup.options["reference"]
    reference, _ = scores_of(trace, method, target=example.target)
    records = correlations(setup, example, trace, reference, example.target)
    return [*records, *reference_shares(example, trace, reference, method)]


# --- Figure 6: special tokens -----------------------------------------------------------------------------------------

ALL = "all of these"
RANKED = (ATTENTION, NORM, GRADIENT)
STORED = "data of Figure 6 in the authors' repository"


def _finish_ranks(setup: Setup, records: list[Record]) -> list[Table]:
    tokens = list(dict.fromkeys(r.info["token"] for r in records))
    groups, whole = by(records, "method", "token"), by(records, "method")
    rows = []
    for method in setup.methods:  # the ranks of one text are resampled together
        cells = [whole.get((method,)), *(groups.get((method, token)) for token in tokens)]
        rows.append((method, *(interval_of(cell, setup.seed, together=True) for cell in cells)))
    title = "Normalised relevance rank of special tokens and punctuation (1: the most relevant token, 0: the least)"
    note = f"*{ALL}* is the paper's number: the mean over every special token and punctuation mark of every text."
    return [Table("ranks", title, ("method", ALL, *tokens), tuple(rows), note)]


def _draw_ranks(setup: Setup, tables: list[Table], figure: Any) -> None:
    tokens = tables[0].columns[1:]
    for axes, token in zip(figure.subplots(1, len(tokens), sharey=True, squeeze=False)[0], tokens, strict=True):
        axes.set_xlim(0, 1)
        bars(axes, tables[0], token, ordered=True)  # the panels share the labels of their rows


def _stored(model: str, *numbers: str) -> Published:
    return Published(STORED, model, ALL, dict(zip((ATTENTION, NORM, RELEASED, ALTI), numbers, strict=True)))


@paper(
    name="alti-special-tokens",
    packages=("scipy",),
    shows="Figure 6, the relevance of special tokens and punctuation",
    methods=(ATTENTION, NORM, GRADIENT, RELEASED, ALTI),
    task=("classification", "masked-lm"),
    finish=_finish_ranks,
    figure=_draw_ranks,
    differs=(
        "A token that occurs twice in a text has the mean of its ranks. The paper does not say what it does; the "
        "released code takes the first.",
        "Ranks go from 0 to 1 as the paper defines them. The authors' stored numbers are rank / n, with dense ranks, "
        "which is a little higher.",
        LOGIT,
        PLACE,
        "The authors' numbers for grad_l2 stand beside grad_l2:variant=released: they come from their code. A model "
        "whose embeddings are narrower than its layers has no such form: leave it out (`--methods`).",
        NORM_ROLLOUT,
    ),
    published=(
        _stored("BERT", "0.934", "0.853", "0.525", "0.288"),
        _stored("DistilBERT", "0.904", "0.814", "0.483", "0.229"),
        _stored("RoBERTa", "0.827", "0.826", "0.388", "0.293"),
    ),
    claims=(
        Claim(
            "Figure 6, section 5",
            "Both rollouts and grad_l2 rank special tokens and punctuation higher than ALTI does.",
            "a bar chart; the authors' numbers for BERT: 0.93, 0.85 and 0.52 against 0.29",
            above(RANKED, (ALTI,), "rank"),
        ),
        Claim(
            "Figure 6, section 5",
            "grad_l2 as the authors' code computes it ranks special tokens and punctuation higher than ALTI does.",
            "a bar chart; the authors' numbers for BERT: 0.52 against 0.29",
            above(RELEASED, (ALTI,), "rank"),
        ),
    ),
)
def special_tokens(setup: Setup, example: Example) -> list[Record]:
    """Where do special tokens and punctuation stand among all tokens of a text, by each method?"""
    trace = setup.model.trace(example)
    records = []
    for method, (scores, seconds) in every_score(trace, setup.requests).items():
        for token, rank in special_token_ranks(scores).items():
            records.append(Record(str(example.id), method, "rank", rank, {"token": token, "seconds": seconds}))
    return records
