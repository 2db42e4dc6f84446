"""AttCAT's Tables 1 and 2 (Qiang et al. 2022, AttCAT: Explaining Transformers via Attentive Class Activation
Tokens)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ...base.errors import InputError
from ...data import label_ids
from ...metrics import Interval, mean_with_interval
from ...metrics.agreement import kendall_confidence
from ...metrics.faithfulness import Degradation, aopc, lodds
from ...runs.experiments.claims import Claim, Measured, Published, Rule, Values, Verdict, above
from ...runs.experiments.experiment import Setup, experiment
from ...runs.experiments.figures import bars, curves_of, lines
from ...runs.experiments.prepare import one_of, removable
from ...runs.experiments.tables import Table, by, wide_rows
from ...scoring.asking import MethodRequest, every_score
from ...scoring.attributions import known as attributions
from ...types import Example, Record

PAPER = "Qiang et al. 2022, AttCAT: Explaining Transformers via Attentive Class Activation Tokens"
paper = partial(experiment, paper=PAPER, data="sentiment", model="sentiment", task=("classification",))
ATTENTION = ("raw_attention", "attention_rollout")
CLASSES = ("attention_grad", "attention_x_grad", "partial_lrp", "transatt", "cat", "attcat")  # class-specific: Table 2
BASELINES = (*ATTENTION, *CLASSES[:-1])
METHODS = ("random", *BASELINES, "attcat")
CHANGES: dict[str, Callable[..., Degradation]] = {"aopc": aopc, "lodds": lodds}
DIFFERS_SPLIT = (
    "The paper draws 2,000 texts of Amazon, Yelp and IMDB at random (--n 2000 does), and takes the whole test sets of "
    "SST2, QQP and MNLI. GLUE's have no public labels: of sst2, qqp and mnli the hub's validation set is read unless "
    "a file or --split names another."
)


# --- numbers of the paper ---------------------------------------------------------------------------------------------

SETS = ("SST2", "QQP", "MNLI", "Amazon", "Yelp", "IMDB")
TABLE1_AOPC = {
    "raw_attention": "0.331 0.143 0.138 0.384 0.394 0.298",
    "attention_rollout": "0.286 0.139 0.151 0.324 0.277 0.331",
    "attention_grad": "0.335 0.141 0.156 0.316 0.414 0.304",
    "attention_x_grad": "0.351 0.143 0.159 0.346 0.439 0.310",
    "partial_lrp": "0.341 0.142 0.138 0.418 0.424 0.312",
    "transatt": "0.354 0.145 0.130 0.415 0.434 0.421",
    "cat": "0.352 0.134 0.157 0.409 0.421 0.406",
    "attcat": "0.371 0.139 0.164 0.457 0.473 0.528",
}
TABLE1_LODDS = {
    "raw_attention": "-0.885 0.149 0.235 -1.729 -2.017 -1.245",
    "attention_rollout": "-0.641 0.262 0.321 -1.303 -1.055 -1.323",
    "attention_grad": "-0.252 0.184 0.139 -1.820 -1.994 -1.227",
    "attention_x_grad": "-0.603 0.113 0.114 -1.941 -2.054 -1.267",
    "partial_lrp": "-0.922 0.137 0.231 -2.019 -2.199 -1.321",
    "transatt": "-1.038 0.114 0.214 -1.889 -2.508 -2.137",
    "cat": "-1.115 0.121 0.121 -2.157 -2.587 -3.052",
    "attcat": "-1.319 0.073 0.008 -2.332 -3.169 -3.671",
}
TABLE2 = {
    "attention_grad": "0.150 0.236 0.169 0.146 0.174 0.098",
    "attention_x_grad": "0.116 0.198 0.156 0.148 0.132 0.064",
    "partial_lrp": "0.955 0.949 0.935 0.965 0.952 0.858",
    "transatt": "0.336 0.222 0.339 0.152 0.121 0.043",
    "cat": "0.101 0.373 0.339 0.095 0.107 0.056",
    "attcat": "0.018 0.349 0.017 0.015 0.008 0.023",
}


def published(where: str, column: str, numbers: Mapping[str, str]) -> tuple[Published, ...]:
    """One setting for each data set of a table of the paper; the model is BERT-base."""
    return tuple(
        Published(where, f"BERT, {name}", column, {method: row.split()[i] for method, row in numbers.items()})
        for i, name in enumerate(SETS)
    )


def numbers(table: Mapping[str, str], first: str, second: str) -> str:
    """The numbers of two methods on the six data sets."""
    rows = zip(SETS, table[first].split(), table[second].split(), strict=True)
    return "; ".join(f"{name} {a} against {b}" for name, a, b in rows)


# --- faithfulness: Table 1 --------------------------------------------------------------------------------------------


def _finish_faithfulness(setup: Setup, records: list[Record]) -> list[Table]:
    note = "AOPC: higher is better. LOdds: lower is better."
    steps = max((len(r.info["points"]) for r in records), default=0)
    groups, curves = by(records, "method", "metric"), []
    for method in setup.methods:
        for i in range(steps):
            # 0, 10, ... 100; the authors' code has nine steps, the first of them 1 / 9
            percent = 100 * i // (steps - 1) if setup.options["variant"] == "paper" else 100 * (i + 1) // steps
            curves.append((method, percent, *(_point(setup, groups[method, metric], i) for metric in CHANGES)))
    title = "Top tokens removed (AOPC) or made padding (LOdds)"
    return [
        Table("faithfulness", title, ("method", *CHANGES), wide_rows(records, CHANGES, seed=setup.seed), note),
        Table("curves", "After each step", ("method", "percent removed", *CHANGES), tuple(curves)),
    ]


def _point(setup: Setup, records: list[Record], i: int) -> Interval | None:
    values = [r.info["points"][i] for r in records if r.info["points"]]
    return mean_with_interval(values, seed=setup.seed) if values else None


def _draw_faithfulness(setup: Setup, tables: list[Table], figure: Any) -> None:
    x = tables[1].columns[1]
    for axes, metric in zip(figure.subplots(1, 2), CHANGES, strict=True):
        lines(axes, curves_of(tables[1], metric, x=x), x=x, y=metric)


def refuse_variant(setup: Setup) -> None:
    one_of(setup, variant=("paper", "released"))


def _prepare_faithfulness(setup: Setup) -> None:
    refuse_variant(setup)
    if setup.options["variant"] == "released":
        without = [str(example.id) for example in setup.examples if "label" not in example.info]
        if without:
            raise InputError(
                f"variant='released' explains the gold label, and {len(without)} examples have none ({without[0]} ...)."
            )
        label_ids({example.info["label"] for example in setup.examples}, setup.model)
    if setup.model.hf_model.config.pad_token_id is None:
        raise InputError(f"{setup.model.name!r} has no pad token, and LOdds replaces tokens by it.")
    removable(setup)


def requests_of(setup: Setup, variant: str) -> dict[str, MethodRequest]:
    """The methods as written; with `variant`, each in that form where it has one and no other was written."""
    requests = {}
    for written, request in setup.requests.items():
        known = () if request.is_map else attributions()[request.name].variants
        other = request.variant is None and variant in known
        requests[written] = replace(request, variant=variant) if other else request
    return requests


OTHERS = tuple(method for method in METHODS if method not in ("random", *ATTENTION))
UNRELEASED = "attention_grad"  # no token score in the released code
DROP = {"aopc": 0.005, "lodds": 0.048}  # the smallest in Table 1, on QQP


def above_in_variant(methods: Any, rivals: Sequence[str], metric: str, **more: Any) -> Rule:
    """`above`; of variant=released without the method that has no released form."""

    def rule(run: Measured) -> Verdict:
        out = (UNRELEASED,) if run.setup.options["variant"] == "released" else ()
        firsts = [methods] if isinstance(methods, str) else [method for method in methods if method not in out]
        return above(firsts, [rival for rival in rivals if rival not in out], metric, **more)(run)

    return rule


def drops(metric: str) -> Rule:
    """CAT is worse than AttCAT by as much as the paper's smallest drop, or more."""
    sign = -1.0 if metric == "lodds" else 1.0

    def rule(run: Measured) -> Verdict:
        better = sign * (run["attcat", metric] - run["cat", metric])
        return run.positive({"drop": Values(sorted(better.items()))}, bound=DROP[metric])

    return rule


