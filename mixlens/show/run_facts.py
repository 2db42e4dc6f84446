"""The numbers of a corpus run as its page reads them: classes, labels, agreement, lengths, times, and where they come from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .page_rows import check_line, options_line, values_line, versions_line
from .page_template import visible, visible_or_none
from .run_checks import agreement_matrix, check_facts
from .tokens import shown

if TYPE_CHECKING:
    from ..runs.corpus.page_facts import Bins, Judged, Mean, OneClass, Overview, Sampled

WIDEST = 30  # bins of a histogram
LONGEST = 60  # characters of a token or a class
MOST_LABELS = 12  # labels of the table of labels by predictions
Words = Sequence[tuple[str, float, int]]  # a word, its mean share, and how often it came


def run_facts(facts: Overview) -> dict[str, Any]:
    """Everything on the page but the examples."""
    return {
        "rows": facts.rows,
        "errors": facts.errors,
        "finished": facts.finished,
        "reasons": _reasons(facts),
        "methods": list(facts.methods),
        "classes": [_class(group, facts.methods) for group in facts.classes],
        "otherClasses": {"classes": facts.other_classes, "rows": _rows_of_other_classes(facts)},
        "probability": _bins(facts.probability),
        "labels": None if facts.judged is None else _labels(facts.judged),
        "noLabels": visible_or_none(facts.not_judged),
        "agreement": agreement_matrix(facts.methods, facts.agreement),
        **check_facts(facts),
        "ratios": [_ratio(name, layers) for name, layers in facts.ratios.items()],
        "gap": _gap(facts),
        "lengths": {
            **_lengths(facts.lengths),
            "mean": _mean_length(facts),
            "largest": max(facts.lengths, default=None),
        },
        "seconds": {"mean": facts.seconds.value, "total": facts.seconds.total, **_bins(facts.times)},
        "slow": list(map(_row, facts.slow)),
        "about": about(facts),
        "notes": list(facts.notes),
        "held": None,  # what is here of the maps
        "chosenAs": _reasons_of_choice(facts.examples),
        "examples": [],
    }


def _reasons(facts: Overview) -> list[list[Any]]:
    """Why rows could not be explained, and how many."""
    return [[visible(reason), count] for reason, count in facts.reasons]


def _rows_of_other_classes(facts: Overview) -> int:
    """How many rows have a prediction that is not listed."""
    return facts.rows - sum(group.rows for group in facts.classes)


def _reasons_of_choice(examples: Sequence[Sampled]) -> list[str]:
    """Why examples were chosen, each reason once."""
    return list(dict.fromkeys(why for sample in examples for why in sample.why))


def short(token: str) -> str:
    """A token or a class, not longer than a table can show."""
    text = shown(token)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def short_or_none(token: str | None) -> str | None:
    return None if token is None else short(token)


def _row(facts: Mapping[str, Any]) -> dict[str, Any]:
    """A row of a list, with an id that is not too long."""
    return {**facts, "id": short(str(facts["id"]))}


def _bins(bins: Bins) -> dict[str, Any]:
    return {"edges": list(map(float, bins.edges)), "counts": list(map(int, bins.counts))}


# --- classes and labels -----------------------------------------------------------------------------------------------


def _class(group: OneClass, methods: Sequence[str]) -> dict[str, Any]:
    return {
        "name": short(group.name),
        "rows": group.rows,
        "counted": group.counted,
        "mean": group.mean,
        **_bins(group.probability),
        "top": [_words(group.top.get(method, [])) for method in methods],
        "signed": [_signed_words(group, method) for method in methods],
        "words": [_words_both_ways(group, method) for method in methods],
    }


def _words(words: Words) -> list[list[Any]]:
    return [[short(word), share, times] for word, share, times in words]


def _signed_words(group: OneClass, method: str) -> dict[str, Any] | None:
    """The words that count towards and against, of a method with scores below 0."""
    return {way: _words(words) for way, words in group.signed[method].items()} if method in group.signed else None


def _words_both_ways(group: OneClass, method: str) -> dict[str, Any]:
    """The words for and against a class by their mean share of a row, with the rows that have them."""
    return {way: _words(words) for way, words in group.words.get(method, {}).items()}


def _labels(judged: Judged) -> dict[str, Any]:
    """Accuracy, and labels (rows) by predictions (columns), of the most frequent."""
    sums = _label_sums(judged)
    names = sorted(sums, key=lambda name: (-sums[name], name))[:MOST_LABELS]
    return {
        "column": visible(judged.column),
        "rows": judged.rows,
        "correct": judged.correct,
        "unknown": judged.unknown,
        "without": judged.without,
        "names": list(map(short, names)),
        "table": [[judged.table[label, predicted] for predicted in names] for label in names],
        "all": len(names) == len(sums),
    }


def _label_sums(judged: Judged) -> Counter[str]:
    """In how many rows each name is the label or the prediction."""
    sums: Counter[str] = Counter()
    for pair, count in judged.table.items():
        sums.update(dict.fromkeys(pair, count))
    return sums


# --- methods, gaps, lengths -------------------------------------------------------------------------------------------


def _ratio(name: str, layers: Sequence[Mean]) -> dict[str, Any]:
    """The mixing ratio of a method in every layer, and the rows behind it."""
    rows = max((mean.count for mean in layers), default=0)
    return {"method": name, "layers": [mean.value for mean in layers], "rows": rows}


def _gap(facts: Overview) -> dict[str, Any]:
    """How well the layers were rebuilt from their parts."""
    return {
        "mean": facts.gap.value,
        "largest": facts.gap.largest if facts.gap.count else None,
        "rows": facts.gap.count,
        "zero": facts.no_gap,
        **_bins(facts.gaps),
        "worst": list(map(_row, facts.largest_gaps)),
    }


def _lengths(lengths: Mapping[int, int]) -> dict[str, Any]:
    """Tokens a row, in bins of one width."""
    if not lengths:
        return {"edges": [], "counts": []}
    first, last = min(lengths), max(lengths)
    width = -(-(last - first + 1) // WIDEST)
    edges = np.arange(first, last + width + 1, width)
    counts = np.zeros(len(edges) - 1, dtype=np.int64)
    for length, count in lengths.items():
        counts[(length - first) // width] += count
    return {"edges": edges.tolist(), "counts": counts.tolist()}


def _mean_length(facts: Overview) -> float | None:
    """Tokens a row, on average."""
    total = sum(length * count for length, count in facts.lengths.items())
    return total / facts.rows if facts.rows else None


# --- where the numbers come from --------------------------------------------------------------------------------------


def about(facts: Overview) -> list[list[str]]:
    """The model, the data, the options and the machine of a run, a row each."""
    rows = [*_model_rows(facts), *_machine_rows(facts)]
    return [[name, visible(str(value))[:2_000]] for name, value in rows if value not in (None, "")]


def mapping_of(manifest: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A part of a manifest; empty where it is missing."""
    part = manifest.get(name)
    return part if isinstance(part, Mapping) else {}


