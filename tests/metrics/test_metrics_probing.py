"""MDL probing and token identifiability: random labels take their uniform code, and what is there is found."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from conftest import ids, loaded
from hypothesis import given, settings
from hypothesis import strategies as st

from mixlens.base.errors import InputError
from mixlens.metrics import probing, token_identity, token_training

QUICK = token_training.Training(rate=1e-2, patience=5, epochs=60, batch=64, hidden=32)


def examples(n: int, d: int, seed: int) -> Any:
    return np.random.default_rng(seed).normal(size=(n, d))


def test_random_labels_compress_to_one() -> None:
    """Labels that have nothing to do with the features, in 2 and 4 classes: 1.0 within noise. A code that is right
    takes no less than the uniform one (but by luck), and one that overfits takes more."""
    for classes in (2, 4):
        made = []
        for seed in range(5):
            labels = np.random.default_rng(100 + seed).integers(0, classes, 600)
            made.append(probing.online_code(examples(600, 24, seed), labels, seed=seed).value)
        assert np.mean(made) == pytest.approx(1, abs=0.015)
        assert made == pytest.approx([1] * 5, abs=0.025)


def test_labels_that_are_there_compress_and_noise_costs() -> None:
    x = examples(1000, 12, 0)
    labels = (x[:, 0] > 0).astype(int)
    noisy = np.where(np.random.default_rng(1).random(1000) < 0.2, 1 - labels, labels)
    clear, blurred = (probing.online_code(x, y) for y in (labels, noisy))
    assert clear.value > 2.5
    assert 1.05 < blurred.value < clear.value
    bound = 1 / (-0.2 * math.log2(0.2) - 0.8 * math.log2(0.8))  # no code can do better than the noise allows
    assert blurred.compression.low < bound * 1.1


def test_a_code_is_the_sum_of_its_portions() -> None:
    labels = np.random.default_rng(0).integers(0, 3, 300)
    made = probing.online_code(examples(300, 8, 0), labels, percents=probing.MOHEBBI)
    assert made.uniform_bits == pytest.approx(300 * math.log2(3))
    assert made.bits == pytest.approx(sum(made.portions))
    assert made.value == pytest.approx(made.uniform_bits / made.bits)
    assert made.compression.low < made.value < made.compression.high
    assert made.cuts[-1] == 300
    assert made.portions[0] == pytest.approx(made.cuts[0] * math.log2(3))
    again = probing.online_code(examples(300, 8, 0), [f"class {y}" for y in labels], percents=probing.MOHEBBI)
    assert again == made


def test_no_probe_is_trained_on_fewer_than_twenty_examples() -> None:
    """A portion that comes after fewer is sent by the uniform code, though the features tell the labels."""
    x = examples(400, 8, 0)
    made = probing.online_code(x, (x[:, 0] > 0).astype(int), percents=(2, 4.75, 5, 100))
    assert made.cuts == (8, 19, 20, 400)
    assert made.portions[:3] == (8, 11, 1)
    assert made.portions[3] < 380
    assert sum(bits != 1 for bits in made.each) > 370


def test_the_bits_of_each_label_are_in_the_order_of_the_examples() -> None:
    """The labels are sent in an order drawn by the seed; each portion's bits are those of its own examples."""
    labels = np.random.default_rng(0).integers(0, 2, 200)
    made = probing.online_code(examples(200, 8, 0), labels, percents=probing.MOHEBBI, seed=3)
    sent = np.array(made.each)[np.random.default_rng(3).permutation(200)]
    assert sent[: made.cuts[0]] == pytest.approx([1.0] * made.cuts[0])
    assert [part.sum() for part in np.split(sent, made.cuts)[:-1]] == pytest.approx(list(made.portions))


def test_probing_leaves_the_random_numbers_of_others_alone() -> None:
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    probing.online_code(examples(100, 4, 0), [0, 1] * 50)
    texts = [torch.randn(4, 3, generator=torch.Generator().manual_seed(i)) for i in range(8)]
    token_identity.token_identifiability(texts, texts, folds=1, training=QUICK)
    assert torch.equal(torch.rand(1), expected)


