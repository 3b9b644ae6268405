"""The table of warnings, with the texts for messages, pages, the `dyno` command and docs/warnings.md.

CONTRIBUTING.md says what a warning needs besides its row. In docs/warnings.md, the constant's value replaces a
placeholder such as `{measure.stability.DRIFT_LIMIT:%}`. docs/generate.py defines the units after the colon.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Literal

Severity = Literal["A", "B", "C"]
# Class -> meaning. With a warning of class A, a result is untrusted; with class B, it is indicative at best. Class C
# doesn't change the verdict.
CLASSES: dict[Severity, str] = {"A": "the number is wrong", "B": "it may not repeat", "C": "read it with care"}


@dataclass(frozen=True)
class WarningCode:
    """One row of the table. Rows are in the order of the classes, the gravest first."""

    code: str
    severity: Severity
    sentence: str  # the default message, and the first sentence of `means`
    _: KW_ONLY
    more: str = ""  # the rest of `means`
    found: str  # how Dyno detects it
    do: str
    at_submit: bool = False  # advice about a spec: in the response to its submit, not in results

    @property
    def means(self) -> str:
        """The meaning of the warning, without the figures of a message."""
        return f"{self.sentence} {self.more}".rstrip()


_ROWS = (
    WarningCode(
        "ASYNC_TIMING",
        "A",
        "The clock stopped before the device had finished.",
        more="The samples are the times that queueing the work takes, not the times of the work.",
        found="""After the first run's samples, Dyno executes and times 20 ms of a sample's work again. If one execution
        fills a sample, Dyno times two executions and uses their mean. Then it times the framework's own operation that
        waits until the device's queue is empty, and subtracts the time that this operation takes for an empty queue.
        Raised if, in each of up to ten readings, the difference is more than
        {measure.execution_checks.DRAIN_FLOOR_S:ms} and more than {measure.execution_checks.DRAIN_LIMIT:%} of the time
        of the executions.""",
        do="Don't use the figure. Fix the workload: it must read back a value that depends on its last execution.",
    ),
    WarningCode(
        "WORK_ELIMINATED",
        "A",
        "The compiler removed work whose result was never read.",
        more="Or it computed that work once, at compile time.",
        found="""More work must take longer. After the samples of the first run, Dyno compares the time of half the
        executions of a sample with the time of all of them. If a workload can be compiled with more work (such as
        chained products), Dyno also times one execution with 2 to 64 times the work. Raised if the added work took less
        than half of its expected time. The expected time is the time of the same amount of work in the samples, or at
        the device's highest rate if that is shorter. To confirm a warning, Dyno times both amounts in turns and uses
        the shortest times. Never raised if half of the expected time is below a quarter of one execution's time.""",
        do="""Don't use the figure. Make the result depend on all of the work, read it, and feed in values that the
        compiler can't know. If the work is too small for the check, the code is in `unchecked`: request more work
        (`repeats`, a larger batch).""",
    ),
    WarningCode(
        "DEGENERATE_DATA",
        "A",
        "The operands are constant or nearly constant; hardware is faster on such data.",
        more="On such data, hardware draws less power and has a higher clock, and a compiler may remove the work.",
        found="""Dyno checks up to 65,536 values at random places of each generated operand of a product. Raised if more
        than half of an operand's values are equal, or if the product is zero, so that Dyno can't observe its precision.
        Operands of fewer than 64 values, which may be equal by chance, are checked together. Real images may be mostly
        background. So for a training, the warning is raised only if all inputs or all targets (at least 16 values) are
        equal. For `input_pipeline`, it is raised if all inputs in the three batches after the samples are equal.""",
        do="Use random operands. In a workload that ships with Dyno, the generator is faulty: report it.",
    ),
    WarningCode(
        "OUTPUT_NONFINITE",
        "A",
        "The output holds NaN or infinity.",
        more="Such a result is useless, and some units run faster or slower on such values.",
        found="Dyno counts such values in the timed output of products and of inference (float and int8).",
        do="Check the precision: float16 overflows at 65,504. A model with another job's weights may diverge.",
    ),
    WarningCode(
        "RESULT_INCORRECT",
        "A",
        "The output differs too much from the same work in float64.",
        more="For a training step, the reference is in float32.",
        found="""By workload:

        - Products: Freivalds' test with 8 vectors of random signs, in float64. The limit is four times the error that
          correct rounding and summing cause for this precision and number of products, but at most
          {measure.correctness.MAX_TOLERANCE}. If a single product is smaller than the average product of random
          operands, its error is relative to that average. Products of int8 must be exact.
        - Unchecked products: long chains of matrices smaller than 16 x 16, whose rounding errors all have one
          direction. Chains of more than 150 products in bfloat16 are unchecked too if the device truncates instead of
          rounding, as TensorFlow does on a processor without AVX-512. Their results are so small that a wrong result
          looks the same.
        - Inference: Dyno compares the probabilities of eight inputs, spread over the batch, with those of Keras' own
          call. They may differ by 0.02, or by a tenth of the largest probability if that is less. There must be as many
          outputs as inputs. If the probabilities differ by more than a tenth of the distance between the outputs of
          different inputs, the output of a wrong input could pass, so the code is in `unchecked`.
        - `input_pipeline`: raised if three consecutive batches are equal, although the images fill at least two
          batches.
        - Training: Dyno compares one step of the compiled training with the same step, executed operation by operation
          in float32, with the same weights, seeds and batch. The change of a weight array may differ by
          {measure.correctness.ALLOWED_ROUNDINGS} times the effect of one rounding of each weight, or by
          {measure.correctness.MIN_BOUND:%} if that is more. Raised if all three checked steps exceed this limit. If
          rounding in the requested precision leaves less than {measure.correctness.MIN_COMPARED:%} of the weights to
          compare, as in deep networks in bfloat16, the code is in `unchecked`. `details.plain_step` has the figures.
        - Models in int8 and the readings of `device_info` have no reference, so the code is always in `unchecked`.""",
        do="""Don't use the figure. A kernel, the device or the workload is faulty. To find the fault, run the job on
        another device, then with another framework version.""",
    ),
    WarningCode(
        "ABOVE_PEAK",
        "A",
        "The figure is above what the device can do.",
        more="The work, the time or the peak is wrong.",
        found="""Raised if the fraction of peak, in the observed precision, is above
        {measure.result_checks.PEAK_SLACK[datasheet]} for a data sheet's peak. The limit is
        {measure.result_checks.PEAK_SLACK[measured here]} for a measured peak (`measured clock`, `measured here`), since
        the clock may have been lower during the measurement of the peak. Each run whose figure exceeds a measured peak
        measures the peak again right after its samples, and Dyno uses the highest peak. The evidence is from the case
        with the highest fraction. Also raised if the stated memory traffic per second is above what the device's caches
        can deliver: on a CPU, 192 bytes per cycle and core at 8 GHz, else
        {measure.peak_fraction._CACHES} times the bandwidth of the memory.""",
        do="""Compare `peak.dtype`, `peak.provenance` and `peak.source` with your device. Usually, the device reports
        the name of another model. The table of peaks is `dyno/bench/devices/peaks.csv`.""",
    ),
    WarningCode(
        "COMPILE_IN_TIMING",
        "A",
        "Code was traced or compiled while samples were taken.",
        more="Some samples contain the compiler's time.",
        found="""Before each sample Dyno reads from the framework what it has traced or compiled so far: TensorFlow's
        list of functions, or JAX' compilation events. Raised for any new entry between the start of the first sample
        and the end of the last one. PyTorch doesn't report compilations: the code is in `unchecked`.""",
        do="""Don't use the figure. `evidence.functions` names the compiled functions. Usually a shape or a Python value
        changes from call to call.""",
    ),
    WarningCode(
        "WARM_CACHE",
        "A",
        "A cold start found caches from an earlier run.",
        more="They hold compiled code, so the start was not cold.",
        found="""With `cold_start`, each process gets new, empty folders for the caches of CUDA, JAX, Triton, PyTorch's
        compiler and Numba. An administrator's own flags for XLA, TensorFlow or libtpu may name other folders. Raised if
        such a folder is not empty.""",
        do="""Empty the cache that `evidence.caches` names, or remove the flag from the worker's environment; or read
        only the metrics that don't start with `cold_`.""",
    ),
    WarningCode(
        "CLOCK_SKEW",
        "A",
        "The wall clock and the monotonic clock disagree about the length of the sampling.",
        more="Neither is reliable: a virtual machine was paused or moved, or the time was set.",
        found="The wall clock and the monotonic clock differ by more than 1 % of the window and by more than 50 ms.",
        do="Run it again. If the warning returns, look for suspended or migrated machines or a broken time service.",
    ),
    WarningCode(
        "LOSS_NONFINITE",
        "A",
        "The loss became NaN or infinite.",
        more="Arithmetic on NaN is not the requested work. Such a loss in the training itself fails the job.",
        found="Dyno reads the loss back after every sample of a training.",
        do="Lower the learning rate, or use a precision with a wider range (bfloat16 for float16).",
    ),
    WarningCode(
        "UNIT_MISMATCH",
        "A",
        "The figure's unit does not fit its size.",
        more="Its count of operations differs from the executed work, for example by a factor of two.",
        found="""The framework counts the operations of the products in the executed graph, and the workload declares
        its own count of them. Raised if one count is more than {measure.execution_checks.UNIT_LIMIT:/} of the other.
        For work without such operations (`memory_bandwidth`, some of `operators`), Dyno compares the declared bytes
        with the size of the framework's arrays.
        Also raised if the optimiser made more or fewer steps in a run's timed executions than the figure counts
        (`made_steps`, `counted_steps`), except for a few steps that a dynamic loss scale skips for infinite gradients.
        If the framework can't count (a library's fused kernel) or the workload declares no count, the code is
        in `unchecked`.""",
        do="Don't use the rate or the fraction of peak; times per execution remain valid. Fix the workload's count.",
    ),
    WarningCode(
        "EMULATED_DEVICE",
        "A",
        "The device, or its units, are emulated on a CPU.",
        more='Such a "TPU" or "GPU" shows that a job can run on such a device, but not how fast.',
        found="The worker was started with `--emulate`, or `collectives` ran over virtual devices of a CPU.",
        do="""Use emulated devices only to try out a spec. Their figures say nothing about a real device, and
        comparisons with their results are untrusted.""",
    ),
    WarningCode(
        "PRECISION_MISMATCH",
        "B",
        "The arithmetic ran in a different precision than requested.",
        more="An example is a `matmul` in float32 that ran in TF32 on a GPU.",
        found="""Dyno infers the precision from the error of a single product against float64: float32
        {measure.correctness.FINGERPRINTS[float32]:e}, bf16x3 {measure.correctness.FINGERPRINTS[bf16x3]:e}, tf32 and
        float16 {measure.correctness.FINGERPRINTS[tf32]:e}, bfloat16 {measure.correctness.FINGERPRINTS[bfloat16]:e}, fp8
        {measure.correctness.FINGERPRINTS[fp8]:e}; Dyno uses the precision whose error is nearest on a logarithmic
        scale. TF32 and float16 have the same error, so Dyno doesn't distinguish them. Sums over more than 2,600 terms
        (`k`) may have larger errors: for float32 Dyno allows 2.1e-8 times the root of `k`, the error of a sequential
        sum, up to 2.4e-6. From a `k` of 12,500 on, an error slightly above 2.4e-6 may be that of float32 or of bf16x3,
        so the code is in `unchecked`. For a training, the product is in the dtype of its layers. If the model has a
        convolution, Dyno also tests a convolution, and uses the less precise result. So Dyno detects bfloat16, which a
        Keras setting can cause. A float32 training that a framework runs in TF32 (GPU) or bfloat16 (TPU) by default
        isn't a mismatch: the result names that precision, as in `float32 (tf32)`. For `quantized_inference`, raised if
        no part of the int8 model is int8.""",
        do="""Request the precision that Dyno observed, or use the framework's flag that disables the observed
        precision. Results whose `precision.observed` differs are of different work.""",
    ),
    WarningCode(
        "THROTTLED",
        "B",
        "The device lowered its clock for heat or power.",
        more="The figure depends on cooling, surroundings and data.",
        found="""Raised if NVML's counters report that a GPU's clock was lowered for heat, a power cap or a limit of the
        board in more than {measure.stability.THROTTLED_SHARE:%} of the sampled window. Without these counters, raised
        if NVML reported such a reason between samples. On a CPU, raised if Linux counted throttling of the cores. If a
        GPU reports no reasons, the code is in `unchecked`. Most virtual machines lack the CPU's counter; there, other
        checks detect a lower clock. If the clock falls during a run, the run's samples are slower at its end
        (NO_STEADY_STATE). If the clock differs between runs, the clocks that Dyno measures after the samples of each
        run usually differ too (CLOCK_DRIFT). If the load lowers the clock equally in all samples of all runs, Dyno
        can't detect this, since it measures the clock on one core in the 10 to 40 ms after the load. Such a figure
        repeats with the same load.""",
        do="""See `evidence.reasons`, `throttled_s`, `temperature_c` and `share_of_looks`. Cool the device, raise its
        power limit, or report the figure as the device's speed under this load.""",
    ),
    WarningCode(
        "CLOCK_DRIFT",
        "B",
        "The device's clock frequency changed over the runs, by more than the figure's interval covers.",
        more="In effect, the runs measured different devices.",
        found="""Dyno measures a CPU's clock after the samples of each run with a loop of known length. A GPU's clock is
        the median of NVML's readings between samples. Raised only if the runs' clocks step or slide. A change above
        {measure.stability.STEP_LIMIT:%} from one run to the next is a step; with two runs,
        {measure.stability.DRIFT_LIMIT:%} is enough. From five runs on, Dyno also fits each possible step and a line by
        least squares. The best fit is a step or slide if its sum of squares is more than
        {measure.change_points.CLOCK_SHIFT_LIMITS[5]} times (for five runs) the residual sum of squares and that of a
        quiet clock together. At most one in forty wandering clocks exceeds this limit. The clock explains how the runs
        differ if adjusting their times to one clock removes at least {measure.stability.EXPLAINED_SHARE:%} of their
        scatter, or leaves an interval of at most ±{measure.warnings.EFFECT:%}. `evidence.moved` is the largest distance
        of a run's figure from the mean, as far as the runs' times follow the clock. With two runs, or after a step
        above {measure.stability.STEP_LIMIT:%} if the clock doesn't explain how the runs differ, it is the whole
        distance of a clock from the mean clock. Raised if `evidence.moved` is more than {measure.warnings.EFFECT:%},
        and more than half of the interval (at one clock, if the clock explains how the runs differ). A value above
        {measure.warnings.EXCUSED:%} raises the warning however wide the interval is.""",
        do="Fix the clock or the governor (`performance`), stop other work on the machine, or request more runs.",
    ),
    WarningCode(
        "NOISY_NEIGHBOUR",
        "B",
        "Other work on the processor could have slowed this work down.",
        more="""Other processes, other virtual machines on the host, or work on sibling hyperthreads used the device's
        cores during sampling or the training. Or the processor's other cores were busy: all cores share its cache, its
        memory bandwidth and its turbo.""",
        found="""Dyno adds up three possible losses of speed (`evidence.moved`). The loss due to other processes is
        their time on the device's cores, but at most the time that the most delayed thread waited, if the kernel counts
        waiting. The loss due to other machines, siblings and interrupts is the time that they took from the most
        disturbed core. For work on a CPU, the loss due to the package's other cores is
        {measure.host_noise.WHOLE_PACKAGE:%} if all are busy, as measured on 16 cores, but at most
        {measure.host_noise.ONE_PACKAGE_CORE:%} for each busy core. Dyno ignores {measure.host_noise.BACKGROUND:%} of
        one core for other processes, or {measure.host_noise.BACKGROUND_PER_CORE:%} of each core if that is more: on a
        quiet machine, the kernel and Dyno's own API and Redis take that much. Programs that the run started, such as
        XLA's compiler for GPUs, belong to the run. Raised if the sum is more than {measure.warnings.EFFECT:%} over the
        samples of all runs, and more than half of the figure's interval. A sum above {measure.warnings.EXCUSED:%}
        raises the warning however wide the interval is. So does such a sum over the first epoch of a training, or over
        its other epochs together, if they last at least two seconds (`evidence.phase`).""",
        do="""The evidence has the share of each cause. Stop the processes that took the largest share, or rent a
        machine with dedicated cores. Two workers on one processor disturb each other: give one worker all cores, or run
        their jobs one after the other. Keep a core free for Dyno's own API and Redis with `DYNO_RESERVED_CORES`.""",
    ),
    WarningCode(
        "DEVICE_SHARED",
        "B",
        "Another process holds the device.",
        more="It uses the device's memory, and perhaps its time.",
        found="After the last sample, NVML lists processes other than the runner.",
        do="Stop these processes, or give Dyno a device of its own. `evidence.other_processes` has their number.",
    ),
    WarningCode(
        "CPU_QUOTA",
        "B",
        "The container's CPU quota is less than the work may use.",
        more="The kernel may pause the work during a sample.",
        found="""Raised if the cgroup's quota is less than the number of the worker's cores. With a GPU or TPU, the host
        only starts the work and waits for it, so the limit is {measure.stability.HOST_CORES} cores.""",
        do="""Raise the quota, or start the worker with at most as many cores as the quota allows (`--device cpu:0-1`).
        Pinning to cores (a cpuset) is harmless.""",
    ),
    WarningCode(
        "TARGET_MISSED",
        "B",
        "The figure's interval is wider than the requested target.",
        found="""Raised if half of the interval over the runs is more than `target_rel_ci` of the value. If `processes`
        is a range and the spec has no target, the target is {models.spec.TARGET_REL_CI:%}. For a single run, Dyno uses
        the interval of the median of its samples. The first `processes.min` runs decide the number of all runs. So the
        target is missed if that number exceeds `processes.max`, or if later runs scatter more than the first.""",
        do="""Request more runs (`"processes": {"min": 5, "max": 50}`), stop other work on the machine, or set a looser
        target. The figure and its interval remain valid.""",
    ),
    WarningCode(
        "MULTIMODAL",
        "B",
        "The runs fall into separate groups, so the interval of their mean means little.",
        more="The mean lies between the groups.",
        found="""With {measure.stability.MULTIMODAL_MIN_RUNS} or more runs, Dyno splits their medians into two groups,
        where the ratio of the scatter between the groups to the scatter within them is the largest. Raised if the
        groups are more than {measure.stability.MULTIMODAL_MIN_SHIFT:%} apart, and the ratio exceeds a limit that one in
        a hundred sets of heavy-tailed runs exceeds: {measure.stability.MULTIMODAL_LIMITS[10]} for ten runs,
        {measure.stability.MULTIMODAL_LIMITS[20]} for twenty. With fewer runs, Dyno can't distinguish modes from
        scatter, but the interval is as wide as the distance between the modes.""",
        do="""Read both groups (`evidence.low_group`, `high_group`) instead of the mean. Memory layout, thread placement
        and clock states are the usual causes.""",
    ),
    WarningCode(
        "INSUFFICIENT_SAMPLES",
        "B",
        "The figure rests on fewer or shorter samples than the method's floor.",
        found="""Raised if a run has fewer than {models.spec.FEW_SAMPLES} samples
        ({measure.stopping_rule.FEW_LONG_SAMPLES} are enough if they take {measure.stopping_rule.LONG_SAMPLE_S} s or
        more), or if its samples are shorter than {measure.stopping_rule.FLOOR_SAMPLE_S[cpu]:ms}
        ({measure.stopping_rule.FLOOR_SAMPLE_S[gpu]:ms} on an accelerator) by more than a tenth. With `budget_s`, every
        run takes enough samples.""",
        do="""Change the settings that the message names. If that takes too long, request less work in one execution: a
        smaller `n`, fewer `repeats` or a smaller batch.""",
    ),
    WarningCode(
        "NO_STEADY_STATE",
        "B",
        "The times still drifted, or there were too few samples to decide.",
        found="""A run is unsteady if its samples have a change point (Pettitt's test, 0.1 %). A run is also unsteady
        if neighbouring windows of five samples differed (Mann and Whitney's test) until the run's time for warm-up was
        over. This time is the run's share of the budget, or half of the spec's `max_s`. Dyno ignores changes within
        the target or within {measure.stopping_rule.LOOSEST_REL_CI:%}, whichever is less. Raised if one of three
        changes could have moved the figure (`evidence.moved`) by more than {measure.warnings.EFFECT:%}, and by more
        than half of the figure's interval. First, changes within unsteady runs: Dyno adds up the largest difference
        between the quarters of the samples of each unsteady run, and divides the sum by the number of all runs.
        Second, a difference between the earlier and the later half of the samples that all runs share
        ({measure.stability.COMMON_CONFIDENCE:%} confidence). Third, from five runs on, a step or slide of the runs'
        medians that at most one in a hundred sets of runs has by chance. For this third change, Dyno uses the interval
        that remains without the step or slide. A third change that moved the figure by more than
        {measure.warnings.EXCUSED:%} raises the warning even if it is within half of this interval.""",
        do="""Look at the samples in their order (`GET /v1/jobs/<id>/samples`). Give a slow warm-up a larger
        budget. A slope usually means heat; a step means a changed clock, other load or a cache.""",
    ),
    WarningCode(
        "RETRACED",
        "B",
        "A compiled function was traced again.",
        more="The timed work may change from call to call, and each tracing can cost seconds.",
        found="""The check is that of COMPILE_IN_TIMING, but from the first execution on, including warm-up, and only
        for functions that were traced before.""",
        do="See `evidence.functions`. Pass tensors of one shape and type to the function instead of Python values.",
    ),
    WarningCode(
        "SLOW_PATH",
        "B",
        "The work ran on a slower kernel than the device supports.",
        more="The figure describes that kernel, not the device.",
        found="""Dyno checks flags, instructions and settings; it doesn't time their effect. Causes are: a flag that
        switches oneDNN, TF32, Eigen's threads or XLA's passes off, or requests deterministic kernels; a limit on the
        core's instructions; a precision for which the core has no instructions; recurrent layers without cuDNN's fused
        kernel; XLA that was requested but not used, or that failed on an accelerator with `jit_compile: "auto"`.""",
        do="""`evidence.reasons` lists all causes. Remove the flag from the worker's environment, or choose params that
        the fast kernel supports.""",
    ),
    WarningCode(
        "LOSS_RISING",
        "B",
        "The training loss rose.",
        more="The training did not learn, or diverged, so its speed is that of a useless training.",
        found="""Raised if the last epoch's loss is above the first epoch's, or if the second half of the epochs has a
        higher mean loss than the first half. Dyno also compares the losses of each trial and of the timed steps with
        the first loss, which is the loss of the first batch before the first step. Raised if a mean loss is at least
        {measure.result_checks.DOUBLED} times the first loss or at least {measure.result_checks.DIVERGED}, or if the
        last of several epochs is more than 5 % above the first loss. Dyno uses the first loss if the first call makes
        one step on a batch of at least {measure.result_checks.LEAST_STARTING} samples, with new weights instead of
        another job's weights. Otherwise the limit is {measure.result_checks.DOUBLED} times the loss of a model with new
        weights on at least that many samples. In `input_pipeline`, Dyno checks the fed and the resident steps. Also
        raised for a validation loss that isn't finite, as in a deep network whose batch normalisation has processed few
        batches.""",
        do="Lower the learning rate or raise the batch size. Use the speed only once the loss falls.",
    ),
    WarningCode(
        "EPOCHS_DISAGREE",
        "B",
        "The sampled steps and the trained epochs differ in speed.",
        more="One of them isn't the speed of this training on this device.",
        found="""Dyno compares the time of an epoch of sampled steps (`epoch_time`) with the mean time of the trained
        epochs after the first, which compiles. Raised if these times differ by more than
        {measure.result_checks.EPOCHS_LIMIT:%}, and by more than a further run may differ from the sampled runs, given
        their scatter (95 %), since the training was one run. Not checked for a single epoch, for epochs of less than
        half a second each, or of less than a second together.""",
        do="""`training.epochs` has the time and the `core_shares` of each epoch. A few slow epochs in a row suggest
        other work on the machine or its host. Times that rise or fall steadily suggest heat or a lack of memory. Steps
        need about the same processor time on the same cores. If `evidence.cpu_ratio` is as far from 1 as `ratio`, the
        cores were slower (clock, sibling hyperthreads), or threads spun while they waited. If `cpu_ratio` is near 1,
        threads slept while they waited for cores or for each other, and `sampled_cores_busy` differs from
        `trained_cores_busy`. Repeat the job on a quiet machine.""",
    ),
    WarningCode(
        "METRIC_OUT_OF_BAND",
        "B",
        "The figure is far from other results on devices of this model.",
        more="This device, its software or its load differs from the others.",
        found="""Dyno keeps the headline figure (the first sampled metric) of the newest {store.leases.PEERS_KEPT}
        results of the same work, for {store.leases.PEERS_LIFE_S:days} after the latest of these results. The same work
        means the same workload, params that change a sample, framework, replicas, observed precision, method and
        device model (for a CPU, also the number of cores). Emulated devices and untrusted results are left out. With
        five or more earlier results, a new figure must lie in a band around their median. On a logarithmic scale, the
        band's half-width is Student's t at {measure.series.BAND_CONFIDENCE:%} times the earlier results' median
        absolute deviation, scaled to a standard deviation. The degrees of freedom are 37 % of the number of earlier
        results. The half-width is at least {measure.series.BAND_FLOOR:%}, since equal devices differ by 8 % on average
        (Sinha et al. 2022). If the clocks are known, Dyno adjusts the earlier figures to the new result's clock,
        unless this clock is outside such a band around the earlier clocks. The false-alarm rate is at most one in a
        hundred for normal results, and one in fifteen for heavy-tailed ones that scatter by 9 %. With ten earlier
        results that scatter by 2 %, Dyno detects a device that is 25 % slower. With fewer than five earlier results,
        as for all new work, the warning isn't raised and the code isn't in `unchecked`. The code is in `unchecked`
        only if Dyno couldn't read Redis.""",
        do="""Read `evidence`: `value`, `median`, `count` and `band`, and the numbers of earlier results with the same
        hardware (`same_hardware`) and context (`same_context`). If `same_context` is 0, new software or settings may be
        the reason; `POST /v1/comparisons` with an older job lists the differences. If `same_context` is high, check the
        device: cooling, power limit, load. After a real change, the band adapts once most of the series is new.""",
    ),
    WarningCode(
        "LIMIT_MISSED",
        "B",
        "At the rate that was found, more queries were late than by chance.",
        found="""For `inference` with the scenario `server`: each run serves queries at the rate that it found. Raised
        if a larger share of them took longer than `limit_ms` than in each of 256 simulations of as many queries.""",
        do="""Give the job a larger `budget_s`, so that more queries decide. Keep other programs off the machine.""",
    ),
    WarningCode(
        "POW2_ONLY",
        "C",
        "All sizes are powers of two, which may be better or worse than their neighbours.",
        more="Such sizes may fit a kernel's tiles better than other sizes, or their addresses may collide in caches.",
        found="All sizes above 1 in the params are powers of two.",
        do="Request a neighbouring size too: 4,000 or 4,104 beside 4,096. One job can have a list of sizes.",
        at_submit=True,
    ),
    WarningCode(
        "CACHE_RESIDENT",
        "C",
        "The data fits in the last level of cache, so memory was not measured.",
        found="""The data of one execution fits in the device's last-level cache. For a training, Dyno estimates the
        size of this data. A chain of products with matrices of 4 MiB or less fits in any device's cache.""",
        do="""Ignore this if your own data are as small. Otherwise use larger sizes, or `mode: dispatch`, which rotates
        its operands through more memory than the cache holds.""",
    ),
    WarningCode(
        "SUBNORMAL_OUTPUT",
        "C",
        "Many output values are subnormal, and some processors compute far slower with such values.",
        found="""For `operators`: more than {bench.workloads.operators.SUBNORMAL_SHARE:%} of an operator's output values
        are not zero, but smaller than the smallest normal number of the precision (6.1e-5 in float16).""",
        do="""Use bfloat16 or float32, whose range is larger, if your own values are not as small.""",
    ),
    WarningCode(
        "INPUT_BOUND",
        "C",
        "The device waited for its input.",
        more="Or a CPU's cores prepared the input. In both cases, the figure describes loading, not computing.",
        found="""`input_pipeline` measures the time from the end of each fed step until the next batch is on the device.
        After the last step of a call, it measures the time until as many batches are ready as before the call. It also
        measures the processor time of the threads that prepare batches. Raised if the wait is more than
        {measure.result_checks.INPUT_LIMIT:%} of the time of the fed steps. On a CPU, whose cores prepare the batches
        and compute the steps, also raised if preparing batches takes more than {measure.result_checks.INPUT_LIMIT:%} of
        the cores' time. At this limit, steps without waiting would be a ninth faster, about the difference between
        equal devices. Other workloads can't raise the warning, since they keep their data in the device's memory.""",
        do="""`input_slowdown` is the total cost of the input (`throughput_fed` against `throughput_resident`). If the
        step waits, raise `input_threads` or `prefetch`. If the cores are busy, keep the decoded images in memory
        (`source: memory`), or use smaller files. Your own training may be slower than other workloads' figures if it
        reads files.""",
    ),
    WarningCode(
        "OVERHEAD_BOUND",
        "C",
        "The device was almost idle: starting the work took longer than the work.",
        more="A faster device would hardly improve this figure.",
        found="""Raised if the figure, or the figure of any case (`evidence.case`), is below
        {measure.result_checks.OVERHEAD_FRACTION:%} of its roof: of the peak or of the memory bandwidth, whichever
        binds. If the roof is unknown, the peak counts. Not raised if both are unknown.""",
        do="""Request more work per call: a larger batch or size, `steps_per_execution`, chained products. Don't rank
        devices by this figure.""",
    ),
    WarningCode(
        "WEAK_BASELINE",
        "C",
        "The base of the comparison does not use its device well.",
        more="A faster result looks better than it is.",
        found="""Raised in a comparison if the base reached less than {measure.compare_results.WEAK_SHARE:%} of its
        peak, and a faster result reached more than twice the base's share of its own peak. With several cases, Dyno
        checks only the compared case. Not raised for first executions, or if the peak of the base or of the faster
        result is unknown.""",
        do="Tune the base (batch, precision, framework, XLA), then compare again.",
    ),
    WarningCode(
        "CLOCK_CHANGED",
        "C",
        "The device's clock is far from that of the result that this one is compared with.",
        more="Dyno doesn't adjust the ratio to one clock, since a device with a low clock is really slower.",
        found="""Raised in a comparison of the same work on equal hardware, with a result or a baseline, if the clocks
        (means over the runs) differ by more than {measure.series.LARGEST_CHANGE:%}. Below this limit, Dyno compares a
        CPU's figures at one clock. Not raised if a clock is unknown.""",
        do="""Find the cause: heat, a power limit, the governor, another use of the processor. On a GPU with a power
        limit, the clock depends on the work and its data. To compare two versions independently of the clock, run them
        in turns (`dyno compare a.json b.json`).""",
    ),
    WarningCode(
        "ARTIFACTS_NOT_STORED",
        "C",
        "Some files of the job could not be stored and are lost.",
        more="These are files such as weights and plots; the figures are complete.",
        found="The worker's retries failed for `DYNO_ARTIFACT_PATIENCE_S` (300 s), or the store refused the file.",
        do="`evidence.files` has names and reasons. If you need the files, repair the store and run the job again.",
    ),
    WarningCode(
        "SAMPLES_NOT_STORED",
        "C",
        "Redis was full, so the raw samples were not stored.",
        more="The figures are complete.",
        found="The memory left below Redis' `maxmemory` was reserved for queued and running jobs.",
        do="Raise `maxmemory` or set `DYNO_MAX_STORE_BYTES`. If you need the samples, run the job again.",
    ),
    WarningCode(
        "BATCH_UNEVEN",
        "C",
        "A replica's batch is not a multiple of 8, so units for 8 values stay partly empty.",
        found="From the params: `batch_size` divided by `replicas`.",
        do="Choose a `batch_size` that is a multiple of 8 times `replicas`.",
        at_submit=True,
    ),
    WarningCode(
        "BATCH_SMALL",
        "C",
        "The batch is small for the device: a step's fixed cost outweighs its work.",
        found="By the estimate before the job runs, the batch's products take less than half of a step's fixed cost.",
        do="Raise `batch_size` or `steps_per_execution`, unless you want to measure small batches.",
        at_submit=True,
    ),
    WarningCode(
        "WIDTH_UNEVEN",
        "C",
        "A size is not a multiple of 128, a TPU matrix unit's side, so the unit stays partly empty.",
        found="From the params, for a TPU only.",
        do="Choose multiples of 128 for the sizes that `evidence.widths` names.",
        at_submit=True,
    ),
    WarningCode(
        "NO_DEVICE_YET",
        "C",
        "No live device can run the job, which waits for one.",
        found="At the submit of a job with `queue_if_absent`.",
        do="Start a worker for the device (`dyno worker`), or cancel the job.",
        at_submit=True,
    ),
    WarningCode(
        "TIMEOUT_TIGHT",
        "C",
        "The job may take longer than its timeout, which would stop it.",
        found="The estimate is above `timeout_s`, but within its accuracy, a factor of 3.",
        do="Raise `timeout_s`, or lower `measure.budget_s` or the amount of work.",
        at_submit=True,
    ),
    WarningCode(
        "MARGIN_FINE",
        "C",
        "The baseline's margin is finer than its jobs can tell.",
        found="""If a job's baseline is an earlier job, Dyno uses the scatter of that earlier job and of its series.
        Raised if unchanged work would often be inconclusive, even after a gate's maximum number of runs.""",
        do="""Save the baseline with the margin in `evidence.least_margin`, use a quieter device, or run both versions
        in turns (`dyno compare a.json b.json`), which detects smaller changes.""",
        at_submit=True,
    ),
    WarningCode(
        "SYNTHETIC_DATA",
        "C",
        "The data is not the full real set, so accuracy is not a reference accuracy.",
        more="The speed is valid.",
        found="From `training.data.kind`, or from the params.",
        do="Put the files under `DYNO_DATA_DIR`, or let workers download them (`DYNO_DOWNLOAD=1`).",
    ),
)

CODES = {row.code: row for row in _ROWS}
