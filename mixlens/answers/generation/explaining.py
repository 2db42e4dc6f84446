"""`explain`: one Attribution for a prediction, or a Generation: one for each token that was written after a prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ...base.errors import InputError, MixlensError, tokens_within
from ...model.encode import Encoded, special_among
from ...model.model import Model
from ...model.predict import end_ids, generate_each, named, refuse_generation
from ...scoring.aggregate import rolled_row
from ...scoring.attributions import OF_A_TARGET, attribute_each, cut, known, refuse_other_model, row_of_map
from ...scoring.attributions import explain as explain_prediction
from ...scoring.completeness import warn_where_open
from ...scoring.continuing import Continuation
from ...scoring.conventions import as_convened, is_from_input
from ...scoring.maps import known as known_maps
from ...scoring.maps import mix
from ...scoring.sequences import continuation_ids
from ...types import Attribution, LayersOf, Trace
from .text import written_text
from .value import Generation

AHEAD = 8  # tokens that are asked for at most: a mark and a letter of up to four bytes each
SLACK = 0.02  # of the distance between the largest logit and the mean of all


def explain(
    model: Model,
    text: Any,
    name: str,
    *,
    keep_special: bool = True,
    generate: int | None = None,
    continuation: str | None = None,
    **options: Any,
) -> Any:
    """`Model.explain`: an Attribution of the prediction; with `generate` or `continuation` a Generation."""
    refuse_other_model(model, text)
    if generate is None and continuation is None:
        return explain_prediction(model, text, name, keep_special=keep_special, **options)
    refuse_asked(name, options)
    written = write(model, text, generate=generate, continuation=continuation)
    return explain_written(written, name, keep_special=keep_special, **options)


# --- what was written -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Written:
    """A prompt and what follows it, in one traced pass. `given`: the user wrote it, and not the model."""

    model: Model
    prompt: Encoded
    whole: Trace
    given: bool
    known_logits: Tensor | None = None  # [position vocabulary], where a pass has given them already

    @cached_property
    def continuation(self) -> Continuation:
        return Continuation(self.model, self.prompt, self.whole)

    @cached_property
    def logits(self) -> Tensor:
        """[position vocabulary]: what the model says at every position."""
        return self.model.logits(self.whole) if self.known_logits is None else self.known_logits

    @property
    def places(self) -> range:
        """The positions of the written tokens."""
        return range(len(self.prompt.input_ids), len(self.whole))

    @cached_property
    def probabilities(self) -> list[float]:
        """Of each written token, after all tokens before it."""
        shares = self.logits.to(torch.float64 if self.logits.dtype == torch.float64 else torch.float32).log_softmax(-1)
        return [float(shares[place - 1, self.whole.input_ids[place]].exp()) for place in self.places]

    def before(self, place: int) -> Trace:
        """The trace of the text before a place: the beginning of the whole trace, as a causal model does not look
        ahead."""
        layers = self.whole.layers
        assert isinstance(layers, LayersOf)
        whole = self.whole
        return replace(
            whole,
            tokens=whole.tokens[:place],
            input_ids=whole.input_ids[:place],
            layers=LayersOf(layers.batch, layers.row, place),
            special=self.special[:place],
            attention_mask=whole.attention_mask[:place],
            words=self.continuation.words_before(place),
            text=self.continuation.text_before(place),
            pair=self.prompt.pair,
            logits=self.logits[place - 1 : place],
            predicts=(place - 1,),
        )

    @cached_property
    def special(self) -> tuple[bool, ...]:
        """The special tokens; those of a chat template too."""
        return (*self.prompt.special, *self.whole.special[len(self.prompt.input_ids) :])

    @property
    def cut(self) -> bool:
        """Whether the model was stopped inside a word: neither its last token nor the likeliest next one ends the text,
        and the next one goes on with the last word: alone, or where it is a mark that may join two words, with those
        after it. A given text is as its writer wants it."""
        model, after = self.model, self.continuation
        if self.given or self._ends_at(self.whole.input_ids[-1]):
            return False
        ahead = [int(self.logits[-1].argmax())]
        while after.may_join(*ahead) and not after.goes_on_with(*ahead) and not self._ends_at(*ahead):
            ids = [*self.whole.input_ids, *ahead]
            if len(ahead) >= AHEAD or (model.max_tokens is not None and len(ids) > model.max_tokens):
                break
            ahead.append(int(model.outputs([model.encode_ids(ids)]).logits[0, -1].argmax()))
        return not self._ends_at(*ahead) and after.goes_on_with(*ahead)

    def _ends_at(self, *ids: int) -> bool:
        """Whether one of these ids ends a text."""
        return any(special_among(self.model, ids)) or not end_ids(self.model).isdisjoint(ids)


def write(model: Model, text: Any, *, generate: int | None = None, continuation: str | None = None) -> Written:
    """A prompt and what the model writes after it, greedily, or what the user says it is to have written."""
    if generate is not None and continuation is not None:
        raise InputError(
            "generate= lets the model write, continuation= is what it is to have written. Give one of them."
        )
    if isinstance(text, Trace):
        text = text.text if text.pair is None else (text.text, text.pair)
    prompt = model.encode(text)
    tokens_within(len(prompt.input_ids), model.max_tokens, repr(model.name))
    if generate is not None:
        return write_alone(model, prompt, generate)
    refuse_generation(model, len(prompt.input_ids), 1, "continuation")
    ids = continuation_ids(model, prompt, continuation or "")
    refuse_generation(model, len(prompt.input_ids), len(ids), "continuation")
    return written_after(model, prompt, ids, given=True)


def written_after(model: Model, prompt: Encoded, ids: Sequence[int], *, given: bool) -> Written:
    """A prompt and these ids behind it, traced as one."""
    return Written(model, prompt, model.trace(input_ids=[*prompt.input_ids, *ids]), given)


def write_each(model: Model, prompts: Sequence[Encoded], count: int) -> list[Written]:
    """What a model writes after each of several prompts: written, traced and read in batches. Each token that was
    written in a batch must be the likeliest in the traced pass, which is padded in another way; else its text is
    written again, alone."""
    written = generate_each(model, prompts, count)
    wholes = [model.encode_ids([*prompt.input_ids, *ids]) for prompt, ids in zip(prompts, written, strict=True)]
    traces, _ = model.run_traced(wholes)
    logits = model.outputs(wholes).logits
    parts = zip(prompts, traces, logits, strict=True)
    texts = [Written(model, prompt, trace, False, row[: len(trace)]) for prompt, trace, row in parts]
    return [text if _is_likeliest(text) else write_alone(model, text.prompt, count) for text in texts]


def write_alone(model: Model, prompt: Encoded, count: int) -> Written:
    """What a model writes after one prompt."""
    return written_after(model, prompt, model.generate(prompt, count), given=False)


def _is_likeliest(text: Written) -> bool:
    """Whether every written token has the largest logit, or one as large within SLACK of the spread: two passes round
    apart."""
    logits = text.logits[[place - 1 for place in text.places]].float()
    chosen = logits[range(len(text.places)), [text.whole.input_ids[place] for place in text.places]]
    most = logits.amax(-1)
    return bool((most - chosen <= SLACK * (most - logits.mean(-1))).all())


# --- one attribution for each written token ---------------------------------------------------------------------------


def explain_written(written: Written, name: str, *, keep_special: bool = True, **options: Any) -> Generation:
    """The Generation of what was written, by one method."""
    steps = steps_of(written, name, options)
    scores = torch.zeros(len(steps), len(written.whole), dtype=torch.float64)  # what came later is 0
    for row, step in zip(scores, steps, strict=True):
        row[: len(step.scores)] = step.scores.double()
    return Generation(
        steps=tuple(cut(step, keep_special) for step in steps),
        text=written_text(written.continuation, cut=written.cut),
        scores=scores,
        probabilities=tuple(written.probabilities),
        is_map=name in known_maps(),
        given=written.given,
        whole=written.whole,
    )


def refuse_asked(name: str, options: Mapping[str, Any]) -> None:
    """Refuse a target and a position, which each written token is and has; and what a method for positions does not
    take."""
    if options.get("target", "predicted") != "predicted" or options.get("query") is not None:
        raise InputError("generate= and continuation= explain each written token; leave target= and query= out.")
    if options.get("label") is not None:
        raise InputError("label= is the answer of an example, and written tokens have none: leave label= out.")
    unused = [f"{key}=" for key in ("foil", "score") if options.get(key) is not None]
    if unused and not _takes_target(name):
        raise InputError(f"{name!r} explains a position, whatever the token there: leave {' and '.join(unused)} out.")


def _takes_target(name: str) -> bool:
    return name not in known_maps() and (name not in known() or known()[name].needs_target)


def steps_of(written: Written, name: str, options: Mapping[str, Any]) -> list[Attribution]:
    """An Attribution for each written token, to all tokens before it; with the token that was written, and what the
    model would have written."""
    refuse_asked(name, options)
    steps = []
    rows = _map_rows(written, name, options) if name in known_maps() else _attributions(written, name, options)
    for row, place, share in zip(rows, written.places, written.probabilities, strict=True):
        facts = {
            "generated": written.whole.tokens[place],
            "prediction": named(written.model, written.logits[place - 1], k=5),
            "probability": share,
            "text": written.continuation.text_before(place),
            "pair": written.prompt.pair,
            "given": written.given,
        }
        steps.append(replace(row, info={**row.info, **facts}))
    return steps


def _attributions(written: Written, name: str, options: Mapping[str, Any]) -> list[Attribution]:
    """By an attribution method: every text before a written token, batched. The target is that token; a method that
    explains a position is not told of it."""
    own = ("target", "query", "foil", "score", "label", "layer", "variant")
    asked = {key: value for key, value in options.items() if key not in own}
    aims: list[dict[str, Any]] = []
    for place in written.places:
        aims.append({"layer": options.get("layer"), "query": place - 1})
        if _takes_target(name):
            goal = {key: options.get(key) for key in ("foil", "score")}
            aims[-1] |= {"target": written.whole.input_ids[place], **goal}
    traces = [written.before(place) for place in written.places]
    results = []
    for answer in attribute_each(traces, name, aims, variant=options.get("variant"), **asked):
        if isinstance(answer, MixlensError):
            raise answer
        warn_where_open(answer)
        results.append(answer)
    return results


def _map_rows(written: Written, name: str, options: Mapping[str, Any]) -> list[Attribution]:
    """By a map method: the rows of one map of the whole text, at the positions that predict the written tokens, each as
    far as it reaches. The layers are made ready once for all rows."""
    whole, layer, convention = written.whole, options.get("layer"), options.get("rollout")
    settings = {key: value for key, value in options.items() if key not in OF_A_MAP_ROW}
    scores = mix(whole, name, variant=options.get("variant"), **settings)
    facts: Mapping[str, Any] = {}
    from_input = is_from_input(scores)
    if not from_input:
        layers, facts = as_convened(scores, convention, residual=None, normalize=None)
        scores = replace(scores, scores=layers)
    rows = []
    for place in written.places:
        if from_input:
            row = row_of_map(whole, scores, query=place - 1, layer=layer, rollout=convention)
        else:
            row = rolled_row(scores, place - 1, layer=-1 if layer is None else layer, residual=False, normalize=False)
            rollout = {**facts, "rescaled_layers": row.info["rollout"]["rescaled_layers"]}
            row = replace(row, info={**row.info, "rollout": rollout})
        words = written.continuation.words_before(place)
        reached, tokens, special = row.scores[:place], row.tokens[:place], written.special[:place]
        rows.append(replace(row, scores=reached, tokens=tokens, special=special, words=words))
    return rows


OF_A_MAP_ROW = (*OF_A_TARGET, "query", "layer", "rollout", "variant")  # options that `mix` does not take
