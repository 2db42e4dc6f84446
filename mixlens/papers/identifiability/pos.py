"""Evaluations of On Identifiability in Transformers (Brunner et al. 2020), Appendix C.5: which parts of speech keep most of their
own token."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from ...base.errors import InputError
from ...data import span_tokens
from ...metrics.arguments import tags_at
from ...metrics.mixing_stats import BRUNNER
from ...runs.experiments.claims import Claim, Verdict, bounded, incomparable, most
from ...runs.experiments.experiment import Setup, experiment
from ...runs.experiments.layer_curves import verdict_between_runs
from ...runs.experiments.tables import Table, by
from ...types import Example, Record, Trace
from ..globenc.main import per_layer
from .mixing import DIFFERS_HTA, NOT_OWN, OWN, every_contribution, position_records, quantile_of
from .values import above_zero, almost_equal, depth_of, less, select, three_layers, values_in, with_hta

TAGS = {"penn": "penn", "universal": "pos"}  # option -> field of Example.info
# Those that Figure 29 names, Penn's tags, then the universal ones of the same words.
CONTENT = frozenset(
    (
        *["NNP", "NNS", "NN", "VBN", "VB", "VBD", "VBP", "JJ", "JJS", "RBR", "RBS"],
        *["NOUN", "PROPN", "VERB", "ADJ", "ADV"],
    )
)
FUNCTION = frozenset(
    (*["WP", "WDT", "IN", "CC", "SYM", "PRP$", "POS", "DT"], *["DET", "ADP", "PART", "CCONJ", "SCONJ"])
)
# Those that the caption of Figure 37 names in words: all nouns, verbs, adjectives and adverbs; and the others.
CONTENT_37 = CONTENT | {"NNPS", "VBZ", "VBG", "JJR", "RB"}
FUNCTION_37 = frozenset(
    (*["DT", "PDT", "IN", "PRP", "PRP$", "WP", "WP$", "WDT", "TO", "SYM"], *["DET", "ADP", "PRON", "PART"])
)
CLS, SEP = "[CLS]", "[SEP]"
ENOUGH = 20  # tokens of a part of speech whose median is judged


def tags_of(example: Example, trace: Trace, tags: str = "universal") -> tuple[str | None, ...]:
    """[pos]: the gold part of speech of each token; special tokens have their own names; None where there is no gold token."""
    spans: dict[str, list[Any]] = {}
    for start, end, tag in example.info[TAGS[tags]]:
        spans.setdefault(tag, []).append((start, end))
    names = tags_at({tag: span_tokens(some, trace) for tag, some in spans.items()}, len(trace))
    return tuple(
        token if special else tag for token, tag, special in zip(trace.tokens, names, trace.special, strict=True)
    )


# --- tables and figure ------------------------------------------------------------------------------------------------------


def finish_pos(setup: Setup, records: list[Record]) -> list[Table]:
    medians, counts = _medians(setup, records), _counts(setup, records)
    lost = select(records, NOT_OWN)
    more = per_layer("not_own_top", _LOST, lost, ("method", "tag"), seed=setup.seed, note=_NOTE)
    order = [row[:2] for row in medians.rows]
    rows = tuple(sorted(more.rows, key=lambda row: order.index(row[:2])))
    return [
        medians,
        Table(more.name, more.title, more.columns, rows, more.note, printed=False),
        _boxes(setup, records),
        counts,
    ]


_LOST = "Share of tokens to which another contributes more, by part of speech"
_NOTE = "In the order of the median in the last layer. Intervals: texts are resampled, not tokens."


def _medians(setup: Setup, records: Sequence[Record]) -> Table:
    """Figures 26 to 37: the median of own share by part of speech and layer."""
    layers = range(1, depth_of(records) + 1)
    groups = by(select(records, OWN), "method", "tag")
    rows = [
        (*key, *(quantile_of(select(group, OWN, layer=i), 0.5, setup.seed) for i in layers))
        for key, group in groups.items()
    ]
    rows.sort(key=lambda row: (setup.methods.index(row[0]), -row[-1].mean if row[-1] else np.inf))
    columns = ("method", "tag", *(f"layer {layer}" for layer in layers))
    return Table(
        "own_share", "Share of the own token by part of speech, median over tokens", columns, tuple(rows), _NOTE
    )


def _boxes(setup: Setup, records: Sequence[Record]) -> Table:
    """The box of each part of speech in each layer."""
    groups = by(select(records, OWN), "method", "tag", "layer")
    quantiles = (0.05, 0.25, 0.5, 0.75, 0.95)
    rows = [(*key, *map(float, np.quantile([r.value for r in group], quantiles))) for key, group in groups.items()]
    columns = ("method", "tag", "layer", *(f"{share:.0%}" for share in quantiles))
    return Table("boxes", "Quantiles of the share of the own token", columns, tuple(rows), printed=False)


def _counts(setup: Setup, records: Sequence[Record]) -> Table:
    first = select(records, OWN, setup.methods[0], layer=1)
    rows = tuple((tag, len(group)) for (tag,), group in sorted(by(first, "tag").items()))
    return Table("counts", "Tokens of each part of speech", ("tag", "tokens"), rows)


def figure_pos(setup: Setup, tables: list[Table], figure: Any) -> None:
    """One panel of boxes for each of the first, middle and last layer, ordered by the last layer."""
    named = {table.name: table for table in tables}
    order = [row[1] for row in named["own_share"].rows if row[0] == setup.methods[0]]
    shown = sorted(set(three_layers(max(named["boxes"].column("layer")))))
    figure.set_size_inches(9, 3 * len(shown))
    for axes, layer in zip(figure.subplots(len(shown), 1, squeeze=False)[:, 0], shown, strict=True):
        _draw_tags(
            axes,
            {row[1]: row[3:] for row in named["boxes"].rows if (row[0], row[2]) == (setup.methods[0], layer)},
            order,
        )
        axes.set_title(f"layer {layer}", fontsize=8)


def _draw_tags(axes: Any, quantiles: dict[Any, Any], order: Sequence[Any]) -> None:
    """A box for each part of speech from its five quantiles."""
    names = ("whislo", "q1", "med", "q3", "whishi")
    axes.bxp(
        [{**dict(zip(names, quantiles[tag], strict=True)), "label": tag} for tag in order if tag in quantiles],
        showfliers=False,
    )
    axes.tick_params(axis="x", labelrotation=90, labelsize=6)


# --- claims -----------------------------------------------------------------------------------------------------------------


@with_hta
def first_token_keeps_most(setup: Setup, records: Sequence[Record], method: str) -> Verdict:
    return _median_of(CLS, select(records, OWN, method, layer=1, tag=CLS), setup.seed, low=0.4)


@with_hta
def others_are_mixed(setup: Setup, records: Sequence[Record], method: str) -> Verdict:
    """The median of every part of speech that has enough tokens."""
    groups = by(select(records, OWN, method, layer=1), "tag")
    medians = {
        tag: quantile_of(some, 0.5, setup.seed) for (tag,), some in groups.items() if tag != CLS and len(some) >= ENOUGH
    }
    words = {tag: bounded({tag: one}, high=0.35).word for tag, one in medians.items() if one is not None}
    return most(words, against="not below 0.35")


def _median_of(name: str, records: Sequence[Record], seed: int, **bounds: float) -> Verdict:
    if not records:
        return incomparable(f"no token is tagged so: {name}")
    return bounded({f"{name}, median of layer 1": quantile_of(records, 0.5, seed)}, **bounds)


@with_hta
def separator_like_the_first(setup: Setup, records: Sequence[Record], method: str) -> Verdict:
    """Layer 2 of 12; the same part of another depth."""
    layer = max(1, round(depth_of(records) / 6))
    shares = {tag: values_in(records, method, OWN, layer, [tag]) for tag in (SEP, CLS)}
    return almost_equal({f"layer {layer}: [SEP] - [CLS]": less(shares[SEP], shares[CLS])}, seed=setup.seed)


@with_hta
def specials_fall(setup: Setup, records: Sequence[Record], method: str) -> Verdict:
    """Layer 4 of 12 against the layer before; the same part of another depth."""
    layer = max(2, round(depth_of(records) / 3))
    return above_zero(
        {f"{tag}: {layer - 1} - {layer}": _step(records, method, tag, layer) for tag in (CLS, SEP)}, seed=setup.seed
    )


@with_hta
def separator_rises(setup: Setup, records: Sequence[Record], method: str) -> Verdict:
    """Layer 9 of 12 against the layer before; the same part of another depth."""
    layer = max(2, round(3 * depth_of(records) / 4))
    step = {text: -fall for text, fall in _step(records, method, SEP, layer).items()}
    return above_zero({f"[SEP]: {layer} - {layer - 1}": step}, seed=setup.seed)


def _step(records: Sequence[Record], method: str, tag: str, layer: int) -> dict[str, float]:
    """The share of the own token of one tag in the layer before, less that in the layer, by text."""
    before, after = (values_in(records, method, OWN, i, [tag]) for i in (layer - 1, layer))
    return less(before, after)


@with_hta
def content_words_keep_more(setup: Setup, records: Sequence[Record], method: str) -> Verdict:
    """Content words less function words of each text, in every layer from a third of the depth on: 4 to 12 of 12."""
    depth = depth_of(records)
    layers = range(max(1, round(depth / 3)), depth + 1)
    sides = {(name, i): values_in(records, method, OWN, i, tags) for name, tags in _KINDS for i in layers}
    return above_zero({f"layer {i}": less(sides["content", i], sides["function", i]) for i in layers}, seed=setup.seed)


_KINDS = (("content", CONTENT), ("function", FUNCTION))


@with_hta
def content_words_keep_more_at_last(setup: Setup, records: Sequence[Record], method: str) -> Verdict:
    """The words of Figure 37 of each text, in the last layer."""
    depth = depth_of(records)
    content, function = (values_in(records, method, OWN, depth, tags) for tags in (CONTENT_37, FUNCTION_37))
    return above_zero({f"layer {depth}": less(content, function)}, seed=setup.seed)


def _widths(records: Sequence[Record], method: str, layer: int, tags: Collection[str]) -> dict[str, float]:
    """The width from 25 to 75 % of the tokens of each of these types that has enough."""
    groups = by(select(records, OWN, method, layer=layer), "tag")
    return {tag: _width(some) for (tag,), some in groups.items() if tag in tags and len(some) >= ENOUGH}


def _width(records: Sequence[Record]) -> float:
    low, high = np.quantile([r.value for r in records], (0.25, 0.75))
    return float(high - low)


@with_hta
def function_words_get_even(setup: Setup, records: Sequence[Record], method: str) -> Verdict:
    """Layer 5 of 12 against the layer before; the same part of another depth."""
    layer = max(2, round(5 * depth_of(records) / 12))
    before, after = (_widths(records, method, i, FUNCTION) for i in (layer - 1, layer))
    return above_zero({f"width, {layer - 1} - {layer}": less(before, after)}, seed=setup.seed)


@with_hta
def content_words_vary_more(setup: Setup, records: Sequence[Record], method: str) -> Verdict:
    """Layer 8 of 12; the same part of another depth."""
    layer = max(1, round(2 * depth_of(records) / 3))
    content, function = ({f"width, layer {layer}": _widths(records, method, layer, tags)} for _, tags in _KINDS)
    return verdict_between_runs(content, function, seed=setup.seed)


def prepare_pos(setup: Setup) -> None:
    tags = setup.options["tags"]
    if tags not in TAGS:
        raise InputError(f"tags= is penn or universal, not {tags!r}.")
    lacking = [str(example.id) for example in setup.examples if not example.info.get(TAGS[tags])]
    if lacking:
        raise InputError(
            f"{len(lacking)} examples have no {tags} tags ({', '.join(lacking[:3])}). Use tags=universal, or other data."
        )


@experiment(
    name="id-pos",
    paper=BRUNNER,
    shows="Figures 26-37: the own token's contribution by part of speech (C.5)",
    data="ud_english",
    model="agreement",
    methods=("hta",),
    finish=finish_pos,
    figure=figure_pos,
    needs=("pos",),
    takes="map",
    options={"tags": "penn"},
    prepare=prepare_pos,
    differs=(
        *DIFFERS_HTA,
        "The paper tags MRPC with the Stanford tagger. Here texts and gold tags are those of a treebank: Penn's tags, or "
        "with tags=universal the universal ones.",
        "VBZ, VBG, RB and JJR are not among the tags that Figure 29 names, and not in the claims about them. Figure 37 names its "
        "types in words: there all nouns, verbs, adjectives and adverbs are meant.",
        "The figure draws the first, middle and last layer, the paper all twelve. The tables have every layer.",
        "The whiskers of the boxes reach from 5 to 95 % of the tokens; the paper does not say how far its own reach.",
    ),
    claims=(
        Claim("C.5, Figure 26", "in layer 1 the median of [CLS] is above 0.40", "above 0.40", first_token_keeps_most),
        Claim(
            "C.5, Figure 26",
            f"in layer 1 most other types (read here as: three quarters of the tags of {ENOUGH} tokens or more) have a median "
            "below 0.35",
            "below 0.35",
            others_are_mixed,
        ),
        Claim(
            "C.5, Figure 27",
            "in layer 2 of 12 [SEP] keeps as much as [CLS] (read here as: within 0.05, mean over texts)",
            "in the figure",
            separator_like_the_first,
        ),
        Claim("C.5, Figure 29", "in layer 4 of 12 the shares of [CLS] and [SEP] fall", "in the figure", specials_fall),
        Claim("C.5, Figure 34", "in layer 9 of 12 the share of [SEP] rises", "in the figure", separator_rises),
        Claim(
            "C.5, Figure 29",
            "from layer 4 of 12 to the last nouns, verbs, adjectives and adverbs keep more than words of less meaning (the tags "
            "that Figure 29 names)",
            "in the figures",
            content_words_keep_more,
        ),
        Claim(
            "C.5, Figure 30",
            "in layer 5 of 12 words of less meaning vary less within their type than in layer 4 (the width from 25 to 75 % of "
            f"the tokens of each tag of Figure 29 with {ENOUGH} tokens or more; the tags are the examples)",
            "in the figures",
            function_words_get_even,
        ),
        Claim(
            "C.5, Figure 33",
            "in layer 8 of 12 nouns, verbs, adjectives and adverbs vary more within their type than words of less meaning (the "
            "same widths; tags are resampled)",
            "in the figure",
            content_words_vary_more,
        ),
        Claim(
            "C.5, Figure 37",
            "in the last layer nouns, verbs, adjectives and adverbs keep more than determiners, prepositions, pronouns, “to” and "
            "symbols (all of these together, in each text)",
            "in the figure",
            content_words_keep_more_at_last,
        ),
    ),
)
def parts_of_speech(setup: Setup, example: Example) -> list[Record]:
    """Which parts of speech keep most of their own token, and which take most from others?"""
    trace = setup.model.trace(example)
    tags = tags_of(example, trace, setup.options["tags"])
    return [
        r
        for method, scores in every_contribution(trace, setup)
        for r in position_records(example, method, scores, tags)
    ]
