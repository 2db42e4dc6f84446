"""Evaluations of On Identifiability in Transformers (Brunner et al. 2020), Appendix C.5: which parts of speech keep
most of their own token."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from ...base.errors import InputError
from ...data import span_tokens
from ...metrics.arguments import tags_at
from ...runs.experiments.claims import Claim, Values, Verdict, bounded, incomparable, most
from ...runs.experiments.experiment import Setup
from ...runs.experiments.layer_curves import verdict_between_runs
from ...runs.experiments.tables import Table, by
from ...types import Example, Record, Trace
from ..globenc.main import per_layer
from .mixing import DIFFERS_HTA, NOT_OWN, OWN, QUANTILES, every_contribution, position_records, quantile_of
from .values import (
    CLS,
    IN_FIGURE,
    IN_FIGURES,
    SEP,
    Hta,
    Rows,
    almost_equal,
    boxes,
    by_hta,
    depth_of,
    evaluation,
    of_twelve,
    select,
    three_layers,
)

TAGS = {"penn": "penn", "universal": "pos"}  # option -> field of Example.info
# Those that Figure 29 names, Penn's tags, then the universal ones of the same words.
CONTENT = {
    "NNP",
    "NNS",
    "NN",
    "VBN",
    "VB",
    "VBD",
    "VBP",
    "JJ",
    "JJS",
    "RBR",
    "RBS",
    "NOUN",
    "PROPN",
    "VERB",
    "ADJ",
    "ADV",
}
FUNCTION = {"WP", "WDT", "IN", "CC", "SYM", "PRP$", "POS", "DT", "DET", "ADP", "PART", "CCONJ", "SCONJ"}
# Those that the caption of Figure 37 names in words: all nouns, verbs, adjectives and adverbs; and the others.
CONTENT_37 = CONTENT | {"NNPS", "VBZ", "VBG", "JJR", "RB"}
FUNCTION_37 = {"DT", "PDT", "IN", "PRP", "PRP$", "WP", "WP$", "WDT", "TO", "SYM", "DET", "ADP", "PRON", "PART"}
ENOUGH = 20  # tokens of a part of speech whose median is judged


def tags_of(example: Example, trace: Trace, tags: str = "universal") -> tuple[str | None, ...]:
    """[pos]: the gold part of speech of each token; special tokens have their own names; None where there is no gold
    token."""
    spans: dict[str, list[Any]] = {}
    for start, end, tag in example.info[TAGS[tags]]:
        spans.setdefault(tag, []).append((start, end))
    names = tags_at({tag: span_tokens(some, trace) for tag, some in spans.items()}, len(trace))
    return tuple(trace.tokens[i] if trace.special[i] else tag for i, tag in enumerate(names))


# --- tables and figure ------------------------------------------------------------------------------------------------


def finish_pos(setup: Setup, records: list[Record]) -> list[Table]:
    """The median of own share by part of speech and layer (Figures 26 to 37), P, and the box of each part of speech in
    each layer."""
    own, lost, layers = select(records, OWN), select(records, NOT_OWN), range(1, depth_of(records) + 1)
    rows = Rows()
    for key, group in by(own, "method", "tag").items():
        rows.append((*key, *(quantile_of(select(group, OWN, layer=i), 0.5, setup.seed) for i in layers)))
    rows.sort(key=lambda row: (setup.methods.index(row[0]), -row[-1].mean if row[-1] else np.inf))
    note = "In the order of the median in the last layer. Intervals: texts are resampled, not tokens."
    title = "Share of tokens to which another contributes more, by part of speech"
    more = per_layer("not_own_top", title, lost, ("method", "tag"), seed=setup.seed, note=note)
    order = [row[:2] for row in rows]
    in_order = tuple(sorted(more.rows, key=lambda row: order.index(row[:2])))
    columns = ("method", "tag", *(f"layer {layer}" for layer in layers))
    quantiles = [
        (*key, *map(float, np.quantile([r.value for r in group], list(QUANTILES.values()))))
        for key, group in by(own, "method", "tag", "layer").items()
    ]
    names = ("method", "tag", "layer", *(f"{share:.0%}" for share in QUANTILES.values()))
    counts = sorted(
        (tag, len(group)) for (tag,), group in by(select(own, OWN, setup.methods[0], layer=1), "tag").items()
    )
    return [
        Table("own_share", "Share of the own token by part of speech, median over tokens", columns, tuple(rows), note),
        Table(more.name, title, more.columns, in_order, note, printed=False),
        Table("boxes", "Quantiles of the share of the own token", names, tuple(quantiles), printed=False),
        Table("counts", "Tokens of each part of speech", ("tag", "tokens"), tuple(counts)),
    ]


def figure_pos(setup: Setup, tables: list[Table], figure: Any) -> None:
    """One panel of boxes for each of the first, middle and last layer, ordered by the last layer."""
    named: dict[str, Any] = {table.name: table for table in tables}
    order = [row[1] for row in named["own_share"].rows if row[0] == setup.methods[0]]
    shown = sorted(set(three_layers(max(named["boxes"].column("layer")))))
    figure.set_size_inches(9, 3 * len(shown))
    for axes, layer in zip(figure.subplots(len(shown), 1, squeeze=False)[:, 0], shown, strict=True):
        of_tag = {row[1]: row[3:] for row in named["boxes"].rows if (row[0], row[2]) == (setup.methods[0], layer)}
        boxes(axes, {tag: of_tag[tag] for tag in order if tag in of_tag})
        axes.tick_params(axis="x", labelrotation=90, labelsize=6)
        axes.set_title(f"layer {layer}", fontsize=8)


# --- claims -----------------------------------------------------------------------------------------------------------


def own(hta: Hta, layer: int, tags: Collection[str]) -> Values:
    """The mean of each text over its tokens with one of these tags."""
    return Hta(hta.run.where(lambda r: r.info.get("tag") in tags), hta.method)(OWN, layer)


def first_token_keeps_most(hta: Hta) -> Verdict:
    records = hta.records(OWN, layer=1, tag=CLS)
    if not records:
        return incomparable(f"no token is tagged so: {CLS}")
    return bounded({f"{CLS}, median of layer 1": quantile_of(records, 0.5, hta.seed)}, low=0.4)


def others_are_mixed(hta: Hta) -> Verdict:
    """The median of every part of speech that has enough tokens."""
    words = {}
    for (tag,), some in by(hta.records(OWN, layer=1), "tag").items():
        median = quantile_of(some, 0.5, hta.seed)
        if tag != CLS and len(some) >= ENOUGH and median is not None:
            words[tag] = bounded({tag: median}, high=0.35).word
    return most(words, against="not below 0.35")


def separator_like_the_first(hta: Hta) -> Verdict:
    """Layer 2 of 12."""
    layer = of_twelve(2, hta.depth)
    apart = own(hta, layer, [SEP]) - own(hta, layer, [CLS])
    return almost_equal({f"layer {layer}: [SEP] - [CLS]": apart}, seed=hta.seed)


def specials_fall(hta: Hta) -> Mapping[str, Values]:
    """Layer 4 of 12 against the layer before."""
    at = of_twelve(4, hta.depth, least=2)
    return {f"{tag}: {at - 1} - {at}": own(hta, at - 1, [tag]) - own(hta, at, [tag]) for tag in (CLS, SEP)}


def separator_rises(hta: Hta) -> Mapping[str, Values]:
    """Layer 9 of 12 against the layer before."""
    at = of_twelve(9, hta.depth, least=2)
    return {f"[SEP]: {at} - {at - 1}": own(hta, at, [SEP]) - own(hta, at - 1, [SEP])}


def widths(hta: Hta, layer: int, tags: Collection[str]) -> Values:
    """The width from 25 to 75 % of the tokens of each of these types that has enough."""
    found = Values()
    for (tag,), some in by(hta.records(OWN, layer=layer), "tag").items():
        if tag in tags and len(some) >= ENOUGH:
            low, high = np.quantile([r.value for r in some], (0.25, 0.75))
            found[tag] = float(high - low)
    return found


def function_words_get_even(hta: Hta) -> Mapping[str, Values]:
    """Layer 5 of 12 against the layer before."""
    at = of_twelve(5, hta.depth, least=2)
    return {f"width, {at - 1} - {at}": widths(hta, at - 1, FUNCTION) - widths(hta, at, FUNCTION)}


def content_words_vary_more(hta: Hta) -> Verdict:
    """Layer 8 of 12."""
    layer = of_twelve(8, hta.depth)
    content, function = ({f"width, layer {layer}": widths(hta, layer, tags)} for tags in (CONTENT, FUNCTION))
    return verdict_between_runs(content, function, seed=hta.seed)


def prepare_pos(setup: Setup) -> None:
    tags = setup.options["tags"]
    if tags not in TAGS:
        raise InputError(f"tags= is penn or universal, not {tags!r}.")
    lacking = [str(example.id) for example in setup.examples if not example.info.get(TAGS[tags])]
    if lacking:
        raise InputError(
            f"{len(lacking)} examples have no {tags} tags ({', '.join(lacking[:3])}). Use tags=universal, or other "
            "data."
        )


@evaluation(
    name="id-pos",
    shows="Figures 26-37: the own token's contribution by part of speech (C.5)",
    data="ud_english",
    methods=("hta",),
    finish=finish_pos,
    figure=figure_pos,
    needs=("pos",),
    takes="map",
    options={"tags": "penn"},
    prepare=prepare_pos,
    differs=(
        *DIFFERS_HTA,
        "The paper tags MRPC with the Stanford tagger. Here texts and gold tags are those of a treebank: Penn's tags, "
        "or with tags=universal the universal ones.",
        "VBZ, VBG, RB and JJR are not among the tags that Figure 29 names, and not in the claims about them. Figure 37 "
        "names its types in words: there all nouns, verbs, adjectives and adverbs are meant.",
        "The figure draws the first, middle and last layer, the paper all twelve. The tables have every layer.",
        "The whiskers of the boxes reach from 5 to 95 % of the tokens; the paper does not say how far its own reach.",
    ),
    claims=(
        Claim(
            "C.5, Figure 26",
            "in layer 1 the median of [CLS] is above 0.40",
            "above 0.40",
            by_hta(first_token_keeps_most),
        ),
        Claim(
            "C.5, Figure 26",
            f"in layer 1 most other types (read here as: three quarters of the tags of {ENOUGH} tokens or more) have a "
            "median below 0.35",
            "below 0.35",
            by_hta(others_are_mixed),
        ),
        Claim(
            "C.5, Figure 27",
            "in layer 2 of 12 [SEP] keeps as much as [CLS] (read here as: within 0.05, mean over texts)",
            IN_FIGURE,
            by_hta(separator_like_the_first),
        ),
        Claim(
            "C.5, Figure 29", "in layer 4 of 12 the shares of [CLS] and [SEP] fall", IN_FIGURE, by_hta(specials_fall)
        ),
        Claim("C.5, Figure 34", "in layer 9 of 12 the share of [SEP] rises", IN_FIGURE, by_hta(separator_rises)),
        Claim(
            "C.5, Figure 29",
            "from layer 4 of 12 to the last nouns, verbs, adjectives and adverbs keep more than words of less meaning "
            "(the tags that Figure 29 names)",
            IN_FIGURES,
            by_hta(
                lambda hta: {
                    f"layer {i}": own(hta, i, CONTENT) - own(hta, i, FUNCTION)
                    for i in range(of_twelve(4, hta.depth), hta.depth + 1)
                }
            ),
        ),
        Claim(
            "C.5, Figure 30",
            "in layer 5 of 12 words of less meaning vary less within their type than in layer 4 (the width from 25 to "
            f"75 % of the tokens of each tag of Figure 29 with {ENOUGH} tokens or more; the tags are the examples)",
            IN_FIGURES,
            by_hta(function_words_get_even),
        ),
        Claim(
            "C.5, Figure 33",
            "in layer 8 of 12 nouns, verbs, adjectives and adverbs vary more within their type than words of less "
            "meaning (the same widths; tags are resampled)",
            IN_FIGURE,
            by_hta(content_words_vary_more),
        ),
        Claim(
            "C.5, Figure 37",
            "in the last layer nouns, verbs, adjectives and adverbs keep more than determiners, prepositions, "
            "pronouns, “to” and symbols (all of these together, in each text)",
            IN_FIGURE,
            by_hta(
                lambda hta: {f"layer {hta.depth}": own(hta, hta.depth, CONTENT_37) - own(hta, hta.depth, FUNCTION_37)}
            ),
        ),
    ),
)
def parts_of_speech(setup: Setup, example: Example) -> list[Record]:
    """Which parts of speech keep most of their own token, and which take most from others?"""
    trace = setup.model.trace(example)
    tags, maps = tags_of(example, trace, setup.options["tags"]), every_contribution(trace, setup)
    return [record for method, scores in maps for record in position_records(example, method, scores, tags)]
