"""What an X-ray found: kernels, memory, whether the card can run it. Plain data and its text."""

import html
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from course_utils.instruments.xray.cards import HERE, JAX_POOL_FRACTION, Card
from course_utils.instruments.xray.errors import XrayError
from course_utils.instruments.xray.sources import Source
from course_utils.quantities import data, plural

_LIMITS_OF_COUNTS = (
    "A count is of work items that the program launches; a library call counts once, whatever it "
    "runs inside. It is not a time."
)
LIMITS = (
    "Compiled without autotuning: on the real card a matmul may use another kernel. "
    + _LIMITS_OF_COUNTS
)
"""What an X-ray for a described card cannot say; stands under every table."""

Kind = Literal["fusion", "library", "copy", "other"]


@dataclass(frozen=True)
class Kernel:
    """One piece of work that the program launches.

    Attributes:
        name: the compiler's name of it.
        kind: `fusion`, a kernel the compiler wrote for one or more operations; `library`, a call
            into cuBLAS and the like; `copy`, memory moved or filled; `other`, an operation the
            compiler did not fuse.
        library: the library's name for a library call, else empty.
        ops: JAX operations done in it, in order.
        launches: how often one call of the program launches it: the product of the trip counts of
            the loops around it. Inside a loop whose trip count the compiler does not know that
            loop counts as one.
        known: whether `launches` is exact.
        loops: how many loops stand around it.
        output: shape and type of what it writes, for example `f32[128,64]`.
        source: the innermost line of the learner's code that it comes from, where kept.
        sources: every such line of the operations in it.
        dispatch: which dispatch of eager code it belongs to, from 0; always 0 in one program.
    """

    name: str
    kind: Kind
    library: str = ""
    ops: tuple[str, ...] = ()
    launches: int = 1
    known: bool = True
    loops: int = 0
    output: str = ""
    source: Source | None = None
    sources: tuple[Source, ...] = ()
    dispatch: int = 0


@dataclass(frozen=True)
class Memory:
    """Bytes of device memory that one call needs, as the compiler states them.

    Several results come with a table of pointers, eight bytes for each, which counts as output.

    Attributes:
        temp_bytes: scratch memory, held while the call runs.
        argument_bytes: the arguments it reads.
        output_bytes: its results.
        donated_bytes: results written over donated arguments.
    """

    temp_bytes: int
    argument_bytes: int
    output_bytes: int
    donated_bytes: int

    @property
    def needed_bytes(self) -> int:
        """All of it together; a result that takes over an argument's memory counts once."""
        return self.temp_bytes + self.argument_bytes + self.output_bytes - self.donated_bytes


