"""The plan of ALTI: Ferrando et al. 2022, Measuring the Mixing of Contextual Information in the Transformer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runs.experiments.plan import Comparison, Item, Role, Step, plan
from .main import PAPER, lower_in_the_second, rollout_needs_few_layers
from .shapes import rows_converge_in_bigger_models

ROLES = (
    Role("distilbert-sst2", "DistilBERT, fine-tuned on SST2", "distilbert-base-uncased-finetuned-sst-2-english"),
    Role("bert-sst2", "BERT-base, fine-tuned on SST2", "textattack/bert-base-uncased-SST-2"),
    Role("roberta-sst2", "RoBERTa-base, fine-tuned on SST2", "textattack/roberta-base-SST-2"),
    Role("distilbert", "DistilBERT, pre-trained", "distilbert-base-uncased"),
    Role("bert", "BERT-base, pre-trained", "bert-base-uncased"),
    Role("roberta", "RoBERTa-base, pre-trained", "roberta-base"),
)
MODELS = {"distilbert": "DistilBERT", "bert": "BERT", "roberta": "RoBERTa"}
SAMPLES = 500
TEST = "test"  # the split of SST2
PAIR = ("bert-sst2", "distilbert-sst2")


def _sst2(figure: str, experiment: str, shows: str, options: Mapping[str, Any]) -> tuple[Step, ...]:
    """One step for each of the three models on SST2."""
    return tuple(
        Step(
            f"{figure}-{model}",
            experiment,
            (f"{model}-sst2",),
            "sst2",
            f"{shows}: {name}",
            SAMPLES,
            options=options,
            split=TEST,
        )
        for model, name in MODELS.items()
    )


STEPS = (
    *_sst2("table2-sst2", "alti-table2", "Table 2, SST2", {}),
    *(
        Step(f"table2-sva-{model}", "alti-table2-sva", (model,), "sva", f"Table 2, SVA: {name}", SAMPLES)
        for model, name in MODELS.items()
    ),
    *_sst2("figure3", "alti-anisotropy", "Figure 3, anisotropy", {"outputs": "both"}),
    *_sst2("figure6", "alti-special-tokens", "Figure 6, special tokens and punctuation", {}),
    Step("figure7", "alti-consistency", PAIR, "sst2", "Figure 7, BERT and DistilBERT", SAMPLES, fast=6, split=TEST),
    Step(
        "figures8-10",
        "alti-relevance-matrices",
        ("bert-sst2",),
        "sst2",
        "Figures 8 to 10, relevance matrices",
        SAMPLES,
        split=TEST,
    ),
    Step(
        "figures8-10-distilbert",
        "alti-relevance-matrices",
        ("distilbert-sst2",),
        "sst2",
        "Figures 8 to 10 for DistilBERT, which section 5 compares with bigger models",
        SAMPLES,
        split=TEST,
    ),
)
GRADIENTS = (
    "grad_l2,grad_x_input:absolute=true,integrated_gradients:absolute=true:steps=100:rule=riemann_right:baseline=mask"
)
ROLLOUTS = "attention_rollout,norm_residual_ln:rollout=alti,alti"
REMARKABLE = "a remarkable 179 - minute meditation on the nature of revolution ."
ENGAGING = "an engaging overview of johnson ' s eccentric career ."
NORM = "it turns out to be a cut above the norm , thanks to some clever writing and sprightly acting ."
DUMBEST = "this may be the dumbest , sketchiest movie on record about an aspiring writer ' s coming - of - age ."
TRACKS = "certainly the tracks listed on the chart all [MASK] to be very obscure ."
DEFENSES = "a 1770s map of philadelphia ' s naval defenses [MASK] a fort on the island , but it is unidentified ."
BLEND = "a clever blend of fact and fiction ."
BLANK_OUT = "blank_out:replacement=mask:absolute=true"


def _compare(text: str, methods: str, model: str) -> str:
    """The command for one model; the other models of a table replace its name."""
    return f'mixlens compare "{text}" --model {model} --methods {methods}'


def _sentiment(text: str, methods: str) -> str:
    return _compare(text, methods, "textattack/bert-base-uncased-SST-2")


def _verb(text: str, methods: str) -> str:
    return _compare(text, methods, "bert-base-uncased")


def _plot(method: str, kind: str) -> str:
    model = "textattack/bert-base-uncased-SST-2"
    return f'mixlens plot "{BLEND}" --model {model} --method {method} --kind {kind} --rollout -o {kind}.svg'


OTHERS = "for RoBERTa and DistilBERT with their names for --model"
MASK = "for RoBERTa write `<mask>` where the command has `[MASK]`"
ITEMS = (
    Item(
        "Table 1",
        "saliency maps of one sentence, gradients and ALTI",
        command=_sentiment(REMARKABLE, f"{GRADIENTS},alti"),
    ),
    Item("Figure 1", "the modules of a layer", reason="a drawing"),
    Item("Figure 2", "paths in an attention graph", reason="a drawing"),
    Item(
        "Figure 3",
        "cosine similarity of outputs and of transformed vectors",
        tuple(f"figure3-{model}" for model in MODELS),
    ),
    Item("Figure 4", "sums of vectors in two spaces", reason="a drawing"),
    Item(
        "Figure 5",
        "the relevance matrix of one sentence, and its row of [CLS]",
        command=_plot("alti", "matrix"),
    ),
    Item("Table 2, SST2", "correlation with grad_l2, three models", tuple(f"table2-sst2-{model}" for model in MODELS)),
    Item("Table 2, SVA", "correlation with blank-out, three models", tuple(f"table2-sva-{model}" for model in MODELS)),
    Item(
        "Section 5, in the text",
        "Attn Rollout does reasonably well on DistilBERT alone; correlations are lower on SVA than on SST2",
        tuple(f"table2-{data}-{model}" for data in ("sst2", "sva") for model in MODELS),
    ),
    Item(
        "Section 5, in the text",
        "Attn Rollout's relevance matrix becomes homogeneous on bigger models",
        ("figures8-10", "figures8-10-distilbert"),
    ),
    Item("Figure 6", "ranks of [CLS], [SEP], comma and full stop", tuple(f"figure6-{model}" for model in MODELS)),
    Item(
        "Section 5, in the text",
        "blank-out gives [SEP] a large score and ignores most words",
        tuple(f"table2-sva-{model}" for model in MODELS),
    ),
    Item("Table 3", "saliency maps of one sentence of SVA", command=_verb(DEFENSES, f"{BLANK_OUT},grad_l2,alti")),
    Item("Figure 7", "agreement of BERT and DistilBERT, four methods", ("figure7",)),
    Item("Table 4", f"six methods on one sentence, {OTHERS}", command=_sentiment(ENGAGING, f"{GRADIENTS},{ROLLOUTS}")),
    Item(
        "Table 5", f"six methods on one sentence, {OTHERS}", command=_sentiment(REMARKABLE, f"{GRADIENTS},{ROLLOUTS}")
    ),
    Item("Table 6", f"four methods on a positive sentence, {OTHERS}", command=_sentiment(NORM, f"{GRADIENTS},alti")),
    Item("Table 7", f"four methods on a negative sentence, {OTHERS}", command=_sentiment(DUMBEST, f"{GRADIENTS},alti")),
    Item(
        "Table 8",
        f"five methods on a sentence of SVA, {OTHERS}; {MASK}",
        command=_verb(TRACKS, f"{GRADIENTS},{BLANK_OUT},alti"),
    ),
    Item(
        "Table 9",
        f"five methods on a sentence of SVA, {OTHERS}; {MASK}",
        command=_verb(DEFENSES, f"{GRADIENTS},{BLANK_OUT},alti"),
    ),
    Item("Figure 8", "Attn Rollout across layers", ("figures8-10",), command=_plot("attention:rollout=abnar", "grid")),
    Item(
        "Figure 9",
        "Norm Rollout across layers",
        ("figures8-10",),
        command=_plot("norm_residual_ln:rollout=alti", "grid"),
    ),
    Item("Figure 10", "ALTI across layers", ("figures8-10",), command=_plot("alti", "grid")),
)
ROLLOUT_NUMBERS = {  # of Table 2: DistilBERT against a model with more layers
    "sst2": {"bert": "0.23 against -0.03", "roberta": "0.23 against 0.01"},
    "sva": {"bert": "0.23 against -0.02", "roberta": "0.23 against -0.09"},
}
# SST2 against SVA: our means of the numbers that Table 2 has for the three methods.
OVERALL = {"distilbert": "0.35 against 0.32", "bert": "0.31 against 0.19", "roberta": "0.35 against 0.14"}
COMPARISONS = (
    *(
        Comparison(
            "Table 2, section 5",
            "Attn Rollout does reasonably well on DistilBERT alone, which has fewer layers: its correlation is "
            f"higher there than on {MODELS[other]} ({data.upper()})",
            number,
            (f"table2-{data}-distilbert", f"table2-{data}-{other}"),
            rollout_needs_few_layers,
        )
        for data, numbers in ROLLOUT_NUMBERS.items()
        for other, number in numbers.items()
    ),
    *(
        Comparison(
            "Table 2, section 5",
            f"correlations are lower overall on SVA than on SST2 ({name}, mean of the three methods)",
            OVERALL[model],
            (f"table2-sst2-{model}", f"table2-sva-{model}"),
            lower_in_the_second,
        )
        for model, name in MODELS.items()
    ),
    Comparison(
        "Figure 8, section 5",
        "Attn Rollout's relevance matrix converges on bigger models: in the last layer its rows are less alike on "
        "DistilBERT than on BERT",
        "pictures of BERT alone",
        ("figures8-10-distilbert", "figures8-10"),
        rows_converge_in_bigger_models,
    ),
)
PLAN = plan("alti", paper=PAPER, module=__name__, roles=ROLES, steps=STEPS, items=ITEMS, comparisons=COMPARISONS)
