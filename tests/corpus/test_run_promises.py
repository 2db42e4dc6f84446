"""What a run promises where somebody or something is against it: links, forgeries, folders that go away, odd names."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_run import bad, go, table
from typer.testing import CliRunner

import mixlens
from mixlens import data
from mixlens.base import files as disk
from mixlens.base.errors import InputError, MixlensError, ResultError
from mixlens.cli.app import app, main
from mixlens.runs.corpus import page_facts, shards
from mixlens.runs.corpus import worker as work
from mixlens.runs.corpus.parquet import parquet_content
from mixlens.runs.experiments import run as experiment
from mixlens.runs.judge.judge import judge

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

TEXTS = [f"The plot was dull {number}." for number in range(8)]
ASKED: dict[str, Any] = {"shard_rows": 2, "methods": ["attention"]}


@pytest.fixture(scope="module")
def model() -> Any:
    return mixlens.load("sentiment")


@pytest.fixture(scope="module")
def whole(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "run"
    go(TEXTS, out, model=model, maps=True, **ASKED)
    return out


@pytest.fixture
def out(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "run"))


def again(out: Path, model: Any, **other: Any) -> Any:
    return go(TEXTS, out, model=model, **{"maps": True, **ASKED, **other})


def files(out: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in out.rglob("*") if path.is_file() and not path.is_symlink()}


# --- links ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["link", "dangling link", "folder", "pipe"])
def test_a_lock_that_is_no_file_is_refused_and_nothing_is_lost(kind: str, model: Any, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("keys")
    (tmp_path / "run").mkdir()
    lock = tmp_path / "run" / disk.LOCK
    if kind == "link":
        lock.symlink_to(tmp_path / "precious")
    elif kind == "dangling link":
        lock.symlink_to(tmp_path / "new")
    elif kind == "folder":
        lock.mkdir()
    else:
        os.mkfifo(lock)
    with pytest.raises(InputError, match="is a link or no file"):
        again(tmp_path / "run", model)
    assert (tmp_path / "precious").read_text() == "keys"
    assert not (tmp_path / "new").exists()


def test_what_stands_in_a_lock_file_stays(model: Any, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / disk.LOCK).write_text("mine")
    again(tmp_path / "run", model)
    assert (tmp_path / "run" / disk.LOCK).read_text() == "mine"


@pytest.mark.parametrize("name", ["shards", "maps"])
def test_a_folder_of_a_run_that_is_a_link_is_refused(name: str, model: Any, out: Path, tmp_path: Path) -> None:
    shutil.rmtree(out / name)
    (tmp_path / "mine").mkdir()
    for file in ("thesis.tex", ".tmp-notes", ".tmp-0123456789ab-notes"):
        (tmp_path / "mine" / file).write_text("do not lose")
    (out / name).symlink_to(tmp_path / "mine")
    manifest = (out / "manifest.json").read_bytes()
    with pytest.raises(InputError, match=f"{name}' is a link or a file"):
        again(out, model)
    assert sorted(path.name for path in (tmp_path / "mine").iterdir()) == [
        ".tmp-0123456789ab-notes",
        ".tmp-notes",
        "thesis.tex",
    ]
    assert (out / "manifest.json").read_bytes() == manifest


def test_records_that_are_a_link_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    asked: dict[str, Any] = {"n": 2, "methods": ["alti"], "out": tmp_path / "out", "progress": False}
    experiment("vz-cue-alignment", **asked)
    shutil.rmtree(tmp_path / "out/records")
    (tmp_path / "mine").mkdir()
    (tmp_path / "out/records").symlink_to(tmp_path / "mine")
    with pytest.raises(InputError, match="is a link or a file"):
        experiment("vz-cue-alignment", **asked)


# --- who may write ----------------------------------------------------------------------------------------------------


def test_a_run_that_ended_between_the_check_and_the_lock_is_not_taken_over(
    model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other run begins after this one has seen an empty folder, and ends before this one holds the lock."""
    own, place = disk.RunFolder._opened_lock, tmp_path / "run"

    def late(self: Any) -> int:
        monkeypatch.setattr(disk.RunFolder, "_opened_lock", own)
        again(place, model)
        return own(self)

    monkeypatch.setattr(disk.RunFolder, "_opened_lock", late)
    with pytest.raises(InputError, match=r"belongs to another run .*methods"):
        again(place, model, methods=["alti"])
    assert json.loads((place / "manifest.json").read_text())["identity"]["methods"] == ["attention"]
    assert len(shards.shard_files(place)) == 4


