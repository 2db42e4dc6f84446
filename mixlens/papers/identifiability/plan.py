"""The plan of On Identifiability in Transformers (Brunner et al. 2020): its models, its runs, and every figure it
has."""

from __future__ import annotations

from ...metrics.mixing_stats import BRUNNER
from ...runs.experiments.plan import Comparison, Item, Role, Step, plan
from .context import far_context_is_smaller
from .mixing import shares_are_larger

BERT, BERT_MRPC, BERT_COLA = "bert", "bert-mrpc", "bert-cola"
CUTS = (16, 32, 48, 64, 80, 96, 112, 128)
FAST_RATE = 0.003  # the largest that the paper tried: a g is trained in a tenth of the epochs
QUICK = {"kinds": ("naive", "linear"), "folds": 1, "rate": FAST_RATE}
LINEAR = {"kinds": ("linear",), "distances": ("cosine",), "rate": FAST_RATE}
ESTIMATED = {"methods": ("hta:probes=2",)}
PASSAGE = (  # of A.3; its second part ends within a sentence
    "research into military brats has consistently shown them to be better behaved than their civilian counterparts.",
    "hypothesizes as to why brats are better behaved: firstly, military parents have a lower threshold for misbehavior "
    "in their children; secondly, the mobility of teenagers might make them less likely to attract attention to "
    "themselves, as many want to fit in and are less secure with their surroundings; and thirdly, normative "
    "constraints are greater, with brats knowing that their behavior is under scrutiny and can affect the military "
    "member's career. teenage years are typically a period when people establish independence by taking some risks "
    "away from their",
)
PAIR = (  # of C.4; the second sentence begins with a quotation mark
    "he said the foodservice pie business doesn't fit the company's long-term growth strategy.",
    '" the foodservice pie business does not fit our long-term growth strategy.',
)

_OF_A_MAP = f'mixlens explain "{PAIR[0]}" --model bert-base-uncased --method '

ROLES = (
    Role(BERT, "BERT-base uncased, pre-trained", "bert-base-uncased"),
    Role(BERT_MRPC, "BERT-base uncased, fine-tuned on MRPC", "textattack/bert-base-uncased-MRPC"),
    Role(BERT_COLA, "BERT-base uncased, fine-tuned on CoLA", "textattack/bert-base-uncased-CoLA"),
)

STEPS = (
    Step(
        "effective",
        "id-effective-attention",
        (BERT,),
        "wikitext",
        "Figures 1 and 5: raw and effective attention by length and by type of token",
        n=1000,
        fast=8,
        options={"cuts": CUTS},
    ),
    Step(
        "identity",
        "id-token-identifiability",
        (BERT,),
        "mrpc",
        "Figure 2a: tokens identified by their hidden states, MRPC",
        fast=40,
        fast_options=QUICK,
    ),
    Step(
        "identity-cola",
        "id-token-identifiability",
        (BERT,),
        "cola",
        "Figure 38: tokens identified by their hidden states, CoLA",
        fast=60,
        fast_options=QUICK,
    ),
    Step(
        "identity-mnli",
        "id-token-identifiability",
        (BERT,),
        "mnli",
        "Figure 39: tokens identified by their hidden states, first 500 of MNLI-matched",
        n=500,
        first=True,
        fast=20,
        fast_options=QUICK,
    ),
    Step(
        "across",
        "id-across-layers",
        (BERT,),
        "mrpc",
        "Figures 2b, 8, 9, 10: a g trained on one layer, tested on all",
        fast=60,
        fast_options=LINEAR,
    ),
    Step(
        "generalization",
        "id-generalization",
        (BERT,),
        "mrpc",
        "Figure 7 and B.2: training and test texts, sizes of the training set",
        fast=20,
        fast_options={"layers": (1, 6), "rate": FAST_RATE},
    ),
    Step(
        "steps",
        "id-hidden-to-hidden",
        (BERT,),
        "mrpc",
        "Figure 11: tokens identified across single layers",
        fast=20,
        fast_options={"kinds": ("naive", "linear"), "distances": ("l2",), "rate": FAST_RATE},
    ),
    Step(
        "steps-mrpc",
        "id-hidden-to-hidden",
        (BERT, BERT_MRPC),
        "mrpc",
        "Figure 12: across single layers, before and after fine-tuning on MRPC",
        fast=60,
        options={"kinds": ("naive",)},
    ),
    Step(
        "steps-cola",
        "id-hidden-to-hidden",
        (BERT, BERT_COLA),
        "cola",
        "Figure 13: across single layers, before and after fine-tuning on CoLA",
        fast=100,
        options={"kinds": ("naive",)},
    ),
    Step(
        "neighbours",
        "id-neighbours",
        (BERT,),
        "mrpc",
        "Figures 14-17: neighbouring tokens",
        fast=20,
        fast_options={**LINEAR, "layers": (1, 6)},
    ),
    Step(
        "contributions",
        "id-contributions",
        (BERT,),
        "mrpc",
        "Figures 3, 4 and 18: own token and context by HTA, MRPC",
        fast=8,
        fast_options=ESTIMATED,
    ),
    Step(
        "contributions-cola",
        "id-contributions",
        (BERT,),
        "cola",
        "Figures 40 and 41: own token and context by HTA, CoLA",
        fast=12,
        fast_options=ESTIMATED,
    ),
    Step(
        "contributions-mnli",
        "id-contributions",
        (BERT,),
        "mnli",
        "Figures 42 and 43: own token and context by HTA, first 4,000 of MNLI-matched",
        n=4000,
        first=True,
        fast=8,
        fast_options=ESTIMATED,
    ),
    Step(
        "mixing-and-identity",
        "id-mixing-and-identity",
        (BERT,),
        "mrpc",
        "Section 5.2: tokens to which another contributes more, beside tokens not identified",
        fast=8,
        fast_options={**ESTIMATED, "folds": 3, "rate": FAST_RATE},
    ),
    Step(
        "pos",
        "id-pos",
        (BERT,),
        "ud_english",
        "Figures 26-37: own token by part of speech",
        fast=12,
        fast_options=ESTIMATED,
    ),
)

