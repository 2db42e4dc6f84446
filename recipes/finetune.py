"""Fine-tunes a model as the papers used it, with the Hugging Face Trainer, and saves it so that `mixlens.load` reads it.

    python -m recipes.finetune classification --model bert-base-uncased --data sst2 --out models/bert-sst2
    python -m recipes.finetune prompt --model bert-base-uncased --data blimp --split train --out models/bert-blimp
    python -m recipes.finetune qa --model bert-base-uncased --data squad1 --out models/bert-squad

Needs pip install 'mixlens[train,data]'. docs/use/finetune.md goes from here to the papers' tables.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import mixlens
from mixlens.data import DATASETS, Dataset, for_model
from mixlens.data import load as load_data
from mixlens.errors import InputError, ModelError, nearest
from mixlens.model.loading import EMBEDDED
from mixlens.targets import token_id
from mixlens.types import Example

Row = dict[str, Any]  # what the model reads, and under "labels" (or start_positions, end_positions) what it should say


@dataclass(frozen=True)
class Recipe:
    """One way to fine-tune: what the paper's authors did, as far as it is known. `source` says from where."""

    task: str  # of the dataset
    head: str  # transformers' class
    rate: float
    batch: int
    epochs: float
    warmup: float  # share of the steps
    length: int  # tokens; longer texts are cut (classification), left out (prompt) or read in windows (qa)
    held_out: float  # share of the examples put aside, on which the result is judged
    source: str
    stride: int = 128  # tokens that two windows share


RECIPES: dict[str, Recipe] = {
    "classification": Recipe(
        "classify",
        "AutoModelForSequenceClassification",
        3e-5,
        32,
        5,
        0.0,
        128,
        0.05,
        "rate, batch, epochs, schedule and seed: the card of TehranNLP-org/bert-large-sst2, by GlobEnc's authors. "
        "Length and held-out share: our choice.",
    ),
    "prompt": Recipe(
        "fill the gap",
        "AutoModelForMaskedLM",
        3e-5,
        64,
        5,
        0.1,
        32,
        0.33,
        "rate, batch, epochs, warm-up, length and seed: Value Zeroing's run_finetuning.py. Held-out share: our choice.",
    ),
    "qa": Recipe(
        "answer",
        "AutoModelForQuestionAnswering",
        5e-5,
        32,
        3,
        0.1,
        384,
        0.05,
        "rate, batch and epochs: Devlin et al. 2019 for SQuAD v1.1 (v2.0: 2 epochs, batch 48). AttCAT took models from the hub. "
        "Length, stride, warm-up and held-out share: our choice (length and stride as in Devlin's code).",
    ),
}
SEED = 42  # GlobEnc's and Value Zeroing's


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


# --- rows: what the model reads, what it should say --------------------------------------------------------------------


def classification_rows(examples: Sequence[Example], model: Any, recipe: Recipe, dataset: Dataset) -> list[Row]:
    """The label's number is its place in the dataset's list."""
    rows = []
    for example in examples:
        if "label" not in example.info:
            raise InputError(f"example {example.id} has no label. Train on a split whose labels are public.")
        coded = model.tokenizer(example.text, example.pair, truncation=True, max_length=recipe.length)
        rows.append({**coded, "labels": dataset.order[example.info["label"]]})
    return rows


def prompt_rows(examples: Sequence[Example], model: Any, recipe: Recipe, dataset: Dataset) -> list[Row]:
    """Labels are (place of the gap, target, foil). Left out: words that are not one token each, texts that are too long."""
    rows = []
    for example in examples:
        if example.foil is None:
            raise InputError(f"example {example.id} has no foil. Prompt tuning is target against foil.")
        given = for_model(example, model)
        try:
            words = [token_id(model, str(word)) for word in (given.target, given.foil)]
        except InputError:
            continue
        coded = model.tokenizer(given.text)
        if len(coded["input_ids"]) <= recipe.length:
            rows.append({**coded, "labels": [coded["input_ids"].index(model.tokenizer.mask_token_id), *words]})
    return rows


