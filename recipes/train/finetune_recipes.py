"""The settings of each way to fine-tune, and where they come from."""

from __future__ import annotations

from dataclasses import dataclass

from mixlens.base.errors import InputError


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
        0.5,
        "equal halves for training and testing: Value Zeroing, section 4.1; rate, batch, epochs, warm-up, length and "
        "seed: its "
        "run_finetuning.py.",
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
        "rate, batch and epochs: Devlin et al. 2019 for SQuAD v1.1 (v2.0: 2 epochs, batch 48). AttCAT took models "
        "from the hub. "
        "Length, stride, warm-up and held-out share: our choice (length and stride as in Devlin's code).",
    ),
}
SEED = 42  # GlobEnc's and Value Zeroing's


def checked(recipe: Recipe) -> Recipe:
    """The recipe, unless one of its numbers makes no sense."""
    for name in ("rate", "batch", "epochs", "length"):
        if not getattr(recipe, name) > 0:
            raise InputError(f"{name} must be above 0, not {getattr(recipe, name)}.")
    if not 0 < recipe.held_out < 1 or not 0 <= recipe.warmup < 1:
        raise InputError(f"held_out and warmup are shares below 1, not {recipe.held_out} and {recipe.warmup}.")
    return recipe
