"""Sanity checks of explanations: do scores depend on what the model learned, on what is explained, and not on small changes?

weights   rank correlation with the scores of the same model with redrawn weights (Adebayo et al. 2018): lower is better
labels    rank correlation with the scores of a second model, trained on shuffled labels (Adebayo et al. 2018): lower
target    rank correlation with the scores for another class, of three classes or more: lower is better
noise     rank correlation with the scores where every word vector is moved by a little (Yeh et al. 2019): higher is better

Correlations are over the tokens that may be taken away: special tokens and the position that predicts have scores of 0, or scores
that stand out, by the construction of a method, whatever the model learned.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...base.errors import InputError
from ...metrics import mean_with_interval
from ...metrics.agreement import spearman
from ...metrics.plausibility import ranked
from ...model.loading import load
from ...model.model import Model
from ...scoring.asking import RANDOM, MethodRequest, every_score
from ...scoring.removal import staying
from ...scoring.targets import resolve
from ...types import Attribution, Example, Record, Trace
from ..experiments.experiment import Setup, experiment
from ..experiments.tables import Cell, Table, by
from .judging import explained

CHECKS = ("weights", "labels", "target", "noise")
NO_THIRD = "of two classes, and of a word and its foil, the one has the scores of the other with the other sign; it needs three classes."
BETTER = {"weights": "lower", "labels": "lower", "target": "lower", "noise": "higher"}
REDRAWS = "sd over redraws"  # the column beside `weights`
Scores = Mapping[str, Attribution]


# --- changed models -----------------------------------------------------------------------------------------------------


def redrawn(model: Model, seed: int) -> Model:
    """A copy of a model whose weights are drawn anew, each tensor with its own mean and standard deviation."""
    network = copy.deepcopy(model.hf_model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weights in network.parameters():
            noise = torch.randn(weights.shape, generator=generator, dtype=torch.float64)
            spread = float(weights.double().std(correction=0))
            weights.copy_((weights.double().mean() + spread * noise.to(weights.device)).to(weights.dtype))
    return load(network, tokenizer=model.tokenizer)


def redraw_seeds(seed: int, count: int) -> list[int]:
    """A seed for each redraw; runs with different seeds share none."""
    return [int(np.random.SeedSequence([seed, number]).generate_state(1)[0]) for number in range(count)]


def redrawn_models(setup: Setup) -> list[Model]:
    return [redrawn(setup.model, seed) for seed in redraw_seeds(setup.seed, setup.options["redraws"])]


@contextmanager
def jittered(model: Model, *, radius: float, seed: int) -> Iterator[None]:
    """Within this block every word vector is moved by `radius` of its length, each token id in a direction of its own."""
    table = model.hf_model.get_input_embeddings()
    directions = _directions(table, seed)

    def moved(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        return output + radius * output.norm(dim=-1, keepdim=True) * directions[inputs[0]].to(output)

    hook = table.register_forward_hook(moved)
    try:
        yield
    finally:
        hook.remove()


def _directions(table: Any, seed: int) -> Tensor:
    """[token id, d]: random vectors of length 1."""
    noise = torch.randn(table.weight.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    directions: Tensor = (noise / noise.norm(dim=-1, keepdim=True)).to(table.weight.device)
    return directions


# --- scores of changed models and targets ---------------------------------------------------------------------------------


def _scores(trace: Trace, requests: Mapping[str, MethodRequest], question: Mapping[str, Any]) -> dict[str, Attribution]:
    return {method: scores for method, (scores, _) in every_score(trace, requests, **question).items()}


def has_other_target(model: Model) -> bool:
    """Whether there is another target whose scores are not those of the first with the other sign: a third class."""
    return model.task == "classification" and model.hf_model.config.num_labels > 2


def _other_target(trace: Trace, question: Mapping[str, Any]) -> dict[str, Any] | None:
    """Another class; None where it would have the scores of the first with the other sign."""
    if question["foil"] is not None or not has_other_target(trace.model):
        return None
    count = trace.model.hf_model.config.num_labels
    return {**question, "target": (resolve(trace, question["target"]).ids[0] + 1) % count}


def _same_prediction(one: Trace, other: Trace) -> bool:
    return one.prediction(1)[:1] == [] or one.prediction(1)[0][0] == other.prediction(1)[0][0]


class Checks:
    """The checks of a run. The redrawn models are made once, and all are held."""

    def __init__(self, setup: Setup):
        self.setup = setup
        impossible = {"labels": len(setup.models) < 2, "target": not has_other_target(setup.model)}
        self.names = [name for name in setup.options["checks"] if not impossible.get(name)]
        self.random_models = redrawn_models(setup) if "weights" in self.names else []

    def changed(self, check: str, example: Example, trace: Trace, question: dict[str, Any]) -> list[Scores | None]:
        """The scores of every method after the change of a check, of each redraw of the weights; None where the change is not
        possible for this example."""
        by_check: dict[str, Callable[[], list[Scores | None]]] = {
            "weights": lambda: [self._of_model(model, example, question) for model in self.random_models],
            "labels": lambda: [self._of_model(self.setup.models[1], example, question)],
            "target": lambda: [self._of_target(trace, question)],
            "noise": lambda: [self._with_noise(example, trace, question)],
        }
        return by_check[check]()

    def _of_model(self, model: Any, example: Example, question: dict[str, Any]) -> Scores:
        return _scores(model.trace(example), self.setup.requests, question)

    def _of_target(self, trace: Trace, question: dict[str, Any]) -> Scores | None:
        other = _other_target(trace, question)
        return None if other is None else _scores(trace, self.setup.requests, other)

    def _with_noise(self, example: Example, trace: Trace, question: dict[str, Any]) -> Scores | None:
        with jittered(self.setup.model, radius=self.setup.options["radius"], seed=self.setup.seed):
            moved = self.setup.model.trace(example)
            return _scores(moved, self.setup.requests, question) if _same_prediction(trace, moved) else None


# --- the experiment -------------------------------------------------------------------------------------------------------


def _prepare(setup: Setup) -> None:
    unknown = [name for name in setup.options["checks"] if name not in CHECKS]
    if unknown or not setup.options["checks"]:
        raise InputError(f"checks are some of {', '.join(CHECKS)}, not {setup.options['checks']!r}.")
    if list(setup.options["checks"]) == ["target"] and not has_other_target(setup.model):
        raise InputError(f"target needs a third class: {NO_THIRD} Ask for other checks.")
    _refuse_redraws(setup.options["redraws"])
    if not 0 < setup.options["radius"] < 1:
        raise InputError(
            f"radius is a share of a word vector's length, above 0 and below 1, not {setup.options['radius']!r}."
        )


def _refuse_redraws(redraws: Any) -> None:
    if not isinstance(redraws, int) or redraws < 1:
        raise InputError(f"redraws is a number of models with redrawn weights, at least 1, not {redraws!r}.")


def _finish(setup: Setup, records: list[Record]) -> list[Table]:
    groups = by(records, "method", "metric")
    names = list(dict.fromkeys(record.metric for record in records))
    columns = [column for name in names for column in (name, *([REDRAWS] if name == "weights" else []))]
    rows = tuple((method, *(_cell(groups, method, column) for column in columns)) for method in setup.methods)
    return [Table("sanity", "Sanity checks", ("method", *columns), rows, _note(setup, names))]


def _cell(groups: Mapping[tuple[Any, ...], Sequence[Record]], method: str, column: str) -> Cell:
    """The mean of a check over texts, or its spread over redraws; None where there is none."""
    group = groups.get((method, "weights" if column == REDRAWS else column))
    if group is None:
        return None
    return (
        spread_of_redraws(group)
        if column == REDRAWS
        else mean_with_interval([r.value for r in group], how="studentised")
    )


def spread_of_redraws(records: Sequence[Record]) -> float | None:
    """The standard deviation, over redraws, of the mean correlation over texts; None for one redraw."""
    values = np.array([record.info["redraws"] for record in records], dtype=np.float64)  # [text redraw]
    means = [mean_of_defined(column) for column in values.T]
    return float(np.std(means, ddof=1)) if len(means) > 1 else None


def mean_of_defined(values: Any) -> float:
    """The mean of those that are not NaN: constant scores correlate with nothing. NaN where there are none."""
    defined = np.asarray(values)[~np.isnan(values)]
    return float(defined.mean()) if len(defined) else float("nan")


def _note(setup: Setup, names: Sequence[str]) -> str:
    """How to read the table, and which check is left out."""
    ways = "; ".join(f"{name}: {BETTER[name]} is better" for name in names)
    signed = ", but for the target" if "target" in names else ""
    parts = [
        "Spearman's rank correlation of scores before and after a change, over the tokens that may be taken away; of their "
        f"magnitudes{signed}. {ways}. A method that keeps its scores under redrawn weights shows the input and not the model. "
        "Texts whose prediction the noise changes are left out.",
        _told_redraws(setup) if "weights" in names else "",
        *_left_out(setup, names),
    ]
    return " ".join(filter(None, parts))


def _left_out(setup: Setup, names: Sequence[str]) -> list[str]:
    return [f"target is left out: {NO_THIRD}"] if "target" in {*setup.options["checks"]} - {*names} else []


def _told_redraws(setup: Setup) -> str:
    return (
        f"weights: of each text the mean over {setup.options['redraws']} redraws, whose interval is over texts alone; {REDRAWS}: "
        "the standard deviation of the mean correlation over redraws."
    )


def _fixed(question: dict[str, Any], trace: Trace) -> dict[str, Any]:
    """The question with the predicted class or word named, so that a changed model is asked the same."""
    return (
        {**question, "target": resolve(trace, question["target"]).ids[0]}
        if trace.model.task != "question-answering"
        else question
    )


@experiment(
    name="judge-sanity",
    paper="Adebayo et al. 2018, Sanity Checks for Saliency Maps",
    shows="sanity checks of methods",
    data="agreement",
    model="agreement",
    methods=(RANDOM, "attention", "globenc", "alti", "value_zeroing", "grad_x_input", "attcat"),
    task=("classification", "masked-lm", "causal-lm", "question-answering"),
    options={"checks": list(CHECKS), "radius": 0.05, "redraws": 5},
    packages=("scipy",),
    whole=True,
    prepare=_prepare,
    finish=_finish,
)
def sanity(setup: Setup, examples: Sequence[Example]) -> Iterator[tuple[str, list[Record]]]:
    """Do scores change with the model's weights and with the target, and not with small changes of the input?"""
    todo = {str(place): example for place, example in enumerate(examples) if str(place) not in setup.done}
    if todo:
        checks = Checks(setup)
        yield from ((key, list(_records(checks, example))) for key, example in todo.items())


