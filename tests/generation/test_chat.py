"""Conversations: the tokenizer's own template, its tokens apart from those of the messages, and what cannot be read
refused."""

from __future__ import annotations

from typing import Any

import pytest
import transformers
from made import TEMPLATE, talker, tokenizer

import mixlens
from mixlens import Chat, chat_text

MESSAGES = [
    {"role": "system", "content": "the dog is red."},
    {"role": "user", "content": " where is the user? "},
    {"role": "assistant", "content": "the park"},
    {"role": "user", "content": "is the park open?"},
]


def test_the_text_is_what_the_template_makes() -> None:
    model = talker()
    expected = model.tokenizer.apply_chat_template(
        MESSAGES, tokenize=True, add_generation_prompt=True, return_dict=False
    )
    assert model.encode(Chat(tuple(MESSAGES))).input_ids == tuple(expected)
    assert chat_text(model, MESSAGES).endswith("<|assistant|>\n")


def test_tokens_of_the_template_are_apart() -> None:
    """Everything that is no character of a message is the template's, also where a message holds the template's
    words."""
    model = talker()
    read = model.encode(Chat(tuple(MESSAGES)))
    for (role, places), message in zip(read.turns, MESSAGES, strict=True):
        first, last = read.offsets[places[0]][0], read.offsets[places[-1]][1]
        assert read.text[first:last].strip() == message["content"].strip()
        assert role == message["role"]
        assert list(places) == list(range(places[0], places[-1] + 1))
    inside = {place for _, places in read.turns for place in places}
    assert [place for place, special in enumerate(read.special) if not special] == sorted(inside)
    assert {read.tokens[place] for place in range(len(read.tokens)) if place not in inside} == {
        "<s>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "▁", "\n",
    }  # fmt: skip


def test_a_message_that_says_what_the_template_says_is_still_the_message() -> None:
    read = talker().encode(Chat(({"role": "user", "content": "user"},)))
    ((_, places),) = read.turns
    assert read.text[read.offsets[places[0]][0] - len("<|user|>\n") : read.offsets[places[-1]][1]] == "<|user|>\nuser"


def test_an_answer_that_was_begun_is_gone_on_with() -> None:
    begun = [*MESSAGES[:2], {"role": "assistant", "content": "the park"}]
    assert chat_text(talker(), begun).endswith("<|assistant|>\nthe park")


def test_a_generation_has_turns_and_template_columns() -> None:
    generation = talker().explain(messages=MESSAGES[:2], generate=3).with_effects()
    assert [(group.kind, group.role) for group in generation.text.groups] == [("turn", "system"), ("turn", "user")]
    assert {word.segment for word in generation.columns} == {"template", "text", "written"}
    assert all(word.special for word in generation.columns if word.segment == "template")
    assert [group["name"] for group in generation.to_dict()["groups"]] == ["system turn 1", "user turn 1"]
    template = [number for number, word in enumerate(generation.columns) if word.segment == "template"]
    assert float(generation.effects.words[:, template].abs().sum()) == 0  # never left out


def test_a_chat_is_a_text_everywhere() -> None:
    model = talker()
    chat = Chat(tuple(MESSAGES[:2]))
    trace = model.trace(chat)
    assert mixlens.mix(trace, "alti").tokens == trace.tokens
    read = model.explain(messages=MESSAGES[:2], method="grad_x_input", keep_special=False)
    assert "<|user|>" not in read.tokens
    assert model.explain(chat, method="alti").tokens == trace.tokens


def changed(template: str) -> Any:
    """A model whose tokenizer has another template."""
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer().backend_tokenizer, unk_token="<unk>", bos_token="<s>", chat_template=template
    )
    return mixlens.load(talker().hf_model, tokenizer=made)


@pytest.mark.parametrize(
    ("model", "messages", "message"),
    [
        ("none", MESSAGES, "has no chat template"),
        ("own", [], "with at least one"),
        ("own", [{"role": "user"}], "message 1 is not"),
        ("own", [{"role": "user", "content": ""}], "message 1 is not"),
        ("own", "hello", "messages are a list"),
        (TEMPLATE + "{{ messages[0].content }}", MESSAGES, "changes or repeats the messages"),
        ("{% for m in messages %}{{ m.content | upper }}{% endfor %}", MESSAGES, "changes or repeats the messages"),
        ("{{ raise_exception('only users speak') }}", MESSAGES, "refuses these messages: only users speak"),
    ],
)
def test_what_cannot_be_read_is_refused(model: str, messages: Any, message: str) -> None:
    lens = talker(chat=False) if model == "none" else talker() if model == "own" else changed(model)
    with pytest.raises(mixlens.MixlensError, match=message):
        lens.explain(messages=messages, generate=2)


def test_a_text_beside_messages_is_refused() -> None:
    with pytest.raises(mixlens.MixlensError, match="not both"):
        talker().explain("the cat", messages=MESSAGES)
