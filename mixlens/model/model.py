"""`Model`: a stock model of transformers, its tokenizer, its family and its store. Its verbs are functions of this
folder.

The stock model is touched from outside: the public attention registry of transformers hands over queries, keys and
values after head splitting and rotation; module hooks hand over the residual stream. Both come off when a trace ends,
whatever happens, and the model is left as it came. A model of two stacks (an encoder and a decoder) would have two
lists of `parts`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..base.doors import door
from ..base.errors import ModelError
from ..types import Example, Text, Texts, Trace
from . import encode as encoding
from . import predict, rerun, seam, tracing, user_code
from .chat import instead_of
from .encode import Encoded
from .families import Family
from .kept import Kept
from .offload import HOOK, is_away, is_dispatched, packed_kinds, place_of
from .parts import at, layer_parts, refuse_split
from .passes import Locks, accepted_names
from .quantized import description
from .seam import configurations

if TYPE_CHECKING:
    from ..answers import Why
    from ..fast.cuda_graphs import Graphs
    from ..layer.proof import Proof

CONFIGURED = ("bos", "eos", "cls", "sep", "pad")  # special tokens that a configuration may name
NOT_COPIED = (
    "a Model, and a Trace, which holds one, cannot be copied, or sent to another process: hooks and locks belong to "
    "this one. "
    "Load the model again (mixlens.load), and keep results with .save."
)


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
        self.kept = Kept()  # what is made of its weights
        self.parts = layer_parts(hf_model.base_model, family, self.kept)
        refuse_split(name, self.parts)
        self.configs = configurations(hf_model)
        self.lock = Locks(self.configs)  # one pass at a time: the attention registry is switched on the configuration
        self.proven_attention: list[tuple[object, bool]] = []  # functions of the stock model; whether they cap logits
        self.asked_attention: tuple[object, list[Any]] | None = None  # those functions; which of them are a user's
        self.accepts = accepted_names(hf_model)  # names of what the stock model is called with
        self.token_names: dict[tuple[int, bool], str] = {}  # that were looked up: see `vocabulary.token_name`
        self.proof: Proof | None = None

    def __repr__(self) -> str:
        return f"Model({self.name!r}, family={self.family.name!r}, task={self.task!r}, dtype={self.dtype}, device={self.device})"  # noqa: E501

    def __copy__(self) -> Model:
        """The same weights, the same store and the same lock under another name."""
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        return other

    def __deepcopy__(self, memo: Any) -> Model:
        raise ModelError(NOT_COPIED)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise ModelError(NOT_COPIED)

    # --- what it is ---------------------------------------------------------------------------------------------------

    @property
    def dtype(self) -> torch.dtype:
        """The number type of its weights."""
        return self.hf_model.dtype

    @property
    def device(self) -> torch.device:
        """Where inputs enter and scores meet. Layers of a model that accelerate spread out may run elsewhere
        (`placement`)."""
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
        config = getattr(self.hf_model.config, "quantization_config", None)
        return description(config) if config is not None else ", ".join(packed_kinds(self.hf_model)) or None

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

    @property
    def embedding_norm(self) -> nn.Module | None:
        """The norm right behind the embeddings, where the family has one."""
        path = getattr(self.family, "embedding_norm", None)
        return None if path is None else at(self.hf_model.base_model, path)

    @property
    def special_ids(self) -> set[int]:
        """Ids that carry no content: what the tokenizer adds around a text, or what the configuration names."""
        if self.tokenizer is not None:
            return set(self.tokenizer.all_special_ids) - {self.tokenizer.mask_token_id, self.tokenizer.unk_token_id}
        named = [getattr(self.hf_model.config, f"{name}_token_id", None) for name in CONFIGURED]
        # It may name several ends of a text in one list.
        return {i for one in named for i in (one if isinstance(one, list | tuple) else [one]) if isinstance(i, int)}

    @property
    def mask_id(self) -> int | None:
        """The id of the mask token, where the tokenizer has one."""
        return None if self.tokenizer is None else self.tokenizer.mask_token_id

    @property
    def pad_token(self) -> int | None:
        """The padding id that the configuration names; some name -1, which is none."""
        named = getattr(self.hf_model.config, "pad_token_id", None)
        return None if named is None or named < 0 else named

    @property
    def pad_id(self) -> int:
        """What padded positions are filled with; nobody looks at them."""
        return self.pad_token or 0

    @property
    def batch_limit(self) -> int | None:
        """1 where a head finds the last token by a padding id that is not there, and where a user's own code acts in
        the model:
        it may treat the rows of a batch differently."""
        is_unpadded = self.task == "classification" and self.pad_token is None
        return 1 if is_unpadded or user_code.acts_in(self) else None

    @property
    def graphs(self) -> Graphs:
        """Captured CUDA graphs of this model, in its store; an empty set of them at first."""
        from ..fast.cuda_graphs import Graphs

        with self.kept.lock:
            self.kept.graphs = self.kept.graphs or Graphs()
            return self.kept.graphs

    # --- text in ------------------------------------------------------------------------------------------------------

    def encode(self, text: Text) -> Encoded:
        """One text as the tokenizer splits it."""
        return encoding.encode(self, text)

    def encode_ids(self, ids: Any, types: Any = None, mask: Any = None) -> Encoded:
        """Ids as they are. Padding at the ends (mask 0) is cut off: a padded input is the same input."""
        return encoding.encode_ids(self, ids, types, mask)

    encode_all, batches = encoding.encode_all, encoding.batches
    inputs, tokens = encoding.inputs, encoding.tokens

    # --- the model run again with something changed: `rerun.py` has a function for each question ----------------------

    run_traced, run_replayed = tracing.run_traced, tracing.run_replayed
    run_with_attention, run_from, run_attached = rerun.run_with_attention, rerun.run_from, rerun.run_attached
    local_graphs, embedded, changed_logits = rerun.local_graphs, rerun.embedded, rerun.changed_logits
    refuse_layer, computing, outputs = rerun.refuse_layer, seam.computing, rerun.outputs

    @door
    def rerun(self, trace: Trace, layer: int, x: Tensor) -> Tensor:
        """Layer `layer` run again on another input x [pos, d], in the setting of this trace: what it puts out."""
        return rerun.rerun(self, trace, layer, "layer", x)

    # --- one forward pass ---------------------------------------------------------------------------------------------

    @door
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

        def traces(encoded: Sequence[Encoded]) -> Sequence[Trace]:
            return self.run_traced(encoded)[0]

        return tracing.by_batches(
            self, text, input_ids, token_type_ids, attention_mask, batch_size=batch_size, compute=traces
        )

    @door
    def logits(self, trace: Trace) -> Tensor:
        """[position, vocabulary] at every position: one more forward pass."""
        return self.outputs([trace]).logits[0]

    @door
    def generate(self, start: Encoded | Trace, count: int) -> list[int]:
        """The ids the model writes next, greedily."""
        return predict.generate(self, start, count)

    # --- one line for all of it: functions of later folders, imported when called -------------------------------------

    @door
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
        """`mixlens.mix(model.trace(text), name)` in one pass that keeps nothing: every layer is scored as soon as it
        has run, then released (short inputs on a GPU are scored whole, which is quicker). For long inputs, large models
        and corpora. Methods that need all layers at once are refused.
        """
        from ..scoring.maps import streamed

        def maps(encoded: Sequence[Encoded]) -> Sequence[Any]:
            return streamed(self, encoded, name, **options)

        return tracing.by_batches(
            self, text, input_ids, token_type_ids, attention_mask, batch_size=batch_size, compute=maps
        )

    @door
    def explain(
        self,
        text: Text | None = None,
        *,
        method: str = "alti",
        query: int | str | None = None,
        target: Any = "predicted",
        foil: str | int | None = None,
        variant: str | None = None,
        keep_special: bool = True,
        generate: int | None = None,
        continuation: str | None = None,
        messages: Sequence[Mapping[str, str]] | None = None,
        **options: Any,
    ) -> Any:
        """One line for all of it: an Attribution of the prediction to the input tokens.

        A map method is traced, mixed, rolled out and read out at `query`. An attribution method explains `target` (see
        `attribute`). `generate=20` lets a causal model write 20 tokens and gives a Generation: a sequence with one
        Attribution for each, and a picture of all. `continuation="..."` takes these words as if the model had written
        them. `messages` is a conversation in the place of the text (see `Chat`).
        """
        from ..answers.generation import explain

        options = {"query": query, "target": target, "foil": foil, "variant": variant, **options}
        source = text if messages is None else instead_of(text, messages)
        return explain(
            self, source, method, keep_special=keep_special, generate=generate, continuation=continuation, **options
        )

    def why(
        self, text: str | Example | tuple[str, str] | Trace, target: Any = None, foil: Any = None, **options: Any
    ) -> Why:
        """Why the model says this: the answer, the words for and against it, whether to trust them. See
        `mixlens.why`."""
        from ..answers import why

        return why(self, text, target=target, foil=foil, **options)

    def check(self, **options: Any) -> Proof:
        """Run every identity on this model and return the gaps. See `proof.check`."""
        from ..layer.proof import check

        return check(self, **options)
