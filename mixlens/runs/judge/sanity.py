"""Sanity checks of explanations: do scores depend on what the model learned, on what is explained, and not on small
changes?

weights   rank correlation with the scores of the same model with redrawn weights (Adebayo et al. 2018): lower is better
labels    rank correlation with the scores of a second model, trained on shuffled labels (Adebayo et al. 2018): lower
target    rank correlation with the scores for another class, of three classes or more: lower is better
noise     rank correlation with the scores where every word vector is moved by a little (Yeh et al. 2019): higher is
better

Correlations are over the tokens that may be taken away: special tokens and the position that predicts have scores of 0,
or scores that stand out, by the construction of a method, whatever the model learned."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
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
from ...scoring.asking import RANDOM, every_score
from ...scoring.removal import staying
from ...scoring.targets import resolve
from ...types import Attribution, Example, Record, Trace
from ..experiments.experiment import Setup, experiment
from ..experiments.tables import Cell, Table, by
from .measure import explained

BETTER = {"weights": "lower", "labels": "lower", "target": "lower", "noise": "higher"}
NO_THIRD = (
    "of two classes, and of a word and its foil, the one has the scores of the other with the other sign; it needs "
    "three classes."
)
REDRAWS = "sd over redraws"  # the column beside `weights`
Scores = Mapping[str, Attribution]


# --- changed models ---------------------------------------------------------------------------------------------------


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


@contextmanager
def jittered(model: Model, *, radius: float, seed: int) -> Iterator[None]:
    """Within this block every word vector is moved by `radius` of its length, each token id in a direction of its
    own."""
    table = model.hf_model.get_input_embeddings()
    noise = torch.randn(table.weight.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    directions = (noise / noise.norm(dim=-1, keepdim=True)).to(table.weight.device)  # [token id, d], of length 1

    def moved(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        return output + radius * output.norm(dim=-1, keepdim=True) * directions[inputs[0]].to(output)

    hook = table.register_forward_hook(moved)
    try:
        yield
    finally:
        hook.remove()


# --- scores of changed models and targets -----------------------------------------------------------------------------


def has_other_target(model: Model) -> bool:
    """Whether there is another target whose scores are not those of the first with the other sign: a third class."""
    return model.task == "classification" and model.hf_model.config.num_labels > 2


class Checks:
    """The checks of a run. The redrawn models are made once, and all are held."""

    def __init__(self, setup: Setup):
        self.setup = setup
        impossible = {"labels": len(setup.models) < 2, "target": not has_other_target(setup.model)}
        self.names = [name for name in setup.options["checks"] if not impossible.get(name)]
        seeds = redraw_seeds(setup.seed, setup.options["redraws"]) if "weights" in self.names else []
        self.random_models = [redrawn(setup.model, seed) for seed in seeds]

    def scores(self, trace: Trace, question: Mapping[str, Any]) -> Scores:
        return {name: scores for name, (scores, _) in every_score(trace, self.setup.requests, **question).items()}

    def changed(self, check: str, example: Example, trace: Trace, question: dict[str, Any]) -> list[Scores | None]:
        """The scores of every method after the change of a check, of each redraw of the weights; None where the change
        is not possible for this example."""
        if check in ("weights", "labels"):
            models = self.random_models if check == "weights" else self.setup.models[1:2]
            return [self.scores(model.trace(example), question) for model in models]
        if check == "target":  # another class; against a foil it would have the same scores with the other sign
            if question["foil"] is not None:
                return [None]
            other = (resolve(trace, question["target"]).ids[0] + 1) % trace.model.hf_model.config.num_labels
            return [self.scores(trace, {**question, "target": other})]
        with jittered(self.setup.model, radius=self.setup.options["radius"], seed=self.setup.seed):
            moved = self.setup.model.trace(example)
            before, after = ([name for name, _ in one.prediction(1)] for one in (trace, moved))
            return [self.scores(moved, question) if before in ([], after) else None]

    def records(self, example: Example) -> Iterator[Record]:
        trace = self.setup.model.trace(example)
        question = explained(example, trace, "measured")
        if (
            trace.model.task != "question-answering"
        ):  # the predicted class or word is named: a changed model is asked the same
            question["target"] = resolve(trace, question["target"]).ids[0]
        stay = staying(trace, resolve(trace, question["target"], foil=question["foil"]))
        before, places = self.scores(trace, question), [i for i in range(len(trace)) if i not in stay]
        for check in self.names:
            every = self.changed(check, example, trace, question)
            for method, scores in before.items():
                values = [likeness(check, scores, after[method] if after else None, places) for after in every]
                facts = {"redraws": values} if check == "weights" else {}
                yield Record(str(example.id), method, check, mean_of_defined(values), facts)


def likeness(check: str, before: Attribution, after: Attribution | None, places: Sequence[int]) -> float:
    """Rank correlation over some tokens: of magnitudes, but signed for another target, for which scores may change
    their signs alone. NaN where there is nothing after the change, or where there are fewer than two tokens."""
    ranking = "signed" if check == "target" else "magnitude"
    if after is None or len(places) < 2:
        return float("nan")
    one, other = (ranked(side, ranking)[list(places)] for side in (before, after))
    return spearman(one, other)


def mean_of_defined(values: Any) -> float:
    """The mean of those that are not NaN: constant scores correlate with nothing. NaN where there are none."""
    defined = np.asarray(values)[~np.isnan(values)]
    return float(defined.mean()) if len(defined) else float("nan")


# --- the experiment ---------------------------------------------------------------------------------------------------


def _prepare(setup: Setup) -> None:
    checks, redraws, radius = (setup.options[name] for name in ("checks", "redraws", "radius"))
    if not checks or not {*checks} <= {*BETTER}:
        raise InputError(f"checks are some of {', '.join(BETTER)}, not {checks!r}.")
    if list(checks) == ["target"] and not has_other_target(setup.model):
        raise InputError(f"target needs a third class: {NO_THIRD} Ask for other checks.")
    if not isinstance(redraws, int) or redraws < 1:
        raise InputError(f"redraws is a number of models with redrawn weights, at least 1, not {redraws!r}.")
    if not 0 < radius < 1:
        raise InputError(f"radius is a share of a word vector's length, above 0 and below 1, not {radius!r}.")


def _finish(setup: Setup, records: list[Record]) -> list[Table]:
    groups = by(records, "method", "metric")
    names = list(dict.fromkeys(record.metric for record in records))
    rows = []
    for method in setup.methods:
        row: list[Cell] = [method]
        for name in names:
            group = groups.get((method, name), [])
            row.append(mean_with_interval([r.value for r in group], how="studentised") if group else None)
            row += [spread_of_redraws(group)] if name == "weights" else []
        rows.append(tuple(row))
    columns = [column for name in names for column in (name, *([REDRAWS] if name == "weights" else []))]
    signed = ", but for the target" if "target" in names else ""
    note = (
        "Spearman's rank correlation of scores before and after a change, over the tokens that may be taken away; of "
        f"their magnitudes{signed}. {'; '.join(f'{name}: {BETTER[name]} is better' for name in names)}. A method that "
        "keeps its scores under redrawn weights shows the input and not the model. Texts whose prediction the noise "
        "changes are left out."
    )
    if "weights" in names:
        note += (
            f" weights: of each text the mean over {setup.options['redraws']} redraws, whose interval is over texts "
            f"alone; {REDRAWS}: the standard deviation of the mean correlation over redraws."
        )
    if "target" in setup.options["checks"] and "target" not in names:
        note += f" target is left out: {NO_THIRD}"
    return [Table("sanity", "Sanity checks", ("method", *columns), tuple(rows), note)]


def spread_of_redraws(records: Sequence[Record]) -> float | None:
    """The standard deviation, over redraws, of the mean correlation over texts; None for one redraw."""
    values = np.array([record.info["redraws"] for record in records], dtype=np.float64)  # [text redraw]
    means = [mean_of_defined(column) for column in values.T]
    return float(np.std(means, ddof=1)) if len(means) > 1 else None


@experiment(
    name="judge-sanity",
    paper="Adebayo et al. 2018, Sanity Checks for Saliency Maps",
    shows="sanity checks of methods",
    data="agreement",
    model="agreement",
    methods=(RANDOM, "attention", "globenc", "alti", "value_zeroing", "grad_x_input", "attcat"),
    task=("classification", "masked-lm", "causal-lm", "question-answering"),
    options={"checks": list(BETTER), "radius": 0.05, "redraws": 5},
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
        yield from ((key, list(checks.records(example))) for key, example in todo.items())
