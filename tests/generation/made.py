"""Small language models that write and talk: random weights in float64, a tokenizer of words with a chat template."""

from __future__ import annotations

from functools import cache
from typing import Any

import transformers
from conftest import CONFIGURATIONS, randomise
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

import mixlens

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>\n{{ m.content | trim }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
WORDS = ["the", "cat", "dog", "play", "likes", "red", "ball", "a", "is", "open", "where", "park"]
PIECES = ["ing", "s", "er"]
MARKS = [".", "?", "!", ","]
ADDED = ["<|user|>", "<|assistant|>", "<|system|>", "<|end|>"]


@cache
def tokenizer(*, chat: bool = True) -> Any:
    """Words and letters with "▁" before a new word, as SentencePiece has them; a begin mark before every text."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    known = [
        "<unk>",
        "<s>",
        "</s>",
        *ADDED,
        "▁",
        *MARKS,
        "\n",
        *letters,
        *(f"▁{word}" for word in WORDS if len(word) > 1),
    ]
    known += [piece for piece in PIECES if len(piece) > 1]
    vocabulary = {word: number for number, word in enumerate(dict.fromkeys(known))}
    made = Tokenizer(
        models.Unigram([(word, -(len(word) ** -1.0)) for word in vocabulary], unk_id=0, byte_fallback=False)
    )
    made.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="always", split=True)
    made.decoder = decoders.Metaspace("▁", prepend_scheme="always")
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    made.add_special_tokens([AddedToken(name, special=True) for name in ("<unk>", "<s>", "</s>")])
    made.add_tokens([AddedToken(name, special=False, normalized=False) for name in ADDED])
    template = {"chat_template": TEMPLATE} if chat else {}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, unk_token="<unk>", bos_token="<s>", eos_token="</s>", **template
    )


@cache
def talker(case: str = "llama", *, chat: bool = True) -> Any:
    """A model of a family that reads 160 tokens."""
    model_type, options = CONFIGURATIONS[case]
    longest = {name: 160 for name in ("max_position_embeddings", "n_positions") if name in options}
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(model_type, **{**options, **longest})
    )
    randomise(model)
    return mixlens.load(model.double().eval(), tokenizer=tokenizer(chat=chat))
