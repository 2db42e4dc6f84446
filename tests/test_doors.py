"""Whatever a public function is given in the place of what it takes, it gives a result or one line: never an error
from deep inside. Every public function, and every public method of a model and of a result, is asked with the wrong
kinds in each place."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from conftest import loaded

import mixlens
from mixlens.base import doors, errors
from mixlens.show import flow_page, report

pytestmark = pytest.mark.filterwarnings("ignore")
TEXT = "a dull film, but the cast is wonderful."


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is written by its bare name lies apart."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("kinds"))
        yield


class Made(NamedTuple):
    """What the calls below are made of."""

    lens: Any
    writer: Any
    trace: Any
    written: Any
    scores: Any
    rolled: Any
    row: Any


@pytest.fixture(scope="module")
def made() -> Made:
    lens, writer = mixlens.load("sentiment"), loaded("gpt2", head="AutoModelForCausalLM")
    trace = lens.trace(TEXT)
    scores = mixlens.mix(trace, "norm")
    rolled = scores.rollout()
    return Made(lens, writer, trace, writer.trace(input_ids=[5, 6, 7, 8]), scores, rolled, rolled.readout(0))


class Call(NamedTuple):
    function: Any
    args: tuple[Any, ...]
    options: Mapping[str, Any]


def call(function: Any, *args: Any, **options: Any) -> Call:
    return Call(function, args, options)


ONE = {"methods": "grad_x_input"}
# Name: a call that works, with a value for every argument that is tried.
FUNCTIONS: dict[str, Callable[[Made], Call]] = {
    "mix": lambda m: call(mixlens.mix, m.trace, "norm", variant="paper", chunk=2),
    "attribute": lambda m: call(
        mixlens.attribute,
        m.trace,
        "grad_x_input",
        target="positive",
        foil=None,
        score=None,
        query=None,
        layer=None,
        variant=None,
    ),
    "rollout": lambda m: call(mixlens.rollout, m.scores, None, residual=None, normalize=None),
    "flow": lambda m: call(mixlens.flow, m.scores, None, query=0, layer=-1, residual=None, normalize=None),
    "readout": lambda m: call(mixlens.readout, m.rolled, 0, layer=-1, keep_special=True),
    "identifiability": lambda m: call(mixlens.identifiability, m.trace, head=None),
    "alternative_attention": lambda m: call(mixlens.alternative_attention, m.trace, layer=0, head=0, seed=0),
    "load": lambda m: call(mixlens.load, "sentiment", task=None, device=None, dtype=None, revision=None, family=None),
    "load_result": lambda m: call(mixlens.load_result, "there-is-none.json"),
    "why": lambda m: call(
        *(mixlens.why, m.lens, "a film"),
        target=None,
        foil=None,
        pair=None,
        method="grad_x_input",
        methods=None,
        draws=1,
        seed=0,
    ),
    "mean": lambda m: call(mixlens.mean, [m.row, m.row], by="token", confidence=0.9, seed=0),
    "attribution_from": lambda m: call(
        mixlens.attribution_from,
        m.trace,
        [0.1] * len(m.trace),
        name="mine",
        signed=True,
        target="positive",
        output=None,
    ),
    "report": lambda m: call(
        mixlens.report,
        m.lens,
        "page.html",
        texts=["a film"],
        methods="norm",
        query=None,
        title=None,
        preset=None,
        force=True,
    ),
    "plot": lambda m: call(
        mixlens.plot,
        m.row,
        kind=None,
        layer=None,
        query=None,
        width=None,
        title=None,
        labels=None,
        numbers=None,
        vmax=None,
    ),
    "judge": lambda m: call(
        mixlens.judge, m.lens, ["a film"], **ONE, metrics="aopc", n=1, out=None, seed=0, leave_out=False, progress=False
    ),
    "run": lambda m: call(
        mixlens.run, ["a film"], model=m.lens, **ONE, out="run", limit=1, maps=False, shard_rows=5, progress=False
    ),
    "summarize": lambda m: call(mixlens.summarize, "there-is-none", top=3, classes=2),
    "chat_text": lambda m: call(mixlens.chat_text, m.lens, [{"role": "user", "content": "a film"}]),
    "families": lambda m: call(mixlens.families),
    "methods": lambda m: call(mixlens.methods),
}
# Decorators: what they are given is code.
CODE = {"attribution", "mixing"}
METHODS: dict[str, Callable[[Made], Call]] = {
    "encode": lambda m: call(m.lens.encode, "a film"),
    "encode_ids": lambda m: call(m.lens.encode_ids, [2, 3], None, None),
    "encode_all": lambda m: call(m.lens.encode_all, ["a film"], None, None, None),
    "batches": lambda m: call(lambda *args: list(m.lens.batches(*args)), [m.trace], None, None),
    "inputs": lambda m: call(m.lens.inputs, [m.lens.encode("a film")]),
    "tokens": lambda m: call(m.lens.tokens, [2, 3]),
    "rerun": lambda m: call(m.lens.rerun, m.trace, 0, m.trace.layers[0].input),
    "trace": lambda m: call(
        m.lens.trace, "a film", input_ids=None, token_type_ids=None, attention_mask=None, batch_size=None
    ),
    "outputs": lambda m: call(m.lens.outputs, [m.trace], compare=True),
    "logits": lambda m: call(m.lens.logits, m.trace),
    "generate": lambda m: call(m.writer.generate, m.written, 2),
    "mix": lambda m: call(m.lens.mix, "a film", "norm", input_ids=None, batch_size=None),
    "explain": lambda m: call(
        m.lens.explain,
        "a film",
        method="norm",
        query=None,
        target="predicted",
        foil=None,
        variant=None,
        keep_special=True,
    ),
    "why": lambda m: call(m.lens.why, "a film", None, None, draws=1),
    "check": lambda m: call(m.lens.check),
    "run_with_attention": lambda m: call(m.lens.run_with_attention, m.trace, 0, abs),
    "local_graphs": lambda m: call(m.lens.local_graphs, m.trace),
    "embedded": lambda m: call(m.lens.embedded, m.trace, factor=1.0),
    "changed_logits": lambda m: call(m.lens.changed_logits, m.lens.encode("a film"), [1]),
    "refuse_layer": lambda m: call(m.lens.refuse_layer, 0),
}
# Of a model: the machinery of a pass, which takes functions and its own tensors.
MACHINERY = {"run_traced", "run_replayed", "run_attached", "run_from", "computing"}
RESULTS: dict[str, Callable[[Made], Call]] = {
    "prediction": lambda m: call(m.trace.prediction, 3),
    "rollout": lambda m: call(m.scores.rollout, None, residual=None, normalize=None),
    "flow": lambda m: call(m.scores.flow, None, residual=None, normalize=None),
    "readout": lambda m: call(m.rolled.readout, 0, layer=-1, keep_special=True),
    "report": lambda m: call(m.scores.report, "flow.html"),
    "save": lambda m: call(m.row.save, "row.json", force=True),
    "to_json": lambda m: call(m.row.to_json, None, force=True),
    "to_csv": lambda m: call(m.row.to_csv, None, force=True),
    "to_latex": lambda m: call(lambda given: m.row.to_latex(standalone=given), True),
    "normalize": lambda m: call(m.row.normalize, "share"),
    "top": lambda m: call(m.row.top, 3),
    "plus": lambda m: call(lambda other: m.row + other, m.row),
    "times": lambda m: call(lambda factor: m.row * factor, 2),
    "part": lambda m: call(lambda index: m.row[index], 0),
}
CALLS = {
    **FUNCTIONS,
    **{f"model.{name}": one for name, one in METHODS.items()},
    **{f"result.{name}": one for name, one in RESULTS.items()},
}
CLASSES = {name for name in mixlens.__all__ if isinstance(getattr(mixlens, name), type)}


def wrong_kinds(made: Made) -> dict[str, Any]:
    return {
        "a text": "text",
        "an empty text": "",
        "None": None,
        "a number": 7,
        "a negative number": -1,
        "not a number": float("nan"),
        "True": True,
        "a list": ["a", 3],
        "an empty list": [],
        "a dict": {"a": 1},
        "bytes": b"a",
        "a set": {1},
        "a tensor": torch.ones(3),
        "another model's trace": mixlens.load("agreement").trace("The keys to the cabinet [MASK] rusty."),
        "traces of two models": [made.trace, made.written],
        "a map": made.scores,
        "an attribution": made.row,
        "an example": mixlens.Example(3),
        "a chat": mixlens.Chat(()),
        "a model": made.writer,
        "an object": object(),
    }


def tried(one: Call, value: Any) -> Iterator[tuple[str, Call]]:
    """The call with this value in the place of each of its arguments."""
    for place in range(len(one.args)):
        yield f"argument {place}", Call(one.function, (*one.args[:place], value, *one.args[place + 1 :]), one.options)
    for name in one.options:
        yield f"{name}=", Call(one.function, one.args, {**one.options, name: value})


def raised(one: Call) -> Exception | None:
    try:
        one.function(*one.args, **one.options)
    except Exception as error:
        return error
    return None


def test_every_public_function_and_method_is_asked() -> None:
    public = {name for name in mixlens.__all__ if callable(getattr(mixlens, name))} - CLASSES
    assert public == set(FUNCTIONS) | CODE
    methods = {
        name for name, one in vars(mixlens.Model).items() if inspect.isfunction(one) and not name.startswith("_")
    }
    assert methods == set(METHODS) | MACHINERY


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_kind_gives_a_result_or_one_line(made: Made, name: str) -> None:
    asked, refused = CALLS[name](made), 0
    for kind, value in wrong_kinds(made).items():
        for place, one in tried(asked, value):
            error = raised(one)
            refused += error is not None
            said = f"{place}, {kind}: {type(error).__name__}: {error}"
            assert error is None or isinstance(error, mixlens.MixlensError), said
            assert "\n" not in str(error), said
    assert refused or not (asked.args or asked.options)


ASKED_WITH_A_TRACE: dict[str, Callable[[Any, Any], Any]] = {
    "logits": lambda model, trace: model.logits(trace),
    "rerun": lambda model, trace: model.rerun(trace, 0, trace.layers[0].input),
    "outputs": lambda model, trace: model.outputs([trace]),
    "inputs": lambda model, trace: model.inputs([trace]),
    "batches": lambda model, trace: model.batches([trace], None),
    "generate": lambda model, trace: model.generate(trace, 2),
    "run_with_attention": lambda model, trace: model.run_with_attention(trace, 0, abs),
    "local_graphs": lambda model, trace: model.local_graphs(trace),
    "embedded": lambda model, trace: model.embedded(trace, factor=1.0),
    "explain": lambda model, trace: model.explain(trace, method="norm"),
    "why": lambda model, trace: model.why(trace),
    "gather": lambda model, trace: report.gather(model, trace, ["norm"]),
    "flow_results": flow_page.flow_results,
}


@pytest.mark.parametrize("name", ASKED_WITH_A_TRACE)
def test_the_trace_of_another_model_is_refused_though_its_ids_could_be_read(made: Made, name: str) -> None:
    with pytest.raises(errors.InputError, match=r"this trace is of 'GPT2LMHeadModel', not of 'sentiment'\."):
        ASKED_WITH_A_TRACE[name](made.lens, made.written)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (lambda m: m.lens.logits("text"), "trace= takes Trace, not str 'text'. model.trace(text) gives one."),
        (lambda m: m.lens.tokens("text"), "ids= takes Sequence[int], not str 'text'."),
        (lambda m: m.lens.tokens([1, 2.5]), "ids= takes Sequence[int], not list '[1, 2.5]'."),
        (lambda m: m.lens.tokens([-1]), "id -1 is not in the vocabulary of 'sentiment'."),
        (lambda m: m.lens.outputs([]), "there is nothing to run: no text was given."),
        (lambda m: m.trace.prediction(0), "k= is how many are named, at least 1, not 0."),
        (lambda m: mixlens.mean([m.row], seed=-1), "seed is a number, 0 or more, not -1."),
        (
            lambda m: mixlens.why("sentiment", TEXT),
            "model= takes Model, not str 'sentiment'. mixlens.load(name) gives one.",
        ),
        (
            lambda m: m.writer.generate("text", 5),
            "start= takes Encoded | Trace, not str 'text'. model.encode(text) gives one.",
        ),
        (lambda m: m.row.top("all"), "k= takes int, not str 'all'."),
    ],
)
def test_what_a_refusal_says(made: Made, asked: Any, says: str) -> None:
    with pytest.raises(errors.InputError) as error:
        asked(made)
    assert str(error.value) == says


@doors.door
def failing(count: int, share: float, *, ids: Sequence[int] = (), whether: bool = True, error: Any) -> int:
    raise error


def test_only_a_wrong_kind_is_said_to_be_one_and_only_where_the_function_fails() -> None:
    """Numbers of numpy and torch are numbers. The machine's failures and refusals stay what they are."""
    ask: Any = failing
    inside = KeyError("inside")
    right = [
        (np.int64(3), np.float32(0.5), np.array([1, 2]), np.bool_(True)),
        (torch.tensor(3), 1, torch.tensor([1]), True),
    ]
    for count, share, ids, whether in right:
        with pytest.raises(KeyError, match="inside"):
            ask(count, share, ids=ids, whether=whether, error=inside)
    wrong: list[tuple[Any, Any, Any]] = [
        (True, 1, ()),
        (3.0, 1, ()),
        (3, "1", ()),
        (3, 1, torch.tensor(1)),
        (3, 1, "12"),
    ]
    for count, share, ids in wrong:
        with pytest.raises(errors.InputError, match=r"^(count|share|ids)= takes") as refused:
            ask(count, share, ids=ids, error=inside)
        assert refused.value.__cause__ is inside
    for error in (
        errors.InputError("its own words"),
        torch.OutOfMemoryError("full"),
        OSError("no disk"),
        MemoryError(),
    ):
        with pytest.raises(type(error)):
            ask("3", 1, error=error)
