"""What a command names in words, and the registry that refuses it: texts, methods, targets, places and heads, each
with its whole value or its whole message. Models and traces are made of names alone."""

from __future__ import annotations

import io
import sys
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import mixlens
from mixlens.base import errors, registry
from mixlens.scoring import asking, command_words


def refused(call: Any, *given: Any, **options: Any) -> str:
    with pytest.raises(errors.InputError) as error:
        call(*given, **options)
    return str(error.value)


# --- a text -----------------------------------------------------------------------------------------------------------


def test_a_text_is_given_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "text.txt"
    file.write_bytes("\ufeffzwei\nZeilen \r\n\n".encode())
    assert command_words.text_of("a text \n", None) == "a text \n"
    assert command_words.text_of(None, file) == "zwei\nZeilen "
    monkeypatch.setattr(sys, "stdin", io.StringIO("\ufefffrom elsewhere\r\n"))
    assert command_words.text_of("-", None) == "from elsewhere"
    told = "give one text: in quotes, - to read it from standard input, or --file FILE."
    assert refused(command_words.text_of, None, None) == refused(command_words.text_of, "a", file) == told


def test_a_text_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "text.txt"
    assert (
        refused(command_words.text_of, None, file)
        == f"--file: {str(file)!r} cannot be read: No such file or directory."
    )
    file.write_bytes(b"\xff\xfe\xfa")
    assert refused(command_words.text_of, None, file) == f"--file: {str(file)!r} is not text in UTF-8."
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xff"), encoding="utf-8"))
    assert refused(command_words.text_of, "-", None) == "standard input is not text in utf-8."


# --- methods ----------------------------------------------------------------------------------------------------------


def test_methods_as_written() -> None:
    assert command_words.method_of(" alti ") == asking.MethodRequest("alti", None, None, {})
    assert asking.parse_method("alti:variant=released:rollout=globenc") == asking.MethodRequest(
        "alti", "released", "globenc", {}
    )
    assert asking.parse_method("integrated_gradients:steps=3") == asking.MethodRequest(
        "integrated_gradients", None, None, {"steps": 3}
    )
    given = asking.MethodRequest("nothing", "at", "all", {"is": "checked"})
    assert asking.parse_method(given) is given
    assert command_words.method_of("alti", "released") == asking.MethodRequest("alti", "released", None, {})
    assert command_words.method_of("alti:variant=released", "released") == asking.MethodRequest(
        "alti", "released", None, {}
    )
    assert command_words.methods_of(" alti , ,value_zeroing:variant=paper,") == {
        "alti": asking.MethodRequest("alti"),
        "value_zeroing:variant=paper": asking.MethodRequest("value_zeroing", "paper"),
    }
    assert command_words.methods_of("alti", "released") == {"alti": asking.MethodRequest("alti", "released")}
    assert asking.parse_methods(["alti", "random"]) == {
        "alti": asking.MethodRequest("alti"),
        "random": asking.MethodRequest("random"),
    }


def test_methods_that_are_refused() -> None:
    assert refused(command_words.method_of, "alti:variant=paper", "released") == (
        "--variant released and 'alti:variant=paper' name two variants. Leave one out."
    )
    assert refused(command_words.method_of, "alti", "mine").startswith("'alti' has no variant 'mine'. ")
    assert refused(command_words.methods_of, " , ") == "no method was asked for. Give names with commas between them."
    assert refused(asking.parse_method, "altti").startswith("unknown method 'altti'. ")
    assert "alti" in refused(asking.parse_method, "altti")
    assert refused(asking.parse_method, "alti:steps") == (
        "'alti:steps': an option is written key=value, such as alti:variant=paper."
    )
    assert refused(asking.parse_method, "alti:rollout=mine").startswith("unknown rollout convention 'mine'. ")
    assert refused(asking.parse_method, "attcat:rollout=alti").startswith("'attcat' has no option 'rollout'. ")
    assert refused(asking.parse_method, "attention:head=all").startswith(
        "'attention' with all heads gives a map for each head"
    )


