"""The one-file report: every number in it is the array's, it is small, it is safe, and nothing else gets
overwritten."""

from __future__ import annotations

import base64
import hashlib
import html as markup
import json
import re
import subprocess
import sys
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import mixlens
from mixlens import Attribution, Map
from mixlens.base import errors, optional
from mixlens.cli.app import app, main
from mixlens.show import packing as coding
from mixlens.show import page_file, page_template, results_page
from mixlens.show.report import gather

SENTENCE = "The keys to the cabinet [MASK] rusty."
HOSTILE = "<script>alert(1)</script> </script><!-- &amp; שלום \u200b\u202e 😀 \"'` [MASK]"


@cache
def agreement() -> Any:
    return mixlens.load("agreement")


def held(path: Path | str) -> dict[str, Any]:
    """What the page's own script would read."""
    text = path if isinstance(path, str) else path.read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert found is not None
    return json.loads(found[1])


def unpacked(block: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows [row column], a bound on each row's error, and the sums of what is not held. Written out by the description
    of the format in docs/use/report.md, byte by byte."""
    raw = zlib.decompress(base64.b64decode(block["data"]))
    rows, columns = block["rows"], block["columns"]
    place = 0

    def numbers(kind: str, count: int) -> list[float]:
        nonlocal place
        size = np.dtype(kind).itemsize
        planes = [raw[place + p * count : place + (p + 1) * count] for p in range(size)]
        place += count * size
        return np.frombuffer(bytes(planes[p][i] for i in range(count) for p in range(size)), kind).tolist()

    if block["coding"] == "float32":
        whole = np.array(numbers("<f4", rows * columns)).reshape(rows, columns)
        return whole, np.abs(whole).max(1) * 2.0**-24 * 1.01, np.zeros(rows)
    scale, rest = (np.array(numbers("<f4", rows)) for _ in range(2))
    keep = block.get("keep", columns)
    steps = numbers("<u2", rows * keep) if block["coding"] == "top" else ([0] + [1] * (columns - 1)) * rows
    values = numbers("<f2", rows * keep)
    whole = np.full((rows, columns), np.nan)
    for row in range(rows):
        keys = np.cumsum(steps[row * keep : (row + 1) * keep])
        whole[row, keys] = np.array(values[row * keep : (row + 1) * keep]) * scale[row]
    return whole, scale * 2.0**-11, rest


def noise(depth: int, n: int, *, seed: int = 0, sharp: float = 1.0) -> torch.Tensor:
    made = torch.randn(depth, n, n, generator=torch.Generator().manual_seed(seed))
    return (made * sharp).softmax(-1)


def some_map(depth: int, n: int, *, method: str = "alti", seed: int = 0, sharp: float = 1.0, **info: Any) -> Map:
    told = {"model": "m", "text": "x " * n, "convention": "alti", "gap": 1e-7, "tolerance": 1e-4, **info}
    return Map(noise(depth, n, seed=seed, sharp=sharp), tuple(f"t{i}" for i in range(n)), method, told)


# --- numbers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("kind", ["float32", "float16", "top"])
def test_every_number_comes_back_within_what_is_said(kind: str, signed: bool) -> None:
    scores = np.random.default_rng(3).standard_normal((20, 37)) ** 3
    scores = scores if signed else np.abs(scores)
    scores[4] = 0
    scores[5] *= 1e-9
    block = coding.encode(scores, coding.Precision(kind, 11))
    whole, bound, rest = unpacked(block)
    missing = np.isnan(whole)
    assert (np.abs(whole - scores)[~missing] <= np.broadcast_to(bound[:, None], whole.shape)[~missing]).all()
    np.testing.assert_allclose(coding.decode(block), np.nan_to_num(whole), rtol=1e-6)
    if kind != "top":
        assert not missing.any()
        return
    assert ((~missing).sum(1) == 11).all()
    for row in range(20):  # the largest are the ones that are held, and the rest is their sum
        least = np.abs(scores[row][~missing[row]]).min()
        assert np.abs(scores[row][missing[row]]).max() <= least
    np.testing.assert_allclose(np.nansum(whole, 1) + rest, scores.sum(1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("wrong", [float("nan"), -float("inf"), 1e300])
def test_a_number_that_cannot_be_held_is_refused(wrong: float) -> None:
    with pytest.raises(errors.InputError, match="a score is not finite"):
        coding.encode(np.array([[0.5, wrong]]), coding.HALF)


def test_the_file_holds_what_mix_and_rollout_give(tmp_path: Path) -> None:
    place = mixlens.report(agreement(), tmp_path / "r.html", texts=SENTENCE, methods=["alti", "attention", "attcat"])
    entry = held(place)["entries"][0]
    trace = agreement().trace(SENTENCE)
    assert entry["tokens"] == list(trace.tokens)
    assert entry["precision"]["kind"] == "float32"
    for method, name in zip(entry["methods"], ("alti", "attention"), strict=False):
        made = mixlens.mix(trace, name)
        for sheet, scores in (("layer", made), ("rollout", made.rollout())):
            whole, bound, _ = unpacked(method["sheets"][sheet])
            wanted = scores.to_numpy().reshape(-1, len(trace))
            assert (np.abs(whole - wanted) <= bound[:, None]).all()
    scores = mixlens.attribute(trace, "attcat")
    np.testing.assert_allclose(unpacked(entry["methods"][2]["scores"])[0][0], scores.to_numpy(), rtol=1e-6)
    assert entry["methods"][2]["scores"]["signed"]
    assert entry["query"] == trace.query
    assert entry["prediction"] == [[word, pytest.approx(share)] for word, share in trace.prediction()]


def test_precision_is_given_up_step_by_step() -> None:
    told = []
    for n, room in ((16, 400_000), (128, 400_000), (128, 150_000), (300, 400_000)):
        precision, blocks = coding.fit([noise(6, n).numpy().reshape(-1, n)], room)
        used = sum(len(block["data"]) for block in blocks)
        assert 0.6 * room < used <= room or precision.kind != "top", "what is kept fills the room"
        told.append(precision.description().partition(" largest")[2] or precision.description())
    rest = " numbers of each row, in 16 bits (3 digits), and the sum of the rest"
    assert told == ["every number, in 32 bits (7 digits)", "every number, in 16 bits (3 digits)", rest, rest]
    with pytest.raises(errors.InputError, match=r"1 maps of 16 tokens do not fit into 0\.0 MB"):
        coding.fit([noise(1, 16).numpy()[0]], 10)


@pytest.mark.parametrize("sharp", [0.3, 4.0])
def test_512_tokens_and_12_layers_fit_into_two_megabytes(tmp_path: Path, sharp: float) -> None:
    names = ("alti", "globenc", "value_zeroing")
    results: list[Any] = [some_map(12, 512, method=name, seed=i, sharp=sharp) for i, name in enumerate(names)]
    results.append(Attribution(torch.randn(512), results[0].tokens, "attcat", dict(results[0].info)))
    place = mixlens.report(results, tmp_path / "large.html")
    assert place.stat().st_size <= 2_000_000
    entry = held(place)["entries"][0]
    assert entry["precision"]["kind"] in ("float16", "top")
    assert str(entry["precision"]["keep"] or "every number") in entry["holds"]
    whole, bound, rest = unpacked(entry["methods"][1]["sheets"]["layer"])
    wanted = results[1].to_numpy().reshape(-1, 512)
    missing = np.isnan(whole)
    assert (np.abs(whole - wanted)[~missing] <= np.broadcast_to(bound[:, None], whole.shape)[~missing]).all()
    # Rows sum to 1 but for the rounding of the numbers that are kept: half a step each, and most of them cancel.
    np.testing.assert_allclose(np.nansum(whole, 1) + rest, 1, atol=0.02)


def test_a_long_text_is_counted_too(tmp_path: Path) -> None:
    tokens = tuple(f"{'שלום' * 12}{i}" for i in range(1500))
    result = Map(noise(1, 1500), tokens, "alti", {"model": "m", "text": "שלום " * 20_000, "convention": "alti"})
    assert mixlens.report(result, tmp_path / "r.html", megabytes=1).stat().st_size <= 1_000_000


def test_more_room_holds_more(tmp_path: Path) -> None:
    result = some_map(6, 200)
    small, large = (mixlens.report(result, tmp_path / f"{mb}.html", megabytes=mb) for mb in (0.25, 4))
    assert small.stat().st_size <= 250_000
    assert held(small)["entries"][0]["precision"]["kind"] == "top"
    assert held(large)["entries"][0]["precision"]["kind"] == "float32"


# --- what is on the page ----------------------------------------------------------------------------------------------


def test_several_texts_and_models_each_have_an_entry(tmp_path: Path) -> None:
    made = [
        *gather(agreement(), SENTENCE, "alti"),
        *gather(mixlens.load("sentiment"), "a good film", ["alti", "attcat"]),
    ]
    entries = held(mixlens.report(made, tmp_path / "r.html"))["entries"]
    assert [one["label"] for one in entries] == [f"agreement: {SENTENCE}", "sentiment: a good film"]
    assert [len(one["methods"]) for one in entries] == [1, 2]
    texts = held(
        mixlens.report(agreement(), tmp_path / "t.html", texts=[SENTENCE, "The key [MASK] old."], methods="alti")
    )
    assert [one["label"] for one in texts["entries"]] == [SENTENCE, "The key [MASK] old."]


def test_a_map_from_the_input_has_no_layers_to_follow() -> None:
    method = held(results_page.page(gather(agreement(), "The keys [MASK] rusty.", ["hta"])))["entries"][0]["methods"][0]
    assert list(method["sheets"]) == ["rollout"]
    assert "from the input" in method["noFlow"]
    rolled = mixlens.mix(agreement().trace(SENTENCE), "alti").rollout()
    assert list(held(results_page.page([rolled]))["entries"][0]["methods"][0]["sheets"]) == ["rollout"]


def test_a_map_that_cannot_be_rolled_out_is_shown_by_layers() -> None:
    made = some_map(2, 4)
    made.scores[1, 2] = 0
    assert list(held(results_page.page([made]))["entries"][0]["methods"][0]["sheets"]) == ["layer"]


def test_hostile_text_stays_text() -> None:
    tokens = ("<script>alert(1)</script>", "</script>", "שלום", "\u200b", "😀", '"', "<!--")
    info = {"model": "<img src=x onerror=alert(1)>", "text": HOSTILE, "prediction": [("<b>", 0.5)], "gap": 0.0}
    text = results_page.page([Map(noise(2, 7), tokens, "<i>m</i>", info)], title="<u>t</u> & {data}")
    for piece in ("<script>alert", "<img src=x", "<i>m", "<u>t", "<b>"):
        assert piece not in text
    assert text.count("</script>") == 2
    assert "&lt;u&gt;t&lt;/u&gt; &amp; {data}" in text
    entry = held(text)["entries"][0]
    assert entry["text"] == HOSTILE.replace("\u200b", "\\u200b").replace("\u202e", "\\u202e")
    assert entry["tokens"][0] == "<script>alert(1)</script>"
    assert entry["tokens"][3] == "\\u200b"


def test_the_page_fetches_nothing_and_runs_only_its_own_script() -> None:
    text = results_page.page([some_map(2, 5)])
    outside = [found for found in re.findall(r"https?://[^\"'\s)]+", text) if found != "http://www.w3.org/2000/svg"]
    assert outside == []
    assert not re.search(r"\b(src|href)=\"(?!data:,|#)", text)
    policy = markup.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1])  # type: ignore[index]
    assert "default-src 'none'" in policy
    for kind, pattern in (("style", r"<style>(.*?)</style>"), ("script", r"<script>(.*?)</script>")):
        own = re.findall(pattern, text, re.S)[-1]
        wanted = base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{wanted}'" in policy


def test_the_script_leaves_no_name_behind_and_writes_no_markup() -> None:
    scripts = sorted(page_template.ASSETS.glob("*.js"))
    assert scripts
    for place in scripts:
        source = place.read_text(encoding="utf-8")
        for way in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "window.",
        ):
            assert way not in source, (place.name, way)
        assert source.startswith('"use strict";')


# --- the file ---------------------------------------------------------------------------------------------------------


def test_only_a_report_is_overwritten(tmp_path: Path) -> None:
    place = tmp_path / "r.html"
    mixlens.report(some_map(1, 3), place)
    mixlens.report(some_map(1, 4), place)
    assert len(held(place)["entries"][0]["tokens"]) == 4
    place.write_text("<html>my thesis</html>")
    with pytest.raises(errors.ResultError, match="not a mixlens report"):
        mixlens.report(some_map(1, 3), place)
    assert place.read_text() == "<html>my thesis</html>"
    mixlens.report(some_map(1, 3), place, force=True)
    assert len(held(place)["entries"][0]["tokens"]) == 3
    assert [one.name for one in tmp_path.iterdir()] == ["r.html"]


def test_nothing_is_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = mixlens.report(some_map(1, 3), tmp_path / "r.html")
    before = place.read_bytes()

    def broken(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", broken)
    with pytest.raises(errors.ResultError, match="No space left"):
        mixlens.report(some_map(1, 5), place)
    assert place.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["r.html"]


@pytest.mark.parametrize(
    ("what", "options", "message"),
    [
        ([], {}, "no result to report"),
        ("text", {}, "not str"),
        ([3], {}, "not int"),
        (lambda: some_map(1, 3), {"texts": "x"}, "go with a model"),
        (lambda: some_map(1, 3), {"megabytes": 0}, "0.2 to 1000"),
        (agreement, {}, "needs texts="),
        (agreement, {"texts": ""}, "the text is empty"),
        (agreement, {"texts": SENTENCE, "methods": "alit"}, "Did you mean 'alti'"),
        (agreement, {"texts": SENTENCE, "methods": []}, "no method was asked for"),
        (agreement, {"texts": SENTENCE, "methods": "alti", "target": "were"}, "maps explain a position"),
        (agreement, {"texts": SENTENCE, "methods": "alti", "query": "lock"}, "no token 'lock'"),
        (agreement, {"texts": "[MASK] keys [MASK] rusty.", "methods": "attcat"}, "2 mask tokens"),
    ],
)
def test_bad_input_is_refused_and_nothing_written(
    tmp_path: Path, what: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(errors.InputError, match=re.escape(message)):
        mixlens.report(what() if callable(what) else what, tmp_path / "r.html", **options)
    assert list(tmp_path.iterdir()) == []


def test_places_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.html").mkdir()
    for name, message in (("r.txt", "an .html file"), ("no/r.html", "no folder"), ("folder.html", "is a folder")):
        with pytest.raises(errors.ResultError, match=message):
            mixlens.report(some_map(1, 3), tmp_path / name)
    bad = some_map(1, 3)
    bad.scores[0, 1, 1] = torch.nan
    with pytest.raises(errors.InputError, match="not finite"):
        mixlens.report(bad, tmp_path / "r.html")


def test_two_masks_are_shown_from_the_first() -> None:
    entry = held(results_page.page(gather(agreement(), "[MASK] keys [MASK] rusty.", "alti")))["entries"][0]
    assert entry["query"] == 1
    entry = held(results_page.page(gather(agreement(), "[MASK] keys [MASK] rusty.", ["alti", "attcat"], query=3)))[
        "entries"
    ][0]
    assert entry["query"] == 3
    logits = agreement().logits(agreement().trace("[MASK] keys [MASK] rusty."))[3]
    assert entry["prediction"][0][1] == pytest.approx(float(logits.softmax(-1).max()), rel=1e-4)


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_writes_a_report(tmp_path: Path) -> None:
    place = tmp_path / "r.html"
    arguments = [
        "report",
        SENTENCE,
        "The key [MASK] old.",
        "--methods",
        "alti,attcat",
        "--target",
        "is",
        "-o",
        str(place),
    ]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert done.output.startswith(str(place))
    entries = held(place)["entries"]
    assert [one["label"] for one in entries] == [SENTENCE, "The key [MASK] old."]
    assert dict(entries[0]["methods"][1]["about"])["Target"] == "is (logit)"


def test_a_saved_result_becomes_a_report(tmp_path: Path) -> None:
    made = mixlens.mix(agreement().trace(SENTENCE), "globenc")
    made.save(tmp_path / "m.safetensors")
    agreement().explain(SENTENCE, method="attcat").save(tmp_path / "a.safetensors")
    arguments = ["report", "--from", str(tmp_path / "m.safetensors"), "--from", str(tmp_path / "a.safetensors")]
    done = CliRunner().invoke(app, [*arguments, "-o", str(tmp_path / "r.html")])
    assert done.exit_code == 0, done.output
    (entry,) = held(tmp_path / "r.html")["entries"]
    assert [one["name"] for one in entry["methods"]] == ["globenc", "attcat"]
    whole, bound, _ = unpacked(entry["methods"][0]["sheets"]["layer"])
    assert (np.abs(whole - made.to_numpy().reshape(whole.shape)) <= bound[:, None]).all()
    assert entry["prediction"][0][0] == agreement().trace(SENTENCE).prediction()[0][0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give at least one text"),
        ((SENTENCE, "--methods", "alit"), "Did you mean 'alti'"),
        ((SENTENCE, "--from", "x.safetensors"), "leave texts"),
        (("--from", "no.safetensors"), "no file"),
        ((SENTENCE, SENTENCE, "--pair", "b"), "goes with one text"),
        ((SENTENCE, "-o", "r.pdf"), "an .html file"),
    ],
)
def test_errors_are_one_line(
    arguments: tuple[str, ...],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["mixlens", "report", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_commands_have_help_with_an_example() -> None:
    for command in ("report", "serve"):
        told = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "120"}).output
        assert "Usage:" in told
        assert "Example:" in told


def test_without_the_extra_the_server_says_how_to_get_it() -> None:
    blocked = "import sys; sys.modules['uvicorn'] = None; sys.argv = ['mixlens', 'serve']; from mixlens.cli import main; main()"  # noqa: E501
    done = subprocess.run([sys.executable, "-c", blocked], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == f"mixlens: the local page needs uvicorn: {optional.installing('serve')}.\n"


def test_a_wheel_holds_the_page(tmp_path: Path) -> None:
    """What setuptools is told to pack is what the page is made of."""
    import tomllib

    told = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert {"mixlens.show", "mixlens.serve"} <= set(told["packages"])
    packed = {
        one for pattern in told["package-data"]["mixlens"] for one in (page_template.ASSETS.parents[1]).glob(pattern)
    }
    assert set(page_template.ASSETS.iterdir()) <= packed


# --- a notebook -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["map", "attribution"])
def test_a_notebook_output_stands_alone(kind: str) -> None:
    made = some_map(3, 6)
    result: Any = made if kind == "map" else made.rollout().readout(2)
    text = result._repr_html_()
    assert text == result._repr_html_()
    assert not re.search(
        r"\sid=", re.sub(r"<script.*?</script>", "", text, flags=re.S)
    )  # side by side, any number of times
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    data = json.loads(markup.unescape(re.search(r'data-result="([^"]*)"', text)[1]))  # type: ignore[index]
    whole, bound, _ = unpacked(data["block"])
    assert (np.abs(whole - result.to_numpy().reshape(whole.shape)) <= bound[:, None]).all()
    assert "t5" in re.sub(r"<script.*?</script>", "", text, flags=re.S)  # readable without scripts, too


def test_a_map_that_cannot_be_shown_says_why() -> None:
    made = some_map(1, 3)
    made.scores[0, 0, 0] = torch.inf
    assert "not finite" in made._repr_html_()


def test_a_long_map_does_not_swell_a_notebook() -> None:
    text = some_map(12, 400)._repr_html_()
    assert len(text) < 1_100_000


def test_scripts_are_well_formed() -> None:
    try:
        version = subprocess.run(["node", "--version"], capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("needs Node.js: the page's script is run by it")
    assert version.returncode == 0
    for place in page_template.ASSETS.glob("*.js"):
        done = subprocess.run(["node", "--check", str(place)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


# --- what must be known before the numbers ----------------------------------------------------------------------------


# --- files of pages ---------------------------------------------------------------------------------------------------


def test_where_a_page_may_be_written(tmp_path: Path) -> None:
    (tmp_path / "folder.html").mkdir()
    mine, empty, report, far = (tmp_path / f"{name}.html" for name in ("mine", "empty", "report", "far"))
    mine.write_text("mine")
    empty.write_text("")
    report.write_text("x" * (2000 - len(page_template.MARK)) + page_template.MARK)
    far.write_text("x" * (2001 - len(page_template.MARK)) + page_template.MARK)
    for place in (empty, report, tmp_path / "new.HTM", tmp_path / "new.html"):
        page_file.may_write(place, force=False)
    page_file.may_write(mine, force=True)
    kept = "exists and is not a mixlens report"
    for place, told in (
        (mine, kept),
        (far, kept),
        (tmp_path / "a.txt", "a report is an .html file, not 'a.txt'"),
        (tmp_path / "no" / "a.html", "no folder .* to write the report in"),
        (tmp_path / "folder.html", "is a folder. Give the name of a file"),
    ):
        with pytest.raises(errors.ResultError, match=told):
            page_file.may_write(place, force=False)
    with pytest.raises(errors.ResultError, match=r"could not be written to .*: No such file"):
        page_file.write("x", tmp_path / "no" / "a.html")


@pytest.mark.parametrize("megabytes", [0.19, 1000.1, float("nan")])
def test_rooms_that_no_page_has(megabytes: float) -> None:
    with pytest.raises(errors.InputError, match=f"0.2 to 1000, not {megabytes}"):
        page_file.room_of(megabytes)
    assert [page_file.room_of(size) for size in (0.2, 1000, 2.5)] == [200_000, 1_000_000_000, 2_500_000]


def test_a_position_of_a_report_may_be_a_number_or_a_token() -> None:
    heard: list[tuple[str, float]] = []
    names = ["attention", "grad_x_input", "norm"]
    for query, place in ((None, 6), ("keys", 2), (2, 2), ("2", 2), ("-2", 8), (-2, 8)):
        found = gather(agreement(), SENTENCE, names, query=query, note=lambda *told: heard.append(told))
        assert [result.method for result in found] == names
        assert [found[number].info["query"] for number in (0, 2)] == [place, place]
        assert found[0].info["query_token"] == agreement().trace(SENTENCE).tokens[place]
    with pytest.raises(errors.InputError, match="no token 'zzz'"):
        gather(agreement(), SENTENCE, ["attention"], query="zzz")
    shares = [share for _, share in heard[: len(heard) // 6]]
    assert shares == sorted(shares)
    assert (heard[0], heard[-1]) == (("running the model", 0.0), ("done", 1.0))
    assert ("attention, norm, layer 1 of 4", 0.0) in heard
    assert ("attention, norm, layer 4 of 4", 0.375) in heard  # three quarters of the first of two steps
    assert ("grad_x_input", 0.5) in heard
