"""A hook or module that treats the rows of a batch differently: every number is that of its text, or altered copy,
alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from conftest import QUICK, ids, loaded
from papers_written_out import value_zeroing as written_out
from torch import Tensor

import mixlens
from mixlens.layer import block
from mixlens.model import rows, user_code

BATCHED = [
    "blank_out",
    "smooth_grad",
    "gradient_shap",
    "context_cite",
    "shap",
    "lime",
    "integrated_gradients",
    "deeplift",
    "layer_conductance",
]
WORDS = "The plot was dull but the actors were wonderful."


def first_row(output: Tensor) -> Tensor:
    return torch.cat([output[:1] * 1.5, output[1:]])


def last_row(output: Tensor) -> Tensor:
    return torch.cat([output[:-1], output[-1:] * 1.5])


def rows_between(output: Tensor) -> Tensor:
    return torch.cat([output[:1], output[1:-1] * 1.5, output[1:][-1:]])


def against_the_others(output: Tensor) -> Tensor:
    return output - 0.5 * output.mean(0, keepdim=True)


class Later:
    """Changes a row between others from its fifth batch of several rows on."""

    def __init__(self) -> None:
        self.batches = 0

    def __call__(self, output: Tensor) -> Tensor:
        self.batches += len(output) > 1
        return rows_between(output) if self.batches > 4 else output


Change = Callable[[Tensor], Tensor]
# Each with the factor that it is for a text alone.
CHANGES: dict[str, tuple[Callable[[], Change], float]] = {
    "first row": (lambda: first_row, 1.5),
    "last row": (lambda: last_row, 1.5),
    "rows between": (lambda: rows_between, 1.0),
    "against the others": (lambda: against_the_others, 0.5),
    "a later batch": (Later, 1.0),
}
DENSE = "bert.encoder.layer.1.output.dense"


@pytest.fixture(scope="module")
def lens() -> mixlens.Model:
    return mixlens.load("sentiment")


@pytest.fixture
def hooked(lens: mixlens.Model) -> Iterator[Callable[..., Callable[[], None]]]:
    """A function that lets a change act on what a module puts out, until it is taken away or the test ends."""
    handles: list[Any] = []

    def hook(path: str, change: Change, *, gradients: bool = False) -> Callable[[], None]:
        module = lens.hf_model.get_submodule(path)
        if gradients:
            handles.append(module.register_full_backward_hook(lambda module, before, after: (change(before[0]),)))
        else:
            handles.append(module.register_forward_hook(lambda module, args, output: change(output)))
        return handles[-1].remove

    yield hook
    for handle in handles:
        handle.remove()


def scores_of(lens: mixlens.Model, name: str) -> Tensor:
    return mixlens.attribute(lens.trace(WORDS), name, **QUICK.get(name, {})).scores


def expected_scores(
    lens: mixlens.Model, name: str, hook: Any, path: str, factor: float, monkeypatch: pytest.MonkeyPatch
) -> Tensor:
    """Those of a model that multiplies every row, which is the same in a batch: it is run in batches."""
    remove = hook(path, lambda output: output * factor)
    with monkeypatch.context() as patch:
        patch.setattr(user_code, "acts_in", lambda model: False)
        scores = scores_of(lens, name)
    remove()
    return scores


def close(one: Tensor, other: Tensor) -> None:
    """Sums of a batch are rounded in another order; what a path between two points adds up to amplifies it."""
    torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4 * float(other.abs().max()))


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", [name for name in BATCHED if name != "deeplift"])
def test_where_a_hook_acts_every_number_is_that_of_its_copy_alone(
    lens: mixlens.Model, hooked: Any, name: str, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, factor = CHANGES[change]
    expected = expected_scores(lens, name, hooked, DENSE, factor, monkeypatch)
    hooked(DENSE, made())
    close(scores_of(lens, name), expected)


@pytest.mark.parametrize("change", ["first row", "last row", "against the others"])
def test_the_two_rows_of_deeplift_are_compared(lens: mixlens.Model, hooked: Any, change: str) -> None:
    """A text and its baseline are run together, since the rules of a layer need both."""
    hooked(DENSE, CHANGES[change][0]())
    with pytest.raises(mixlens.MixlensError, match="rows of a batch") as refusal:
        scores_of(lens, "deeplift")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("blank_out", "bert.embeddings.word_embeddings"),  # its place is taken by the points of smooth_grad
        *(
            (name, path)
            for name in ("blank_out", "smooth_grad")
            for path in ("bert.embeddings.LayerNorm", "bert.pooler", "classifier")
        ),
    ],
)
def test_hooks_on_the_embeddings_and_the_head(
    lens: mixlens.Model, hooked: Any, name: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = expected_scores(lens, name, hooked, path, 1.5, monkeypatch)
    hooked(path, first_row)
    close(scores_of(lens, name), expected)


@pytest.mark.parametrize("change", ["first row", "rows between"])
@pytest.mark.parametrize("name", ["smooth_grad", "gradient_shap"])
def test_hooks_on_gradients_alone(lens: mixlens.Model, hooked: Any, name: str, change: str) -> None:
    made, factor = CHANGES[change]
    remove = hooked(DENSE, lambda gradient: gradient * factor, gradients=True)
    expected = scores_of(lens, name)
    remove()
    hooked(DENSE, made(), gradients=True)
    close(scores_of(lens, name), expected)


@pytest.mark.parametrize("path", [DENSE, "bert.encoder.layer.1.intermediate.dense"])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    "options", [{}, {"query": 2}, {"standardize": True}, {"distance": "spearman"}, {"variant": "released"}]
)
def test_value_zeroing_runs_one_copy_of_a_text_at_a_time(
    lens: mixlens.Model, hooked: Any, change: str, options: dict[str, Any], path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, factor = CHANGES[change]
    remove = hooked(path, lambda output: output * factor)
    with monkeypatch.context() as patch:
        patch.setattr(block, "is_stock", lambda module: True)
        expected = mixlens.mix(lens.trace(WORDS), "value_zeroing", **options).scores
    remove()
    hooked(path, made())
    found = mixlens.mix(lens.trace(WORDS), "value_zeroing", **options).scores
    coarse = (
        1e-2 if "variant" in options or "distance" in options else 1e-3
    )  # steps of 1 - cos, and of ranks, in float32
    torch.testing.assert_close(found, expected, rtol=coarse, atol=coarse)


@pytest.mark.parametrize("change", ["first row", "last row", "rows between"])  # copies do not differ from their mean
def test_hta_compares_all_copies_of_a_text(lens: mixlens.Model, hooked: Any, change: str) -> None:
    hooked(DENSE, CHANGES[change][0]())
    trace = lens.trace("A dull plot.")
    with pytest.raises(mixlens.MixlensError, match=r"rows of a batch|copies of a text"):
        mixlens.mix(trace, "hta")


def at_place(place: int) -> Change:
    return lambda output: output * torch.ones_like(output).index_fill(-2, torch.tensor([place % output.shape[-2]]), 1.5)


@pytest.mark.parametrize(
    "change",
    [*(at_place(place) for place in (0, 2, 5)), first_row, last_row, lambda x: x * 1.5 if len(x) <= 2 else x],
    ids=["place 0", "place 2", "place 5", "first row", "last row", "few rows"],
)
@pytest.mark.parametrize("case", ["bert", "gpt2", "llama"])
def test_value_zeroing_with_a_hook_is_the_intervention_on_one_text(case: str, change: Change) -> None:
    """Of one row, and of a causal model's later rows, modules are run on every position all the same."""
    lens = loaded(case)
    handle = lens.parts[1].mlp_down.register_forward_hook(
        lambda module, args, output: change(output if output.dim() > 2 else output[None]).view_as(output)
    )
    try:
        trace = lens.trace(input_ids=ids(6))
        expected = written_out(trace)[1]
        torch.testing.assert_close(mixlens.mix(trace, "value_zeroing").scores[1], expected, rtol=1e-6, atol=1e-9)
        for query in (0, 3, 5):
            row = mixlens.mix(trace, "value_zeroing", query=query).scores[1]
            torch.testing.assert_close(row[query], expected[query], rtol=1e-6, atol=1e-9)
            assert row.sum() == pytest.approx(1)
    finally:
        handle.remove()


