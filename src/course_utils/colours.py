"""The course's colours: one name for each role, the same in figures and cards.

Taken from the palette of Okabe and Ito (*Color Universal Design*, 2008), whose colours stay apart
for every common kind of colour blindness and, as chosen here, against white. It knows no figure.
"""

SLOW = "#d55e00"
"""The broken code, eager work, what costs time."""
YOURS = "#0072b2"
"""The learner's code, and what lies between slow and fast."""
FAST = "#009e73"
"""The solution, compiled work."""
EXTRA = "#c2649a"
"""A fourth thing, where there is one."""
NEUTRAL = "#4b5563"
"""Limits, ideals and whatever is only there to compare with."""

ALL = (SLOW, YOURS, FAST, EXTRA, NEUTRAL)
"""Every colour, in the order in which a figure takes them."""
