"""Writes docs/use/gallery.md and its figures: every kind of picture, with the very commands and lines that make it.

    python -m recipes.pages.gallery

What stands in the page is what is run here. The embedded models are used, so nothing is downloaded, and a second run
gives the same bytes.
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import mixlens
from mixlens.cli import app
from mixlens.cli.options import LoadOptions

DOCS = Path("docs/use")
SENTENCE = "'The keys to the cabinet [MASK] rusty.'"
COLUMNS = "88"


@dataclass(frozen=True)
class Entry:
    """One picture: what it shows, and the command or the Python that makes it. `figure`: the file it writes."""

    title: str
    told: str
    command: str = ""
    code: str = ""
    figure: str = ""
    alt: str = ""


START = """import mixlens

model = mixlens.load("agreement")
trace = model.trace("The keys to the cabinet [MASK] rusty.")"""

FIGURES = (
    Entry(
        "A heat strip",
        "What the prediction at `[MASK]` is made of. One hue: a share has no sign.",
        command=f"mixlens plot {SENTENCE} --method alti -o strip.svg",
        figure="strip.svg",
        alt="Heat strip of ALTI: rusty is darkest, then keys",
    ),
    Entry(
        "A signed heat strip",
        "Why *were* and not *was*? Blue counts for *were*, orange with a dashed line against it.",
        command=f"mixlens plot {SENTENCE} --method attcat --target were --foil was -o signed.svg",
        figure="signed.svg",
        alt="Heat strip of AttCAT: keys is blue, the mask and rusty are orange",
    ),
    Entry(
        "Bars",
        "The same numbers, from most for to most against. `--top 5` keeps the largest.",
        command=f"mixlens plot {SENTENCE} --method attcat --target were --foil was --kind bars -o bars.svg",
        figure="bars.svg",
        alt="Bars of AttCAT, one for each token",
    ),
    Entry(
        "A longer text",
        'Strips break between words, at the width of a column (84 mm) or of a page (`width="double"`, 174 mm).',
        code="""sentiment = mixlens.load("sentiment")
review = (
    "Although the music was dull and nobody liked the story, the ending was truly wonderful, "
    "and the critics never hated this film."
)
sentiment.explain(review, method="deeplift", target="positive", keep_special=False).plot().save("long.svg")""",
        figure="long.svg",
        alt="Heat strip of a review over several lines",
    ),
    Entry(
        "What flows where",
        "Through all layers into `[MASK]`, as the page of `mixlens report --preset flow` has it. A band is as wide as "
        "the share "
        "of the answer that passes. What came from the strongest word is violet; `--top 3` follows three.",
        command=f"mixlens plot {SENTENCE} --kind flow -o flow.svg",
        figure="flow.svg",
        alt="Bands from ten words through four layers to the answer are; rusty gives 42 percent, keys 15",
    ),
    Entry(
        "One layer's map, word by word",
        "Rows took, columns gave. The answer's row is framed; special tokens are hatched and outside the scale. Words "
        "that have "
        "no room side by side become sentences. `--pieces` draws the pieces of words, with a bracket for each word.",
        command=f"mixlens plot {SENTENCE} --kind matrix --rollout -o words.svg",
        figure="words.svg",
        alt="Matrix of ALTI from the input to layer 4, with words as rows and columns",
    ),
    Entry(
        "One layer's map",
        "Rows are positions, columns the tokens they took from. `--numbers` writes scores into the cells, shares as "
        "percents.",
        command=f"mixlens plot {SENTENCE} --method value_zeroing --kind matrix --layer 3 --numbers -o matrix.svg",
        figure="matrix.svg",
        alt="Matrix of Value Zeroing in layer 3",
    ),
    Entry(
        "Layers by tokens",
        "What `[MASK]` is made of after each layer, rolled out from the input (as Figure 1 of GlobEnc).",
        command=f"mixlens plot {SENTENCE} --method globenc --kind layers --rollout -o layers.svg",
        figure="layers.svg",
        alt="GlobEnc rolled out: four layers by ten tokens",
    ),
    Entry(
        "Every layer's map",
        "Small maps on one colour scale (as the appendices of ALTI and Value Zeroing).",
        command=f"mixlens plot {SENTENCE} --method alti --kind grid -o grid.svg",
        figure="grid.svg",
        alt="Maps of ALTI for layers 1 to 4",
    ),
    Entry(
        "Why this class, by several methods",
        "Signed methods as rows; blue counts towards *positive*, orange against.",
        command="mixlens plot 'The plot was dull, but the acting was wonderful.' -m sentiment "
        "--method deeplift,integrated_gradients,attcat,blank_out --target positive --no-special --words -o classes.svg",
        figure="classes.svg",
        alt="Four methods as rows: wonderful and but count towards positive, dull against",
    ),
    Entry(
        "Several methods",
        "Why *were* and not *was*? Methods as rows; each row by its own largest score, since their units differ. "
        "Methods without "
        "a sign stand below the line.",
        command=(
            f"mixlens plot {SENTENCE} --method attcat,integrated_gradients,alti,globenc,value_zeroing,attention "
            "--target were --foil was -o methods.svg"
        ),
        figure="methods.svg",
        alt="Six methods as rows over the tokens of the sentence: keys speaks for were, whatever the method",
    ),
    Entry(
        "Methods of other tools",
        "SHAP, LIME and methods that captum has, with the same target as ours (`pip install 'mixlens[peers]'`).",
        command=f"mixlens plot {SENTENCE} --method integrated_gradients,attcat,shap,lime,gradient_shap,smooth_grad,"
        "layer_conductance,sequential_integrated_gradients,discretized_integrated_gradients "
        "--target were --foil was -o peers.svg",
        figure="peers.svg",
        alt="Nine methods as rows over the tokens of the sentence",
    ),
    Entry(
        "Several maps",
        "A list, or the dict that `mixlens.mix` gives for several methods.",
        code="""maps = mixlens.mix(trace, ["attention", "globenc", "alti", "value_zeroing"])
