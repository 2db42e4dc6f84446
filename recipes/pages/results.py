"""Writes docs/measured/results: the numbers of each run as JSON, a page for each paper made of them, and README.md.

    python -m recipes.pages.results RUNS [PAPER ...] [--models FOLDER] [--fast] [--device cuda] [--jobs N] [--docs
    FOLDER]
    python -m recipes.pages.results RUNS PAPER --step NAME ...      # these runs alone; the numbers of others stay as stored
    python -m recipes.pages.results --pages                         # the pages again, from the stored numbers

RUNS is a folder that keeps the records: stopped and started again, it goes on. With --jobs N the runs are first made in
N processes side by side, the long ones first; the pages are then written from their records. The models and data are
those of
`../shared`, which are not part of the package; FOLDER holds the models that `python -m recipes.train.stand_ins` tunes
on them. A run whose models are not there is listed as not made.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mixlens.runs.experiments.plan import PLANS, Step
from mixlens.runs.experiments.reproduction import Reproduction, reproduce

from . import stored

SHARED = Path("../shared")
DOCS = Path("docs/measured/results")
SST2_ROWS = "SST-2, 436 rows of the development set and 500 of the test set"
FAST_RATE = {"rate": 0.003}  # of training, the largest that Brunner et al. tried: a tenth of the epochs
ESTIMATED = {"methods": ["hta:probes=2"]}
LONGEST = (  # steps, by the time that they take; the others take less
    "identity",
    "identity-mnli",
    "identity-cola",
    "across",
    "neighbours",
    "generalization",
    "steps",
    "table1-imdb",
    "table1-released-imdb",
    "table1-yelp",
    "table1-released-yelp",
    "figure3-squad1",
    "figure3-squad1-released",
    "cues-tuned",
    "cues-pretrained",
    "contributions-mnli",
    "pos",
    "figure7",
    "mixing-and-identity",
    "contributions",
)
SST2, AGREEMENT, HATE, MLM = "minilm-sst2", "minilm-agreement", "minilm-hatexplain", "minilm-mlm"


@dataclass(frozen=True)
class Material:
    """The models and files that stand in for those of one paper: {role: model}, {step:role: model} for one step,
    {dataset: file}. A model that the recipes made begins with +."""

    models: Mapping[str, str]
    data: Mapping[str, str]
    left_out: Sequence[str] = field(default=())  # steps
    sizes: Mapping[str, int] = field(default_factory=dict)  # step -> examples, where the whole set would take too long
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # step -> options that are not the paper's
    data_note: str = ""


MATERIALS = {
    "alti": Material(
        {"bert-sst2": SST2, "distilbert-sst2": "minilm-sst2-seed1", "bert": AGREEMENT, "distilbert": MLM},
        {"sst2": "sst2/dev.jsonl", "sva": "sva_linzen/dev.jsonl"},
        sizes={"figure7": 936},
        data_note=f"Data: {SST2_ROWS} (the paper: the test set); agreement sentences of Linzen et al., another "
        f"selection than "
        "the paper's. For the paper's pre-trained BERT on SVA stands `minilm-agreement`, a masked language model that "
        "was tuned "
        "on agreement, also on other sentences of the same source; `minilm-mlm`, for DistilBERT, was not. The two "
        "models of "
        "Figure 7 are two seeds of one model, where the paper has BERT and DistilBERT: their scores are nearer to "
        "each other.",
    ),
    "globenc": Material(
        {"bert-sst2": SST2, "bert-hatexplain": HATE},
        {"sst2": "sst2/dev.jsonl", "hatexplain": "hatexplain/dev.jsonl"},
        data_note=f"Data: {SST2_ROWS} (the paper: the development set); the validation set of HateXplain, as in the "
        f"paper. That "
        "N_ENC is above all others in Table 1 holds for the product of maps as they are, as in the paper. In the "
        "table where "
        "rows are divided by their sum first, N_ENC is below N_RES, N_FIXEDRES and raw attention alone on SST-2; on "
        "HateXplain "
        "it is above N_RES and N_FIXEDRES, and level with raw attention alone.",
    ),
    "value-zeroing": Material(
        {"pretrained": MLM, "tuned": "+minilm-blimp", "cues-tuned:tuned": "+minilm-blimp-again"},
        {"blimp_vz": "blimp_vz/dev.jsonl"},
        data_note="Data: the half of the BLiMP sentences that no model was tuned on, drawn as the paper draws its "
        "test set; "
        "1,155 sentences, of which 1,094 fit the vocabulary, where the paper has 2,138. The model before tuning is "
        "right in 77 "
        "% of them, and at chance in one of the five tasks (distractor agreement, 51 %); the paper's is right in 96 %. "
        "The model of `cues-tuned` is of a second tuning by the same recipe on another machine (99.2 % right; the "
        "other 99.3 %); "
        "its claims on GlobEnc and ALTI without rollout, and on the steps of gradients, are of a third one (99.4 %). "
        "The steps "
        "of gradients are judged by gradient x input alone.",
    ),
    "identifiability": Material(
        {"bert": MLM, "bert-mrpc": "+minilm-mrpc", "steps-mrpc:bert": "+minilm-encoder", "bert-cola": "+minilm-cola"},
        {
            "wikitext": "wikitext2/dev.jsonl",
            "mrpc": "mrpc/dev.jsonl",
            "cola": "cola/dev.jsonl",
            "mnli": "mnli/dev.jsonl",
            "ud_english": "ud_ewt/dev.jsonl",
        },
        sizes={"contributions-mnli": 500, "pos": 1000},
        options={
            **{step: {"folds": 5, **FAST_RATE} for step in ("identity", "identity-mnli")},
            **dict.fromkeys(("identity-cola", "across", "neighbours", "generalization", "steps"), FAST_RATE),
            **dict.fromkeys(
                ("contributions", "contributions-cola", "contributions-mnli", "pos", "mixing-and-identity"), ESTIMATED
            ),
        },
        data_note="Data: the development set of MRPC, the in-domain half of CoLA's (527 of 1,043 sentences), 500 "
        "matched "
        "pairs of MNLI that are a selection, not the first ones. A g is trained at a rate of 0.003, the largest that "
        "the paper tried (it names 0.0001; in the last layer of one split of MRPC, by cosine, a linear g finds 0.890 "
        "at 0.0001 "
        "and 0.888 at 0.003, an MLP 0.940 and 0.948); section 5.2 has the paper's rate. Figures 2a and 39 have five "
        "splits of "
        "the texts, Figure 38 and section 5.2 ten, as in the paper. Figures 42 and 43 have 500 pairs (the paper: "
        "4,000), Figures "
        "26-37 1,000 sentences of the English Web Treebank. HTA is estimated from two random directions a token, which "
        "makes P too large (see what differs, below the tables). Raw and effective attention of texts no longer than "
        "a head is "
        "wide are equal by the theorem; a Pearson of 0.998 is rounding, where values are nearly dependent. The model "
        "of Figure "
        "12 was tuned on MRPC from the sentence encoder, which is the one before tuning there (79.2 % right on the "
        "408 pairs, "
        "the more frequent class 68.4 %; tuned from minilm-mlm 71.6 %); that of Figure 13 was tuned on CoLA from "
        "minilm-mlm "
        "(76.1 % right on the 527 sentences, the more frequent class 69.3 %).",
    ),
    "attcat": Material(
        {"sst2": SST2, "yelp": SST2, "imdb": SST2, "squad1": "+minilm-squad"},
        {
            "sst2": "sst2/dev.jsonl",
            "yelp": "yelp_tf/dev.jsonl",
            "imdb": "imdb_tf/dev.jsonl",
            "squad1": "squad1_xquad_en/dev.jsonl",
        },
        data_note=f"Data: {SST2_ROWS}, where the paper has the test set; 500 test texts each of Yelp and IMDB (2,000 "
        f"in the "
        "paper), which the classifier of SST-2 reads without having been tuned on them; English questions"
        " of XQuAD, which are questions of SQuAD's development set. The model for these was tuned on 14,875 questions "
        "made from "
        "Wikitext (recipes/train/cloze.py), in two epochs, then on 264 of SQuAD v2. Its answer overlaps the right one "
        "in "
        "241 of the 509; these judge Figure 3.",
    ),
}
STANDS_IN = (
    "Models: MiniLM (6 layers, width 384) stands in for the paper's models of 6 to 24 layers. Where the paper names a "
    "layer, the "
    "layer at the same part of the depth is taken; in tables by layer our layers stand beside the paper's of the same "
    "number."
)


def folders(material: Material, tuned: Path) -> dict[str, str]:
    """role -> folder, of the models that are there."""
    places = {
        role: tuned / name[1:] if name.startswith("+") else SHARED / "models" / name
        for role, name in material.models.items()
    }
    return {role: str(place) for role, place in places.items() if place.is_dir()}


def steps_of(name: str, tuned: Path) -> list[str]:
    """The steps of a paper whose models and data are at hand."""
    material = MATERIALS[name]
    absent = set(material.models) - set(folders(material, tuned))
    steps = [
        step for step in PLANS.find(name).steps if step.data in material.data and step.name not in material.left_out
    ]
    return [
        step.name for step in steps if played(step, material.models) and not absent & set(played(step, material.models))
    ]


def played(step: Step, models: Mapping[str, str]) -> list[str]:
    """The keys of `models` that a step uses, STEP:ROLE or ROLE; none where one of its roles has no model."""
    keys = [own if (own := f"{step.name}:{role}") in models else role for role in step.models]
    return keys if set(keys) <= set(models) else []


def made(
    name: str, runs: Path, tuned: Path, settings: Mapping[str, Any], only: Sequence[str] | None = None
) -> Reproduction:
    """Every step of a paper whose models and data are at hand, or of these `only` those named."""
    material = MATERIALS[name]
    files = {dataset: str(SHARED / "data" / file) for dataset, file in material.data.items()}
    steps = [step for step in steps_of(name, tuned) if only is None or step in only]
    own = {} if settings["fast"] else {"sizes": _of(steps, material.sizes), "options": _of(steps, material.options)}
    asked = {"only": steps, **own, **settings}
    return reproduce(name, models=folders(material, tuned), data=files, out=runs / name, said=print, **asked)


def _of(steps: Sequence[str], values: Mapping[str, Any]) -> dict[str, Any]:
    return {step: value for step, value in values.items() if step in steps}


def measured(job: tuple[str, str], runs: Path, tuned: Path, settings: Mapping[str, Any]) -> None:
    """One step of one paper, in a process of its own: its records are in RUNS afterwards."""
    name, step = job
    made(name, runs, tuned, {**settings, "progress": False}, [step])


def jobs_of(names: Sequence[str], tuned: Path, only: Sequence[str] = ()) -> list[tuple[str, str]]:
    """(paper, step) of every run, or of those named, the long ones first: so no process is left alone with one at the
    end."""
    jobs = [(name, step) for name in names for step in steps_of(name, tuned) if not only or step in only]
    return sorted(jobs, key=lambda job: LONGEST.index(job[1]) if job[1] in LONGEST else len(LONGEST))


def side_by_side(
    count: int, names: Sequence[str], runs: Path, tuned: Path, settings: Mapping[str, Any], only: Sequence[str] = ()
) -> None:
    """All runs of these papers, `count` at a time. Each process starts afresh, since CUDA does not outlive a fork."""
    afresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, mp_context=afresh, max_tasks_per_child=1) as pool:
        for made_one in [pool.submit(measured, job, runs, tuned, settings) for job in jobs_of(names, tuned, only)]:
            made_one.result()


def written(reproduction: Reproduction, runs: Path, docs: Path) -> None:
    """The numbers and pictures of the runs that were made."""
    name = reproduction.plan.name
    stored.store(reproduction, docs / "stored" / name)
    docs.joinpath("figures").mkdir(parents=True, exist_ok=True)
    for step, outcome in reproduction.outcomes.items():
        if outcome.setup.experiment.figure is not None:
            shutil.copy(runs / name / step / "figure.svg", docs / "figures" / f"{name}-{step}.svg")


def pages(docs: Path) -> None:
    """Every page, from the stored numbers alone."""
    folders = {name: docs / "stored" / name for name in MATERIALS}
    for name, folder in folders.items():
        if folder.is_dir():
            text = stored.page(name, folder, f"{STANDS_IN} {MATERIALS[name].data_note}")
            docs.joinpath(f"{name}.md").write_text(text, encoding="utf-8")
    docs.joinpath("README.md").write_text(stored.overview(folders), encoding="utf-8")


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m recipes.pages.results", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("runs", type=Path, nargs="?", help="a folder that keeps the records")
    parser.add_argument("papers", nargs="*", help=f"{', '.join(MATERIALS)} (all)")
    parser.add_argument(
        "--step", action="append", default=[], metavar="NAME", help="a run of the paper; several times (all)"
    )
    parser.add_argument("--pages", action="store_true", help="only the pages, from the stored numbers")
    parser.add_argument("--models", type=Path, default=Path("models"), metavar="FOLDER", help="tuned models (models)")
    parser.add_argument("--fast", action="store_true", help="a few examples for each run")
    parser.add_argument("--device", help="cpu, cuda ...")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes side by side (1)")
    parser.add_argument("--docs", type=Path, default=DOCS, metavar="FOLDER", help=f"where the pages go ({DOCS})")
    chosen = parser.parse_args(arguments)
    if chosen.runs is None and not chosen.pages:
        parser.error("name a folder that keeps the records, or --pages")
    if unknown := [name for name in chosen.papers if name not in MATERIALS]:
        parser.error(f"there is no paper {unknown[0]!r}; there are {', '.join(MATERIALS)}")
    if chosen.step and len(chosen.papers) != 1:
        parser.error("--step is for one paper: name it")
    return chosen


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = parsed(arguments)
    settings: dict[str, Any] = {"fast": chosen.fast, "loading": {"device": chosen.device} if chosen.device else None}
    names = [] if chosen.pages else chosen.papers or list(MATERIALS)
    if names and chosen.jobs > 1:
        side_by_side(chosen.jobs, names, chosen.runs, chosen.models, settings, chosen.step)
    for name in names:
        written(made(name, chosen.runs, chosen.models, settings, chosen.step or None), chosen.runs, chosen.docs)
    pages(chosen.docs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
