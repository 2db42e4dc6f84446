"""Every dataset on one screen: what it asks, how its rows are written, where it comes from, whose it is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..base.errors import InputError
from ..types import Example
from . import grammar
from .blimp import FIVE, TEMPLATES
from .hub import CONVERTED, Hub
from .layouts import (
    Layout,
    labelled,
    marked,
    marked_by_several,
    minimal_pair,
    paragraph,
    parsed_sentence,
    question,
    sentence_with_gap,
    tagged,
    word_left_out,
)
from .stored import STORED

Sentences = Callable[..., Iterator[grammar.Sentence]]


@dataclass(frozen=True)
class Dataset:
    """One dataset: data, no code. A row is read by the first layout whose fields it has."""

    name: str
    task: str  # what is asked of the model
    licence: str
    paper: str
    layouts: tuple[Layout, ...] = ()
    hub: Hub | None = None  # None: local files only
    gives: tuple[str, ...] = ()  # what an Example knows beside its text; see docs/use/data.md
    labels: tuple[str, ...] = ()  # by number
    templates: tuple[str, ...] = ()  # of BLiMP; rows of others are not part of it
    balanced: tuple[str, ...] = ()  # tasks of which as many singular as plural examples are kept
    halves: bool = False  # whether its splits are two equal halves of the one split there is
    columns: tuple[str, ...] | None = None  # of a file without a header
    stream: Sentences | None = None  # made, not read: without end

    @property
    def order(self) -> dict[str, int]:
        """Each label and its number in the data: what to pass as `labels=` for a model trained on these numbers."""
        return {name: i for i, name in enumerate(self.labels)}

    @property
    def fields(self) -> str:
        """The fields a local file needs, for people: one set or another."""
        return ", or ".join(" + ".join(layout.needs) for layout in self.layouts or (STORED,))

    def layout(self, fields: Collection[str]) -> Layout | None:
        return next(
            (layout for layout in (*self.layouts, STORED) if all(name in fields for name in layout.needs)), None
        )

    def example(self, row: Mapping[str, Any]) -> Example | None:
        if self.templates and row.get("UID", self.templates[0]) not in self.templates:
            return None
        layout = self.layout(row)
        if layout is None:
            raise InputError(f"{self.name!r} needs the fields {self.fields}. It has: {', '.join(map(repr, row))}.")
        return layout.make(row)


SENTIMENT = ("negative", "positive")
INFERENCE = ("entailment", "neutral", "contradiction")
HATE = ("hatespeech", "normal", "offensive")
TOXIC = ("non-toxic", "toxic")


def _glue(name: str, split: str = "validation") -> Hub:
    return Hub("nyu-mll/glue", split, (name,))


def _blimp(name: str, templates: tuple[str, ...], **more: Any) -> Dataset:
    return Dataset(
        name,
        "fill the gap",
        "CC BY 4.0",
        "Warstadt et al. 2020",
        (
            word_left_out("words_good", "target_index", "good_word", "bad_word", number="label", tight=True),
            minimal_pair,
        ),
        Hub("nyu-mll/blimp", "train", templates),
        ("target", "foil", "cues", "number"),
        templates=templates,
        **more,
    )


def _classes(
    name: str,
    fields: tuple[str, ...],
    labels: tuple[str, ...],
    hub: Hub,
    licence: str,
    paper: str,
    more: tuple[Layout, ...] = (),
) -> Dataset:
    layouts = (labelled(*fields, labels=labels), *more)
    return Dataset(name, "classify", licence, paper, layouts, hub, ("label",), labels)


_HATEXPLAIN = Hub("Hate-speech-CNERG/hatexplain", revision=CONVERTED)
_SVA = word_left_out("words", "verb_index", "verb", "foil", number="number")
_BOTH = {"hatespeech": "toxic", "offensive": "toxic", "normal": "non-toxic"}
_UNSTATED = "none stated (research use)"

_ALL = (
    _classes("sst2", ("sentence",), SENTIMENT, _glue("sst2"), _UNSTATED, "Socher et al. 2013; GLUE"),
    _classes(
        "mnli",
        ("premise", "hypothesis"),
        INFERENCE,
        _glue("mnli", "validation_matched"),
        "OANC and others",
        "Williams et al. 2018; GLUE",
    ),
    _classes(
        "snli", ("premise", "hypothesis"), INFERENCE, Hub("stanfordnlp/snli"), "CC BY-SA 4.0", "Bowman et al. 2015"
    ),
    _classes(
        "qqp",
        ("question1", "question2"),
        ("not_duplicate", "duplicate"),
        _glue("qqp"),
        "Quora terms, non-commercial",
        "Iyer et al. 2017; GLUE",
    ),
    _classes(
        "mrpc",
        ("sentence1", "sentence2"),
        ("not_equivalent", "equivalent"),
        _glue("mrpc"),
        "Microsoft, research",
        "Dolan and Brockett 2005; GLUE",
    ),
    _classes(
        "cola", ("sentence",), ("unacceptable", "acceptable"), _glue("cola"), _UNSTATED, "Warstadt et al. 2019; GLUE"
    ),
    _classes("imdb", ("text",), SENTIMENT, Hub("stanfordnlp/imdb", "test"), _UNSTATED, "Maas et al. 2011"),
    _classes(
        "amazon", ("content",), SENTIMENT, Hub("fancyzhx/amazon_polarity", "test"), "Amazon terms", "Zhang et al. 2015"
    ),
    _classes("yelp", ("text",), SENTIMENT, Hub("fancyzhx/yelp_polarity", "test"), "Yelp terms", "Zhang et al. 2015"),
    Dataset(
        "hatexplain",
        "classify",
        "MIT",
        "Mathew et al. 2021 (offensive texts)",
        (
            marked(labels=HATE, label="label3"),
            marked_by_several(labels=HATE),
            labelled("text", labels=HATE, label="label3"),  # for training: no rationale
        ),
        _HATEXPLAIN,
        ("label", "rationale"),
        HATE,
    ),
    Dataset(
        "hatexplain_toxic",
        "classify",
        "MIT",
        "Mathew et al. 2021 (offensive texts)",
        (marked(labels=TOXIC, label="label2"), marked_by_several(labels=TOXIC, meaning=_BOTH)),
        _HATEXPLAIN,
        ("label", "rationale"),
        TOXIC,
    ),
    Dataset(
        "squad1",
        "answer",
        "CC BY-SA 4.0",
        "Rajpurkar et al. 2016",
        (question,),
        Hub("rajpurkar/squad"),
        ("pair", "answers"),
    ),
    Dataset(
        "squad2",
        "answer",
        "CC BY-SA 4.0",
        "Rajpurkar et al. 2018",
        (question,),
        Hub("rajpurkar/squad_v2"),
        ("pair", "answers"),
    ),
    Dataset(
        "sva",
        "fill the gap",
        "CC BY-NC 4.0 (Gulordava's copy)",
        "Linzen et al. 2016",
        (_SVA, parsed_sentence),
        gives=("target", "foil", "cues (some files)"),
    ),
    Dataset(
        "sva_goldberg",
        "fill the gap",
        _UNSTATED,
        "Goldberg 2019",
        (sentence_with_gap,),
        gives=("target", "foil"),
        columns=("n_attractors", "sentence", "masked", "good", "bad"),
    ),
    Dataset(
        "sva_gulordava",
        "fill the gap",
        "CC BY-NC 4.0",
        "Gulordava et al. 2018",
        (_SVA,),
        gives=("target", "foil"),
    ),
    _blimp("blimp", tuple(TEMPLATES)),
    _blimp("blimp_vz", FIVE, balanced=("rpsv",), halves=True),
    *(_blimp(f"blimp_{template.short}", (name,)) for name, template in TEMPLATES.items()),
    Dataset(
        "ud_english",
        "tag",
        "CC BY-SA 4.0",
        "Silveira et al. 2014",
        (tagged,),
        Hub("universal-dependencies/universal_dependencies", folder="en_ewt", revision=CONVERTED),
        ("pos",),
    ),
    Dataset(
        "wikitext",
        "read",
        "CC BY-SA 3.0",
        "Merity et al. 2017",
        (paragraph,),
        Hub("Salesforce/wikitext", "validation", ("wikitext-2-raw-v1",)),
        ("text",),
    ),
    Dataset(
        "agreement",
        "fill the gap",
        "part of mixlens",
        "docs/use/embedded-models.md",
        stream=grammar.agreement,
        gives=("target", "foil", "cues", "number", "attractors"),
    ),
    Dataset(
        "sentiment",
        "classify",
        "part of mixlens",
        "docs/use/embedded-models.md",
        stream=grammar.sentiment,
        gives=("label", "cues", "attractors"),
        labels=SENTIMENT,
    ),
)
DATASETS: dict[str, Dataset] = {dataset.name: dataset for dataset in _ALL}


def listing() -> list[tuple[str, ...]]:
    """One row per dataset, the heading first: name, task, what is known, labels, where from, licence, paper."""
    rows: list[tuple[str, ...]] = [
        ("dataset", "task", "known", "labels", "hub (else a local file)", "licence", "paper")
    ]
    for one in DATASETS.values():
        source = "made by the grammar, without end" if one.stream else f"{one.hub}" if one.hub else "-"
        rows.append(
            (one.name, one.task, ", ".join(one.gives), ", ".join(one.labels) or "-", source, one.licence, one.paper)
        )
    return rows
