"""Trains the two small BERT models that ship with mixlens, on sentences of mixlens.data.grammar.

    python -m recipes.train.embedded [--model agreement|sentiment|all] [--out DIR] [--steps N]

Training sees no held-out pair of words; the accuracy written beside each model is measured on sentences
that have at least one. Seeds are fixed and one thread is used, so the number of cores changes nothing.
"""

import argparse
import json
import re
import string
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification, BertTokenizer

from mixlens.data.grammar import NEGATIVE, POSITIVE, Sentence, agreement, number_of, sentiment

OUT = Path(__file__).resolve().parents[2] / "mixlens" / "model" / "embedded"
SEED, TEST_SEED = 2024, 1
N_TEST = 6_000
N_READ_FOR_VOCABULARY = 20_000
BATCH = 64
N_SORTED = 32  # batches that are filled by length together, to spare padding
PEAK_RATE, WARMUP = 7e-4, 0.05
HIDDEN_SHARE = 0.1  # of the words not asked for: training puts [MASK] over them
HIDDEN_WEIGHT = 0.2  # of the loss on these, beside 1 for the word asked for
LABEL_IDS = {NEGATIVE: 0, POSITIVE: 1}
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # first in the vocabulary, so place is id
PAD_ID, MASK_ID = SPECIAL.index("[PAD]"), SPECIAL.index("[MASK]")
SHAPE: dict[str, Any] = {
    "hidden_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 384,
    "max_position_embeddings": 128,
    "hidden_dropout_prob": 0.0,  # sentences never run out, so there is nothing to overfit
    "attention_probs_dropout_prob": 0.0,
    "initializer_range": 0.05,
}


@dataclass(frozen=True)
class Batch:
    ids: Tensor  # [sentence pos]
    target: Tensor  # [sentence]: id of the word, or of the label
    foil: Tensor  # [sentence]


@dataclass(frozen=True)
class Recipe:
    """What the two models do not share."""

    sentences: Callable[..., Iterator[Sentence]]
    steps: int
    split: str  # words that the vocabulary knows in pieces only
    answers: Callable[[BertTokenizer], dict[str, int]]  # id of every word or label that can be the answer
    build: Callable[[BertConfig], Any]
    config: dict[str, Any]
    loss: Callable[[Any, Batch], Tensor]
    judge: Callable[[Any, BertTokenizer, Batch], dict[str, Tensor]]  # measure -> right [sentence]


def hide(ids: Tensor) -> tuple[Tensor, Tensor]:
    """ids with a share of the ordinary tokens masked, and which ones."""
    hidden = (ids >= len(SPECIAL)) & (torch.rand(ids.shape) < HIDDEN_SHARE)
    return ids.masked_fill(hidden, MASK_ID), hidden


def logits_of(model: Any, ids: Tensor) -> Tensor:
    logits: Tensor = model(input_ids=ids, attention_mask=(ids != PAD_ID).long()).logits
    return logits


def masked_word_loss(model: Any, batch: Batch) -> Tensor:
    ids, hidden = hide(batch.ids)
    logits = logits_of(model, ids)
    asked = cross_entropy(logits[batch.ids == MASK_ID], batch.target)
    others = cross_entropy(logits[hidden], batch.ids[hidden], reduction="sum") / hidden.sum().clamp(min=1)
    return asked + HIDDEN_WEIGHT * others


def masked_word_judge(model: Any, tokenizer: BertTokenizer, batch: Batch) -> dict[str, Tensor]:
    logits = logits_of(model, batch.ids)[batch.ids == MASK_ID]
    answers = logits.argmax(-1), batch.target
    best, target = (tokenizer.convert_ids_to_tokens(ids.tolist()) for ids in answers)
    same_number = [number_of(a) == number_of(b) for a, b in zip(best, target, strict=True)]
    return {"target_above_foil": preferred(logits, batch), "top1_number": torch.tensor(same_number)}


def label_loss(model: Any, batch: Batch) -> Tensor:
    """Words are hidden here too, so that the model knows [MASK] when a metric puts it over a word."""
    return cross_entropy(logits_of(model, hide(batch.ids)[0]), batch.target)


