"""Conversations of a corpus: each row is what its messages alone give; bad rows are noted; what a run is known by."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from made import talker
from typer.testing import CliRunner

import mixlens
from mixlens import cli
from mixlens.runs import corpus
from mixlens.runs.corpus import rows as input_rows

SYSTEM = {"role": "system", "content": "the dog is red."}
TALKS: list[list[dict[str, str]]] = [
    [SYSTEM, {"role": "user", "content": "where is the cat?"}],
    [{"role": "user", "content": "a ball"}],
    [
        {"role": "user", "content": "the park is open."},
        {"role": "assistant", "content": "where?"},
        {"role": "user", "content": "a cat"},
    ],
]
TEXT = "the cat likes"


def run(data: Any, out: Path, **options: Any) -> Any:
    options = {"model": talker(), "methods": "attention", "generate": 3, "chat": True, "progress": False, **options}
    return mixlens.run(data, out=out, **options)


def rows_of(out: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(out / "shards").to_pylist()
    return rows


def jsonl(place: Path, rows: list[Any]) -> Path:
    place.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return place


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [*({"messages": talk, "topic": "x"} for talk in TALKS), {"text": TEXT}]
    return jsonl(tmp_path_factory.mktemp("talks") / "talks.jsonl", rows)


@pytest.fixture(scope="module")
def done(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return run(
        file, tmp_path_factory.mktemp("run") / "out", methods="alti,grad_x_input", columns=["messages"], shard_rows=2
    )


def test_every_row_is_what_its_messages_alone_give(done: Any) -> None:
    assert (done.rows, done.errors) == (4, 0)
    model, talks = talker(), [*TALKS, [{"role": "user", "content": TEXT}]]
    for method in ("alti", "grad_x_input"):
        for (row, again), messages in zip(corpus.generations(done.out, method), talks, strict=True):
            alone = model.explain(messages=messages, method=method, generate=3)
            assert again.text == alone.text, row
            assert [group.role for group in again.text.groups] == [message["role"] for message in messages]
            torch.testing.assert_close(again.scores, alone.scores, rtol=1e-5, atol=1e-6)  # rows are kept in float32
            assert list(again.probabilities) == pytest.approx(list(alone.probabilities), rel=1e-5)


def test_the_text_of_a_row_is_what_the_template_wrote_and_the_spans_are_its_characters(done: Any) -> None:
    rows = rows_of(done.out)
    for row, messages in zip(rows, TALKS, strict=False):
        assert row["text"] == mixlens.chat_text(talker(), messages)
        assert json.loads(row["messages"]) == messages
        contents = "".join(message["content"] for message in messages)
        inside = [
            (a, b) for a, b, segment in zip(row["starts"], row["ends"], row["segments"], strict=True) if segment == 0
        ]
        assert "".join(row["text"][a:b] for a, b in inside).replace(" ", "") == contents.replace(" ", "")
    assert rows[-1]["messages"] is None
    assert done.report(done.out.parent / "page.html").is_file()
    assert "alti" in mixlens.summarize(done.out).text()


def test_without_generate_the_next_word_is_explained(file: Path, tmp_path: Path) -> None:
    run(file, tmp_path / "out", generate=None)
    alone = talker().explain(messages=TALKS[0], method="attention")
    torch.testing.assert_close(torch.tensor(rows_of(tmp_path / "out")[0]["attention"]), alone.scores.float())


def test_every_kind_of_source_gives_the_same_rows(tmp_path: Path) -> None:
    with (tmp_path / "a.csv").open("w", newline="") as place:
        table = csv.writer(place)
        table.writerows([["messages"], *([json.dumps(talk)] for talk in TALKS)])
    pq.write_table(pa.table({"messages": TALKS}), tmp_path / "a.parquet")
    sources: list[Any] = [
        jsonl(tmp_path / "a.jsonl", [{"messages": talk} for talk in TALKS]),
        tmp_path / "a.csv",
        tmp_path / "a.parquet",
        [{"messages": talk} for talk in TALKS],
        [mixlens.Chat(tuple(talk)) for talk in TALKS],
        TALKS,
    ]
    every = []
    for number, source in enumerate(sources):
        run(source, tmp_path / str(number))
        every.append([(row["text"], row["written"], row["attention"]) for row in rows_of(tmp_path / str(number))])
    assert len(every[0]) == len(TALKS)
    assert all(one == every[0] for one in every)


def test_a_text_field_that_is_named_is_read_and_not_the_messages(tmp_path: Path) -> None:
    data = [{"messages": TALKS[0], "prompt": "a cat"}]
    run(data, tmp_path / "a", text_field="prompt")
    run(["a cat"], tmp_path / "b")
    assert rows_of(tmp_path / "a")[0]["text"] == rows_of(tmp_path / "b")[0]["text"]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"messages": "hello"}, "field 'messages' does not hold a list of messages"),
        ({"messages": []}, "field 'messages' does not hold a list of messages"),
        ({"messages": {"role": "user"}}, "field 'messages' does not hold a list of messages"),
        ({"messages": [SYSTEM, {"role": "user"}]}, "message 2 is not"),
        ({"messages": [SYSTEM, "where?"]}, "message 2 is not"),
        ({"messages": [{"role": "user", "content": " "}]}, "field 'messages' is empty"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, "half a character"),
        ({"messages": None}, "neither field 'messages' nor field 'text' holds anything"),
        ({"other": 1}, "neither field 'messages' nor field 'text' holds anything"),
        ({"text": 5}, "field 'text' holds"),
    ],
)
def test_a_bad_row_is_noted_with_its_number_and_costs_no_other(row: Any, reason: str, tmp_path: Path) -> None:
    data = jsonl(tmp_path / "a.jsonl", [{"messages": TALKS[0]}, row, {"messages": TALKS[1]}])
    found = run(data, tmp_path / "out")
    assert (found.rows, found.errors) == (2, 1)
    (bad,) = map(json.loads, (tmp_path / "out" / "errors.jsonl").read_text().splitlines())
    assert (bad["row"], bad["id"]) == (2, "2")
    assert reason in bad["reason"]
    assert "\n" not in bad["reason"]
    with pytest.raises(mixlens.MixlensError, match="2"):
        run(data, tmp_path / "strict", strict=True)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ([{"messages": TALKS[0]}], {"chat": False}, "give chat=True, on the command line --chat"),
        ([mixlens.Chat(tuple(TALKS[0]))] * 2, {"chat": False}, "give chat=True"),
        ([{"other": 1}], {}, "no field 'text'"),
        (["a cat"], {"chat": "yes"}, "chat is True or False"),
        (["a cat"], {"pair_field": "b"}, "leave pair_field= out, or chat="),
        (["a cat"], {"ids_field": "b"}, "leave ids_field= out, or chat="),
        ([("a cat", "a dog")] * 2, {}, "no conversation"),
        (["a cat"], {"model": talker(chat=False)}, "has no chat template"),
    ],
)
def test_what_no_row_could_pass_is_refused_in_one_line(data: Any, options: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(mixlens.MixlensError, match=message) as refusal:
        run(data, tmp_path / "out", **options)
    assert "\n" not in str(refusal.value)


def test_a_run_knows_that_it_read_conversations_and_by_which_template(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = ["a cat", "the dog is"]
    run(data, tmp_path / "out")
    assert run(data, tmp_path / "out").done == 0
    with pytest.raises(mixlens.MixlensError, match="another"):
        run(data, tmp_path / "out", chat=False)
    template = talker().tokenizer.chat_template
    monkeypatch.setattr(talker().tokenizer, "chat_template", template.replace("<|end|>", "<|end|><|end|>"))
    with pytest.raises(mixlens.MixlensError, match="another"):
        run(data, tmp_path / "out")


def test_other_messages_are_other_rows() -> None:
    """A shard is known by its rows: by the messages too. Without messages it is the checksum that runs of before
    have."""

    def row(messages: Any) -> input_rows.InputRow:
        return input_rows.InputRow(1, "1", None, None, None, None, None, None, None, (), messages)

    prints = {input_rows.fingerprint([row(messages)]) for messages in (None, tuple(TALKS[0]), tuple(TALKS[1]))}
    assert len(prints) == 3
    assert (
        input_rows.fingerprint([input_rows.InputRow(1, "1", "a cat", None, None, None, None, None, None, ())])
        == "32bfd30a6c2d431a"
    )


def test_the_command_reads_conversations(file: Path, done: Any, tmp_path: Path) -> None:
    talker().hf_model.save_pretrained(tmp_path / "model")
    talker().tokenizer.save_pretrained(tmp_path / "model")
    asked = ["run", str(file), "-m", str(tmp_path / "model"), "--dtype", "float64", "--generate", "3"]
    made = CliRunner().invoke(cli.app, [*asked, "--chat", "--out", str(tmp_path / "out")])
    assert made.exit_code == 0, made.output
    assert [row["written"] for row in rows_of(tmp_path / "out")] == [row["written"] for row in rows_of(done.out)]
    refused = CliRunner().invoke(cli.app, [*asked, "--out", str(tmp_path / "other")])
    assert "--chat" in str(refused.exception)
