"""The plan of AttCAT: Tables 1 and 2, Figures 3 and 4 (Qiang et al. 2022)."""

from __future__ import annotations

from ...runs.experiments.plan import Item, Role, Step, plan
from .layers import SENTENCE
from .main import PAPER

OF_VERSION_1 = "read on SQuAD v2; the released notebook names the model that was fine-tuned on v1"
HUB = {
    "sst2": ("BERT-base, fine-tuned on SST-2", "textattack/bert-base-uncased-SST-2"),
    "qqp": ("BERT-base, fine-tuned on QQP", "textattack/bert-base-uncased-QQP"),
    "mnli": ("BERT-base, fine-tuned on MNLI", "textattack/bert-base-uncased-MNLI"),
    "amazon": ("BERT-base, fine-tuned on Amazon Polarity", "fabriceyhc/bert-base-uncased-amazon_polarity"),
    "yelp": ("BERT-base, fine-tuned on Yelp Polarity", "fabriceyhc/bert-base-uncased-yelp_polarity"),
    "imdb": ("BERT-base, fine-tuned on IMDB", "fabriceyhc/bert-base-uncased-imdb"),
    "squad1": ("BERT-base, fine-tuned on SQuAD v1", "csarron/bert-base-uncased-squad-v1"),
    "squad2": ("BERT-base, fine-tuned on SQuAD v2", "deepset/bert-base-uncased-squad2"),
    "squad-distilbert": ("DistilBERT, fine-tuned on SQuAD v1", "distilbert-base-uncased-distilled-squad"),
    "squad-roberta": ("RoBERTa, fine-tuned on SQuAD v1", "thatdramebaazguy/roberta-base-squad"),
    "squad2-distilbert": (f"DistilBERT, {OF_VERSION_1}", "distilbert-base-uncased-distilled-squad"),
    "squad2-roberta": (f"RoBERTa, {OF_VERSION_1}", "thatdramebaazguy/roberta-base-squad"),
}
V2 = "released_v2"  # the notebook of SQuAD v2 adds magnitudes
LONG = ("amazon", "yelp", "imdb")  # 2,000 texts drawn at random; the others whole
FEW = 3  # long texts of a run with --fast
CLASSIFIED = ("sst2", "qqp", "mnli", *LONG)


def _steps(kind: str, experiment: str, shows: str, **options: str) -> tuple[Step, ...]:
    """One step for each data set of classification."""
    return tuple(
        Step(
            f"{kind}-{name}",
            experiment,
            (name,),
            name,
            f"{shows}, {name}",
            n=2000 if name in LONG else None,
            fast=FEW if name in LONG else 12,
            options=options,
            truncate=True,
        )
        for name in CLASSIFIED
    )


def _answers(name: str, role: str, data: str, shows: str, **options: str) -> Step:
    return Step(name, "attcat-qa", (role,), data, shows, fast=FEW, options=options, truncate=True)


