"""The page of a corpus run: what `corpus.overview` counted, as one HTML file. Template, style and coding are a
report's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..answers.names import name_of
from ..base.errors import InputError
from ..base.text import counted, listed
from ..types import Map
from .packing import EXACT, HALF, encode
from .page_entry import check_line, options_line, values_line, versions_line
from .page_template import (
    BASE_SCRIPTS,
    BASE_STYLES,
    READ,
    Kind,
    filled_page,
    folder_name,
    plain,
    safe_json,
    visible,
    visible_or_none,
)
from .tokens import shown

if TYPE_CHECKING:
    from ..runs.corpus.counts import Bins, Mean, Turned
    from ..runs.corpus.page_facts import Judged, OneClass, Overview, Sampled

RUN = Kind(
    (*BASE_STYLES, "run.css"),
    (*BASE_SCRIPTS, "core.js", "run_maps.js", "run_rows.js", "run_folds.js", "run.js"),
    f'startRun({READ}, document.getElementById("main"));',
)
NOTES = 3_000  # characters kept for what is said about things left out
MOST_NAMED = 3  # classes in the question of the page
FILES = (".jsonl", ".csv", ".tsv", ".parquet", ".txt")  # data that is called by its file's name, not by its folder's
WIDEST = 30  # bins of a histogram
LONGEST = 60  # characters of a token or a class
MOST_LABELS = 12  # labels of the table of labels by predictions
Maps = Callable[[Collection[int]], Iterable[tuple[int, Map]]]
Facts = dict[str, Any]


def page(facts: Overview, *, maps: Maps | None = None, title: str | None = None, room: int = 2_000_000) -> str:
    """The whole page as one string of at most `room` bytes. `maps` gives the kept maps of some rows, where a run has
    them."""
    model, source = _named(facts)
    name = title or f"{model} on {source}"
    subtitle = f"Run over {facts.rows:,} rows of {source} · {model} · {counted(len(facts.methods), 'method')}"
    names = {"title": title or _question(facts), "subtitle": subtitle, "crumb": "A whole run", "name": name}
    data = page_data(facts)
    left = room - NOTES - len(filled_page({"run": data}, RUN, **names).encode())
    if left < 0:
        raise InputError(f"the numbers of this run alone take {(room - left) / 1e6:.2f} MB. Allow more megabytes.")
    every = list(map(_example, facts.examples))
    sizes = [len(safe_json(plain(one)).encode()) + 1 for one in every]
    kept = _first_that_fit(enumerate(sizes), left if maps is None else left // 2)
    if missing := len(every) - len(kept):
        data["notes"].append(
            f"{missing} of {len(every)} chosen examples are left out: the file has no room for them. "
            "More megabytes hold more."
        )
    examples = [every[place] for place in kept]
    if maps is not None and examples:
        chosen = [facts.examples[place] for place in kept]
        blocks = _maps_within(chosen, maps, left - sum(sizes[place] for place in kept))
        for one in examples:
            one["maps"] = blocks.get(one["row"])
        data["held"] = f"Maps of {len(blocks)} examples are here, {HALF.description()}."
        if without := len(examples) - len(blocks):
            data["held"] += f" Those of {without} are left out: the file has no room for them, or the text is too long."
    data["examples"] = sorted(examples, key=lambda one: one["row"])
    return filled_page({"run": data}, RUN, **names)


def _named(facts: Overview) -> tuple[str, str]:
    """The model and the data, as a heading calls them: files without their folders."""
    model, data = facts.manifest.get("model"), str(facts.manifest.get("data") or "a corpus")
    name = str(model.get("name")) if isinstance(model, Mapping) else "a model"
    return folder_name(name), data.rstrip("/").rpartition("/")[2] if data.endswith(FILES) else data


def _question(facts: Overview) -> str:
    """What the words of a run decide: its classes by name where they are few."""
    names = sorted(group.name for group in facts.classes)
    if not facts.rows or _part(facts.manifest, "model").get("task") != "classification":
        return f"Which words decide what {_named(facts)[0]} says?"
    if len(names) > MOST_NAMED or facts.other_classes:
        return "Which words decide the class?"
    return f"Which words decide {listed([_short(name) for name in names])}?"


def _first_that_fit(sizes: Iterable[tuple[int, float]], room: float) -> list[int]:
    """The keys, from the first to the last, of those sizes for which there is still room."""
    keys = []
    for key, size in sizes:
        if size <= room:
            keys.append(key)
            room -= size
    return keys


# --- the numbers ------------------------------------------------------------------------------------------------------


def page_data(facts: Overview) -> Facts:
    """Everything on the page but the examples: classes, labels, methods, agreement, lengths, times, and where they come
    from."""
    methods, signed = facts.methods, [method in facts.signed for method in facts.methods]
    total = sum(length * count for length, count in facts.lengths.items())
    return {
        "rows": facts.rows,
        "errors": facts.errors,
        "finished": facts.finished,
        "reasons": [[visible(reason), count] for reason, count in facts.reasons],
        "methods": list(methods),
        "classes": [_class(group, methods) for group in facts.classes],
        "otherClasses": {
            "classes": facts.other_classes,
            "rows": facts.rows - sum(group.rows for group in facts.classes),
        },
        "probability": _bins(facts.probability),
        "labels": None if facts.judged is None else _labels(facts.judged),
        "noLabels": visible_or_none(facts.not_judged),
        "agreement": _agreement(methods, facts.agreement),
        "names": list(map(_researcher_name, methods)),
        "isSigned": signed,
        # The method that the words of a page are by: the first that says for and against, else the first. It is named
        # before the run, so that it is not chosen by what it turned.
        "lead": next((number for number, one in enumerate(signed) if one), 0) if methods else None,
        "special": [None if mean is None else mean.value for mean in map(facts.special.get, methods)],
        **_removal(facts),
        "wordAgreement": _agreement(methods, facts.word_agreement),
        "tagged": {tag: facts.tagged[tag] for tag in ("wrong", "held", "apart", "open")},
        "sure": facts.sure,
        "ratios": [
            {
                "method": name,
                "layers": [mean.value for mean in layers],
                "rows": max((mean.count for mean in layers), default=0),
            }
            for name, layers in facts.ratios.items()
        ],
        "gap": {
            "mean": facts.gap.value,
            "largest": facts.gap.largest if facts.gap.count else None,
            "rows": facts.gap.count,
            "zero": facts.no_gap,
            **_bins(facts.gaps),
            "worst": _rows(facts.largest_gaps),
        },
        "lengths": {
            **_lengths(facts.lengths),
            "mean": total / facts.rows if facts.rows else None,
            "largest": max(facts.lengths, default=None),
        },
        "seconds": {"mean": facts.seconds.value, "total": facts.seconds.total, **_bins(facts.times)},
        "slow": _rows(facts.slow),
        "about": _about(facts),
        "notes": list(facts.notes),
        "held": None,  # what is here of the maps
        "chosenAs": list(dict.fromkeys(why for sample in facts.examples for why in sample.why)),
        "examples": [],
    }


def _researcher_name(written: str) -> str:
    """A method as figures and pages of runs name it: `alti:variant=released` is "ALTI, variant=released"."""
    method, _, options = written.partition(":")
    return ", ".join([name_of(method).name, *filter(None, options.split(":"))])


def _short(token: str) -> str:
    """A token or a class, not longer than a table can show."""
    text = shown(token)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _rows(rows: Iterable[Mapping[str, Any]]) -> list[Facts]:
    """Rows of a list, with ids that are not too long."""
    return [{**one, "id": _short(str(one["id"]))} for one in rows]


def _bins(bins: Bins) -> Facts:
    return {"edges": list(map(float, bins.edges)), "counts": list(map(int, bins.counts))}


def _class(group: OneClass, methods: Sequence[str]) -> Facts:
    """A predicted class with its words: the largest, those for and against it, and their mean share of a row."""

    def words(found: Iterable[tuple[str, float, int]]) -> list[list[Any]]:
        return [[_short(word), share, times] for word, share, times in found]

    def both_ways(found: Mapping[str, Any]) -> Facts:
        return {way: words(one) for way, one in found.items()}

    return {
        "name": _short(group.name),
        "rows": group.rows,
        "counted": group.counted,
        "mean": group.mean,
        **_bins(group.probability),
        "top": [words(group.top.get(method, [])) for method in methods],
        "signed": [both_ways(group.signed[method]) if method in group.signed else None for method in methods],
        "words": [both_ways(group.words.get(method, {})) for method in methods],
    }


def _labels(judged: Judged) -> Facts:
    """Accuracy, and labels (rows) by predictions (columns), of the most frequent."""
    sums: Counter[str] = Counter()
    for pair, count in judged.table.items():
        sums.update(dict.fromkeys(pair, count))
    names = sorted(sums, key=lambda name: (-sums[name], name))[:MOST_LABELS]
    return {
        "column": visible(judged.column),
        "rows": judged.rows,
        "correct": judged.correct,
        "unknown": judged.unknown,
        "without": judged.without,
        "names": list(map(_short, names)),
        "table": [[judged.table[label, predicted] for predicted in names] for label in names],
        "all": len(names) == len(sums),
    }


def _removal(facts: Overview) -> Facts:
    """What turned without words, the method first whose words turn most (None where no row was checked); and in how
    many rows scores miss their sum (None where no method names one)."""
    counts = facts.removal
    found: Facts = {"removal": None, "completeness": None}
    if counts is None:
        return found
    if counts.random.rows:
        names = counts.best_first()
        found["removal"] = {
            "edges": list(map(float, counts.random.left.edges)),
            "methods": [{"method": facts.methods.index(name), **_turned(counts.methods[name])} for name in names],
            "random": _turned(counts.random),
            "unchecked": counts.unchecked,
        }
    if any(gaps.rows for gaps in counts.gaps.values()):
        every = [counts.gaps[method] for method in facts.methods]
        rows = [{"rows": one.rows, "open": one.open, "largest": one.largest if one.rows else None} for one in every]
        found["completeness"] = {"open": counts.open_rows, "methods": rows}
    return found


def _turned(turned: Turned) -> Facts:
    low, high = turned.interval() or (None, None)
    counts = list(map(int, turned.left.counts))
    facts = {"rows": turned.rows, "draws": turned.draws, "share": turned.share}
    return {**facts, "low": low, "high": high, "counts": counts}


def _agreement(methods: Sequence[str], means: Mapping[tuple[str, str], Mean]) -> Facts:
    """[method method]: the mean of rows, and how many there are."""
    n = len(methods)
    mean, rows = np.full((n, n), None), np.zeros((n, n), dtype=np.int64)
    for pair, agreement in means.items():
        i, j = map(list(methods).index, pair)
        mean[i, j] = mean[j, i] = agreement.value
        rows[i, j] = rows[j, i] = agreement.count
    return {"mean": mean.tolist(), "rows": rows.tolist()}


def _lengths(lengths: Mapping[int, int]) -> Facts:
    """Tokens a row, in bins of one width."""
    if not lengths:
        return {"edges": [], "counts": []}
    first, last = min(lengths), max(lengths)
    width = -(-(last - first + 1) // WIDEST)
    edges = np.arange(first, last + width + 1, width)
    counts, _ = np.histogram(list(lengths), edges, weights=list(lengths.values()))
    return {"edges": edges.tolist(), "counts": counts.astype(int).tolist()}


def _part(manifest: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A part of a manifest; empty where it is missing."""
    part = manifest.get(name)
    return part if isinstance(part, Mapping) else {}


