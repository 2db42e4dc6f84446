"""Which files `recipes.mutants` puts faults into, and which tests are run for a fault in each.

Tests are given in the order in which they run: the quick ones that see most first. `FILE:a,b` takes the tests of a file whose
name has an "a" or a "b" in it; with a leading "!" those that have neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

JUDGE = (
    "claims judge judge_remarks judge_summary judged_labels judged_methods judged_metrics judged_random judging sanity "
    "scoreboard verdict verdict_notes verdict_tables"
)
AREAS: dict[str, tuple[str, ...]] = {
    "methods": ("mixlens/methods/*.py",),
    "kernels": (
        "mixlens/fast/loops/__init__.py",
        "mixlens/fast/loops/cpu.py",
        "mixlens/fast/loops/compiled.py",
        "mixlens/fast/loops/plain.py",
    ),
    "metrics": ("mixlens/metrics/*.py", *(f"mixlens/experiments/{name}.py" for name in JUDGE.split())),
    "corpus": ("mixlens/corpus/*.py", "mixlens/files.py", "mixlens/saving.py", "mixlens/errors.py"),
    "show": (
        "mixlens/show/*.py",
        "mixlens/show/figure/*.py",
        "mixlens/serve/*.py",
        "mixlens/cli/*.py",
        "mixlens/report.py",
    ),
    "answers": ("mixlens/why/*.py", "mixlens/generation/*.py"),
    "core": (
        "mixlens/*.py",
        "mixlens/layer/*.py",
        "mixlens/fast/*.py",
        *(
            f"mixlens/model/{name}.py"
            for name in (
                "kept",
                "passes",
                "quantized",
                "user_code",
                "words",
                "wrappers",
            )
        ),
    ),  # the rest: decompositions, scoring, aggregation, attributions, targets
}
READING = """
    __init__ attention chat encode families loading model offload parts placing predict record rerun
    rows seam tracing vocabulary
"""
PAPERS = """
    __init__ alti* attcat* command core experiment figure_style figures folder globenc* identifiability* layer_curves plan prepare
    reproduction* running tables value_zeroing*