def test_values_of_options() -> None:
    given = ("3", "-0.5", "true", "null", '"x"', "x", "[1]", "1e", "")
    assert list(map(asking.json_or_text, given)) == [3, -0.5, True, None, "x", "x", [1], "1e", ""]


def test_what_a_request_says_of_its_method() -> None:
    told = {name: asking.MethodRequest(name) for name in ("alti", "attcat", "blank_out", "random")}
    assert {name: (one.is_map, one.class_specific, one.has_layers) for name, one in told.items()} == {
        "alti": (True, False, True),
        "attcat": (False, True, True),
        "blank_out": (False, True, False),
        "random": (True, False, True),
    }
    assert asking.MethodRequest("a", "v", None, {"b": 1, "a": None}).call_key == '["v", {"a": null, "b": 1}]'
    assert asking.MethodRequest("a", None, None, {"p": Path("x")}).call_key == '[null, {"p": "x"}]'


def test_random_scores_have_a_seed_of_their_text() -> None:
    trace: Any = SimpleNamespace(tokens=("a", "b"))
    assert asking.MethodRequest("random").options_for(trace) == {"seed": zlib.crc32(b"a b")}
    assert asking.MethodRequest("random", options={"seed": 4}).options_for(trace) == {"seed": 4}
    options = {"x": 1}
    copied = asking.MethodRequest("alti", options=options).options_for(trace)
    assert copied == options
    assert copied is not options


def test_methods_that_one_call_answers() -> None:
    written = ["alti", "attention", "attcat", "random", "alti:variant=released", "value_zeroing", "attention:head=1"]
    assert asking.grouped(asking.parse_methods(written)) == [
        ["alti", "attention", "value_zeroing"],
        ["alti:variant=released"],
        ["attention:head=1"],
    ]
    assert asking.grouped({}) == []


# --- targets and places -----------------------------------------------------------------------------------------------


def test_a_target_needs_a_method_that_explains_one() -> None:
    classes = command_words.class_methods()
    assert "attcat" in classes
    assert "random" not in command_words.class_methods()
    position, word = asking.MethodRequest("alti"), asking.MethodRequest("attcat")
    command_words.refuse_target({"alti": position}, {"target": None, "foil": None})
    command_words.refuse_target({"alti": position, "attcat": word}, {"target": "x", "foil": None})
    assert refused(command_words.refuse_target, {"alti": position}, {"target": None, "foil": "x"}) == (
        "'alti' explains a position, whatever the class or word: leave --target and --foil out, or take a method "
        "that explains a "
        f"class or word: {classes}."
    )
    both = {"alti": position, "attention": asking.MethodRequest("attention")}
    assert refused(command_words.refuse_target, both, {"target": "x", "foil": None, "score": None}) == (
        "'alti', 'attention' explain a position, whatever the class or word: leave --target, --foil and --score out, "
        "or take a "
        f"method that explains a class or word: {classes}."
    )


def lens_of(task: str, tokenizer: Any = "a tokenizer") -> Any:
    return SimpleNamespace(task=task, tokenizer=tokenizer)


def test_targets_as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    from mixlens.model import vocabulary

    def token_id(lens: Any, word: str) -> int:
        if word == "7":
            return 1007
        raise errors.InputError("no token")

    monkeypatch.setattr(vocabulary, "token_id", token_id)
    of = command_words.target_of
    assert of(lens_of("causal-lm"), None) == "predicted"
    assert [of(lens_of(task), "7") for task in ("causal-lm", "masked-lm", "sequence-classification")] == [1007, 1007, 7]
    assert of(lens_of("causal-lm"), "8") == 8
    assert of(lens_of("causal-lm", None), "7") == 7
    assert of(lens_of("causal-lm"), "good") == "good"
    assert of(lens_of("question-answering"), "3, 5") == (3, 5)
    assert of(lens_of("question-answering"), "3") == 3
    assert [of(lens_of("question-answering"), given) for given in ("3,x", "x,3", ",3", "3,")] == [
        "3,x",
        "x,3",
        ",3",
        "3,",
    ]
    assert of(lens_of("causal-lm"), "3,5") == "3,5"
    assert refused(of, lens_of("causal-lm"), "gold") == (
        "--target gold takes each row's own label, in `mixlens run`. Here, name the class or the word."
    )
    lens = lens_of("sequence-classification")
    assert command_words.targets_of(lens, None, None, None) == {"target": "predicted", "foil": None, "score": None}
    assert command_words.targets_of(lens, "a", "2", "logit") == {"target": "a", "foil": 2, "score": "logit"}