def _about(facts: Overview) -> list[list[str]]:
    """The model, the data, the options and the machine of a run, a row each."""
    manifest = facts.manifest
    model, identity, check = _part(manifest, "model"), _part(manifest, "identity"), manifest.get("check")
    classes = model.get("classes")
    chosen = {name: value for name, value in _part(identity, "options").items() if value not in (None, [])}
    rows = [
        ("Model", model.get("name")),
        ("Revision", model.get("revision")),
        ("Family and task", values_line(model, "family", "task")),
        ("Classes", ", ".join(map(str, classes[:20])) if isinstance(classes, list) else None),
        ("Data", manifest.get("data")),
        ("Data's fingerprint", None if identity.get("data") == manifest.get("data") else identity.get("data")),
        ("Methods", ", ".join(facts.methods)),
        ("Options", options_line(chosen)),
        ("Number type", identity.get("dtype")),
        ("Device", values_line(manifest, "device", "machine")),
        ("Versions", versions_line(_part(manifest, "versions"))),
        ("Model check", check_line(check if isinstance(check, float) else None)),
        ("Run", manifest.get("run")),
        ("Finished", "yes" if facts.finished else "no"),
    ]
    return [[name, visible(str(value))[:2_000]] for name, value in rows if value not in (None, "")]


# --- examples and their maps ------------------------------------------------------------------------------------------


