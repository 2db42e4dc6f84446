"""The numbers and switches that functions take where a caller names none: a changed default changes every result."""

from __future__ import annotations

import inspect
from pkgutil import resolve_name

import pytest

# One line for each function: where it is, and its defaults that are numbers or switches.
DEFAULTS = """
    aggregate.rows_to_one: offset=0
    aggregate.rolled_row: layer=-1
    aggregate.flow: layer=-1
    aggregate.readout: layer=-1, keep_special=True
    alternative_attention.alternative_attention: seed=0
    averages.mean: confidence=0.95, seed=0
    budget.tile_elements: times=1
    budget.tiles: times=1
    foreign.attribution_from: signed=True
    removal.random_subsets: share=0.5
    types.Trace.prediction: k=5
    types.Map.readout: layer=-1, keep_special=True
    types.Attribution.top: k=5
    types.Attribution.to_latex: standalone=False
    wording.percent: sign=False
    wording.for_terminal: unicode=True
    layer.block.Block.__init__: index=0
    layer.block.Block.moved_without_each: few=False, cosine=False
    layer.norms.FrozenNorm.scale: eps=True, unbiased=False
    layer.parts.Parts.nearer: shift=0.0
    layer.proof.measure: tokens=9
    layer.proof.measured: tokens=9
    layer.proof.check: tokens=9
    fast.block.Block.__init__: index=0, keeps_attention=False
    fast.parts.Parts.nearer: shift=0.0
    fast.zeroing.without: few=False
    fast.zeroing.moved_without_each: few=False, cosine=False
    methods.attcat.cat: mask_special=True
    methods.attcat.attcat: mask_special=True
    methods.attcat.attention_x_grad: relu=False
    methods.blank_out.blank_out: absolute=False
    methods.context_cite.context_cite: count=64, penalty=0.01, seed=0
    methods.gradient_shap.gradient_shap: count=50, noise=0.0, seed=0, chunk=16
    methods.gradients.grad_x_input: absolute=False
    methods.hta.hta: seed=0
    methods.identifiability.transformed: bias=True
    methods.lime.lime: count=1000, kernel_width=25.0, seed=0
    methods.lrp.transatt: normalize=True
    methods.random.random: seed=0
    methods.shap.shap: evaluations=500
    methods.smooth_grad.smooth_grad: count=50, noise=0.15, seed=0, times_input=False, chunk=16
    methods.value_zeroing.value_zeroing: standardize=False
    metrics.agreement.layer_agreement: query=0
    metrics.agreement.model_agreement: confidence=0.95, seed=0
    metrics.comparisons.simultaneous: confidence=0.95, seed=0, resamples=2000
    metrics.comparisons.needed: confidence=0.95, power=0.8
    metrics.faithfulness.blank_out_faithfulness: absolute=False, keep_special=True
    metrics.geometry.norm_outliers: sigma=3.0
    metrics.geometry.outliers: sigma=3.0
    metrics.intervals.mean_with_interval: confidence=0.95, seed=0, resamples=2000
    metrics.intervals.statistic_with_interval: confidence=0.95, seed=0, resamples=1000
    metrics.mixing_stats.share_by_distance: per_token=False
    metrics.mixing_stats.share_around: query=0, reach=5
    metrics.mixing_stats.by_tag: confidence=0.95, seed=0
    metrics.mixing_stats.quantile_with_interval: share=0.5, confidence=0.95, seed=0, resamples=500
    metrics.mixing_stats.by_layer: confidence=0.95, seed=0
    metrics.plausibility.rationale_iou_f1: threshold=0.5
    metrics.plausibility.precision_at_k: k=20
    metrics.probing.online_code: epochs=100, patience=10, seed=0, confidence=0.95
    metrics.raw_and_effective.by_length: confidence=0.95, seed=0
    metrics.registry.summary: confidence=0.95, seed=0
    metrics.removal_curves.naopc: beam=5
    metrics.removal_curves.aopc_bounds: beam=5
    metrics.subsets.lds: count=64, seed=0
    metrics.subsets.held_out_subsets: count=64, seed=0
    metrics.token_identity.identified: offset=0
    metrics.token_identity.identified_rates: confidence=0.95
    metrics.token_identity.token_identifiability: offset=0, folds=10, seed=0, confidence=0.95
    metrics.token_identity.identifiability_across_layers: folds=10, seed=0, confidence=0.95
    metrics.token_identity.train_and_test_rates: share=1.0, folds=1, seed=0, confidence=0.95
    experiments.claims.above: lower=False
    experiments.claims.pairs_above: lower=False
    experiments.claims.order: seed=0, lower=False
    experiments.claims.in_most: seed=0
    experiments.claims.in_all: seed=0, lower=False
    experiments.claims.positive: bound=0.0, seed=0
    experiments.claims.bounded: low=-inf, high=inf
    experiments.judge.judge: n=50, seed=0, leave_out=False, progress=True
    experiments.judge.ranking: place=0
    experiments.judge.lines: beside=1
    experiments.judge.judge_text: full=True
    experiments.judged_metrics.missing_token: infill=False
    corpus.page.write_page: megabytes=2.0, force=False
    corpus.page_facts.overview: examples=300, top=12, classes=12, least=3
    corpus.plan.plan_of: trust=False, chat=False, truncate=False
    corpus.running.run: maps=False, trust=False, chat=False, truncate=False, shard_rows=512, strict=False, resume=False
    corpus.sources._file_rows: warn=False
    corpus.summary.summarize: top=8, classes=8, least=3, least_rows=5
    errors.suggested: cutoff=0.7
    report.report: megabytes=2.0, force=False
    serve.routes.Routes.file: save=False
    show.colors.style_of: ink_only=False
    show.encoding.can_show: replaced=True
    show.figure.drawing.plot: colorbar=True
    show.figure.legend.number: percent=False, sign=False
    show.figure.legend.colours_of: text=False, percent=False
    show.figure.picture.content: dpi=300
    show.figure.wording.title_of: method=True
    show.flow_page.write_flow: megabytes=2.0, force=False
    show.generation_page.write_generation: force=False
    show.generation_text.show: color=True, effects=True
    show.head_views.heads_view: layer=-1
    show.latex.latex: standalone=False
    show.layout.fitting: right=False, middle=False
    show.map_views.largest_scores: count=20, in_percent=False
    show.packing.Precision.description: signed=False
    show.packing._widest: default=0
    show.page_entry.shortened: end=0
    show.results_page.page: room=2000000
    show.results_page.page_of_texts: room=2000000
    show.row_views.rows: best=2
    show.run_page.page: room=2000000
    show.text.map_view: layer=-1
    show.text.compare_view: layers=False
    show.text.rendered: width=100, color=False
    show.text.console: color=True
    show.text.show: color=True
    show.tokens.pieces: words=False
    show.views.strip: words=False
    show.why_page.write_why: force=False
    show.why_text.show_why: color=True
"""


@pytest.mark.parametrize("line", DEFAULTS.strip().splitlines(), ids=lambda line: line.strip().partition(":")[0])
def test_the_defaults_are_these(line: str) -> None:
    place, _, told = line.strip().partition(": ")
    function = inspect.unwrap(resolve_name(f"mixlens.{place}"))
    defaults = {name: one.default for name, one in inspect.signature(function).parameters.items()}
    numbers = [f"{name}={value!r}" for name, value in defaults.items() if isinstance(value, int | float)]
    assert ", ".join(numbers) == told
