"""A conversation as the model reads it: messages through the tokenizer's own chat template, the template's tokens
apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..base.doors import door
from ..base.errors import InputError, is_text
from ..types import Chat
from .encode import Encoded, special_among
from .words import group_words

if TYPE_CHECKING:
    from .model import Model

Span = tuple[int, int]  # first character, and the one behind the last
PLACE = "\ue000{}\ue001"  # stands for a message while the template is asked for its own text; private-use characters
ANSWERS = "assistant"  # the role of the model itself


@door
def chat_text(model: Model, messages: Sequence[Mapping[str, str]] | Chat) -> str:
    """The text that a model reads for these messages, by its tokenizer's chat template."""
    chat = messages if isinstance(messages, Chat) else Chat(tuple(messages))
    return _rendered(model, _checked(chat))


def instead_of(text: Any, messages: Any) -> Chat:
    """The messages as a Chat; refused beside a text."""
    if text is not None:
        raise InputError("give either a text or messages=, not both.")
    if isinstance(messages, Chat):
        return messages
    if not isinstance(messages, Sequence) or isinstance(messages, str):
        raise InputError('messages are a list as [{"role": "user", "content": "..."}], not ' + f"{messages!r:.60}.")
    return Chat(tuple(messages))


def encode_chat(model: Model, chat: Chat) -> Encoded:
    """The tokens of a conversation. Those of the template are special: they stand apart, and are never taken away."""
    messages = _checked(chat)
    text = _rendered(model, messages)
    spans = _content_spans(model, messages, text)
    if not getattr(model.tokenizer, "is_fast", False):
        raise InputError(
            f"the tokenizer of {model.name!r} does not tell which characters a token has, so a chat's words cannot be "
            f"told from "
            "its template. Give the text that the template makes (mixlens.chat_text) as a text."
        )
    options = {"add_special_tokens": False, "return_offsets_mapping": True, "verbose": False}  # the template has them
    coded = model.tokenizer(text, **options)
    ids, offsets = tuple(map(int, coded["input_ids"])), tuple(map(tuple, coded["offset_mapping"]))
    owners = [_owner(start, stop, spans, text) for start, stop in offsets]
    names = model.tokens(ids)
    sequences = tuple(None if owner is None else 0 for owner in owners)
    places = [tuple(place for place, one in enumerate(owners) if one == number) for number in range(len(messages))]
    special = zip(special_among(model, ids), owners, strict=True)
    return Encoded(
        input_ids=ids,
        attention_mask=(1,) * len(ids),
        token_type_ids=None,
        tokens=names,
        special=tuple(is_special or owner is None for is_special, owner in special),
        words=group_words((text, None), offsets, sequences, names),
        text=text,
        offsets=offsets,
        sequences=sequences,
        turns=tuple((message["role"], own) for message, own in zip(messages, places, strict=True)),
    )


# --- messages ---------------------------------------------------------------------------------------------------------


def _checked(chat: Chat) -> list[dict[str, str]]:
    """The messages, refused where one has no role, no content, or is no text."""
    if not isinstance(chat.messages, tuple) or not chat.messages:
        raise InputError('a chat is a list of messages as [{"role": "user", "content": "..."}], with at least one.')
    checked = []
    for number, message in enumerate(chat.messages, 1):
        given = [message.get("role"), message.get("content")] if isinstance(message, Mapping) else [None]
        if not all(isinstance(part, str) and part.strip() and is_text(part) for part in given):
            raise InputError(
                f'message {number} is not {{"role": "user", "content": "..."}} with two texts, but {message!r:.80}.'
            )
        checked.append({"role": message["role"], "content": message["content"]})
    return checked


# --- the template -----------------------------------------------------------------------------------------------------


def _rendered(model: Model, messages: Sequence[Mapping[str, str]]) -> str:
    """The template filled with messages; the model's turn is open at the end, unless its own message is the last."""
    refuse_no_template(model)
    from jinja2 import TemplateError

    goes_on = messages[-1]["role"] == ANSWERS
    options = {"continue_final_message": True} if goes_on else {"add_generation_prompt": True}
    try:
        return str(model.tokenizer.apply_chat_template(list(messages), tokenize=False, **options))
    except (TemplateError, ValueError) as error:
        raise InputError(f"the chat template of {model.name!r} refuses these messages: {error}") from None


def refuse_no_template(model: Model) -> None:
    """Refuse a model that cannot read messages."""
    if model.tokenizer is None:
        raise InputError(f"{model.name!r} has no tokenizer, so it has no chat template.")
    if getattr(model.tokenizer, "chat_template", None) is None:
        raise InputError(
            f"the tokenizer of {model.name!r} has no chat template, so it cannot read messages. Give a plain text, or "
            f"a model "
            "that was made for conversations."
        )


def _content_spans(model: Model, messages: Sequence[Mapping[str, str]], text: str) -> list[Span]:
    """The characters of each message in the text. The template's own text is found by filling it with other contents; a
    template that does more than to put texts between its own (and to strip them) is refused."""
    frame = _rendered(model, [{**message, "content": PLACE.format(number)} for number, message in enumerate(messages)])
    spans: dict[int, Span] = {}
    begin = end = 0  # in the frame, in the text
    for place, number in sorted((frame.find(PLACE.format(number)), number) for number in range(len(messages))):
        start, whole = end + place - begin, messages[number]["content"]
        content = next((one for one in (whole, whole.strip()) if text.startswith(one, start)), None)
        if place < 0 or frame[begin:place] != text[end:start] or content is None:
            break
        begin, end = place + len(PLACE.format(number)), start + len(content)
        spans[number] = (start, end)
    if len(spans) < len(messages) or frame[begin:] != text[end:]:
        raise InputError(
            f"the chat template of {model.name!r} changes or repeats the messages, so their words cannot be told from "
            f"its own. "
            "Give the text that it makes (mixlens.chat_text) as a text."
        )
    return [spans[number] for number in range(len(messages))]


def _owner(start: int, stop: int, spans: Sequence[Span], text: str) -> int | None:
    """The message that a token belongs to: it has a visible character of it, or lies inside; None for the
    template's."""
    inside = (number for number, (first, last) in enumerate(spans) if first <= start < stop <= last)
    shared = (number for number, (first, last) in enumerate(spans) if text[max(start, first) : min(stop, last)].strip())
    return next(inside, next(shared, None))
