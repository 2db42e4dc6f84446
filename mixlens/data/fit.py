"""Whether examples fit a model, checked before the long work starts; which tokens hold a span of characters; and texts
that are longer than a model reads, cut to its length as its tokenizer cuts them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..base.errors import InputError, TokenLimitError
from ..types import Example
from .labels import label_ids

if TYPE_CHECKING:
    from ..model.model import Model
    from ..types import Trace

Spans = Iterable[Sequence[Any]]  # (start, end, ...) in characters
SPANS = ("attractors", "rationale", "pos", "penn")  # fields of `info` that hold spans of the text, and move with it
NAMED = 3  # offenders that an error names


def check(
    examples: Iterable[Example], model: Model, *, needs: Sequence[str] = (), labels: Mapping[str, int] | None = None
) -> list[Example]:
    """The examples as a list, or an error that counts what is wrong and names the first of each kind.

    `needs`: the fields that the work reads (cues, target, foil, label, rationale, pos, answers ...), present and not
    empty. With "label" among them the label set must be the model's, by name or as `labels` says (see `label_ids`). No
    example may be longer than the model reads, and a gap must be written as the model writes it (see `for_model`).
    """
    every = list(examples)
    if not every:
        raise InputError("there are no examples to check.")
    if model.tokenizer is None:
        raise InputError(f"{model.name!r} has no tokenizer, so it cannot read text. Pass tokenizer= to mixlens.load.")
    offenders: dict[str, list[str]] = {}  # by the fault they share
    for number, example in enumerate(every, 1):
        for fault, detail in _faults(example, model, needs):
            offenders.setdefault(fault, []).append((example.id or f"example {number}") + detail)
    if offenders:
        faults = "; ".join(
            f"{len(names)} {fault} ({', '.join(names[:NAMED])}{' ...' if len(names) > NAMED else ''})"
            for fault, names in offenders.items()
        )
        raise InputError(f"not every one of {len(every)} examples can be used with {model.name!r}: {faults}.")
    if "label" in needs:
        label_ids({example.info["label"] for example in every}, model, given=labels)
    return every


def _faults(example: Example, model: Model, needs: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each reason why this example does not fit the model, and a detail to print behind the example's name."""
    for need in needs:
        value = getattr(example, need) if need in ("pair", "target", "foil", "cues") else example.info.get(need)
        if value in (None, (), ""):
            yield f"have no {need!r}", ""
    mask = _mask_token(model)
    gap = example.text[slice(*example.info["mask"])] if example.info.get("mask") is not None else mask
    if gap != mask:
        usage = f"as {mask}" if mask else "by ending there"
        yield f"write the gap as {gap}, this model {usage}: pass them through for_model", ""
    limit, length = model.max_tokens, len(model.tokenizer(example.text, example.pair, verbose=False)["input_ids"])
    if limit is not None and length > limit:
        yield f"are longer than the {limit} tokens it reads", f": {length}"


# --- the gap ----------------------------------------------------------------------------------------------------------


def _mask_token(model: Model) -> str | None:
    return None if model.task == "causal-lm" else getattr(model.tokenizer, "mask_token", None)


def for_model(example: Example, model: Model) -> Example:
    """The example with its gap as this model writes it: the mask token of a masked language model; of a causal model,
    the text up to the gap. Cues and other spans move along. An example without a gap is returned as it is."""
    if "mask" not in example.info:
        return example
    mask, (start, end) = _mask_token(model), example.info["mask"]
    if mask is None:
        text = example.text[:start].rstrip()
        late = [example.text[slice(*cue)] for cue in example.cues if cue[1] > len(text)]
        if late or not text:
            name = example.id or repr(example.text)
            fault = f"its cue {late[0]!r} comes after the gap" if late else "it begins with the gap"
            raise InputError(f"{name} is of no use to {model.name!r}, which reads from left to right: {fault}.")
        return _with_text(example, text, lambda spans: tuple(tuple(span) for span in spans if span[1] <= len(text)))
    shift = len(mask) - (end - start)

    def moved(spans: Spans) -> tuple[Any, ...]:
        return tuple((a + shift, b + shift, *rest) if a >= end else (a, b, *rest) for a, b, *rest in spans)

    changed = _with_text(example, example.text[:start] + mask + example.text[end:], moved)
    return replace(changed, info={**changed.info, "mask": (start, start + len(mask))})


