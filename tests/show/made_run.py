"""What is counted of a run, made up by hand: two methods, two classes, four rows to look at."""

from __future__ import annotations

from collections import Counter
from typing import Any

import made_values as made
import numpy as np
import torch

from mixlens import Map
from mixlens.base.words import Word
from mixlens.runs.corpus import page_facts
from mixlens.runs.corpus.counts import Bins, Gaps, Mean, Removal, RowCheck, Turned

METHODS = ("alti:variant=released", "attcat", "mine")
MANIFEST: dict[str, Any] = {
    "model": {
        "name": "/a/models/tiny",
        "revision": "abc",
        "family": "bert",
        "task": "classification",
        "classes": [f"c{i}" for i in range(22)],
    },
    "data": "folder/texts.jsonl",
    "identity": {"data": "sha256:1", "dtype": "float32", "options": {"a": 1, "b": None, "c": []}},
    "device": "cpu",
    "machine": "x86",
    "versions": {"mixlens": "0.1"},
    "check": 2e-6,
    "run": "0123",
}


def mean(*values: float) -> Mean:
    one = Mean()
    for value in values:
        one.add(value)
    return one


def bins(*counts: int) -> Bins:
    return Bins(np.linspace(0, 1, len(counts) + 1), np.array(counts))


def sampled(row: int, **changed: Any) -> page_facts.Sampled:
    facts: dict[str, Any] = {
        "row": row,
        "id": f"row-{row}" + "x" * 60,
        "text": "a\u200bb",
        "pair": None,
        "tokens": ("[CLS]", "a", "##b", "t" * 61),
        "special": (True, False, False, False),
        "left_out": 0,
        "query": 0,
        "prediction": "positive",
        "probability": 0.75,
        "target": None,
        "label": None,
        "correct": None,
        "gap": 1e-6,
        "seconds": 0.5,
        "agreement": 0.25,
        "carried": (("n\u200b", "v\u200b"),),
        "methods": METHODS[:2],
        "scores": np.array([[0.1, 0.2, 0.3, 0.4], [-1.0, 0.5, 0.0, 2.0]]),
        "file": "s.parquet",
        "why": ("first", "odd"),
    }
    return page_facts.Sampled(**{**facts, **changed})


def samples() -> list[page_facts.Sampled]:
    check = RowCheck({"attcat": 0.1}, {"attcat": True}, [0.5, 0.9], [False, True], {METHODS[0]: 0.02})
    words = (Word("a\u200b", "", (1, 2), 0, False), Word("t", " \u200b", (3,), 1, False))
    return [
        sampled(
            7,
            check=check,
            words=words,
            tags=("wrong",),
            label="neg" * 30,
            correct=False,
            target="t\u200b",
            pair="p\u200b",
        ),
        sampled(3, why=("odd", "last")),
        sampled(5, left_out=9, methods=(), scores=np.zeros((0, 4)), gap=None, probability=None),
        sampled(1, text="x" * 400),
    ]


def unchecked() -> Removal:
    return Removal({method: Turned() for method in METHODS}, {method: Gaps() for method in METHODS})


def counts() -> Removal:
    found = unchecked()
    found.add(
        RowCheck(
            {METHODS[0]: 0.2, "attcat": 0.95},
            {METHODS[0]: True, "attcat": False},
            [0.4, 0.96],
            [True, False],
            {"attcat": 0.5},
        )
    )
    found.add(
        RowCheck(
            {METHODS[0]: 0.7, "attcat": 0.1}, {METHODS[0]: True, "attcat": True}, [0.9], [False], {"attcat": 0.001}
        )
    )
    found.add(RowCheck({}, {}, [], [], {}))
    return found


def one_class(name: str, rows: int) -> page_facts.OneClass:
    words = [("good" + "x" * 60, 0.5, 7), ("bad", 0.25, 3)]
    signed = {"attcat": {"towards": words, "against": words[1:]}}
    return page_facts.OneClass(
        name,
        rows,
        rows - 1,
        bins(1, 2, 0, rows),
        0.625,
        {METHODS[0]: words},
        signed,
        {"attcat": {"for": words, "against": []}},
    )


def overview(**changed: Any) -> page_facts.Overview:
    table = Counter({("positive", "positive"): 5, ("positive", "negative"): 2, ("negative", "negative"): 4})
    facts: dict[str, Any] = {
        "out": "runs/one",
        "manifest": MANIFEST,
        "methods": METHODS,
        "finished": True,
        "rows": 1234,
        "errors": 3,
        "reasons": [("too long\u200b", 2), ("empty", 1)],
        "classes": [one_class("positive", 700), one_class("negative", 500)],
        "other_classes": 0,
        "probability": bins(3, 4, 5),
        "judged": page_facts.Judged("label\u200b", 11, 9, 1, 2, table),
        "not_judged": None,
        "agreement": {METHODS[:2]: mean(0.5, 0.25), ("attcat", "mine"): mean(-0.5)},
        "ratios": {"alti": [mean(0.2, 0.4), mean(0.3), mean()], "none": []},
        "gap": mean(1e-6, 3e-6),
        "gaps": bins(1, 0, 2),
        "no_gap": 4,
        "largest_gaps": [{"row": 1, "id": "i" * 70, "gap": 3e-6}],
        "lengths": Counter({3: 2, 40: 5, 7: 1}),
        "seconds": mean(0.5, 1.5),
        "times": bins(2, 3),
        "slow": [{"row": 2, "id": 12, "seconds": 1.5}],
        "examples": samples(),
        "notes": ["A note."],
        "signed": ("attcat",),
        "word_agreement": {("mine", METHODS[0]): mean(0.75)},
        "special": {"attcat": mean(0.1, 0.2)},
        "removal": counts(),
        "tagged": Counter(wrong=2, held=1, apart=0, open=4),
        "sure": 6,
    }
    return page_facts.Overview(**{**facts, **changed})


def maps_of(rows: Any) -> Any:
    """Two maps of every row that is asked for; the second of row 3 has a score that is not finite."""
    for row in sorted(rows):
        for method, layers in (("alti", 2), ("globenc", 1)):
            one: Map = made.a_map(layers, 4, method=method, tokens=("a", "b", "c", "d"))
            scores = one.scores.clone()
            if row == 3 and method == "globenc":
                scores[0, 0, 0] = torch.inf
            yield row, made.replace(one, scores=scores)
