"""Around one pass of a model, with modules of a few numbers: words, wrappers, hooks, modes, locks and kept values."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mixlens.base.errors import ModelError
from mixlens.model import kept as keeping
from mixlens.model import passes, words, wrappers
from mixlens.model.kept import Kept, Memory

# --- words ----------------------------------------------------------------------------------------------------------------


def grouped(text: str, *spans: tuple[int, int]) -> list[tuple[str, tuple[int, ...]]]:
    return list(words.group_words([text], spans, [0] * len(spans), [f"t{i}" for i in range(len(spans))]))


def test_tokens_of_one_word_stand_together() -> None:
    assert grouped("undo it", (0, 2), (2, 4), (5, 7)) == [("undo", (0, 1)), ("it", (2,))]
    assert grouped("undo it", (0, 2), (2, 4), (4, 7)) == [("undo", (0, 1)), ("it", (2,))]  # with the space before it
    assert grouped("a well-known, man's", (0, 1), (1, 6), (6, 7), (7, 12), (12, 13), (13, 17), (17, 18), (18, 19)) == [
        ("a", (0,)),
        ("well-known", (1, 2, 3)),
        (",", (4,)),
        ("man's", (5, 6, 7)),
    ]
    assert grouped("你好", (0, 1), (1, 2)) == [("你", (0,)), ("好", (1,))]
    assert grouped("你好", (0, 2)) == [("你好", (0,))]
    assert grouped("?!", (0, 1), (1, 2)) == [("?", (0,)), ("!", (1,))]


def test_a_token_that_spans_words_joins_them() -> None:
    assert grouped("a b c", (0, 3), (3, 5)) == [("a b", (0,)), ("c", (1,))]
    assert grouped("ab cd", (0, 1), (1, 4), (4, 5)) == [("ab cd", (0, 1, 2))]
    assert grouped("  a", (0, 2), (2, 3)) == [("t0", (0,)), ("a", (1,))]  # a token of spaces stands alone
    assert grouped("ab", (0, 1), (1, 1), (1, 2)) == [("a", (0,)), ("t1", (1,)), ("b", (2,))]


def test_tokens_of_two_texts_and_of_none() -> None:
    made = words.group_words(
        ["one", "one", None], [(0, 0), (0, 2), (2, 3), (0, 3), (0, 0)], [None, 0, 0, 1, 2], list("vwxyz")
    )
    assert made == (("v", (0,)), ("one", (1, 2)), ("one", (3,)), ("z", (4,)))
    with pytest.raises(ValueError, match=r"shorter|longer"):
        words.group_words(["one"], [(0, 1)], [0, 0], ["a", "b"])


# --- wrappers -------------------------------------------------------------------------------------------------------------


def of_peft(inner: Any, adapters: Any = None) -> Any:
    kind = type("PeftModel", (nn.Module,), {"__module__": "peft.peft_model", "get_base_model": lambda self: inner})
    model = kind()
    model.peft_config = adapters
    return model


def test_models_are_taken_out_of_their_wrappers() -> None:
    model: Any = nn.Linear(1, 1)
    assert wrappers.unwrapped(model) is model
    compiled = type("OptimizedModule", (nn.Module,), {})()
    compiled._orig_mod = of_peft(model)
    assert wrappers.unwrapped(compiled) is model
    assert wrappers.unwrapped(of_peft(model, {"default": SimpleNamespace(is_prompt_learning=False)})) is model
    empty = type("OptimizedModule", (nn.Module,), {})()
    assert wrappers.unwrapped(empty) is empty
    other = type("Other", (nn.Module,), {"__module__": "pefter.x", "get_base_model": lambda self: model})()
    assert wrappers.unwrapped(other) is other
    without = type("Other", (nn.Module,), {"__module__": "peft.x"})()
    assert wrappers.unwrapped(without) is without


def test_wrappers_that_are_refused() -> None:
    model: Any = nn.Linear(1, 1)
    for name in ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel"):
        with pytest.raises(ModelError) as told:
            wrappers.unwrapped(type(name, (nn.Module,), {})())
        assert str(told.value) == f"load does not take a {name}. Give the model inside it: load(model.module, ...)."
    adapters = {"lora": SimpleNamespace(), "prefix": SimpleNamespace(is_prompt_learning=True)}
    with pytest.raises(ModelError) as told:
        wrappers.unwrapped(of_peft(model, adapters))
    assert str(told.value) == (
        "this PeftModel puts learned vectors before the text (adapter 'prefix': prompt or prefix tuning), and mixlens does not "
        "model these. LoRA and other adapters inside the layers are taken as they are."
    )
    wrappers.refuse_meta(model)
    with pytest.raises(ModelError) as told:
        wrappers.refuse_meta(nn.Sequential(model, nn.Linear(1, 1, device="meta")))
    assert str(told.value) == (
        "this model is on the device 'meta': its weights have no values. Load them, for example with from_pretrained, or move "
        "the model with to_empty and load_state_dict."
    )
    wrappers.refuse_meta_default()
    with torch.device("meta"), pytest.raises(ModelError) as told:
        wrappers.refuse_meta_default()
    said = "torch's default device is 'meta', where tensors have no values. Use torch.set_default_device('cpu')."
    assert str(told.value) == said


# --- passes ---------------------------------------------------------------------------------------------------------------


class Config:
    pass


def test_a_configuration_has_one_lock_as_long_as_it_lives() -> None:
    one, other = Config(), Config()
    both = passes.Locks([one, other]).locks
    assert both == passes.Locks([other, one]).locks
    assert both[0] is not both[1]
    assert both == [passes._lock_of(config) for config in sorted([one, other], key=id)]
    number, free = id(one), list[bool]()

    def try_it(lock: Any) -> None:
        free.append(lock.acquire(blocking=False))
        if free[-1]:
            lock.release()

    def is_free() -> bool:
        thread = threading.Thread(target=try_it, args=(both[0],))
        thread.start()
        thread.join()
        return free[-1]

    with passes.Locks([one, other]) as locks, locks:
        assert not is_free()
    assert is_free()
    assert number in passes._LOCKS
    del one
    assert number not in passes._LOCKS


def test_the_pass_under_way() -> None:
    assert passes.current_pass() is passes.NO_PASS
    none = passes.NO_PASS
    assert (none.recorder, none.capped, none.hook_sets, none.running) == (None, True, (), False)
    recorder: Any = object()
    with passes.recorded(recorder), passes.within_pass(capped=False, hook_sets=("a",)):
        now = passes.current_pass()
        assert (now.recorder, now.capped, now.hook_sets, now.running) == (recorder, False, ("a",), False)
        with passes.unwatched():
            assert passes.current_pass().hook_sets == ("a",)  # no pass runs yet
        with passes.apart_from_others():
            assert (passes.current_pass().hook_sets, passes.current_pass().running) == (("a",), True)
            with passes.unwatched():
                assert passes.current_pass().hook_sets == ()
        with pytest.raises(ZeroDivisionError), passes.within_pass(capped=True):
            raise ZeroDivisionError
        assert passes.current_pass() is now
    assert passes.current_pass().recorder is None


def test_hooks_act_within_their_block_alone() -> None:
    module, seen = nn.Linear(1, 1), list[Any]()

    def before(module: nn.Module, args: Any, kwargs: Any) -> None:
        seen.append(("before", args, kwargs))

    def after(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        seen.append("after")
        return output * 0 + 7

    x = torch.ones(1)
    with passes.hooks([(module, "before", before), (module, "after", after)]):
        assert module(x).tolist() == [7.0]
        assert seen == [("before", (x,), {}), "after"]
        assert all(getattr(hook, passes.WATCHING) for hook in module._forward_hooks.values())
        with passes.within_pass(running=True), passes.unwatched():
            assert module(x).tolist() != [7.0]
        other = threading.Thread(target=lambda: seen.append(module(x).tolist()))
        other.start()
        other.join()
        assert seen[2] != [7.0]
    assert (len(module._forward_hooks), len(module._forward_pre_hooks)) == (0, 0)
    with pytest.raises(ZeroDivisionError), passes.hooks([(module, "after", after)]):
        raise ZeroDivisionError
    assert len(module._forward_hooks) == 0


def test_arguments_and_outputs_of_modules() -> None:
    x, y = torch.zeros(1), torch.ones(1)
    assert passes.first((x, y)) is x
    assert passes.first(y) is y
    assert passes.hidden_argument((x, y), {"hidden_states": y}) is x
    assert passes.hidden_argument((), {"hidden_states": y}) is y
    assert passes.with_hidden((x, 1, 2), {"k": 3}, y) == ((y, 1, 2), {"k": 3})
    assert passes.with_hidden((), {"hidden_states": x, "k": 3}, y) == ((), {"hidden_states": y, "k": 3})
    inner = nn.Sequential(nn.ReLU(), nn.ReLU())
    model = nn.Sequential(inner, nn.ReLU())
    model.register_module("none", None)
    assert passes.modules_of(model) == [model, inner, model[1], inner[0], inner[1]]


def test_evaluation_mode_for_the_length_of_a_block() -> None:
    model = nn.Sequential(nn.Dropout(), nn.Linear(1, 1))
    model[1].eval()
    for gradients in (False, True):
        with torch.autocast("cpu"), passes.evaluating(model, gradients=gradients):
            assert [one.training for one in model.modules()] == [False] * 3
            assert (torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")) == (gradients, False)
        assert [one.training for one in model.modules()] == [True, True, False]
        with pytest.raises(ZeroDivisionError), passes.evaluating(model, gradients=gradients):
            raise ZeroDivisionError
        assert [one.training for one in model.modules()] == [True, True, False]
    with torch.inference_mode(), passes.evaluating(model):
        assert not torch.is_inference_mode_enabled()
    with torch.inference_mode():
        model[1].bias = nn.Parameter(torch.zeros(1))  # one of two is enough
    with passes.evaluating(model):
        pass
    with pytest.raises(ModelError) as told, passes.evaluating(model, gradients=True):
        pass
    assert (
        str(told.value)
        == "the weights were made in torch.inference_mode, so they have no gradients. Load the model outside it."
    )


# --- kept values ----------------------------------------------------------------------------------------------------------


def recalled(
    store: Kept, modules: list[nn.Module], key: Any, value: Any, used: Any = None, dtype: torch.dtype = torch.float32
) -> Any:
    return store.recall(modules, key, lambda: value, width=2, dtype=dtype, used={} if used is None else used)


def test_values_are_kept_as_long_as_modules_stay() -> None:
    store, one, other = Kept(), nn.Linear(2, 2), nn.Linear(2, 2)
    used: Any = {}
    assert recalled(store, [one, other], ("a",), 1, used) == 1
    assert recalled(store, [one, other], ("a",), 2, used) == 1
    assert recalled(store, [one, other], ("b",), 3, used) == 3
    assert recalled(store, [other, one], ("a",), 4, used) == 4  # kept with the first of them
    assert list(used) == [one, other]
    memory = used[one]
    assert (memory.state, memory.probe.shape, memory.probe.dtype) == (
        keeping.module_state(one),
        (1, 2, 2),
        torch.float32,
    )
    assert torch.equal(memory.answer, one(memory.probe))
    with torch.no_grad():
        other.weight.add_(1)
    assert recalled(store, [one, other], ("a",), 5, used) == 5
    assert used[one] is memory  # of a module that changed since, the first memory shows it
    assert recalled(store, [one], ("c",), 6) == 6
    one.double()
    assert recalled(store, [one], ("c",), 7, dtype=torch.float64) == 7
    with torch.inference_mode():
        uncounted = nn.Linear(2, 2)
    unused: Any = {}
    assert [recalled(store, [one, uncounted], ("d",), n, unused, torch.float64) for n in (8, 9)] == [8, 9]
    assert unused == {}


def test_what_depends_on_norms_goes_with_them() -> None:
    store, norm, other = Kept(), nn.LayerNorm(2), nn.Linear(2, 2)
    for key in ("norm", "folded"):
        recalled(store, [norm if key == "norm" else other], (key,), torch.zeros(3))
    recalled(store, [other], ("projections",), torch.zeros(5))
    recalled(store, [other], ("words",), "no tensor")
    assert [store.numbers(kind) for kind in ("norm", "folded", "projections", "words")] == [3, 3, 5, 0]
    with torch.no_grad():
        norm.weight.add_(1)
    recalled(store, [norm], ("norm",), torch.zeros(4))
    assert [store.numbers(kind) for kind in ("norm", "folded", "projections")] == [4, 0, 5]
    memory = Memory(None, torch.zeros(1), torch.zeros(1), {("a", 1): (None, 1), ("b",): (None, 2), ("a",): (None, 3)})
    memory.forget_kinds(("a",))
    assert list(memory.values) == [("b",)]
    assert keeping.OF_NORMS == ("folded", "metric", "norms")


def test_forgetting_and_probes() -> None:
    store, inner = Kept(), nn.Linear(2, 2)
    outer, other = nn.Sequential(inner), nn.Linear(2, 2)
    for module in (inner, other):
        recalled(store, [module], ("a",), torch.zeros(1))
    assert [memory is None for memory in store.memories_of([inner, outer, other])] == [False, True, False]
    store.blocks = "some"
    store.forget(outer)
    assert store.blocks is None
    assert [memory is None for memory in store.memories_of([inner, other])] == [True, False]
    store.forget()
    assert store.memories_of([other]) == [None]
    store.clear_graphs()
    store.graphs = {"a": 1}
    store.clear_graphs()
    assert store.graphs == {}
    fresh = Kept()
    generator = torch.Generator().manual_seed(keeping.SEED)
    for _ in range(2):
        rows = torch.randn(1, 2, 3, dtype=torch.float64, generator=generator)
        probe = fresh.probe(3, torch.float32, torch.device("cpu"))
        assert torch.equal(probe, torch.stack([rows[0, 0], rows[0, 1] * 1e-3])[None].float())
    two = type("Two", (nn.Module,), {"forward": lambda self, x: (x.requires_grad_() * 2, x)})()
    assert keeping.answer_of(two, torch.ones(1)).tolist() == [2.0]
    assert not keeping.answer_of(two, torch.ones(1)).requires_grad
    assert keeping.module_state(nn.ReLU()) == ()
    assert len(keeping.module_state(nn.Sequential(nn.Linear(1, 1, bias=False), nn.BatchNorm1d(1))) or ()) == 6
    assert len(keeping.module_state(nn.Linear(1, 1, bias=False)) or ()) == 1
