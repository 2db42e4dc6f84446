"""Do these examples fit this model? Asked before the long work starts. And: which tokens are the cue?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..types import Example
from .labels import label_ids

if TYPE_CHECKING:
    from ..model.model import Model
    from ..types import Trace

Span = tuple[int, int]
SPANS = ("attractors", "rationale", "pos")  # of `info`: places in the text, moved with it
NAMED = 3  # offenders that an error names


def check(
    examples: Iterable[Example], model: Model, *, needs: Sequence[str] = (), labels: Mapping[str, int] | None = None
) -> list[Example]:
    """The examples as a list, or an error that counts what is wrong and names the first of each kind.

    `needs`: what the work will ask for (cues, target, foil, label, rationale, pos, answers ...), present and not empty.
    With "label" among them the label set must be the model's, by name or as `labels` says (see `label_ids`). No example
    may be longer than the model reads, and a gap must be written as the model writes it (see `for_model`).
    """
    found = list(examples)
    if not found:
        raise InputError("there are no examples to check.")
    if model.tokenizer is None:
        raise InputError(f"{model.name!r} has no tokenizer, so it cannot read text. Pass tokenizer= to mixlens.load.")
    wrong: dict[str, list[str]] = {}
    limit, mask = model.max_tokens, _mask_token(model)
    for number, example in enumerate(found, 1):
        name = example.id or f"example {number}"
        for need in needs:
            if not _known(example, need):
                wrong.setdefault(f"have no {need!r}", []).append(name)
        place = example.info.get("mask")
        if place is not None and example.text[slice(*place)] != mask:
            written = f"write the gap as {example.text[slice(*place)]}, this model {f'as {mask}' if mask else 'by ending there'}"
            wrong.setdefault(f"{written}: pass them through for_model", []).append(name)
        length = len(model.tokenizer(example.text, example.pair, verbose=False)["input_ids"])
        if limit is not None and length > limit:
            wrong.setdefault(f"are longer than the {limit} tokens it reads", []).append(f"{name}: {length}")
    if wrong:
        told = "; ".join(f"{len(names)} {reason} ({_first(names)})" for reason, names in wrong.items())
        raise InputError(f"not every one of {len(found)} examples can be used with {model.name!r}: {told}.")
    if "label" in needs:
        label_ids({example.info["label"] for example in found}, model, given=labels)
    return found


def _known(example: Example, need: str) -> bool:
    value = getattr(example, need) if need in ("pair", "target", "foil", "cues") else example.info.get(need)
    return value not in (None, (), "")


def _first(names: list[str]) -> str:
    return ", ".join(names[:NAMED]) + (" ..." if len(names) > NAMED else "")


# --- the gap ----------------------------------------------------------------------------------------------------------


def _mask_token(model: Model) -> str | None:
    return None if model.task == "causal-lm" else getattr(model.tokenizer, "mask_token", None)


def for_model(example: Example, model: Model) -> Example:
    """The example with its gap as this model writes it: its own mask token; for a model that writes on, the text up to
    the gap. Cues and other spans move along. An example without a gap is returned as it is."""
    if "mask" not in example.info:
        return example
    start, end = example.info["mask"]
    mask = _mask_token(model)
    name = example.id or repr(example.text)
    if mask is None:
        text = example.text[:start].rstrip()
        late = [example.text[slice(*cue)] for cue in example.cues if cue[1] > len(text)]
        if late or not text:
            what = f"its cue {late[0]!r} comes after the gap" if late else "it begins with the gap"
            raise InputError(f"{name} is of no use to {model.name!r}, which reads from left to right: {what}.")
    else:
        text = example.text[:start] + mask + example.text[end:]
    shift = len(mask or "") - (end - start)

    def moved(spans: Iterable[Any]) -> tuple[Any, ...]:
        kept = [span for span in spans if mask is not None or span[1] <= len(text)]
        return tuple((a + shift, b + shift, *rest) if a >= end else (a, b, *rest) for a, b, *rest in kept)

    info = {key: moved(value) if key in SPANS else value for key, value in example.info.items() if key != "mask"}
    if mask is not None:
        info["mask"] = (start, start + len(mask))
    return replace(example, text=text, cues=moved(example.cues), info=info)


# --- characters to tokens ---------------------------------------------------------------------------------------------


def cue_tokens(example: Example, trace: Trace) -> list[int]:
    """The positions of all tokens that hold a part of a cue. Every cue has at least one, or it is an error."""
    if trace.text != example.text or trace.pair != example.pair:
        raise InputError(f"the trace is of another text than example {example.id or example.text!r}.")
    if not example.cues:
        raise InputError(f"example {example.id or example.text!r} has no cue.")
    for cue in example.cues:
        if not span_tokens([cue], trace):
            raise InputError(f"no token of {trace.model.name!r} covers the cue {example.text[slice(*cue)]!r} at {cue}.")
    return span_tokens(example.cues, trace)


def span_tokens(spans: Iterable[Sequence[Any]], trace: Trace, *, pair: bool = False) -> list[int]:
    """The positions of all tokens that share a character with one of the spans (start, end, ...) of the text or the pair.

    For cues, rationales, answers (`pair=True`), parts of speech. Needs a tokenizer that knows its offsets.
    """
    tokenizer = trace.model.tokenizer
    if trace.text is None or not getattr(tokenizer, "is_fast", False):
        raise InputError("characters can be found among tokens only in a trace of a text, by a tokenizer that knows its offsets.")
    coded = tokenizer(trace.text, trace.pair, return_offsets_mapping=True, verbose=False)
    if tuple(coded["input_ids"]) != trace.input_ids:
        raise InputError("the trace does not hold the tokens of its text.")
    text = trace.pair if pair else trace.text
    if text is None:
        raise InputError("the trace has no second text.")
    wanted = [(span[0], span[1]) for span in spans]
    found = []
    for position, ((start, end), sequence) in enumerate(zip(coded["offset_mapping"], coded.sequence_ids(0), strict=True)):
        if sequence != int(pair):
            continue
        while start < end and text[start].isspace():
            start += 1  # byte-level tokenizers count the space before a word as part of it
        if any(max(start, a) < min(end, b) for a, b in wanted):
            found.append(position)
    return found