def likeness(check: str, before: Attribution, after: Attribution | None, places: Sequence[int]) -> float:
    """Rank correlation over some tokens: of magnitudes, but signed for another target, for which scores may change their signs
    alone. NaN where there is nothing after the change, or where there are fewer than two tokens."""
    ranking = "signed" if check == "target" else "magnitude"
    if after is None or len(places) < 2:
        return float("nan")
    one, other = (ranked(side, ranking)[list(places)] for side in (before, after))
    return spearman(one, other)


def places_of(trace: Trace, question: Mapping[str, Any]) -> list[int]:
    """The positions that may be taken away."""
    stay = staying(trace, resolve(trace, question["target"], foil=question["foil"]))
    return [i for i in range(len(trace)) if i not in stay]


def _records(checks: Checks, example: Example) -> Iterator[Record]:
    trace = checks.setup.model.trace(example)
    question = _fixed(explained(example, trace, "measured"), trace)
    before, places = _scores(trace, checks.setup.requests, question), places_of(trace, question)
    for check in checks.names:
        every = checks.changed(check, example, trace, question)
        for method, scores in before.items():
            values = [likeness(check, scores, after[method] if after else None, places) for after in every]
            facts = {"redraws": values} if check == "weights" else {}
            yield Record(str(example.id), method, check, mean_of_defined(values), facts)
