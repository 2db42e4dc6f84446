"""Gauss-Legendre nodes and weights: numpy's, panels of them, and integrals up to each node."""

from __future__ import annotations

import numpy as np
import pytest

from mixlens.methods import _quadrature


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 50, 51])
def test_one_rule_is_numpys(count: int) -> None:
    nodes, weights = _quadrature.gauss_legendre(count)
    theirs, of_theirs = np.polynomial.legendre.leggauss(count)
    np.testing.assert_allclose(nodes, (theirs + 1) / 2, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(weights, of_theirs / 2, rtol=1e-12)
    assert (len(nodes), weights.sum()) == (count, pytest.approx(1.0, abs=1e-15))
    if count % 2:
        assert nodes[count // 2] == 0.5
    kept = _quadrature._one_rule(count)
    assert not any(one.flags.writeable for one in kept)


def test_panels_of_many_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_quadrature, "ONE_RULE", 4)
    assert len(_quadrature.gauss_legendre(4)[0]) == 4
    nodes, weights = _quadrature.gauss_legendre(7)  # panels of 4 and 3 nodes
    long, short = (np.polynomial.legendre.leggauss(size) for size in (4, 3))
    np.testing.assert_allclose(nodes, np.concatenate([(long[0] + 1) / 4, 0.5 + (short[0] + 1) / 4]), rtol=1e-13)
    np.testing.assert_allclose(weights, np.concatenate([long[1] / 4, short[1] / 4]), rtol=1e-12)
    assert len(_quadrature.gauss_legendre(9)[0]) == 9  # three panels of three


def test_the_integral_up_to_each_node() -> None:
    nodes, weights = _quadrature.gauss_legendre(4)
    made = _quadrature.integral_up_to(nodes, weights, 3 * nodes**2 - nodes + 2)
    np.testing.assert_allclose(made, nodes**3 - nodes**2 / 2 + 2 * nodes, rtol=1e-12)
