"""The tokens of a model by name: the one token that a word is, and a name by which each token is found again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..base.errors import InputError

if TYPE_CHECKING:
    from .model import Model

CONTINUES = "##"  # a piece that goes on with a word; mixlens writes and reads it so for every tokenizer
MARKS = (CONTINUES, "Ġ", "▁", "Ċ")


def token_id(model: Model, word: str, role: str = "target") -> int:
    """The one token a word is: `play`, or the name that mixlens prints (`▁play`, `Ġthe`, `##ing`).

    Byte-level tokenizers write a word inside a text with the space before it, so a plain word means that token; the
    piece without the space is `##` and the piece.
    """
    if model.tokenizer is None:
        raise InputError(f"{model.name!r} has no tokenizer: give the {role} as an id.")
    number = _one_token(model, word)
    if number is None:
        split = model.tokenizer.convert_ids_to_tokens(model.tokenizer.encode(word, add_special_tokens=False))
        raise InputError(
            f"{role} {word!r} is not one token of {model.name!r} but {len(split)} ({' '.join(split)}). Choose a word "
            f"that is."
        )
    return number


def _one_token(model: Model, word: str) -> int | None:
    """The id of a word that is one token; None where it is several. A word that is written with a tokenizer's mark is
    that very token, or the piece behind `##`, where the tokenizer itself writes no such mark. Another one is what the
    tokenizer reads as one token, inside a text or else at its beginning."""
    if word.startswith(MARKS) or word.endswith("</w>"):
        number = _in_vocabulary(model.tokenizer, word)
        if number is None and word.startswith(CONTINUES):
            number = _in_vocabulary(model.tokenizer, word.removeprefix(CONTINUES))
        if number is not None:
            return number
    for text in (f" {word}", word):
        ids = model.tokenizer.encode(text, add_special_tokens=False)
        if len(ids) == 1 and ids[0] != model.tokenizer.unk_token_id:
            return int(ids[0])
    return _in_vocabulary(model.tokenizer, word)


def pieces_of(model: Model, word: str) -> tuple[int, ...]:
    """The ids of a word that is several tokens: as it is written inside a text or at its beginning, by the shorter way.

    Empty where the word is one token, is not in the vocabulary, or where there is no tokenizer.
    """
    if model.tokenizer is None or _one_token(model, word) is not None:
        return ()
    ways = [model.tokenizer.encode(text, add_special_tokens=False) for text in (f" {word}", word)]
    pieces = min(ways, key=len)
    return () if model.tokenizer.unk_token_id in pieces else tuple(map(int, pieces))


def _in_vocabulary(tokenizer: Any, token: str) -> int | None:
    """The id of this very token, if there is one."""
    number = tokenizer.convert_tokens_to_ids(token)
    return number if isinstance(number, int) and tokenizer.convert_ids_to_tokens(number) == token else None


def token_name(model: Model, number: int, *, plain: bool = False) -> str:
    """A name of a token by which `token_id` finds it again; its number where there is none.

    The tokenizer's name of it, or with `plain` first the word without marks.
    """
    if model.tokenizer is None:
        return str(number)
    if (number, plain) not in model.token_names:
        name = model.tokens([number])[0]
        words = [model.tokenizer.decode([number]).strip()] if plain else []
        names = (word for word in (*words, name, CONTINUES + name) if word and _one_token(model, word) == number)
        model.token_names[number, plain] = next(names, str(number))
    return model.token_names[number, plain]
