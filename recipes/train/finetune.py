"""Fine-tunes a model as the papers used it, with the Hugging Face Trainer, and saves it so that `mixlens.load` reads
it.

    python -m recipes.train.finetune classification --model bert-base-uncased --data sst2 --out models/bert-sst2
    python -m recipes.train.finetune prompt --model bert-base-uncased --data blimp_vz --out models/bert-blimp
    python -m recipes.train.finetune qa --model bert-base-uncased --data squad1 --out models/bert-squad

Needs pip install 'mixlens[train,data]'. docs/use/finetune.md goes from here to the papers' tables.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

import mixlens
from mixlens.base.errors import InputError, ModelError, nearest
from mixlens.data import DATASETS, Dataset
from mixlens.data import load as load_data
from mixlens.data.portions import HALVES
from mixlens.data.stored import jsonl
from mixlens.model.loading import EMBEDDED
from mixlens.types import Example

from .finetune_recipes import RECIPES, SEED, Recipe, checked
from .finetune_rows import ROWS, Row, accuracy, prompt_loss


@dataclass(frozen=True)
class Result:
    """What came out, as training.json beside the model says it."""

    out: str
    seed: int
    examples: int  # trained on
    held_out: int  # judged on
    left_out: int  # of no use: see docs/use/finetune.md
    before: float  # right answers, share of the held-out examples
    after: float
    losses: tuple[float, ...]  # as training went on


# --- training ---------------------------------------------------------------------------------------------------------


def finetune(
    kind: str,
    *,
    model: str | Path,
    data: str,
    out: str | Path,
    path: str | Path | None = None,
    split: str | None = None,
    n: int | None = None,
    seed: int = SEED,
    recipe: Recipe | None = None,
    quiet: bool = False,
) -> Result:
    """Fine-tune `model` on a dataset of `mixlens data` and save it in the new folder `out`.

    `recipe` is that of the paper unless given. `n` examples are enough for a try. Beside the model lie training.json
    and held_out.jsonl, the examples that were put aside: `load(data, path=...)` reads them. The saved model is loaded
    and proven.
    """
    used = _recipe(kind, recipe)
    dataset = dataset_for(kind, data)
    place = _new_folder(out)
    trainer_needs_accelerate()
    import transformers

    transformers.set_seed(seed)
    sides = train_and_held_out(dataset, path=path, split=split, n=n, share=used.held_out, seed=seed)
    lens = loaded(kind, model, dataset, used)
    train, test = (ROWS[kind](side, lens, used, dataset) for side in sides)
    if not train or not test:
        raise InputError(
            f"of {sum(map(len, sides))} examples none is left to train on or to judge by. Give more, or other ones."
        )
    collate = collator(lens.tokenizer)
    before = accuracy(kind, lens.hf_model, test, collate, batch=used.batch)
    losses = trained(kind, lens, train, collate, used, seed=seed, quiet=quiet)
    after = accuracy(kind, lens.hf_model, test, collate, batch=used.batch)
    lens.hf_model.save_pretrained(place)
    lens.tokenizer.save_pretrained(place)
    left_out = sum(map(len, sides)) - len(train) - len(test) if kind == "prompt" else 0
    result = Result(str(place), seed, len(train), len(test), left_out, before, after, losses)
    asked = {
        "recipe": kind,
        **asdict(used),
        "model": str(model),
        "data": data,
        "path": path and str(path),
        "split": split,
    }
    write_results(place, asked, result, sides[1])
    mixlens.load(place)  # what cannot be proven is said now, not when it is used
    return result


def _recipe(kind: str, recipe: Recipe | None) -> Recipe:
    if kind not in RECIPES:
        raise InputError(f"unknown recipe {kind!r}. {nearest(str(kind), RECIPES)}")
    return checked(recipe or RECIPES[kind])


def _new_folder(out: str | Path) -> Path:
    place = Path(out)
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise InputError(f"{str(place)!r} is there already and is not empty. Give --out a new folder.")
    return place


def write_results(place: Path, asked: dict[str, Any], result: Result, held_out: Sequence[Example]) -> None:
    """training.json: settings, results, versions and the ids of the examples put aside; held_out.jsonl: these
    examples."""
    import transformers

    versions = {"mixlens": mixlens.__version__, "torch": torch.__version__, "transformers": transformers.__version__}
    ids = [example.id for example in held_out]
    training = {**asked, **asdict(result), "versions": versions, "held_out_ids": ids}
    (place / "training.json").write_text(json.dumps(training, indent=2) + "\n")
    (place / "held_out.jsonl").write_text(jsonl(held_out), encoding="utf-8")


def dataset_for(kind: str, data: str) -> Dataset:
    fitting = [name for name, one in DATASETS.items() if one.task == RECIPES[kind].task]
    if data not in fitting:
        what = f"asks to {DATASETS[data].task}" if data in DATASETS else "is unknown"
        raise InputError(f"dataset {data!r} {what}; {kind} takes one of {', '.join(fitting)}.")
    return DATASETS[data]


def trainer_needs_accelerate() -> None:
    if importlib.util.find_spec("accelerate") is None:
        raise InputError(
            "the Hugging Face Trainer needs accelerate: pip install 'mixlens[train]' (or pip install 'accelerate>=1')."
        )


def loaded(kind: str, model: str | Path, dataset: Dataset, recipe: Recipe) -> Any:
    """The model with the recipe's head (new where it has none) and the labels' names, as mixlens wraps it."""
    import transformers

    embedded = EMBEDDED / str(model)
    where = str(embedded if str(model).isidentifier() and embedded.is_dir() else model)
    names: dict[str, Any] = {}
    if kind == "classification":
        names = {
            "num_labels": len(dataset.labels),
            "id2label": dict(enumerate(dataset.labels)),
            "label2id": dataset.order,
        }
    try:
        hf_model = getattr(transformers, recipe.head).from_pretrained(where, dtype=torch.float32, **names)
        tokenizer = transformers.AutoTokenizer.from_pretrained(where)
    except (OSError, ValueError, RuntimeError) as error:
        raise ModelError(f"cannot load {str(model)!r} as {recipe.head}: {str(error).splitlines()[0]}") from error
    if kind == "prompt" and tokenizer.mask_token_id is None:
        raise ModelError(
            f"{str(model)!r} has no mask token, so it has no gap to fill. Prompt tuning is for masked LMs."
        )
    if kind == "qa" and not tokenizer.is_fast:
        raise ModelError(
            f"the tokenizer of {str(model)!r} does not know its offsets, so answers cannot be found among its tokens."
        )
    tokenizer.padding_side = "right"  # places of gaps and answers are counted from the left
    if torch.cuda.is_available():
        hf_model = hf_model.to("cuda")
    return mixlens.load(hf_model, tokenizer=tokenizer, check=False)


def train_and_held_out(
    dataset: Dataset, *, path: str | Path | None, split: str | None, n: int | None, share: float, seed: int
) -> tuple[list[Example], list[Example]]:
    """The examples to train on and those put aside: the dataset's own halves where it has them, unless a split or
    another share was asked for; else a share drawn by the seed. `n` counts the examples of both sides."""
    if dataset.halves and split is None and share == 0.5:
        count = None if n is None else max(1, n // 2)
        train, test = (list(load_data(dataset.name, path=path, split=half, n=count)) for half in HALVES)
        return train, test
    whole = load_data(dataset.name, path=path, split=split or ("train" if path is None else None), n=n)
    return divided(answerable(dataset, list(whole)), share=share, seed=seed)


def answerable(dataset: Dataset, examples: list[Example]) -> list[Example]:
    """Without the questions that have no answer, where the dataset has none of them (SQuAD v1) and the file does
    (v2)."""
    return [one for one in examples if one.info["answers"]] if dataset.name == "squad1" else examples


def divided(examples: Sequence[Example], *, share: float, seed: int) -> tuple[list[Example], list[Example]]:
    """Those to train on and those put aside, drawn from a seed, both in their order. At least one on each side."""
    if len(examples) < 2:
        raise InputError(f"{len(examples)} example cannot be divided into those to train on and those put aside.")
    count = min(max(1, round(share * len(examples))), len(examples) - 1)
    aside = set(random.Random(seed).sample(range(len(examples)), count))
    return [one for i, one in enumerate(examples) if i not in aside], [examples[i] for i in sorted(aside)]


def collator(tokenizer: Any) -> Callable[[list[Row]], Any]:
    from transformers import DataCollatorWithPadding

    return DataCollatorWithPadding(tokenizer)


def trained(
    kind: str,
    lens: Any,
    rows: list[Row],
    collate: Callable[[list[Row]], Any],
    recipe: Recipe,
    *,
    seed: int,
    quiet: bool,
) -> tuple[float, ...]:
    """The Trainer as it is: AdamW without weight decay, a linear schedule. Returns about twenty losses along the
    way."""
    from transformers import Trainer, TrainingArguments

    steps = max(1, round(recipe.epochs * -(-len(rows) // recipe.batch)))
    with tempfile.TemporaryDirectory() as scratch:
        arguments = TrainingArguments(
            output_dir=scratch,
            learning_rate=recipe.rate,
            per_device_train_batch_size=recipe.batch,
            max_steps=steps,
            warmup_steps=round(recipe.warmup * steps),
            lr_scheduler_type="linear",
            weight_decay=0.0,
            logging_steps=max(1, steps // 20),
            save_strategy="no",
            report_to="none",
            seed=seed,
            data_seed=seed,
            remove_unused_columns=False,
            disable_tqdm=quiet,
            dataloader_pin_memory=False,
            use_cpu=not torch.cuda.is_available(),
        )
        given = {"compute_loss_func": prompt_loss} if kind == "prompt" else {}
        trainer = Trainer(model=lens.hf_model, args=arguments, train_dataset=rows, data_collator=collate, **given)  # type: ignore[arg-type]
        if quiet:
            trainer.remove_callback(
                next(type(c) for c in trainer.callback_handler.callbacks if "Print" in type(c).__name__)
            )
        trainer.train()
    return tuple(float(one["loss"]) for one in trainer.state.log_history if "loss" in one)


# --- the command line -------------------------------------------------------------------------------------------------


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m recipes.train.finetune",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("recipe", choices=RECIPES)
    parser.add_argument("--model", required=True, help="a hub id or a folder")
    parser.add_argument("--data", required=True, help="a dataset of `mixlens data`")
    parser.add_argument("--path", help="a local file or folder with the data, instead of the hub")
    parser.add_argument("--split", help="train unless said otherwise")
    parser.add_argument(
        "--out", required=True, type=Path, help="a new folder; one below it for each seed where there are several"
    )
    parser.add_argument("--n", type=int, help="the first n examples alone")
    parser.add_argument("--seed", type=int, nargs="+", default=[SEED])
    for name, kind in (
        ("rate", float),
        ("batch", int),
        ("epochs", float),
        ("warmup", float),
        ("length", int),
        ("held-out", float),
    ):
        parser.add_argument(
            f"--{name}", type=kind, help="unless given, the paper's: " + _defaults(name.replace("-", "_"))
        )
    return parser


def _defaults(name: str) -> str:
    return ", ".join(f"{getattr(recipe, name):g} ({kind})" for kind, recipe in RECIPES.items())


def results(given: argparse.Namespace) -> Iterator[Result]:
    changes = {name: getattr(given, name) for name in ("rate", "batch", "epochs", "warmup", "length", "held_out")}
    recipe = replace(RECIPES[given.recipe], **{name: value for name, value in changes.items() if value is not None})
    for seed in given.seed:
        out = given.out if len(given.seed) == 1 else given.out / f"seed-{seed}"
        asked: dict[str, Any] = {"path": given.path, "split": given.split, "n": given.n, "seed": seed, "recipe": recipe}
        yield finetune(given.recipe, model=given.model, data=given.data, out=out, **asked)


def main(given: Sequence[str] | None = None) -> int:
    try:
        for one in results(arguments().parse_args(given)):
            print(
                f"{one.out}: {one.before:.1%} right before, {one.after:.1%} after, on {one.held_out} examples put aside"
            )
    except mixlens.MixlensError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
