"""Results, texts and answers made up by hand, for tests that look at all that is shown of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import why_example

from mixlens import Attribution, HeadMaps, Map
from mixlens.answers.generation.leaving_out import Effects
from mixlens.answers.generation.text import Group, Word, WrittenText
from mixlens.answers.generation.value import Generation
from mixlens.answers.value import Why, from_dict

TOKENS = ("[CLS]", "The", "un", "##happy", "keys", "[MASK]", "rust", "##ed", ".", "[SEP]")
SPECIAL = (True, False, False, False, False, False, False, False, False, True)
WORDS: Any = (
    *(("[CLS]", (0,)), ("The", (1,)), ("unhappy", (2, 3)), ("keys", (4,)), ("[MASK]", (5,)), ("rusted", (6, 7))),
    *((".", (8,)), ("[SEP]", (9,))),
)
TEXT = "The unhappy keys [MASK] rusted."
INFO: dict[str, Any] = {
    **{"model": "/models/some/tiny", "revision": "abc", "family": "bert", "task": "masked-lm", "dtype": "float32"},
    **{"text": TEXT, "variant": "paper", "causal": False, "gap": 2.5e-7, "tolerance": 1e-4, "check": 3e-6},
    **{"versions": {"mixlens": "0.1", "torch": "2"}, "paper": "Nobody 2020", "options": {"steps": 3, "head": None}},
    **{"prediction": [("was", 0.6225), ("were", 0.25)], "query": 5, "query_token": "[MASK]"},
}
SIGNED = (0.5, 0.125, -0.75, -0.25, 1.0, 0.0, 0.03, 0.375, -0.01, 0.2)


def attribution(scores: tuple[float, ...] = SIGNED, *, method: str = "attcat", **info: Any) -> Attribution:
    """An attribution to a target; `info` replaces facts, None takes one away."""
    facts = {**INFO, "target": "was - were", "score": "log_prob", **info}
    known = {name: value for name, value in facts.items() if value is not None}
    n = len(scores)
    return Attribution(
        torch.tensor(scores, dtype=torch.float64), TOKENS[:n], method, known, SPECIAL[:n], WORDS if n == 10 else None
    )


def row_of_map(*, method: str = "globenc", **info: Any) -> Attribution:
    """A row of a map: shares that sum to 1."""
    scores = (0.05, 0.05, 0.1, 0.15, 0.3, 0.2, 0.05, 0.05, 0.0, 0.05)
    rollout = {
        "rollout": {"convention": "globenc", "residual": False, "normalize": False},
        "layer": 1,
        "target": None,
        "score": None,
    }
    return attribution(scores, method=method, **{**rollout, **info})


def a_map(
    layers: int = 2, n: int = 4, *, method: str = "alti", tokens: tuple[str, ...] | None = None, **info: Any
) -> Map:
    """Rows that sum to 1 and differ everywhere."""
    cells = torch.arange(1, layers * n * n + 1, dtype=torch.float64).view(layers, n, n) ** 1.3
    cells = cells + 5 * torch.eye(n, dtype=torch.float64) * torch.arange(1, n + 1)
    facts = {name: value for name, value in {**INFO, **info}.items() if value is not None}
    names = tokens or tuple(f"w{i}" for i in range(n))
    return Map(cells / cells.sum(-1, keepdim=True), names, method, facts)


PIECES = ("[CLS]", "the", "un", "##hap", "##py", "keys", ".", "[SEP]", "they", "rust", "##ed", ".", "[SEP]")
PAIR = (
    *(("[CLS]", (0,)), ("The", (1,)), ("unhappy", (2, 3, 4)), ("keys", (5,)), (".", (6,)), ("[SEP]", (7,))),
    *(("They", (8,)), ("rusted", (9, 10)), (".", (11,)), ("[SEP]", (12,))),
)


def pair_map(layers: int = 3, *, method: str = "alti", **info: Any) -> Map:
    """A text and its pair, with words of several pieces and special tokens."""
    about = {"text": "The unhappy keys.", "pair": "They rusted.", **info}
    one = a_map(layers, len(PIECES), method=method, tokens=PIECES, **about)
    cells = one.scores[:, :, torch.arange(0, 5 * len(PIECES), 5) % len(PIECES)]  # no order along a row
    return Map(cells, PIECES, method, one.info, tuple(token in ("[CLS]", "[SEP]") for token in PIECES), PAIR)


def long_map(count: int, sentence: int = 8, **info: Any) -> Map:
    """Words of which every `sentence`-th ends a sentence."""
    ends = ["." if i % sentence == sentence - 1 else "" for i in range(count)]
    names = [f"{'W' if i % sentence == 0 else 'w'}ord{i}{end}" for i, end in enumerate(ends)]
    tokens = ("[CLS]", *names, "[SEP]")
    one = a_map(2, len(tokens), tokens=tokens, text=" ".join(names), **info)
    words = tuple((token, (place,)) for place, token in enumerate(tokens))
    return Map(one.scores, tokens, "alti", one.info, (True, *[False] * count, True), words)


def heads(layers: int = 2, count: int = 3, **info: Any) -> HeadMaps:
    """Attention of heads over TOKENS, each of which does something else."""
    n = len(TOKENS)
    parts = [torch.eye(n), torch.eye(n).roll(-1, 1), torch.ones(n, n), torch.eye(n).roll(1, 1), torch.ones(n, n).tril()]
    parts[2] = parts[2] + 40 * torch.eye(n)[0]
    tables = [
        parts[(layer * count + head) % 5] + 0.05 * torch.ones(n, n) for layer in range(layers) for head in range(count)
    ]
    scores = torch.stack(tables).double().view(layers, count, n, n)
    facts = {**INFO, "convention": "abnar", "prediction": None, **info}
    return HeadMaps(scores / scores.sum(-1, keepdim=True), TOKENS, "attention", facts, SPECIAL, WORDS)


# --- written text -----------------------------------------------------------------------------------------------------


def _word(text: str, tokens: tuple[int, ...], group: int | None, **more: Any) -> Word:
    facts = {"before": " ", "segment": "text", "special": False, "mark": not text[0].isalnum(), **more}
    return Word(text, tokens=tokens, group=group, **facts)


PROMPT = (
    _word("<s>", (0,), None, before="", special=True),
    _word("Lily", (1,), 0, before=""),
    _word("ran", (2, 3), 0),
    _word(".", (4,), 0, before=""),
    _word("<sep>", (5,), None, special=True),
    _word("It", (6,), 1),
    _word("rained", (7,), 1),
)
WRITTEN = (
    _word("She", (8,), 0, segment="written"),
    _word("sneezed", (9, 10), 0, segment="written"),
    _word(".", (11,), 0, before="", segment="written"),
)
STRIPS = torch.tensor(
    [
        [0.2, 0.3, 0.05, 0.05, 0.1, 0.05, 0.15, 0.1, 0.0, 0.0, 0.0, 0.0],
        [0.1, 0.1, 0.1, 0.0, 0.0, 0.0, 0.2, 0.2, 0.3, 0.0, 0.0, 0.0],
        [0.1, 0.0, 0.05, 0.05, 0.0, 0.1, 0.1, 0.1, 0.2, 0.3, 0.0, 0.0],
        [0.02, 0.001, 0.004, 0.0, 0.0, 0.025, 0.05, 0.05, 0.25, 0.4, 0.2, 0.0],
    ],
    dtype=torch.float64,
)


def generation(
    *, signed: bool = False, effects: bool = True, given: bool = False, is_map: bool = True, **info: Any
) -> Generation:
    """Two sentences with a special token between them, and three written words, one of them of two tokens."""
    scores = STRIPS.clone()
    if signed:
        scores[0, 1], scores[1, 7], scores[3, 9] = -0.3, -0.2, -0.4
    facts = {**INFO, "task": "causal-lm", "causal": True, **info}
    known = {name: value for name, value in facts.items() if value is not None}
    tokens = tuple(f"t{place}" for place in range(12))
    method = "attcat" if signed else "alti"
    steps = tuple(Attribution(scores[row, : 8 + row], tokens[: 8 + row], method, known) for row in range(4))
    groups = (Group("sentence", None, (1, 2, 3)), Group("sentence", None, (5, 6)))
    spans = (Group("sentence", None, (7, 8, 9)),)
    text = WrittenText(
        "Lily ran.  It rained", None, " She sneezed.", tokens, 8, (*PROMPT, *WRITTEN), groups, spans, "word"
    )
    return Generation(steps, text, scores, (0.5, 0.9, 0.8, 0.9996), is_map, given, _effects() if effects else None)


def _effects(replacement: str | int = "delete") -> Effects:
    words = torch.zeros(3, 10, dtype=torch.float64)
    words[:, [1, 2, 3, 5, 6]] = torch.tensor(
        [[-0.4, -0.02, 0.003, 0.1, -0.004], [-0.3, float("nan"), 0.2, 0.0, -0.1], [0.01, 0.02, -0.25, -0.3, 0.5]],
        dtype=torch.float64,
    )
    groups = torch.tensor([[-0.45, 0.06], [-0.2, float("nan")], [0.004, -0.31]], dtype=torch.float64)
    return Effects(replacement, words, groups)


def chat() -> Generation:
    """The same words as two turns of a chat: the second is of a template's token and of the assistant."""
    whole = generation(effects=False)
    groups = (Group("turn", "user", (1, 2, 3)), Group("turn", "assistant", (5, 6)))
    words = tuple(replace(word, segment="template") if word.text == "<sep>" else word for word in whole.text.words)
    return replace(whole, text=replace(whole.text, groups=groups, words=words))


# --- an answer --------------------------------------------------------------------------------------------------------


def answer(**changed: Any) -> Why:
    return from_dict(why_example.example(**changed))
