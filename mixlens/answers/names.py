"""Methods by name: what everyone reads first, and what researchers read second."""

from __future__ import annotations

from typing import NamedTuple


class Name(NamedTuple):
    """Both names of a method; they always appear together."""

    everyday: str
    name: str


NAMES: dict[str, Name] = {
    "integrated_gradients": Name("Path of gradients", "Integrated Gradients"),
    "deeplift": Name("Difference from a blank text", "DeepLift"),
    "attcat": Name("Attention × gradient", "AttCAT"),
    "cat": Name("Gradient × hidden state", "CAT"),
    "blank_out": Name("Leave each word out", "blank-out"),
    "context_cite": Name("Leave half of the words out", "ContextCite"),
    "grad_x_input": Name("Gradient × word", "Gradient × Input"),
    "grad_x_input_l2": Name("Gradient × word, length", "Gradient × Input, L2"),
    "grad_l2": Name("Steepness at each word", "Gradient, L2"),
    "partial_lrp": Name("Layer-wise relevance", "partial LRP"),
    "transatt": Name("Attention × relevance", "Transformer attribution"),
    "attention_grad": Name("Gradient of attention", "attention gradients"),
    "attention_x_grad": Name("Attention × its gradient", "AttGrads"),
    "alti": Name("What flowed into the answer", "ALTI"),
    "globenc": Name("Norms of what is passed on", "GlobEnc"),
    "value_zeroing": Name("Switch each word off", "Value Zeroing"),
    "attention": Name("Where the heads look", "attention"),
    "raw_attention": Name("Where the last heads look", "raw attention"),
    "attention_rollout": Name("Where the heads look, through all layers", "attention rollout"),
    "attention_fixed_residual": Name("Where the heads look, half of each word kept", "attention, fixed residual"),
    "attention_residual": Name("Where the heads look, with what each word keeps", "attention, residual"),
    "effective_attention": Name("Looks that reach the output", "effective attention"),
    "null_attention": Name("Looks that do not reach the output", "null-space attention"),
    "norm": Name("Length of what is taken", "vector norms"),
    "norm_fixed_residual": Name("Length of what is taken, half of each word kept", "vector norms, fixed residual"),
    "norm_residual": Name("Length of what is taken and kept", "vector norms, residual"),
    "norm_residual_ln": Name("Length of what is taken and kept, normed", "vector norms, residual and norm"),
    "hta": Name("Steepness from each word", "Hidden Token Attribution"),
    "hta_layer": Name("Steepness from each word, one layer", "Hidden Token Attribution, one layer"),
    "hta_layer_x_input": Name("Steepness × word, one layer", "Hidden Token Attribution × input"),
    "shap": Name("What each word adds, averaged", "SHAP"),
    "lime": Name("A straight line near the text", "LIME"),
    "gradient_shap": Name("Gradients at random points", "GradientSHAP"),
    "smooth_grad": Name("Steepness under noise", "SmoothGrad"),
    "layer_conductance": Name("What flows through one layer", "Layer Conductance"),
    "sequential_integrated_gradients": Name("Path of gradients, word by word", "Sequential Integrated Gradients"),
    "discretized_integrated_gradients": Name("Path of gradients, by other words", "Discretized Integrated Gradients"),
    "random": Name("Random numbers", "random"),
}


def name_of(method: str) -> Name:
    """Both names; a method of another package has its own id for both."""
    return NAMES.get(method, Name(method, method))
