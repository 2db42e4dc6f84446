"""What On Identifiability in Transformers (Brunner et al. 2020) says about context (section 5.3, C.3, D.2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ...metrics.mixing_stats import DISTANCES as GROUPS
from ...runs.experiments.claims import Check, Claim, Examples, Verdict, in_all, incomparable
from ...runs.experiments.experiment import Outcome, Setup
from ...runs.experiments.layer_curves import verdict_between_runs, verdict_on_trend
from ...types import Record
from .token_claims import MRPC_ALONE
from .values import HTA, above_zero, depth_of, less, method_named, of_layers, select, thirds, three_layers, with_hta


def group_name(first: int, last: int | None) -> str:
    return f"{first}+" if last is None else str(first) if first == last else f"{first}-{last}"


NAMES = tuple(group_name(*group) for group in GROUPS)


def _by_depth(records: Sequence[Record], method: str, group: str) -> list[Examples]:
    """What a group contributes in each layer, by text. The division by the sum over the layers (C.2) changes no rank."""
    layers = range(1, depth_of(records) + 1)
    return [of_layers(records, method, "distance", [layer], group=group) for layer in layers]


@with_hta
def near_context_is_early(setup: Setup, records: Sequence[Record], method: str) -> Verdict:
    """The first third of the layers against the others: a curve that rises first and falls later may have any trend."""
    depth = depth_of(records)
    first = max(1, round(depth / 3))
    ranges = (range(1, first + 1), range(first + 1, depth + 1))
    early, late = (of_layers(records, method, "distance", layers, group=NAMES[0]) for layers in ranges)
    return above_zero({f"layers 1 to {first} - layers {first + 1} to {depth}": less(early, late)}, seed=setup.seed)


@with_hta
def far_context_is_late(setup: Setup, records: Sequence[Record], method: str) -> Verdict:
    curve = _by_depth(records, method, NAMES[-1])
    if not all(curve):
        return incomparable("no text has neighbours 11 or more away")
    return verdict_on_trend({"11th and on": curve}, seed=setup.seed)


def _by_place(records: Sequence[Record], method: str, metric: str, layer: int) -> dict[str, Examples]:
    """What all positions of a text have from each relative place in one layer, as the totals of Figure 4b; by text."""
    places = sorted({r.info["group"] for r in select(records, metric, method)}, key=int)
    return {place: _sums(select(records, metric, method, layer=layer, group=place)) for place in places}


def _of_complete_texts(places: Mapping[str, Examples]) -> dict[str, Examples]:
    """The same of the texts that reach as far as most do on both sides: a place that few texts have is left out."""
    most = max((len(one) for one in places.values()), default=0)
    return {place: one for place, one in places.items() if 2 * len(one) >= most}


BESIDE = ("-1", "+1")


def _nearest_of_each_side(places: Sequence[str]) -> list[tuple[str, str]]:
    """The nearest place of each side with every other place of that side."""
    return [(near, place) for near in BESIDE for place in places if place[0] == near[0] and place != near]


def _nearest_of_all(places: Sequence[str]) -> list[tuple[str, str]]:
    """The two nearest places with every other one, the middle itself included."""
    return [(near, place) for near in BESIDE for place in places if place not in BESIDE]


def _nearest_above(metric: str, pairs: Callable[[Sequence[str]], list[tuple[str, str]]], absent: str) -> Check:
    """The nearest places against others in each of the layers of the figure; `absent` says what texts without them lack."""

    def check(setup: Setup, records: Sequence[Record], method: str) -> Verdict:
        layers = dict.fromkeys(three_layers(depth_of(records)))
        shares = {f"layer {layer}": _of_complete_texts(_by_place(records, method, metric, layer)) for layer in layers}
        if not all(place in places for place in BESIDE for places in shares.values()):
            return incomparable(absent)
        return in_all(shares, pairs(list(next(iter(shares.values())))), seed=setup.seed)

    return with_hta(check)


nearest_contribute_most = _nearest_above("neighbour", _nearest_of_each_side, "no text has tokens on both sides")
beside_the_separator = _nearest_above("around", _nearest_of_all, "no text has tokens on both sides of a [SEP]")


@with_hta
def context_is_local(setup: Setup, records: Sequence[Record], method: str) -> Verdict:
    """What comes from the places of Figure 4b, of all that comes from other tokens, in each of the layers of the figure."""
    reach = max((int(r.info["group"]) for r in select(records, "neighbour", method)), default=0)
    shares = {
        f"layer {layer}: share of up to {reach} away - 0.5": _share_within(records, method, layer)
        for layer in dict.fromkeys(three_layers(depth_of(records)))
    }
    return above_zero(shares, seed=setup.seed) if all(shares.values()) else incomparable("no text has two tokens")


def _share_within(records: Sequence[Record], method: str, layer: int) -> dict[str, float]:
    """Of each text: the part of its context that comes from the places that were measured, less one half."""
    near, whole = (_sums(select(records, metric, method, layer=layer)) for metric in ("neighbour", "context"))
    return {text: near.get(text, 0.0) / total - 0.5 for text, total in whole.items() if total > 0}


def far_context_is_smaller(runs: Sequence[Outcome]) -> Verdict:
    """What comes from the places that were measured: more in the first run than in the second, layer by layer."""
    near, far = (_within_by_layer(run) for run in runs)
    return verdict_between_runs(near, far, seed=runs[0].setup.seed)


def _within_by_layer(run: Outcome) -> dict[str, Examples]:
    """The share of the near places of each text, in the layers of the figure; nothing where HTA was not run."""
    method = method_named(run.setup, HTA)
    layers = dict.fromkeys(three_layers(depth_of(run.records)))
    return {f"up to 10 away, layer {i}": _share_within(run.records, method, i) for i in layers} if method else {}


def _sums(records: Sequence[Record]) -> dict[str, float]:
    """The sum over positions of each text."""
    sums: dict[str, float] = {}
    for r in records:
        sums[r.example] = sums.get(r.example, 0.0) + r.value * r.info.get("count", 1)
    return sums


def _sides(records: Sequence[Record], method: str, layer: int) -> Examples:
    """The mean share of a token of the second text less that of one of the first, in one layer."""
    second, first = (of_layers(records, method, "sentence", [layer], group=name) for name in ("second", "first"))
    return less(second, first)


@with_hta
def second_text_gives_more(setup: Setup, records: Sequence[Record], method: str) -> Verdict:
    """In each of the layers of the figure."""
    layers = dict.fromkeys(three_layers(depth_of(records)))
    sides = {
        f"layer {layer}: a token of the second - of the first text": _sides(records, method, layer) for layer in layers
    }
    return above_zero(sides, seed=setup.seed) if all(sides.values()) else incomparable("no example has two texts")


def _of_thirds(records: Sequence[Record], layer: int) -> tuple[Examples, Examples, Examples]:
    """The mean share that [CLS] takes from a token of the first, the middle and the last third of the other places, by text."""
    texts: dict[str, dict[int, float]] = {}
    for r in select(records, "from place", layer=layer):
        texts.setdefault(r.example, {})[int(r.info["group"])] = r.value
    whole = {text: thirds(max(places)) for text, places in texts.items() if len(places) > 2}
    first, middle, last = (
        {text: float(np.mean([texts[text][place] for place in some[part]])) for text, some in whole.items()}
        for part in range(3)
    )
    return first, middle, last


@with_hta
def middle_gives_most(setup: Setup, records: Sequence[Record], method: str) -> Verdict:
    """In each of the layers of the figure."""
    contrasts: dict[str, Examples] = {}
    for layer in dict.fromkeys(three_layers(depth_of(records))):
        first, middle, last = _of_thirds(select(records, "from place", method), layer)
        contrasts[f"layer {layer}: middle - first third"] = less(middle, first)
        contrasts[f"layer {layer}: middle - last third"] = less(middle, last)
    return above_zero(contrasts, seed=setup.seed)


AT_D2: dict[str, str | None] = {"cola": "D.2.1, Figure 41", "mnli": "D.2.2, Figure 43"}
CONTEXT_CLAIMS = (
    Claim(
        "5.3, Figure 4a",
        "the closest neighbours contribute more in the first layers (read here as the first third) than in later ones",
        "in the figure",
        near_context_is_early,
        AT_D2,
    ),
    Claim(
        "5.3, Figure 4a",
        "the most distant neighbours contribute most in deeper layers: their contribution rises with depth",
        "in the figure",
        far_context_is_late,
        AT_D2,
    ),
    Claim(
        "5.3, Figure 4b",
        "the closest neighbours contribute most, regardless of depth: in the first, middle and last layer the nearest token of "
        "each side more than each other of that side that is up to 10 away (totals over the positions of a text, as in the "
        "figure)",
        "in the figure",
        nearest_contribute_most,
        AT_D2,
    ),
    Claim(
        "5.3, Figure 4b",
        "context remains mostly local (read here as: in the first, middle and last layer more than half of it comes from tokens "
        "up to 10 places away)",
        "in the figure",
        context_is_local,
        AT_D2,
    ),
    Claim(
        "C.3, Figure 18a",
        "the context of [CLS] comes mainly from the middle of the input; read here as: in the first, middle and last layer a "
        "token of the middle third of the places gives more than one of the first and of the last third",
        "from the tokens around position 30, roughly the middle",
        middle_gives_most,
        MRPC_ALONE,
    ),
    Claim(
        "C.3, Figure 18b",
        "[CLS] takes most from the tokens directly before and after [SEP]: in the first, middle and last layer more from each "
        "than from each other place up to 10 from [SEP]",
        "in the figure",
        beside_the_separator,
        MRPC_ALONE,
    ),
    Claim(
        "C.3, Figure 18b",
        "the second sentence contributes more to [CLS] than the first (read here as: a token of the second sentence more than "
        "one of the first), in the first, middle and last layer",
        "it seems so",
        second_text_gives_more,
        MRPC_ALONE,
    ),
)
