"""An answer written by hand, as `Why.to_dict()` gives one: numbers that are easy to check on a page."""

from __future__ import annotations

from typing import Any

TEXT = "A thin plot, but superb acting."
WORDS = (
    ("[CLS]", ""),
    ("A", ""),
    ("thin", " "),
    ("plot", " "),
    (",", ""),
    ("but", " "),
    ("superb", " "),
    ("acting", " "),
    (".", ""),
    ("[SEP]", ""),
)
SCORES = (0.5, 0.1, -1.5, -0.2, 0.0, 0.2, 2.0, 0.9, 0.1, -0.3)
MARKS = (",", ".")


def special(text: str) -> bool:
    return text.startswith("[")


def shares(scores: tuple[float, ...]) -> list[float]:
    """Shares of all evidence, special tokens left out."""
    kept = [0.0 if special(word) else score for (word, _), score in zip(WORDS, scores, strict=True)]
    whole = sum(map(abs, kept))
    return [score / whole for score in kept]


def word(place: int) -> dict[str, Any]:
    text, before = WORDS[place]
    facts = {"text": text, "before": before, "segment": "text", "special": special(text), "mark": text in MARKS}
    return {**facts, "score": SCORES[place], "share": shares(SCORES)[place], "tokens": [place]}


def reading(name: str, everyday: str, scores: tuple[float, ...], *, signed: bool, same: int) -> dict[str, Any]:
    facts = {"id": name.lower(), "name": name, "everyday": everyday, "signed": signed, "scores": list(scores)}
    return {**facts, "shares": shares(scores), "same_first": same, "gap": None}


def trust(**changed: Any) -> dict[str, Any]:
    random = {"mean": 0.9, "low": 0.31, "high": 0.97, "count": 20, "all": False, "turned": 2, "values": [0.9] * 20}
    checks = [
        {
            "id": "removal",
            "state": "ok",
            "title": "Without these three words: 95.0 % becomes 12.0 %.",
            "detail": "Random: 90.0 %.",
        },
        {
            "id": "agreement",
            "state": "caution",
            "title": "One of two methods agrees.",
            "detail": "It is the leading one.",
        },
        {"id": "completeness", "state": "ok", "title": "Nothing is missing.", "detail": "Gap 0.001 %."},
        {
            "id": "single",
            "state": "info",
            "title": "No single word decides.",
            "detail": "Without “superb” alone it is still 60.0 %.",
        },
    ]
    facts = {
        "verdict": "ok",
        "sentence": "Yes, for these three words: without them the model says something else.",
        "k": 3,
    }
    facts |= {
        "filler": {"id": "delete", "text": "words are deleted"},
        "measures": "probability of positive",
        "whole": 0.95,
    }
    facts |= {
        "without": 0.12,
        "without_prediction": "negative",
        "turned": True,
        "random": random,
        "alone": 0.99,
        "empty": 0.4,
    }
    curve = {"first": [0.95, 0.6, 0.3, 0.12, 0.2, 0.3, 0.4], "random": [[0.95, 0.9, 0.9, 0.8, 0.7, 0.5, 0.4]] * 3}
    return {
        **facts,
        "single": {"word": 6, "without": 0.6, "turned": False},
        "curve": curve,
        "checks": checks,
        **changed,
    }


def example(**changed: Any) -> dict[str, Any]:
    """The answer; `changed` replaces fields."""
    method = {
        "id": "first",
        "name": "First",
        "everyday": "The first way",
        "paper": "Nobody 2020",
        "reason": "It is made up.",
        "signed": True,
    }
    answer = {
        "target": "positive",
        "foil": None,
        "probability": 0.95,
        "certainty": "sure",
        "for": [6, 7, 5],
        "against": [2],
    }
    facts = {
        "kind": "why",
        "model": "made-up",
        "task": "classification",
        "classes": ["negative", "positive"],
        "text": TEXT,
        "pair": None,
    }
    facts |= {
        "question": "Why did the model say positive?",
        "answer": answer,
        "predictions": [["positive", 0.95], ["negative", 0.05]],
    }
    facts |= {"sentence": "positive (95.0 %), because of superb, acting, but; against it: thin", "unit": "word"}
    facts |= {"words": [word(place) for place in range(len(WORDS))], "special_share": 0.8 / 5.8, "method": method}
    second = (0.1, 0.2, 0.4, 0.3, 0.1, 0.1, 1.0, 0.7, 0.2, 0.1)
    methods = [
        reading("First", "The first way", SCORES, signed=True, same=3),
        reading("Second", "Another way", second, signed=False, same=2),
    ]
    facts |= {"methods": methods, "trust": trust(), "agreement": {"same": 1, "of": 2, "k": 3}, "notes": []}
    facts |= {"gaps": {"completeness": 1e-5, "reconstruction": 4.6e-7}}
    facts |= {
        "limits": {"removal_ok": 0.2, "removal_caution": 0.05, "completeness_ok": 0.01, "completeness_caution": 0.05}
    }
    provenance = {
        "mixlens": "0.1.0",
        "torch": "2",
        "seed": 0,
        "methods": {"first": {"steps": 50}},
        "command": f"mixlens why '{TEXT}' -m made-up",
    }
    return {**facts, "provenance": provenance, **changed}