def label_judge(model: Any, tokenizer: BertTokenizer, batch: Batch) -> dict[str, Tensor]:
    return {"accuracy": preferred(logits_of(model, batch.ids), batch)}


def preferred(logits: Tensor, batch: Batch) -> Tensor:
    target, foil = (logits.gather(-1, ids[:, None])[:, 0] for ids in (batch.target, batch.foil))
    return target > foil


def label_ids(tokenizer: BertTokenizer) -> dict[str, int]:
    return LABEL_IDS


RECIPES = {
    "agreement": Recipe(
        sentences=agreement,
        steps=5_000,
        split="""photo-grapher photo-grapher-s garden-er garden-er-s librar-ian librar-ian-s violin-ist
        violin-ist-s fire-fighter fire-fighter-s grand-father grand-father-s grand-mother grand-mother-s
        butter-fly butter-flies grass-hopper grass-hopper-s news-paper news-paper-s bi-cycle bi-cycle-s
        tele-scope tele-scope-s umbrel-la umbrel-la-s""",
        answers=BertTokenizer.get_vocab,
        build=BertForMaskedLM,
        config={},
        loss=masked_word_loss,
        judge=masked_word_judge,
    ),
    "sentiment": Recipe(
        sentences=sentiment,
        steps=4_000,
        split="""out-standing un-forget-table forget-table dis-appoint-ing under-whelm-ing un-pleasant
        sound-track screen-play camera-work""",
        answers=label_ids,
        build=BertForSequenceClassification,
        config={"id2label": {place: label for label, place in LABEL_IDS.items()}, "label2id": LABEL_IDS},
        loss=label_loss,
        judge=label_judge,
    ),
}


def build_tokenizer(recipe: Recipe) -> BertTokenizer:
    """A WordPiece tokenizer of the words met in training; any other word is spelled, never [UNK]."""
    pieces = {entry.replace("-", ""): [*mark_pieces(entry.split("-"))] for entry in recipe.split.split()}
    met = {
        word
        for sentence in islice(recipe.sentences(seed=SEED), N_READ_FOR_VOCABULARY)
        for word in re.findall(r"[a-z]+", sentence.text.replace("[MASK]", sentence.target).lower())
    }
    characters = string.ascii_lowercase + string.digits
    vocabulary = [
        *SPECIAL,
        *string.punctuation,
        *characters,
        *(f"##{character}" for character in characters),
        *sorted((met - pieces.keys()) | {piece for word in pieces.values() for piece in word}),
    ]
    ids = {token: place for place, token in enumerate(dict.fromkeys(vocabulary))}
    tokenizer = BertTokenizer(vocab=ids, model_max_length=SHAPE["max_position_embeddings"])
    for word, expected in pieces.items():
        if (found := tokenizer.tokenize(word)) != expected:
            raise ValueError(f"{word!r} splits into {found}, not into {expected}")
    return tokenizer


def mark_pieces(pieces: list[str]) -> Iterator[str]:
    yield pieces[0]
    yield from (f"##{piece}" for piece in pieces[1:])


def batches(recipe: Recipe, tokenizer: BertTokenizer, sentences: list[Sentence]) -> Iterator[Batch]:
    answers = recipe.answers(tokenizer)
    for start in range(0, len(sentences), BATCH):
        part = sentences[start : start + BATCH]
        encoded = tokenizer([sentence.text for sentence in part], padding=True, return_tensors="pt")
        yield Batch(
            ids=encoded["input_ids"],
            target=torch.tensor([answers[sentence.target] for sentence in part]),
            foil=torch.tensor([answers[sentence.foil] for sentence in part]),
        )


def training_batches(recipe: Recipe, tokenizer: BertTokenizer) -> Iterator[Batch]:
    sentences = recipe.sentences(seed=SEED)
    while True:
        drawn = sorted(islice(sentences, BATCH * N_SORTED), key=lambda sentence: len(sentence.text))
        by_length = list(batches(recipe, tokenizer, drawn))
        yield from (by_length[place] for place in torch.randperm(len(by_length)).tolist())


