"""Files and folders of runs, results as text, and the checks of what is read: whole messages, whole values, both
sides."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from mixlens.base import errors, files

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
        files.move(one, two)
    assert (tried, slept) == ([(one, two)] * (refusals + 1), waits)
    with monkeypatch.context() as patched:
        patched.setattr(files.os, "replace", replace)
        if refusals:
            tried.clear()
            with pytest.raises(PermissionError):
                files.move(one, two)
            assert len(tried) == 1


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
    with pytest.raises(errors.ResultError) as found, files.in_folder(Path("/run")):
        raise error
    assert str(found.value).startswith(told)


def begun(folder: Path, **more: Any) -> None:
    folder.mkdir(exist_ok=True)
    manifest = {
        "schema": 1,
        "identity_schema": 2,
        "identity": {"kind": "corpus", "n": 1, "options": {"a": 1, "b": None}},
    }
    (folder / "manifest.json").write_text(json.dumps({**manifest, **more}))


def refusal(folder: Path, identity: dict[str, Any]) -> str:
    with pytest.raises(errors.InputError) as told:
        files.RunFolder(folder).check(identity)
    return str(told.value)


def test_a_folder_of_this_run_of_another_and_of_none(tmp_path: Path) -> None:
    same = {"kind": "corpus", "n": 1, "options": {"a": 1, "b": None}}
    folder = tmp_path / "run"
    files.RunFolder(folder).check(same)  # not there yet
    begun(folder)
    files.RunFolder(folder).check(same)
    files.RunFolder(folder).check({**same, "options": {"b": None, "a": 1}})
    assert refusal(folder, {**same, "n": 2, "options": {"a": (1, 2), "c": "x"}}) == (
        f"{str(folder)!r} belongs to another run (n: 1 there, 2 here; a: 1 there, [1, 2] here; c: null there, "
        '"x" here). '
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
        assert files.RunFolder(folder).manifest == {}


def test_a_folder_with_files_of_somebody_else(tmp_path: Path) -> None:
    for name in (".lock", ".tmp-0123456789ab-x"):
        (tmp_path / name).touch()
    files.RunFolder(tmp_path).check({})
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
    files.RunFolder(good).check({})


def test_links_and_files_in_the_place_of_subfolders(tmp_path: Path) -> None:
    folder = files.RunFolder(tmp_path)
    good, file, link = tmp_path / "good", tmp_path / "file", tmp_path / "link"
    good.mkdir()
    file.touch()
    link.symlink_to(good)
    folder.refuse_links(good, tmp_path / "none")
    for place in (file, link):
        with pytest.raises(errors.InputError) as told:
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
    files.RunFolder(tmp_path).clear(sub)
    assert sorted(tmp_path.rglob("*")) == sorted([*kept, sub, tmp_path / ".tmp-aaaaaaaaaaaa-folder"])


def test_a_folder_is_held_by_one(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "run"
    first, second = files.RunFolder(folder), files.RunFolder(folder)
    first.still_held()
    with first.held():
        first.still_held()
        with pytest.raises(errors.InputError) as told, second.held():
            pass
        assert str(told.value) == f"another run is writing to {str(folder)!r}. Wait for it, or give another folder."
        (folder / ".lock").unlink()
        with pytest.raises(errors.ResultError) as gone:
            first.still_held()
        assert str(gone.value).startswith(f"{str(folder)!r} was moved, deleted or made anew while the run wrote to it.")
        (folder / ".lock").touch()
        with pytest.raises(errors.ResultError):
            first.still_held()
    first.still_held()
    with second.held({}):
        pass
    (folder / "other").touch()
    with pytest.raises(errors.InputError, match="is not empty"), second.held({}):
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
        with pytest.raises(errors.InputError) as told, files.RunFolder(folder).held():
            pass
        assert str(told.value).startswith(
            f"{str(folder / '.lock')!r} is a link or no file. It was not made by a run: take it"
        )


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
