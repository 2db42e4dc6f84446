"""The freeze: every number, name, option, file and printed line that a user may rest on is what `frozen.json` says.

Only the public face is used, so this holds while the files behind it move. What is meant to change is stored anew by
`python -m tests.house.frozen --again NAME`, and shows in the diff of `frozen.json`.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import freezing
import freezing_commands as commands
import frozen
import pytest

import mixlens

# Processors round otherwise (width of their vectors, fused multiplication), and so does another order of the same sums:
# a few
# units of 2.2e-16 each. Weights moved by 1e-15 of themselves move the fingerprints by less than 1.1e-13, so 1e-12 is
# what the
# same equations keep anywhere. The methods below amplify: their tolerance is ten times and more what was measured so,
# and what
# a processor without AVX makes of them (partial_lrp: 2.8e-11).
TOLERANCE = 1e-12
AMPLIFIED = {  # (label begins with, configuration or "" for all): tolerance;                          measured at 1e-15
    ("value_zeroing:variant=released", ""): 1e-11,  # 1 - cosine, a difference of two numbers near 1:  9.3e-13
    ("attribute partial_lrp", ""): 5e-10,  # relevance divided by sums that nearly cancel:             1.6e-13
    ("attribute transatt", ""): 5e-10,  # the same, twice:                                             8.0e-13
    ("attribute deeplift", ""): 5e-12,  # differences of two runs divided by each other:               1.0e-13
    ("attribute grad_x_input:variant=released", "modernbert"): 1e-9,  # a sum over features that cancels: 1.9e-11
}
STORED = frozen.read()


def tolerance(label: str, case: str) -> float:
    return max(
        [
            TOLERANCE,
            *(loose for (head, one), loose in AMPLIFIED.items() if label.startswith(head) and one in ("", case)),
        ]
    )


def differences(here: Any, there: Any, path: str = "") -> list[str]:
    """Where two nested values of JSON differ, one line each."""
    if isinstance(here, dict) and isinstance(there, dict):
        return [
            line
            for key in sorted({*here, *there})
            for line in differences(here.get(key), there.get(key), f"{path} > {key}")
        ]
    if isinstance(here, list) and isinstance(there, list) and here != there:
        return [f"{path}: new {[x for x in here if x not in there]}, gone {[x for x in there if x not in here]}"]
    return [] if here == there else [f"{path}: {here!r}, stored {there!r}"]


@cache
def model_of(case: str) -> Any:
    return freezing.loaded(case, freezing.head_of(case))


# --- numbers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", freezing.CASES)
def test_numbers(case: str) -> None:
    """Alone against the stored fingerprints; on one configuration of each kind also in a batch and streamed against
    alone, as
    `test_in_float32_every_path_gives_the_paper` has it on all of them."""
    assert case in STORED["scores"], f"no numbers of {case!r} are stored. Add them: {frozen.TELLS}"
    model = model_of(case)
    answers = frozen.answers_of(model, case)
    wrong = stored_apart(case, answers)
    if case in freezing.FULLY_BATCHED:
        wrong += batched_apart(model, case, answers) + streamed_apart(model, case, answers)
    model_of.cache_clear()
    assert not wrong, "\n".join(wrong)


def stored_apart(case: str, answers: dict[str, Any]) -> list[str]:
    stored = STORED["scores"][case]
    lines = [f"{label}: not stored, add it: {frozen.TELLS} --again {case}" for label in answers if label not in stored]
    lines += [f"{label}: stored, and not asked any more" for label in stored if label not in answers]
    for label in answers.keys() & stored.keys():
        here, there = frozen.fingerprint_of(answers[label]), stored[label]
        if isinstance(here, str) or isinstance(there, str):
            lines += [f"{label}: {here}, stored {there}"] if here != there else []
        elif not freezing.apart(here, there) <= tolerance(label, case):  # not a number is apart
            lines.append(f"{label}: {freezing.apart(here, there):.1e} apart from what is stored")
    return lines


def batched_apart(model: Any, case: str, answers: dict[str, Any]) -> list[str]:
    traces = model.trace(input_ids=freezing.input_ids())
    quick = [question for question in freezing.batched_maps(case) if question.name not in freezing.WHOLE]
    batches = {question.label: freezing.map_of(traces, question) for question in quick}  # `bits.py` has Jacobians too
    for question in freezing.attribution_questions():
        batches[f"attribute {question.label}"] = freezing.attribution_of(traces, question)
    firsts = {label: batch if isinstance(batch, str) else batch[0] for label, batch in batches.items()}
    return [f"batched {line}" for line in apart_from_alone(case, firsts, answers)]


def streamed_apart(model: Any, case: str, answers: dict[str, Any]) -> list[str]:
    ids = freezing.input_ids()[0]
    streams = {
        question.label: freezing.streamed(model, ids, question)
        for question in freezing.map_questions(case)
        if question.streams
    }
    return [f"streamed {line}" for line in apart_from_alone(case, streams, answers)]


def apart_from_alone(case: str, others: dict[str, Any], answers: dict[str, Any]) -> list[str]:
    lines = []
    for label, other in others.items():
        if isinstance(other, str) or isinstance(answers[label], str):
            lines += [f"{label}: {other}, alone {answers[label]}"] if other is not answers[label] else []
        elif not freezing.difference(other.scores, answers[label].scores) <= tolerance(label, case):
            lines.append(f"{label}: {freezing.difference(other.scores, answers[label].scores):.1e} apart from alone")
    return lines


# --- names ------------------------------------------------------------------------------------------------------------


def test_public_names_methods_and_options() -> None:
    wrong = differences(frozen.face(), STORED["face"])
    assert not wrong, "\n".join([*wrong, f"If this is meant: {frozen.TELLS} --again face"])


def test_every_method_is_asked_in_every_variant() -> None:
    """`mixlens methods` lists name and variants; the table of the freeze has the same."""
    _, text = commands.run_command(("methods",))
    expected = {**freezing.VARIANTS, **freezing.UNSTORED}
    assert set(expected) == set(mixlens.methods())
    entries = re.findall(r"(?m)^(\w+)\n    (?:map|to a \w+|to \w+)  \S.*?  \S.*?  (\S.*?)  ", text)
    assert {name: tuple(variants.split(", ")) for name, variants in entries} == expected


def test_names_in_info() -> None:
    wrong = differences(frozen.info(), STORED["info"])
    assert not wrong, "\n".join([*wrong, f"If this is meant: {frozen.TELLS} --again info"])


# --- commands ---------------------------------------------------------------------------------------------------------

NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
ROUNDING = re.compile(r"gap \d\S*|\b\d\.\d+e-\d\d\b|(?<=largest )\S+|(?<=mean )\d\S+e-\d\d,")
LONG = 9  # digits: a number of JSON, in full


def test_commands_and_what_they_write() -> None:
    texts, folders = frozen.texts_and_folders()
    wrong = differences(folders, STORED["folders"])
    wrong += [f"{name}: new, not stored" for name in texts if name not in STORED["commands"]]
    for name, stored in STORED["commands"].items():
        wrong += [f"mixlens {' '.join(commands.COMMANDS[name])}: {line}" for line in texts_apart(texts[name], stored)]
    assert not wrong, "\n".join([*wrong, f"If this is meant: {frozen.TELLS} --again commands"])


def texts_apart(here: str, there: str) -> list[str]:
    """Lines whose words differ, or a number by more than a unit of its last digit (1e-9 where it is printed in
    full)."""
    lines = [[ROUNDING.sub("#", line) for line in text.splitlines()] for text in (here, there)]
    if len(lines[0]) != len(lines[1]):
        return [f"{len(lines[0])} lines, stored {len(lines[1])}:\n{here}"]
    return [
        f"\n  {new[:300]}\n  stored\n  {old[:300]}" for new, old in zip(*lines, strict=True) if not same_line(new, old)
    ]


def same_line(new: str, old: str) -> bool:
    words = [" ".join(NUMBER.sub(" 0 ", line).replace("█", "").split()) for line in (new, old)]
    numbers = [NUMBER.findall(line) for line in (new, old)]
    return words[0] == words[1] and all(map(same_number, *numbers))


def same_number(new: str, old: str) -> bool:
    if new == old:
        return True
    digits = old.partition("e")[0].partition(".")[2]
    unit = 10.0 ** -len(digits) * 10.0 ** int(old.partition("e")[2] or 0)
    allowed = 1e-9 * abs(float(old)) + 1e-15 if len(digits) > LONG else 1.001 * unit if digits or len(old) < 4 else 0.0
    return abs(float(new) - float(old)) <= allowed


def test_the_stored_file_is_small() -> None:
    """It is read by people in diffs."""
    assert frozen.PATH.stat().st_size < 400_000
    assert set(json.loads(frozen.PATH.read_text())["scores"]) == set(freezing.CASES)
