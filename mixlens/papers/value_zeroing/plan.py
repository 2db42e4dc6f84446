"""Value Zeroing (Mohebbi et al. 2023): every table, figure and number in the text, with the run or the command that
makes it."""

from __future__ import annotations

from ...runs.experiments.plan import Item, Role, Step, plan

PAPER = "Mohebbi et al. 2023, Quantifying Context Mixing in Transformers"
CONDITIONS = (("pretrained", "pre-trained"), ("tuned", "fine-tuned"))
DATA, SPLIT = "blimp_vz", "test"
FAST = 40  # examples of a run with --fast: intervals of fewer tell nothing
SENTENCE = '"The pictures of some hat [MASK] scaring Marcus."'
PAIR = "--target were --foil is"
BLANK_OUT = "blank_out:replacement=unk"
MAPS = (  # the figure of single layers, the map, the map as Table 3 rolls it out
    ("A.5", "attention", "attention", "raw attention"),
    ("A.7", "norm", "norm_fixed_residual:rollout=toolkit", "Attn-norm"),
    ("A.9", "norm_residual", "norm_residual:rollout=toolkit", "Attn-norm + RES"),
    ("A.11", "norm_residual_ln", "norm_residual_ln:rollout=toolkit", "Attn-norm + RES + LN"),
    ("A.13", "globenc", "globenc:rollout=toolkit", "GlobEnc"),
    ("A.15", "alti", "alti", "ALTI"),
    ("A.17", "value_zeroing", "value_zeroing", "Value Zeroing"),
)
ROLLED = tuple(rolled for _, _, rolled, _ in MAPS)
GRADIENTS = ("grad_x_input:absolute=true", "integrated_gradients:absolute=true", "deeplift")


def _step(name: str, experiment: str, role: str, shows: str, **more: object) -> Step:
    settings = {"fast": FAST, "split": SPLIT, **more}
    return Step(name, experiment, (role,), DATA, shows, **settings)  # type: ignore[arg-type]


def _grid(method: str, more: str = "") -> str:
    return f"mixlens plot {SENTENCE} --model TUNED --method {method} --kind grid{more} -o figure.svg"


def _map_items(number: str, method: str, rolled: str, what: str) -> tuple[Item, Item]:
    """The figure of single layers, and the next one: the same map rolled out, as in Table 3."""
    after = f"A.{int(number.partition('.')[2]) + 1}"
    return (
        Item(f"Figure {number}", f"{what}, single layers", command=_grid(method)),
        Item(f"Figure {after}", f"{what}, aggregated by rollout as in Table 3", command=_grid(rolled, " --rollout")),
    )


