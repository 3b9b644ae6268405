"""Which test provokes each warning, and which shows it silent on a clean one.

`real`: the condition is brought about, and found by what looks for it in a job. `recorded`: a sensor's or a driver's
answers are played back, where no machine that runs these tests can be made to give them. `made`: figures by hand.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

How = Literal["real", "recorded", "made"]


class Provoked(NamedTuple):
    by: str
    silent: str
    how: How = "real"


_DOUBTED = "tests/runner/test_checked_runs.py"
_UNSTEADY = "tests/runner/test_unsteady_runs.py"
_SENSED = "tests/measure/test_stability.py"
_LINT = "tests/workloads/test_estimates.py"
_PEERS = "tests/workers/test_history_check.py::test_measured_results_make_the_series_that_the_next_one_is_held_against"
_KEEPING = "tests/workers/files/test_artifact_upload.py"
_TOLD = "tests/workloads/training/test_model_training.py"
_COMPARISON = "tests/measure/test_compare_results.py"
_HONEST = f"{_DOUBTED}::test_the_honest_one_raises_none_of_them"
_AS_LONG = f"{_UNSTEADY}::test_runs_that_take_as_long_as_each_other_are_neither_and_each_is_steady"
_THRICE_AS_LONG = f"{_UNSTEADY}::test_runs_that_take_once_and_thrice_as_long_are_noisy_and_in_two_groups"
_CLOCK = "tests/runner/test_skewed_clock.py::test_a_wall_clock_that_jumps_in_a_sample_is_told_and_one_that_stays_is_not"
_QUOTA = "tests/measure/test_quota.py::test_a_run_in_a_group_of_less_time_than_its_cores_have_is_said"
_RISING = f"{_UNSTEADY}::test_a_learning_rate_that_is_too_high_lets_the_loss_rise"
_NONFINITE = f"{_TOLD}::test_a_training_that_succeeded_is_kept_when_its_loss_is_no_number_in_the_timing_after_it"
_BASELINE = f"{_COMPARISON}::test_a_first_that_leaves_its_device_idle_is_a_weak_baseline"
_SIZES = "tests/workloads/test_matmul.py::test_the_linter_says_what_the_sizes_alone_tell"
_REFERENCES = f"{_LINT}::test_nothing_is_held_against_what_the_references_ran"
_CACHES = "tests/runner/test_cases.py::test_a_cache_from_before_and_kernels_that_were_switched_off_are_said"

# Each is provoked by the parameter of its own name.
_BY_WRONG_WORK = Provoked(f"{_DOUBTED}::test_a_wrong_workload_s_job_is_not_trusted_and_says_why", _HONEST)

PROVOKED: dict[str, Provoked] = {
    "ASYNC_TIMING": _BY_WRONG_WORK,
    "WORK_ELIMINATED": _BY_WRONG_WORK,
    "DEGENERATE_DATA": _BY_WRONG_WORK,
    "OUTPUT_NONFINITE": _BY_WRONG_WORK,
    "RESULT_INCORRECT": _BY_WRONG_WORK,
    "ABOVE_PEAK": Provoked(f"{_DOUBTED}::test_a_device_that_is_faster_than_it_says_is_above_its_peak", _HONEST),
    "COMPILE_IN_TIMING": _BY_WRONG_WORK,
    "WARM_CACHE": Provoked(_CACHES, "tests/runner/test_caches.py::test_a_cache_that_is_empty_or_not_there_is_cold"),
    "CLOCK_SKEW": Provoked(_CLOCK, _CLOCK),
    "LOSS_NONFINITE": Provoked(_NONFINITE, _NONFINITE),
    "UNIT_MISMATCH": _BY_WRONG_WORK,
    "EMULATED_DEVICE": Provoked("tests/workers/test_emulated.py::test_a_product_runs_on_it_and_is_untrusted", _HONEST),
    "PRECISION_MISMATCH": _BY_WRONG_WORK,
    "THROTTLED": Provoked(
        f"{_SENSED}::test_a_recorded_power_cap_and_a_recorded_count_are_throttling_with_their_evidence",
        f"{_SENSED}::test_a_clean_run_raises_nothing",
        "recorded",
    ),
    "CLOCK_DRIFT": Provoked(
        f"{_SENSED}::test_recorded_clocks_that_lie_more_than_three_percent_apart_are_drift",
        f"{_SENSED}::test_the_measured_clock_of_this_machine_is_no_drift",
        "recorded",
    ),
    "NOISY_NEIGHBOUR": Provoked(
        "tests/measure/test_host_noise.py::test_a_real_process_on_the_same_core_is_noticed",
        "tests/measure/test_host_noise.py::test_a_core_that_this_process_has_for_itself_is_quiet",
    ),
    "DEVICE_SHARED": Provoked(
        f"{_SENSED}::test_a_recorded_second_process_on_the_gpu_is_sharing",
        f"{_SENSED}::test_a_clean_run_raises_nothing",
        "recorded",
    ),
    "CPU_QUOTA": Provoked(_QUOTA, _QUOTA),
    "NOISY": Provoked(_THRICE_AS_LONG, _AS_LONG),
    "MULTIMODAL": Provoked(_THRICE_AS_LONG, _AS_LONG),
    "INSUFFICIENT_SAMPLES": Provoked(
        "api_tests/test_job.py::test_so_few_samples_are_never_trusted",
        "tests/measure/test_stability.py::test_twenty_samples_of_a_tenth_of_a_second_are_sufficient",
    ),
    "NO_STEADY_STATE": Provoked(f"{_UNSTEADY}::test_work_that_grows_has_no_steady_state", _AS_LONG),
    "RETRACED": _BY_WRONG_WORK,
    "SLOW_PATH": Provoked(_CACHES, "tests/measure/test_execution_checks.py::test_a_plain_environment_is_no_slow_path"),
    "LOSS_RISING": Provoked(_RISING, _RISING),
    "METRIC_OUT_OF_BAND": Provoked(_PEERS, _PEERS),
    "POW2_ONLY": Provoked(_SIZES, _SIZES),
    "CACHE_RESIDENT": Provoked(_SIZES, _SIZES),
    "INPUT_BOUND": Provoked(
        "tests/workloads/test_input_pipeline.py::test_a_step_that_waits_for_large_files_is_bound_by_its_input",
        "tests/workloads/test_input_pipeline.py::test_a_step_that_outlasts_its_input_is_not",
    ),
    "OVERHEAD_BOUND": Provoked(f"{_DOUBTED}::test_products_of_two_by_two_are_all_overhead", _HONEST),
    "WEAK_BASELINE": Provoked(_BASELINE, _BASELINE, "made"),
    "CHERRY_PICK_RISK": Provoked(
        "tests/service/routes/test_comparisons.py::test_the_best_of_several_results_of_the_same_work_is_a_risk",
        f"{_COMPARISON}::test_the_most_flattering_of_several_results_is_a_risk",
        "made",
    ),
    "ARTIFACTS_NOT_STORED": Provoked(
        f"{_KEEPING}::test_a_file_that_is_too_large_is_reported_and_the_others_are_kept",
        f"{_KEEPING}::test_without_files_there_is_no_warning",
    ),
    "BATCH_UNEVEN": Provoked(f"{_LINT}::test_each_replica_s_share_of_the_batch_is_to_be_a_multiple_of_8", _REFERENCES),
    "BATCH_SMALL": Provoked(f"{_LINT}::test_a_batch_is_small_where_starting_its_step_outweighs_its_work", _REFERENCES),
    "WIDTH_UNEVEN": Provoked(
        f"{_LINT}::test_a_width_that_a_tpu_s_matrix_unit_can_not_fill_is_named_there_alone", _REFERENCES
    ),
    "SYNTHETIC_DATA": Provoked(
        "tests/workloads/test_mnist_cnn.py::test_the_linter_says_when_accuracy_will_not_be_comparable", _REFERENCES
    ),
}
