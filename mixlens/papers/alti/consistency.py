"""ALTI's Figure 7: do two models that predict the same class rest on the same tokens?"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from ...base.errors import InputError
from ...metrics import mean_with_interval
from ...metrics.agreement import model_agreement
from ...model.model import Model
from ...runs.experiments.claims import Claim, above
from ...runs.experiments.experiment import Setup, experiment
from ...runs.experiments.figures import bars
from ...runs.experiments.tables import Table, by
from ...scoring.asking import every_score
from ...types import Attribution, Example, Record
from .main import ALTI, GRADIENT, LOGIT, PAPER, PLACE

TIMES_INPUT = "grad_x_input:absolute=true"
INTEGRATED = "integrated_gradients:absolute=true:baseline=mask:steps=100:rule=riemann_right"  # appendix B
METHODS = (ALTI, GRADIENT, TIMES_INPUT, INTEGRATED)


def _finish_consistency(setup: Setup, records: list[Record]) -> list[Table]:
    groups = {method: group for (method,), group in by(records, "method").items()}
    return [_whole(setup, groups), _pairs(setup, groups)]


def _whole(setup: Setup, groups: dict[str, list[Record]]) -> Table:
    rows = []
    for method, group in groups.items():
        alike = _alike(group)
        mean = mean_with_interval([r.value for r in alike], groups=[r.example for r in alike], seed=setup.seed)
        rows.append((method, mean, len(alike), len(group) - len(alike)))
    columns = ("method", "spearman", "compared", "predicted differently")
    return Table("agreement", "Agreement of models on examples that both predict alike", columns, tuple(rows))


def _pairs(setup: Setup, groups: dict[str, list[Record]]) -> Table:
    rows = [
        (method, _both(setup, pair), mean_with_interval([r.value for r in of_pair], seed=setup.seed))
        for method, group in groups.items()
        for (pair,), of_pair in by(_alike(group), "pair").items()
    ]
    return Table("pairs", "Every two models", ("method", "models", "spearman"), tuple(rows))


def _alike(records: Sequence[Record]) -> list[Record]:
    """The records of examples that both models predict alike."""
    alike = [record for record in records if record.info["alike"]]
    if not alike:
        raise InputError("no two of the models predict an example alike, so there is nothing to compare.")
    return alike


def _both(setup: Setup, pair: str) -> str:
    names = model_names(setup)
    return " and ".join(names[int(i)] for i in pair.split("-"))


def model_names(setup: Setup) -> list[str]:
    return [f"{i}: {str(model.name).rstrip('/').rpartition('/')[2]}" for i, model in enumerate(setup.models, 1)]


def _prepare_consistency(setup: Setup) -> None:
    first, *others = setup.models
    for other in others:
        _refuse_other_tokens(first, other, setup.examples)


def _refuse_other_tokens(first: Model, other: Model, examples: Sequence[Example]) -> None:
    unlike = [example.id for example in examples if first.encode(example).input_ids != other.encode(example).input_ids]
    if unlike:
        raise InputError(
            f"{first.name!r} and {other.name!r} read example {unlike[0]} as different tokens: models can be compared "
            "token by token where they share a tokenizer."
        )


def _predicted_alike(record: Record) -> bool:
    return bool(record.info["alike"])


@experiment(
    name="alti-consistency",
    packages=("scipy",),
    paper=PAPER,
    shows="Figure 7, the agreement of BERT and DistilBERT",
    data="sentiment",
    model="two or more models with the same tokenizer, such as BERT and DistilBERT",
    methods=METHODS,
    task=("classification",),
    n_models=2,
    prepare=_prepare_consistency,
    finish=_finish_consistency,
    figure=lambda setup, tables, figure: bars(figure.subplots(), tables[0], "spearman"),
    differs=(
        LOGIT,
        PLACE,
        "Gradient times input takes what the first layer reads (behind the embeddings' norm), Integrated Gradients the word "
        "embeddings, with special tokens kept in the baseline. The paper writes x^0 for both.",
    ),
    claims=(
        Claim(
            "Figure 7, section 5",
            "ALTI is the most consistent: its scores in two models agree more than those of the three gradient methods.",
            "a bar chart of BERT and DistilBERT on SST2",
            above(ALTI, (GRADIENT, TIMES_INPUT, INTEGRATED), "spearman", where=_predicted_alike),
        ),
        Claim(
            "Figure 7, section 5",
            "grad_l2 comes second: it agrees more than gradient times input and Integrated Gradients.",
            "a bar chart of BERT and DistilBERT on SST2",
            above(GRADIENT, (TIMES_INPUT, INTEGRATED), "spearman", where=_predicted_alike),
        ),
    ),
)
def consistency(setup: Setup, example: Example) -> list[Record]:
    """Do models that predict the same class rest on the same tokens?"""
    traces = [model.trace(example) for model in setup.models]
    predicted = [int(trace.logits.argmax()) for trace in traces if trace.logits is not None]
    of_models = [every_score(trace, setup.requests) for trace in traces]
    return [
        Record(str(example.id), method, "spearman", value, {"pair": f"{a}-{b}", "alike": predicted[a] == predicted[b]})
        for method in setup.methods
        for (a, b), value in _agreements([of_model[method][0] for of_model in of_models]).items()
    ]


def _agreements(scores: Sequence[Attribution]) -> dict[tuple[int, int], float]:
    """Spearman's correlation of every two models' scores of one text."""
    return {(a, b): model_agreement([scores[a]], [scores[b]]).mean for a, b in combinations(range(len(scores)), 2)}