def test_the_released_code_calls_random_labels_compressed() -> None:
    """1 / ln 2 = 1.44 for labels with nothing in them, and 1 / (1 - ln(1 + e) + ...) = 3.19 at the very most."""
    x = examples(800, 16, 0)
    labels = np.random.default_rng(5).integers(0, 2, 800)
    random = probing.online_code(x, labels, percents=probing.MOHEBBI, variant="released")
    assert random.value == pytest.approx(1.44, abs=0.05)
    easy = (x[:, 0] > 0).astype(int)
    learnt = probing.online_code(10 * x, easy, percents=probing.MOHEBBI, variant="released")
    assert random.value < learnt.value < 1 / math.log(1 + math.exp(-1)) + 1e-9


def test_the_released_code_written_out() -> None:
    """Its script, a portion at a time: probabilities where logits belong, a rate that falls to 0 in one epoch, early
    stopping and the choice of the epoch both on the portion that is coded."""
    x, labels = examples(300, 8, 0), np.random.default_rng(1).integers(0, 2, 300)
    labels = np.where(x[:, 0] > 0.3, 1, labels)
    made = probing.online_code(x, labels, percents=(40, 80, 100), variant="released", seed=3)
    order = np.random.default_rng(3).permutation(300)
    x, y = torch.tensor(x[order]).float(), torch.tensor(labels[order])
    expected = [120.0]
    for number, (train, test) in enumerate(((120, 120), (240, 60))):
        torch.manual_seed(3 + number)
        net = torch.nn.Sequential(
            *(torch.nn.Dropout(0.2), torch.nn.Linear(8, 128), torch.nn.ReLU(), torch.nn.LayerNorm(128)),
            *(torch.nn.Dropout(0.3), torch.nn.Linear(128, 2), torch.nn.Softmax(dim=-1)),
        )
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, eps=1e-6, weight_decay=0)
        steps, step = math.ceil(train / 128), 0
        totals, last, waited = [], 1000.0, 0
        for _ in range(15):
            net.train()
            for start in range(0, train, 128):
                optimizer.param_groups[0]["lr"] = 1e-3 * max(0.0, 1 - step / steps)
                loss = torch.nn.CrossEntropyLoss()(
                    net(x[start : min(start + 128, train)]), y[start : min(start + 128, train)]
                )
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                step += 1
            net.eval()
            with torch.no_grad():
                loss = float(torch.nn.CrossEntropyLoss()(net(x[train : train + test]), y[train : train + test]))
            totals.append(loss * test)
            waited = waited + 1 if loss >= last else 0
            last = loss
            if waited >= 5:
                break
        expected.append(min(totals))
    assert made.portions == pytest.approx(expected, rel=1e-5)


@settings(max_examples=50, deadline=None)
@given(st.integers(20, 5000), st.sampled_from([probing.VOITA, probing.MOHEBBI]))
def test_portions_tile_the_examples(n: int, percents: tuple[float, ...]) -> None:
    made = probing.blocks(n, percents)
    assert made[-1][2] == n
    assert all(train == start < end for train, start, end in made)
    assert all(a[2] == b[1] for a, b in pairwise(made))


