"""The page of a corpus run: what `corpus.overview` counted, as one HTML file. Template, style and coding are a report's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError
from ..types import Map
from .packing import EXACT, Precision, encode
from .page_template import READ, Kind, filled_page, folder_name, plain, safe_json, subtitle_of, visible
from .tokens import shown

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


def page(facts: Overview, *, maps: Maps | None = None, title: str | None = None, room: int = 2_000_000) -> str:
    """The whole page as one string of at most `room` bytes. `maps` gives the kept maps of some rows, where a run has them."""
    data = told(facts)
    model, source = named(facts)
    names = {"title": title or f"{model} on {source}", "subtitle": subtitle_of([f"{facts.rows:,} rows", model], facts.methods)}
    left = room - NOTES - len(filled_page({"run": data}, RUN, **names).encode())
    if left < 0:
        raise InputError(f"the numbers of this run alone take {(room - left) / 1e6:.2f} MB. Allow more megabytes.")
    chosen, sizes = _fitting(facts.examples, left // 2 if maps is not None else left)
    if len(chosen) < len(facts.examples):
        data["notes"].append(
            f"{len(facts.examples) - len(chosen)} of {len(facts.examples)} chosen examples are left out: the file has no room "
            "for them. More megabytes hold more."
        )
    if maps is not None and chosen:
        with_maps = _kept_maps([facts.examples[i] for i in chosen], maps, left - sizes)
        for row, blocks in with_maps.items():
            next(one for one in chosen.values() if one["row"] == row)["maps"] = blocks
        without = len(chosen) - len(with_maps)
        data["held"] = f"Maps of {len(with_maps)} examples are here, {COARSE.description()}." + (
            f" Those of {without} are left out: the file has no room for them, or the text is too long." if without else ""
        )
    data["examples"] = sorted(chosen.values(), key=lambda one: one["row"])
    return filled_page({"run": data}, RUN, **names)


def named(facts: Overview) -> tuple[str, str]:
    """The model and the data, as a heading calls them."""
    model = facts.manifest.get("model")
    data = str(facts.manifest.get("data") or "a corpus")
    name = str(model.get("name")) if isinstance(model, Mapping) else "a model"
    return folder_name(name), data.rstrip("/").rpartition("/")[2] if data.endswith(FILES) else data


# --- numbers ----------------------------------------------------------------------------------------------------------


def told(facts: Overview) -> dict[str, Any]:
    """Everything but the examples."""
    methods = list(facts.methods)
    return {
        "rows": facts.rows,
        "errors": facts.errors,
        "finished": facts.finished,
        "reasons": [[visible(reason), count] for reason, count in facts.reasons],
        "methods": methods,
        "classes": [_class(one, methods) for one in facts.classes],
        "otherClasses": {"classes": facts.other_classes, "rows": facts.rows - sum(one.rows for one in facts.classes)},
        "probability": _bins(facts.probability),
        "labels": _labels(facts),
        "noLabels": None if facts.not_judged is None else visible(facts.not_judged),
        "agreement": _agreement(facts),
        "ratios": [
            {"method": name, "layers": [mean.value for mean in layers], "rows": max((mean.count for mean in layers), default=0)}
            for name, layers in facts.ratios.items()
        ],
        "gap": {
            "mean": facts.gap.value,
            "largest": facts.gap.largest if facts.gap.count else None,
            "rows": facts.gap.count,
            "zero": facts.no_gap,
            **_bins(facts.gaps),
            "worst": [_row(one) for one in facts.largest_gaps],
        },
        "lengths": {**_lengths(facts), "mean": _mean_length(facts), "largest": max(facts.lengths, default=None)},
        "seconds": {"mean": facts.seconds.value, "total": facts.seconds.total, **_bins(facts.times)},
        "slow": [_row(one) for one in facts.slow],
        "about": about(facts),
        "notes": list(facts.notes),
        "held": None,  # what is here of the maps
        "chosenAs": list(dict.fromkeys(why for one in facts.examples for why in one.why)),
        "examples": [],
    }


def _bins(bins: Bins) -> dict[str, Any]:
    return {"edges": [float(edge) for edge in bins.edges], "counts": [int(count) for count in bins.counts]}


def _class(group: OneClass, methods: Sequence[str]) -> dict[str, Any]:
    def listed(tokens: Sequence[tuple[str, float, int]]) -> list[list[Any]]:
        return [[short(token), share, times] for token, share, times in tokens]

    top = [listed(group.top.get(method, [])) for method in methods]
    ways = [
        {way: listed(tokens) for way, tokens in group.signed[method].items()} if method in group.signed else None
        for method in methods
    ]
    return {
        "name": short(group.name),
        "rows": group.rows,
        "counted": group.counted,
        "mean": group.mean,
        **_bins(group.probability),
        "top": top,
        "signed": ways,  # of methods with scores below 0: towards and against apart
    }


def short(token: str) -> str:
    text = shown(token)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _labels(facts: Overview) -> dict[str, Any] | None:
    """Accuracy, and labels (rows) by predictions (columns), of the most frequent."""
    judged = facts.judged
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


def _agreement(facts: Overview) -> dict[str, Any]:
    """[method method]: the mean of rows, and how many there are."""
    n = len(facts.methods)
    mean: list[list[float | None]] = [[None] * n for _ in range(n)]
    rows = [[0] * n for _ in range(n)]
    for (a, b), one in facts.agreement.items():
        i, j = facts.methods.index(a), facts.methods.index(b)
        mean[i][j] = mean[j][i] = one.value
        rows[i][j] = rows[j][i] = one.count
    return {"mean": mean, "rows": rows}


def _lengths(facts: Overview) -> dict[str, Any]:
    """Tokens a row, in bins of one width."""
    if not facts.lengths:
        return {"edges": [], "counts": []}
    first, last = min(facts.lengths), max(facts.lengths)
    width = -(-(last - first + 1) // WIDEST)
    edges = np.arange(first, last + width + 1, width)
    counts = np.zeros(len(edges) - 1, dtype=np.int64)
    for length, count in facts.lengths.items():
        counts[(length - first) // width] += count
    return {"edges": edges.tolist(), "counts": counts.tolist()}


def _mean_length(facts: Overview) -> float | None:
    return sum(length * count for length, count in facts.lengths.items()) / facts.rows if facts.rows else None


def _row(one: Mapping[str, Any]) -> dict[str, Any]:
    return {**one, "id": short(str(one["id"]))}


def about(facts: Overview) -> list[list[str]]:
    """Where the numbers come from."""
    manifest = facts.manifest

    def part(name: str) -> Mapping[str, Any]:
        value = manifest.get(name)
        return value if isinstance(value, Mapping) else {}

    model, identity = part("model"), part("identity")
    options = identity.get("options")
    chosen = {key: value for key, value in options.items() if value not in (None, [])} if isinstance(options, Mapping) else {}
    rows: list[list[Any]] = [
        ["Model", model.get("name")],
        ["Revision", model.get("revision")],
        ["Family and task", ", ".join(str(model[key]) for key in ("family", "task") if model.get(key))],
        ["Classes", ", ".join(str(name) for name in model["classes"][:20]) if isinstance(model.get("classes"), list) else None],
        ["Data", manifest.get("data")],
        ["Data's fingerprint", identity.get("data") if identity.get("data") != manifest.get("data") else None],
        ["Methods", ", ".join(facts.methods)],
        ["Options", ", ".join(f"{key}={value}" for key, value in chosen.items())],
        ["Number type", identity.get("dtype")],
        ["Device", ", ".join(str(manifest[key]) for key in ("device", "machine") if manifest.get(key))],
        ["Versions", ", ".join(f"{name} {version}" for name, version in part("versions").items())],
        ["Model check", _check(manifest.get("check"))],
        ["Run", manifest.get("run")],
        ["Finished", "yes" if facts.finished else "no"],
    ]
    return [[name, visible(str(value))[:2_000]] for name, value in rows if value not in (None, "")]


def _check(gap: Any) -> str | None:
    return f"{gap:.1e}: the largest gap of all identities, on a random input" if isinstance(gap, float) else None


# --- examples ---------------------------------------------------------------------------------------------------------


def _fitting(examples: Sequence[Sampled], room: int) -> tuple[dict[int, dict[str, Any]], int]:
    """As many as there is room for, by their place in the list; and the room they take."""
    entries: dict[int, dict[str, Any]] = {}
    size_of_all = 0
    for place, sample in enumerate(examples):
        entry = example(sample)
        size = len(safe_json(plain(entry)).encode()) + 1
        if size_of_all + size <= room:
            entries[place] = entry
            size_of_all += size
    return entries, size_of_all


def example(sample: Sampled) -> dict[str, Any]:
    return {
        "row": sample.row,
        "id": short(sample.id),
        "text": visible(sample.text),
        "pair": None if sample.pair is None else visible(sample.pair),
        "tokens": [short(token) for token in sample.tokens],
        "special": [i for i, special in enumerate(sample.special) if special],
        "leftOut": sample.left_out,
        "query": sample.query,
        "prediction": short(sample.prediction),
        "probability": sample.probability,
        "target": None if sample.target is None else visible(sample.target),
        "label": None if sample.label is None else short(sample.label),
        "correct": sample.correct,
        "gap": sample.gap,
        "seconds": sample.seconds,
        "agreement": sample.agreement,
        "carried": [[visible(name), visible(value)] for name, value in sample.carried],
        "why": list(sample.why),
        "methods": list(sample.methods),
        "scores": encode(sample.scores, EXACT) if sample.scores.size else None,
        "maps": None,
    }


def _kept_maps(examples: Sequence[Sampled], maps: Maps, room: int) -> dict[int, list[dict[str, Any]]]:
    """The maps of as many examples as there is room for, those that come first before others."""
    short_ones = [sample for sample in examples if not sample.left_out]
    layers = sum(len(scores.scores) for _, scores in maps([short_ones[0].row])) if short_ones else 0
    rows: set[int] = set()
    planned = 0.0
    for sample in short_ones:
        takes = layers * len(sample.tokens) ** 2 * 0.8  # characters: a guess; what does not fit is left out below
        if planned + takes <= room:
            rows.add(sample.row)
            planned += takes
    blocks: dict[int, list[dict[str, Any]]] = {}
    size = 0
    for row, scores in maps(rows) if rows and layers else ():
        if row not in rows:
            continue
        try:
            block = encode(scores.scores.numpy().reshape(-1, len(scores.tokens)), COARSE)
        except InputError:  # float16 overflowed
            rows.discard(row)
            continue
        entry = {"method": scores.method, "depth": len(scores.scores), "block": block}
        size += len(safe_json(entry)) + 10
        blocks.setdefault(row, []).append(entry)
        if size > room:
            size -= sum(len(safe_json(sample)) + 10 for sample in blocks.pop(row))
            rows.discard(row)
    return blocks
