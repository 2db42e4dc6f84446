"""ALTI's Figure 7: do two models that predict the same class rest on the same tokens?"""

from __future__ import annotations

from itertools import combinations

from ...base.errors import InputError
from ...metrics.agreement import model_agreement
from ...runs.experiments.claims import Claim, above
from ...runs.experiments.experiment import Setup
from ...runs.experiments.figures import bars
from ...runs.experiments.tables import Table, by, interval_of
from ...scoring.asking import every_score
from ...types import Example, Record
from .main import ALTI, GRADIENT, LOGIT, PLACE, paper

TIMES_INPUT = "grad_x_input:absolute=true"
INTEGRATED = "integrated_gradients:absolute=true:baseline=mask:steps=100:rule=riemann_right"  # appendix B
METHODS = (ALTI, GRADIENT, TIMES_INPUT, INTEGRATED)


def _finish_consistency(setup: Setup, records: list[Record]) -> list[Table]:
    whole, pairs = [], []
    names = model_names(setup)
    for (method,), group in by(records, "method").items():
        alike = [record for record in group if record.info["alike"]]
        if not alike:
            raise InputError("no two of the models predict an example alike, so there is nothing to compare.")
        mean = interval_of(alike, setup.seed, together=True)
        whole.append((method, mean, len(alike), len(group) - len(alike)))
        for (pair,), some in by(alike, "pair").items():
            both = " and ".join(names[int(i)] for i in pair.split("-"))
            pairs.append((method, both, interval_of(some, setup.seed)))
    title = "Agreement of models on examples that both predict alike"
    return [
        Table("agreement", title, ("method", "spearman", "compared", "predicted differently"), tuple(whole)),
        Table("pairs", "Every two models", ("method", "models", "spearman"), tuple(pairs)),
    ]


def model_names(setup: Setup) -> list[str]:
    return [f"{i}: {str(model.name).rstrip('/').rpartition('/')[2]}" for i, model in enumerate(setup.models, 1)]


def _prepare_consistency(setup: Setup) -> None:
    first, *others = setup.models
    for other in others:
        for example in setup.examples:
            if first.encode(example).input_ids != other.encode(example).input_ids:
                raise InputError(
                    f"{first.name!r} and {other.name!r} read example {example.id} as different tokens: models can be "
                    "compared token by token where they share a tokenizer."
                )


def _predicted_alike(record: Record) -> bool:
    return bool(record.info["alike"])


@paper(
    name="alti-consistency",
    packages=("scipy",),
    shows="Figure 7, the agreement of BERT and DistilBERT",
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
        "Gradient times input takes what the first layer reads (behind the embeddings' norm), Integrated Gradients "
        "the word embeddings, with special tokens kept in the baseline. The paper writes x^0 for both.",
    ),
    claims=(
        Claim(
            "Figure 7, section 5",
            "ALTI is the most consistent: its scores in two models agree more than those of the three gradient "
            "methods.",
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
        Record(
            str(example.id),
            method,
            "spearman",
            model_agreement([of_models[a][method][0]], [of_models[b][method][0]]).mean,
            {"pair": f"{a}-{b}", "alike": predicted[a] == predicted[b]},
        )
        for method in setup.methods
        for a, b in combinations(range(len(traces)), 2)
    ]