def test_places_as_written() -> None:
    trace: Any = SimpleNamespace(tokens=("a", "b", "2", "a"))
    place = command_words.place_of
    assert [place(trace, query) for query in (None, "b", "2", "1", "-1")] == [None, 1, 2, 1, 3]
    assert "occurs" in refused(place, trace, "a")
    assert refused(place, trace, "c").startswith("no token is 'c'") or "'c'" in refused(place, trace, "c")
    assert "out of range" in refused(place, trace, "9")


def test_the_place_that_is_meant() -> None:
    trace: Any = SimpleNamespace(tokens=("a", "b", "a"), model=SimpleNamespace(task="classification"))
    meant = command_words.place_meant
    assert [
        meant(trace, *given, "alti") for given in ((None, None), ("b", None), ("b", "zz"), (None, "b"), (None, "-3"))
    ] == [*(None, 1, 1, 1, 0)]
    assert "occurs" in refused(meant, trace, None, "a", "alti")
    assert "out of range" in refused(meant, trace, None, "7", "alti")
    assert refused(meant, trace, None, "zz", "alti") == (
        "'alti' explains a position, and no token of the text is 'zz'. For a class or a word take a method that "
        "explains one "
        f"(--method): {command_words.class_methods()}. `mixlens why` picks one by itself."
    )


def test_heads_as_written() -> None:
    request = asking.MethodRequest("attention", None, None, {})
    assert command_words.head_of(request, None) is request
    assert command_words.head_of(request, "1") == asking.MethodRequest("attention", None, None, {"head": 0})
    assert command_words.head_of(request, "12").options == {"head": 11}
    assert command_words.head_of(request, "all").options == {"head": "all"}
    for wrong in ("0", "-1", "x", "1.5", ""):
        assert (
            refused(command_words.head_of, request, wrong)
            == f"--head is a number, counted from 1, or all, not {wrong!r}."
        )
    assert refused(command_words.head_of, asking.MethodRequest("attcat"), "1").startswith(
        "'attcat' explains a prediction, it makes no"
    )
    assert refused(command_words.head_of, asking.MethodRequest("alti"), "1").startswith("'alti' has no option 'head'")


def test_a_head_that_no_layer_has() -> None:
    def trace_of(**layer: Any) -> Any:
        return SimpleNamespace(layers=[SimpleNamespace(**layer)], model=SimpleNamespace(name="tiny"))

    shaped = SimpleNamespace(shape=(4, 7, 8))
    for trace in (trace_of(query=shaped, weights=None), trace_of(query=None, weights=shaped)):
        for head in (None, 0, 3, "all"):
            command_words.refuse_head(
                trace, asking.MethodRequest("attention", options={} if head is None else {"head": head})
            )
        told = refused(command_words.refuse_head, trace, asking.MethodRequest("attention", options={"head": 4}))
        assert told == "head 5 does not exist: 'tiny' has heads 1 to 4 in a layer, or all."


# --- the registry -----------------------------------------------------------------------------------------------------


def scored(
    block: Any, *, variant: str = "one", count: int = 3, share: float | None = None, query: int | None = None
) -> None:
    """The first line.

    Others.
    """


def bare(block: Any, flag: bool = False, name: str = "x", other: dict[str, int] | None = None) -> None: ...


ENTRY = registry.Registered("mine", scored, "a paper", ("one", "two"), "1")
BARE = registry.Registered("bare", bare, "a paper", ("paper",), "1")


