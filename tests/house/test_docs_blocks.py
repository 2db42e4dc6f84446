"""Every fenced block of README.md, CONTRIBUTING.md and docs/ is run as it stands there, page by page, in an empty
folder.

A block that cannot be run in a test says so in the line above it: `<!-- not run: reason -->`. What a page takes for
granted (a corpus of the reader's, a model of the hub) is named above the first block that uses it, `<!-- given:
corpus.jsonl -->`, and made by `GIVEN` below. Where a page trains a model, its numbers are those of one machine: `<!--
numbers vary: reason -->` stands above the block that prints them, and words alone are compared.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import tomllib
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

import mixlens
from mixlens import data

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "measured" / "results"  # their commands take hours and read models beside the project
PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md") if path.parent != RESULTS),
]
MADE = ["docs/use/gallery.md"]  # test_gallery makes the page anew, block by block, and compares it whole
COMMENT = re.compile(r"\s*<!-- (not run|given|numbers vary): (.+) -->\s*")
FENCE = re.compile(r"(\s*)```(.*)")
SETUP = ("pip", "make", "curl", "ray", "python", "cd")  # commands that change or need more than the page's own folder
# How many blocks of each page are not run. A new one is a decision: it is counted here, with its reason in the page.
NOT_RUN = {
    "README.md": 1,
    "docs/extend/add-a-family.md": 1,
    "docs/reference/shell.md": 3,
    "docs/tutorials/reproduce-a-figure.md": 1,
    "docs/use/cluster.md": 3,
    "docs/use/data.md": 1,
    "docs/use/embedded-models.md": 1,
    "docs/use/finetune.md": 5,
    "docs/use/generation.md": 1,
    "docs/use/large-models.md": 2,
    "docs/use/report.md": 2,
    "docs/use/run.md": 1,
}


@dataclass(frozen=True)
class Block:
    """What stands between two fences, with the comments above it."""

    line: int
    kind: str
    code: str
    above: dict[str, str] = field(default_factory=dict)
    follows: bool = False  # nothing but blank lines since the block before

    @property
    def is_output(self) -> bool:
        return self.follows and self.kind in ("", "latex")


def blocks(text: str) -> Iterator[Block]:
    lines, number, end = text.splitlines(), 0, -1
    while number < len(lines):
        opened = FENCE.fullmatch(lines[number])
        if opened is None:
            number += 1
            continue
        first, above = number, {}
        while (told := COMMENT.fullmatch(lines[first - 1])) is not None:
            above[told[1]] = told[2]
            first -= 1
        close = next(i for i in range(number + 1, len(lines)) if lines[i].strip() == "```")
        code = textwrap.dedent("\n".join(lines[number + 1 : close])) + "\n"
        follows = end >= 0 and not any(line.strip() for line in lines[end + 1 : first])
        yield Block(number + 1, opened[2].strip(), code, above, follows)
        number = end = close
        number += 1


# --- what pages take for granted --------------------------------------------------------------------------------------


def reviews(place: Path) -> None:
    kept = [{"text": one.text, "label": one.info["label"]} for one in data.load("sentiment", n=12)]
    place.write_text("".join(json.dumps(row) + "\n" for row in kept))


def sst2(place: Path) -> None:
    """As GLUE writes it: sentence, and label 0 or 1."""
    place.parent.mkdir(parents=True, exist_ok=True)
    kept = [
        {"sentence": one.text, "label": int(one.info["label"] == "positive")} for one in data.load("sentiment", n=12)
    ]
    if place.suffix == ".csv":
        place.write_text("sentence,label\n" + "".join(f'"{row["sentence"]}",{row["label"]}\n' for row in kept))
    else:
        place.write_text("".join(json.dumps(row) + "\n" for row in kept))


def masked(place: Path) -> None:
    """The embedded masked LM under the name of a model of the hub."""
    shutil.copytree(Path(mixlens.__file__).parent / "model/embedded" / "agreement", place)


def writer(place: Path) -> None:
    """A small random model that writes, with a tokenizer of words and a chat template."""
    sys.path.insert(0, str(ROOT / "tests" / "generation"))
    from made import talker

    talker().hf_model.save_pretrained(place)
    talker().tokenizer.save_pretrained(place)


def prompts(place: Path) -> None:
    place.write_text(
        "".join(json.dumps({"text": text}) + "\n" for text in ("the cat likes", "the dog is red. where is"))
    )


def messages(place: Path) -> None:
    place.write_text(json.dumps([{"role": "user", "content": "where is the cat?"}]))


def talks(place: Path) -> None:
    place.write_text(json.dumps({"messages": [{"role": "user", "content": "where is the cat?"}]}) + "\n")


GIVEN: dict[str, Callable[[Path], None]] = {
    "my-writer": writer,
    "prompts.jsonl": prompts,
    "messages.json": messages,
    "talks.jsonl": talks,
    "corpus.jsonl": reviews,
    "reviews.jsonl": reviews,
    "my.csv": sst2,
    "data/sst2/dev.jsonl": sst2,
    "bert-base-uncased": masked,
}


# --- running ----------------------------------------------------------------------------------------------------------


def commands(block: Block) -> list[tuple[str, str]]:
    """The commands of a console block (after `$ `, a backslash at the end goes on) and what is shown under each."""
    found: list[list[str]] = []
    goes_on = False
    for line in block.code.splitlines():
        if goes_on:
            found[-1][0] += line + "\n"
        elif line.startswith("$ "):
            found.append([line[2:] + "\n", ""])
        else:
            assert found, f"line {block.line}: a console block begins with a command"
            found[-1][1] += line + "\n"
        goes_on = line.endswith("\\")
    return [(command, shown) for command, shown in found]


def called(command: str) -> tuple[int, str, str]:
    """Exit code, output and errors: `mixlens` in this process by its own entry, everything else by the shell."""
    if shlex.split(command, comments=True)[0] != "mixlens":
        return in_shell(command)
    quoted = re.compile(r"'[^']*'|\"[^\"]*\"")
    plain = quoted.sub(lambda found: "_" * len(found[0]), command)
    if re.search(r"[<&;]|\d>|\|\|", plain):
        return in_shell(command)
    end = re.search(r"[|>]|$", plain.rstrip())
    assert end is not None
    code, out, err = in_this_process(command[: end.start()])
    rest = command[end.start() :].strip()
    return (code, out, err) if code or not rest else in_shell(f"cat {rest}", out)


def in_shell(command: str, given: str | None = None) -> tuple[int, str, str]:
    done = subprocess.run(["bash", "-c", command], input=given, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def in_this_process(command: str) -> tuple[int, str, str]:
    from mixlens import cli

    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        sys.argv = shlex.split(command, comments=True)
        try:
            cli.main()
        except SystemExit as end:
            code = int(end.code or 0)
    return code, out.getvalue(), err.getvalue()


SHOWN_AS_PRINTED = {
    "README.md": 80
}  # pages whose output stands there line by line, as a terminal of this width shows it
GAP = re.compile(r"gap \S+(?= ?%)")
NUMBER = r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.]*\w)"


def compared(shown: str, made: str, *, numbers_too: bool = True) -> str | None:
    """How what came differs from what is shown: the words are the same, numbers to a unit of the last digit that is
    printed.

    Not compared: where lines break, lengths of bars, times. A gap is rounding: any below 1e-5.
    """

    def parts(text: str) -> tuple[str, list[str]]:
        text = re.sub(r"[\u2580-\u259f]+", " ", text)
        text = re.sub(r"\d[\d.,]* (ms|s|seconds?)\b", "TIME", text)
        text = re.sub(r"gap (\d(?:\.\d+)?e-\d+)", lambda m: "gap small" if float(m[1]) < 1e-5 else m[0], text)
        text = re.sub(r"gap (0\.\d+)(?= ?%)", lambda m: "gap small" if float(m[1]) < 1e-3 else m[0], text)
        return " ".join(re.sub(NUMBER, "#", text).split()), re.findall(NUMBER, text)

    (words, numbers), (other, found) = parts(shown), parts(made)
    if words != other:
        return f"shown:\n{shown}\ncame:\n{made}"
    for a, b in zip(numbers, found, strict=True) if numbers_too else ():
        digits = len(a.partition("e")[0].partition(".")[2])
        unit = 10.0 ** (int(a.partition("e")[2] or 0) - digits)
        if abs(float(a) - float(b)) > 1.01 * unit:
            return f"{a} is shown, {b} came, in:\n{made}"
    return None


def lines_compared(shown: str, made: str) -> str | None:
    """The line that is not what came. A gap is rounding and may be written longer or shorter, so that lines break
    elsewhere."""
    if GAP.findall(shown) != GAP.findall(made):
        return None
    pairs = zip_longest(shown.splitlines(), made.splitlines(), fillvalue="")
    found = [f"shown: {a}\ncame:  {b}" for a, b in pairs if compared(a, b) or bars(a) != bars(b)]
    return "\n".join(found) or None


def bars(line: str) -> int:
    return len(re.findall(r"[\u2580-\u259f]", line))


def run_page(name: str) -> list[str]:
    """Run a page in this process and this folder; what went wrong."""
    wrong: list[str] = []
    known: dict[str, Any] = {
        "__name__": "__main__",
        "__package__": "mixlens.methods",
    }  # pages show files of the package, too
    all_blocks = list(blocks((ROOT / name).read_text()))
    made = ""
    for number, block in enumerate(all_blocks):
        place = f"{name}:{block.line}"
        for asked in filter(None, block.above.get("given", "").split(", ")):
            GIVEN[asked](Path(asked))
        if "not run" in block.above:
            made = ""
            continue
        after = all_blocks[number + 1] if number + 1 < len(all_blocks) else None
        shown_below = after.code if after is not None and after.is_output else None
        exact = "numbers vary" not in block.above
        if block.kind == "python":
            out = io.StringIO()
            try:
                with contextlib.redirect_stdout(out):
                    exec(compile("\n" * block.line + block.code, str(ROOT / name), "exec"), known)
            except BaseException:
                return [*wrong, f"{place}:\n{traceback.format_exc(limit=-3)}"]
            if shown_below is not None and (told := compared(shown_below, out.getvalue(), numbers_too=exact)):
                wrong.append(f"{place}: {told}")
        elif block.kind == "console":
            for command, shown in commands(block):
                if shlex.split(command, comments=True)[0] in SETUP:
                    wrong.append(f"{place}: {command!r} is not run: say so in a comment above the block")
                    continue
                code, made, err = called(command)
                if code:
                    wrong.append(f"{place}: {command}exit code {code}: {err}")
                expected = shown or (shown_below if command == commands(block)[-1][0] else None)
                told = compared(expected, made, numbers_too=exact) if expected else None
                if expected and name in SHOWN_AS_PRINTED:
                    told = told or lines_compared(expected, made)
                wrong += [f"{place}: {command}{told}"] if told else []
        elif block.kind == "toml":
            tomllib.loads(block.code)
        elif not block.is_output:
            wrong.append(f"{place}: a block of kind {block.kind!r} is not run: say so in a comment above it")
    return wrong


PATIENCE = 400  # seconds for one page; the slowest takes about 15 on a quiet machine


def in_child(work: Callable[[], list[str]], folder: Path) -> list[str]:
    """What `work` says in a process of its own in that folder: a page registers methods and changes the folder it is
    in."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        try:
            os.chdir(folder)
            told = work()
        except BaseException:
            told = [traceback.format_exc()]
        with os.fdopen(write, "w") as file:
            json.dump(told, file)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        if not select.select([file], [], [], PATIENCE)[0]:
            os.kill(
                child, signal.SIGKILL
            )  # libraries with threads of their own may wait for ever in a process that is forked
        told = json.loads(file.read() or f'["the process ended without a word, or ran for {PATIENCE} s"]')
    os.waitpid(child, 0)
    return list(told)


