"""Programs that replace a job's runner."""

from dyno.bench.runner.launcher import Launcher


def first_runner_is(program, launcher, patch, began):
    """Start this program instead of the first runner; later runners are regular ones.

    The program creates the file `began` when it starts, because a new interpreter is slow on a busy host.
    """
    programs = [f"import time; open({str(began)!r}, 'w').write(str(time.time()))\n{program}"]

    def start(request):
        if programs:
            return launcher.spawn(["-P", "-c", programs.pop()], request.model_dump_json().encode())
        return Launcher.start(launcher, request)

    patch.setattr(launcher, "start", start)
