"""Requirements on what the instruments measured: each check is data plus a judgement.

`run` fetches a measurement from the grading session and hands it to a pure `judge`, which can be
tried without running anything. A check knows what to say about a result; it knows no lab.
"""

from course_utils.checks._common import CLEAR, Stage, TimedCheck
from course_utils.checks.compiles import CompilesAtMost, RecompilesAtMost
from course_utils.checks.finite import NonFinite, NonFiniteAtMost, count_non_finite
from course_utils.checks.gate import GateAccepts, GateCase, GateOutcome, GateRejects
from course_utils.checks.harness import (
    CompiledOnce,
    FreshInputs,
    LikeWithLike,
    PairsToldRight,
    RightAnswer,
    SamplesAtLeast,
    SteadyUnderNoise,
    WaitedFor,
    WarmedUp,
)
from course_utils.checks.launches import LaunchesAtMost, SyncsAtMost
from course_utils.checks.memory import DonatedBytesAtLeast, TempBytesAtMost
from course_utils.checks.program import ProgramSizeAtMost
from course_utils.checks.stages import (
    PipelineLaunchesAtMost,
    PipelineTimeWithin,
    StagesChangedAtMost,
    StagesKeepTheirResult,
    StagesWorthIt,
)
from course_utils.checks.time import SpeedupAtLeast, TimeWithin
from course_utils.checks.value import (
    SPREAD_FACTOR,
    Errors,
    MetricAtCounts,
    MetricWithin,
    SavedWithin,
)
from course_utils.checks.xray import (
    CardDonatedBytesAtLeast,
    CardTempBytesAtMost,
    FitsOn,
    KernelsAtMost,
    RunsOn,
)

__all__ = [
    "CLEAR",
    "SPREAD_FACTOR",
    "CardDonatedBytesAtLeast",
    "CardTempBytesAtMost",
    "CompiledOnce",
    "CompilesAtMost",
    "DonatedBytesAtLeast",
    "Errors",
    "FitsOn",
    "FreshInputs",
    "GateAccepts",
    "GateCase",
    "GateOutcome",
    "GateRejects",
    "KernelsAtMost",
    "LaunchesAtMost",
    "LikeWithLike",
    "MetricAtCounts",
    "MetricWithin",
    "NonFinite",
    "NonFiniteAtMost",
    "PairsToldRight",
    "PipelineLaunchesAtMost",
    "PipelineTimeWithin",
    "ProgramSizeAtMost",
    "RecompilesAtMost",
    "RightAnswer",
    "RunsOn",
    "SamplesAtLeast",
    "SavedWithin",
    "SpeedupAtLeast",
    "Stage",
    "StagesChangedAtMost",
    "StagesKeepTheirResult",
    "StagesWorthIt",
    "SteadyUnderNoise",
    "SyncsAtMost",
    "TempBytesAtMost",
    "TimeWithin",
    "TimedCheck",
    "WaitedFor",
    "WarmedUp",
    "count_non_finite",
]