def test_a_forged_shard_that_the_list_does_not_know_is_put_aside(model: Any, whole: Path, out: Path) -> None:
    """Its name fits its bytes; the manifest of the finished run lists another file of that number."""
    path = shards.shard_files(out)[3]
    content = parquet.read_table(path)
    nine = pa.array([[9.0] * len(row) for row in content["attention"].to_pylist()], content["attention"].type)
    forged = parquet_content(content.set_column(content.schema.get_field_index("attention"), "attention", nine))
    path.unlink()
    name = shards.file_name(3, forged)
    (out / "shards" / name).write_bytes(forged)
    with pytest.warns(UserWarning, match=name):
        made = again(out, model)
    assert made.done == 2
    assert table(out) == table(whole)


def test_a_shard_that_was_done_again_is_not_held_to_the_old_list(
    model: Any, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two shards are lost; one is done again, then the run is stopped: the other alone is left to do."""
    for path in shards.shard_files(out)[1:3]:
        path.unlink()
    own = work.Worker.window

    def window(self: Any, number: int, *rest: Any) -> Any:
        if number == 2:
            raise KeyboardInterrupt
        return own(self, number, *rest)

    with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
        patch.setattr(work.Worker, "window", window)
        again(out, model)
    assert again(out, model).done == 2


# --- folders that go away, odd places, odd names ----------------------------------------------------------------------


def _under_a_file(base: Path) -> Path:
    (base / "file").write_text("")
    return base / "file" / "run"


def _dangling(base: Path) -> Path:
    (base / "link").symlink_to(base / "nowhere")
    return base / "link"


def _loop(base: Path) -> Path:
    (base / "loop").symlink_to(base / "loop")
    return base / "loop"


PLACES: dict[str, Callable[[Path], Path]] = {
    "under a file": _under_a_file,
    "a link to nothing": _dangling,
    "a link to itself": _loop,
    "a name of 300 letters": lambda base: base / ("x" * 300),
    "a place where nothing can be made": lambda base: Path("/proc/x/run"),
}


@pytest.mark.parametrize("place", PLACES)
def test_an_impossible_place_is_one_line(place: str, model: Any, tmp_path: Path) -> None:
    with pytest.raises(MixlensError) as error:
        again(PLACES[place](tmp_path), model)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "number", [errno.ENOSPC, errno.EMFILE, errno.ESTALE, errno.EBUSY, errno.EIO, errno.ENOENT, errno.ENAMETOOLONG]
)
@pytest.mark.parametrize("kind", ["run", "experiment"])
def test_whatever_the_system_refuses_is_one_line(
    number: int, kind: str, model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = iter(range(100))
    own = disk.sync

    def refused(file: int) -> None:
        if next(count) == 1:
            raise OSError(number, os.strerror(number))
        own(file)

    pytest.importorskip("matplotlib")
    monkeypatch.setattr(disk, "sync", refused)
    calls = {
        "run": lambda: again(tmp_path / "run", model),
        "experiment": lambda: experiment(
            "vz-cue-alignment", n=2, methods=["alti"], out=tmp_path / "run", progress=False
        ),
    }
    with pytest.raises(ResultError, match=f"cannot write to .*{os.strerror(number)}"):
        calls[kind]()


@pytest.mark.parametrize("gone", ["run", "run/shards", "moved", "made anew"])
def test_a_folder_that_goes_away_while_it_is_written_to_is_one_line(
    gone: str, model: Any, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, place = work.Worker.window, tmp_path / "run"

    def window(self: Any, number: int, *rest: Any) -> Any:
        if number == 2:
            if gone in ("moved", "made anew"):
                place.rename(tmp_path / "elsewhere")
            else:
                shutil.rmtree(tmp_path / gone)
            if gone == "made anew":
                monkeypatch.setattr(work.Worker, "window", own)
                again(place, model, methods=["alti"])
        return own(self, number, *rest)

    monkeypatch.setattr(work.Worker, "window", window)
    with pytest.raises(ResultError, match="moved"):
        again(place, model)
    monkeypatch.setattr(work.Worker, "window", own)
    if gone == "made anew":  # nothing of the first run is in the folder of the second
        assert [path.name[:12] for path in shards.shard_files(place)] == [f"part-000000{number}" for number in range(4)]
        assert all("alti" in row for row in table(place))
    elif gone != "moved":
        again(place, model)
        assert table(place) == table(whole)


@pytest.mark.parametrize(
    "shards_said", [5, None, ["a"], [{"file": "x"}], [{"file": [], "number": 0, "sha256": "x"}], {"a": 1}, [[]], "text"]
)
def test_a_list_of_shards_of_any_shape_is_said_and_made_good(
    shards_said: Any, model: Any, whole: Path, out: Path
) -> None:
    manifest = json.loads((out / "manifest.json").read_text())
    (out / "manifest.json").write_text(json.dumps({**manifest, "shards": shards_said}))
    with pytest.warns(UserWarning, match="the list of shards in manifest.json is damaged"):
        made = again(out, model)
    assert made.done == 0
    assert (
        json.loads((out / "manifest.json").read_text())["shards"]
        == json.loads((whole / "manifest.json").read_text())["shards"]
    )


@pytest.mark.parametrize(
    "manifest",
    ["[" * 200_000, "5", "null", '"x"', "{}", '{"identity": 5}', '{"identity": {}, "schema": [1]}', "\x00", "[1"],
)
def test_a_manifest_of_any_shape_is_refused_in_one_line(manifest: str, model: Any, out: Path) -> None:
    (out / "manifest.json").write_text(manifest)
    before = files(out)
    with pytest.raises(MixlensError) as error:
        again(out, model)
    assert "\n" not in str(error.value)
    with pytest.raises(MixlensError):
        mixlens.summarize(out)
    assert files(out) == before


def test_odd_names_among_the_shards_stop_nothing(model: Any, whole: Path, out: Path) -> None:
    long = "ü" * 120 + "x" * 10  # 250 bytes; with the mark of what is put aside more than a name may have
    for _ in range(2):
        (out / "shards" / long).write_text("long")
        (out / "shards/folder").mkdir()
        (out / "shards/folder/mine").write_text("mine")
        (out / "shards/\x1b]0;PWNED\x07.txt").write_text("escape")
        with pytest.warns(UserWarning, match="damaged, or not of this run"):
            again(out, model)
    (out / "shards/.tmp-x").mkdir()
    (out / "shards/.tmp-notes").write_text("mine")
    (out / "shards/.tmp-0123456789ab-part").write_text("half")
    assert again(out, model).done == 0
    there = sorted(path.name for path in (out / "shards").iterdir())
    assert ".tmp-x" in there
    assert ".tmp-notes" in there
    assert ".tmp-0123456789ab-part" not in there
    kept = [path for path in (out / "shards").iterdir() if path.name.startswith(shards.ASIDE)]
    assert len(kept) == 6  # what was put aside before is not lost
    assert sum("ü" * 100 in path.name for path in kept) == 2  # 200 bytes of the long name stay
    assert table(out) == table(whole)


# --- rows -------------------------------------------------------------------------------------------------------------


def _as_gzip(place: Path) -> None:
    import gzip

    place.write_bytes(gzip.compress(json.dumps({"text": os.urandom(4000).hex()}).encode()))


def _as_utf16(place: Path) -> None:
    place.write_bytes("".join(json.dumps({"text": text}) + "\n" for text in TEXTS).encode("utf-16"))


def _as_struct(place: Path) -> None:
    parquet.write_table(pa.table({"text": [{"a": number, "b": "it's"} for number in range(24)]}), place)


HOPELESS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "gzip": ("x.jsonl", _as_gzip),
    "UTF-16": ("x.jsonl", _as_utf16),
    "a struct": ("x.parquet", _as_struct),
}


@pytest.mark.parametrize("kind", HOPELESS)
@pytest.mark.parametrize("shard_rows", [2, 512])
def test_a_run_of_which_nothing_came_is_an_error(kind: str, shard_rows: int, model: Any, tmp_path: Path) -> None:
    name, make = HOPELESS[kind]
    make(tmp_path / name)
    with pytest.raises(MixlensError, match=r"none of the .* rows (could|can) be explained"):
        go(tmp_path / name, tmp_path / "run", model=model, shard_rows=shard_rows)


def test_rows_of_many_reasons_are_an_error_when_none_was_explained(model: Any, tmp_path: Path) -> None:
    with pytest.raises(
        MixlensError, match=r"none of the 4 rows could be explained; 2 of them because: field 'text' is empty"
    ):
        go(["", 7, "", None], tmp_path / "run", model=model)
    assert len(bad(tmp_path / "run")) == 4
    assert go(["", 7, "A film."], tmp_path / "other", model=model).rows == 1


def test_the_command_for_one_row_that_cannot_be_explained_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.jsonl").write_text('{"text": ""}\n')
    monkeypatch.setattr(
        sys, "argv", ["mixlens", "run", str(tmp_path / "x.jsonl"), "--out", str(tmp_path / "run"), "--json"]
    )
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert json.loads(said.out)["errors"] == 1
    assert "no row could be explained" in said.err.splitlines()[-1]


def test_memory_that_runs_out_costs_the_row_alone(model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's and numpy's own error is not torch's."""
    own = model.run_traced

    def fails(encoded: Any, **options: Any) -> Any:
        if any("dull 3" in (one.text or "") for one in encoded):
            np.empty((1 << 40, 1 << 15))
        return own(encoded, **options)

    monkeypatch.setattr(model, "run_traced", fails)
    made = again(tmp_path / "run", model)
    assert (made.rows, made.errors) == (7, 1)
    assert bad(tmp_path / "run")[0]["row"] == 4
    assert "memory runs out" in bad(tmp_path / "run")[0]["reason"]


def test_a_quote_that_is_not_closed_says_how_many_lines_it_took(model: Any, tmp_path: Path) -> None:
    lines = ["text", "A good film.", '"A bad one.', *(f"Film {number}." for number in range(22))]
    (tmp_path / "x.csv").write_text("\n".join(lines) + "\n")
    with pytest.warns(UserWarning, match=r"x.csv, line 3: .*the 22 lines behind it, to line 25"):
        made = go(tmp_path / "x.csv", tmp_path / "run", model=model)
    assert (made.rows, made.errors) == (1, 1)
    assert "22 lines" in bad(tmp_path / "run")[0]["reason"]


def test_two_columns_of_one_name_are_carried_as_text(model: Any, tmp_path: Path) -> None:
    """Which of the two types would be meant is not known; the run neither stops nor guesses."""
    columns = [pa.array(["A good film.", "A bad one."]), pa.array([1, 2]), pa.array([0.5, 0.25])]
    parquet.write_table(pa.Table.from_arrays(columns, names=["text", "n", "n"]), tmp_path / "x.parquet")
    made = go(tmp_path / "x.parquet", tmp_path / "run", model=model, columns=["n"])
    assert made.rows == 2
    assert all(isinstance(row["n"], str) for row in table(tmp_path / "run"))
    assert json.loads((tmp_path / "run/manifest.json").read_text())["columns"]["n"] == "string"


def test_a_label_of_blanks_is_no_label() -> None:
    for classes in ((), ("negative", "positive")):
        judged = page_facts.Judged("mine", classes=classes)
        for value in (" ", "\t\n", "", None):
            assert judged.add(value, "positive") == (None, None)
        assert (judged.rows, judged.without + judged.unknown) == (0, 4)
        assert judged.add("positive", "positive") == ("positive", True)


@pytest.mark.parametrize("size", [10**21, sys.maxsize + 1])
def test_numbers_without_end_are_refused_in_one_line(size: int, model: Any, tmp_path: Path) -> None:
    for call in (
        lambda: judge(model, "sentiment", n=size, methods="alti", progress=False),
        lambda: list(data.read(_texts(tmp_path), limit=size)),
        lambda: again(tmp_path / "run", model, limit=size),
        lambda: again(tmp_path / "run", model, shard_rows=size),
    ):
        with pytest.raises(InputError, match="at most"):
            call()


def _texts(folder: Path) -> Path:
    (folder / "x.txt").write_text("\n".join(TEXTS) + "\n")
    return folder / "x.txt"


# --- what is said -----------------------------------------------------------------------------------------------------

HIDDEN = "\x1b]0;PWNED\x07\x9b31m\u202e\u200b\x7f"


def clean(text: str) -> bool:
    return all(char.isprintable() or char == "\n" for char in text)


@pytest.mark.filterwarnings("default")  # one warning is wanted: it is looked at
def test_nothing_that_a_terminal_obeys_is_printed(tmp_path: Path) -> None:
    """Tokens of a forged shard, names of files and the folder's own name."""
    place = tmp_path / f"run{HIDDEN}"
    asked = ["run", str(_texts(tmp_path)), "--model", "sentiment", "--methods", "attention", "--out", str(place)]
    ran = CliRunner().invoke(app, asked)
    assert ran.exit_code == 0
    assert clean(ran.stdout)
    (place / "shards" / HIDDEN).write_text("")
    again_ = CliRunner().invoke(app, [*asked, "--json"])
    assert again_.exit_code == 0
    assert clean(again_.output)
    assert json.loads(again_.stdout)["out"] == str(place)
    (path,) = shards.shard_files(place)
    content = parquet.read_table(path)
    tokens = pa.array([[HIDDEN] * len(row) for row in content["tokens"].to_pylist()], content["tokens"].type)
    content = content.set_column(content.schema.get_field_index("tokens"), "tokens", tokens)
    content = content.drop_columns(["starts", "word_texts"])  # so that tokens are listed, not the words of the text
    path.unlink()
    forged = parquet_content(content)
    (place / "shards" / shards.file_name(0, forged)).write_bytes(forged)
    manifest = json.loads((place / "manifest.json").read_text())
    (place / "manifest.json").write_text(
        json.dumps({**manifest, "shards": []})
    )  # shards are judged by their names alone
    text, made = (CliRunner().invoke(app, ["summarize", str(place), *more]) for more in ([], ["--json"]))
    assert clean(text.output)
    assert clean(made.output)
    assert HIDDEN in [
        token for of_class in json.loads(made.stdout)["top"].values() for token, *_ in of_class["attention"]
    ]


def test_a_word_that_is_no_folder_is_noted(tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["report", "o1", "-o", str(tmp_path / "x.html"), "--model", "sentiment"])
    assert ran.exit_code == 0
    assert "'o1' is no folder, so it is shown as a text of one word" in ran.stderr
    ran = CliRunner().invoke(app, ["report", "A good film.", "-o", str(tmp_path / "x.html"), "--model", "sentiment"])
    assert ran.stderr == ""


def test_a_report_names_no_folder_of_this_machine(tmp_path: Path) -> None:
    place = shutil.copytree(Path(mixlens.__file__).parent / "model/embedded/sentiment", tmp_path / "my-model")
    mixlens.report(
        mixlens.load(str(place)), tmp_path / "x.html", texts="A good film.", methods=["attention", "grad_x_input"]
    )
    written = (tmp_path / "x.html").read_text()
    assert "my-model" in written
    assert str(tmp_path) not in written


@pytest.mark.parametrize(
    ("module", "call"),
    [
        ("scipy.stats", lambda: judge("sentiment", "sentiment", n=2, progress=False)),
        ("sklearn.metrics", lambda: judge("agreement", "agreement", n=2, progress=False)),
        ("scipy.stats", lambda: experiment("alti-table2", n=2, progress=False)),
        ("scipy.stats", lambda: experiment("vz-faithfulness", n=2, progress=False)),
        ("sklearn.metrics", lambda: experiment("vz-cue-alignment", n=2, progress=False)),
        ("scipy.stats", lambda: experiment("judge", n=2, progress=False)),
    ],
)
def test_a_missing_package_is_said_before_a_model_is_loaded(
    module: str, call: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def loaded(*_: Any, **__: Any) -> Any:
        raise AssertionError("a model was loaded")

    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(sys.modules["mixlens.runs.experiments.prepare"], "load_model", loaded)
    with pytest.raises(InputError, match=r"pip install .*\[judge\]'"):
        call()


# --- Ctrl-C -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def interruptible() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def heard(tmp_path: Path) -> None:
    """A process begins as if Ctrl-C were heard, also where whoever runs the tests ignores it (nohup, a shell's
    background)."""
    (tmp_path / "sitecustomize.py").write_text(
        "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    )


@pytest.mark.usefixtures("heard")
def test_ctrl_c_while_modules_are_imported_is_one_line(tmp_path: Path) -> None:
    """A module that sends itself the signal stands for a user who is quick."""
    (tmp_path / "torch.py").write_text(
        "import os, signal\n"
        "try:\n    os.kill(os.getpid(), signal.SIGINT)\n"
        "except BaseException:\n    raise ImportError('torch')\n"
    )
    around = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(mixlens.__file__).parents[1])])}
    for command in (
        ["explain", "A good film."],
        ["run", "x.txt", "--out", str(tmp_path / "run")],
        ["judge", "sentiment", "x.txt"],
    ):
        ran = subprocess.run(
            [sys.executable, "-m", "mixlens", *command], env=around, capture_output=True, text=True, check=False
        )
        assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "mixlens: stopped.\n")


@pytest.mark.usefixtures("heard")
def test_ctrl_c_while_the_command_line_is_imported_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n")
    around = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(mixlens.__file__).parents[1])])}
    ran = subprocess.run(
        [sys.executable, "-m", "mixlens", "methods"], env=around, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (130, "mixlens: stopped.\n")


def test_ctrl_c_later_is_one_line_too(
    interruptible: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def pressed(*_: Any, **__: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)

    monkeypatch.setattr("mixlens.model.loading.load", pressed)
    monkeypatch.setattr(sys, "argv", ["mixlens", "explain", "A good film."])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "mixlens: stopped.\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
