"""Files and folders of runs, results as text, and the checks of what is read: whole messages, whole values, both sides."""

from __future__ import annotations

import errno
import json
import math
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors import safe_open

from mixlens.base import errors, files
from mixlens.base.errors import InputError, MixlensError, ResultError
from mixlens.base.files import RunFolder
from mixlens.scoring import result_facts, saving, saving_text
from mixlens.types import Attribution, HeadMaps, Map

# --- writing ----------------------------------------------------------------------------------------------------------


def test_a_file_is_written_whole(tmp_path: Path) -> None:
    place = tmp_path / ("n" * 200)
    seen: list[Path] = []

    def content(path: Path) -> None:
        seen.append(path)
        assert path.read_bytes() == b""
        path.write_bytes(b"made")
        path.chmod(0o600)

    (tmp_path / "usual").touch()
    for given, told in ((b"bytes", b"bytes"), ([b"a", b"b"], b"ab"), (content, b"made")):
        files.write(place, given)  # type: ignore[arg-type]
        assert place.read_bytes() == told
        assert place.stat().st_mode == (tmp_path / "usual").stat().st_mode
    assert sorted(tmp_path.iterdir()) == sorted([place, tmp_path / "usual"])
    name = seen[0].name
    assert files.OWN_TEMPORARY.match(name)
    assert (len(name), name.endswith("-" + "n" * 40)) == (len(".tmp-") + 12 + 1 + 40, True)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, OSError])
def test_a_write_that_fails_leaves_no_file(tmp_path: Path, error: type[BaseException]) -> None:
    place = tmp_path / "f"
    place.write_bytes(b"old")

    def fails(_: Path) -> None:
        raise error

    with pytest.raises(error):
        files.write(place, fails)
    assert [path.name for path in tmp_path.iterdir()] == ["f"]
    assert place.read_bytes() == b"old"


def test_what_is_written_reaches_the_disk_before_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[Any] = []
    monkeypatch.setattr(files, "sync", lambda file: steps.append("file"))
    monkeypatch.setattr(files.os, "replace", lambda a, b: steps.append((a.parent, b)))
    monkeypatch.setattr(files, "sync_folder", steps.append)
    files.write(tmp_path / "f", b"x")
    assert steps == ["file", (tmp_path, tmp_path / "f"), tmp_path]


@pytest.mark.parametrize(
    ("system", "refusals", "waits"), [("nt", 2, [0.01, 0.05]), ("nt", 0, []), ("nt", 4, list(files.WAITS))]
)
def test_windows_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str, refusals: int, waits: list[float]
) -> None:
    tried: list[Any] = []
    slept: list[float] = []

    def replace(a: Path, b: Path) -> None:
        tried.append((a, b))
        if len(tried) <= refusals:
            raise PermissionError

    one, two = tmp_path / "a", tmp_path / "b"
    with monkeypatch.context() as patched:
        patched.setattr(files.os, "replace", replace)
        patched.setattr(files.time, "sleep", slept.append)
        patched.setattr(files.os, "name", system)
        files._rename_over(one, two)
    assert (tried, slept) == ([(one, two)] * (refusals + 1), waits)
    with monkeypatch.context() as patched:
        patched.setattr(files.os, "replace", replace)
        if refusals:
            tried.clear()
            with pytest.raises(PermissionError):
                files._rename_over(one, two)
            assert len(tried) == 1


def test_disks_that_cannot_sync_names_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[int] = []
    close = os.close
    for number, raised in ((errno.EINVAL, False), (errno.ENOTSUP, False), (errno.EIO, True)):

        def fails(_: int, number: int = number) -> None:
            raise OSError(number, "no")

        monkeypatch.setattr(files.os, "fsync", fails)
        monkeypatch.setattr(files.os, "close", lambda file: (closed.append(file), close(file)))
        if raised:
            with pytest.raises(OSError, match="no"):
                files.sync_folder(tmp_path)
        else:
            files.sync_folder(tmp_path)
    assert len(closed) == 3

    def refuses(*_: Any) -> int:
        raise PermissionError

    monkeypatch.setattr(files.os, "open", refuses)
    files.sync_folder(tmp_path)


def test_an_open_file_is_flushed_to_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[int] = []
    monkeypatch.setattr(files.os, "fsync", flushed.append)
    files.sync(7)
    assert flushed == [7]