FAITHFUL = _steps("table1", "attcat-faithfulness", "Table 1")
RELEASED = _steps(
    "table1-released", "attcat-faithfulness", "Table 1 as the released code computes it", variant="released"
)
CONFIDENT = _steps("table2", "attcat-confidence", "Table 2")
QUESTIONS = (
    _answers("figure3-squad1", "squad1", "squad1", "Figure 3, BERT, SQuAD v1"),
    _answers(
        "figure3-squad1-released", "squad1", "squad1", "Figure 3 as the released code computes it", read="released"
    ),
    _answers("figure3-squad2", "squad2", "squad2", "Figure 3, BERT, SQuAD v2"),
    _answers(
        "figure3-squad2-released", "squad2", "squad2", "Figure 3, SQuAD v2, as its released code computes it", read=V2
    ),
    _answers("figure3-distilbert", "squad-distilbert", "squad1", "Figure 3, DistilBERT, SQuAD v1"),
    _answers("figure3-roberta", "squad-roberta", "squad1", "Figure 3, RoBERTa, SQuAD v1"),
    _answers("figure3-distilbert-squad2", "squad2-distilbert", "squad2", "Figure 3, DistilBERT, SQuAD v2"),
    _answers("figure3-roberta-squad2", "squad2-roberta", "squad2", "Figure 3, RoBERTa, SQuAD v2"),
)
LAYERS = Step(
    "figure4",
    "attcat-layers",
    ("sst2",),
    "sst2",
    "Figure 4, layers, Rollout and Sum",
    options={"sentence": SENTENCE},
    truncate=True,
)
EXAMPLE = "i really didn't like this movie. some of the actors were good, but overall the movie was boring."
QUESTION = "which nfl team represented the afc at super bowl 50 ?"
PARAGRAPH = (
    "super bowl 50 was an american football game to determine the champion of the national football league (nfl) for "
    "the 2015 season , the american football conference (afc) champion denver broncos defeated the national football "
    "conference (nfc) champion carolina panthers 24 - 10 to earn their third super bowl title ."
)

PLAN = plan(
    "attcat",
    paper=PAPER,
    module=__name__,
    roles=tuple(Role(name, what, hub) for name, (what, hub) in HUB.items()),
    steps=(*FAITHFUL, *RELEASED, *CONFIDENT, *QUESTIONS, LAYERS),
    items=(
        Item("Figure 1", "the architecture", reason="a drawing"),
        Item("Figure 2", "the methods compared", command="mixlens methods"),
        Item(
            "Equations 1-12",
            "CAT, AttCAT and the impact score",
            command=f'mixlens explain "{EXAMPLE}" --model {HUB["sst2"][1]} --method attcat',
        ),
        Item("Equations 13, 14", "AOPC and LOdds", steps=tuple(step.name for step in FAITHFUL)),
        Item(
            "Equation 15",
            "Kendall's tau between the explanations of classes",
            steps=tuple(step.name for step in CONFIDENT),
        ),
        Item(
            "Section 1",
            "information flows through the skip connection three times more often than through attention",
            reason="a number of another paper (Lu et al., Influence Patterns)",
        ),
        Item("Table 1", "AOPC and LOdds, six data sets", steps=tuple(step.name for step in (*FAITHFUL, *RELEASED))),
        Item("Table 2", "Kendall's tau between classes, six data sets", steps=tuple(step.name for step in CONFIDENT)),
        Item("Figure 3", "Precision@20 on SQuAD v1 and v2, three models", steps=tuple(step.name for step in QUESTIONS)),
        Item("Figure 3, caption", "maximal scores of 3.72 and 3.84", steps=("figure3-squad1", "figure3-squad2")),
        Item("Figure 4", "impact scores by layer, Rollout and Sum", steps=("figure4",)),
        Item(
            "Section 6.2: 0.72 for 'not', -0.37 for 'like'",
            "scores of two tokens of the sentence of Figure 4",
            steps=("figure4",),
            command=f'mixlens explain "{SENTENCE}" --model {HUB["sst2"][1]} --method attcat:variant=released '
            "--no-special",
        ),
        Item(
            "Figure 5a",
            "scores of a question and its paragraph (here its beginning, which has the answer)",
            command=f'mixlens explain "{QUESTION}" --pair "{PARAGRAPH}" --model {HUB["squad1"][1]} --method attcat',
        ),
        Item(
            "Figure 5b",
            "scores of one sentence by four methods",
            command=f'mixlens compare "{EXAMPLE}" --model {HUB["sst2"][1]} '
            "--methods attcat,transatt,raw_attention,attention_rollout --no-special",
        ),
        Item(
            "Section 6.1",
            "Precision@K for other K",
            command=f"mixlens experiment attcat-qa --model {HUB['squad1'][1]} --truncate --option k=10",
        ),
        Item("Appendix", "accuracy of the models, more examples", reason="the appendix is not in the paper's text"),
    ),
)
