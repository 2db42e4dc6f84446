"""Makes questions from plain text: a sentence of a paragraph without a name, a number or a date asks for it.

    python -m recipes.train.cloze texts.jsonl --out cloze.jsonl
    python -m recipes.train.finetune qa --model FOLDER --data squad1 --path cloze.jsonl --out models/cloze

What a question-answering model can learn first where few questions are at hand: to find the paragraph's words that a
question lacks (Lewis, Denoyer and Riedel 2019, "Unsupervised Question Answering by Cloze Translation", without their
translation: a question word stands in the place of the answer or in front, and some words are dropped or change
places).
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

MONTH = "January|February|March|April|May|June|July|August|September|October|November|December"
DATE = rf"(?:(?:{MONTH})(?: \d{{1,2}})?,? )?(?:1\d|20)\d\d"
NUMBER = r"\d[\d,.]*\d|\d|two|three|four|five|six|seven|eight|nine|ten|twelve"
NAME = r"(?:[A-Z][\w'’-]*)(?:(?: of| the| de)*(?: [A-Z][\w'’-]*))*"
ANSWER = re.compile(rf"(?<!\w)(?:(?P<when>{DATE})|(?P<many>{NUMBER})|(?P<who>{NAME}))(?!\w)")
SENTENCE = re.compile(r"[^.?!]+(?:[.](?=\S)[^.?!]*)*[.?!]?\s*")
PLACES = ("in", "at", "from", "near", "to")
NEAR = 12  # words of the sentence that a question keeps on each side of the answer
DROPPED, MOVED = 0.15, 0.15  # shares of words that a question lacks, or that change places with the next
FRONT = 0.6  # share of the questions that begin with the question word
LEAST_WORDS = 40  # of a paragraph

# How Wikitext writes what text has without spaces.
JOINED = (
    (r" @(.)@ ", r"\1"),
    (r" ([,.;:!?)%])", r"\1"),
    (r"([(]) ", r"\1"),
    (r" ('s|n't|'re|'ve)\b", r"\1"),
    (r'" ([^"]*) "', r'"\1"'),
)


def plain(text: str) -> str:
    """The text as people write it: no spaces before marks, no mark for an unknown word."""
    text = re.sub(r"\s*<unk>", "", text)
    for pattern, joined in JOINED:
        text = re.sub(pattern, joined, text)
    return re.sub(r"\s+", " ", text).strip()


def answers(sentence: str) -> Iterator[tuple[str, int, int]]:
    """(question word, start, end) of what can be asked for. A capital at the beginning of a sentence makes no name."""
    for found in ANSWER.finditer(sentence):
        kind = str(found.lastgroup)
        if kind == "who" and (not sentence[: found.start()].strip() or found.end() - found.start() < 3):
            continue
        yield question_word(kind, sentence[: found.start()]), found.start(), found.end()


def question_word(kind: str, before: str) -> str:
    if kind != "who":
        return {"when": "when", "many": "how many"}[kind]
    previous = before.split()[-1:] or [""]
    return "where" if previous[0].lower() in PLACES else "who" if previous[0].lower() in ("by", "with") else "what"


def question(sentence: str, word: str, start: int, end: int, draw: random.Random) -> str:
    """The sentence around an answer, which it lacks, with a question word."""
    before, after = sentence[:start].split()[-NEAR:], sentence[end:].rstrip(" .?!").split()[:NEAR]
    sides = [changed(side, draw) for side in (before, after)]
    words = [word, *sides[0], *sides[1]] if draw.random() < FRONT else [*sides[0], word, *sides[1]]
    return " ".join(words) + "?"


def changed(words: Sequence[str], draw: random.Random) -> list[str]:
    """The words, some dropped, some exchanged with the next one."""
    kept = [word for word in words if draw.random() >= DROPPED]
    for i in range(len(kept) - 1):
        if draw.random() < MOVED:
            kept[i], kept[i + 1] = kept[i + 1], kept[i]
    return kept


def questions(text: str, *, most: int, draw: random.Random) -> list[tuple[str, str, int]]:
    """(question, answer, its place in the text), at most `most` of one paragraph."""
    every = [
        (question(found[0], word, start, end, draw), found[0][start:end], found.start() + start)
        for found in SENTENCE.finditer(text)
        for word, start, end in answers(found[0])
        if len(found[0].split()) >= 6
    ]
    return draw.sample(every, min(most, len(every)))


def rows(texts: Sequence[str], *, most: int, seed: int) -> Iterator[dict[str, Any]]:
    """Questions of every paragraph that is long enough, as SQuAD has them."""
    draw = random.Random(seed)
    for i, text in enumerate(map(plain, texts)):
        if len(text.split()) < LEAST_WORDS:
            continue
        for k, (asked, answer, place) in enumerate(questions(text, most=most, draw=draw)):
            found = [{"text": answer, "answer_start": place}]
            yield {"id": f"{i}-{k}", "context": text, "question": asked, "answers": found}


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m recipes.train.cloze", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("texts", type=Path, help="JSON lines; paragraphs are under --field")
    parser.add_argument("--field", default="text")
    parser.add_argument("--out", type=Path, required=True, help="JSON lines with the fields of SQuAD")
    parser.add_argument("--most", type=int, default=16, help="questions of one paragraph at the most")
    parser.add_argument("--seed", type=int, default=42)
    asked = parser.parse_args(given)
    lines = asked.texts.read_text(encoding="utf-8").splitlines()
    texts = list(dict.fromkeys(str(json.loads(line)[asked.field]) for line in lines if line.strip()))
    made = [json.dumps(row, ensure_ascii=False) for row in rows(texts, most=asked.most, seed=asked.seed)]
    asked.out.write_text("\n".join(made) + "\n", encoding="utf-8")
    print(f"{asked.out}: {len(made)} questions of {len(texts)} paragraphs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