@pytest.fixture(scope="module")
def imported() -> None:
    """What pages import is imported once, before processes are made of this one."""
    for package in ("matplotlib.figure", "pandas", "pyarrow.parquet", "igraph", "scipy"):
        pytest.importorskip(package)
    for package in ("polars", "duckdb", "datasets", "accelerate", "bitsandbytes"):
        if find_spec(package) is None:
            pytest.skip("needs the extras that the pages use: `make test` installs them, with the extra `dev`")
    model = mixlens.load("agreement")
    mixlens.mix(model.trace("The keys [MASK] rusty."), "alti").rollout()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python 3.12 warns of forks beside threads
@pytest.mark.parametrize("name", [name for name in PAGES if "```" in (ROOT / name).read_text() and name not in MADE])
@pytest.mark.usefixtures("imported")
def test_every_block_of_a_page_does_what_the_page_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")  # as in an activated environment
    monkeypatch.setenv("COLUMNS", str(SHOWN_AS_PRINTED.get(name, 88)))
    monkeypatch.setenv("NO_COLOR", "1")
    wrong = in_child(lambda: run_page(name), tmp_path)
    assert not wrong, "\n\n".join(wrong)


def test_blocks_that_are_not_run_are_counted_and_have_a_reason() -> None:
    found = Counter(
        name
        for name in PAGES
        for block in blocks((ROOT / name).read_text())
        if len(block.above.get("not run", "").split()) > 0
    )
    assert dict(found) == NOT_RUN
    assert set(NOT_RUN) < set(PAGES)
    for name in PAGES:
        text = (ROOT / name).read_text()
        stray = [line for line in text.splitlines() if "<!--" in line and COMMENT.fullmatch(line) is None]
        assert not stray, name
        assert len(COMMENT.findall(text)) == sum(len(block.above) for block in blocks(text)), (
            f"{name}: a comment above no block"
        )


