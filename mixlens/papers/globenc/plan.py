"""The plan of GlobEnc: Modarressi et al. 2022, Quantifying Global Token Attribution by Incorporating the Whole Encoder
Layer."""

from __future__ import annotations

from ...runs.experiments.plan import Item, Role, Step, plan
from .main import FAMILY

PAPER = (
    "Modarressi et al. 2022, GlobEnc: Quantifying Global Token Attribution by Incorporating the Whole Encoder Layer "
    "in Transformers"
)
DATASETS = {"sst2": "SST2", "mnli": "MNLI", "hatexplain": "HateXplain"}
MODELS = {
    "bert": ("BERT-base", "Table 1"),
    "bert-large": ("BERT-large", "Table A.1"),
    "electra": ("ELECTRA-base", "Table A.2"),
}
HUB = {  # the checkpoints that the authors' configuration names
    "bert-sst2": "TehranNLP-org/bert-base-uncased-cls-sst2",
    "bert-mnli": "TehranNLP-org/bert-base-uncased-cls-mnli",
    "bert-hatexplain": "TehranNLP-org/bert-base-uncased-cls-hatexplain",
    "bert-large-sst2": "TehranNLP-org/bert-large-sst2",
    "bert-large-mnli": "TehranNLP-org/bert-large-mnli",
    "bert-large-hatexplain": "TehranNLP-org/bert-large-hateXplain",
    "electra-sst2": "TehranNLP-org/electra-base-sst2",
    "electra-mnli": "TehranNLP-org/electra-base-mnli",
    "electra-hatexplain": "TehranNLP-org/electra-base-hateXplain",
}
ROLES = tuple(
    Role(f"{model}-{data}", f"{name}, fine-tuned on {dataset}", HUB[f"{model}-{data}"])
    for model, (name, _) in MODELS.items()
    for data, dataset in DATASETS.items()
)
SPLITS = {"mnli": "validation_mismatched"}
FEWER = {"bert-large-mnli": 1024}  # examples; elsewhere the whole validation set
CLASSES = {  # in the order of the datasets, for models that do not name their classes
    "sst2": "negative,positive",
    "mnli": "entailment,neutral,contradiction",
    "hatexplain": "hatespeech,normal,offensive",
}
HTA = 256  # sentences of Figure 4


def _table1(model: str, data: str) -> Step:
    name, table = MODELS[model]
    role = f"{model}-{data}"
    return Step(
        f"table1-{role}",
        "globenc-table1",
        (role,),
        data,
        f"{table}: {name}, {DATASETS[data]}",
        FEWER.get(role),
        options={"classes": CLASSES[data]},
        split=SPLITS.get(data),
    )


TABLES = {table: tuple(f"table1-{model}-{data}" for data in DATASETS) for model, (_, table) in MODELS.items()}
BERT = ("bert-sst2",)
STEPS = (
    *(_table1(model, data) for model in MODELS for data in DATASETS),
    Step(
        "figure3",
        "globenc-layers",
        BERT,
        "sst2",
        "Figure 3 and Table 2: by layer",
        options={"classes": CLASSES["sst2"]},
    ),
    Step("figure4", "globenc-hta", BERT, "sst2", "Figure 4: single layers against HTA x Inputs", HTA, fast=6),
    Step("figure5", "globenc-ln-outliers", BERT, "sst2", "Figure 5: outlier weights of the two norms", 1, fast=1),
    Step("figure1", "globenc-own-token", BERT, "sst2", "Figure 1: what [CLS] takes from itself"),
)
MODEL = HUB["bert-sst2"]
DEEP, WASTE = "a deep and meaningful film .", "big fat waste of time ."


def _layers(text: str, model: str = MODEL, method: str = "globenc", pair: str = "") -> str:
    second = f' --pair "{pair}"' if pair else ""
    return f'mixlens plot "{text}"{second} --model {model} --method {method} --kind layers --rollout -o layers.svg'


def _each(command: str) -> str:
    """The command for W, which is rolled out as it is (eq. 12), and the names of the other seven maps."""
    return f"{command} (then {', '.join(FAMILY[1:])} for --method)"


# By itself attention is rolled out with half an identity (eq. 13), which is W_FIXEDRES.
RAW = f"{FAMILY[0]}:rollout=globenc"
ANY = "the text does not print the sentences; with any"
OWN = f"{ANY} premise and hypothesis"
ITEMS = (
    Item("Figure 1", "[CLS] by layer, two sentences", ("figure1",), command=_layers(DEEP)),
    Item("Figure 1, second sentence", "the same", command=_layers(WASTE)),
    Item("Figure 2", "the parts of an encoder layer", reason="a drawing"),
    Item(
        "Section 4.3.2, in the text",
        "HTA maps of 256 sentences take 2 hours, all other maps 5 seconds",
        reason="a time on the authors' machine; the manifest of each step has its seconds, and "
        "docs/measured/performance.md has the cost of each method",
    ),
    Item("Table 1", "correlation with saliency, BERT-base, three datasets", TABLES["Table 1"]),
    Item(
        "Section 4.5.1, footnote 9",
        "Abnar and Zuidema's correlation of 0.14",
        reason="a number of another paper, with DistilBERT and another saliency",
    ),
    Item("Figure 3", "correlation by layer, rolled out, with 99 % bands", ("figure3",)),
    Item("Figure 4", "single layers against HTA x Inputs, with 99 % bands", ("figure4",)),
    Item("Figure 5", "Pearson of the norms' outlier weights by layer, weights of layer 11", ("figure5",)),
    Item("Table 2", "single layers against rollout: layers 1, 6, 12 and the highest", ("figure3",)),
    Item("Section 4.5.4, in the text", "curves flatten after a few layers, W_RES does not", ("figure3",)),
    Item("Section 4.5.5, in the text", "[CLS] attends to itself in the first layers", ("figure1",)),
    Item("Table A.1", "correlation with saliency, BERT-large", TABLES["Table A.1"]),
    Item("Table A.2", "correlation with saliency, ELECTRA-base", TABLES["Table A.2"]),
    Item(
        "Figure A.1",
        f"[CLS] by layer, misclassified sentences; {ANY} that the model misclassifies",
        command=_layers("TEXT"),
    ),
    Item("Figure A.2", "[CLS] by layer, one picture for each method", command=_each(_layers(DEEP, method=RAW))),
    Item(
        "Figure A.3",
        "the last layer's rolled-out map, one picture for each method",
        command=_each(
            f'mixlens plot "{DEEP}" --model {MODEL} --method {RAW} --kind matrix --pieces --rollout -o map.svg'
        ),
    ),
    Item("Figure A.4", f"[CLS] by layer, MNLI; {OWN}", command=_layers("PREMISE", HUB["bert-mnli"], pair="HYPOTHESIS")),
    Item("Figure A.5", "the same, ELECTRA", command=_layers("PREMISE", HUB["electra-mnli"], pair="HYPOTHESIS")),
    Item("Figure A.6", "the same, BERT-large", command=_layers("PREMISE", HUB["bert-large-mnli"], pair="HYPOTHESIS")),
)
PLAN = plan("globenc", paper=PAPER, module=__name__, roles=ROLES, steps=STEPS, items=ITEMS)