@pytest.mark.parametrize("change", CHANGES)
def test_several_texts_are_what_each_is_alone(lens: mixlens.Model, hooked: Any, change: str, tmp_path: Path) -> None:
    texts = [WORDS, "A dull plot.", "The actors were wonderful and the plot was not.", "A film.", "It was good."]
    made, factor = CHANGES[change]
    remove = hooked(DENSE, lambda output: output * factor)
    expected = [lens.trace(text) for text in texts]
    maps = [mixlens.mix(trace, "alti").scores for trace in expected]
    gradients = [mixlens.attribute(trace, "grad_l2").scores for trace in expected]
    remove()
    hooked(DENSE, made())
    for one, other in zip(lens.trace(texts), expected, strict=True):
        close(one.layers[-1].output, other.layers[-1].output)
    for scores, other in zip(lens.mix(texts, "alti"), maps, strict=True):
        close(scores.scores, other)
    for one, other in zip(mixlens.attribute(lens.trace(texts), "grad_l2"), gradients, strict=True):
        close(one.scores, other)
    mixlens.run(texts, out=tmp_path / "run", model=lens, methods=["alti"], progress=False)
    rows = [
        row
        for file in sorted((tmp_path / "run" / "shards").glob("*.parquet"))
        for row in pq.read_table(file).to_pylist()
    ]
    assert len(rows) == len(texts)
    for row, scores in zip(sorted(rows, key=lambda row: row["row"]), maps, strict=True):
        own = mixlens.Map(scores, tuple(row["tokens"]), "alti").rollout().readout(0).scores
        close(torch.tensor(row["alti"]), own)


