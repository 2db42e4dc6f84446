"""What a causal model is to write next, as several tokens: a word of several tokens, or a continuation that is
given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..base.errors import InputError, is_text
from ..model.encode import Encoded
from ..model.model import Model
from ..model.vocabulary import CONTINUES, pieces_of
from ..types import Trace
from .continuing import Continuation
from .targets import GIVEN, pieces_meant

# in `.info` of a trace with tokens of a target behind its text: what the model predicts after the text
OWN = "own_prediction"


def followed(trace: Trace, target: Any) -> Trace:
    """The trace of a text with the tokens of a target of several behind it, all but the last: each is predicted where
    the one before it stands. Any other trace as it is."""
    pieces = pieces_meant(trace.model, target) if trace.model.task == "causal-lm" else ()
    if not pieces or trace.info.get(GIVEN):
        return trace
    whole, words = trace.model.trace(input_ids=[*trace.input_ids, *pieces[:-1]]), None
    if trace.text is not None:  # else the trace is not of a text
        prompt = trace.model.encode(trace.text if trace.pair is None else (trace.text, trace.pair))
        if prompt.input_ids == trace.input_ids:  # else it is of a text in a template
            words = Continuation(trace.model, prompt, whole).words_before(len(whole))
    special = (*trace.special, *whole.special[len(trace) :])
    facts = {**whole.info, GIVEN: len(pieces) - 1, OWN: trace.prediction()}
    return replace(whole, text=trace.text, pair=trace.pair, words=words, special=special, info=facts)


def usual_score(model: Model, target: Any, score: str) -> str:
    """What of a target is explained unless the user says so: of several tokens the logarithm of their probability,
    which is the sum over them, where it would be the logit of one."""
    return "log_probability" if score == "logit" and pieces_meant(model, target) else score


# --- a continuation that is given -------------------------------------------------------------------------------------


def continuation_ids(model: Model, prompt: Encoded, continuation: str) -> list[int]:
    """The tokens of a continuation behind a prompt, as the tokenizer reads both together.

    A continuation that begins with a letter or a digit is a new word; `##ing` goes on with the last one. Where the
    tokenizer joins the end of the prompt with the continuation, the continuation is read by itself.
    """
    if not isinstance(continuation, str) or not is_text(continuation):
        raise InputError(f"a continuation is a text, not {continuation!r:.80}.")
    if not continuation.removeprefix(CONTINUES).strip():
        raise InputError("the continuation is empty. Give at least one word, or let the model write: generate=.")
    last = (prompt.pair if prompt.pair is not None else prompt.text) or ""
    added = joined_to(last if prompt.turns is None else "", continuation)  # an answer begins where the template ends

    def ids(text: str) -> list[int]:
        return list(map(int, model.tokenizer.encode(text, add_special_tokens=False)))

    together, alone = ids(last + added), ids(last)
    if together[: len(alone)] == alone and len(together) > len(alone):
        return together[len(alone) :]
    return list(pieces_of(model, continuation)) or ids(added)


def joined_to(text: str, continuation: str) -> str:
    """The continuation as it stands behind a text, with the space before a new word."""
    if continuation.startswith(CONTINUES):
        return continuation.removeprefix(CONTINUES)
    apart = continuation[0].isalnum() and bool(text) and not text[-1].isspace()
    return f" {continuation}" if apart else continuation
