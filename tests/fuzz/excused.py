"""What a schema can't say, so that an answer which isn't as it says is none the less right: with the reasons."""

import re
from typing import get_args

from pydantic_core.core_schema import ErrorType

# Which devices there are and what they hold, what goes together, how long a job takes: codes of Dyno's own. Those of
# Pydantic's, but for what its validators of whole models say, are of one field: the schema says them, too.
_OF_ONE_FIELD = {each.replace("_", "-") for each in get_args(ErrorType)} - {"value-error"}
_OF_JSON = {"malformed-body", "not-finite", "lone-surrogate", "duplicate-key", "unknown-workload"}
_TAKE_SPECS = ("submitJob", "createComparison", "rerunJob")
_SIZES = re.compile("/params/[mkn]$")  # of a product: all three or n alone, and null is as none
# Which cursors were handed out.
_TAKE_CURSORS = ("listJobs", "listResults", "listDeliveries", "listSweeps", "getHistory", "acknowledgeAlarm")


# What a whole request is refused with, and what the schema doesn't say of it.
_REFUSED_WITH = {
    "createSweep": "invalid-sweep",  # the spec, and the values of the axes
    "putSchedule": "invalid-schedule",  # cron expressions, time zones, and which devices there are
    "putBaseline": "invalid-baseline",  # which of a job and a limit go together
    "getAdvice": "invalid-request",  # which workloads, params and rates there are
    "importResults": "invalid-import",  # what an exported line holds
}
_KEY_REUSED = "idempotency-key-reused"  # nor which keys were used before, and with which body


def is_excused(failure, operation_id, status, problem):
    """`failure` is the name of Schemathesis' class, `problem` what was answered, empty for what is none."""
    if failure == "RejectedPositiveData" and status == 422:
        told = [error for error in problem.get("errors", ()) if not _SIZES.search(error["pointer"])]
        codes = {error["code"] for error in told or [problem]}
        if problem["code"] in (_KEY_REUSED, _REFUSED_WITH.get(operation_id)):
            return True
        if operation_id in _TAKE_SPECS:
            return not codes & (_OF_ONE_FIELD | _OF_JSON)
        if operation_id in ("getSweep", "getSweepTable", "getSweepPlot"):  # which metrics and axes a sweep has
            return codes <= {"unknown-metric", "does-not-fit-axes"}
        return operation_id in _TAKE_CURSORS and codes == {"invalid-cursor"}
    if failure == "AcceptedNegativeData":
        # No body is an empty one, and that an empty file. A head that is too large is refused with 431.
        return operation_id == "putArtifact" or status == 431
    # A body where there is none is refused before anybody looks what is asked for.
    return failure == "UnsupportedMethodResponse" and problem.get("code") == "bad-request"
