"""Run one spec once, in this process, and report over a pipe.

A runner starts in two ways: a zygote's forked child calls `dyno.bench.runner.run.main`, or a new process runs
`python -P -m dyno.bench.runner`.
"""