mixlens.plot(maps, layer=2).save("maps.svg")""",
        figure="maps.svg",
        alt="Four methods' maps of layer 3 beside each other",
    ),
    Entry(
        "A gradient at every layer",
        "Any list of attributions becomes rows (as Figure 4 of AttCAT).",
        code="""reads = [mixlens.attribute(trace, "grad_x_input", target="were", foil="was", layer=number) for number in range(5)]
mixlens.plot(reads, labels=["input", *(f"after layer {number}" for number in range(1, 5))]).save("gradients.svg")""",
        figure="gradients.svg",
        alt="Gradient times input at the input and after each of four layers",
    ),
    Entry(
        "Curves with intervals",
        "How far the prediction falls when the top tokens are taken away, with 95 % intervals.",
        code="""from mixlens.metrics.faithfulness import aopc, curve
from mixlens.show.figure import curves

sentiment = mixlens.load("sentiment")
traces = sentiment.trace([example.text for example in mixlens.data.load("sentiment", n=16)])
fall = {}
for method in ("alti", "deeplift", "attention", "random"):
    scores = [mixlens.attribute(one, method) for one in traces]
    fall[method] = curve([aopc(one, score.scores) for one, score in zip(traces, scores, strict=True)])
curves(fall, at=range(0, 101, 10), x="tokens removed (%)", y="fall of the probability").save("curves.svg")""",
        figure="curves.svg",
        alt="Four curves of the fall of the probability, with bands",
    ),
    Entry(
        "Do the top words matter?",
        "What is left of predictions without each method's three first words; random words to compare with.",
        code="""from mixlens.runs.corpus import turned_figure

texts = [example.text for example in mixlens.data.load("sentiment", n=40)]
mixlens.run(
    texts, model="sentiment", methods=["deeplift", "attcat", "alti"], trust=True, out="runs/turned", progress=False
)
turned_figure("runs/turned", save="turned.svg")""",
        figure="turned.svg",
        alt="Histograms of the probability that is left, for DeepLift, AttCAT, ALTI and random words",
    ),
    Entry(
        "In a figure of your own",
        "With `ax=` a picture is drawn where you say, and the Axes come back.",
        code="""from matplotlib.figure import Figure