def test_an_entry_and_its_options() -> None:
    assert (ENTRY.summary, BARE.summary, ENTRY.module) == ("The first line.", "", __name__)
    assert ENTRY.options == {"count": 3, "share": None, "query": None}
    assert ENTRY.arguments(None, {}) == {"count": 3, "share": None, "query": None, "variant": "one"}
    assert ENTRY.arguments("two", {"count": 0, "query": "word"}) == {
        **{"count": 0, "share": None, "query": "word", "variant": "two"}
    }
    assert ENTRY.arguments(None, {"share": 1})["share"] == 1
    assert BARE.arguments(None, {"flag": True, "other": "anything"}) == {"flag": True, "name": "x", "other": "anything"}
    limits = {"count": 2**32 - 1}, {"count": -(2**31)}, {"query": 2**40}
    assert [ENTRY.arguments(None, one)[next(iter(one))] for one in limits] == [2**32 - 1, -(2**31), 2**40]


@pytest.mark.parametrize(
    ("entry", "options", "message"),
    [
        (ENTRY, {"count": 2**32}, "'count' of 'mine' cannot be 4294967296: no option takes a number of that size."),
        (
            ENTRY,
            {"count": -(2**31) - 1},
            "'count' of 'mine' cannot be -2147483649: no option takes a number of that size.",
        ),
        (ENTRY, {"count": 1.5}, "'count' of 'mine' is of type int, not float."),
        (ENTRY, {"count": True}, "'count' of 'mine' is of type int, not bool."),
        (ENTRY, {"count": None}, "'count' of 'mine' is of type int, not NoneType."),
        (ENTRY, {"share": "a"}, "'share' of 'mine' is of type float | None, not str."),
        (BARE, {"flag": 1}, "'flag' of 'bare' is of type bool, not int."),
        (BARE, {"name": 1}, "'name' of 'bare' is of type str, not int."),
    ],
)
def test_options_that_are_refused(entry: Any, options: dict[str, Any], message: str) -> None:
    assert refused(entry.arguments, None, options) == message


def test_names_that_are_refused() -> None:
    assert refused(ENTRY.arguments, None, {"counts": 1}).startswith("'mine' has no option 'counts'. ")
    assert "count" in refused(ENTRY.arguments, None, {"counts": 1}).partition(". ")[2]
    assert "variant" in refused(ENTRY.arguments, None, {"varian": 1}).partition(". ")[2]
    for wrong in ("twoo", 3):
        assert refused(ENTRY.arguments, wrong, {}).startswith(f"'mine' has no variant {wrong!r}. ")


def test_a_registry_of_its_own() -> None:
    made = registry.Registry[Any]("thing", folders=("mixlens.metrics",), group="mixlens.none")
    entry = made.register(lambda name, function: registry.Registered(name, function, "p", ("v",), "1"))
    assert entry(scored) is scored
    made.register(lambda name, function: registry.Registered(name, function, "p", ("v",), "1"), name="other")(scored)
    assert list(made) == ["scored", "other"]
    foreign = registry.Registered("scored", dict, "p", ("v",), "1")
    with pytest.raises(mixlens.MixlensError) as error:
        made.add("scored", foreign)
    assert str(error.value) == f"two things are called 'scored': in {__name__} and builtins."
    made.add("scored", ENTRY)  # of the same module
    assert made["scored"] is ENTRY
    made._is_loaded = True
    assert made.find("scored") is ENTRY
    assert refused(made.find, "scorred").startswith("unknown thing 'scorred'. ")
    assert refused(made.find, 3).startswith("unknown thing 3. ")


def test_entries_are_in_the_order_of_their_files() -> None:
    made = registry.Registry[Any]("thing", folders=("mixlens.metrics",), group="mixlens.none")
    for name, module in (
        ("x", "elsewhere"),
        ("s", "mixlens.metrics.subsets"),
        ("a", "mixlens.metrics.agreement"),
        ("y", "z"),
    ):
        made.add(name, SimpleNamespace(module=module))
    assert list(made.known()) == ["a", "s", "x", "y"]
    made.add("late", SimpleNamespace(module="mixlens.metrics.agreement"))
    assert list(made.known()) == ["a", "s", "x", "y", "late"]  # loaded once
