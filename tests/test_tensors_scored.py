"""What a scorer's tensors become, on tensors written by hand: extras brought together, rows cut out, gaps judged and told,
calls checked; and the layers of one example of a batch."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mixlens.base.errors import InputError, MixlensError, ModelError
from mixlens.base.layer_trace import LayersOf, LayerTrace, tensors_of, without_batch
from mixlens.layer.identities import Unproven
from mixlens.methods._mixing import Method, method, mixing, refuse_all_heads
from mixlens.scoring import scored_tensors, scoring
from mixlens.scoring.scored_tensors import Gathered, NotFinite, Results
from mixlens.types import Map

CPU = torch.device("cpu")


def numbered(*shape: int) -> Any:
    return torch.arange(math.prod(shape), dtype=torch.float64).reshape(shape)


def scored(block: Any, *, variant: str = "one", head: int | None = None) -> Any: ...


ENTRY = Method("mine", scored, "a paper", ("one", "two"), "1", "alti", True, False, False, ("by_head",))


def test_shares_of_rows() -> None:
    assert scored_tensors.shares(torch.tensor([[1.0, -3.0], [0.0, 0.0]])).tolist() == [[0.25, -0.75], [0.0, 0.0]]


def test_axes_and_rows() -> None:
    tensor = numbered(2, 3)
    assert scored_tensors.unsqueezed(tensor, (0, 1)).shape == (1, 1, 2, 3)
    assert scored_tensors.unsqueezed(tensor, ()).shape == (2, 3)
    assert scored_tensors.unsqueezed("word", (0,)) == "word"
    assert scored_tensors.of_row("word", 1, 2) == "word"
    assert scored_tensors.of_row(numbered(2, 3), 1, 1).tolist() == [3.0, 4.0, 5.0]
    assert torch.equal(scored_tensors.of_row(numbered(2, 3, 4), 1, 2), numbered(2, 3, 4)[1, :, :2])
    assert torch.equal(scored_tensors.of_row(numbered(2, 3, 4), 0, None), numbered(2, 3, 4)[0])
    parts = [numbered(1, 2), numbered(2, 2)]
    assert torch.equal(scored_tensors.gathered(parts, CPU), torch.cat(parts))
    assert torch.equal(scored_tensors.gathered(parts[:1], CPU), parts[0])


def test_extras_of_all_layers() -> None:
    assert scored_tensors.all_layers(["same", "same"]) == "same"
    assert scored_tensors.all_layers(["same", "other"]) == ["same", "other"]
    first, second = numbered(1, 2, 3), numbered(1, 2, 3) + 10
    assert torch.equal(scored_tensors.all_layers([first, second]), torch.stack([first[0], second[0]]).transpose(0, 1))


def test_scores_are_in_memory_of_their_own() -> None:
    scratch, own, part = numbered(2), numbered(3), numbered(4)
    block: Any = SimpleNamespace(x=part, index=3)
    made, extras = scored_tensors.separate(
        (scratch, {"of block": part[:2], "own": own, "word": "w"}), {"s": scratch}, block
    )
    assert made.data_ptr() != scratch.data_ptr()
    assert torch.equal(made, scratch)
    assert extras["of block"].data_ptr() != part.data_ptr()
    assert (extras["own"] is own, extras["word"]) == (True, "w")
    without, nothing = scored_tensors.separate(part, {"s": scratch})
    assert (without is part, nothing) == (True, {})
    assert scored_tensors.separate(scratch, {"s": scratch}, block)[0].data_ptr() != scratch.data_ptr()


def results_of() -> Results:
    results = Results({"mine": [], "other": []}, {"mine": [], "other": []})
    for start, count in ((0, 1), (1, 2)):
        gaps = {"parts": (torch.full((count,), 0.5 + start), 2.0 + start), "weights": (torch.zeros(count), 0.0)}
        extras: dict[str, Any] = {"ratio": numbered(count, 2, 3) + start, "word": "w", "by_head": numbered(count, 2, 4)}
        results.take(
            start, gaps, [("mine", numbered(count, 2, 3, 3) + start, extras), ("other", torch.ones(count, 2, 3, 3), {})]
        )
    return results


def test_layers_are_gathered_in_their_order() -> None:
    results = results_of()
    assert results.limits == [("parts", 0, 2.0), ("parts", 1, 3.0), ("parts", 2, 3.0)] + [
        ("weights", i, 0.0) for i in range(3)
    ]
    assert results.tolerance == {"tolerance": 3.0}
    assert Results({}, {}).tolerance == {}
    assert Results({}, {}, {"layer": [(0, torch.zeros(1), 9.0)]}).tolerance == {}
    assert Results({}, {}, {"stream": [(0, torch.zeros(1), 9.0)], "parts": [(0, torch.zeros(1), 1.0)]}).tolerance == {
        "tolerance": 9.0
    }
    gathered = results.gather(CPU)
    whole = torch.cat([numbered(1, 2, 3, 3), numbered(2, 2, 3, 3) + 1])
    assert torch.equal(gathered.scores["mine"], whole)
    assert gathered.totals.tolist() == [float(whole.sum()), 54.0]
    assert gathered.extras["mine"]["word"] == "w"
    assert gathered.extras["mine"]["ratio"].shape == (2, 3, 3)  # [batch layer query]
    assert gathered.extras["other"] == {}
    scores, extras = gathered.of_trace(ENTRY, 1, 2)
    assert torch.equal(scores, whole[:, 1, :2, :2])
    assert scores.is_contiguous()
    assert torch.equal(extras["ratio"], gathered.extras["mine"]["ratio"][1, :, :2])  # type: ignore[index]
    assert torch.equal(extras["by_head"], gathered.extras["mine"]["by_head"][1])  # type: ignore[arg-type]
    assert Results({}, {}).gather(CPU).totals.shape == (0,)


def test_gaps_are_read_and_the_worst_is_told() -> None:
    model: Any = SimpleNamespace(parts=[])
    results = results_of()
    gathered = results.gather(CPU)
    worst, sums = scored_tensors.read_gaps(results, gathered, model)
    assert (worst, sums) == ({"parts": 1.5}, gathered.totals.tolist())
    empty = Results({"mine": [torch.ones(1, 1, 2, 2)]}, {"mine": [{}]})
    assert scored_tensors.read_gaps(empty, empty.gather(CPU), model) == ({"parts": 0.0}, [4.0])
    descending = Results(
        {"mine": [torch.ones(1, 1, 2, 2)]}, {"mine": [{}]}, {"parts": [(0, torch.tensor([0.5, 0.25]), 1.0)]}
    )
    assert scored_tensors.read_gaps(descending, descending.gather(CPU), model)[0] == {"parts": 0.5}


def test_a_gap_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model: Any = SimpleNamespace(parts=[SimpleNamespace(layer="first"), SimpleNamespace(layer="last")])
    monkeypatch.setattr(scored_tensors, "linearity_hint", lambda layers: f" Hint for {layers[0]}.")
    monkeypatch.setattr(scored_tensors, "refusal", lambda *given: f"Told {given}.")

    def told(gap: float, layer: int, total: float = 1.0) -> str:
        results = Results(
            {"mine": [torch.full((1, 1, 1, 1), total)]}, {"mine": [{}]}, {"parts": [(layer, torch.tensor([gap]), 0.5)]}
        )
        with pytest.raises(MixlensError) as error:
            scored_tensors.read_gaps(results, results.gather(CPU), model)
        assert isinstance(error.value, NotFinite if math.isinf(total) else Unproven)
        return str(error.value)

    assert told(0.75, 0) == "Told ('parts', 0.75, 0.5, 0). Hint for first."
    assert told(0.75, 1) == "Told ('parts', 0.75, 0.5, 1). Hint for last."
    assert told(math.nan, 5) == "Told ('parts', inf, 0.5, 5). Hint for last."
    assert told(math.nan, 1, math.inf) == "a score of layer 1 is not finite (parts). No map is given."
    fitting = Results({"mine": [torch.ones(1, 1, 1, 1)]}, {"mine": [{}]}, {"parts": [(0, torch.tensor([0.5]), 0.5)]})
    assert scored_tensors.read_gaps(fitting, fitting.gather(CPU), model)[0] == {"parts": 0.5}


def test_scores_that_are_not_finite_are_refused_with_their_layer() -> None:
    scores = torch.zeros(3, 2, 2)
    scored_tensors.refuse_not_finite("mine", [Map(scores, ("a", "b"), "mine")])
    wrong = scores.clone()
    wrong[1, 0, 1] = math.inf
    with pytest.raises(NotFinite) as error:
        scored_tensors.refuse_not_finite("mine", [Map(scores, ("a", "b"), "mine"), Map(wrong, ("a", "b"), "mine")])
    assert str(error.value) == "method 'mine' gave a score that is not finite in layer 1. No map is given."


def block_of(gaps: dict[str, tuple[float, float]], index: int = 4) -> Any:
    identities = {name: (torch.tensor(value), allowed) for name, (value, allowed) in gaps.items()}
    return SimpleNamespace(identities=identities, x=torch.zeros(1), index=index, refusal=lambda *given: f"{given}")


def test_identities_of_layers() -> None:
    alone = scored_tensors.identities_of(None, [block_of({"parts": (0.5, 0.5)})])
    assert {name: (value.tolist(), allowed) for name, (value, allowed) in alone.items()} == {"parts": ([0.5], 0.5)}
    for gap in (0.75, math.nan):
        with pytest.raises(Unproven) as error:
            scored_tensors.identities_of(None, [block_of({"parts": (0.25, 0.5), "layer": (gap, 0.5)})])
        assert str(error.value) == str(("layer", 0.75 if gap == 0.75 else math.inf, 0.5, 4))
    several: Any = SimpleNamespace(
        identities={"parts": (torch.tensor([0.25, 4.0]), 1.0), "stream": (torch.zeros(2), 2.0)}
    )
    blocks = [
        block_of({"parts": (0.5, 3.0), "layer": (0.125, 7.0)}),
        block_of({"parts": (1.5, 3.0), "layer": (8.0, 9.0)}),
    ]
    both = scored_tensors.identities_of(several, blocks)
    assert {name: (value.tolist(), allowed) for name, (value, allowed) in both.items()} == {
        "parts": ([0.5, 4.0], 3.0),
        "stream": ([0.0, 0.0], 2.0),
        "layer": ([0.125, 8.0], 7.0),
    }
    single = scored_tensors.identities_of(None, blocks)
    assert {name: value.tolist() for name, (value, _) in single.items()} == {"parts": [0.5, 1.5], "layer": [0.125, 8.0]}
    assert scored_tensors.identities_of(several, []) == several.identities


def test_what_info_says_of_a_method() -> None:
    facts = scored_tensors.method_facts(
        ENTRY, {"variant": "two", "head": 1}, {"stream": 0.5, "parts": 0.25, "norm": 9.0}
    )
    assert facts == {
        **{"method": "mine", "paper": "a paper", "variant": "two", "options": {"head": 1}, "distribution": True},
        **{"signed": False, "convention": "alti", "rollout": None, "gap": 0.5},
        "gaps": {"stream": 0.5, "parts": 0.25, "norm": 9.0},
    }
    assert scored_tensors.method_facts(ENTRY, {}, {"layer": 0.5})["variant"] == "one"


def test_a_note_of_rounding() -> None:
    assert (
        scored_tensors.rounding_notes({})
        == scored_tensors.rounding_notes({"rounding_error": torch.tensor([0.01])})
        == []
    )
    assert scored_tensors.rounding_notes({"rounding_error": torch.tensor([0.001, 0.02])}) == [
        "rounding may move a score by 2e-02 of its row: float32 does not hold these distances. Load the model with "
        "dtype='float64'."
    ]


# --- calls ----------------------------------------------------------------------------------------------------------------


def call_of(
    name: Any = "alti", variant: Any = None, chunk: Any = None, precision: Any = "float32", **options: Any
) -> Any:
    return scoring.Call(name, variant, chunk, precision, options)


def test_a_call_and_its_arguments() -> None:
    both = call_of(["alti", "value_zeroing"], precision="tf32")
    assert (list(both.chosen), both.chunk, both.precision, both.query) == (
        ["alti", "value_zeroing"],
        None,
        "tf32",
        None,
    )
    call = call_of(["value_zeroing"], chunk=1, query="b")
    assert (list(call.chosen), call.chunk, call.precision, call.query) == (["value_zeroing"], 1, "float32", "b")
    assert call.arguments("value_zeroing", ("a", "b"))["query"] == 1
    assert call_of("value_zeroing").query is None
    assert call_of("value_zeroing").arguments("value_zeroing", ("a",))["query"] is None
    assert call_of("alti", "released").arguments("alti", ())["variant"] == "released"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": []}, "no method was asked for."),
        ({"name": 3}, "a method is a name, or a list of names, not 3."),
        ({"name": b"alti"}, "a method is a name, or a list of names, not b'alti'."),
        ({"chunk": 0}, "chunk is a number of elements, at least 1, not 0."),
        ({"chunk": 1.5}, "chunk is a number of elements, at least 1, not 1.5."),
        ({"chunk": True}, "chunk is a number of elements, at least 1, not True."),
    ],
)
def test_calls_that_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        call_of(**given)
    assert str(error.value) == message


def test_a_precision_that_is_none() -> None:
    for wrong in ("float", 32):
        with pytest.raises(InputError, match=f"^unknown precision {wrong!r}. "):
            call_of(precision=wrong)


def test_an_error_of_quantised_modules_is_told_by_name() -> None:
    whole: Any = SimpleNamespace(quantization=None, name="m")
    packed: Any = SimpleNamespace(quantization="4 bits", name="m")
    for model, error in (
        (whole, RuntimeError("x")),
        (packed, RuntimeError("out of memory")),
        (packed, ValueError("x")),
    ):
        with pytest.raises(type(error), match=str(error)), scoring.through_quantized(model, "hta"):
            raise error
    with pytest.raises(ModelError) as told, scoring.through_quantized(packed, "hta"):
        raise NotImplementedError("no\n  gradient " + 200 * "x")
    assert str(told.value) == (
        f"'hta' cannot be had of 'm', whose weights are quantised (4 bits): no gradient {148 * 'x'}. Load it without "
        "quantization, or use a map."
    )


def test_what_is_computed_again() -> None:
    """Once more with nothing kept where an identity fails; on a CPU scores that are not finite are refused at once."""
    forgotten: list[str] = []
    model: Any = SimpleNamespace(
        computing=scoring.setting,
        device=CPU,
        kept=SimpleNamespace(forget=lambda: forgotten.append("kept")),
        graphs=SimpleNamespace(clear=lambda: forgotten.append("graphs")),
    )
    errors: list[Exception] = []

    def compute() -> str:
        if errors:
            raise errors.pop(0)
        return f"computed, wide: {scoring.settings().wide}"

    assert (scoring.fresh(compute, model), forgotten) == ("computed, wide: False", [])
    errors[:] = [Unproven("first")]
    assert (scoring.fresh(compute, model), forgotten) == ("computed, wide: False", ["kept", "graphs"])
    errors[:] = [Unproven("first"), Unproven("second")]
    with pytest.raises(ModelError, match=r"^second$"):
        scoring.fresh(compute, model)
    errors[:] = [NotFinite("no number")]
    with pytest.raises(NotFinite, match=r"^no number$"):
        scoring.fresh(compute, model)
    model.device = torch.device("cuda")
    errors[:] = [NotFinite("no number")]
    assert scoring.fresh(compute, model) == "computed, wide: True"


def test_a_scorer_checks_the_shape_of_scores() -> None:
    model: Any = SimpleNamespace(device=CPU)

    def axes(size: int, stacked: bool, *shape: int, head: Any = None) -> tuple[int, ...]:
        call = call_of("attention", **({} if head is None else {"head": head}))
        scorer = scoring.Scorer(call, size, ("a", "b"), model)
        scores, extras = scorer.with_axes(
            "attention", numbered(*shape), {"ratio": numbered(*shape[:-1])}, 2, stacked=stacked
        )
        assert extras["ratio"].shape == scores.shape[:-1]  # type: ignore[union-attr]
        return tuple(scores.shape)

    assert axes(1, False, 2, 2) == (1, 1, 2, 2)
    assert axes(3, False, 3, 2, 2) == (1, 3, 2, 2)
    assert axes(1, True, 4, 2, 2) == (4, 1, 2, 2)
    assert axes(3, True, 4, 3, 2, 2) == (4, 3, 2, 2)
    assert axes(1, False, 5, 2, 2, head="all") == (1, 1, 5, 2, 2)
    for size, stacked, shape, head, told in (
        (1, False, (2, 3), None, r"returned shape \(1, 2, 3\) for a layer; it must be \(1, 2, 2\)"),
        (3, False, (2, 2, 2), None, r"returned shape \(2, 2, 2\) for a layer; it must be \(3, 2, 2\)"),
        (1, False, (5, 2, 2), None, r"returned shape \(1, 5, 2, 2\) for a layer; it must be \(1, 2, 2\)"),
        (1, False, (6, 5, 2, 2), "all", r"returned shape \(1, 6, 5, 2, 2\) for a layer"),
    ):
        with pytest.raises(MixlensError, match="^method 'attention' " + told):
            axes(size, stacked, *shape, head=head)


def test_memory_that_runs_out() -> None:
    model: Any = SimpleNamespace(device=CPU, kept=SimpleNamespace(blocks="some"))
    for chunk, smaller in ((None, "16,384"), (320, "20"), (5, "1")):
        scorer = scoring.Scorer(call_of("alti", chunk=chunk), 1, ("a",), model)
        scorer.scratch["x"] = torch.zeros(1)
        shared = SimpleNamespace(blocks={1: 2})
        scorer.blocks = shared
        with pytest.warns(
            UserWarning, match=f"^memory ran out in layer 3: scored again in pieces of {smaller} elements\\.$"
        ):
            assert scorer.with_less_memory(CPU, 3) == int(smaller.replace(",", ""))
        assert scorer.notes == [f"memory ran out in layer 3: scored again in pieces of {smaller} elements"]
        assert (scorer.scratch, scorer.blocks, model.kept.blocks, shared.blocks) == ({}, None, None, {})
        assert scorer.remarks({}) == {"notes": scorer.notes}
    assert scoring.Scorer(call_of("alti"), 1, ("a",), model).remarks({}) == {}


def test_where_the_time_went() -> None:
    trace: Any = SimpleNamespace(info={"forward_seconds": 0.5})
    scorer = scoring.Scorer(call_of("alti", precision="tf32"), 3, ("a",), SimpleNamespace(device=CPU))  # type: ignore[arg-type]
    scorer.seconds = {"proof": 1.0, "alti": 2.0}
    told = scorer.measured("alti", trace, CPU)
    assert told == {"loops": told["loops"], "seconds": {"forward": 0.5, "proof": 1.0, "map": 2.0, "batch": 3}}
    scorer.errors["alti"] = 0.125
    again = scorer.measured("alti", trace, CPU)
    assert again == {**told, "precision": "tf32", "precision_error": 0.125}
    assert scorer.key == (None, 3, False, (("alti", repr(scorer.options["alti"])),))


# --- methods and layers ---------------------------------------------------------------------------------------------------


def test_a_method_is_registered_with_what_is_said_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from mixlens.methods import _mixing

    registered: dict[str, Any] = {}

    def register(entry: Any) -> Any:
        return lambda function: registered.setdefault("entry", entry("scored", function))

    monkeypatch.setattr(_mixing.METHODS, "register", register)
    mixing(paper="p", rollout="alti")(scored)
    assert registered.pop("entry") == Method(
        "scored", scored, "p", ("paper",), "< 1", "alti", True, False, False, (), False, ()
    )
    every = {"variants": ["v"], "distribution": False, "cost": "9", "signed": True, "whole": True, "stacks": True}
    mixing(paper="p", rollout="globenc", per_head=["h"], extras=["e"], **every)(scored)  # type: ignore[arg-type]
    assert registered["entry"] == Method(
        "scored", scored, "p", ("v",), "9", "globenc", False, True, True, ("h",), True, ("e",)
    )


def test_methods_that_are_none() -> None:
    def told(given: Any) -> str:
        with pytest.raises(InputError) as error:
            method(given)
        return str(error.value)

    assert told(3) == "a method is a name, not 3."
    assert told("attcat") == (
        "'attcat' explains a prediction, it makes no map: use mixlens.attribute(trace, 'attcat', target=...), or on the command "
        "line mixlens explain --method attcat."
    )
    assert told("altti").startswith("unknown method 'altti'. ")
    refuse_all_heads("attention", {"head": 0})
    refuse_all_heads("attention", {})
    with pytest.raises(
        InputError, match=r"^'attention' with all heads gives a map for each head, and here it takes one"
    ):
        refuse_all_heads("attention", {"head": "all"})


def layer_of(batch: int) -> LayerTrace:
    tensors = {
        name: numbered(batch, 4, 3) + i for i, name in enumerate(("input", "attention_output", "mlp_output", "output"))
    }
    heads = {name: numbered(batch, 2, 4, 3) + i for i, name in enumerate(("query", "key", "value"))}
    return LayerTrace(parts=None, mask=numbered(1, 1, 4, 4), scaling=0.5, softcap=2.0, **tensors, **heads)  # type: ignore[arg-type]


def test_the_layers_of_one_example() -> None:
    batch = [layer_of(2), layer_of(2), layer_of(2)]
    layers = LayersOf(batch, 1, 3)
    assert len(layers) == 3
    one = layers[1]
    assert layers[1] is one is layers[-2]
    assert layers[1:] == (layers[1], layers[2])
    assert layers[::-2] == (layers[2], layers[0])
    with pytest.raises(IndexError):
        layers[3]
    assert set(tensors_of(one)) == {
        *("input", "attention_output", "mlp_output", "output", "query", "key", "value", "mask")
    }
    for name, whole in tensors_of(batch[1]).items():
        expected = whole[0][..., :3, :3] if name == "mask" else whole[1][..., :3, :]
        assert torch.equal(getattr(one, name), expected), name
    assert (one.scaling, one.softcap, one.middle, one.weights) == (0.5, 2.0, None, None)
    single = without_batch(layer_of(1))
    assert torch.equal(single.input, layer_of(1).input[0])
    assert torch.equal(single.mask, layer_of(1).mask[0])  # type: ignore[arg-type, index]
    assert without_batch(single) is single


def test_extras_of_another_number_type_stay_what_they_are() -> None:
    extras: Any = {"mine": {"count": torch.tensor([3]), "word": "w", "ratio": torch.tensor([0.5])}}
    assert scored_tensors.read_numbers(torch.tensor([1.0]), torch.tensor([2.0, 4.0]), extras) == [1.0, 2.0, 4.0]
    assert extras == {"mine": {"count": torch.tensor([3]), "word": "w", "ratio": torch.tensor([0.5])}}


def test_gathered_scores_are_of_one_device() -> None:
    gathered = Gathered(CPU, {"mine": numbered(1, 1, 2, 2)}, torch.tensor([6.0]), {"mine": {}})
    assert gathered.of_trace(ENTRY, 0, 2)[0].tolist() == [[[0.0, 1.0], [2.0, 3.0]]]
