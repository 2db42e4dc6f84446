"""Load a Hugging Face model, run it once and record what it did. The only file that knows transformers or hooks.

The stock model is touched from outside: the public attention registry of transformers hands over queries, keys and
values after head splitting and rotation; module hooks hand over the residual stream. Both come off when a trace ends,
whatever happens, and the model is left as it came.
"""

from __future__ import annotations

import copy
import inspect
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass, fields
from functools import cached_property
from importlib.util import find_spec
from logging import ERROR, getLogger
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from zlib import crc32

import torch
from torch import Tensor, nn

from ..errors import InputError, MixlensError, ModelError, is_text, nearest, tokens_within
from ..rounding import EPS, HALF, LAYER_TOLERANCE, TOLERANCE, gap
from ..types import Example, LayersOf, LayerTrace, Prediction, Texts, Trace
from .attention import attention_of, attention_weights, repeat_heads
from .families import Family, find
from .kept import Kept
from .offload import HOOK, is_away, is_dispatched, packed_kinds, place_of, weights_of
from .parts import LayerParts, at, layer_parts, refuse_split
from .passes import _RUNNING, Locks, Wanted, apart_from_others, evaluating, hooks, modules_of, plain_numbers, unwatched
from .quantized import refuse_unrunnable
from .words import group_words
from .wrappers import refuse_meta, refuse_meta_default, unwrapped

if TYPE_CHECKING:
    from ..fast.cuda_graphs import Graphs
    from ..layer.proof import Proof

EMBEDDED = Path(__file__).parents[1] / "embedded"
REGISTERED = "mixlens"  # our name in the attention registry of transformers
TASKS = {  # task: (auto class, endings of config.architectures that mean it)
    "classification": ("AutoModelForSequenceClassification", ("ForSequenceClassification",)),
    "token-classification": ("AutoModelForTokenClassification", ("ForTokenClassification",)),
    "question-answering": ("AutoModelForQuestionAnswering", ("ForQuestionAnswering",)),
    "masked-lm": ("AutoModelForMaskedLM", ("ForMaskedLM", "BertForPreTraining")),
    "causal-lm": ("AutoModelForCausalLM", ("ForCausalLM", "LMHeadModel")),
    "base": ("AutoModel", ("Model",)),
}
TOKENIZER_FILES = (
    *("tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model"),
    *("spiece.model", "sentencepiece.bpe.model", "spm.model", "bpe.codes"),
)


# --- recording one forward pass ---------------------------------------------------------------------------------------


class Recorder:
    """Collects one record per layer call, in the order of the calls (a shared layer is called several times)."""

    def __init__(
        self,
        shape: tuple[int, int],
        *,
        attached: bool = False,
        change: Callable[[int, Tensor], Tensor] | None = None,
        each: Callable[[int, LayerTrace], None] | None = None,
        sizes: list[float] | None = None,
    ):
        self.shape = shape  # batch, positions
        self.sizes = sizes  # gets the largest logit, at most, of every layer
        self.each = each  # takes every layer when it is done; then it is forgotten
        self.causal = shape[1] > 1
        self.looked: dict[int, Any] = {}  # masks that do not look ahead; kept, so that an id means one
        self.paused = False
        self.attached = attached  # keep the graph, for gradients
        self.change = change  # other attention weights for a layer: (layer, weights [batch head query key]) -> weights
        self.records: list[dict[str, Any]] = []

    def kept(self, tensor: Tensor) -> Tensor:
        return tensor if self.attached or not tensor.requires_grad else tensor.detach()

    def begin(self, parts: LayerParts, x: Tensor) -> None:
        self.records.append({"parts": parts, "input": self.kept(x)})

    def put(self, name: str, tensor: Tensor) -> None:
        if self.paused:
            return
        tensor = self.kept(tensor)
        if name in self.records[-1]:  # a feed-forward computed in chunks of positions
            tensor = torch.cat([self.records[-1][name], tensor.reshape(self.shape[0], -1, tensor.shape[-1])], 1)
        elif tensor.dim() == 2 and tensor.shape[0] == self.shape[0] * self.shape[1]:  # OPT flattens positions
            tensor = tensor.reshape(*self.shape, -1)
        self.records[-1][name] = tensor

    def leave(self, module: nn.Module, args: Any, output: Any) -> None:
        """A layer is done, and all that is known of it is recorded."""
        if self.each is not None:
            layer, seen = self.layer(len(self.records) - 1), len(self.records) - 1
            if self.causal and (layer.weights is not None or id(layer.mask) not in self.looked):  # layers share their masks
                self.causal = not looks_ahead(layer)
                self.looked[id(layer.mask)] = layer.mask
            self.records[-1] = {}
            self.paused = True  # scoring calls the layer's modules again: that is not the model's own pass
            try:
                self.each(seen, layer)
            finally:
                self.paused = False

    def layers(self) -> list[LayerTrace]:
        return [self.layer(index) for index in range(len(self.records))] if self.each is None else []

    def layer(self, index: int) -> LayerTrace:
        record = self.records[index]
        if "value" not in record:
            raise ModelError(
                f"layer {index} never asked the attention registry of transformers, so its queries, keys and values "
                "were not seen. Its family entry must name the module that returns attention weights (`attention`)."
            )
        # accelerate moves a layer's input only when the layer has begun, which is after we saw it.
        record["input"] = record["input"].to(record["output"].device)
        return LayerTrace(**{key: value for key, value in record.items() if key in _FIELDS})


def _cells(hook: Callable[..., Any]) -> tuple[object, ...]:
    """What tells two hooks of one kind apart: the name under which they note something."""
    return tuple(cell.cell_contents for cell in hook.__closure__ or () if isinstance(cell.cell_contents, str))


LOGITS = ("logits", "start_logits", "end_logits")
_FIELDS = {f.name for f in fields(LayerTrace)}
_RECORDER: ContextVar[Recorder | None] = ContextVar("mixlens_recorder", default=None)
_CAPPED: ContextVar[bool] = ContextVar("mixlens_capped", default=True)  # does the model's own attention cap its logits?