def _example(sample: Sampled) -> Facts:
    """What the page knows of one row; its check is what was left without words, by method and of each draw, and gaps by
    method."""
    check = sample.check
    return {
        "row": sample.row,
        "id": _short(sample.id),
        "text": visible(sample.text),
        "pair": visible_or_none(sample.pair),
        "tokens": list(map(_short, sample.tokens)),
        "special": [place for place, special in enumerate(sample.special) if special],
        "leftOut": sample.left_out,
        "query": sample.query,
        "prediction": _short(sample.prediction),
        "probability": sample.probability,
        "target": visible_or_none(sample.target),
        "label": None if sample.label is None else _short(sample.label),
        "correct": sample.correct,
        "gap": sample.gap,
        "seconds": sample.seconds,
        "agreement": sample.agreement,
        "carried": [[visible(name), visible(value)] for name, value in sample.carried],
        "why": list(sample.why),
        "tags": list(sample.tags),
        "words": [[visible(word.text), visible(word.before), word.source, list(word.tokens)] for word in sample.words],
        "check": None
        if check is None
        else {
            "left": [check.left.get(method) for method in sample.methods],
            "turned": [check.turned.get(method) for method in sample.methods],
            "randomLeft": check.random_left,
            "randomTurned": check.random_turned,
            "gaps": [check.gaps.get(method) for method in sample.methods],
        },
        "methods": list(sample.methods),
        "scores": encode(sample.scores, EXACT) if sample.scores.size else None,
        "maps": None,
    }


def _maps_within(examples: Sequence[Sampled], maps: Maps, room: int) -> dict[int, list[Facts]]:
    """The maps of as many examples as there is room for, by row, those that come first before others. A row that cannot
    be held (a score is not finite, as after an overflow of float16) has none."""
    layers = sum(len(scores.scores) for sample in examples[:1] for _, scores in maps([sample.row]))
    whole = [sample for sample in examples if not sample.left_out]
    guesses = ((sample.row, layers * len(sample.tokens) ** 2 * 1.6) for sample in whole)
    rows = set(_first_that_fit(guesses, room)) if layers else set()
    found: dict[int, list[Facts]] = {}

    def size(block: Facts) -> int:
        return len(safe_json(block)) + 10

    for row, scores in maps(rows) if rows else ():
        if row not in rows:
            continue
        try:
            block = encode(scores.scores.numpy().reshape(-1, len(scores.tokens)), HALF)
        except InputError:
            rows.discard(row)
            continue
        found.setdefault(row, []).append({"method": scores.method, "depth": len(scores.scores), "block": block})
        room -= size(found[row][-1])
        if room < 0:
            room += sum(map(size, found.pop(row)))
            rows.discard(row)
    return found
