"""The numbers of the flow picture, computed by the page's own script, against the stored rollout and the exact
product."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mixlens import Map
from mixlens.scoring import conventions
from mixlens.show import packing, page_entry, page_template

CALL = """
(async () => {
  const asked = JSON.parse(require("fs").readFileSync(0, "utf8"));
  const method = asked.entry.methods[0];
  const layers = await Sheet.of(method.sheets.layer);
  const rolled = await Sheet.of(method.sheets.rollout);
  const units = unitsOf(asked.entry, asked.byWord);
  const flow = flowOf(layers, method.convention, units, asked.unit, asked.layer, { rolled, causal: asked.entry.causal });
  const row = Array.from(rowOf(matrixOf(rolled, asked.layer, units), asked.unit));
  const masses = flow.masses.map((mass) => Array.from(mass));
  const rest = matrixOf(rolled, asked.layer, units).rest[asked.unit];
  console.log(JSON.stringify({ masses, edges: flow.edges, paths: flow.paths, row, rest }));
})();
"""  # noqa: E501


@cache
def has_node() -> bool:
    try:
        return subprocess.run(["node", "--version"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


pytestmark = pytest.mark.skipif(not has_node(), reason="needs node, which runs the page's script")


def flow_of(made: dict[str, Any], tmp_path: Path, *, unit: int, layer: int, by_word: bool = False) -> dict[str, Any]:
    script = tmp_path / "flow.js"
    script.write_text((page_template.ASSETS / "core.js").read_text() + CALL)
    asked = json.dumps({"entry": made, "unit": unit, "layer": layer, "byWord": by_word})
    done = subprocess.run(["node", str(script)], input=asked, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def a_map(convention: str, *, causal: bool, n: int = 120, depth: int = 5) -> Map:
    """Rows with a few large numbers and many small ones, as attention to a long text has."""
    scores = (torch.randn(depth, n, n, generator=torch.Generator().manual_seed(3)) * 2.2).exp().double()
    scores[:, torch.arange(n), torch.arange(n)] += 8 * scores.mean()
    if causal:
        scores = scores.tril()
    scores = scores / (scores.sum(-1).mean() if convention == "globenc" else scores.sum(-1, keepdim=True))
    words = tuple((f"w{i}", (2 * i, 2 * i + 1)) for i in range(n // 2))
    info = {"convention": convention, "rollout": None, "model": "m", "causal": causal}
    return Map(scores.float(), tuple(f"t{i}" for i in range(n)), "any", info, (False,) * n, words)


def page_of(result: Map, precision: packing.Precision) -> dict[str, Any]:
    made = page_entry.entry([result], room=10_000_000)
    sheets = {"layer": result, "rollout": result.rollout()}
    for name, one in sheets.items():
        made["methods"][0]["sheets"][name] = packing.encode(one.to_numpy().reshape(-1, len(one.tokens)), precision)
    return dict(json.loads(json.dumps(made)))


def exact(result: Map, positions: list[int], layer: int) -> list[np.ndarray]:
    """How much of the mean of these positions stood at every token, from the input (first) up to `layer`."""
    layers = conventions.as_convened(result, None, residual=None, normalize=None)[0].double().numpy()
    mass = np.zeros(layers.shape[-1])
    mass[positions] = 1 / len(positions)
    masses = [mass]
    for matrix in layers[: layer + 1][::-1]:
        masses.append(masses[-1] @ matrix)
    return masses[::-1]


PRECISIONS = [packing.Precision("float16"), packing.Precision("top", 20), packing.Precision("float32")]
CONVENTIONS = ["alti", "abnar", "globenc"]


@pytest.mark.parametrize(
    ("precision", "convention", "causal"),
    [
        *((precision, convention, False) for precision in PRECISIONS for convention in CONVENTIONS),
        *((precision, convention, True) for precision, convention in zip(PRECISIONS, CONVENTIONS, strict=True)),
    ],
    ids=str,
)
def test_what_flows_in_at_the_input_is_the_rollout(
    precision: packing.Precision, convention: str, causal: bool, tmp_path: Path
) -> None:
    result = a_map(convention, causal=causal)
    made = page_of(result, precision)
    n, unit, layer = len(result.tokens), 97, 4
    found = flow_of(made, tmp_path, unit=unit, layer=layer)
    stored = packing.decode(made["methods"][0]["sheets"]["rollout"])[layer * n + unit]
    true = exact(result, [unit], layer)
    size = abs(true[0]).max()
    at_input = np.array(found["masses"][0])
    if precision.kind == "float32":
        np.testing.assert_allclose(at_input, true[0], atol=1e-5 * size)  # five products of float32 numbers
    else:
        np.testing.assert_allclose(at_input, stored, atol=1e-9 * size)  # the same numbers, summed in another order
        np.testing.assert_allclose(at_input, found["row"], atol=1e-9 * size)
    # the lines that end at the input add up to it, but for what is spread: of `top` most of a row
    into = np.zeros(n)
    for edge in found["edges"]:
        into[edge["key"]] += edge["flow"] if edge["level"] == 1 else 0.0
    assert (into <= at_input + 1e-9 * size).all()
    if precision.kind in ("float32", "float16"):
        np.testing.assert_allclose(into, at_input, atol=1e-3 * size)  # sixteen bits lose a few small numbers
    # nothing is lost or made between: at each level as much as there truly is. Where rows do not sum to 1, what is
    # spread
    # may land on rows that carry more or less than those it belongs to.
    for level, there in enumerate(true[1:], 1):
        assert sum(found["masses"][level]) == pytest.approx(there.sum(), rel=5e-2 if convention == "globenc" else 2e-3)
        if causal:
            assert not any(found["masses"][level][unit + 1 :])


@pytest.mark.parametrize("precision", [packing.Precision("float16"), packing.Precision("top", 20)], ids=str)
def test_words_flow_as_their_tokens_do(precision: packing.Precision, tmp_path: Path) -> None:
    result = a_map("alti", causal=False)
    made = page_of(result, precision)
    found = flow_of(made, tmp_path, unit=11, layer=3, by_word=True)
    np.testing.assert_allclose(found["masses"][0], found["row"], atol=1e-12)
    assert sum(found["row"]) + found["rest"] == pytest.approx(1, abs=1e-2)  # what is held, and the sum of the rest


def test_levels_between_are_near_what_is_true(tmp_path: Path) -> None:
    """The 40 largest of 120 numbers of a row: the largest masses of every level are right to a few percent."""
    result = a_map("alti", causal=False)
    found = flow_of(page_of(result, packing.Precision("top", 40)), tmp_path, unit=97, layer=4)
    for level, there in enumerate(exact(result, [97], 4)[1:-1], 1):
        largest = np.argsort(-there)[:5]
        np.testing.assert_allclose(np.array(found["masses"][level])[largest], there[largest], rtol=0.05)