@pytest.mark.parametrize(
    ("features", "labels", "options", "said"),
    [
        ([[1.0], [2.0]], [0], {}, "2 examples and 1 labels"),
        ([[1.0], [2.0]], ["a", "a"], {}, "all labels are 'a'"),
        ([1.0, 2.0], [0, 1], {}, "2 axis"),
        ([[1.0], [2.0]], [0, 1], {"percents": (50, 10, 100)}, "rise from above 0 to 100"),
        ([[1.0], [2.0]], [0, 1], {"percents": (1, 50)}, "rise from above 0 to 100"),
        ([[1.0], [2.0]], [0, 1], {"variant": "bits"}, "Known: paper, released"),
        ([[1.0], [2.0]], [0, 1], {"variant": "released"}, "2 examples are too few"),
    ],
)
def test_what_cannot_be_coded_is_refused(features: Any, labels: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        probing.online_code(features, labels, **options)


# --- which token is it still? -----------------------------------------------------------------------------------------


def texts(count: int, d: int, seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(5 + i % 4, d, generator=generator, dtype=torch.float64) for i in range(count)]


def test_a_token_that_did_not_change_is_identified() -> None:
    inputs = texts(9, 6)
    for distance in ("cosine", "l2"):
        assert token_identity.token_identifiability(inputs, inputs, kind="naive", distance=distance).value == 1
    shifted = [x.roll(-1, 0) for x in inputs]  # each position holds its right neighbour
    assert token_identity.token_identifiability(shifted, inputs, kind="naive", offset=1).value == 1
    assert token_identity.token_identifiability(shifted, inputs, kind="naive").value < 0.2
    assert token_identity.identified(inputs[0], inputs[0], offset=9).size == 0


@pytest.mark.parametrize("distance", ["cosine", "l2"])
def test_what_a_matrix_hides_a_matrix_finds(distance: str) -> None:
    """Hidden states are a rotation of the inputs: nearest neighbours are lost, and a linear g brings them back."""
    inputs = texts(40, 6)
    turn = torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64)).Q
    hidden = [x @ turn for x in inputs]
    naive = token_identity.token_identifiability(hidden, inputs, kind="naive", distance=distance)
    linear = token_identity.token_identifiability(hidden, inputs, distance=distance, folds=2, training=QUICK)
    assert naive.value < 0.5
    assert linear.value > 0.9
    assert linear.rate.low <= linear.value <= linear.rate.high
    assert len(linear.by_fold) == 2
    assert linear.rate.n <= 12  # texts tested, not tokens


def test_what_is_bent_needs_an_mlp() -> None:
    inputs = texts(80, 2)
    hidden = [torch.stack([x[:, 0], x[:, 1] + x[:, 0] ** 2], -1) for x in inputs]
    linear, mlp = (
        token_identity.token_identifiability(hidden, inputs, kind=kind, distance="l2", folds=1, training=QUICK)
        for kind in ("linear", "mlp")
    )
    assert mlp.value > linear.value + 0.1


def test_a_g_of_one_layer_on_another() -> None:
    inputs = texts(40, 6)
    turns = [
        torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(s), dtype=torch.float64)).Q
        for s in (1, 2)
    ]
    layers = [[x @ turn for x in inputs] for turn in (turns[0], turns[0], turns[1])]
    made = token_identity.identifiability_across_layers(layers, inputs, folds=1, training=QUICK)
    assert [len(row) for row in made] == [3, 3, 3]
    assert made[0][1].value == made[0][0].value > 0.9
    assert made[0][2].value < 0.5
    assert made[2][2] == token_identity.token_identifiability(layers[2], inputs, folds=1, training=QUICK)
    with pytest.raises(InputError, match="no layer is its own"):
        token_identity.identifiability_across_layers(layers, inputs, kind="naive")


@pytest.mark.parametrize("offset", [-2, 1, 3])
def test_a_neighbour_is_found_by_training_for_it(offset: int) -> None:
    """Hidden states are rotations of a neighbour's input; texts that are too short for one are no trouble."""
    inputs = [*texts(40, 6), *(x[:2] for x in texts(3, 6, 5))]
    turn = torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64)).Q
    hidden = [x.roll(-offset, 0) @ turn for x in inputs]
    found, own = (
        token_identity.token_identifiability(hidden, inputs, offset=o, folds=1, training=QUICK).value
        for o in (offset, 0)
    )
    assert found > 0.9
    assert own < 0.5


def test_half_precision_is_no_trouble() -> None:
    inputs = texts(10, 4)
    half = [x.bfloat16() for x in inputs]
    made = token_identity.token_identifiability(half, half, folds=1, training=QUICK)
    assert made.value > 0.5