def _model_rows(facts: Overview) -> list[tuple[str, Any]]:
    """The model, the data and what was computed."""
    manifest = facts.manifest
    model, identity = mapping_of(manifest, "model"), mapping_of(manifest, "identity")
    return [
        ("Model", model.get("name")),
        ("Revision", model.get("revision")),
        ("Family and task", values_line(model, "family", "task")),
        ("Classes", _classes_line(model.get("classes"))),
        ("Data", manifest.get("data")),
        ("Data's fingerprint", None if identity.get("data") == manifest.get("data") else identity.get("data")),
        ("Methods", ", ".join(facts.methods)),
        ("Options", options_line(_chosen_options(identity))),
        ("Number type", identity.get("dtype")),
    ]


def _machine_rows(facts: Overview) -> list[tuple[str, Any]]:
    """What computed it, and how far it came."""
    check = facts.manifest.get("check")
    return [
        ("Device", values_line(facts.manifest, "device", "machine")),
        ("Versions", versions_line(mapping_of(facts.manifest, "versions"))),
        ("Model check", check_line(check if isinstance(check, float) else None)),
        ("Run", facts.manifest.get("run")),
        ("Finished", "yes" if facts.finished else "no"),
    ]


def _classes_line(classes: Any) -> str | None:
    """The first classes of a classifier."""
    return ", ".join(map(str, classes[:20])) if isinstance(classes, list) else None


def _chosen_options(identity: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a run that were set."""
    return {name: value for name, value in mapping_of(identity, "options").items() if value not in (None, [])}