def _first(says: str, paper: str, rule: Rule) -> tuple[Claim, Claim]:
    """A claim that AttCAT is the first of all methods. Of variant=released it says which of them is left out."""
    without = f"{says}; judged here without Grads, which the notebooks do not have as a token score"
    return (
        Claim("Table 1, section 6.1", says, paper, rule, given={"variant": "paper"}),
        Claim("Table 1, section 6.1", without, paper, rule, given={"variant": "released"}),
    )


FAITHFUL_CLAIMS = (
    *_first(
        "AttCAT has the highest AOPC (in most settings)",
        "highest on SST2, MNLI, Amazon, Yelp and IMDB; on QQP TransAtt is, 0.145 against 0.139",
        above_in_variant("attcat", BASELINES, "aopc"),
    ),
    *_first(
        "AttCAT has the lowest LOdds (in most settings)",
        "lowest on all six data sets",
        above_in_variant("attcat", BASELINES, "lodds", lower=True),
    ),
    Claim(
        "Table 1, section 6.1",
        "The attention-based methods, RawAtt and Rollout, perform worst (AOPC)",
        "so on SST2 (0.331 and 0.286, the others 0.335 to 0.371) and Yelp alone; not on QQP, MNLI, Amazon and IMDB",
        above_in_variant(OTHERS, ATTENTION, "aopc"),
    ),
    Claim(
        "Table 1, section 6.1",
        "The attention-based methods, RawAtt and Rollout, perform worst (LOdds)",
        "so on MNLI and Amazon alone; on SST2 Grads (-0.252) and AttGrads (-0.603), on IMDB Grads (-1.227) are worse "
        "than both",
        above_in_variant(OTHERS, ATTENTION, "lodds", lower=True),
    ),
    Claim(
        "Table 1, section 6.1",
        "AttCAT outperforms TransAtt (AOPC)",
        numbers(TABLE1_AOPC, "attcat", "transatt"),
        above("attcat", ("transatt",), "aopc"),
    ),
    Claim(
        "Table 1, section 6.1",
        "AttCAT outperforms TransAtt (LOdds)",
        numbers(TABLE1_LODDS, "attcat", "transatt"),
        above("attcat", ("transatt",), "lodds", lower=True),
    ),
    Claim(
        "Table 1, section 6.1",
        "Without the attention weights (CAT) the performance drops markedly; read here as by 0.005 of AOPC, its drop "
        "on QQP",
        numbers(TABLE1_AOPC, "attcat", "cat"),
        drops("aopc"),
    ),
    Claim(
        "Table 1, section 6.1",
        "Without the attention weights (CAT) the performance drops markedly; read here as by 0.048 of LOdds, its drop "
        "on QQP",
        numbers(TABLE1_LODDS, "attcat", "cat"),
        drops("lodds"),
    ),
)