def test_windows_has_locks_of_its_own_and_no_folders_to_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locked: list[Any] = []
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "msvcrt", SimpleNamespace(LK_NBLCK=5, locking=lambda *given: locked.append(given)))
        patched.setattr(files.sys, "platform", "win32")
        files.take_lock(3)
    assert locked == [(3, 5, 1)]
    with monkeypatch.context() as patched:
        patched.setattr(files.os, "name", "nt")
        patched.setattr(files.os, "open", lambda *given: locked.append(given))
        files.sync_folder(tmp_path)
    assert len(locked) == 1


# --- refusals of a folder ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            OSError(errno.ENOSPC, "No space", "/run/x"),
            "cannot write to '/run': No space. What is done is safe: make room or set",
        ),
        (
            OSError(errno.ENOENT, "None", "/run/x/y"),
            "cannot write to '/run': None. Something on the way there is no folder, or was",
        ),
        (OSError(errno.ESTALE, "Stale"), "cannot write to '/run': Stale. Something on the way there"),
        (OSError(errno.ENOTDIR, "Not", "/"), "cannot write to '/run': Not. Something on the way there"),
        (
            OSError(errno.EIO, "IO", "/run/a", None, "/tmp/b"),
            "the run stopped: IO ('/tmp/b'). The same command goes on.",
        ),
        (OSError(errno.EIO, "IO", b"/tmp/a"), "the run stopped: IO ('/tmp/a'). The same command goes on."),
        (OSError("text"), "cannot write to '/run': text. What is done is safe"),
        (OSError(), "cannot write to '/run': OSError. What is done is safe"),
        (OSError(errno.EIO, "IO", 7), "cannot write to '/run': IO. What is done is safe"),
    ],
)
def test_an_error_of_the_system_becomes_one_line(error: OSError, told: str) -> None:
    with pytest.raises(ResultError) as found, files.in_folder(Path("/run")):
        raise error
    assert str(found.value).startswith(told)


def test_a_refusal_stays_what_it_is() -> None:
    class BothError(MixlensError, OSError):
        pass

    with pytest.raises(BothError), files.in_folder(Path("/run")):
        raise BothError("x")


def begun(folder: Path, **more: Any) -> None:
    folder.mkdir(exist_ok=True)
    manifest = {
        "schema": 1,
        "identity_schema": 2,
        "identity": {"kind": "corpus", "n": 1, "options": {"a": 1, "b": None}},
    }
    (folder / "manifest.json").write_text(json.dumps({**manifest, **more}))


def refusal(folder: Path, identity: dict[str, Any]) -> str:
    with pytest.raises(InputError) as told:
        RunFolder(folder).check(identity)
    return str(told.value)


def test_a_folder_of_this_run_of_another_and_of_none(tmp_path: Path) -> None:
    same = {"kind": "corpus", "n": 1, "options": {"a": 1, "b": None}}
    folder = tmp_path / "run"
    RunFolder(folder).check(same)  # not there yet
    begun(folder)
    RunFolder(folder).check(same)
    RunFolder(folder).check({**same, "options": {"b": None, "a": 1}})
    assert refusal(folder, {**same, "n": 2, "options": {"a": (1, 2), "c": "x"}}) == (
        f'{str(folder)!r} belongs to another run (n: 1 there, 2 here; a: 1 there, [1, 2] here; c: null there, "x" here). '
        "Give another folder: nothing is overwritten."
    )
    begun(folder, schema=3)
    assert refusal(folder, same) == f"{str(folder)!r} has schema 3; this mixlens writes 1."
    for versions, name in (({"mixlens": "0.1"}, "0.1"), ({}, "?"), (None, "?")):
        begun(folder, identity_schema=1, versions=versions)
        assert f"was begun by another version of mixlens ({name}), which knew" in refusal(folder, same)
    (folder / "manifest.json").write_text(json.dumps({"schema": 1, "identity": {}}))
    assert "another version of mixlens (?)" in refusal(folder, same)
    for content in ("{", "[]", '"x"', "7"):
        (folder / "manifest.json").write_text(content)
        assert refusal(folder, same) == f"{str(folder / 'manifest.json')!r} is not a manifest of mixlens."
    for content in ("{}", '{"identity": 3}'):
        (folder / "manifest.json").write_text(content)
        assert RunFolder(folder).manifest == {}