def test_input_vectors_of_a_model() -> None:
    trace = loaded("bert").trace(input_ids=ids(5))
    model = trace.model.hf_model
    word = model.get_input_embeddings()(torch.tensor(trace.input_ids)).detach()
    torch.testing.assert_close(token_identity.input_vectors(trace, embedding="word"), word)
    torch.testing.assert_close(token_identity.input_vectors(trace, embedding="after"), trace.hidden_states[0])
    table = model.embeddings
    summed = word + table.position_embeddings.weight[:5] + table.token_type_embeddings.weight[0]
    torch.testing.assert_close(token_identity.input_vectors(trace), summed.detach())
    torch.testing.assert_close(model.embeddings.LayerNorm(summed), trace.hidden_states[0])


@pytest.mark.parametrize(
    ("hidden", "inputs", "options", "said"),
    [
        (texts(3, 4), texts(2, 4), {}, "3 texts and inputs of 2"),
        (texts(3, 4), texts(3, 4), {}, "3 texts cannot be split"),
        (texts(8, 4), texts(8, 4), {"kind": "cnn"}, "Known: linear, mlp, naive"),
        (texts(8, 4), texts(8, 4), {"kind": "naive", "distance": "l1"}, "Known: cosine, l2"),
        (texts(8, 4), texts(8, 5), {"kind": "naive"}, "must be .pos d. of one text"),
    ],
)
def test_what_cannot_be_identified_is_refused(hidden: Any, inputs: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        token_identity.token_identifiability(hidden, inputs, **options)


def test_the_papers_training_is_the_default() -> None:
    used = token_training.PAPERS_TRAINING
    assert (used.rate, used.batch, used.patience, used.hidden) == (1e-4, 256, 20, 1000)


@pytest.mark.parametrize("patience", [1, 3])
def test_training_stops_when_other_texts_are_served_worse_and_worse(
    patience: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other texts want the opposite: the first epoch serves them best, and no more than `patience` follow it."""
    x = torch.randn(20, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    judged: list[float] = []
    loss = token_training._loss

    def counted(found: torch.Tensor, wanted: torch.Tensor, distance: str) -> torch.Tensor:
        made = loss(found, wanted, distance)
        if bool((wanted == -x).all()):
            judged.append(float(made.detach()))
        return made

    monkeypatch.setattr(token_training, "_loss", counted)
    training = token_training.Training(rate=0.01, batch=20, patience=patience, epochs=40)
    torch.manual_seed(0)
    g = token_training.fit((x, x), (x, -x), kind="linear", distance="l2", training=training).g
    assert len(judged) == 1 + patience
    assert judged == sorted(judged)
    assert float(loss(g(x), -x, "l2")) == pytest.approx(judged[0])  # as it was after the first epoch


def test_compression_from_losses() -> None:
    uniform = 10 * math.log2(3)
    first = 2 * math.log2(3)
    assert probing.compression([1.0, 2.0], n=10, classes=3, first=2) == pytest.approx(
        uniform / (first + 3 / math.log(2))
    )
    assert probing.compression([1.0, 2.0], n=10, classes=3, first=2, variant="released") == pytest.approx(
        uniform / (first + 3)
    )


def test_portions() -> None:
    assert probing.blocks(10, (20, 50, 100)) == [(2, 2, 5), (5, 5, 10)]
    assert probing.blocks(10, (1, 50, 100)) == [(1, 1, 5), (5, 5, 10)]
    assert probing.blocks(7, (30, 60, 100), variant="released") == [(2, 2, 4), (4, 4, 6)]


@pytest.mark.parametrize("distance", ["cosine", "l2"])
@pytest.mark.parametrize("offset", [-2, -1, 0, 1, 3, 9])
def test_a_token_is_identified_where_none_is_nearer(distance: str, offset: int) -> None:
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    inputs[4] = inputs[2]  # an equal vector counts as the token's own
    hidden = inputs + 0.7 * torch.randn(6, 4, generator=generator, dtype=torch.float64)

    def far(a: torch.Tensor, b: torch.Tensor) -> float:
        return float((a - b).norm()) if distance == "l2" else 1 - float(a @ b / a.norm() / b.norm())

    table = [[far(one, other) for other in inputs] for one in hidden]
    expected = [float(table[i][i + offset] <= min(table[i]) + 1e-12) for i in range(6) if 0 <= i + offset < 6]
    assert token_identity.identified(hidden, inputs, distance=distance, offset=offset).tolist() == expected
    assert token_identity.nearest_token(hidden, inputs, distance=distance).tolist() == [
        int(np.argmin(row)) for row in table
    ]


def test_distances_that_rounding_alone_tells_apart_are_equal() -> None:
    """Relative to large distances, absolute for small ones."""
    hidden = torch.zeros(2, 2, dtype=torch.float64)

    def found(own: float, other: float) -> float:
        inputs = torch.tensor([[own, 0.0], [0.0, other]], dtype=torch.float64)
        return float(token_identity.identified(hidden, inputs, distance="l2")[0])

    assert found(1e6 * (1 + 5e-13), 1e6) == 1
    assert found(1e6 * (1 + 5e-12), 1e6) == 0
    assert found(5e-13, 0.0) == 1
    assert found(5e-12, 0.0) == 0


def test_texts_are_split_to_train_to_stop_and_to_test() -> None:
    """70 %, 15 % and 15 % of 20 texts, in orders drawn by the seeds; `share` is of those to train."""
    hidden = texts(20, 4)
    orders = [np.random.default_rng(seed).permutation(20) for seed in (5, 6)]
    made = token_identity.token_identifiability(
        hidden, hidden, folds=2, seed=5, training=token_training.Training(epochs=2)
    )
    tested = np.concatenate([order[17:] for order in orders])
    counts = {int(text): int((tested == text).sum()) * len(hidden[text]) for text in np.unique(tested)}
    assert {text: count for text, _, count in made.by_text} == counts
    assert (made.epochs, len(made.by_fold)) == ((2, 2), 2)
    for share, size in ((1.0, 14), (0.5, 7), (0.01, 1)):
        options: dict[str, Any] = {"share": share, "seed": 5, "training": token_training.Training(epochs=1)}
        train, test = token_identity.train_and_test_rates(hidden, hidden, **options)
        assert [text for text, *_ in train.by_text] == sorted(orders[0][:size])
        assert [text for text, *_ in test.by_text] == sorted(orders[0][17:])


def test_the_naive_g_is_tested_on_all_texts() -> None:
    inputs = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]])
    hidden = torch.tensor(
        [[3.0, 0.1], [1.0, 1.5], [0.1, 4.0]]
    )  # of the inputs the first and the third point the same way
    naive = token_identity.token_identifiability([hidden, hidden], [inputs, hidden], kind="naive", confidence=0.9)
    assert (naive.by_text, naive.by_fold, naive.epochs) == (((0, 2, 3), (1, 3, 3)), (5 / 6,), ())
    assert (naive.rate.n, naive.rate.confidence, naive.value) == (2, 0.9, pytest.approx(5 / 6))


def test_a_gpu_trains_as_many_as_its_memory_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number that it holds stands in for the GPU: searches and folds are cut where it says, and the rates are the
    same."""
    hidden = texts(20, 4)
    searches = [token_identity.Search(hidden, hidden), token_identity.Search(hidden, hidden, share=0.5)]
    options: dict[str, Any] = {"kind": "linear", "distance": "l2", "folds": 3, "seed": 5}
    options["training"] = token_training.Training(rate=1e-2, epochs=3)
    alone = token_identity.identified_rates(searches, **options)
    monkeypatch.setattr(token_identity.fast, "trained_at_once", lambda device, size: 4)
    assert token_identity.identified_rates(searches, **options) == alone
