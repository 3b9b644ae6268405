"""Clock, stopping rule, statistics, verification, warnings: how a number is taken and what may speak against it."""