def _attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """Our entry in the attention registry: notes what it is given, then lets the fast kernel do the work."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    recorder = _RECORDER.get()
    if not _CAPPED.get():
        options.pop("softcap", None)
    softcap = options.get("softcap")
    scaling = options.get("scaling")
    recording = recorder is not None and bool(recorder.records)
    keep = recorder.kept if recorder is not None else Tensor.detach
    seen = {
        "query": keep(query),
        "key": keep(key),
        "value": keep(value),
        "mask": attention_mask,
        "scaling": query.shape[-1] ** -0.5 if scaling is None else scaling,
        "softcap": softcap,
    }
    if recorder is not None and recorder.sizes is not None:
        size = float(query.float().norm(dim=-1).max() * key.float().norm(dim=-1).max()) * seen["scaling"]
        recorder.sizes.append(size if softcap is None else min(size, 2 * softcap))
    for unknown in ("position_bias", "s_aux"):
        if options.get(unknown) is not None:
            raise ModelError(f"{type(module).__name__} adds {unknown} to its attention, which mixlens does not model yet.")
    if recorder is not None and recording:
        recorder.records[-1].update(seen)
    written_out = recorder is not None and recording and (recorder.attached or recorder.change is not None)
    # The fast kernel cannot cap logits, nor show its weights; for float32 on a GPU it is none.
    quicker = recording and softcap is None and not written_out and _quicker_written_out(query)
    if softcap is not None or written_out or quicker:
        read, scale = (query * seen["scaling"], 1.0) if quicker else (query, seen["scaling"])
        weights = attention_weights(read, key, attention_mask, scaling=scale, softcap=softcap)
        if recorder is not None and recorder.change is not None:
            weights = recorder.change(len(recorder.records) - 1, weights)
        if recorder is not None and recorder.attached:
            recorder.records[-1]["weights"] = weights
        output = weights.to(value.dtype) @ repeat_heads(value, query.shape[1])
        return output.transpose(1, 2).contiguous(), None
    output, _ = sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    return output, None


def _quicker_written_out(query: Tensor) -> bool:
    """Float32 on a GPU: two products and a softmax take two thirds of the time, as long as the weights are not large."""
    batch, heads, n, _ = query.shape
    return query.is_cuda and query.dtype == torch.float32 and batch * heads * n * n <= 1 << 25 and not torch.is_grad_enabled()


def _mask(*args: Any, **options: Any) -> Tensor | None:
    """The mask written out, also where the kernel could do without: a trace must know who may look where."""
    from transformers.masking_utils import sdpa_mask

    if options.get("allow_is_bidirectional_skip") and options.get("attention_mask") is None and options.get("local_size") is None:
        return None  # as sdpa_mask does, but also while a pass is captured
    return sdpa_mask(*args, **{**options, "allow_is_causal_skip": False})


@contextmanager
def registered_attention(configs: Sequence[Any], *, capped: bool = True) -> Iterator[None]:
    """Our attention function for the length of the block, then the model's own again.

    `capped`: whether it caps logits where a layer asks for that. Some functions of transformers ignore the cap, and a trace is
    of what the model does.
    """
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(REGISTERED, _attention)
    AttentionMaskInterface.register(REGISTERED, _mask)
    before, token = [config._attn_implementation for config in configs], _CAPPED.set(capped)
    try:
        for config in configs:
            config._attn_implementation = REGISTERED
        yield
    finally:
        _CAPPED.reset(token)
        for config, own_name in zip(configs, before, strict=True):
            config._attn_implementation = own_name


@contextmanager
def recorded(recorder: Recorder | None) -> Iterator[None]:
    """What attention is given within the block goes to this recorder, or to none."""
    token = _RECORDER.set(recorder)
    try:
        yield
    finally:
        _RECORDER.reset(token)


def configurations(model: nn.Module) -> list[Any]:
    """The configurations by which modules choose their attention; a copied layer may have one of its own."""
    held = [module.__dict__["config"] for module in model.modules() if "config" in module.__dict__]
    return list({id(config): config for config in held if hasattr(config, "_attn_implementation")}.values())


def first(output: Any) -> Tensor:
    return output[0] if isinstance(output, tuple) else output


def hidden_argument(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    return args[0] if args else kwargs["hidden_states"]


@dataclass(frozen=True)
class Attached:
    """One forward pass with its graph, for gradients. All tensors have a batch axis."""

    output: Any  # what the stock model returned
    word: Tensor  # word embeddings, [batch pos d]
    summed: Tensor  # what the embedding norm reads: word, position and segment added; without one, the first layer's input
    inputs: tuple[Tensor, ...]  # of each layer
    outputs: tuple[Tensor, ...]
    attention: tuple[Tensor, ...]  # [batch head query key]


@dataclass(frozen=True)
class LayerGraph:
    """One layer of a forward pass, with its graph. Batch axis of one: [1 pos d] and [1 head pos e]."""

    input: Tensor  # x, where the graph begins
    read: Tensor  # what attention read: x, or the norm before attention of x
    query: Tensor | None  # after position rotation; None where the model's own code keeps them
    key: Tensor | None
    value: Tensor
    output: Tensor


class _Done(Exception):  # noqa: N818 - not an error: a pass that need not go on
    pass


# --- encoded text -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Encoded:
    """One example as the model reads it, without padding."""

    input_ids: tuple[int, ...]
    attention_mask: tuple[int, ...]
    token_type_ids: tuple[int, ...] | None
    tokens: tuple[str, ...]
    special: tuple[bool, ...]
    words: Any
    text: str | None = None
    pair: str | None = None
    offsets: tuple[tuple[int, int], ...] | None = None  # the characters of each token, in the text it comes from
    sequences: tuple[int | None, ...] | None = None  # that text: 0, 1 (the pair), or None for a token that was added


def has_segments(one: Any) -> bool:
    """Segments all 0 are no segments: most models take them so anyway, and GPT-2 would add the embedding of token 0."""
    return bool(one.token_type_ids) and any(one.token_type_ids)


class Model:
    """A Hugging Face model, its tokenizer and its family. Made by `mixlens.load`."""

    def __init__(
        self,
        hf_model: Any,
        tokenizer: Any = None,
        *,
        name: str,
        task: str,
        family: Family,
        revision: str | None = None,
    ):
        self.hf_model, self.tokenizer = hf_model, tokenizer
        self.name, self.task, self.family, self.revision = name, task, family, revision
        self.kept = Kept()
        self.parts = layer_parts(hf_model.base_model, family, self.kept)
        refuse_split(name, self.parts)
        self._configs = configurations(hf_model)
        self._lock = Locks(self._configs)  # one pass at a time: the attention registry is switched on the configuration
        self._attention_proven: list[tuple[object, bool]] = []  # functions of the stock model; whether they cap logits
        self._accepts = set(inspect.signature(hf_model.forward).parameters)
        self.proof: Proof | None = None

    @property
    def graphs(self) -> Graphs:
        """Captured CUDA graphs of this model, in its store; an empty set of them at first."""
        from ..fast.cuda_graphs import Graphs

        with self.kept.lock:
            self.kept.graphs = self.kept.graphs or Graphs()
            return self.kept.graphs

    def __repr__(self) -> str:
        return f"Model({self.name!r}, family={self.family.name!r}, task={self.task!r}, dtype={self.dtype}, device={self.device})"

    @property
    def device(self) -> torch.device:
        """Where inputs enter and scores meet. Layers of a model that accelerate spread out may run elsewhere (`placement`)."""
        return place_of(self.hf_model) if HOOK in self.hf_model.__dict__ else self.hf_model.device

    @property
    def devices(self) -> list[str]:
        """The devices that its layers run on, in their order."""
        return list(dict.fromkeys(str(place_of(parts.output)) for parts in self.parts))

    @property
    def dispatched(self) -> bool:
        """Was it spread over devices, or offloaded, by accelerate?"""
        return HOOK in self.hf_model.__dict__ and is_dispatched(self.hf_model)

    @property
    def placement(self) -> str:
        """Where the layers run, and how many of them are brought in for each call."""
        away = sum(is_away(parts.output) for parts in self.parts)
        return ", ".join(self.devices) + (f"; {away} of {len(self.parts)} layers offloaded" if away else "")

    @cached_property
    def quantization(self) -> str | None:
        """How its weights are packed, or None for ordinary numbers."""
        given = getattr(self.hf_model.config, "quantization_config", None)
        return _quantization(given) if given is not None else ", ".join(packed_kinds(self.hf_model)) or None

    @property
    def dtype(self) -> torch.dtype:
        return self.hf_model.dtype

    @property
    def n_layers(self) -> int:
        """How many layers one pass calls."""
        inner = 1 if self.family.inner_layers is None else getattr(self.hf_model.config, self.family.inner_layers)
        return self.hf_model.config.num_hidden_layers * inner

    @cached_property
    def max_tokens(self) -> int | None:
        """The longest input, or None when nothing limits it."""
        for name, module in self.hf_model.base_model.named_modules():
            if isinstance(module, nn.Embedding) and name.endswith(("position_embeddings", "wpe")):
                pad = module.padding_idx  # RoBERTa counts positions from its padding id
                return module.num_embeddings - (0 if pad is None else pad + 1)
        return getattr(self.hf_model.config, "max_position_embeddings", None)

    # - text in

    def encode(self, text: str | Example | tuple[str, str]) -> Encoded:
        if isinstance(text, tuple) and len(text) != 2:
            raise InputError(f"a tuple is a text and its pair, not {len(text)} things.")
        example = text if isinstance(text, Example) else Example(*text) if isinstance(text, tuple) else Example(text)
        if not isinstance(example.text, str) or not isinstance(example.pair, str | None):
            raise InputError(f"a text must be a string, not {type(example.text).__name__}. Got {example.text!r}.")
        for given in (example.text, example.pair or ""):
            if not is_text(given):
                raise InputError("the text holds half a character (a lone surrogate), which is no text.")
        if not example.text.strip():
            raise InputError("the text is empty. Give at least one word.")
        if self.tokenizer is None:
            raise InputError(
                f"{self.name!r} has no tokenizer, so it cannot read text. Pass tokenizer= to mixlens.load, "
                "or give ids: model.trace(input_ids=[...])."
            )
        fast = bool(getattr(self.tokenizer, "is_fast", False))
        coded = self.tokenizer(
            example.text,
            example.pair,
            return_special_tokens_mask=True,
            return_offsets_mapping=fast,
            verbose=False,
        )
        ids = [int(i) for i in coded["input_ids"]]
        if not ids:
            raise InputError(f"the tokenizer finds no token in {example.text!r}.")
        special = self.special_ids
        tokens, words, offsets, sequences = self.tokens(ids), None, None, None
        if fast:
            offsets, sequences = tuple(map(tuple, coded["offset_mapping"])), tuple(coded.sequence_ids(0))
            words = group_words((example.text, example.pair), offsets, sequences, tokens)
        return Encoded(
            input_ids=tuple(ids),
            attention_mask=(1,) * len(ids),
            token_type_ids=tuple(coded["token_type_ids"]) if "token_type_ids" in coded else None,
            tokens=tokens,
            special=tuple(i in special for i in ids),
            words=words,
            text=example.text,
            pair=example.pair,
            offsets=offsets,
            sequences=sequences,
        )

    @property
    def special_ids(self) -> set[int]:
        """Ids that carry no content: what the tokenizer adds around a text, or what the configuration names."""
        if self.tokenizer is not None:
            return set(self.tokenizer.all_special_ids) - {self.tokenizer.mask_token_id, self.tokenizer.unk_token_id}
        names = ("bos", "eos", "cls", "sep", "pad")
        ids = [getattr(self.hf_model.config, f"{name}_token_id", None) for name in names]
        # A configuration may name several ends of a text in one list.
        return {i for entry in ids for i in (entry if isinstance(entry, (list, tuple)) else [entry]) if isinstance(i, int)}

    def tokens(self, ids: Sequence[int]) -> tuple[str, ...]:
        """The tokenizer's strings, or the ids as strings where there is no tokenizer."""
        if self.tokenizer is None:
            return tuple(map(str, ids))
        return tuple(map(str, self.tokenizer.convert_ids_to_tokens(list(ids))))

    def encode_ids(self, ids: Any, types: Any = None, mask: Any = None) -> Encoded:
        """Ids as given. Padding at the ends (mask 0) is cut off: a padded input is the same input."""
        ids, types, mask = (
            _integers(name, v) for name, v in (("input_ids", ids), ("token_type_ids", types), ("attention_mask", mask))
        )
        assert ids is not None
        for name, other in (("token_type_ids", types), ("attention_mask", mask)):
            if other is not None and len(other) != len(ids):
                raise InputError(f"{name} has {len(other)} entries, input_ids has {len(ids)}. They must be of one length.")
        vocabulary = self.hf_model.config.vocab_size
        kinds = getattr(self.hf_model.config, "type_vocab_size", None) or vocabulary  # GPT-2 looks segments up among tokens
        if types is not None and any(not 0 <= i < kinds for i in types):
            raise InputError(f"token_type_ids of {self.name!r} are 0 to {kinds - 1}.")
        if mask is not None and any(i not in (0, 1) for i in mask):
            raise InputError("attention_mask is 1 for a token that is read and 0 for one that is not.")
        mask = mask if mask is not None else [1] * len(ids)
        if not any(mask):
            raise InputError("input_ids is empty, or attention_mask hides every token. Give at least one token.")
        if ids and not (min(ids) >= 0 and max(ids) < vocabulary):
            wrong = next(i for i in ids if not 0 <= i < vocabulary)
            raise InputError(f"id {wrong} is not in the vocabulary of {self.name!r} (0 to {vocabulary - 1}).")
        start, end = mask.index(1), len(mask) - mask[::-1].index(1)
        ids = ids[start:end]
        special = self.special_ids
        return Encoded(
            input_ids=tuple(ids),
            attention_mask=tuple(mask[start:end]),
            token_type_ids=None if types is None else tuple(types[start:end]),
            tokens=self.tokens(ids),
            special=tuple(map(special.__contains__, ids)),
            words=None,
        )

    # - one forward pass

    def trace(
        self,
        text: Texts | None = None,
        *,
        input_ids: Any = None,
        token_type_ids: Any = None,
        attention_mask: Any = None,
        batch_size: int | None = None,
    ) -> Any:
        """Run the model once and record it. One text gives a Trace, a list of texts a list of traces.

        Texts may be strings, (text, pair) tuples or Examples; or give `input_ids`, one list or a list of lists.
        Lists are run in batches of similar length; the numbers are those of each text alone.
        """
        encoded, many = self._encoded(text, input_ids, token_type_ids, attention_mask)
        traces: dict[int, Trace] = {}
        for batch in self._batches(encoded, batch_size):
            traces |= zip(batch, self._run([encoded[i] for i in batch])[0], strict=True)
        return [traces[i] for i in range(len(encoded))] if many else traces[0]

    def mix(
        self,
        text: Texts | None = None,
        name: str | Sequence[str] = "alti",
        *,
        input_ids: Any = None,
        token_type_ids: Any = None,
        attention_mask: Any = None,
        batch_size: int | None = None,
        **options: Any,
    ) -> Any:
        """`mixlens.mix(model.trace(text), name)` in one pass that keeps nothing: every layer is scored as soon as it has run,
        then released (short inputs on a GPU are scored whole, which is quicker). For long inputs, large models and corpora.
        Methods that need all layers at once are refused.
        """
        from ..maps import streamed

        encoded, many = self._encoded(text, input_ids, token_type_ids, attention_mask)
        maps: dict[int, Any] = {}
        for batch in self._batches(encoded, batch_size):
            maps |= zip(batch, streamed(self, [encoded[i] for i in batch], name, **options), strict=True)
        return [maps[i] for i in range(len(encoded))] if many else maps[0]

    def _encoded(
        self, text: Texts | None, input_ids: Any, token_type_ids: Any, attention_mask: Any
    ) -> tuple[list[Encoded], bool]:
        """What is to be run, checked; and whether it was one thing or many."""
        if (text is None) == (input_ids is None):
            raise InputError("give either a text or input_ids=, not both and not neither.")
        if input_ids is not None:
            many = _is_nested(input_ids)
            rows = [input_ids, token_type_ids, attention_mask]
            if many and any(row is not None and (not hasattr(row, "__len__") or len(row) != len(input_ids)) for row in rows):
                raise InputError("input_ids, token_type_ids and attention_mask must hold the same number of examples.")
            columns = [[None] * len(input_ids) if row is None else row for row in rows] if many else [[row] for row in rows]
            encoded = [self.encode_ids(*row) for row in zip(*columns, strict=True)]
        else:
            many = isinstance(text, Sequence) and not isinstance(text, str | tuple)
            texts: Any = text if many else [text]
            encoded = [self.encode(one) for one in texts]
        for one in encoded:
            tokens_within(len(one.input_ids), self.max_tokens, repr(self.name))
        return encoded, many

    def _batches(
        self, encoded: Sequence[Encoded | Trace], batch_size: int | None, tokens: int | None = None
    ) -> Iterator[list[int]]:
        """Indices, sorted by length, in batches of about 2,048 tokens, on a GPU 8,192 (or of `batch_size` examples)."""
        if batch_size is not None and batch_size < 1:
            raise InputError(f"batch_size must be at least 1, not {batch_size}.")
        batch_size = self.batch_limit or batch_size
        tokens = tokens or (2048 if self.device.type == "cpu" else 8192)
        batch: list[int] = []
        for i in sorted(range(len(encoded)), key=lambda i: (has_segments(encoded[i]), len(encoded[i].input_ids), i)):
            length = len(encoded[i].input_ids)
            full = len(batch) >= (batch_size or max(1, tokens // length))
            # Attention code of a family's own rounds in float32, in an order that depends on the padded length: no padding.
            odd = self.family.attention is not None and batch and len(encoded[batch[0]].input_ids) != length
            mixed = batch and has_segments(encoded[batch[0]]) != has_segments(encoded[i])
            if batch and (full or odd or mixed):
                yield batch
                batch = []
            batch.append(i)
        if batch:
            yield batch

    def inputs(self, encoded: Sequence[Encoded | Trace]) -> dict[str, Any]:
        """What the stock model is called with: one batch, padded on the right."""
        n, device = max(len(one.input_ids) for one in encoded), self.device
        whole = (1,) * n

        def padded(rows: Sequence[Sequence[int]], fill: int) -> Tensor:
            if all(row == whole for row in rows):  # nothing to send to a GPU
                return torch.ones(len(rows), n, dtype=torch.long, device=device)
            made = torch.tensor([[*row, *[fill] * (n - len(row))] for row in rows], device="cpu")
            return made.to(device, non_blocking=True)

        inputs: dict[str, Any] = {
            "input_ids": padded([one.input_ids for one in encoded], self.pad_id),
            "attention_mask": padded([one.attention_mask for one in encoded], 0),
        }
        if any(has_segments(one) for one in encoded) and "token_type_ids" in self._accepts:
            inputs["token_type_ids"] = padded([one.token_type_ids or [0] * len(one.input_ids) for one in encoded], 0)
        if "use_cache" in self._accepts:
            inputs["use_cache"] = False
        return inputs

    def _run(
        self, encoded: Sequence[Encoded], *, watch: bool = False, each: Callable[[int, LayerTrace], None] | None = None
    ) -> tuple[list[Trace], list[dict[str, Any]]]:
        """The traced pass over one batch, padded on the right. `watch` also notes what the proof compares.

        `each` gets every layer's number and record as soon as it is there; then it is forgotten, and the traces have no layers.
        """
        started = time.perf_counter()
        inputs = self._asked(encoded)
        n = inputs["input_ids"].shape[1]
        recorder = Recorder((len(encoded), n), each=each)
        with self._lock, plain_numbers(), torch.no_grad():
            replayed = None
            if each is None and not watch and inputs["input_ids"].is_cuda:
                replayed = self.graphs.passed(self.hf_model, inputs, lambda given: self._passed(given, recorder))
            output, recorder.records = replayed or self._passed(inputs, recorder, watch=watch)
        layers = recorder.layers()
        if len(recorder.records) != self.n_layers:
            raise ModelError(
                f"{len(recorder.records)} layers were seen at {self.family.layers!r}, the configuration says {self.n_layers}. "
                f"The family entry {self.family.name!r} names the wrong layers."
            )
        info: dict[str, Any] = {"forward_seconds": time.perf_counter() - started, "batch": len(encoded), "padded_to": n}
        info["dtype"] = self.dtype
        if each is not None:
            info["causal"] = recorder.causal
        made = [self._slice(one, row, layers, output, info) for row, one in enumerate(encoded)]
        return made, recorder.records

    def _run_whole(
        self, encoded: Sequence[Encoded], what: object, compute: Callable[[Sequence[LayerTrace]], Any]
    ) -> tuple[list[Trace], Any] | None:
        """A pass and `compute(its layers)`, on a GPU, replayed as one: the traces without layers, and what was computed.

        None where it is to be done in the ordinary way: the first times, and where it cannot be captured. `what`: all that
        `compute` depends on besides the model and the layers.
        """
        started = time.perf_counter()
        inputs = self._asked(encoded)
        n, causal = inputs["input_ids"].shape[1], False

        def run(given: dict[str, Any]) -> tuple[Any, Any, bool]:
            nonlocal causal
            recorder = Recorder((len(encoded), n))
            output, _ = self._passed(given, recorder)
            layers = recorder.layers()
            if not torch.cuda.is_current_stream_capturing():  # it is always run once before it is captured
                causal = n > 1 and not any(map(looks_ahead, {id(layer.mask): layer for layer in layers}.values()))
            return output, compute(layers), causal

        with self._lock, plain_numbers(), torch.no_grad():
            replayed = self.graphs.passed(self.hf_model, inputs, run, what=what, parts=self.parts)
        if replayed is None:
            return None
        output, made, causal = replayed
        info = {"forward_seconds": time.perf_counter() - started, "batch": len(encoded), "padded_to": n, "causal": causal}
        return [self._slice(one, row, [], output, info) for row, one in enumerate(encoded)], made

    def _asked(self, encoded: Sequence[Encoded]) -> dict[str, Any]:
        """`inputs` without a mask where nothing is hidden: the model need not find that out, which makes a GPU wait."""
        inputs = self.inputs(encoded)
        n = inputs["input_ids"].shape[1]
        if all(len(one.input_ids) == n and all(one.attention_mask) for one in encoded):
            del inputs["attention_mask"]
        return inputs

    def _passed(
        self, inputs: Mapping[str, Any], recorder: Recorder, *, watch: bool = False
    ) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The stock model called once while `recorder` looks on: its logits, and what was seen."""
        recorder.records.clear()
        if self.family.attention is None and not _RUNNING.get() and self._foreign_attention():
            with self._lock, apart_from_others(), evaluating(self.hf_model):
                self._prove_attention(inputs)
        with self._pass(lambda: self._record_hooks(recorder, watch=watch), recorder=recorder):
            output = self._called(inputs)
        return {name: getattr(output, name, None) for name in LOGITS}, recorder.records[:]

    @contextmanager
    def _pass(
        self, wanted: Callable[[], Sequence[Wanted]] = tuple, *, recorder: Recorder | None = None, gradients: bool = False
    ) -> Iterator[None]:
        """All that surrounds a call of the stock model. `wanted` gives the hooks, once the layers' modules are known."""
        with ExitStack() as stack:
            for entered in (self._lock, apart_from_others(), evaluating(self.hf_model, gradients=gradients)):
                stack.enter_context(entered)
            self._find_parts()
            stack.enter_context(self._own_attention())
            stack.enter_context(hooks(wanted()))
            stack.enter_context(recorded(recorder))
            yield

    @contextmanager
    def computing(self) -> Iterator[None]:
        """For calls of single modules: in evaluation mode, as they were traced (a LoRA module in training mode may drop some of
        its input), and in their own numbers."""
        if any(module.training for module in modules_of(self.hf_model)):
            with self._lock, unwatched(), evaluating(self.hf_model):
                yield
        else:
            with unwatched(), plain_numbers():
                yield

    def _called(self, inputs: Mapping[str, Any]) -> Any:
        """The stock model's answer. What its own code refuses is said in one line."""
        try:
            return self.hf_model(**inputs)
        except MixlensError:
            raise
        except ValueError as error:
            raise InputError(f"{self.name!r} itself refuses this input: {_one_line(error)}") from error

    def _find_parts(self) -> None:
        """A module may have been replaced since the model was loaded: the modules that it has now are read."""
        found = layer_parts(self.hf_model.base_model, self.family, self.kept)
        if found != self.parts:
            self.parts, self._configs = found, configurations(self.hf_model)
            self.graphs.clear()

    def _own_attention(self) -> AbstractContextManager[None]:
        """Our entry in the registry, for families that ask the registry; first it is shown to do what the model's own does."""
        if self.family.attention is not None:
            return nullcontext()
        if any(config._attn_implementation == REGISTERED for config in self._configs):  # a pass inside a pass
            return registered_attention(self._configs, capped=_CAPPED.get())
        own = self._implementation()
        known = next((capped for function, capped in self._attention_proven if function == own), None)
        if known is None:
            known = self._prove_attention()
            self._attention_proven.append((own, known))
        return registered_attention(self._configs, capped=known)

    def _implementation(self) -> tuple[Any, Any, Any]:
        """What computes attention in the stock model now: functions that are registered, those in its own code, and which of its
        modules look back alone."""
        from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

        names = dict.fromkeys(config._attn_implementation for config in self._configs)
        registered = tuple((name, ALL_ATTENTION_FUNCTIONS.get(name), ALL_MASK_ATTENTION_FUNCTIONS.get(name)) for name in names)
        modules = [part for parts in self.parts for part in modules_of(parts.layer)]
        files = dict.fromkeys(type(part).__module__ for part in modules)
        looking = tuple(part.__dict__["is_causal"] for part in modules if "is_causal" in part.__dict__)
        return registered, tuple(getattr(sys.modules[file], "eager_attention_forward", None) for file in files), looking

    def _foreign_attention(self) -> bool:
        """Is a function that computes the stock model's attention, or its mask, not one of transformers'? What such a function
        does may depend on anything, so it is compared on every text."""
        registered, written, _ = self._implementation()
        functions = [function for _, *some in registered for function in some] + list(written)
        known = ("transformers.", "torch.")
        return any(
            function is not None and not str(getattr(function, "__module__", "")).startswith(known) for function in functions
        )

    def _few_tokens(self) -> dict[str, Any]:
        seeded = torch.Generator(device="cpu").manual_seed(0)
        vocabulary, longest = self.hf_model.config.vocab_size, min(9, self.max_tokens or 9)
        drawn = torch.randint(0, vocabulary, (longest,), generator=seeded, device="cpu").tolist()
        return self.inputs([self.encode_ids([i if i != self.pad_id else (i + 1) % vocabulary for i in drawn])])

    def _prove_attention(self, inputs: Mapping[str, Any] | None = None) -> bool:
        """The stock model run with its own attention and with ours, on a few random tokens or on `inputs`: refused where they
        differ, since a trace would then be of another model. Says whether the model's own attention caps its logits.

        Every layer reads the same in both runs, so that rounding of one layer does not enter the next.
        """
        inputs = self._few_tokens() if inputs is None else inputs
        name = ", ".join(dict.fromkeys(str(config._attn_implementation) for config in self._configs))
        read: list[Tensor] = []
        try:
            own = self._written(inputs, nullcontext(), read, [])
        except (RuntimeError, ImportError, TypeError) as error:
            raise ModelError(
                f"{self.name!r} cannot run with its own attention ({name}) here: {_one_line(error)}. "
                "Load it with attn_implementation='sdpa' or 'eager'."
            ) from error
        most = max(LAYER_TOLERANCE[self.dtype], TOLERANCE[torch.float32])  # eager attention has a softmax in float32
        worst: list[float] = []
        for capped in (True, False):
            sizes: list[float] = []
            ours = self._written(inputs, registered_attention(self._configs, capped=capped), read, sizes)
            if len(sizes) != len(ours):  # some layer does not ask the registry: a trace says so
                return capped
            # In half precision logits may be rounded too: a large one by more than 1.
            eps = EPS[self.dtype] if self.dtype in HALF else 0.0
            each = zip(ours, own, sizes, strict=True)
            worst.append(max(gap(a, b) * most / (most + 2 * eps * size) for a, b, size in each))
            if worst[-1] <= most:
                return capped
        advice = (
            "Load it with attn_implementation='sdpa' or 'eager', unpatched."
            if self._foreign_attention()
            else f"Its weights are too large for {self.dtype}, or its modules were changed: load it in float32, or anew."
        )
        raise ModelError(
            f"{self.name!r} computes attention by a function of its own ({name}), and a trace would be of another model: what "
            f"attention writes would differ by {min(worst):.1e} (relative, allowed {most:.0e}). {advice}"
        )

    def _written(
        self, inputs: Mapping[str, Any], attention: AbstractContextManager[None], read: list[Tensor], sizes: list[float]
    ) -> list[Tensor]:
        """What attention writes in each layer. What the layers read is added to `read`; if it is there, they read it again, and
        the largest logit of each layer, at most, is added to `sizes`."""
        seen: list[Tensor] = []
        again, recorder = list(read), Recorder((1, 1), sizes=sizes)

        def enter(module: nn.Module, args: Any, kwargs: Any) -> Any:
            x = hidden_argument(args, kwargs)
            recorder.records.append({})
            if not again:
                read.append(x)
                return None
            x = again[len(recorder.records) - 1].to(x.device)
            return ((x, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": x})

        layers = {id(parts.layer): parts.layer for parts in self.parts}.values()
        modules = {id(parts.output): parts.output for parts in self.parts}.values()
        note: list[Wanted] = [(layer, "before", enter) for layer in layers]
        note += [(module, "after", lambda _, args, output: seen.append(first(output))) for module in modules]
        with attention, hooks(note), recorded(recorder if again else None):
            self._called(inputs)
        return seen

    def _record_hooks(self, recorder: Recorder, *, watch: bool) -> list[Wanted]:
        wanted: list[Wanted] = []

        def put(name: str) -> Callable[..., None]:
            return lambda module, args, output: recorder.put(name, first(output))

        def put_input(name: str) -> Callable[..., None]:
            return lambda module, args, kwargs: recorder.put(name, args[0])

        def put_weights(parts: LayerParts) -> Callable[..., None]:
            def note(module: nn.Module, args: Any, output: Any) -> None:
                weights = output[1] if isinstance(output, tuple) and len(output) > 1 else None
                if not isinstance(weights, Tensor):
                    eager = all(config._attn_implementation == "eager" for config in self._configs)
                    raise ModelError(
                        f"{type(module).__name__} returned no attention weights, "
                        + (
                            "although it runs with attn_implementation='eager': its code keeps them, so mixlens cannot read it."
                            if eager
                            else "because it runs with another attention. Load it with attn_implementation='eager'."
                        )
                    )
                value = recorder.records[-1].pop("value_output")
                shape = (*value.shape[:2], weights.shape[1], -1)
                recorder.records[-1] |= {"weights": recorder.kept(weights), "value": value.view(shape).transpose(1, 2)}

            return note

        for parts in self.parts:  # layers, or parts of them, may be one and the same: see below
            wanted += [
                (parts.layer, "before", lambda module, args, kwargs, p=parts: recorder.begin(p, hidden_argument(args, kwargs))),
                (parts.output, "after", put("attention_output")),
                (parts.mlp_down, "after", put("mlp_output")),
                (parts.layer, "after", put("output")),
            ]
            if parts.norm_after_attention is not None:
                wanted.append((parts.norm_after_attention, "after", put("middle")))
            if watch:
                wanted += [
                    (parts.value, "before", put_input("attention_input")),
                    (parts.value, "after", put("value_seen")),
                    (parts.mlp_up, "before", put_input("mlp_input")),
                ]
            if parts.attention is not None:
                wanted += [(parts.value, "after", put("value_output")), (parts.attention, "after", put_weights(parts))]
        once: dict[tuple[object, ...], Wanted] = {}
        for module, when, hook in wanted:  # what a hook notes is of the layer that runs, so a shared module needs each hook once
            once.setdefault((id(module), when, hook.__qualname__, *_cells(hook)), (module, when, hook))
        wanted = list(once.values())
        if recorder.each is not None:
            wanted += [(layer, "after", recorder.leave) for layer in {id(p.layer): p.layer for p in self.parts}.values()]
        return wanted

    def _slice(
        self, one: Encoded, row: int, layers: Sequence[LayerTrace], output: Mapping[str, Any], info: Mapping[str, Any]
    ) -> Trace:
        """Example `row` of a traced batch, padding cut off."""
        logits, predicts = self._kept_logits(one, row, output)
        return Trace(
            model=self,
            tokens=one.tokens,
            input_ids=one.input_ids,
            attention_mask=one.attention_mask,
            token_type_ids=one.token_type_ids,
            layers=LayersOf(layers, row, len(one.input_ids)),
            special=one.special,
            words=one.words,
            text=one.text,
            pair=one.pair,
            logits=logits,
            predicts=predicts,
            info=info,
        )

    def _kept_logits(self, one: Encoded, row: int, output: Mapping[str, Any]) -> tuple[Tensor | None, tuple[int, ...]]:
        """The logits a prediction needs, not a vocabulary for every token."""
        n = len(one.input_ids)
        if self.task == "question-answering":
            return torch.stack([output["start_logits"][row, :n], output["end_logits"][row, :n]], -1), tuple(range(n))
        logits = output["logits"]
        if logits is None:
            return None, ()
        if self.task == "classification":
            return logits[row], ()
        if self.task == "token-classification":
            return logits[row, :n], tuple(range(n))
        mask = self.mask_id
        places = [n - 1] if self.task == "causal-lm" else [i for i, t in enumerate(one.input_ids) if t == mask]
        return logits[row, places], tuple(places)

    @property
    def batch_limit(self) -> int | None:
        """1 where a head finds the last token by a padding id that is not there."""
        return 1 if self.task == "classification" and self._pad_token is None else None

    @property
    def mask_id(self) -> int | None:
        return None if self.tokenizer is None else self.tokenizer.mask_token_id

    def rerun(self, trace: Trace, layer: int, x: Tensor) -> Tensor:
        """Layer `layer` run again on another input x [pos, d], in the setting of this trace: what it puts out."""
        return self._again(trace, layer, "layer", x)

    def run_with_attention(self, trace: Trace, layer: int, change: Callable[[Tensor], Tensor]) -> Tensor:
        """Layer `layer` run again with `change([head query key])` in place of its attention weights: what it puts out.

        The weighted sum of the values is made here and handed to the model's own W_O, so that it works for every family.
        """
        self._known_layer(layer)
        seen = trace.layers[layer]
        weights = change(attention_of(seen))
        context = weights @ repeat_heads(seen.value.to(weights.dtype), weights.shape[-3])  # [head query e]
        return self._again(trace, layer, "output", context.transpose(-3, -2).flatten(-2))

    def _known_layer(self, layer: int) -> None:
        if not 0 <= layer < self.n_layers:
            raise InputError(f"layer {layer} does not exist; {self.name!r} has {self.n_layers} layers, 0 to {self.n_layers - 1}.")

    def _again(self, trace: Trace, layer: int, place: str, new: Tensor) -> Tensor:
        """The output [pos, d] of layer `layer` when its module `place` reads `new` instead of what came."""
        self._known_layer(layer)
        calls = 0
        caught: list[Tensor] = []

        def count(module: nn.Module, args: Any, kwargs: Any) -> None:
            nonlocal calls
            calls += 1

        def swap(module: nn.Module, args: Any, kwargs: Any) -> Any:
            if calls != layer + 1:
                return None
            given = new.to(device=self.device, dtype=self.dtype).reshape(hidden_argument(args, kwargs).shape)
            return ((given, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": given})

        def stop(module: nn.Module, args: Any, output: Any) -> None:
            if calls == layer + 1:
                caught.append(first(output)[0])
                raise _Done

        def wanted() -> list[Wanted]:
            every = list({id(parts.layer): parts for parts in self.parts}.values())
            found: list[Wanted] = [(parts.layer, "before", count) for parts in every]
            found += [(getattr(parts, place), "before", swap) for parts in every]
            return found + [(parts.layer, "after", stop) for parts in every]

        with suppress(_Done), self._pass(wanted):
            self._called(self.inputs([trace]))
        return caught[0]

    def local_graphs(self, trace: Trace) -> list[LayerGraph]:
        """One forward pass that keeps each layer's graph from its input to its queries, keys, values and output.

        Every layer reads a copy of its input that has no past: a gradient stays inside its layer.
        """
        recorder = Recorder((1, len(trace)), attached=True)
        read: list[Tensor] = []

        def cut(module: nn.Module, args: Any, kwargs: Any) -> Any:
            x = hidden_argument(args, kwargs).detach().to(place_of(by_layer[id(module)].output)).requires_grad_()
            recorder.begin(by_layer[id(module)], x)
            read.append(x)
            return ((x, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": x})

        def normed(module: nn.Module, args: Any, output: Tensor) -> None:
            read[-1] = output

        by_layer: dict[int, LayerParts] = {}

        def wanted() -> list[Wanted]:
            by_layer.update({id(parts.layer): parts for parts in self.parts})
            found: list[Wanted] = [(parts.layer, "before", cut) for parts in by_layer.values()]
            found += [hook for hook in self._record_hooks(recorder, watch=False) if hook[:2] not in [w[:2] for w in found]]
            return found + [(p.norm_before_attention, "after", normed) for p in self.parts if p.norm_before_attention is not None]

        with self._pass(wanted, recorder=recorder, gradients=True):
            self._called(self.inputs([trace]))
        return [
            LayerGraph(record["input"], h, *(record.get(name) for name in ("query", "key", "value", "output")))  # type: ignore[arg-type]
            for record, h in zip(recorder.records, read, strict=True)
        ]

    def run_from(
        self,
        trace: Trace,
        change: Callable[[Tensor], Tensor],
        each: Callable[[int, Tensor], None],
        *,
        after: bool,
        copies: int = 1,
    ) -> None:
        """Run the model on `copies` of this input with `change(x)` in place of the embeddings x [copy pos d], and hand every
        layer's number and output [copy pos d] to `each`, as it comes. Differentiable, in either direction.

        x is what the embedding norm reads; without one, or if `after`, what the first layer reads.
        """
        recorder = Recorder((copies, len(trace)), attached=True)
        entered = False

        def before(module: nn.Module, args: Any, kwargs: Any) -> Any:
            nonlocal entered
            if entered:
                return None
            entered, x = True, change(hidden_argument(args, kwargs))
            return ((x, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": x})

        def begin(module: nn.Module, args: Any, kwargs: Any) -> None:
            recorder.begin(by_layer[id(module)], hidden_argument(args, kwargs))

        def leave(module: nn.Module, args: Any, output: Any) -> None:
            each(len(recorder.records) - 1, first(output))
            recorder.records[-1] = {}  # nothing is kept but what `each` keeps
            if len(recorder.records) == self.n_layers:
                raise _Done

        by_layer: dict[int, LayerParts] = {}

        def wanted() -> list[Wanted]:
            by_layer.update({id(parts.layer): parts for parts in self.parts})
            norm, layers = self.embedding_norm, [parts.layer for parts in by_layer.values()]
            found: list[Wanted]
            found = [(layer, "before", before) for layer in layers] if norm is None or after else [(norm, "before", before)]
            return found + [(layer, "before", begin) for layer in layers] + [(layer, "after", leave) for layer in layers]

        with suppress(_Done), self._pass(wanted, recorder=recorder, gradients=torch.is_grad_enabled()):
            self._called(self.inputs([trace] * copies))

    def embedded(self, encoded: Encoded | Trace, *, factor: float, instead: Tensor | None = None) -> tuple[Tensor | None, Tensor]:
        """What the embedding norm reads, and what the first layer reads, were every embedding `factor` times as long.

        Without a norm the first is the second; it is None where the norm is not called before the first layer. `instead`
        takes the place of what the norm reads.
        """
        caught: list[Tensor] = []

        def catch(module: nn.Module, args: Any, kwargs: Any) -> Any:
            caught.append(hidden_argument(args, kwargs))
            return None if instead is None else ((instead, *args[1:]), kwargs)

        def stop(module: nn.Module, args: Any, kwargs: Any) -> None:
            caught.append(hidden_argument(args, kwargs))
            raise _Done

        norm = self.embedding_norm

        def wanted() -> list[Wanted]:
            found: list[Wanted] = [
                (module, "after", lambda module, args, output: output * factor)
                for module in self.hf_model.base_model.modules()
                if isinstance(module, nn.Embedding)
            ]
            return found + ([] if norm is None else [(norm, "before", catch)]) + [(self.parts[0].layer, "before", stop)]

        with suppress(_Done), self._pass(wanted):
            self._called(self.inputs([encoded]))
        return caught[0] if norm is None or len(caught) > 1 else None, caught[-1]

    def outputs(self, encoded: Sequence[Any]) -> Any:
        """What the stock model returns for a batch, without recording anything."""
        with self._pass():
            return self._called(self.inputs(encoded))

    def changed_logits(self, encoded: Encoded, places: Sequence[int]) -> Tensor:
        """The head's logits for one input whose last layer puts out other vectors (twice as long, plus 1) at these places."""

        calls = 0

        def change(module: nn.Module, args: Any, output: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls < self.n_layers:
                return None
            made = first(output).clone()
            made[:, list(places)] = made[:, list(places)].roll(1, -1) * 2 + 1
            return (made, *output[1:]) if isinstance(output, tuple) else made

        layers = {id(parts.layer): parts.layer for parts in self.parts}.values()
        with self._pass(lambda: [(layer, "after", change) for layer in layers]):
            return self._called(self.inputs([encoded])).logits

    def logits(self, trace: Trace) -> Tensor:
        """[position, vocabulary] at every position: one more forward pass."""
        return self.outputs([trace]).logits[0]

    def run_attached(
        self,
        inputs: Mapping[str, Any],
        *,
        place: str | int = "word",
        value: Tensor | None = None,
        change: Callable[[int, Tensor], Tensor] | None = None,
    ) -> Attached:
        """The stock model with its graph kept. `value` replaces what stands at `place`: the word embeddings ("word"), what
        the embedding norm reads ("sum"), or the input of layer number `place`. `change` replaces attention weights."""
        recorder = Recorder(tuple(inputs["input_ids"].shape), attached=True, change=change)
        seen: dict[str, Tensor] = {}

        def swapped(here: str | int, tensor: Tensor) -> Tensor:
            return value if value is not None and place == here else tensor

        def enter_word(module: nn.Module, args: Any, output: Tensor) -> Tensor | None:
            if "word" in seen:
                return None
            word = swapped("word", output.detach())
            seen["word"] = word if word.requires_grad else word.requires_grad_()
            return seen["word"]

        def enter_norm(module: nn.Module, args: Any, kwargs: Any) -> Any:
            seen["sum"] = swapped("sum", args[0])
            return (seen["sum"], *args[1:]), kwargs

        def enter_layer(module: nn.Module, args: Any, kwargs: Any) -> Any:
            x = swapped(len(recorder.records), hidden_argument(args, kwargs))
            recorder.begin(by_layer[id(module)], x)
            return ((x, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": x})

        by_layer: dict[int, LayerParts] = {}

        def wanted() -> list[Wanted]:
            by_layer.update({id(parts.layer): parts for parts in self.parts})
            found: list[Wanted] = [(self.hf_model.get_input_embeddings(), "after", enter_word)]
            if self.embedding_norm is not None:
                found.append((self.embedding_norm, "before", enter_norm))
            found += [(parts.layer, "before", enter_layer) for parts in by_layer.values()]
            recording = self._record_hooks(recorder, watch=False)
            return found + [hook for hook in recording if not (hook[1] == "before" and id(hook[0]) in by_layer)]

        with self._pass(wanted, recorder=recorder, gradients=True):
            output = self._called(inputs)
        records = recorder.records
        return Attached(
            output=output,
            word=seen["word"],
            summed=seen.get("sum", records[0]["input"]),
            inputs=tuple(record["input"] for record in records),
            outputs=tuple(record["output"] for record in records),
            attention=tuple(record["weights"] for record in records),
        )

    @property
    def embedding_norm(self) -> nn.Module | None:
        """The norm right behind the embeddings, where the family has one."""
        path = getattr(self.family, "embedding_norm", None)
        return None if path is None else at(self.hf_model.base_model, path)

    # - one-liners

    def explain(
        self,
        text: str | Example | tuple[str, str],
        *,
        method: str = "alti",
        query: int | str | None = None,
        target: Any = "predicted",
        foil: str | int | None = None,
        variant: str | None = None,
        keep_special: bool = True,
        generate: int | None = None,
        **options: Any,
    ) -> Any:
        """One line for all of it: an Attribution of the prediction to the input tokens.

        A map method is traced, mixed, rolled out and read out at `query`. An attribution method explains `target` (see
        `attribute`). `generate=20` lets a causal model write 20 tokens and gives a list, one Attribution for each.
        """
        from ..attributions import explain

        asked = {"query": query, "target": target, "foil": foil, "variant": variant, **options}
        return explain(self, text, method, keep_special=keep_special, generate=generate, **asked)

    def generate(self, trace: Encoded | Trace, count: int) -> list[int]:
        """The ids the model writes next, greedily."""
        if self.task != "causal-lm":
            raise InputError(f"{self.name!r} is a {self.task} model and writes no text. generate= needs a causal language model.")
        if count < 1:
            raise InputError(f"generate must be at least 1, not {count}.")
        if self.max_tokens is not None and len(trace.input_ids) + count > self.max_tokens:
            raise InputError(
                f"{len(trace.input_ids)} tokens and {count} more are over the {self.max_tokens} that {self.name!r} reads."
            )
        inputs = {key: value for key, value in self.inputs([trace]).items() if key in ("input_ids", "attention_mask")}
        with self._lock, apart_from_others(), evaluating(self.hf_model), recorded(None):
            written = self.hf_model.generate(**inputs, max_new_tokens=count, do_sample=False, pad_token_id=self.pad_id)
        return [int(i) for i in written[0, len(trace.input_ids) :]]

    @property
    def pad_id(self) -> int:
        """What padded positions are filled with; nobody looks at them."""
        return self._pad_token or 0

    @property
    def _pad_token(self) -> int | None:
        return getattr(self.hf_model.config, "pad_token_id", None)

    def check(self, **options: Any) -> Proof:
        """Run every identity on this model and return the gaps. See `proof.check`."""
        from ..layer.proof import check

        return check(self, **options)


def default_query(trace: Trace) -> int:
    if trace.model.task == "masked-lm":
        if len(trace.predicts) > 1:
            raise InputError(
                f"the text has {len(trace.predicts)} mask tokens, at {list(trace.predicts)}. Say which one: query=INDEX."
            )
        if trace.predicts:
            return trace.predicts[0]
    if not is_causal(trace):
        return 0
    return head_position(trace.model, trace.input_ids) if trace.model.task == "classification" else len(trace) - 1


def head_position(model: Model, ids: Sequence[int]) -> int:
    """The position that a decoder's classifier reads: the last token that is not the padding token, as transformers finds it.

    A text may end in that token: many models pad with their end-of-text token.
    """
    if model._pad_token is None:
        return len(ids) - 1
    return max((place for place, token in enumerate(ids) if token != model._pad_token), default=0)


def is_causal(trace: Trace) -> bool:
    """No token may look ahead in any layer, by the masks the model used."""
    if "causal" in trace.info:
        return len(trace) > 1 and trace.info["causal"]
    if isinstance(trace.layers, LayersOf) and trace.layers.batch[0].weights is None:  # layers share their mask: look once
        whole = {id(layer.mask): number for number, layer in enumerate(trace.layers.batch)}
        return len(trace) > 1 and not any(looks_ahead(trace.layers[number]) for number in whole.values())
    return len(trace) > 1 and not any(looks_ahead(layer) for layer in trace.layers)


def looks_ahead(layer: LayerTrace) -> bool:
    seen = layer.weights if layer.weights is not None else layer.mask
    if seen is None:
        return True
    allowed = seen if seen.dtype == torch.bool else seen > (0 if layer.weights is not None else -1e30)
    return bool(allowed.triu(1).any())


def prediction(trace: Trace, *, k: int = 5) -> Prediction:
    model = trace.model
    if trace.logits is None or model.task in ("question-answering", "token-classification"):
        return []
    logits = trace.logits
    if model.task != "classification":
        if not len(logits):
            return []
        logits = logits[0]
    return named(model, logits, k=k)


def predictions(traces: Sequence[Trace], *, k: int = 5) -> list[Prediction]:
    """`prediction` of each; on a GPU the most probable of all are found at once, so that it is waited for once."""
    first = traces[0].logits
    whole = traces[0].model.task in ("classification", "masked-lm", "causal-lm")
    if first is None or first.device.type == "cpu" or not whole:
        return [prediction(trace, k=k) for trace in traces]
    rows = [trace.logits if trace.model.task == "classification" else trace.logits[:1] for trace in traces]  # type: ignore[index]
    there = [number for number, row in enumerate(rows) if row is not None and row.numel()]
    made: list[Prediction] = [[] for _ in traces]
    if there:
        every = torch.stack([rows[number].reshape(-1) for number in there])  # type: ignore[union-attr]
        top = every.float().softmax(-1).topk(min(k, every.shape[-1]))
        for number, ids, values in zip(there, top.indices.tolist(), top.values.tolist(), strict=True):
            made[number] = list(zip(_names(traces[0].model, ids), values, strict=True))
    return made


def named(model: Model, logits: Tensor, *, k: int) -> Prediction:
    """The k most probable outputs of one row of logits, by name."""
    top = logits.float().softmax(-1).topk(min(k, logits.shape[-1]))
    return list(zip(_names(model, top.indices.tolist()), top.values.tolist(), strict=True))


def _names(model: Model, ids: Sequence[int]) -> list[str]:
    if model.task == "classification":
        return [str(model.hf_model.config.id2label.get(i, i)) for i in ids]
    from ..targets import token_name

    return [token_name(model, i, plain=True) for i in ids]


def _integers(name: str, values: Any) -> list[int] | None:
    if values is None:
        return None
    if hasattr(values, "tolist"):
        values = values.tolist()
    if not isinstance(values, Sequence) or not set(map(type, values)) <= {int}:
        raise InputError(f"{name} must be a list of integers, not {values!r:.80}.")
    return list(values)


def _is_nested(ids: Any) -> bool:
    if hasattr(ids, "dim"):
        return ids.dim() == 2
    return isinstance(ids, Sequence) and bool(len(ids)) and (isinstance(ids[0], Sequence) or hasattr(ids[0], "tolist"))


# --- loading ----------------------------------------------------------------------------------------------------------


def load(
    model: Any,
    *,
    tokenizer: Any = None,
    task: str | None = None,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    revision: str | None = None,
    family: Family | None = None,
    trust_remote_code: bool = False,
    check: bool = True,
    device_map: str | Mapping[str, Any] | None = None,
    max_memory: Mapping[int | str, int | str] | None = None,
    offload_folder: str | os.PathLike[str] | None = None,
    quantization: Any = None,
) -> Model:
    """A model ready to trace, proven on a short random input (unless `check=False`; every map is still proven on its own).

    `model` is a hub id, a folder, the name of an embedded model ("agreement", "sentiment"), or a loaded Hugging Face
    model (then pass its tokenizer; it is left exactly as it came). float32 unless `dtype` says otherwise ("auto": as
    stored). `task` picks the head; by default the one the configuration names.

    Large models (docs/use/large-models.md): `device_map` spreads the layers ("auto", "balanced", "sequential", module: device),
    within `max_memory` of each device, the rest in main memory and, in `offload_folder`, on disk. `quantization`: "4bit",
    "8bit" or a configuration of transformers.
    """
    if task is not None and task not in TASKS:
        raise ModelError(f"unknown task {task!r}. {nearest(task, TASKS)}")
    wanted = None if dtype is None else _dtype(dtype)
    placing = Placing(device, device_map, max_memory, offload_folder, quantization)
    placing.refuse()
    refuse_meta_default()
    if isinstance(model, str | os.PathLike):
        made = _load_named(os.fspath(model), tokenizer, task, placing, wanted, revision, family, trust_remote_code)
    elif isinstance(model, nn.Module) and hasattr(model := unwrapped(model), "config"):
        refuse_meta(model)
        if placing != Placing(device):
            raise ModelError(
                "device_map, max_memory, offload_folder and quantization are for models that are loaded by name. A loaded model "
                "is taken as it is: give these to its from_pretrained."
            )
        made = _wrap(model, tokenizer, task, device, wanted, family)
    else:
        raise ModelError(f"load takes a hub id, a folder or a Hugging Face model, not {type(model).__name__}.")
    refuse_unrunnable(made.hf_model, made.name, made.dtype, ours=isinstance(model, str | os.PathLike))
    if check:
        from ..layer.proof import check as proven

        made.proof = proven(made)
    return made


@dataclass(frozen=True)
class Placing:
    """Where weights are to be, and how packed."""

    device: Any = None
    device_map: Any = None
    max_memory: Any = None
    offload_folder: Any = None
    quantization: Any = None

    def refuse(self) -> None:
        """What cannot be meant, and what needs a package that is not there."""
        if self.device_map is None and (self.max_memory is not None or self.offload_folder is not None):
            raise ModelError("max_memory and offload_folder go with a device_map, for example device_map='auto'.")
        if self.device is not None and self.device_map is not None:
            raise ModelError(
                f"device={str(self.device)!r} is one device, device_map={self.device_map!r:.80} spreads the model. Leave one out."
            )
        if isinstance(self.device_map, str) and self.device_map not in DEVICE_MAPS:
            raise ModelError(f"unknown device_map {self.device_map!r}. {nearest(self.device_map, DEVICE_MAPS)}")
        if self.device_map is not None and not isinstance(self.device_map, str | Mapping):
            raise ModelError(f"device_map is a word or a mapping of module to device, not {type(self.device_map).__name__}.")
        if isinstance(self.quantization, str) and self.quantization not in QUANTIZATIONS:
            raise ModelError(
                f"unknown quantization {self.quantization!r}. {nearest(self.quantization, QUANTIZATIONS)} Or give a "
                "configuration of transformers, for example BitsAndBytesConfig(...)."
            )
        if self.device_map is not None and find_spec("accelerate") is None:
            raise ModelError("device_map needs accelerate: pip install 'mixlens[large]'.")
        if isinstance(self.quantization, str) and (find_spec("accelerate") is None or find_spec("bitsandbytes") is None):
            raise ModelError(f"quantization={self.quantization!r} needs bitsandbytes: pip install 'mixlens[quantized]'.")

    def options(self, config: Any, dtype: torch.dtype | str | None) -> dict[str, Any]:
        """What `from_pretrained` is told: number type, places, packing."""
        packed = self.quantization is not None or getattr(config, "quantization_config", None) is not None
        told: dict[str, Any] = {}
        if self.quantization is not None:
            told["quantization_config"], dtype = _configured(self.quantization, config, dtype)
        told["dtype"] = dtype or ("auto" if packed else torch.float32)
        if self.device_map is not None:
            named = {"max_memory": self.max_memory, "offload_folder": self.offload_folder}
            mapped = self.device_map if isinstance(self.device_map, str) else dict(self.device_map)
            told |= {"device_map": mapped} | {key: value for key, value in named.items() if value is not None}
        elif packed:  # such a model is packed where it is to be: it cannot be moved after
            told["device_map"] = {"": self.device or _best_device()}
        return told


DEVICE_MAPS = ("auto", "balanced", "balanced_low_0", "sequential")
QUANTIZATIONS = ("4bit", "8bit")


def _configured(asked: Any, config: Any, dtype: torch.dtype | str | None) -> tuple[Any, torch.dtype | str | None]:
    """The configuration of a quantisation, and the number type it computes in unless one was asked for."""
    if getattr(config, "quantization_config", None) is not None:
        raise ModelError("this checkpoint is quantised already, and is loaded as it is. Leave quantization= out.")
    if dtype == "auto":
        dtype = getattr(config, "dtype", None) or torch.float32
    if isinstance(asked, str):
        import transformers

        if dtype == torch.float64:
            raise ModelError(f"quantization={asked!r} computes in float32, bfloat16 or float16, not in float64.")
        if asked == "8bit":  # LLM.int8() computes in float16, whatever the model does
            return transformers.BitsAndBytesConfig(load_in_8bit=True), dtype or torch.float16
        dtype = dtype or torch.float32
        asked = transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype)
    return asked, dtype or getattr(asked, "bnb_4bit_compute_dtype", None) or "auto"


def _quantization(config: Any) -> str:
    """A quantisation in a few words: what changes numbers."""
    told = dict(config) if isinstance(config, Mapping) else config.to_dict()
    four = bool(told.get("load_in_4bit"))
    names = ["bits", "group_size", "weights", "activations", "quant_type", "format"]
    if told.get("load_in_8bit"):
        names = ["llm_int8_threshold"]
    elif four:
        names = ["bnb_4bit_quant_type", "bnb_4bit_compute_dtype", "bnb_4bit_use_double_quant"]
    kind = "4bit " if four else "8bit " if told.get("load_in_8bit") else ""
    values = [f"{name.removeprefix('bnb_4bit_')}={_in_short(told[name])}" for name in names if told.get(name) is not None]
    method = told.get("quant_method", "unknown")
    return f"{getattr(method, 'value', method)} {kind}({', '.join(values)})"


def _in_short(value: Any) -> str:
    """A setting that is a tree of settings (torchao) by its name, and a number that tells it from others."""
    if not isinstance(value, Mapping):
        return str(value)
    inner = value.get("default", value)
    named = inner.get("_type", "settings") if isinstance(inner, Mapping) else inner
    return f"{named} {crc32(json.dumps(value, sort_keys=True, default=str).encode()):08x}"


def _best_device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def _dtype(dtype: str | torch.dtype) -> torch.dtype | str:
    allowed = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if dtype == "auto" or dtype in allowed.values():
        return dtype
    if isinstance(dtype, str) and dtype in allowed:
        return allowed[dtype]
    raise ModelError(f"unknown dtype {dtype!r}. Known: {', '.join(allowed)}, auto.")


def _wrap(
    model: Any, tokenizer: Any, task: str | None, device: Any, dtype: torch.dtype | str | None, family: Family | None
) -> Model:
    """A model the user already has. It is only ever read; a change of dtype or device is made on a copy."""
    fixed = "quantised" if packed_kinds(model) else "spread out by accelerate" if is_dispatched(model) else None
    if fixed is not None and (device is not None or isinstance(dtype, torch.dtype)):
        raise ModelError(f"this model is {fixed}, so it is taken as it is: leave device= and dtype= out.")
    changes: dict[str, Any] = {}
    if isinstance(dtype, torch.dtype) and dtype != model.dtype:
        changes["dtype"] = dtype
    if device is not None and torch.device(device) != model.device:
        changes["device"] = torch.device(device)
    if changes:
        model = copy.deepcopy(model).to(**changes)
    found = family or find(model.config)
    name = getattr(model, "name_or_path", "") or type(model).__name__
    return Model(model, tokenizer, name=name, task=task or _task_of(type(model).__name__), family=found)


def _task_of(architecture: str) -> str:
    for task, (_, endings) in TASKS.items():
        if architecture.endswith(endings):
            return task
    return "base"


def _load_named(
    name: str,
    tokenizer: Any,
    task: str | None,
    placing: Placing,
    dtype: torch.dtype | str | None,
    revision: str | None,
    family: Family | None,
    trust_remote_code: bool,
) -> Model:
    import transformers

    embedded = EMBEDDED / name
    folder = Path(name) if Path(name).is_dir() else embedded if name.isidentifier() and embedded.is_dir() else None
    where = str(folder) if folder else name
    common = {"revision": revision, "trust_remote_code": trust_remote_code}
    if folder is None and not _hub_in_reach():
        common["local_files_only"] = True  # what is cached still loads, and the rest is refused at once
    with _quiet():
        try:
            config = transformers.AutoConfig.from_pretrained(where, **common)
        except Exception as error:
            raise ModelError(_why_not(name, folder, error)) from error
        found = family or find(config)
        task = task or _task_of((getattr(config, "architectures", None) or ["Model"])[0])
        auto = getattr(transformers, TASKS[task][0])
        options = placing.options(config, dtype)
        try:
            loaded, report = auto.from_pretrained(where, config=config, output_loading_info=True, **options, **common)
        except Exception as error:
            asked = ", ".join(key for key in ("device_map", "quantization") if getattr(placing, key) is not None)
            told = f"cannot load {name!r} with this {asked}: {_one_line(error)}" if asked else _why_not(name, folder, error)
            raise ModelError(told) from error
        _refuse_missing(name, task, loaded, report)
        if tokenizer is None and (folder is None or any((folder / file).exists() for file in TOKENIZER_FILES)):
            try:
                tokenizer = transformers.AutoTokenizer.from_pretrained(where, **common)
            except Exception as error:
                if folder is not None:
                    raise ModelError(f"cannot read the tokenizer of {name!r}: {_one_line(error)}") from error
    if "device_map" not in options:
        device = placing.device or _best_device()
        try:
            loaded = loaded.to(device)
        except (RuntimeError, AssertionError) as error:
            raise ModelError(f"cannot use device {str(device)!r}: {_one_line(error)}") from error
    commit = getattr(config, "_commit_hash", None)
    return Model(loaded.eval(), tokenizer, name=name, task=task, family=found, revision=commit or revision)


def _refuse_missing(name: str, task: str, model: nn.Module, report: Mapping[str, Any]) -> None:
    """Weights that were not in the file were made up at random: no map of those.

    Two are harmless: a bias that is not stored is zero, and the pooler of a model without a classification head is not used.
    """
    missing = report["missing_keys"]
    biases = {key for key in missing if key.endswith(".bias")}
    zero = {key for key, weights in weights_of(model) if key in biases and not bool(weights.any())} if biases else set()

    def harmless(key: str) -> bool:
        return key in zero or ("pooler" in key and task != "classification")

    mismatched = [str(entry[0]) if isinstance(entry, tuple) else str(entry) for entry in report.get("mismatched_keys", [])]
    bad = [key for key in sorted(missing) if not harmless(key)] + mismatched
    if bad:
        listed = ", ".join(bad[:3])
        raise ModelError(
            f"{name!r} has no weights for {len(bad)} parts of a {task} model ({listed}{', ...' if len(bad) > 3 else ''}). "
            "Random weights would give a map of nothing. Use a complete checkpoint, or another task=."
        )


def _why_not(name: str, folder: Path | None, error: Exception) -> str:
    if folder is not None:
        return f"cannot load the model folder {name!r}: {_one_line(error)}"
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        return f"no model folder at {name!r}. Give a folder with config.json and model.safetensors, or a hub id."
    embedded = sorted(p.name for p in EMBEDDED.glob("*") if p.is_dir())
    return (
        f"cannot load {name!r}: no such folder, and the hub has no such model or cannot be reached "
        f"({_one_line(error)}). Models that are always there are embedded. {nearest(name, embedded)}"
    )


def _hub_in_reach() -> bool:
    """Whether the hub's name can be looked up at all. Behind a proxy only the proxy knows."""
    from huggingface_hub import constants

    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return True
    host = urlsplit(constants.ENDPOINT).hostname
    try:
        return bool(host and socket.getaddrinfo(host, 443))
    except OSError:
        return False


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 160 else text[:157] + "..."


@contextmanager
def _quiet() -> Iterator[None]:
    """No load report, no progress bar: what matters is checked and said by us."""
    from huggingface_hub.utils import logging as hub
    from transformers.utils import logging

    verbosity, bars, hub_verbosity = logging.get_verbosity(), logging.is_progress_bar_enabled(), hub.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    hub.set_verbosity_error()
    spreading = getLogger("accelerate.big_modeling")  # says what was offloaded, which `placement` does
    level = spreading.level
    spreading.setLevel(ERROR)
    try:
        yield
    finally:
        spreading.setLevel(level)
        logging.set_verbosity(verbosity)
        hub.set_verbosity(hub_verbosity)
        if bars:
            logging.enable_progress_bar()