def _with_text(example: Example, text: str, change: Callable[[Spans], tuple[Any, ...]]) -> Example:
    """The example with another text, all its spans changed, and no gap."""
    info = {key: change(value) if key in SPANS else value for key, value in example.info.items() if key != "mask"}
    return replace(example, text=text, cues=change(example.cues), info=info)


# --- characters to tokens ---------------------------------------------------------------------------------------------


def cue_tokens(example: Example, trace: Trace) -> list[int]:
    """The positions of all tokens that hold a part of a cue. A cue that no token holds is refused."""
    name = example.id or example.text
    if trace.text != example.text or trace.pair != example.pair:
        raise InputError(f"the trace is of another text than example {name!r}.")
    if not example.cues:
        raise InputError(f"example {name!r} has no cue.")
    for cue in example.cues:
        if not span_tokens([cue], trace):
            raise InputError(f"no token of {trace.model.name!r} covers the cue {example.text[slice(*cue)]!r} at {cue}.")
    return span_tokens(example.cues, trace)


def span_tokens(spans: Spans, trace: Trace, *, pair: bool = False) -> list[int]:
    """The positions of all tokens that share a character with one of the spans (start, end, ...) of the text or the
    pair.

    For cues, rationales, answers (`pair=True`), parts of speech. Needs a tokenizer that knows its offsets.
    """
    tokenizer, text = trace.model.tokenizer, trace.pair if pair else trace.text
    if trace.text is None or not getattr(tokenizer, "is_fast", False):
        raise InputError(
            "characters can be found among tokens only in a trace of a text, by a tokenizer that knows its offsets."
        )
    encoding = tokenizer(trace.text, trace.pair, return_offsets_mapping=True, verbose=False)
    if tuple(encoding["input_ids"]) != trace.input_ids:
        raise InputError("the trace does not hold the tokens of its text.")
    if text is None:
        raise InputError("the trace has no second text.")
    found, bounds = [], [(span[0], span[1]) for span in spans]
    sides = zip(encoding["offset_mapping"], encoding.sequence_ids(0), strict=True)
    for position, ((start, end), side) in enumerate(sides):
        if side == int(pair):  # byte-level tokenizers count the space before a word as part of it
            first = end - len(text[start:end].lstrip())
            if any(max(first, a) < min(end, b) for a, b in bounds):
                found.append(position)
    return found


# --- texts that are too long -----------------------------------------------------------------------------------------


def truncated(example: Example, model: Model, limit: int | None = None) -> Example:
    """The example with its text, and its pair, cut to `limit` tokens (by default as many as the model reads).

    A pair is cut at its longer side, the paragraph of a question alone. Spans behind the cut are dropped.
    `info["truncated"]` is the number of tokens that the whole had. An example that fits is returned as it is.
    """
    most, whole = limit or model.max_tokens, model.tokenizer(example.text, example.pair, verbose=False)["input_ids"]
    if most is None or len(whole) <= most:
        return example
    if not getattr(model.tokenizer, "is_fast", False):
        raise InputError(
            f"the tokenizer of {model.name!r} does not tell which characters a token has: texts cannot be cut."
        )
    cut: dict[str, Any] = {
        "truncation": "only_second" if model.task == "question-answering" else "longest_first",
        "max_length": most,
    }
    encoded = model.tokenizer(example.text, example.pair, verbose=False, return_offsets_mapping=True, **cut)
    ends = {0: 0, 1: 0}  # the last character that is left of the text and of the pair
    for (_, end), side in zip(encoded["offset_mapping"], encoded.sequence_ids(0), strict=True):
        if side is not None:
            ends[side] = max(ends[side], end)

    def within(spans: Any, side: int = 0) -> tuple[Any, ...]:
        return tuple(span for span in spans if span[1] <= ends[side])

    info = {**example.info, "truncated": len(whole)}
    info |= {name: within(info[name]) for name in SPANS if name in info}
    pair = None if example.pair is None else example.pair[: ends[1]]
    if "answers" in info and pair is not None:
        info["answers"] = within(info["answers"], 1)
    return replace(example, text=example.text[: ends[0]], pair=pair, cues=within(example.cues), info=info)


def naming_option(error: TokenLimitError) -> TokenLimitError:
    """The refusal of a text that is too long, with the option that cuts it."""
    return TokenLimitError(f"{str(error).removesuffix('.')}, or let it be cut: --truncate (truncate=True).")