@pytest.mark.parametrize("change", ["first row", "last row", "rows between", "against the others"])
def test_a_batch_that_is_run_all_the_same_is_compared_row_by_row(lens: mixlens.Model, hooked: Any, change: str) -> None:
    traces = lens.trace([WORDS, "A dull plot.", "The actors were wonderful and the plot was not."])
    hooked(DENSE, CHANGES[change][0]())
    with pytest.raises(mixlens.MixlensError, match="rows of a batch"):
        lens.outputs(traces)


@pytest.mark.parametrize("change", [first_row, last_row, rows_between])
def test_stock_code_that_is_not_known_to_be_changed_is_compared_too(
    lens: mixlens.Model, hooked: Any, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first and the last row, even where nobody's code is found to act."""
    hooked(DENSE, change)
    monkeypatch.setattr(user_code, "acts_in", lambda model: False)
    monkeypatch.setattr(rows, "acts_in", lambda model: False)
    if change is rows_between:
        scores_of(lens, "blank_out")
    else:
        with pytest.raises(mixlens.MixlensError, match="rows of a batch"):
            scores_of(lens, "blank_out")


def test_a_hook_that_does_the_same_to_every_row_is_no_reason_to_refuse(
    lens: mixlens.Model, hooked: Callable[[str, Change], None]
) -> None:
    """In half precision too, where the sums of a batch are rounded in another way."""
    hooked("bert.encoder.layer.1.output.dense", lambda output: output * 1.5)
    for name in ("blank_out", "smooth_grad", "integrated_gradients"):
        mixlens.attribute(lens.trace(WORDS), name, **QUICK.get(name, {}))
    half = mixlens.load("sentiment", dtype="bfloat16")
    half.trace([WORDS, "A dull plot.", "The actors were wonderful."])
    mixlens.attribute(half.trace(WORDS), "blank_out")


@pytest.mark.parametrize("method", ["lime", "shap"])
def test_weights_that_are_no_numbers_are_not_taken_for_a_hook_on_rows(method: str) -> None:
    lens = mixlens.load("sentiment")
    trace = lens.trace(WORDS)
    with torch.no_grad():
        lens.hf_model.get_submodule(DENSE).weight[3, 4] = float("nan")
    with pytest.raises(mixlens.MixlensError, match=r"not finite.*the weights hold NaN or infinite numbers") as error:
        mixlens.attribute(trace, method, **QUICK[method])
    assert "differently" not in str(error.value)