@dataclass(frozen=True)
class Xray:
    """The program that a GPU would run for one call.

    Asking a refused program for a count or for bytes raises `XrayError` with the refusal.

    Attributes:
        gpu: the card's short name, or `here`.
        title: the card's full name.
        function: name of the function that was compiled.
        program: its kernels in program order; of a conditional, the branch with most launches.
        memory: its bytes; None when refused. Of eager code, the dispatch that needs most.
        memory_bytes: the card's memory; None where the device does not say.
        dispatches: programs launched from Python: 1, or the number of dispatches of eager code.
        refused: why the card cannot run it, in plain words; None when it can.
        compiler_text: what the compiler said when it refused.
        notes: what a reader of the counts should know, for example a loop of unknown length.
        jax_version: of the JAX that compiled it.
        compile_seconds: what the compiler took when it compiled this, not a time of the program.
        from_cache: whether it came from the cache.
        hlo: the compiled program's text; empty for eager code.
    """

    gpu: str
    title: str
    function: str
    program: tuple[Kernel, ...] = ()
    memory: Memory | None = None
    memory_bytes: int | None = None
    dispatches: int = 1
    refused: str | None = None
    compiler_text: str = field(default="", repr=False)
    notes: tuple[str, ...] = ()
    jax_version: str = ""
    compile_seconds: float = field(default=0.0, compare=False)
    from_cache: bool = field(default=False, compare=False)
    hlo: str = field(default="", repr=False, compare=False)

    @property
    def kernels(self) -> int:
        """Work items that one call launches, loop bodies times their trip count."""
        self._measured()
        return sum(kernel.launches for kernel in self.program)

    @property
    def fusions(self) -> int:
        """Launches of kernels that the compiler wrote."""
        return self._of("fusion")

    @property
    def copies(self) -> int:
        """Launches that only move or fill memory."""
        return self._of("copy")

    @property
    def library_calls(self) -> dict[str, int]:
        """Launches of library calls by the library's name, most first."""
        self._measured()
        counts: Counter[str] = Counter()
        for kernel in self.program:
            if kernel.kind == "library":
                counts[kernel.library] += kernel.launches
        return dict(counts.most_common())

    @property
    def exact(self) -> bool:
        """Whether every loop's trip count is known."""
        self._measured()
        return all(kernel.known for kernel in self.program)

    @property
    def temp_bytes(self) -> int:
        """Scratch memory that a call needs while it runs, in bytes."""
        return self._measured().temp_bytes

    @property
    def argument_bytes(self) -> int:
        """Memory of the arguments, in bytes."""
        return self._measured().argument_bytes

    @property
    def output_bytes(self) -> int:
        """Memory of the results, in bytes."""
        return self._measured().output_bytes

    @property
    def donated_bytes(self) -> int:
        """Results that are written over donated arguments, in bytes."""
        return self._measured().donated_bytes

    @property
    def needed_bytes(self) -> int:
        """Device memory that a call needs in all, in bytes."""
        return self._measured().needed_bytes

    @property
    def fits(self) -> bool | None:
        """Whether that is no more than the card's memory; None when refused or not known."""
        if self.memory is None or self.memory_bytes is None:
            return None
        return self.memory.needed_bytes <= self.memory_bytes

    @property
    def fits_pool(self) -> bool | None:
        """Whether it also fits the share of memory that JAX reserves by itself."""
        if self.memory is None or self.memory_bytes is None:
            return None
        return self.memory.needed_bytes <= self.memory_bytes * JAX_POOL_FRACTION

    @property
    def limits(self) -> str:
        """What the counts cannot say."""
        return _LIMITS_OF_COUNTS if self.gpu == HERE else LIMITS

    def by_source(self) -> dict[Source | None, int]:
        """Return the learner's lines with the launches that come from each, most first."""
        self._measured()
        counts: Counter[Source | None] = Counter()
        for kernel in self.program:
            counts[kernel.source] += kernel.launches
        return dict(counts.most_common())

    def table(self, *, rows: int = 40) -> str:
        """Return the X-ray as a text table.

        Args:
            rows: kernels to list; equal ones in a row take one row. The rest is counted.
        """
        lines = [self._headline(), *(f"  {line}" for line in self._facts())]
        if self.refused is None:
            listed = _rows(self.program)
            cells = [("launches", "what", "operations", "writes", "from")]
            cells += [_cells(kernel, times) for kernel, times in listed[:rows]]
            widths = [max(len(row[i]) for row in cells) for i in range(5)]
            lines.append("")
            for row in cells:
                first, *others = row
                parts = [first.rjust(widths[0])]
                parts += [cell.ljust(width) for cell, width in zip(others, widths[1:], strict=True)]
                lines.append(("  " + "  ".join(parts)).rstrip())
            rest = listed[rows:]
            if rest:
                launches = sum(kernel.launches * times for kernel, times in rest)
                lines.append(f"  … and {launches:,} launches more in {len(rest):,} rows")
        lines += ["", *(f"Note: {note}" for note in self.notes), self.limits]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        """Show the X-ray in a notebook; colours come from the page, so it reads in dark mode."""
        escape = html.escape
        facts = "".join(f"<li>{escape(line)}</li>" for line in self._facts())
        parts = [
            f"<div><p><strong>{escape(self._headline())}</strong></p><ul>{facts}</ul>",
        ]
        if self.refused is None:
            style = "text-align:left;padding:0.15em 0.8em;vertical-align:top"
            heads = ("Launches", "What", "Operations", "Writes", "From")
            head = "".join(f'<th scope="col" style="{style}">{text}</th>' for text in heads)
            listed = _rows(self.program)
            body = "".join(
                "<tr>"
                + "".join(f'<td style="{style}">{escape(cell)}</td>' for cell in _cells(*row))
                + "</tr>"
                for row in listed[:40]
            )
            parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
            if len(listed) > 40:
                parts.append(f"<p>… and {len(listed) - 40:,} rows more</p>")
        parts += [f"<p>{escape(note)}</p>" for note in self.notes]
        parts.append(f"<p><small>{escape(self.limits)}</small></p></div>")
        return "".join(parts)

    def _measured(self) -> Memory:
        if self.memory is None:
            raise XrayError(f"{self.function}: {self.refused} There is no program to count.")
        return self.memory

    def _of(self, kind: Kind) -> int:
        self._measured()
        return sum(kernel.launches for kernel in self.program if kernel.kind == kind)

    def _headline(self) -> str:
        if self.refused is not None:
            return f"X-ray of {self.function} for {self.title}: refused"
        return f"X-ray of {self.function} for {self.title}: {plural(self.kernels, 'kernel')}" + (
            f" in {plural(self.dispatches, 'dispatch')}" if self.dispatches > 1 else ""
        )

    def _facts(self) -> list[str]:
        if self.memory is None:
            return [self.refused or ""]
        others = self._of("other")
        pieces = [f"{plural(self.fusions, 'kernel')} written by the compiler"]
        pieces += [f"{count:,} {name}" for name, count in self.library_calls.items()]
        pieces += [plural(self.copies, "copy", "copies")] if self.copies else []
        pieces += [plural(others, "operation") + " not fused"] if others else []
        memory = self.memory
        sizes = (
            f"memory: {data(memory.argument_bytes)} arguments, "
            f"{data(memory.output_bytes)} results, {data(memory.temp_bytes)} temporary"
        )
        if memory.donated_bytes:
            sizes += f"; {data(memory.donated_bytes)} of the results reuse donated arguments"
        return [", ".join(pieces), sizes, *self._fit()]

    def _fit(self) -> list[str]:
        if self.memory_bytes is None or self.memory is None:
            return []
        need = data(self.memory.needed_bytes)
        have = data(self.memory_bytes)
        if not self.fits:
            return [f"does not fit: needs {need}, the card has {have}"]
        if not self.fits_pool:
            return [
                f"fits the card ({need} of {have}), but not the {JAX_POOL_FRACTION:.0%} that JAX "
                "reserves by itself: set XLA_PYTHON_CLIENT_MEM_FRACTION higher"
            ]
        return [f"fits: {need} of {have}"]