def qa_rows(examples: Sequence[Example], model: Any, recipe: Recipe, dataset: Dataset) -> list[Row]:
    """Windows over the paragraph. The first answer counts; a window without it asks for the first token, as BERT does."""
    rows = []
    for example in examples:
        answers = example.info["answers"]
        coded = model.tokenizer(
            example.text,
            example.pair,
            truncation="only_second",
            max_length=recipe.length,
            stride=recipe.stride,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        for window in range(len(coded["input_ids"])):
            row = {name: coded[name][window] for name in model.tokenizer.model_input_names if name in coded}
            span = span_in(coded["offset_mapping"][window], coded.sequence_ids(window), answers[0] if answers else None)
            rows.append({**row, "start_positions": span[0], "end_positions": span[1]})
    return rows


def span_in(offsets: Sequence[Any], sequences: Sequence[int | None], answer: tuple[int, int] | None) -> tuple[int, int]:
    """First and last token of the answer in a window; (0, 0) where it is not in it whole."""
    if answer is None:
        return 0, 0
    inside = [i for i, side in enumerate(sequences) if side == 1]
    if not inside or offsets[inside[0]][0] > answer[0] or offsets[inside[-1]][1] < answer[1]:
        return 0, 0
    covering = [i for i in inside if offsets[i][0] < answer[1] and offsets[i][1] > answer[0]]
    return (covering[0], covering[-1]) if covering else (0, 0)


ROWS: dict[str, Callable[[Sequence[Example], Any, Recipe, Dataset], list[Row]]] = {
    "classification": classification_rows,
    "prompt": prompt_rows,
    "qa": qa_rows,
}


# --- losses and right answers -------------------------------------------------------------------------------------------


def at_gap(logits: Tensor, labels: Tensor) -> Tensor:
    """[batch 2]: the logits of target and foil at the gap, of [batch pos vocabulary] and labels (gap, target, foil)."""
    rows = torch.arange(len(labels), device=logits.device)
    return logits[rows, labels[:, 0]].gather(-1, labels[:, 1:])


def prompt_loss(output: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
    """Cross-entropy of target against foil alone: no other word of the vocabulary counts."""
    pair = at_gap(output.logits, labels)
    return cross_entropy(pair, torch.zeros(len(pair), dtype=torch.long, device=pair.device))


def right(kind: str, output: Any, batch: Mapping[str, Tensor]) -> Tensor:
    """[batch]: whether the answer is right. Question answering: whether both ends are."""
    if kind == "classification":
        return output.logits.argmax(-1) == batch["labels"]
    if kind == "prompt":
        pair = at_gap(output.logits, batch["labels"])
        return pair[:, 0] > pair[:, 1]
    return (output.start_logits.argmax(-1) == batch["start_positions"]) & (output.end_logits.argmax(-1) == batch["end_positions"])


def accuracy(kind: str, hf_model: Any, rows: Sequence[Row], collate: Callable[[list[Row]], Any], *, batch: int) -> float:
    """The share of rows with a right answer."""
    found = []
    hf_model.eval()
    for start in range(0, len(rows), batch):
        given = {name: tensor.to(hf_model.device) for name, tensor in collate(list(rows[start : start + batch])).items()}
        inputs = {name: tensor for name, tensor in given.items() if name not in ("labels", "start_positions", "end_positions")}
        with torch.no_grad():
            found.append(right(kind, hf_model(**inputs), given))
    return float(torch.cat(found).float().mean())


# --- training -----------------------------------------------------------------------------------------------------------


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
    """Fine-tune `model` on a dataset of `mixlens data` and save it, with training.json, in the new folder `out`.

    `recipe` is that of the paper unless given. `n` examples are enough for a try. The saved model is loaded and proven.
    """
    if kind not in RECIPES:
        raise InputError(f"unknown recipe {kind!r}. {nearest(str(kind), RECIPES)}")
    used = checked(recipe or RECIPES[kind])
    dataset = dataset_for(kind, data)
    place = Path(out)
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise InputError(f"{str(place)!r} is there already and is not empty. Give --out a new folder.")
    trainer_needs_accelerate()
    import transformers

    transformers.set_seed(seed)
    examples = list(load_data(data, path=path, split=split or ("train" if path is None else None), n=n))
    lens = loaded(kind, model, dataset, used)
    train, judged = divided(examples, share=used.held_out, seed=seed)
    rows, test = (ROWS[kind](side, lens, used, dataset) for side in (train, judged))
    if not rows or not test:
        raise InputError(f"of {len(examples)} examples none is left to train on or to judge by. Give more, or other ones.")
    collate = collator(lens.tokenizer)
    before = accuracy(kind, lens.hf_model, test, collate, batch=used.batch)
    losses = trained(kind, lens, rows, collate, used, seed=seed, quiet=quiet)
    after = accuracy(kind, lens.hf_model, test, collate, batch=used.batch)
    lens.hf_model.save_pretrained(place)
    lens.tokenizer.save_pretrained(place)
    left_out = len(examples) - len(rows) - len(test) if kind == "prompt" else 0
    result = Result(str(place), seed, len(rows), len(test), left_out, before, after, losses)
    told = {"recipe": kind, **asdict(used), "model": str(model), "data": data, "path": path and str(path), "split": split}
    versions = {"mixlens": mixlens.__version__, "torch": torch.__version__, "transformers": transformers.__version__}
    written = {**told, **asdict(result), "versions": versions}
    (place / "training.json").write_text(json.dumps(written, indent=2) + "\n")
    mixlens.load(place)  # what cannot be proven is said now, not when it is used
    return result


def checked(recipe: Recipe) -> Recipe:
    for name in ("rate", "batch", "epochs", "length"):
        if not getattr(recipe, name) > 0:
            raise InputError(f"{name} must be above 0, not {getattr(recipe, name)}.")
    if not 0 < recipe.held_out < 1 or not 0 <= recipe.warmup < 1:
        raise InputError(f"held_out and warmup are shares below 1, not {recipe.held_out} and {recipe.warmup}.")
    return recipe


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
        names = {"num_labels": len(dataset.labels), "id2label": dict(enumerate(dataset.labels)), "label2id": dataset.order}
    try:
        hf_model = getattr(transformers, recipe.head).from_pretrained(where, dtype=torch.float32, **names)
        tokenizer = transformers.AutoTokenizer.from_pretrained(where)
    except (OSError, ValueError, RuntimeError) as error:
        raise ModelError(f"cannot load {str(model)!r} as {recipe.head}: {str(error).splitlines()[0]}") from error
    if kind == "prompt" and tokenizer.mask_token_id is None:
        raise ModelError(f"{str(model)!r} has no mask token, so it has no gap to fill. Prompt tuning is for masked LMs.")
    if kind == "qa" and not tokenizer.is_fast:
        raise ModelError(
            f"the tokenizer of {str(model)!r} does not know its offsets, so answers cannot be found among its tokens."
        )
    tokenizer.padding_side = "right"  # places of gaps and answers are counted from the left
    if torch.cuda.is_available():
        hf_model = hf_model.to("cuda")
    return mixlens.load(hf_model, tokenizer=tokenizer, check=False)


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
    kind: str, lens: Any, rows: list[Row], collate: Callable[[list[Row]], Any], recipe: Recipe, *, seed: int, quiet: bool
) -> tuple[float, ...]:
    """The Trainer as it is: AdamW without weight decay, a linear schedule. Returns about twenty losses along the way."""
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
            trainer.remove_callback(next(type(c) for c in trainer.callback_handler.callbacks if "Print" in type(c).__name__))
        trainer.train()
    return tuple(float(one["loss"]) for one in trainer.state.log_history if "loss" in one)


# --- the command line ---------------------------------------------------------------------------------------------------


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m recipes.finetune", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
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
        parser.add_argument(f"--{name}", type=kind, help="unless given, the paper's: " + _defaults(name.replace("-", "_")))
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
            print(f"{one.out}: {one.before:.1%} right before, {one.after:.1%} after, on {one.held_out} examples put aside")
    except mixlens.MixlensError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