ITEMS = (
    Item(
        "Equations 1, 2",
        "attention of one head, and what it weighs (in Python, `mixlens.identifiability` has the rank of T)",
        command=_OF_A_MAP + "attention:head=0 --map 4",
    ),
    Item(
        "Equations 8, 9",
        "the part of attention that its output can tell, and the rest",
        command=_OF_A_MAP + "effective_attention:head=0 --map 4 (then null_attention:head=0)",
    ),
    Item("Equations 10, 11", "hidden token attribution", command=_OF_A_MAP + "hta --map 4"),
    Item("Equation 6", "the dimension of the null space of T by length", ("effective",)),
    Item(
        "Equations 3-5, 7; section 3.3",
        "rank and null space of T, alternative attention within the simplex",
        reason="a proof, without an experiment; in Python `mixlens.identifiability` gives rank and dimensions of the "
        "heads of a model, `mixlens.alternative_attention` other weights with the same output",
    ),
    Item("Figure 1a", "Pearson of raw and effective attention by length", ("effective",)),
    Item(
        "Figures 1b, 1c", "raw and effective attention of each head to [CLS], [SEP], periods and commas", ("effective",)
    ),
    Item(
        "Section 3.4",
        "effective attention as the alternative attention of minimal norm, or on the probability simplex",
        reason="the paper names both, finds their reading unclear (parts that change no output stay in the weights) "
        "and leaves them to later work; id-effective-attention has the paper's own form",
    ),
    Item("Figure 5", "raw and effective attention to [SEP] from [SEP] and from others", ("effective",)),
    Item(
        "Figure 6",
        "raw, effective and null attention of one head of layer 4 on one passage (the figure does not name the head)",
        command=f'mixlens plot "{PASSAGE[0]}" --pair "{PASSAGE[1]}" --model bert-base-uncased --kind matrix --pieces '
        "--layer 4 --method null_attention:head=0 --width 30 -o null.svg "
        "(then attention:head=0, effective_attention:head=0)",
    ),
    Item("Figure 2a; 0.93 of section 4.2", "tokens identified in each layer", ("identity",)),
    Item("Figures 2b, 8, 9, 10; 0.70 and 0.94 of section 4.2", "a g of one layer on all layers", ("across",)),
    Item(
        "Section 4.1",
        "408 pairs, 26 to 92 tokens, 58 on average, 21,723 in all",
        reason="facts of MRPC. 21,723 of 408 are 53 tokens on average, not 58: chance in step identity is 1 / 53 here "
        "(0.019), where D.1 has 1.7 %",
    ),
    Item(
        "Appendix D",
        "1,043 sentences of CoLA, 5 to 35 tokens, 11 on average; 4,000 pairs of MNLI, 155,964 tokens, 6 to 128, 39 on "
        "average; 19,839 tokens of 500",
        reason="facts of the data",
    ),
    Item(
        "B.1",
        "a hidden layer of 3,072 with dropout",
        reason="tried and not used by the paper: it made training longer, and no result is given",
    ),
    Item(
        "B.1",
        "the variance over folds is small",
        reason="no number is given; runs with folds keep the rate of each fold",
    ),
    Item(
        "B.1", "search of the learning rate", command="mixlens experiment id-token-identifiability --option search=true"
    ),
    Item("Figure 7", "training and test rates", ("generalization",)),
    Item("B.2: 0.74, 0.80, 0.81, 0.82", "an MLP on 50, 80, 90, 100 % of the training texts", ("generalization",)),
    Item("Figure 11", "tokens across single layers", ("steps",)),
    Item("Figure 12", "the same before and after fine-tuning on MRPC", ("steps-mrpc",)),
    Item("Figure 13", "the same before and after fine-tuning on CoLA", ("steps-cola",)),
    Item("Figures 14, 15, 16, 17", "neighbouring tokens, four kinds of g", ("neighbours",)),
    Item(
        "Figures 3a, 3b; 30.6, 14.4, 10.7 %, 18, 30 % of section 5.2", "share of the own token; P", ("contributions",)
    ),
    Item("Section 5.2", "P is above the identifiability error", ("mixing-and-identity",)),
    Item("Figure 3 alone", "the same from its own pass of HTA", command="mixlens experiment id-mixing"),
    Item("Figures 4 and 18 alone", "context, from its own pass of HTA", command="mixlens experiment id-context"),
    Item("Figures 4a, 4b", "context by distance and by relative place", ("contributions",)),
    Item("Figures 18a, 18b", "what [CLS] takes, by place and around [SEP]", ("contributions",)),
    Item(
        "Figures 19-25",
        "the context of seven words of one pair, layer by layer",
        command=f"mixlens plot \"{PAIR[0]}\" --pair '{PAIR[1]}' --model bert-base-uncased --method hta --kind layers "
        "--query 2 -o said.svg (then 0 [CLS], 1 he, 13 fit, 18 long, 22 strategy, 24 [SEP])",
    ),
    Item("Figures 26-37", "own token by part of speech, layers 1 to 12", ("pos",)),
    Item("D.1: 1.7, 9, 2.6 %", "chance", ("identity", "identity-cola", "identity-mnli")),
    Item("Figure 38", "Figure 2a on CoLA", ("identity-cola",)),
    Item("Figure 39", "Figure 2a on 500 pairs of MNLI", ("identity-mnli",)),
    Item("D.2.1, in the text", "own token's share and P on CoLA beside MRPC", ("contributions-cola", "contributions")),
    Item("Figures 40, 41", "Figures 3 and 4 on CoLA", ("contributions-cola",)),
    Item("Figures 42, 43", "Figures 3 and 4 on MNLI", ("contributions-mnli",)),
)

COMPARISONS = (
    Comparison(
        "D.2.1, Figure 40",
        "on CoLA the own token's share and P are slightly larger than on MRPC in every layer (means over texts; a "
        "layer where P is 0 in every text of both is left out; how much is slight is not judged)",
        "in the figures",
        ("contributions-cola", "contributions"),
        shares_are_larger,
    ),
    Comparison(
        "D.2.1, Figure 41",
        "on CoLA tokens beyond the 10th neighbour contribute less of the context than on MRPC (here: those up to 10 "
        "away contribute more, in the first, middle and last layer)",
        "in the figure; explained by 11 tokens on average",
        ("contributions-cola", "contributions"),
        far_context_is_smaller,
    ),
)
PLAN = plan(
    "identifiability", paper=BRUNNER, module=__name__, roles=ROLES, steps=STEPS, items=ITEMS, comparisons=COMPARISONS
)