def test_a_folder_with_files_of_somebody_else(tmp_path: Path) -> None:
    for name in (".lock", ".tmp-0123456789ab-x"):
        (tmp_path / name).touch()
    RunFolder(tmp_path).check({})
    for name in ("d", "c", "b", ".tmp-x"):
        (tmp_path / name).touch()
    assert refusal(tmp_path, {}) == (
        f"{str(tmp_path)!r} is not empty (.tmp-x, b, c) and holds no run. Give another folder: nothing is overwritten."
    )
    file, link = tmp_path / "b", tmp_path / "link"
    assert refusal(file, {}) == f"{str(file)!r} is a file; the results need a folder of their own."
    link.symlink_to(tmp_path / "nowhere")
    assert refusal(link, {}) == f"{str(link)!r} is a link that leads nowhere; the results need a folder of their own."
    good = tmp_path / "good"
    (tmp_path / "real").mkdir()
    good.symlink_to(tmp_path / "real")
    RunFolder(good).check({})


def test_links_and_files_in_the_place_of_subfolders(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    good, file, link = tmp_path / "good", tmp_path / "file", tmp_path / "link"
    good.mkdir()
    file.touch()
    link.symlink_to(good)
    folder.refuse_links(good, tmp_path / "none")
    for place in (file, link):
        with pytest.raises(InputError) as told:
            folder.refuse_links(good, place)
        assert str(told.value).startswith(f"{str(place)!r} is a link or a file where a run keeps a folder of its own.")


def test_only_half_written_files_are_cleared(tmp_path: Path) -> None:
    sub = tmp_path / "sub"
    sub.mkdir()
    kept = [tmp_path / ".tmp-x", tmp_path / "x", sub / ".tmp-0123456789AB-x"]
    gone = [tmp_path / ".tmp-0123456789ab-x", sub / ".tmp-0123456789ab-y"]
    for path in (*kept, *gone):
        path.touch()
    (tmp_path / ".tmp-aaaaaaaaaaaa-folder").mkdir()
    (tmp_path / ".tmp-bbbbbbbbbbbb-link").symlink_to(sub)
    RunFolder(tmp_path).clear(sub)
    assert sorted(tmp_path.rglob("*")) == sorted([*kept, sub, tmp_path / ".tmp-aaaaaaaaaaaa-folder"])


def test_a_folder_is_held_by_one(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "run"
    first, second = RunFolder(folder), RunFolder(folder)
    first.still_held()
    with first.held():
        first.still_held()
        with pytest.raises(InputError) as told, second.held():
            pass
        assert str(told.value) == f"another run is writing to {str(folder)!r}. Wait for it, or give another folder."
        (folder / ".lock").unlink()
        with pytest.raises(ResultError) as gone:
            first.still_held()
        assert str(gone.value).startswith(f"{str(folder)!r} was moved, deleted or made anew while the run wrote to it.")
        (folder / ".lock").touch()
        with pytest.raises(ResultError):
            first.still_held()
    first.still_held()
    with second.held({}):
        pass
    (folder / "other").touch()
    with pytest.raises(InputError, match="is not empty"), second.held({}):
        pass
    with second.held():
        pass


def test_a_lock_that_is_a_link_or_a_folder_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.touch()
    for name, make in (
        ("link", lambda lock: lock.symlink_to(target)),
        ("dir", lambda lock: lock.mkdir()),
        ("pipe", os.mkfifo),
    ):
        folder = tmp_path / name
        folder.mkdir()
        make(folder / ".lock")
        with pytest.raises(InputError) as told, RunFolder(folder).held():
            pass
        assert str(told.value).startswith(
            f"{str(folder / '.lock')!r} is a link or no file. It was not made by a run: take it"
        )


def test_the_lock_file_is_opened_with_care(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everyone may write to it; a link is refused where the system cannot refuse it; what is refused is closed again."""
    before = os.umask(0)
    try:
        with RunFolder(tmp_path / "run").held():
            assert (tmp_path / "run" / ".lock").stat().st_mode & 0o777 == 0o666
    finally:
        os.umask(before)
    (tmp_path / "run" / ".lock").unlink()
    (tmp_path / "target").touch()
    (tmp_path / "run" / ".lock").symlink_to(tmp_path / "target")
    monkeypatch.setattr(files, "LOCK_FLAGS", os.O_RDWR | os.O_CREAT)
    with pytest.raises(InputError, match="is a link or no file"), RunFolder(tmp_path / "run").held():
        pass
    (tmp_path / "run" / ".lock").unlink()
    os.mkfifo(tmp_path / "run" / ".lock")
    closed: list[int] = []
    close = os.close
    monkeypatch.setattr(files.os, "close", lambda file: (closed.append(file), close(file)))
    with pytest.raises(InputError, match="is a link or no file"), RunFolder(tmp_path / "run").held():
        pass
    assert len(closed) == 2  # the folder above it, whose names were synced, and the pipe


def test_a_folder_that_is_held_is_looked_at_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[Any] = []
    monkeypatch.setattr(files, "sync_folder", steps.append)
    monkeypatch.setattr(RunFolder, "still_held", lambda self: steps.append("held"))
    with RunFolder(tmp_path / "run").held():
        assert steps == [tmp_path, "held"]


def test_manifests_are_read_as_utf8(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(Path, "read_text", lambda self, **named: asked.append(named) or '{"identity": {}}')
    assert RunFolder(tmp_path).manifest == {"identity": {}}
    assert asked == [{"encoding": "utf-8"}]


def test_an_error_of_the_lock_that_means_something_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: int) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(files, "take_lock", fails)
    with pytest.raises(OSError, match="no locks"), RunFolder(tmp_path).held():
        pass


def test_how_differences_are_written() -> None:
    long = [f"name{number}" for number in range(20)]
    tell = files._difference
    assert tell("x" * 78, 1) == f'"{"x" * 78}" there, 1 here'
    assert tell("x" * 79, 1) == f'"{"x" * 76}... there, 1 here'
    assert tell([1], [2]) == "[1] there, [2] here"
    assert tell([*long, "a"], [*long, "b"]) == 'also ["a"] there, also ["b"] here'
    assert tell(long, [*long, "b"]) == 'also [] there, also ["b"] here'
    assert tell(long, long[::-1]) == "the same in another order, or another number of times"
    assert tell(["é" * 80], ["a"]).startswith('also ["é')
    assert tell(long, None) == f"{json.dumps(long)[:77]}... there, null here"
    edge = ["x" * 76]  # 80 characters
    assert tell(edge, ["y"]) == f'["{"x" * 76}"] there, ["y"] here'
    assert tell([edge[0] + "x"], ["y"]).startswith('also ["x')
    assert list(files._differences({"a": {"x": 1}}, {"a": 3})) == ['a: {"x": 1} there, 3 here']
    assert list(files._differences({"a": 3}, {"a": {"x": 1}})) == ['a: 3 there, {"x": 1} here']
    assert tell({"a": 1}, None) == '{"a": 1} there, null here'


# --- results as text ----------------------------------------------------------------------------------------------------


def attribution(**more: Any) -> Attribution:
    given: dict[str, Any] = {"info": {}, "special": (True, False), "words": (("A", (0, 1)),), **more}
    return Attribution(torch.tensor([0.5, -0.0]), ("a,", "b"), "m", given["info"], given["special"], given["words"])


def test_a_result_in_plain_types() -> None:
    info = {
        **{
            "t": torch.tensor([[1.0, math.nan], [math.inf, -math.inf]]),
            "n": (1, math.nan),
            "d": {2: -math.inf},
            "o": Path("p"),
        },
        **{"b": True, "none": None, "i": torch.tensor([3]), "f": 0.5, "s": "x"},
    }
    found = saving_text.dict_of(attribution(info=info))
    assert list(found) == ["kind", "schema", "method", "tokens", "scores", "dtype", "special", "words", "info"]
    assert found == {
        **{
            "kind": "attribution",
            "schema": 1,
            "method": "m",
            "tokens": ["a,", "b"],
            "scores": [0.5, 0.0],
            "dtype": "float32",
        },
        **{"special": [True, False], "words": [["A", [0, 1]]]},
        "info": {
            "t": {"tensor": "float32", "shape": [2, 2], "values": [1.0, "NaN", "Infinity", "-Infinity"]},
            **{"n": [1, {"number": "NaN"}], "d": {"2": {"number": "-Infinity"}}, "o": "p", "b": True, "none": None},
            **{"i": {"tensor": "int64", "shape": [1], "values": [3]}, "f": 0.5, "s": "x"},
        },
    }
    assert math.copysign(1, found["scores"][1]) == -1
    assert saving_text.dict_of(attribution(words=None))["words"] is None
    scores = Map(torch.tensor([[[1.0, math.nan], [0.5, 2.0]]]), ("é", "b"), "m", {}, (), None)
    assert saving_text.dict_of(scores)["scores"] == [[[1.0, "NaN"], [0.5, 2.0]]]
    assert "é" in saving_text.json_of(scores)


def test_what_was_written_is_read_back() -> None:
    info = {
        "t": torch.tensor([[1.0, math.nan], [math.inf, -math.inf]]),
        "n": [1, math.nan],
        "d": {"x": {"y": -math.inf}},
        "s": "x",
    }
    header, tensors = saving_text.content_of(saving_text.json_of(attribution(info=info)), "f.json")
    assert list(tensors) == ["scores", "info.t"]
    assert torch.equal(tensors["scores"], torch.tensor([0.5, -0.0]))
    torch.testing.assert_close(tensors["info.t"], info["t"], equal_nan=True)
    assert (header["kind"], header["schema"], header["method"], header["tokens"]) == (
        "Attribution",
        1,
        "m",
        ["a,", "b"],
    )
    assert (header["special"], header["words"], list(header["info"])) == (
        [True, False],
        [["A", [0, 1]]],
        ["n", "d", "s"],
    )
    assert (header["info"]["d"], math.isnan(header["info"]["n"][1])) == ({"x": {"y": -math.inf}}, True)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"kind": "other"}, "'f' holds the kind 'other'; map and headmaps and attribution are read."),
        ({"kind": None}, "'f' holds the kind None; map and headmaps and attribution are read."),
        ({"schema": 2}, "'f' has schema 2; this mixlens reads 1."),
        ({"info": []}, "its facts are not written as a result's are"),
        ({"dtype": "complex64"}, "its numbers are of an unknown type"),
        ({"dtype": 3}, "its numbers are of an unknown type"),
        ({"scores": [None]}, "its numbers are none"),
        (
            {"info": {"t": {"tensor": "float32", "shape": [3], "values": [1.0]}}},
            "a tensor among its facts has another shape",
        ),
        (
            {"info": {"t": {"tensor": "float32", "shape": [-1], "values": [1.0]}}},
            "a tensor among its facts has another shape",
        ),
        (
            {"info": {"t": {"tensor": "float32", "shape": [True], "values": [1.0]}}},
            "a tensor among its facts has another shape",
        ),
        (
            {"info": {"t": {"tensor": "float32", "shape": 1, "values": [1.0]}}},
            "a tensor among its facts has another shape",
        ),
        (
            {"info": {"t": {"tensor": "float32", "shape": [1], "values": [[1.0]]}}},
            "a tensor among its facts has another shape",
        ),
    ],
)
def test_text_that_no_result_wrote(change: dict[str, Any], told: str) -> None:
    plain = saving_text.dict_of(attribution())
    with pytest.raises(ValueError, match=r".") as found:
        saving_text.content_of(json.dumps({**plain, **change}), "f")
    assert str(found.value) == told
    with pytest.raises(ValueError, match=r"^NaN is no number of JSON$"):
        saving_text.content_of('{"a": NaN}', "f")
    with pytest.raises(ValueError, match=r"^it holds no object$"):
        saving_text.content_of("[]", "f")


def test_an_empty_tensor_among_the_facts() -> None:
    plain = saving_text.dict_of(attribution(info={"t": torch.zeros(0, 2)}))
    _, tensors = saving_text.content_of(json.dumps(plain), "f")
    assert tensors["info.t"].shape == (0, 2)


def test_tables_of_scores() -> None:
    assert saving_text.csv_of(attribution()) == 'position,token,special,score\n0,"a,",True,0.5\n1,b,False,-0.0\n'
    assert saving_text.csv_of(attribution(special=())).splitlines()[1:] == ['0,"a,",False,0.5', "1,b,False,-0.0"]
    scores = torch.arange(8.0).reshape(1, 2, 2, 2)
    heads = HeadMaps(scores, ("a", "b"), "m", {}, (), None)
    lines = saving_text.csv_of(heads).splitlines()
    assert lines[:3] == ["layer,head,query,key,query_token,key_token,score", "0,0,0,0,a,a,0.0", "0,0,0,1,a,b,1.0"]
    assert lines[-2:] == ["0,1,1,0,b,a,6.0", "0,1,1,1,b,b,7.0"]
    lines = saving_text.csv_of(Map(scores[:, 0], ("a", "b"), "m", {}, (), None)).splitlines()
    assert lines == [
        "layer,query,key,query_token,key_token,score",
        *(f"0,{q},{k},{'ab'[q]},{'ab'[k]},{2 * q + k}.0" for q in (0, 1) for k in (0, 1)),
    ]


# --- checks of what is read -----------------------------------------------------------------------------------------------


def header_of(**more: Any) -> dict[str, Any]:
    whole = {"kind": "Attribution", "tokens": ["a", "b"], "words": None, "method": "m", "special": [], "info": {}}
    return {**whole, **more}


def fault_of(*, scores: Any = None, tensors: dict[str, Any] | None = None, **more: Any) -> str | None:
    """What is wrong with a file; None where nothing is."""
    numbers = torch.zeros(2) if scores is None else scores
    try:
        result_facts.result_of(header_of(**more), {"scores": numbers, **(tensors or {})})
    except result_facts.WrongError as error:
        return str(error)
    return None


def test_a_file_is_checked_part_by_part() -> None:
    assert fault_of() is None
    for tokens in ([], ["a", 3], "ab", None):
        assert fault_of(tokens=tokens) == "its tokens are no texts"
    assert fault_of(method=3) == "its method is no name"
    for special in ([True], [True, 1], None, [False] * 3):
        assert fault_of(special=special) == "its list of special tokens does not fit its tokens"
    assert fault_of(special=[True, False]) is None
    bad_words: tuple[Any, ...] = (
        *(
            [["w"]],
            [["w", []]],
            [["w", [2]]],
            [["w", [-1]]],
            [["w", [0]], ["v", [0]]],
            [[3, [0]]],
            [["w", [True]]],
            "x",
            [["w", 0]],
        ),
    )
    for words in bad_words:
        assert fault_of(words=words) == "its words do not fit its tokens"
    assert fault_of(words=[["w", [1, 0]]]) is None
    made = result_facts.result_of(header_of(words=[["w", [1]]], special=[True, False]), {"scores": torch.zeros(2)})
    assert (made.words, made.special, made.tokens, made.method) == ((("w", (1,)),), (True, False), ("a", "b"), "m")


def test_scores_have_the_shape_of_their_kind() -> None:
    told = "its scores have the shape [3], not [token] of its 2 tokens"
    assert fault_of(scores=torch.zeros(3)) == told
    assert fault_of(scores=torch.zeros(1, 2)) == "its scores have the shape [1, 2], not [token] of its 2 tokens"
    assert fault_of(scores=torch.zeros(2, dtype=torch.int64)) == "its scores are int64 numbers"
    assert fault_of(kind="Map", scores=torch.zeros(1, 2, 2)) is None
    assert fault_of(kind="Map", scores=torch.zeros(1, 3, 2)) == (
        "its scores have the shape [1, 3, 2], not [layer, token, token] of its 2 tokens"
    )
    assert fault_of(kind="Map", scores=torch.zeros(0, 2, 2)) == (
        "its scores have the shape [0, 2, 2], not [layer, token, token] of its 2 tokens"
    )
    assert fault_of(kind="HeadMaps", scores=torch.zeros(1, 3, 2, 2, dtype=torch.bfloat16)) is None


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("model", ("x", None), (3,)),
        ("check", (0.5, 1, None), ("x", True)),
        ("gap", (0.5, 1), (None, "x")),
        ("query", (1, None, -1, 2**63 - 1), (0.5, True, 2**63)),
        ("options", ({}, None), ([],)),
        ("notes", ([], None), ({},)),
        ("layer", (1,), (None, 0.5)),
        ("target", ("x", [1], 3, 0.5, None), (True, {})),
        ("causal", (True, None), (1,)),
        ("prediction", ([["a", 0.5], ["b", 1]], []), (None, [["a"]], [[1, 0.5]], [["a", "b"]], "x")),
        ("rollout", ({"convention": "c"}, None), ({}, {"convention": 1}, "x")),
        ("another", (object,), ()),
    ],
)
def test_facts_that_pictures_rely_on(name: str, good: tuple[Any, ...], bad: tuple[Any, ...]) -> None:
    for value in good:
        assert fault_of(info={name: value}) is None
    for value in bad:
        assert fault_of(info={name: value}) == f"its fact {name!r} has a value that no result has"


def test_facts_that_go_together() -> None:
    assert fault_of(info={"query_token": "a"}) == "its facts name a token and no position"
    assert fault_of(info={"query_token": "a", "query": 1}) is None
    assert fault_of(info={"query_token": "a", "query": 1, "target": "t"}) == "its facts name a target and no score"
    assert fault_of(info={"query_token": "a", "query": 1, "target": "t", "score": "logit"}) is None
    assert fault_of(info={"target": "t"}) is None
    assert fault_of(info=[]) == "its facts are not written as a result's are"
    assert fault_of(tensors={"other": torch.zeros(1)}) == "it holds ['other'], which no result has"
    made = result_facts.result_of(
        header_of(info={"prediction": [["a", 0.5]]}), {"scores": torch.zeros(2), "info.x": torch.ones(1)}
    )
    assert made.info["prediction"] == [("a", 0.5)]
    assert torch.equal(made.info["x"], torch.ones(1))
    assert set(made.info) == {"prediction", "x"}


@pytest.mark.parametrize("kind", [list, dict])
def test_facts_are_nested_up_to_a_depth(kind: type) -> None:
    def nested(levels: int) -> Any:
        value: Any = 1
        for _ in range(levels):
            value = [value] if kind is list else {"k": value}
        return value

    assert fault_of(info={"x": nested(31)}) is None
    assert fault_of(info={"x": nested(32)}) == "its facts are not written as a result's are"


def test_what_a_header_says() -> None:
    assert result_facts.header_of(attribution(info={"t": torch.zeros(1), "n": 1})) == {
        **{"kind": "Attribution", "schema": 1, "tokens": ["a,", "b"], "method": "m", "info": {"n": 1}},
        **{"special": [True, False], "words": (("A", (0, 1)),)},
    }


# --- saving ---------------------------------------------------------------------------------------------------------------


def refused(path: Path) -> str:
    with pytest.raises(ResultError) as told:
        saving.load_result(path)
    return str(told.value)


def test_every_kind_of_file(tmp_path: Path) -> None:
    result = attribution(info={"t": torch.arange(4.0).reshape(2, 2).T, "n": 1, "é": "ü"})
    for suffix in (".safetensors", ".json"):
        place = tmp_path / f"r{suffix}"
        saving.save(result, place)
        found = saving.load_result(str(place))
        assert torch.equal(found.scores, result.scores)
        assert torch.equal(found.info["t"], result.info["t"])
        assert (found.tokens, found.special, found.words, found.info["é"]) == (
            result.tokens,
            result.special,
            result.words,
            "ü",
        )
    with safe_open(tmp_path / "r.safetensors", framework="pt") as file:
        assert "ü" in file.metadata()["mixlens"]
    saving.save(result, tmp_path / "r.csv")
    assert (tmp_path / "r.csv").read_text() == saving_text.csv_of(result)
    assert refused(tmp_path / "r.csv").startswith(
        "'r.csv': a table has the scores alone. Save a result as .safetensors or"
    )
    assert refused(tmp_path / "none.json") == f"no file {str(tmp_path / 'none.json')!r}."
    assert saving.saved_or_text(result, None, ".csv") == saving_text.csv_of(result)
    assert saving.saved_or_text(result, None, ".json") == saving_text.json_of(result)
    assert saving.saved_or_text(result, tmp_path / "s.csv", ".csv") is None
    assert (tmp_path / "s.csv").read_text() == saving_text.csv_of(result)
    for path, told in (
        (tmp_path / "r.txt", "a result is saved as .safetensors, .json or .csv, not 'r.txt'."),
        (tmp_path / "no" / "r.csv", f"no folder {str(tmp_path / 'no')!r} to save in."),
    ):
        with pytest.raises(ResultError) as found_error:
            saving.save(result, path)
        assert str(found_error.value) == told
    with pytest.raises(ResultError, match=r"^a file for this ends in \.csv, and 'r\.json' does not\.$"):
        saving.saved_or_text(result, tmp_path / "r.json", ".csv")


def test_damaged_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "r.json"
    place.write_text("{")
    assert refused(place) == "'r.json' is not a mixlens result (or is damaged): JSONDecodeError."
    place.write_text("[]")
    assert refused(place) == "'r.json' is not a mixlens result (or is damaged): it holds no object."
    place.write_text(json.dumps({**saving_text.dict_of(attribution()), "method": 3}))
    assert refused(place) == "'r.json' is not a mixlens result (or is damaged): its method is no name."
    place.write_text('{"kind": "why"}')
    assert refused(place).startswith("this is no answer of `mixlens why` (or is damaged): KeyError")
    bad = tmp_path / "r.safetensors"
    bad.write_bytes(b"x")
    assert refused(bad) == "'r.safetensors' is not a mixlens result (or is damaged): SafetensorError."
    monkeypatch.setattr(saving, "header_of", lambda result: {**result_facts.header_of(result), "schema": 5})
    saving.save(attribution(), bad, force=True)
    assert refused(bad) == "'r.safetensors' has schema 5; this mixlens reads 1."

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left")

    monkeypatch.setattr(saving, "write", full)
    with pytest.raises(ResultError) as told:
        saving.save(attribution(), place)
    assert str(told.value) == f"the result could not be written to {str(place)!r}: No space left."


def test_tables_of_pandas() -> None:
    pytest.importorskip("pandas")
    scores = torch.arange(8.0).reshape(2, 1, 2, 2)
    heads = saving.heads_frame(HeadMaps(scores, ("a", "b"), "m", {}, (), None))
    assert list(heads.columns) == ["layer", "head", "query", "key", "query_token", "key_token", "score"]
    assert heads.values.tolist()[1:4] == [
        [0, 0, 0, 1, "a", "b", 1.0],
        [0, 0, 1, 0, "b", "a", 2.0],
        [0, 0, 1, 1, "b", "b", 3.0],
    ]
    assert heads.values.tolist()[6] == [1, 0, 1, 0, "b", "a", 6.0]
    frame = saving.map_frame(Map(scores[:, 0], ("a", "b"), "m", {}, (), None))
    assert list(frame.columns) == ["layer", "query", "key", "query_token", "key_token", "score"]
    assert frame.values.tolist()[5:7] == [[1, 0, 1, "a", "b", 5.0], [1, 1, 0, "b", "a", 6.0]]
    assert saving.attribution_frame(attribution()).values.tolist() == [[0, "a,", 0.5], [1, "b", 0.0]]


# --- refusals -------------------------------------------------------------------------------------------------------------


def test_names_that_are_near() -> None:
    known = ["globenc", "alti", "attention"]
    assert errors.nearest("attentoin", known) == "Did you mean 'attention'? Known: alti, attention, globenc."
    assert errors.nearest("zzz", known) == "Known: alti, attention, globenc."
    assert errors.suggested("alt", ["alta", "altb", "altc", "altd"]) == "Did you mean 'altd' or 'altc' or 'altb'?"
    assert errors.suggested("abcd", ["abxy"]) == ""
    assert errors.suggested("abcd", ["abxy"], cutoff=0.5) == "Did you mean 'abxy'?"
    assert errors.nearest("abcd", ["abxy"]) == "Did you mean 'abxy'? Known: abxy."
    assert errors.suggested(3, ["3a3"]) == ""


def test_limits_are_inclusive() -> None:
    assert errors.readable("abc", "f", most=3) == "abc"
    with pytest.raises(errors.LongError) as told:
        errors.readable("a" * 1234, "f", most=1000)
    assert str(told.value) == "field 'f' has 1,234 characters; 1,000 are allowed. Shorten or split it."
    errors.tokens_within(3, 3, "m")
    errors.tokens_within(3, None, "m")
    with pytest.raises(InputError, match=r"^the text has 4 tokens, m reads at most 3\. Shorten or split it\.$"):
        errors.tokens_within(4, 3, "m")
    errors.methods_within(["a", "b"], 2)
    errors.methods_within(["a", "b"])
    with pytest.raises(InputError, match=r"^3 methods were asked for; 2 are allowed at once\.$"):
        errors.methods_within("abc", 2)
    with pytest.raises(InputError, match=r"^no method was asked for\. Give names, as `mixlens methods` lists them\.$"):
        errors.methods_within([])
    assert [errors.kind_of(value) for value in (None, 3, "x" * 50)] == ["nothing", "int '3'", f"str '{'x' * 40}'"]
    assert [errors.is_integer(value) for value in (1, True, 1.0, "1")] == [True, False, False, False]
    for value, told_of in (
        (3, "holds int '3', not text."),
        (" \n", "is empty."),
        ("\ud800", "holds half a character (a lone surrogate), which is no text."),
    ):
        with pytest.raises(InputError) as found:
            errors.readable(value, "f")
        assert str(found.value) == f"field 'f' {told_of}"


def test_what_is_escaped() -> None:
    assert errors.printable("a\x1b\u200b\U000e0100b") == "a\\u001b\\u200b\\U000e0100b"
    assert errors.printable("\x1b👩\u200d👧\x1b❤\ufe0f.\ufe0f") == "\\u001b👩\u200d👧\\u001b❤\ufe0f.\\ufe0f"
    assert errors.printable_json('"\u202e\U000e0100"') == '"\\u202e\\udb40\\udd00"'
    assert errors.printable("\uffff") == "\\uffff"
