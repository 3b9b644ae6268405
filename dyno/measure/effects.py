"""How large must a disturbance be for a warning of class B?

It must have been able to move the figure by more than 1 %, and by more than the figure's interval, which already covers
smaller movements. A wide interval excuses at most 5 %: it describes how runs differ, and a disturbance that lasted for
all runs shifts them together.
"""

EFFECT = 0.01
EXCUSED = 0.05


def least_effect(rel_half_width: float | None) -> float:
    """The share of the figure above which a possible movement counts. None: there is no interval."""
    return max(EFFECT, min(rel_half_width or 0.0, EXCUSED))