def what(kernel: Kernel) -> str:
    """Say in a word or two what a kernel is."""
    if kernel.kind == "library":
        return kernel.library
    if kernel.kind == "fusion":
        return f"{len(kernel.ops)} fused" if len(kernel.ops) > 1 else "kernel"
    return {"copy": "copy", "other": "not fused"}[kernel.kind]


def short_ops(ops: Sequence[str], *, limit: int = 48) -> str:
    """List operations, equal neighbours together, and cut the list to a length."""
    groups: list[tuple[str, int]] = []
    for op in ops:
        if groups and groups[-1][0] == op:
            groups[-1] = op, groups[-1][1] + 1
        else:
            groups.append((op, 1))
    words = [f"{op} ×{count}" if count > 1 else op for op, count in groups]
    text = ""
    for done, word in enumerate(words):
        longer = f"{text}, {word}" if text else word
        if len(longer) > limit and text:
            return f"{text}, … {len(words) - done} more"
        text = longer
    return text


def _rows(program: Sequence[Kernel]) -> list[tuple[Kernel, int]]:
    """Put equal neighbours into one row."""
    rows: list[tuple[Kernel, int]] = []
    for kernel in program:
        same = replace(kernel, name="", dispatch=0)
        if rows and rows[-1][0] == same:
            rows[-1] = same, rows[-1][1] + 1
        else:
            rows.append((same, 1))
    return rows


def _cells(kernel: Kernel, times: int) -> tuple[str, str, str, str, str]:
    launches = f"{kernel.launches * times:,}" + ("" if kernel.known else "×?")
    source = str(kernel.source) if kernel.source else ""
    return launches, what(kernel), short_ops(kernel.ops), kernel.output, source


def memory_of(stats: Mapping[str, int]) -> Memory:
    """Read the compiler's memory statistics."""
    return Memory(
        temp_bytes=stats["temp"],
        argument_bytes=stats["argument"],
        output_bytes=stats["output"],
        donated_bytes=stats["alias"],
    )


def card_facts(card: Card) -> dict:
    """Return the fields of a result that a card decides."""
    return {"gpu": card.name, "title": card.title, "memory_bytes": card.memory_bytes}
