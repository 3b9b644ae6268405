"""For each warning, the test that provokes it and the test that shows it silent on a clean run.

`real`: the test creates the condition, and a job's own checks find it. `recorded`: the test plays back recorded
responses of a sensor or driver that test machines can't produce. `made`: the figures are made up.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

How = Literal["real", "recorded", "made"]


class Provoked(NamedTuple):
    by: str
    silent: str
    how: How = "real"


_CHECKED = "tests/runner/test_checked_runs.py"
_UNSTEADY = "tests/runner/test_unsteady_runs.py"
_STABILITY = "tests/measure/test_stability.py"
_LINT = "tests/workloads/test_estimates.py"
_PEERS = "tests/workers/test_history_check.py::test_measured_results_make_the_series_that_the_next_one_is_held_against"
_ARTIFACTS = "tests/workers/files/test_artifact_upload.py"
_TRAINING = "tests/workloads/training/test_model_training.py"
_COMPARISON = "tests/measure/test_compare_results.py"
_HONEST = f"{_CHECKED}::test_the_correct_workload_raises_none_of_these_warnings"
_AS_LONG = f"{_UNSTEADY}::test_runs_of_equal_duration_are_neither_and_each_is_steady"
_THREE_TIMES_AS_LONG = f"{_UNSTEADY}::test_runs_of_which_some_take_three_times_as_long_are_noisy_and_multimodal"
_CLOCK = "tests/runner/test_skewed_clock.py::test_only_a_wall_clock_that_jumps_in_a_sample_raises_clock_skew"
_QUOTA = "tests/measure/test_quota.py::test_a_run_in_a_group_with_a_quota_below_its_cores_raises_cpu_quota"
_RISING = f"{_UNSTEADY}::test_a_learning_rate_that_is_too_high_raises_the_loss"
_NONFINITE = f"{_TRAINING}::test_a_finished_training_survives_a_nonfinite_loss_in_the_timing"
_BASELINE = f"{_COMPARISON}::test_a_first_result_that_leaves_its_device_idle_is_a_weak_baseline"
_SIZES = "tests/workloads/test_matmul.py::test_the_linter_warns_by_sizes_alone"
_REFERENCES = f"{_LINT}::test_the_references_params_raise_no_warning"
_CACHES = "tests/runner/test_cases.py::test_a_filled_cache_and_disabled_kernels_raise_warnings"

# The parameter with the warning's name provokes each of these.
_BY_WRONG_WORK = Provoked(f"{_CHECKED}::test_the_job_of_an_incorrect_workload_is_untrusted_with_its_warning", _HONEST)

PROVOKED: dict[str, Provoked] = {
    "ASYNC_TIMING": _BY_WRONG_WORK,
    "WORK_ELIMINATED": _BY_WRONG_WORK,
    "DEGENERATE_DATA": _BY_WRONG_WORK,
    "OUTPUT_NONFINITE": _BY_WRONG_WORK,
    "RESULT_INCORRECT": _BY_WRONG_WORK,
    "ABOVE_PEAK": Provoked(f"{_CHECKED}::test_a_figure_above_the_stated_peak_raises_above_peak", _HONEST),
    "COMPILE_IN_TIMING": _BY_WRONG_WORK,
    "WARM_CACHE": Provoked(_CACHES, "tests/runner/test_caches.py::test_an_empty_or_missing_cache_is_cold"),
    "CLOCK_SKEW": Provoked(_CLOCK, _CLOCK),
    "LOSS_NONFINITE": Provoked(_NONFINITE, _NONFINITE),
    "UNIT_MISMATCH": _BY_WRONG_WORK,
    "EMULATED_DEVICE": Provoked("tests/workers/test_emulated.py::test_a_product_runs_on_it_and_is_untrusted", _HONEST),
    "PRECISION_MISMATCH": _BY_WRONG_WORK,
    "THROTTLED": Provoked(
        f"{_STABILITY}::test_a_recorded_power_cap_and_a_recorded_count_are_throttling_with_their_evidence",
        f"{_STABILITY}::test_a_clean_run_raises_nothing",
        "recorded",
    ),
    "CLOCK_DRIFT": Provoked(
        f"{_STABILITY}::test_recorded_clocks_more_than_three_percent_apart_are_drift",
        f"{_STABILITY}::test_the_measured_clock_of_this_machine_does_not_drift",
        "recorded",
    ),
    "NOISY_NEIGHBOUR": Provoked(
        "tests/measure/test_host_noise.py::test_a_real_process_on_the_same_core_raises_noisy_neighbour",
        "tests/measure/test_host_noise.py::test_a_core_used_only_by_this_process_is_quiet",
    ),
    "DEVICE_SHARED": Provoked(
        f"{_STABILITY}::test_a_recorded_second_process_on_the_gpu_is_sharing",
        f"{_STABILITY}::test_a_clean_run_raises_nothing",
        "recorded",
    ),
    "CPU_QUOTA": Provoked(_QUOTA, _QUOTA),
    "NOISY": Provoked(_THREE_TIMES_AS_LONG, _AS_LONG),
    "MULTIMODAL": Provoked(_THREE_TIMES_AS_LONG, _AS_LONG),
    "INSUFFICIENT_SAMPLES": Provoked(
        "api_tests/test_job.py::test_so_few_samples_are_never_trusted",
        "tests/measure/test_stability.py::test_twenty_samples_of_a_tenth_of_a_second_are_sufficient",
    ),
    "NO_STEADY_STATE": Provoked(f"{_UNSTEADY}::test_work_that_grows_has_no_steady_state", _AS_LONG),
    "RETRACED": _BY_WRONG_WORK,
    "SLOW_PATH": Provoked(
        _CACHES, "tests/measure/test_execution_checks.py::test_a_plain_environment_is_not_a_slow_path"
    ),
    "LOSS_RISING": Provoked(_RISING, _RISING),
    "METRIC_OUT_OF_BAND": Provoked(_PEERS, _PEERS),
    "POW2_ONLY": Provoked(_SIZES, _SIZES),
    "CACHE_RESIDENT": Provoked(_SIZES, _SIZES),
    "INPUT_BOUND": Provoked(
        "tests/workloads/test_input_pipeline.py::test_a_step_that_waits_for_large_files_is_bound_by_its_input",
        "tests/workloads/test_input_pipeline.py::test_a_step_that_outlasts_its_input_is_not",
    ),
    "OVERHEAD_BOUND": Provoked(f"{_CHECKED}::test_products_of_two_by_two_matrices_are_overhead_bound", _HONEST),
    "WEAK_BASELINE": Provoked(_BASELINE, _BASELINE, "made"),
    "CHERRY_PICK_RISK": Provoked(
        "tests/service/routes/test_comparisons.py::test_the_best_of_several_results_of_the_same_work_is_a_risk",
        f"{_COMPARISON}::test_the_most_flattering_of_several_results_is_a_risk",
        "made",
    ),
    "ARTIFACTS_NOT_STORED": Provoked(
        f"{_ARTIFACTS}::test_a_file_that_is_too_large_is_reported_and_the_others_are_kept",
        f"{_ARTIFACTS}::test_without_files_there_is_no_warning",
    ),
    "BATCH_UNEVEN": Provoked(f"{_LINT}::test_each_replica_s_share_of_the_batch_should_be_a_multiple_of_8", _REFERENCES),
    "BATCH_SMALL": Provoked(f"{_LINT}::test_a_batch_is_small_where_starting_its_step_outweighs_its_work", _REFERENCES),
    "WIDTH_UNEVEN": Provoked(
        f"{_LINT}::test_a_width_that_a_tpu_s_matrix_unit_can_not_fill_is_named_there_alone", _REFERENCES
    ),
    "SYNTHETIC_DATA": Provoked(
        "tests/workloads/test_mnist_cnn.py::test_the_linter_warns_when_accuracy_is_not_comparable", _REFERENCES
    ),
}
