"""The table of warning codes: class, sentence, and the section that docs/warnings.md has for each.

To add a warning, add a row and run `make docs`. `{measure.stability.DRIFT_LIMIT:%}` in a text becomes the value of that
constant: docs/generate.py has the units.
"""

from dataclasses import dataclass
from typing import Literal

Severity = Literal["A", "B", "C"]


@dataclass(frozen=True)
class WarningCode:
    """A: the number is wrong. B: it may not repeat. C: read it with care."""

    code: str
    severity: Severity
    sentence: str  # the message of a warning that brings none
    means: str
    found: str  # how Dyno detects it
    do: str


_ROWS = (
    WarningCode(
        "ASYNC_TIMING",
        "A",
        "The clock stopped before the device had finished.",
        means="The clock stopped while the device still worked: it timed a queue, not the work in it.",
        found="""After the samples of the first run, half a sample is executed and timed again (two executions where one
        fills a sample). Then the framework's own means drain the device. An honest reading leaves only the drain's own
        time, which is taken off. Raised where more than {measure.execution_checks.DRAIN_FLOOR_S:ms} and more than
        {measure.execution_checks.DRAIN_LIMIT:%} of the time read are left, in every one of up to ten readings.""",
        do="""Don't use the figure. It is a fault of the workload: after its last execution it must read a value back
        from the device that depends on it.""",
    ),
    WarningCode(
        "WORK_ELIMINATED",
        "A",
        "The compiler removed work whose result was never read.",
        means="The compiler left out work whose result isn't read, or did it once and for all at compile time.",
        found="""More work must take longer. After the samples of the first run, twice as many executions are timed
        against half of them. If a workload can compile itself larger (chained products, for one), 2 to 64 times the
        work in one execution is timed as well. Raised where the added work took less than half of what it should: the
        time of the same work before, or what the device needs at its highest rate if that is less. Both are confirmed
        by alternating readings, the best of which counts. Never raised where the added work need not show (less than a
        quarter of one execution).""",
        do="""Don't use the figure. Make the work's result depend on all of it and read it; feed in values that the
        compiler can't know. Where the work is too small to tell, the code is in `unchecked`: ask for more of it
        (`repeats`, a larger batch).""",
    ),
    WarningCode(
        "DEGENERATE_DATA",
        "A",
        "The operands are constant or nearly constant; hardware is faster on such data.",
        means="""The operands are constant or almost so. Hardware draws less power on them and clocks higher; a compiler
        may fold them away.""",
        found="""Up to 65,536 values at random places of all generated operands of a product are checked. Raised where
        more than half of an operand's values are equal, or where the product is zero, which any kernel gets right: no
        precision is observed then. Operands of fewer than 64 values, which may be equal by chance, are checked
        together. Real data has another rule, as most of an image is background: of a training's data, inputs or
        targets, 16 values at least, must all be equal; of three batches that a pipeline (`input_pipeline`) delivers
        after the samples, all inputs.""",
        do="Use random operands. With the workloads that ship this means a fault in the generator: report it.",
    ),
    WarningCode(
        "OUTPUT_NONFINITE",
        "A",
        "The output holds NaN or infinity.",
        means="""The timed output holds NaN or infinity. Such a result is useless, and some units are faster or slower
        on it.""",
        found="The very output that was timed is read back and counted: products, inference in float and in int8.",
        do="Check the precision: float16 overflows at 65,504. A model started from foreign weights may diverge.",
    ),
    WarningCode(
        "RESULT_INCORRECT",
        "A",
        "The output differs too much from the same work in float64.",
        means="The output is not what the same work gives in float64.",
        found="""By workload:

        - Products: Freivalds' test with 8 vectors of random signs, in float64, against four times the error that honest
          rounding and summing give for this precision and number of products, {measure.correctness.MAX_TOLERANCE} at
          most. The error of a single product is relative to what random operands give on average, where it came out
          smaller. Products of int8 must be exact.
        - Unchecked products: a chain of less than 16 x 16 that is so long that its rounding errors, which add up in
          step there, could be anything; and one of more than 150 products in bfloat16 where a single product shows that
          the device cuts off instead of rounding, as TensorFlow does on a processor without AVX-512. It comes out too
          small to be told from a wrong one.
        - Inference: the probabilities of eight inputs, from the first to the last of the batch, against those of Keras'
          own call, 0.02 apart at most, and a tenth of the largest, since all may be small with a thousand classes; as
          many outputs as inputs. Where they differ by more than a tenth of what lies between different inputs, those of
          another input could pass: that is in `unchecked`.
        - A pipeline: three batches in a row, as the step takes them, that are all the same though there are images for
          two.
        - Training: one step of the compiled training against the same step made operation by operation in float32, from
          the same weights and seeds on the same batch. The change of an array of weights may differ by no more than
          {measure.correctness.ALLOWED_ROUNDINGS} times what one rounding of each weight does to it, nor by more than
          {measure.correctness.MIN_BOUND:%} if that is more. Raised if three steps of three differ. Where rounding in
          the requested precision leaves less than {measure.correctness.MIN_COMPARED:%} of the weights to compare, as in
          deep networks in bfloat16, that is in `unchecked`. `details.plain_step` has the figures.
        - Models in int8 and the readings of `device_info` have nothing to compare with: always in `unchecked`.""",
        do="""Don't use the figure. A kernel, the device or the workload is faulty: run it on another device, then with
        another framework version, and see with which the warning goes.""",
    ),
    WarningCode(
        "ABOVE_PEAK",
        "A",
        "The figure is above what the device can do.",
        means="""More was done per second than the device can do: work or time was counted wrongly, or the peak is
        wrong.""",
        found="""The fraction of peak, of the precision that ran, is above {measure.result_checks.PEAK_SLACK[datasheet]}
        for a data sheet's figure, above {measure.result_checks.PEAK_SLACK[measured here]} for a measured one (`measured
        clock`, `measured here`), which may have caught a lower clock. Of several cases the evidence is that of the
        highest. Each run whose figure is above such a peak measures it again, right after its samples, and the highest
        counts.""",
        do="""Compare `peak.dtype`, `peak.provenance` and `peak.source` with your device. Usually a model has the name
        of another; the rows are in `dyno/devices/peaks.csv`.""",
    ),
    WarningCode(
        "COMPILE_IN_TIMING",
        "A",
        "Code was traced or compiled while samples were taken.",
        means="The framework traced or compiled while samples were taken, so some of them hold the compiler's time.",
        found="""Before each sample Dyno asks the framework what it has traced or compiled so far: TensorFlow by its
        list of functions, JAX by its own account of compiling. Raised for anything new between the first sample's start
        and the last one's end; warm-up doesn't count. PyTorch doesn't report it, so its results have the code in
        `unchecked`.""",
        do="""Don't use the figure. `evidence.functions` names the compiled functions: usually a shape or a Python value
        changes from call to call.""",
    ),
    WarningCode(
        "WARM_CACHE",
        "A",
        "A cold start found caches from an earlier run.",
        means="A cold start found what an earlier run had compiled: it was not cold.",
        found="""With `cold_start`, each process gets new, empty folders for the caches of CUDA, JAX, Triton, PyTorch's
        compiler and Numba. An administrator's own flags for XLA, TensorFlow or libtpu may name others; raised where one
        of those is not empty.""",
        do="""Empty the cache that `evidence.caches` names, or remove the flag from the worker's environment; or read
        only the metrics that don't start with `cold_`.""",
    ),
    WarningCode(
        "CLOCK_SKEW",
        "A",
        "The wall clock and the monotonic clock disagree about the length of the sampling.",
        means="""Two clocks disagree about how long sampling took, so neither can be trusted: a virtual machine was
        paused or moved, or the time was set.""",
        found="The wall clock and the monotonic clock differ by more than 1 % of the window and by more than 50 ms.",
        do="""Run it again. If the warning comes back, look for suspended or migrated machines, or a broken time
        service.""",
    ),
    WarningCode(
        "LOSS_NONFINITE",
        "A",
        "The loss became NaN or infinite.",
        means="""The loss became NaN or infinite while steps were only timed: arithmetic on NaN is not the requested
        work. In the training itself the same thing fails the job.""",
        found="The loss is read back after every sample of a training.",
        do="Lower the learning rate, or use a precision with a wider range (bfloat16 for float16).",
    ),
    WarningCode(
        "UNIT_MISMATCH",
        "A",
        "The figure's unit does not fit its size.",
        means="The figure counts other work than was done: half of the operations, or twice as many.",
        found="""The framework counts the operations of the products in the graph that it executed, and the workload
        declares its own count of the same. Raised where one is more than {measure.execution_checks.UNIT_LIMIT:/} of the
        other. Of a training also where the optimiser made another number of steps in the timed executions of any run
        than the figure counts (`counted_steps`, `made_steps`); a few steps that a dynamic loss scale leaves out for
        infinite gradients are allowed. Where the framework can't count (PyTorch, a library's fused kernel) or no count
        is declared, the code is in `unchecked`.""",
        do="""Don't use the rate or the fraction of peak; times per execution still stand. It is a fault in the
        workload's count.""",
    ),
    WarningCode(
        "EMULATED_DEVICE",
        "A",
        "The device is emulated on a CPU.",
        means="""The "TPU" or "GPU" is made of CPU cores. It shows that a job would run there, and nothing about its
        speed.""",
        found="The worker was started with `--emulate`.",
        do="""Use such a worker to try jobs out. No figure of it compares with a real device's, and comparisons refuse
        it.""",
    ),
    WarningCode(
        "PRECISION_MISMATCH",
        "B",
        "The arithmetic ran in a different precision than requested.",
        means="""The arithmetic ran in another precision than requested: usually float32 in TF32 on a GPU, or in
        bfloat16 on a TPU.""",
        found="""By the error of one single product against float64, which differs from precision to precision: float32
        {measure.correctness.FINGERPRINTS[float32]:e}, bf16x3 {measure.correctness.FINGERPRINTS[bf16x3]:e}, tf32 and
        float16 {measure.correctness.FINGERPRINTS[tf32]:e}, bfloat16 {measure.correctness.FINGERPRINTS[bfloat16]:e}, fp8
        {measure.correctness.FINGERPRINTS[fp8]:e}; the nearest on a logarithmic scale is taken. TF32 and float16 leave
        the same trace and are never distinguished. Sums over more than 2,600 terms (`k`) may err more: float32 reaches
        as far as 2.1e-8 times the root of `k`, as one sum term by term errs, but to 2.4e-6 at most. Above that, from a
        `k` of 12,500 on, an error that may be either it or bf16x3 is in `unchecked`. Of a training the product is in
        the dtype of its layers: one that computes in bfloat16 instead of float32, as a setting of Keras' own can cause,
        is found on a CPU. Of `quantized_inference` raised where nothing of the int8 model is int8.""",
        do="""Request the precision that ran, or use the framework's flag that turns it off. Compare only results with
        the same `precision.observed`.""",
    ),
    WarningCode(
        "THROTTLED",
        "B",
        "The device lowered its clock for heat or power.",
        means="The device lowered its clock for heat or power. The figure rests on cooling, room and data.",
        found="""NVML named such a reason (a power cap is one) in a reading between samples, or Linux counted throttling
        of the cores. A GPU that reports no reasons has the code in `unchecked`. A CPU without that counter, as in most
        virtual machines, is judged by what a lower clock does to the figure: samples before it falls are warm-up, or
        the run has no steady state (NO_STEADY_STATE); where it differs from run to run, their figures scatter (NOISY,
        MULTIMODAL), and mostly it shows in the clock that is read after the samples of each run (CLOCK_DRIFT). A clock
        that the load lowered alike in all samples of all runs doesn't show: the clock that is read is that of one core,
        in the 50 ms after the load. Such a figure repeats for as long as that goes on, and is that of a slower device.
        """,
        do="""See `evidence.reasons`, `temperature_c` and `share_of_looks`. Cool the device, raise its power limit, or
        accept that its speed under this load is this one, and say so.""",
    ),
    WarningCode(
        "CLOCK_DRIFT",
        "B",
        "The device's clock frequency changed over the runs.",
        means="The device ran at another clock in one run than in another, so the runs measured different devices.",
        found="""The clocks of the runs lie more than {measure.stability.DRIFT_LIMIT:%} apart, as a share of their
        median. A CPU's is measured after the samples of each run with a loop of known length; a GPU's is the median of
        NVML's readings between samples.""",
        do="Fix the clock or the governor (`performance`), close other users of the machine, or ask for more runs.",
    ),
    WarningCode(
        "NOISY_NEIGHBOUR",
        "B",
        "Other processes or another machine used the device's cores.",
        means="""Others used the device's cores while samples were taken: processes, other machines of the same
        hypervisor, or work on the hyperthreads beside them.""",
        found="""As shares of the cores' time: more than {measure.host_noise.STEAL_LIMIT:%} stolen by the hypervisor,
        more than {measure.host_noise.OTHERS_LIMIT:%} busy hyperthreads beside, or more than
        {measure.host_noise.OTHERS_LIMIT:%} used by other processes while this one waited for more than
        {measure.host_noise.WAIT_LIMIT:%} (where the kernel counts waiting).""",
        do="""See which share it was. Stop those processes, keep cores free with `DYNO_RESERVED_CORES`, or rent a
        machine with dedicated cores.""",
    ),
    WarningCode(
        "DEVICE_SHARED",
        "B",
        "Another process holds the device.",
        means="Another process holds the device, its memory, and perhaps its time.",
        found="NVML lists other processes than the runner after the last sample.",
        do="End them, or give Dyno a device of its own. `evidence.other_processes` says how many there are.",
    ),
    WarningCode(
        "CPU_QUOTA",
        "B",
        "The container may not use all the processor time that the work may take.",
        means="""The container may not use the processor time that the work may take: the kernel stops it in the middle
        of samples.""",
        found="""The control group's quota is less than the number of the worker's cores; beside a GPU or TPU, where the
        host only starts the work and waits for it, less than {measure.stability.HOST_CORES} of them.""",
        do="""Raise the quota, or start the worker with as few cores as it allows (`--device cpu:0-1`). Pinning to cores
        (a cpuset) does no harm.""",
    ),
    WarningCode(
        "NOISY",
        "B",
        "The figure's interval is wider than the target, or than 2 %.",
        means="The interval is wider than requested, or than any figure's may be.",
        found="""Half of its width, over the runs, is more than `target_rel_ci` (1 % by default) of the value, or more
        than {measure.stopping_rule.LOOSEST_REL_CI:%} of it, whatever the target. A single run is judged by the interval
        of its own median.""",
        do="""Ask for more runs (`"processes": {"min": 5, "max": 20}` continues until the target is met), quieten the
        machine, or set a target that fits your question. One above {measure.stopping_rule.LOOSEST_REL_CI:%} ends the
        job sooner and leaves the warning.""",
    ),
    WarningCode(
        "MULTIMODAL",
        "B",
        "The runs fall into separate groups, so the interval of their mean means little.",
        means="""The runs fall into two groups far apart from each other. The mean lies between the groups, and the
        interval says little.""",
        found="""From five runs on, their medians are cut in two where the scatter between both groups is the largest
        multiple of that within them. Raised where the multiple is above what one set in a hundred of heavy tails
        reaches ({measure.stability.MULTIMODAL_LIMITS[5]} for five runs, {measure.stability.MULTIMODAL_LIMITS[10]} for
        ten, {measure.stability.MULTIMODAL_LIMITS[20]} for twenty), and the groups lie more than
        {measure.stability.MULTIMODAL_MIN_SHIFT:%} apart.""",
        do="""Read both groups (`evidence.low_group`, `high_group`) instead of the mean. Ask for more runs: five visit a
        mode that takes a fifth of all processes in two cases of three only. Memory layout, thread placement and clock
        states are the usual causes.""",
    ),
    WarningCode(
        "INSUFFICIENT_SAMPLES",
        "B",
        "The figure rests on fewer or shorter samples than the method's floor.",
        means="The figure rests on less than the method's floor.",
        found="""Fewer than {measure.stopping_rule.FLOOR_SAMPLES} samples in a run, less than
        {measure.stopping_rule.FLOOR_S} s of them, or samples shorter than
        {measure.stopping_rule.FLOOR_SAMPLE_S[cpu]:ms} ({measure.stopping_rule.FLOOR_SAMPLE_S[gpu]:ms} on an
        accelerator; the last tenth is forgiven).""",
        do="Leave `min_samples`, `min_s` and `max_s` at their defaults; where one execution takes long, raise `max_s`.",
    ),
    WarningCode(
        "NO_STEADY_STATE",
        "B",
        "The times still drifted, or there were too few samples to decide.",
        means="The times still changed when sampling ended, or there were too few to tell.",
        found="""Warm-up didn't end within half of `max_s`: two neighbouring windows of five samples kept apart (Mann
        and Whitney), or the first 20 had a change point (Pettitt, 1 %). Or a change point came later (0.1 %). Changes
        within the target, or within {measure.stopping_rule.LOOSEST_REL_CI:%} where that is less, don't count.""",
        do="""Look at the samples in their order (`GET /v1/jobs/<id>/samples`). Raise `max_s` for a slow warm-up; a
        slope is heat, a step is a clock, a neighbour or a cache.""",
    ),
    WarningCode(
        "RETRACED",
        "B",
        "A compiled function was traced again.",
        means="""A compiled function was traced again, in warm-up at least. The timed work may change from call to call,
        and in other work this costs seconds each time.""",
        found="""As COMPILE_IN_TIMING, but from the first execution on, warm-up included, and only for names that were
        traced before.""",
        do="See `evidence.functions`. Give the function tensors of one shape and type instead of Python values.",
    ),
    WarningCode(
        "SLOW_PATH",
        "B",
        "The work ran on a slower kernel than the device supports.",
        means="A slower kernel ran than the device has. The figure is one of that path, not of the device.",
        found="""By flags, instructions and settings, without timing: a flag that switches oneDNN, TF32, Eigen's threads
        or XLA's passes off, or asks for deterministic kernels; a limit on instructions below what the core has; a
        precision for which the core has no instructions; recurrent layers outside cuDNN's fused kernel; XLA requested
        and not used.""",
        do="""`evidence.reasons` has every one. Remove the flag from the worker's environment, or choose params that the
        fast kernel takes.""",
    ),
    WarningCode(
        "LOSS_RISING",
        "B",
        "The training loss rose.",
        means="The training did not learn, so its speed is that of a useless training.",
        found="""The last epoch's loss is above the first one's, or the second half of the epochs lies above the first
        on average.""",
        do="Lower the learning rate or raise the batch; judge the speed only once the loss falls.",
    ),
    WarningCode(
        "METRIC_OUT_OF_BAND",
        "B",
        "The figure is far from other results on devices of this model.",
        means="""The figure is far from what the same work gave on devices of this model: this device, its software or
        this hour is unlike the others, or the others were.""",
        found="""Dyno keeps the headline figure (the first sampled metric) of the newest {store.leases.PEERS_KEPT}
        results of the same workload, params that change a sample, framework, replicas, observed precision and method,
        on devices of the same model (of a CPU: on as many cores), until {store.leases.PEERS_LIFE_S:days} after the
        last. Emulated devices and untrusted results stay out. From five others on, a new one is compared with their
        median: on logarithms, within Student's t at {measure.regression_band.CONFIDENCE:%} times their median absolute
        deviation (scaled to a standard deviation; as many degrees of freedom as 37 % of their number), and never within
        less than {measure.regression_band.FLOOR:%}, as equal devices differ by 8 % on average (Sinha et al. 2022). Of
        clean, normal results this raises at most one in a hundred, of heavy-tailed ones that scatter by 9 % up to one
        in fifteen. A device that is 25 % slower is found against ten others that scatter by 2 %. With fewer than five
        others, as for all new work, the warning isn't raised and the code isn't in `unchecked`. It is there if the
        store couldn't be read.""",
        do="""Read `evidence`: `value`, `median`, `count` and `band`, and of the others `same_hardware` and
        `same_context`. If none has the same context, new software or settings may be the reason; `POST /v1/comparisons`
        with an older job says what differs. If many have, check the device: cooling, power limit, neighbours. If the
        change is real, the band follows once it makes up most of the series.""",
    ),
    WarningCode(
        "POW2_ONLY",
        "C",
        "All sizes are powers of two, which may be better or worse than their neighbours.",
        means="""All sizes are powers of two, which may run much better than their neighbours (tiles fit) or worse
        (addresses collide in caches).""",
        found="By the params, without sizes of 1.",
        do="Ask for a neighbour too: 4,000 or 4,104 beside 4,096. A list of sizes is one job.",
    ),
    WarningCode(
        "CACHE_RESIDENT",
        "C",
        "The data fits in the last level of cache, so memory was not measured.",
        means="The data fits in the last level of cache, so main memory was not measured.",
        found="""One execution touches no more than the device's last cache; of a training by its estimate, of a chain
        of products also where its matrices take 4 MiB or less, which fits in any.""",
        do="""Fine if your own data are as small. Otherwise use larger sizes, or `mode: dispatch`, which rotates its
        operands through more memory than the cache holds.""",
    ),
    WarningCode(
        "INPUT_BOUND",
        "C",
        "The device waited for its input.",
        means="The device waited for its input, or was busy making it: the figure is one of loading, not of computing.",
        found="""`input_pipeline` times from the end of each fed step until its next batch lies on the device, and after
        the last step until as many batches are ready as before. It also takes the processor time of the threads that
        make batches. Raised where the waiting is more than {measure.result_checks.INPUT_LIMIT:%} of the time of the fed
        steps, or, on a CPU, whose cores do both, where making the batches is more than
        {measure.result_checks.INPUT_LIMIT:%} of its cores' time: without it the steps would be a ninth faster at most,
        about as far as equal devices differ. No other workload can raise it, as all others keep their data in the
        device's memory and draw each batch there, within the step.""",
        do="""`input_slowdown` is what all of the input costs (`throughput_fed` against `throughput_resident`). Where
        the step waits, raise `input_threads` or `prefetch`; where the cores are busy, keep the images decoded (`source:
        memory`) or in smaller files. A training of yours that reads files may be slower than the other workloads'
        figures.""",
    ),
    WarningCode(
        "OVERHEAD_BOUND",
        "C",
        "The device was almost idle: starting the work took longer than the work.",
        means="Starting the work took longer than the work. A faster device would hardly be faster here.",
        found="""Less than {measure.result_checks.OVERHEAD_FRACTION:%} of the peak was reached, by any one of several
        cases (`evidence.case`). Silent without a known peak.""",
        do="""Ask for more per call: a larger batch or size, `steps_per_execution`, chained products. Don't rank devices
        by this figure.""",
    ),
    WarningCode(
        "WEAK_BASELINE",
        "C",
        "The baseline of the comparison does not use its device well.",
        means="A comparison's first result does not use its device well, so a faster one looks better than it is.",
        found="""In a comparison, where the first reached less than {measure.compare_results.WEAK_SHARE:%} of its peak
        and less than half of the share that a faster one reached of its own; of several cases in the compared one.
        Silent where either peak is unknown, and for first executions.""",
        do="Tune the first (batch, precision, framework, XLA), then compare again.",
    ),
    WarningCode(
        "CHERRY_PICK_RISK",
        "C",
        "A compared result is the best of several.",
        means="The compared result is the most flattering of several of the same work on equal hardware.",
        found="""In a comparison, where there are three results or more (of the newest 100 of the workload, without
        untrusted ones), the compared one is the best of them (the first one: the worst), and their median is further
        away than the margin (2 % by default).""",
        do="Compare the result nearest to the median, or run both again. `evidence.picks` has number and median.",
    ),
    WarningCode(
        "ARTIFACTS_NOT_STORED",
        "C",
        "Some files of the job could not be stored and are lost.",
        means="The figures are whole, but files that the job left (weights, plots) could not be stored and are lost.",
        found="The worker tried for `DYNO_ARTIFACT_PATIENCE_S` (300 s), or the store refused a file for itself.",
        do="`evidence.files` has names and reasons. Repair the store and run the job again if you need them.",
    ),
    WarningCode(
        "BATCH_UNEVEN",
        "C",
        "A replica's batch is not a multiple of 8, so units for 8 values stay partly empty.",
        means="""A replica's share of the batch is no multiple of 8, so units that take eight at a time stay partly
        empty.""",
        found="By the params: `batch_size` over `replicas`.",
        do="Choose a batch of 8 times the replicas, or a multiple of that.",
    ),
    WarningCode(
        "BATCH_SMALL",
        "C",
        "The batch is small for the device: a step's fixed cost outweighs its work.",
        means="The batch is small for the device: a step's own cost outweighs its work.",
        found="""By the estimate for the device, before the job runs: the batch's products would take less than half of
        a step's fixed cost.""",
        do="Raise `batch_size`, or `steps_per_execution`, unless small batches are your question.",
    ),
    WarningCode(
        "WIDTH_UNEVEN",
        "C",
        "A size is not a multiple of 128, a TPU matrix unit's side, so the unit stays partly empty.",
        means="""A layer or a matrix is no multiple of 128 wide, the side of a TPU's matrix unit, which stays partly
        empty.""",
        found="By the params, for a TPU only.",
        do="Choose multiples of 128 for the sizes that `evidence.widths` names.",
    ),
    WarningCode(
        "SYNTHETIC_DATA",
        "C",
        "The data is not the full real set, so accuracy is not a reference accuracy.",
        means="""The data are a sample, synthetic or random, not the full real set. Speed stands; accuracy is no
        reference accuracy.""",
        found="By `training.data.kind`, or by the params.",
        do="Put the files under `DYNO_DATA_DIR`, or let workers download them (`DYNO_DOWNLOAD=1`).",
    ),
)

CODES = {row.code: row for row in _ROWS}
