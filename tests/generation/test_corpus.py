"""Written texts of a corpus: batches write what each prompt alone is gone on with, rows go on where they stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from conftest import CAUSAL, TWINS, hf_model, ids
from made import talker

import mixlens
from mixlens.model import predict
from mixlens.runs import corpus

PROMPTS = [
    "the cat likes",
    "the dog is red. where is the",
    "a ball",
    "the park is open. the cat is playing in the",
    "where is",
]
METHODS = ["alti", "grad_x_input"]


@pytest.mark.parametrize("case", [case for case in CAUSAL if case not in TWINS])
def test_a_batch_writes_what_each_text_alone_is_gone_on_with(case: str) -> None:
    model = mixlens.load(hf_model(case, head="AutoModelForCausalLM"), check=False)
    starts = [model.encode_ids(ids(n, seed=n)) for n in (3, 7, 5, 3)]
    assert predict.generate_each(model, starts, 5) == [model.generate(start, 5) for start in starts]


def test_what_a_batch_wrote_wrongly_is_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A padded batch that writes nonsense is noticed: each token must be the likeliest in a pass of its own."""
    model = talker()
    prompts = [model.encode(prompt) for prompt in PROMPTS[:2]]
    monkeypatch.setattr(
        mixlens.answers.generation.explaining, "generate_each", lambda *_: [[7, 7], model.generate(prompts[1], 2)]
    )
    texts = mixlens.answers.generation.explaining.write_each(model, prompts, 2)
    for text, prompt in zip(texts, prompts, strict=True):
        assert list(text.whole.input_ids[len(prompt.input_ids) :]) == model.generate(prompt, 2)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    place.write_text("".join(json.dumps({"text": text, "topic": "x"}) + "\n" for text in PROMPTS))
    return place


def run(file: Path, out: Path, **options: Any) -> Any:
    return mixlens.run(
        file, model=talker(), methods=METHODS, out=out, generate=6, shard_rows=2, progress=False, **options
    )


@pytest.fixture(scope="module")
def done(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return run(file, tmp_path_factory.mktemp("run") / "out", columns=["topic"])


def test_rows_come_back_as_what_explaining_each_alone_gives(done: Any) -> None:
    assert (done.rows, done.errors) == (len(PROMPTS), 0)
    model = talker()
    for method in METHODS:
        for (row, again), prompt in zip(corpus.generations(done.out, method), PROMPTS, strict=True):
            alone = model.explain(prompt, method=method, generate=6)
            assert again.text == alone.text, row
            torch.testing.assert_close(again.scores, alone.scores, rtol=1e-5, atol=1e-6)
            assert list(again.probabilities) == pytest.approx(list(alone.probabilities), rel=1e-5)
            assert again.sentence == alone.sentence


def test_columns_are_added_and_the_usual_ones_stay(done: Any) -> None:
    table = pq.read_table(done.out / "shards")
    assert {"written", "written_ids", "probabilities", "layout", "written:alti", "topic"} <= set(table.column_names)
    for row in table.to_pylist():
        assert len(row["alti"]) == len(row["tokens"])
        count, begin = len(row["written_ids"]), len(row["tokens"])
        assert len(row["written:alti"]) == sum(begin + k for k in range(count))
    assert "alti" in mixlens.summarize(done.out).text()
    assert done.report(done.out.parent / "page.html").is_file()


def test_a_run_that_was_stopped_goes_on(file: Path, done: Any, tmp_path: Path) -> None:
    first = run(file, tmp_path / "out")
    gone = sorted((tmp_path / "out" / "shards").iterdir())[1]
    kept = {place.name: place.read_bytes() for place in (tmp_path / "out" / "shards").iterdir() if place != gone}
    gone.unlink()
    again = run(file, tmp_path / "out", resume=True)
    assert first.done == len(PROMPTS)
    assert again.done == 2  # the rows of one shard
    assert all((tmp_path / "out" / "shards" / name).read_bytes() == content for name, content in kept.items())
    texts = [again.text.written for _, again in corpus.generations(tmp_path / "out")]
    assert texts == [one.text.written for _, one in corpus.generations(done.out)]
    with pytest.raises(mixlens.MixlensError, match="another"):
        mixlens.run(
            file, model=talker(), methods=METHODS, out=tmp_path / "out", generate=5, shard_rows=2, progress=False
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"generate": 0}, "at least 1"),
        ({"generate": True}, "at least 1"),
        ({"maps": True}, "leave maps= out"),
        ({"target": "cat"}, "leave target= out"),
        ({"columns": ["written"]}, "named twice, or is one that every run writes"),
    ],
)
def test_refusals(file: Path, tmp_path: Path, options: dict[str, Any], message: str) -> None:
    arguments = {"generate": 3, **options}
    with pytest.raises(mixlens.MixlensError, match=message):
        mixlens.run(file, model=talker(), methods="alti", out=tmp_path / "out", progress=False, **arguments)


def test_a_model_that_writes_nothing_is_refused(file: Path, tmp_path: Path) -> None:
    with pytest.raises(mixlens.MixlensError, match="needs a causal language model"):
        mixlens.run(file, model="agreement", methods="alti", out=tmp_path / "out", generate=3, progress=False)


def test_a_run_without_written_texts_has_none_to_read(file: Path, tmp_path: Path, done: Any) -> None:
    plain = mixlens.run(file, model=talker(), methods="alti", out=tmp_path / "out", progress=False)
    assert "written" not in pq.read_table(plain.out / "shards").column_names
    with pytest.raises(mixlens.MixlensError, match="no written texts"):
        next(corpus.generations(plain.out))
    with pytest.raises(mixlens.MixlensError, match="has no method"):
        next(corpus.generations(done.out, "globenc"))