@pytest.mark.parametrize("name", list(NOT_RUN))
def test_blocks_that_are_not_run_are_right_as_far_as_can_be_told(name: str, tmp_path: Path) -> None:
    """Python compiles, shell scripts parse, and every option of a mixlens command is one that the command has."""
    import typer

    from mixlens import cli

    group: Any = typer.main.get_command(cli.app)
    for block in blocks((ROOT / name).read_text()):
        if "not run" not in block.above:
            continue
        if block.kind == "python":
            compile(block.code, name, "exec")
        shell = "".join(command for command, _ in commands(block)) if block.kind == "console" else block.code
        if block.kind in ("console", "bash"):
            subprocess.run(["bash", "-n"], input=shell, text=True, check=True)
            for line in shell.replace("\\\n", " ").splitlines():
                words = line.split("#")[0].split()
                if words[:1] == ["mixlens"]:
                    options = {one for option in group.commands.get(words[1], group).params for one in option.opts}
                    assert {word for word in words if word.startswith("--")} <= options, f"{name}: {line}"


# --- the test itself --------------------------------------------------------------------------------------------------


def page(text: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "page.md").write_text(textwrap.dedent(text))
        monkeypatch.setattr(sys.modules[__name__], "ROOT", Path(place))
        return in_child(lambda: run_page("page.md"), Path(place))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("```python\nassert 1 == 2\n```", "AssertionError"),
        ("```python\nprint(0.5)\n```\n\n```\n0.52\n```", "0.52 is shown, 0.5 came"),
        ("```console\n$ echo a\nb\n```", "came:\na"),
        ("```console\n$ echo 'gap 0.5 %'\ngap 0.00002 %\n```", "came:\ngap 0.5"),
        ("<!-- numbers vary: it is trained -->\n```python\nprint('a 0.5')\n```\n\n```\nb 0.52\n```", "came:\na"),
        ("```console\n$ false\n```", "exit code 1"),
        ("```console\n$ make demo\n```", "is not run: say so"),
        ("```console\n$ mixlens nothing\n```", "exit code 2"),
        ("```console\n$ mixlens nothing | cat\n```", "exit code 2"),
        ("```console\n$ mixlens data | wc -l\n0\n```", "0 is shown, "),
        ("```console\n$ mixlens data > a.txt\n$ cat a.txt | wc -l\n0\n```", "0 is shown, "),
        ("```\nwhat is this\n```", "is not run: say so"),
        ("```python\nx = 1\n```\n\nText.\n\n```\n1\n```", "is not run: say so"),
    ],
)
def test_a_page_that_is_wrong_is_seen(text: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (wrong,) = page(text, monkeypatch)
    assert told in wrong


def test_lines_that_break_elsewhere_and_bars_of_another_length_are_seen() -> None:
    assert lines_compared("a b\nc 0.5 ██\n", "a b\nc 0.5 ██\n") is None
    assert lines_compared("a b\nc\n", "a\nb c\n") == "shown: a b\ncame:  a\nshown: c\ncame:  b c"
    assert lines_compared("c 0.5 ██\n", "c 0.5 █\n") is not None
    assert lines_compared("a; gap 0.1 % b\n", "a; gap 0.00001 %\nb\n") is None  # rounding of another machine


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_page_that_is_right_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """\
    1. In a list:

       ```python
       print("it took 0.3 s, gap 2e-07, gap 0.000003 %", 1.234)
       ```

    ```
    it took 9.9 s,
    gap 5e-07, gap 0.00002 % 1.23
    ```

    <!-- numbers vary: it is trained -->
    ```python
    print("it took 0.3 s, accuracy", 0.97)
    ```

    ```
    it took 9.9 s, accuracy 0.99
    ```

    <!-- not run: needs the moon -->
    ```bash
    fly
    ```

    <!-- given: corpus.jsonl -->
    ```console
    $ head -n 1 corpus.jsonl | cut -c 1-7   # a comment
    {"text"
    ```
    """
    assert page(text, monkeypatch) == []