@paper(
    name="attcat-faithfulness",
    shows="Table 1, AOPC and LOdds",
    methods=METHODS,
    options={"variant": "paper"},
    prepare=_prepare_faithfulness,
    finish=_finish_faithfulness,
    figure=_draw_faithfulness,
    published=(*published("Table 1", "aopc", TABLE1_AOPC), *published("Table 1", "lodds", TABLE1_LODDS)),
    claims=FAITHFUL_CLAIMS,
    differs=(
        DIFFERS_SPLIT,
        "The paper speaks of words; tokens are removed here, as in the released code.",
        "Tokens are ranked by the signed score, as in the notebooks but for that of QQP, which ranks AttCAT's by "
        "magnitude; the paper does not say whether by size or by sign.",
        "The paper does not say whether alpha_i of eq. 11 is a row or a column of attention; as in the released code "
        "it is here what token i receives.",
        "k % of the tokens is rounded to the nearest number; special tokens are never removed. The notebooks of QQP "
        "and MNLI look for the ids of [CLS] and [SEP] among words, do not find them, and remove these two like other "
        "tokens; variant=released is here as the notebooks of single texts are.",
        "variant=released: methods and metrics as the notebooks have them (gold label, nine steps, absolute "
        "differences, special tokens hidden from attention while a text is explained, no value under 10 tokens). "
        "Grads is no token score there: it stays in the table as for variant=paper, and claims are judged without it.",
        "The paper does not say how Grads, one number for each pair of tokens, becomes one for each token; here it is "
        "the sum over the queries.",
        "random is not in the paper.",
    ),
)
def faithfulness(setup: Setup, example: Example) -> list[Record]:
    """How far does the prediction fall when the tokens with the highest scores go?"""
    trace = setup.model.trace(example)
    variant = setup.options["variant"]
    gold = label_ids([example.info["label"]], setup.model)[example.info["label"]] if variant == "released" else None
    requests = requests_of(setup, "released") if variant == "released" else setup.requests
    records = []
    for method, (scores, seconds) in every_score(trace, requests, target="predicted" if gold is None else gold).items():
        for name, measure in CHANGES.items():
            fall = measure(trace, scores, variant=variant, label=gold)
            info = {"points": list(fall.points), "whole": fall.whole, "seconds": seconds}
            records.append(Record(str(example.id), method, name, fall.value, info))
    return records


