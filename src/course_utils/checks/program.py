"""The program stays small: checks on what XLA made of the submission."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from course_utils.checks._common import Stage, judged
from course_utils.findings import Finding, Link, Verdict
from course_utils.guard import SubmissionError
from course_utils.instruments.program_size import instructions_of
from course_utils.quantities import number

if TYPE_CHECKING:
    from course_utils.session import Session


@dataclass(frozen=True)
class ProgramSizeAtMost:
    """Loops are loops of the program, not copied out by Python while it is traced.

    Attributes:
        limit: instructions of a pass's optimised program, those of loop bodies counted once.
        launches: launches per item of a warm pass up to which a pass counts as one program. What
            has more is left to the check on launches.
        link: where the book explains it.
        hint: what to do about a program that is too large, in this lab.
    """

    limit: int
    launches: float
    link: Link
    hint: str = (
        "A Python loop inside `jit` is copied out, once for each turn: use `jax.lax.scan`, "
        "`jax.lax.fori_loop` or `jax.vmap`."
    )
    name: str = "program size"
    stage: Stage = Stage.COUNTS

    def run(self, session: "Session") -> Finding:
        """Compile a pass of the submission as one program."""
        launches = session.again.launches.count / session.items
        if launches > self.launches:
            return Finding(
                self.name,
                Verdict.NOT_CHECKED,
                cause=f"Not checked: {number(launches)} launches per {session.lab.item} are no one "
                "program whose size could be looked at.",
            )
        args = session.fresh(session.items)
        try:
            return self.judge(session.run(lambda: instructions_of(_pass(session), *args)))
        except SubmissionError as error:
            if error.kind != "raised":
                raise
            raise SubmissionError(
                error.kind,
                f"Your code could not be compiled as one program, to see its size. {error.cause}",
                "Compute with `jax.numpy` inside `jit`, and leave what depends on an array's value "
                "to the device (`jnp.where`, `jax.lax`): Python and NumPy cannot see values while "
                "JAX traces.",
                error.detail,
            ) from None

    def judge(self, instructions: int) -> Finding:
        """Judge the number of instructions."""
        finding = Finding(
            self.name,
            Verdict.PASS,
            instructions,
            self.limit,
            "at most",
            "instructions",
            link=str(self.link),
        )
        if instructions <= self.limit:
            return judged(
                finding, Verdict.PASS, f"The program has {number(instructions)} instructions."
            )
        return judged(
            finding,
            Verdict.FAIL,
            f"The compiled program has {number(instructions)} instructions, and grows with the "
            "length of a loop. Compiling it takes longer and longer.",
            self.hint,
        )


def _pass(session: "Session") -> Any:
    """Return the submission's pass as a function of its arguments.

    A jitted entry point stands for itself: its program is compiled already.
    """
    lab, functions = session.lab, session.functions
    entry = functions[lab.entries[0].name]
    if lab.drive is None and hasattr(entry, "lower"):
        return entry
    return lambda *args: lab.call(functions, args)