"""
LEFT_OUT: dict[str, str] = {
    "mixlens/fast/loops/gpu.py": "runs on a GPU alone",
    "mixlens/fast/loops/*_kernels.py": "runs on a GPU alone",
    "mixlens/fast/cuda_graphs.py": "runs on a GPU alone",
    **{
        f"mixlens/model/{name}.py": "reads models; a fault in it is refused by the proof of each model"
        for name in READING.split()
    },
    "mixlens/data/*.py": "reads the papers' datasets",
    **{f"mixlens/experiments/{name}.py": "repeats the papers' tables" for name in PAPERS.split()},
    "mixlens/experiments/plans/*.py": "lists the runs of each paper",
    "mixlens/__init__.py": "names alone",
    "mixlens/__main__.py": "calls the command line",
    "mixlens/interrupts.py": "handles signals; tests of the command line send them to processes",
}

LEFT_OUT_FUNCTIONS: dict[tuple[str, str], str] = {
    ("mixlens/fast/zeroing.py", name): "runs on a GPU alone, where tests/fast/test_gpu.py sees it"
    for name in ("cosine_from_changes", "_halves", "_changes", "_after")
}

# Every layer-wise method, each against the paper written out, in float64 and in float32.
MAPS = (
    "tests/test_paths.py",
    "tests/test_methods.py:_as_defined,row_without,random,_query,several,float32_every_path_gives_the_paper[bert,one_token",
    "tests/test_methods.py:norm_family,alti_is,value_zeroing_is,float32,hole",
)
ALONE = "tests/test_methods.py:alone_in_a_batch,maps_are_what_they_claim,any_input"
METRICS = (
    *("tests/test_metrics_maps.py", "tests/test_metrics_agreement.py", "tests/test_metrics_intervals.py"),
    *("tests/test_comparisons.py", "tests/test_metrics_faithfulness.py", "tests/test_metrics_golden.py"),
    *("tests/test_metrics_removal.py", "tests/test_judge.py", "tests/test_metrics_probing.py"),
)
RUN = (
    "tests/test_run_arguments.py",
    *("tests/test_run.py", "tests/test_summarize.py", "tests/test_report_run.py", "tests/test_run_faults.py:!killed"),
    *("tests/test_run_promises.py:!interrupt", "tests/test_run_identity.py", "tests/test_steps.py"),
)
PAGES = "page_samples page_facts page_labels plan summary taken_out turned_figure reading"
ONE_RUN = "running run_identity shards sources rows worker answers parquet stored_maps writing"
# Stored numbers and texts of commands: what is left of an area is seen by these, or by nothing.
FROZEN_NUMBERS = "tests/test_freeze.py:numbers[bert,numbers[llama,names"
FROZEN_TEXTS = "tests/test_freeze.py:commands,help"
ANSWERS = (
    "tests/test_trust_rules.py",
    "tests/test_why.py",
    "tests/test_tasks.py",
    "tests/test_wording.py",
    "tests/test_why_cli.py",
)
WRITING = ("tests/test_generation.py", "tests/test_targets.py", "tests/test_chat.py", "tests/test_shown.py")
REST: dict[str, tuple[str, ...]] = {  # of an area, after those of the file
    "answers": (*ANSWERS, *WRITING),
    "methods": ("test_options_by_hand.py", FROZEN_NUMBERS),
    "core": ("tests/test_bounds.py", FROZEN_NUMBERS, FROZEN_TEXTS),
    "kernels": ("tests/test_kernels.py", "tests/test_speed_guard.py:fused,loops,compiler,environment", *MAPS),
    "metrics": METRICS,
    "corpus": (*RUN, FROZEN_TEXTS),
    "show": ("tests/test_parts.py", "tests/test_cli.py", "tests/test_asking.py", "tests/test_fuzz.py", FROZEN_TEXTS),
}
ATTRIBUTIONS = (
    "tests/test_stock_model.py",
    "tests/test_results.py",
    "tests/test_released.py",
    "tests/test_attributions.py",
    "tests/test_attributions_batched.py",
    "tests/test_float32.py:attributions",
)
# For the files of the core that have no tests named below: decompositions, the scoring of layers, traces.
CORE = (
    *(
        "tests/test_distances.py",
        "tests/test_without.py",
        "tests/test_unfoolable.py",
        "tests/test_golden.py",
        "tests/test_paths.py",
        "tests/test_together.py",
    ),
    *(
        *MAPS,
        "tests/test_float32.py",
        "tests/test_aggregate.py",
        "tests/test_identifiability.py",
        "tests/test_untouched.py",
    ),
    *(
        "tests/test_speed_guard.py:[bert,memory,error",
        "tests/test_load.py",
        "tests/test_families.py",
        "tests/test_large.py",
        ALONE,
    ),
)
TOLD = ("tests/test_told.py", "tests/test_show_limits.py")
FIRST: dict[str, tuple[str, ...]] = {
    "mixlens/methods/alti.py": ("tests/test_golden.py", *MAPS),
    "mixlens/methods/attcat.py": (
        "tests/test_attcat.py",
        "tests/test_paths.py:segments",
        *ATTRIBUTIONS,
        "tests/test_lrp.py",
    ),
    "mixlens/methods/attention.py": ("tests/test_golden.py", *MAPS),
    "mixlens/methods/blank_out.py": ("tests/test_edges.py", *ATTRIBUTIONS, "tests/test_metrics_faithfulness.py"),
    "mixlens/methods/context_cite.py": ("tests/test_context_cite.py", *ATTRIBUTIONS),
    "mixlens/methods/deeplift.py": (
        "test_multipliers_by_hand.py",
        "test_deeplift.py",
        "test_deeplift_norms.py",
        *ATTRIBUTIONS,
    ),
    "mixlens/methods/gradients.py": ATTRIBUTIONS,
    "mixlens/methods/hta.py": (
        *("test_steepness_by_hand.py", "tests/test_edges.py"),
        "tests/test_hta.py",
        "tests/test_golden_maps.py",
        "tests/test_float32.py:hidden",
    ),
    "mixlens/methods/identifiability.py": (
        *(
            "test_steepness_by_hand.py",
            "tests/test_edges.py",
            "tests/test_golden_maps.py",
            "tests/test_identifiability.py",
        ),
        "tests/test_together.py:effective,basis",
        *MAPS,
    ),
    "mixlens/methods/integrated.py": ("test_lines_by_hand.py", "tests/test_completeness.py", *ATTRIBUTIONS),
    "mixlens/methods/lrp.py": ("tests/test_lrp.py", *ATTRIBUTIONS),
    "mixlens/methods/norms.py": ("tests/test_golden.py", *MAPS),
    "mixlens/methods/random.py": MAPS,
    "mixlens/methods/value_zeroing.py": (
        *("tests/test_distances.py", "tests/test_paths.py", "tests/test_together.py:query,targets"),
        *("tests/test_golden.py", *MAPS, "tests/test_speed_guard.py:value_zeroing"),
    ),
    "mixlens/aggregate.py": (
        "tests/test_edges.py",
        "tests/test_aggregate.py",
        "tests/test_hta.py:input",
        "tests/test_flow.py",
        "tests/test_golden.py",
        "tests/test_golden_maps.py",
    ),
    "mixlens/attributions.py": (
        *("test_asked_by_hand.py", "tests/test_edges.py"),
        *ATTRIBUTIONS,
        "tests/test_judge.py",
        "tests/test_deeplift.py",
        "tests/test_run.py",
    ),
    "mixlens/removal.py": (
        "tests/test_metrics_removal.py",
        "tests/test_metrics_faithfulness.py",
        "tests/test_context_cite.py",
    ),
    "mixlens/questions.py": (*ATTRIBUTIONS, "tests/test_metrics_faithfulness.py"),
    "mixlens/methods/_attribution.py": (*ATTRIBUTIONS, "tests/test_structure.py"),
    "mixlens/targets.py": (*ATTRIBUTIONS, "tests/test_asking.py", "tests/test_cli.py", "tests/test_fuzz.py"),
    "mixlens/model/kept.py": (
        "tests/test_kept_values.py",
        "tests/test_unfoolable.py",
        "tests/test_together.py:kept",
        "tests/test_quantized.py:asked",
    ),
    "mixlens/model/passes.py": ("test_threads.py", "test_untouched.py", "test_settings.py"),
    "mixlens/model/user_code.py": (
        "test_user_code.py",
        "test_attention_helpers.py",
        "test_rows_of_batches.py",
    ),
    "mixlens/model/wrappers.py": ("tests/test_settings.py",),
    "mixlens/provenance.py": ("tests/test_run_identity.py:!reads",),
    "mixlens/model/quantized.py": ("test_quantization_by_hand.py", "tests/test_quantized.py"),
    "mixlens/completeness.py": ("tests/test_completeness.py", "tests/test_terminal.py"),
    "mixlens/methods/_quadrature.py": ("tests/test_completeness.py",),
    "mixlens/differentiable.py": ("tests/test_differentiable.py",),
    "mixlens/notices.py": ("tests/test_asking.py", "tests/test_report.py", "tests/test_terminal.py"),
    "mixlens/continuing.py": ("tests/test_attributions.py", "tests/test_asking.py", "tests/test_report.py"),
    "mixlens/asking.py": (
        "tests/test_asking.py",
        "tests/test_cli.py",
        "tests/test_report.py",
        "tests/test_serve.py:!flood",
    ),
    "mixlens/methods/_baselines.py": (*ATTRIBUTIONS, "tests/test_deeplift.py"),
    "mixlens/methods/_backward_rules.py": ("tests/test_rules.py", "tests/test_lrp.py", "tests/test_deeplift.py"),
    "mixlens/methods/_jacobian.py": ("test_steepness_by_hand.py", "tests/test_hta.py", "tests/test_golden_maps.py"),
    "mixlens/alternative_attention.py": (
        "tests/test_edges.py",
        "tests/test_identifiability.py",
        "tests/test_golden_maps.py",
    ),
    "mixlens/model/words.py": (
        "test_words.py",
        "test_aggregate.py",
        "test_load.py",
        "test_run.py",
        "test_cli.py",
    ),
    "mixlens/registry.py": ("tests/test_attributions.py", "tests/test_structure.py", "tests/test_metrics_intervals.py"),
    "mixlens/layer/norms.py": ("tests/test_norms.py", "tests/test_families.py:norm", *CORE),
    "mixlens/layer/proof.py": (
        "tests/test_bounds.py",
        "tests/test_families.py",
        "tests/test_load.py",
        "tests/test_unfoolable.py:head,reads,attention",
    ),
    "mixlens/types.py": (
        "tests/test_results.py",
        "tests/test_aggregate.py",
        "tests/test_store.py",
        "tests/test_load.py",
        "tests/test_show.py",
        "tests/test_parts.py",
        *MAPS,
    ),
    "mixlens/metrics/agreement.py": ("tests/test_metrics_agreement.py",),
    "mixlens/metrics/alignment.py": ("tests/test_metrics_agreement.py",),
    "mixlens/metrics/raw_and_effective.py": ("tests/test_metrics_maps.py",),
    "mixlens/metrics/faithfulness.py": ("tests/test_metrics_faithfulness.py",),
    "mixlens/metrics/geometry.py": ("tests/test_metrics_maps.py",),
    "mixlens/metrics/token_identity.py": ("tests/test_metrics_probing.py",),
    "mixlens/metrics/token_training.py": ("tests/test_metrics_probing.py", "tests/test_side_by_side.py"),
    "mixlens/fast/side_by_side.py": ("tests/test_side_by_side.py",),
    "mixlens/metrics/intervals.py": ("tests/test_metrics_intervals.py",),
    "mixlens/metrics/mixing_stats.py": ("tests/test_metrics_maps.py",),
    "mixlens/metrics/plausibility.py": ("tests/test_metrics_agreement.py",),
    "mixlens/metrics/probing.py": ("tests/test_metrics_probing.py",),
    "mixlens/metrics/removal_curves.py": ("tests/test_metrics_removal.py",),
    "mixlens/metrics/subsets.py": ("tests/test_metrics_removal.py",),
    "mixlens/metrics/comparisons.py": ("tests/test_comparisons.py",),
    "mixlens/experiments/claims.py": ("tests/test_claims.py",),
    "mixlens/experiments/judg*.py": ("tests/test_judge_table.py", "tests/test_judge.py"),
    "mixlens/experiments/s*.py": ("tests/test_sanity.py", "tests/test_judge.py"),
    "mixlens/experiments/verdict*.py": ("tests/test_judge.py",),
    **dict.fromkeys(
        [f"mixlens/corpus/{name}.py" for name in ONE_RUN.split()],
        ("tests/test_run_by_hand.py", "tests/test_run_arguments.py", "tests/test_steps.py"),
    ),
    "mixlens/corpus/ray_pool.py": (
        "tests/test_run_by_hand.py",
        *("tests/test_run_ray_alone.py", "tests/test_run_ray_watch.py"),
        "tests/test_run_ray.py:!whoever,process_that,workers_that_die",
    ),
    **dict.fromkeys(
        [f"mixlens/corpus/{name}.py" for name in ("bins", "tally", "turned_counts", "row_words")],
        ("tests/test_counts_by_hand.py", "tests/test_summarize.py", "tests/test_steps.py", "tests/test_report_run.py"),
    ),
    **dict.fromkeys(
        [f"mixlens/corpus/{name}.py" for name in PAGES.split()],
        (
            "tests/test_pages_by_hand.py",
            "tests/test_report_run.py",
            "tests/test_summarize.py",
            "tests/test_run_arguments.py",
        ),
    ),
    "mixlens/corpus/ray_*.py": (
        "tests/test_run_by_hand.py",
        "tests/test_run_ray_alone.py",
        "tests/test_run_ray_watch.py",
    ),
    "mixlens/corpus/ray_tickets.py": ("tests/test_steps.py", "tests/test_run_ray.py:given_out_twice"),
    "mixlens/errors.py": (
        "tests/test_files_by_hand.py",
        "tests/test_errors.py",
        "tests/test_terminal.py:hostile,emoji",
        "tests/test_cli.py",
    ),
    "mixlens/files.py": (
        "tests/test_files_by_hand.py",
        "tests/test_disk.py",
        "tests/test_store.py",
        "tests/test_run_arguments.py",
        "tests/test_run_promises.py",
    ),
    "mixlens/saving.py": (
        "tests/test_files_by_hand.py",
        "tests/test_store.py",
        "tests/test_store_hostile.py",
        "tests/test_store_text.py",
    ),
    "mixlens/saving_text.py": ("tests/test_files_by_hand.py", "tests/test_store_text.py"),
    "mixlens/result_facts.py": (
        "tests/test_files_by_hand.py",
        "tests/test_store_text.py",
        "tests/test_store.py",
        "tests/test_store_hostile.py",
    ),
    "mixlens/arithmetic.py": ("tests/test_arithmetic.py",),
    "mixlens/averages.py": ("tests/test_arithmetic.py",),
    "mixlens/foreign.py": ("tests/test_foreign.py",),
    "mixlens/experiments/judge_summary.py": ("tests/test_judge_summary.py",),
    "mixlens/experiments/judged_methods.py": ("tests/test_foreign.py", "tests/test_judge.py"),
    **dict.fromkeys(
        [
            f"mixlens/methods/{name}.py"
            for name in ("_points", "conductance", "gradient_shap", "sequential", "smooth_grad")
        ],
        ("test_lines_by_hand.py", "tests/test_peers_gradients.py", "tests/test_attributions.py"),
    ),
    **dict.fromkeys(
        [f"mixlens/methods/{name}.py" for name in ("_word_paths", "discretized")],
        ("tests/test_discretized.py", "tests/test_attributions.py"),
    ),
    **dict.fromkeys(
        [f"mixlens/methods/{name}.py" for name in ("_coalitions", "lime", "shap")], ("tests/test_shap_lime.py",)
    ),
    "mixlens/show/packing.py": (*TOLD, "tests/test_parts.py", "tests/test_report.py"),
    **dict.fromkeys(
        [f"mixlens/show/{name}.py" for name in ("colors", "encoding", "heading", "layout", "tables", "tokens")],
        (
            *(*TOLD, "tests/test_parts.py", "tests/test_terminal.py"),
            *("tests/test_show.py", "tests/test_figures.py", "tests/test_report.py"),
        ),
    ),
    **dict.fromkeys(
        ("mixlens/show/figure/*.py", "mixlens/show/curves.py"),
        ("tests/test_figure_rules.py", "tests/test_artists.py", "tests/test_figures_drawn.py", "tests/test_figures.py"),
    ),
    "mixlens/show/notebook.py": (*TOLD, "tests/test_parts.py", "tests/test_show.py", "tests/test_report.py"),
    "mixlens/show/latex.py": (*TOLD, "tests/test_latex.py"),
    "mixlens/show/run_*.py": (*TOLD, "tests/test_report_run.py"),
    "mixlens/show/page_*.py": (*TOLD, "tests/test_report.py"),
    "mixlens/show/results_page.py": (*TOLD, "tests/test_report.py"),
    "mixlens/show/*.py": (
        *TOLD,
        "tests/test_terminal.py",
        "tests/test_show.py",
        "tests/test_figures.py",
        "tests/test_report.py",
    ),
    "mixlens/serve/*.py": (
        *(
            "tests/test_serve_guard.py",
            "tests/test_serve_desk.py",
            "tests/test_serve_answers.py",
            "tests/test_serve.py:!flood",
        ),
        *("tests/test_serve_limits.py", "tests/test_report.py"),
    ),
    "mixlens/report.py": ("tests/test_report_parts.py", "tests/test_report.py", "tests/test_report_run.py"),
    "mixlens/why/*.py": ("tests/test_why_by_hand.py", "tests/test_answering_by_hand.py"),
    "mixlens/generation/*.py": ("tests/test_generation_by_hand.py",),
    "mixlens/cli/*.py": (
        "tests/test_explain_by_hand.py",
        "tests/test_commands_by_hand.py",
        "tests/test_edges.py",
        "tests/test_cli.py",
        "tests/test_terminal.py",
        "tests/test_run.py",
        "tests/test_fuzz.py",
    ),
    "mixlens/fast/loops/compiled.py": ("test_compiled_by_hand.py", "tests/test_compiled.py", "tests/test_kernels.py"),
    "mixlens/fast/loops/cpu.py": (
        "tests/test_compiled.py",
        "tests/test_methods.py:uses_the_compiled",
        "tests/test_kernels.py",
        "tests/test_speed_guard.py:compiler,refused",
    ),
    "mixlens/fast/loops/*.py": (),
    "mixlens/fast/shared.py": ("tests/test_shared.py", *CORE),
    "mixlens/fast/*.py": (
        "test_blocks_by_hand.py",
        "test_stacks_by_hand.py",
        "test_equals_plain.py",
        "test_shared.py",
        *CORE,
    ),
}


def _by_hand(folder: str, names: str, *tests: str) -> dict[str, tuple[str, ...]]:
    return {f"mixlens/{folder}{name}.py": tests for name in names.split()}


# Tests of values written by hand: they run before all others.
BY_HAND: dict[str, tuple[str, ...]] = {
    **_by_hand("", "foreign", "test_foreign_whole.py"),
    **_by_hand(
        "",
        "wording sentences rounding by_word conventions completeness budget products notices",
        "test_numbers_and_words.py",
    ),
    **_by_hand("", "command_words asking registry", "test_commands_in_words.py"),
    **_by_hand("", "layer_trace methods/_mixing", "test_tensors_scored.py"),
    **_by_hand(
        "", "scoring scored_tensors", "test_tensors_scored.py", "test_scorer_by_hand.py", "test_asked_by_hand.py"
    ),
    **_by_hand("layer/", "proof identities", "test_proof_by_hand.py"),
    **_by_hand("layer/", "block parts", "test_blocks_by_hand.py"),
    **_by_hand("", "arithmetic averages head_maps provenance", "test_results_by_hand.py"),
    **_by_hand("", "targets removal questions", "test_games_by_hand.py"),
    **_by_hand(
        "methods/",
        "_coalitions _points _baselines shap lime smooth_grad sequential context_cite blank_out",
        "test_games_by_hand.py",
    ),
    **_by_hand(
        "experiments/", "scoreboard verdict* judge_summary judged_methods judged_metrics", "test_scoreboard_by_hand.py"
    ),
    **_by_hand("experiments/", "claims judge judging sanity", "test_judging_by_hand.py"),
    **_by_hand("corpus/", "page page_facts summary taken_out turned_figure writing", "test_run_read_by_hand.py"),
    **_by_hand("serve/", "work questions describe", "test_questions_by_hand.py"),
    **_by_hand(
        "show/figure/",
        "*",
        "test_figure_parts_by_hand.py",
        "test_word_matrix_by_hand.py",
        "test_figure_sheets_by_hand.py",
        "test_flow_drawn_by_hand.py",
    ),
    **_by_hand("show/", "flow_numbers colors packing", "test_figure_parts_by_hand.py", "test_word_matrix_by_hand.py"),
    **_by_hand(
        "",
        "fast/__init__ fast/switch fast/together fast/shared fast/zeroing layer/norms layer/weights",
        "test_layers_by_hand.py",
    ),
    **_by_hand("", "alternative_attention differentiable fast/probes", "test_methods_by_hand.py"),
    **_by_hand(
        "methods/",
        "_backward_rules _quadrature _released _rollout identifiability lrp random value_zeroing",
        "test_methods_by_hand.py",
    ),
    **_by_hand("", "fast/loops/__init__ fast/loops/plain fast/loops/cpu", "test_loops_by_hand.py"),
    **_by_hand("", "maps aggregate attributions types continuing sequences methods/attcat", "test_maps_by_hand.py"),
}
DEFAULTS = "test_defaults.py"  # the numbers and switches that functions take where a caller names none


def files_of(root: Path, areas: Sequence[str]) -> dict[str, str]:
    """The files of some areas and the area of each, by path from the root, sorted. The first area that names a file has it."""
    found: dict[str, str] = {}
    for area, patterns in AREAS.items():
        for path in sorted(path for pattern in patterns for path in root.glob(pattern)):
            file = path.relative_to(root).as_posix()
            if not any(fnmatch(file, pattern) for pattern in LEFT_OUT):
                found.setdefault(file, area)
    return {file: area for file, area in sorted(found.items()) if area in areas}


def tests_of(file: str, area: str) -> tuple[str, ...]:
    """The tests for a fault in a file, each named once."""
    named = [tests for pattern, tests in FIRST.items() if fnmatch(file, pattern)]
    first = named[0] if named else {"core": CORE, "methods": MAPS}.get(area, ())
    by_hand = [test for pattern, tests in BY_HAND.items() if fnmatch(file, pattern) for test in tests]
    return tuple(dict.fromkeys(map(place_of, (*by_hand, DEFAULTS, *first, *REST[area]))))


def place_of(test: str) -> str:
    """The path of a test file that is named without its folder."""
    name, colon, chosen = test.partition(":")
    root = Path(__file__).resolve().parents[2]
    path = next((root / "tests").rglob(Path(name).name), root / name)
    return path.relative_to(root).as_posix() + colon + chosen