# --- confidence: Table 2 ----------------------------------------------------------------------------------------------

FORMS = {"kendall": "paper", "of scores": "scores"}  # column -> variant of `kendall_confidence`


def _finish_confidence(setup: Setup, records: list[Record]) -> list[Table]:
    note = (
        "Lower is better by the paper. kendall: of the token indices in order of decreasing score, as eq. 15 defines "
        "it; the tau of two lists of indices is near 0 unless the orders are almost the same, so that values near 0 "
        "say little. of scores: Kendall's tau of the scores themselves; -1 where a class gets the scores of the other "
        "with the opposite sign, 1 where both get the same."
    )
    title = "Kendall's tau between the predicted class and the others"
    return [Table("confidence", title, ("method", *FORMS), wide_rows(records, FORMS, seed=setup.seed), note)]


@paper(
    name="attcat-confidence",
    packages=("scipy",),
    shows="Table 2, confidence (Kendall's tau)",
    methods=CLASSES,
    takes="class-specific",
    options={"variant": "paper"},
    prepare=refuse_variant,
    finish=_finish_confidence,
    figure=lambda setup, tables, figure: bars(figure.subplots(), tables[0], "kendall"),
    published=published("Table 2", "kendall", TABLE2),
    claims=(
        Claim(
            "Table 2, section 6.1",
            "AttCAT has the lowest Kendall correlation (on most data sets); read here with its sign: one below 0 is "
            "lower",
            "lowest on SST2, MNLI, Amazon, Yelp and IMDB (0.008 to 0.023); on QQP AttGrads is, 0.198 against 0.349",
            above("attcat", CLASSES[:-1], "kendall", lower=True),
        ),
        Claim(
            "Table 2, section 6.1",
            "AttCAT has the lowest Kendall correlation (on most data sets); read here by its size, |tau| of each text",
            "lowest on SST2, MNLI, Amazon, Yelp and IMDB (0.008 to 0.023); on QQP AttGrads is, 0.198 against 0.349",
            lambda run: run.order(
                {method: abs(run[method, "kendall"]) for method in CLASSES},
                [("attcat", rival) for rival in CLASSES[:-1]],
                lower=True,
            ),
        ),
        Claim(
            "Table 2",
            "PartialLRP hardly knows of classes: its correlation is the highest (read off the table; the text does "
            "not say it)",
            "0.858 to 0.965, the others at most 0.373",
            above("partial_lrp", [method for method in CLASSES if method != "partial_lrp"], "kendall"),
        ),
    ),
    differs=(
        DIFFERS_SPLIT,
        "Of three classes or more, the mean over all classes but the predicted one; the notebook of MNLI compares "
        "with one.",
        "The predicted class is explained, as eq. 15 says; the notebooks explain the gold label.",
        "Eq. 15 is a mean of tau with its sign, and a lower one is better: by it one of -0.3 is better than 0. All "
        "numbers that the paper prints are above 0, and it speaks of tokens sorted distinctively, which may also mean "
        "a tau near 0. So the claim is judged twice: with the sign, as eq. 15 is written, and by the size of tau in "
        "each text.",
        "variant=released: the methods as the notebooks have them (special tokens hidden, layer inputs).",
    ),
)
def confidence(setup: Setup, example: Example) -> list[Record]:
    """Does a method order the tokens otherwise when another class is to be explained?"""
    trace = setup.model.trace(example)
    assert trace.logits is not None
    predicted = int(trace.logits.argmax())
    requests = requests_of(setup, "released") if setup.options["variant"] == "released" else setup.requests
    of_classes = [every_score(trace, requests, target=label) for label in range(len(trace.logits))]
    records = []
    for method in setup.methods:
        scores = [of_class[method][0] for of_class in of_classes]
        explained = scores.pop(predicted)
        for name, variant in FORMS.items():  # both forms of the correlation
            value = kendall_confidence(explained, scores, variant=variant)
            records.append(Record(str(example.id), method, name, value))
    return records
