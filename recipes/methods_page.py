"""Writes docs/methods.md and its figures: every method with its equation, variants, options, on the same sentence.

    python -m recipes.methods_page

The text comes from the methods' own docstrings, the figures from the embedded `agreement` model.
"""

from __future__ import annotations

import inspect
from html import escape
from pathlib import Path

import mixlens
from mixlens.attributions import ATTRIBUTIONS, AttributionMethod
from mixlens.attributions import known as attributions
from mixlens.maps import Method
from mixlens.maps import known as maps
from mixlens.show.colors import ink, shade, shares

SENTENCE = "The keys to the cabinet [MASK] rusty."
DOCS = Path("docs")


def strip(read: mixlens.Attribution) -> str:
    """Tokens on a background as strong as their score, as SVG with real text."""
    x, boxes = 4, []
    scores = [float(score) for score in read.scores]
    for token, score, share in zip(read.tokens, scores, shares(scores), strict=True):
        width = 14 + 9 * len(token)
        back = shade(share)
        boxes.append(
            f"<g><title>{escape(token)}: {score:.4g}</title>"
            f'<rect x="{x}" y="4" width="{width}" height="26" rx="4" fill="rgb{back}"/>'
            f'<text x="{x + width / 2}" y="22" text-anchor="middle" fill="rgb{ink(back)}">{escape(token)}</text></g>'
        )
        x += width + 4
    label = f"Heat strip of {escape(read.method)}: " + ", ".join(f"{escape(t)} {s:.3g}" for t, s in read.top(3))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{x}" height="34" role="img" aria-label="{label}" '
        f'font-family="ui-monospace, monospace" font-size="15">{"".join(boxes)}</svg>\n'
    )


def section(method: Method | AttributionMethod, read: mixlens.Attribution, figure: str) -> str:
    told = inspect.getdoc(method.function) or ""
    options = {**method.options}
    facts = [f"*{method.paper}*", f"cost: {method.cost} forward passes"]
    facts.append("variants: " + ", ".join(f"`{name}`" for name in method.variants))
    if options:
        facts.append("options: " + ", ".join(f"`{name}={value!r}`" for name, value in options.items()))
    if isinstance(method, Method):
        facts.append(f"rollout: `{method.rollout}`")
        facts.append("rows sum to 1" if method.distribution else "rows as they are")
    else:
        facts.append(f"explains the {method.score}" if method.needs_target else "explains a position")
        if method.layers:
            facts.append("also at every layer (`layer=l`)")
    best = ", ".join(f"{token} {score:.3g}" for token, score in read.top(2))
    return f"### `{method.id}`\n\n{told}\n\n{' · '.join(facts)}\n\n![{method.id}: {best}]({figure})\n"


def main() -> None:
    folder = DOCS / "figures" / "methods"
    folder.mkdir(parents=True, exist_ok=True)
    model = mixlens.load("agreement")
    trace = model.trace(SENTENCE)
    page = [
        "# Every method",
        "",
        "Made by `python -m recipes.methods_page` from the methods' own docstrings. The figures all show the same sentence,",
        f"*{SENTENCE}*, with the embedded `agreement` model; hover a token to see its score. Maps are rolled out over all",
        "layers by their paper's convention and read at `[MASK]`; attributions explain the logit (or probability) of the",
        "predicted word. Blue counts towards, orange against.",
        "",
        "Notation: a^h_ij attention of head h from position i (query) to token j (key), v^h_j value, f^h_j = W_O^h v^h_j,",
        "z_ij = sum_h a^h_ij f^h_j, x_i layer input.",
        "",
        "## Maps: `mixlens.mix(trace, name)`, scores [layer, query, key]",
        "",
    ]
    for group, title in (
        (maps(), None),
        (attributions(), "## Attributions to a prediction: `mixlens.attribute(trace, name, target=...)`"),
    ):
        if title:
            page += [title, ""]
        for name, method in group.items():
            read = mixlens.attribute(trace, name)
            (folder / f"{name}.svg").write_text(strip(read))
            page.append(section(method, read, f"figures/methods/{name}.svg"))
    (DOCS / "methods.md").write_text("\n".join(page))
    print(f"{len(maps())} maps and {len(ATTRIBUTIONS)} attributions in {DOCS / 'methods.md'}")


if __name__ == "__main__":
    main()
