"""The page of a corpus run: what `corpus.overview` counted, as one HTML file. Template, style and coding are a report's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError
from ..types import Map
from .packing import EXACT, Precision, encode
from .results_page import READ, Kind, filled_page, folder_name, plain, safe_json, subtitle_of, visible
from .text import shown

if TYPE_CHECKING:
    from ..corpus.page_facts import Bins, OneClass, Overview, Sampled

RUN = Kind(
    ("views.css", "page.css", "run.css"),
    ("core.js", "views.js", "controls.js", "run.js"),
    f'startRun({READ}, document.getElementById("main"));',
)
NOTES = 3_000  # characters kept for what is said about things left out
COARSE = Precision("bits8")  # maps: what the eye can tell apart
WIDEST = 30  # bins of a histogram
LONGEST = 60  # characters of a token or a class
FILES = (".jsonl", ".csv", ".tsv", ".parquet", ".txt")  # data that is called by its file's name, not by its folder's
Maps = Callable[[Collection[int]], Iterable[tuple[int, Map]]]


def page(found: Overview, *, maps: Maps | None = None, title: str | None = None, room: int = 2_000_000) -> str:
    """The whole page as one string of at most `room` bytes. `maps` gives the kept maps of some rows, where a run has them."""
    data = told(found)
    model, source = named(found)
    names = {"title": title or f"{model} on {source}", "subtitle": subtitle_of([f"{found.rows:,} rows", model], found.methods)}
    left = room - NOTES - len(filled_page({"run": data}, RUN, **names).encode())
    if left < 0:
        raise InputError(f"the numbers of this run alone take {(room - left) / 1e6:.2f} MB. Allow more megabytes.")
    chosen, sizes = _fitting(found.examples, left // 2 if maps is not None else left)
    if len(chosen) < len(found.examples):
        data["notes"].append(
            f"{len(found.examples) - len(chosen)} of {len(found.examples)} chosen examples are left out: the file has no room "
            "for them. More megabytes hold more."
        )
    if maps is not None and chosen:
        kept = _kept_maps([found.examples[i] for i in chosen], maps, left - sizes)
        for row, blocks in kept.items():
            next(one for one in chosen.values() if one["row"] == row)["maps"] = blocks
        without = len(chosen) - len(kept)
        data["held"] = f"Maps of {len(kept)} examples are here, {COARSE.told()}." + (
            f" Those of {without} are left out: the file has no room for them, or the text is too long." if without else ""
        )
    data["examples"] = sorted(chosen.values(), key=lambda one: one["row"])
    return filled_page({"run": data}, RUN, **names)


def named(found: Overview) -> tuple[str, str]:
    """The model and the data, as a heading calls them."""
    model = found.manifest.get("model")
    data = str(found.manifest.get("data") or "a corpus")
    name = str(model.get("name")) if isinstance(model, Mapping) else "a model"
    return folder_name(name), data.rstrip("/").rpartition("/")[2] if data.endswith(FILES) else data


# --- numbers ----------------------------------------------------------------------------------------------------------


def told(found: Overview) -> dict[str, Any]:
    """Everything but the examples."""
    methods = list(found.methods)
    return {
        "rows": found.rows,
        "errors": found.errors,
        "finished": found.finished,
        "reasons": [[visible(reason), count] for reason, count in found.reasons],
        "methods": methods,
        "classes": [_class(one, methods) for one in found.classes],
        "otherClasses": {"classes": found.other_classes, "rows": found.rows - sum(one.rows for one in found.classes)},
        "probability": _bins(found.probability),
        "labels": _labels(found),
        "noLabels": None if found.not_judged is None else visible(found.not_judged),
        "agreement": _agreement(found),
        "ratios": [
            {"method": name, "layers": [mean.value for mean in layers], "rows": max((mean.count for mean in layers), default=0)}
            for name, layers in found.ratios.items()
        ],
        "gap": {
            "mean": found.gap.value,
            "largest": found.gap.largest if found.gap.count else None,
            "rows": found.gap.count,
            "zero": found.no_gap,
            **_bins(found.gaps),
            "worst": [_row(one) for one in found.largest_gaps],
        },
        "lengths": {**_lengths(found), "mean": _mean_length(found), "largest": max(found.lengths, default=None)},
        "seconds": {"mean": found.seconds.value, "total": found.seconds.total, **_bins(found.times)},
        "slow": [_row(one) for one in found.slow],
        "about": about(found),
        "notes": list(found.notes),
        "held": None,  # what is here of the maps
        "chosenAs": list(dict.fromkeys(why for one in found.examples for why in one.why)),
        "examples": [],
    }


def _bins(bins: Bins) -> dict[str, Any]:
    return {"edges": [float(edge) for edge in bins.edges], "counts": [int(count) for count in bins.counts]}


def _class(one: OneClass, methods: Sequence[str]) -> dict[str, Any]:
    def listed(some: Sequence[tuple[str, float, int]]) -> list[list[Any]]:
        return [[short(token), share, times] for token, share, times in some]

    top = [listed(one.top.get(method, [])) for method in methods]
    ways = [
        {way: listed(some) for way, some in one.signed[method].items()} if method in one.signed else None for method in methods
    ]
    return {
        "name": short(one.name),
        "rows": one.rows,
        "counted": one.counted,
        "mean": one.mean,
        **_bins(one.probability),
        "top": top,
        "signed": ways,  # of methods with scores below 0: towards and against apart
    }


def short(token: str) -> str:
    text = shown(token)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _labels(found: Overview) -> dict[str, Any] | None:
    """Accuracy, and labels (rows) by predictions (columns), of the most frequent."""
    judged = found.judged
    if judged is None:
        return None
    sums: dict[str, int] = {}
    for (label, predicted), count in judged.table.items():
        for name in {label, predicted}:
            sums[name] = sums.get(name, 0) + count
    names = sorted(sums, key=lambda name: (-sums[name], name))[:12]
    return {
        "column": visible(judged.column),
        "rows": judged.rows,
        "correct": judged.correct,
        "unknown": judged.unknown,
        "without": judged.without,
        "names": [short(name) for name in names],
        "table": [[judged.table[label, predicted] for predicted in names] for label in names],
        "all": len(names) == len(sums),
    }


def _agreement(found: Overview) -> dict[str, Any]:
    """[method method]: the mean of rows, and how many there are."""
    n = len(found.methods)
    mean: list[list[float | None]] = [[None] * n for _ in range(n)]
    rows = [[0] * n for _ in range(n)]
    for (a, b), one in found.agreement.items():
        i, j = found.methods.index(a), found.methods.index(b)
        mean[i][j] = mean[j][i] = one.value
        rows[i][j] = rows[j][i] = one.count
    return {"mean": mean, "rows": rows}


def _lengths(found: Overview) -> dict[str, Any]:
    """Tokens a row, in bins of one width."""
    if not found.lengths:
        return {"edges": [], "counts": []}
    first, last = min(found.lengths), max(found.lengths)
    width = -(-(last - first + 1) // WIDEST)
    edges = np.arange(first, last + width + 1, width)
    counts = np.zeros(len(edges) - 1, dtype=np.int64)
    for length, count in found.lengths.items():
        counts[(length - first) // width] += count
    return {"edges": edges.tolist(), "counts": counts.tolist()}


def _mean_length(found: Overview) -> float | None:
    return sum(length * count for length, count in found.lengths.items()) / found.rows if found.rows else None


def _row(one: Mapping[str, Any]) -> dict[str, Any]:
    return {**one, "id": short(str(one["id"]))}


def about(found: Overview) -> list[list[str]]:
    """Where the numbers come from."""
    manifest = found.manifest

    def part(name: str) -> Mapping[str, Any]:
        value = manifest.get(name)
        return value if isinstance(value, Mapping) else {}

    model, own = part("model"), part("identity")
    options = own.get("options")
    given = {key: value for key, value in options.items() if value not in (None, [])} if isinstance(options, Mapping) else {}
    rows: list[list[Any]] = [
        ["Model", model.get("name")],
        ["Revision", model.get("revision")],
        ["Family and task", ", ".join(str(model[key]) for key in ("family", "task") if model.get(key))],
        ["Classes", ", ".join(str(name) for name in model["classes"][:20]) if isinstance(model.get("classes"), list) else None],
        ["Data", manifest.get("data")],
        ["Data's fingerprint", own.get("data") if own.get("data") != manifest.get("data") else None],
        ["Methods", ", ".join(found.methods)],
        ["Options", ", ".join(f"{key}={value}" for key, value in given.items())],
        ["Number type", own.get("dtype")],
        ["Device", ", ".join(str(manifest[key]) for key in ("device", "machine") if manifest.get(key))],
        ["Versions", ", ".join(f"{name} {version}" for name, version in part("versions").items())],
        ["Model check", _check(manifest.get("check"))],
        ["Run", manifest.get("run")],
        ["Finished", "yes" if found.finished else "no"],
    ]
    return [[name, visible(str(value))[:2_000]] for name, value in rows if value not in (None, "")]


def _check(gap: Any) -> str | None:
    return f"{gap:.1e}: the largest gap of all identities, on a random input" if isinstance(gap, float) else None


# --- examples ---------------------------------------------------------------------------------------------------------


def _fitting(examples: Sequence[Sampled], room: int) -> tuple[dict[int, dict[str, Any]], int]:
    """As many as there is room for, by their place in the list; and the room they take."""
    made: dict[int, dict[str, Any]] = {}
    used = 0
    for place, one in enumerate(examples):
        entry = example(one)
        size = len(safe_json(plain(entry)).encode()) + 1
        if used + size <= room:
            made[place] = entry
            used += size
    return made, used


def example(one: Sampled) -> dict[str, Any]:
    return {
        "row": one.row,
        "id": short(one.id),
        "text": visible(one.text),
        "pair": None if one.pair is None else visible(one.pair),
        "tokens": [short(token) for token in one.tokens],
        "special": [i for i, special in enumerate(one.special) if special],
        "leftOut": one.left_out,
        "query": one.query,
        "prediction": short(one.prediction),
        "probability": one.probability,
        "target": None if one.target is None else visible(one.target),
        "label": None if one.label is None else short(one.label),
        "correct": one.correct,
        "gap": one.gap,
        "seconds": one.seconds,
        "agreement": one.agreement,
        "carried": [[visible(name), visible(value)] for name, value in one.carried],
        "why": list(one.why),
        "methods": list(one.methods),
        "scores": encode(one.scores, EXACT) if one.scores.size else None,
        "maps": None,
    }


def _kept_maps(examples: Sequence[Sampled], maps: Maps, room: int) -> dict[int, list[dict[str, Any]]]:
    """The maps of as many examples as there is room for, those that come first before others."""
    short_ones = [one for one in examples if not one.left_out]
    layers = sum(len(made.scores) for _, made in maps([short_ones[0].row])) if short_ones else 0
    wanted: set[int] = set()
    planned = 0.0
    for one in short_ones:
        takes = layers * len(one.tokens) ** 2 * 0.8  # characters: a guess; what does not fit is left out below
        if planned + takes <= room:
            wanted.add(one.row)
            planned += takes
    kept: dict[int, list[dict[str, Any]]] = {}
    used = 0
    for row, made in maps(wanted) if wanted and layers else ():
        if row not in wanted:
            continue
        try:
            block = encode(made.scores.numpy().reshape(-1, len(made.tokens)), COARSE)
        except InputError:  # float16 overflowed
            wanted.discard(row)
            continue
        found = {"method": made.method, "depth": len(made.scores), "block": block}
        used += len(safe_json(found)) + 10
        kept.setdefault(row, []).append(found)
        if used > room:
            used -= sum(len(safe_json(one)) + 10 for one in kept.pop(row))
            wanted.discard(row)
    return kept