ROLES = (
    Role("pretrained", "BERT-base, uncased, pre-trained", "bert-base-uncased"),
    Role("tuned", "the same, prompt-tuned on the half Train (recipes/train/finetune.py prompt)"),
    Role("roberta", "RoBERTa-base, pre-trained", "roberta-base"),
    Role("roberta-tuned", "the same, prompt-tuned"),
    Role("electra", "ELECTRA-base generator, pre-trained", "google/electra-base-generator"),
    Role("electra-tuned", "the same, prompt-tuned"),
)
STEPS = (
    Step(
        "accuracy",
        "vz-accuracy",
        ("pretrained", "tuned"),
        DATA,
        "Accuracy of the two models (section 4.2)",
        fast=200,
        split=SPLIT,
    ),
    _step(
        "cues-pretrained",
        "vz-cue-alignment",
        "pretrained",
        "Figure 1 and Figure A.2, pre-trained: cue alignment by layer",
    ),
    _step("cues-tuned", "vz-cue-alignment", "tuned", "Figure 2 and Figure A.2, fine-tuned: cue alignment by layer"),
    *(
        _step(
            f"probing-{role}",
            "vz-probing",
            role,
            f"Figure 3 and Table 2, {condition}: probing, and what follows it",
            fast=200,
            fast_options={"aligned": FAST},
        )
        for role, condition in CONDITIONS
    ),
    _step(
        "probing-released",
        "vz-probing",
        "tuned",
        "Figure 3, fine-tuned, with the compression of the released code",
        fast=300,
        methods=("attention", "value_zeroing"),
        options={"variant": "released"},
        fast_options={"aligned": FAST},
    ),
    _step(
        "faithfulness-pretrained", "vz-faithfulness", "pretrained", "Table 3, pre-trained: correlation with blank-out"
    ),
    _step("faithfulness-tuned", "vz-faithfulness", "tuned", "Table 3, fine-tuned: correlation with blank-out"),
    *(
        _step(
            f"faithfulness-{role}-identity",
            "vz-faithfulness",
            role,
            f"Table 3, {condition}, with the identity added in every rollout, as Abnar and Zuidema define it",
            options={"identity": "always"},
        )
        for role, condition in CONDITIONS
    ),
    _step("distances", "vz-distances", "tuned", "Figure A.1: Value Zeroing by other distances"),
    _step("cues-roberta", "vz-cue-alignment", "roberta", "Figure A.3 (a): cue alignment, RoBERTa, pre-trained"),
    _step(
        "cues-roberta-tuned", "vz-cue-alignment", "roberta-tuned", "Figure A.3 (b): cue alignment, RoBERTa, fine-tuned"
    ),
    _step("cues-electra", "vz-cue-alignment", "electra", "Figure A.4 (a): cue alignment, ELECTRA, pre-trained"),
    _step(
        "cues-electra-tuned", "vz-cue-alignment", "electra-tuned", "Figure A.4 (b): cue alignment, ELECTRA, fine-tuned"
    ),
)
CUES = ("cues-pretrained", "cues-tuned")
PROBING = ("probing-pretrained", "probing-tuned")
FAITHFUL = tuple(f"faithfulness-{role}{more}" for more in ("", "-identity") for role, _ in CONDITIONS)
ITEMS = (
    Item(
        "Table 1",
        "one example of each task",
        reason="sentences of BLiMP; `blimp_vz` reads all of them, with cues and foils",
    ),
    Item("section 4.1", "4,276 data points, divided equally (here: as many as fit the model)", ("accuracy",)),
    Item("section 4.2", "accuracy 0.96 and 0.99", ("accuracy",)),
    Item("Figure 1", "cue alignment by layer, pre-trained", ("cues-pretrained",)),
    Item("Figure 2", "cue alignment by layer, fine-tuned", ("cues-tuned",)),
    Item("Figure 3", "compression by layer; jumps 1.52 to 1.72 and 2.03 to 2.45", (*PROBING, "probing-released")),
    Item("Table 2", "correlation of compression and cue alignment", PROBING),
    Item("Table 3", "correlation with blank-out", FAITHFUL),
    Item(
        "Figure 4",
        "scores of one sentence, ten methods: maps rolled out as in Table 3, gradients of the target word alone, "
        "absolute (but for DL, whose negative scores keep their sign)",
        command=(
            f"mixlens plot {SENTENCE} --model TUNED --target were --kind rows -o figure4.svg --method "
            + ",".join((*ROLLED[:-1], *GRADIENTS, ROLLED[-1]))
        ),
    ),
    Item(
        "Figure 4, blank-out",
        "the change of the target's probability among target and foil",
        command=f"mixlens plot {SENTENCE} --model TUNED {PAIR} --kind strip -o blank-out.svg --method {BLANK_OUT}",
    ),
    Item(
        "section 7",
        "the cue's blank-out score of 0.99 in that sentence",
        command=f"mixlens explain {SENTENCE} --model TUNED --method {BLANK_OUT} {PAIR}",
    ),
    Item("Figure A.1", "other distances", ("distances",)),
    Item("Figure A.2", "cue alignment by Probes-needed", CUES),
    Item("Figure A.3", "cue alignment, RoBERTa", ("cues-roberta", "cues-roberta-tuned")),
    Item("Figure A.4", "cue alignment, ELECTRA", ("cues-electra", "cues-electra-tuned")),
    *(item for row in MAPS for item in _map_items(*row)),
)

plan("value-zeroing", paper=PAPER, module=__name__, roles=ROLES, steps=STEPS, items=ITEMS)