def train(recipe: Recipe, tokenizer: BertTokenizer, *, steps: int) -> Any:
    torch.manual_seed(SEED)
    config = BertConfig(vocab_size=len(tokenizer), pad_token_id=PAD_ID, **SHAPE, **recipe.config)
    model = recipe.build(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer,
        max_lr=PEAK_RATE,
        total_steps=steps,
        pct_start=WARMUP,
        cycle_momentum=False,
    )
    start, recent = time.monotonic(), []
    for step, batch in enumerate(islice(training_batches(recipe, tokenizer), steps), start=1):
        loss = recipe.loss(model, batch)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        recent.append(loss.item())
        if step % 250 == 0 or step == steps:
            mean, seconds = sum(recent) / len(recent), time.monotonic() - start
            print(f"step {step:>5} of {steps}   loss {mean:.4f}   {seconds:5.0f} s", flush=True)
            recent.clear()
    return model.eval()


@torch.no_grad()
def measure(recipe: Recipe, model: Any, tokenizer: BertTokenizer) -> dict[str, dict[str, float]]:
    """Group of held-out sentences -> their number, and the share that is right by each measure."""
    sentences = list(islice(recipe.sentences(seed=TEST_SEED, held_out=True), N_TEST))
    judged = [recipe.judge(model, tokenizer, batch) for batch in batches(recipe, tokenizer, sentences)]
    right = {name: torch.cat([verdict[name] for verdict in judged]) for name in judged[0]}
    groups: dict[str, list[int]] = {"all": list(range(len(sentences)))}
    for place, sentence in enumerate(sentences):
        attracted = "with attractors" if sentence.attractors else "without attractors"
        for group in (attracted, f"{sentence.task}: {sentence.construction}"):
            groups.setdefault(group, []).append(place)
    return {
        group: {"n": len(places), **{name: share(verdict[places]) for name, verdict in right.items()}}
        for group, places in sorted(groups.items(), key=lambda item: (":" in item[0], item[0]))
    }


def share(right: Tensor) -> float:
    return round(right.double().mean().item(), 4)


def table(groups: dict[str, dict[str, float]]) -> str:
    """The groups as a Markdown table."""
    names = list(groups["all"])
    rows = [["sentences", *names], ["---", *("---:" for _ in names)]]
    for group, values in groups.items():
        rows.append([group, str(values["n"]), *(f"{values[name]:.2%}" for name in names[1:])])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def make(name: str, *, out: Path, steps: int | None) -> None:
    recipe = RECIPES[name]
    steps = steps or recipe.steps
    print(f"{name}: {steps} steps of {BATCH} sentences", flush=True)
    tokenizer = build_tokenizer(recipe)
    model = train(recipe, tokenizer, steps=steps)
    groups = measure(recipe, model, tokenizer)
    print(table(groups), flush=True)
    folder = out / name
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    accuracy = {
        "model": name,
        "seed": SEED,
        "steps": steps,
        "batch": BATCH,
        "test_seed": TEST_SEED,
        "test_sentences": N_TEST,
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "held_out": groups,
    }
    (folder / "accuracy.json").write_text(json.dumps(accuracy, indent=2) + "\n")
    weights = folder / "model.safetensors"
    weights.chmod(0o644)  # save_pretrained lets only its owner read it
    size = weights.stat().st_size / 1e6
    print(f"{folder}: {model.num_parameters():,} parameters, {size:.2f} MB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the models that ship with mixlens and measure them.")
    parser.add_argument("--model", choices=[*RECIPES, "all"], default="all", help="which one (default: all)")
    parser.add_argument("--out", type=Path, default=OUT, help="folder that gets one folder per model")
    parser.add_argument("--steps", type=int, help="training steps, instead of the recipe's own")
    options = parser.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    for name in RECIPES if options.model == "all" else [options.model]:
        make(name, out=options.out, steps=options.steps)


if __name__ == "__main__":
    main()