figure = Figure(figsize=(6.8, 2.6), layout="constrained")
left, right = figure.subplots(1, 2)
rolled = mixlens.mix(trace, "alti").rollout()
rolled.plot(kind="layers", ax=left, colorbar=False)
rolled.readout("[MASK]").plot(kind="bars", ax=right, save="own.svg")""",
        figure="own.svg",
        alt="Layers by tokens at the left, bars at the right",
    ),
)

TEXTS = (
    Entry("One sentence", "The sentence is coloured where there are colours.", command=f"mixlens explain {SENTENCE}"),
    Entry("Several methods", "", command=f"mixlens compare {SENTENCE} --no-special"),
    Entry("Layer by layer", "", command=f"mixlens explain {SENTENCE} --layers --no-special"),
    Entry("One layer's map", "", command=f"mixlens map {SENTENCE} --layer 3 --method value_zeroing"),
    Entry(
        "LaTeX",
        "Colour boxes of the xcolor package, underlined for and dashed against; every special character is escaped. "
        "In Python: `attribution.to_latex()`.",
        command=f"mixlens explain {SENTENCE} --method attcat --target were --foil was --no-special --latex",
    ),
)


def command(line: str) -> str:
    """What a command prints without colours, run here."""
    words = shlex.split(line)
    assert words[0] == "mixlens"
    out = io.StringIO()
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = COLUMNS
    try:
        with contextlib.redirect_stdout(out):
            app(words[1:], standalone_mode=False)
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before
    return "\n".join(text.rstrip() for text in out.getvalue().splitlines())


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def made(entry: Entry, known: dict[str, Any]) -> str:
    """Runs an entry in this folder, and gives its part of the page without the figure."""
    parts = [f"### {entry.title}", ""]
    parts += [entry.told, ""] if entry.told else []
    if entry.code:
        exec(entry.code, known)
        return "\n".join([*parts, "```python", entry.code, "```", ""])
    printed = command(entry.command)
    if entry.figure:
        return "\n".join([*parts, "```console", f"$ {entry.command}", "```", ""])
    kind = "latex" if "--latex" in entry.command else ""
    return "\n".join([*parts, "```console", f"$ {entry.command}", "```", "", f"```{kind}", printed, "```", ""])


def _models_loaded_once() -> Any:
    """Within this block commands with the same options of loading share a model."""
    return patch.object(LoadOptions, "timed_load", cache(LoadOptions.timed_load))


def main(docs: Path = DOCS) -> None:
    known: dict[str, Any] = {}
    exec(START, known)
    page = [
        "# Gallery",
        "",
        "Generated by `python -m recipes.pages.gallery`: edit that, not this page.",
        "",
        "Every kind of picture, with the command or the lines that made it, from the",
        "embedded models. Figures are SVG with real text; `.pdf` and `.png` work as well. Widths are those of a "
        "paper's column",
        "(`single`, 84 mm) or page (`double`, 174 mm). Python lines go on from these:",
        "",
        "```python",
        START,
        "```",
        "",
        "## Figures",
        "",
    ]
    figures = docs / "figures" / "gallery"
    figures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place, _models_loaded_once():
        for entry in FIGURES:
            with inside(Path(place)):
                part = made(entry, known)
            shutil.copyfile(Path(place) / entry.figure, figures / entry.figure)
            page += [part, f"![{entry.alt}](figures/gallery/{entry.figure})", ""]
        page += [
            "## In the terminal",
            "",
            "Shown here without colours, as in a file or with `--no-color`: numbers and bars.",
            "",
        ]
        page += [made(entry, known) for entry in TEXTS]
    (docs / "gallery.md").write_text("\n".join(page).rstrip() + "\n", encoding="utf-8")
    total = sum(path.stat().st_size for path in figures.iterdir())
    print(f"{len(FIGURES)} figures ({total / 1024:.0f} KiB) in {docs / 'gallery.md'}, mixlens {mixlens.__version__}")


if __name__ == "__main__":
    main()
