"""Run one spec once, in this process, and report over a pipe.

Started in two ways: a zygote's forked child calls `dyno.runner.run.main`; `python -P -m dyno.runner` is a process of
its own.
"""
