"""Reads the kernels out of a compiled program's text.

Knows which HLO instructions launch work on a GPU and how often: once for each time its loop runs.
Where the compiler states a loop's trip count, a GPU runs the body that often and never the
condition, so the condition's kernels do not count; otherwise both count once and are marked. Of a
conditional, the branch with most launches counts. The grammar itself is `_hlo_text`'s.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from course_utils.instruments._hlo_text import Computation, Instruction, Module, parse
from course_utils.instruments.xray.result import Kernel
from course_utils.instruments.xray.sources import HloStacks, Source, pick

_NO_WORK = frozenset(
    (
        "parameter",
        "constant",
        "tuple",
        "get-tuple-element",
        "bitcast",
        "after-all",
        "add-dependency",
        "opt-barrier",
        "optimization-barrier",
        "domain",
        "partition-id",
        "replica-id",
    )
)
_NO_WORK_TARGETS = ("Sharding", "AllocateBuffer", "annotate_device_placement", "SPMD")
_LIBRARY_OPCODES = {"fft": "cuFFT", "cholesky": "cuSOLVER", "triangular-solve": "cuBLAS"}
_LIBRARIES = (
    ("cublas", "cuBLAS"),
    ("cudnn", "cuDNN"),
    ("cusolver", "cuSOLVER"),
    ("cusparse", "cuSPARSE"),
    ("cufft", "cuFFT"),
    ("$cub", "CUB"),
    ("cub$", "CUB"),
    ("cub_", "CUB"),
    ("topk", "XLA top-k"),
    ("triton_kernel", "Pallas kernel"),
    ("mosaic", "Pallas kernel"),
    ("callback", "Python callback"),
    ("cu_", "JAX CUDA kernel"),
)
_SILENT = frozenset((*_NO_WORK, "broadcast", "iota", "convert", "reshape", "copy", "slice"))
"""Opcodes that say nothing to a reader unless JAX gave them a name."""

_METADATA = re.compile(r'(\w+)=(?:"((?:[^"\\]|\\.)*)"|([^\s}]+))')
_EPILOGUE = re.compile(r'"epilogue":"(\w+)"')
_NAMELESS = ("call_exported", "pjit", "closed_call", "main", "")


@dataclass(frozen=True)
class Program:
    """The kernels of a compiled program, in order, and remarks on the counting."""

    kernels: tuple[Kernel, ...]
    notes: tuple[str, ...]


def read_program(text: str) -> Program:
    """Read a compiled program.

    Args:
        text: what `compiled.as_text()` returned.

    Raises:
        ValueError: the text is not a compiled program.
    """
    reader = _Reader(parse(text), HloStacks(text))
    kernels = tuple(reader.kernels_of(reader.module.entry))
    return Program(kernels, tuple(reader.notes()))


def library_name(target: str) -> str:
    """Return the library behind a custom call, in the name people know; else the target itself."""
    lowered = target.lower()
    return next((name for part, name in _LIBRARIES if part in lowered), target)


class _Reader:
    def __init__(self, module: Module, stacks: HloStacks) -> None:
        self.module = module
        self._stacks = stacks
        self._unknown_loops = 0
        self._conditionals = 0

    def notes(self) -> Iterator[str]:
        if self._unknown_loops:
            loops = "a loop" if self._unknown_loops == 1 else f"{self._unknown_loops} loops"
            yield (
                f"{loops} of unknown length: each pass is counted once (marked ×?); the real "
                "count depends on the data."
            )
        if self._conditionals:
            yield "Of each conditional, the branch with most launches is counted."

    def kernels_of(self, computation: Computation) -> list[Kernel]:
        """Return the kernels that one run of a computation launches."""
        kernels: list[Kernel] = []
        for each in computation.instructions:
            kernels += self._kernels(each)
        return kernels

    def _kernels(self, each: Instruction) -> list[Kernel]:
        match each.opcode:
            case "while":
                return self._loop(each)
            case "conditional":
                self._conditionals += 1
                return max(
                    (self.kernels_of(branch) for branch in self._called(each)),
                    key=lambda kernels: sum(kernel.launches for kernel in kernels),
                    default=[],
                )
            case "call" | "async-start":
                return [kernel for inner in self._called(each) for kernel in self.kernels_of(inner)]
            case _:
                kernel = self._kernel(each)
                return [] if kernel is None else [kernel]

    def _loop(self, each: Instruction) -> list[Kernel]:
        count = each.trip_count
        kernels = self._of_attribute(each, "body")
        if count is None:
            self._unknown_loops += 1
            kernels = self._of_attribute(each, "condition") + kernels
        return [
            replace(
                kernel,
                launches=kernel.launches * (1 if count is None else count),
                known=kernel.known and count is not None,
                loops=kernel.loops + 1,
            )
            for kernel in kernels
        ]

    def _of_attribute(self, each: Instruction, attribute: str) -> list[Kernel]:
        return [
            kernel
            for name in each.called(attribute)
            for kernel in self.kernels_of(self.module.computations[name])
        ]

    def _called(self, each: Instruction) -> list[Computation]:
        names = each.called()
        return [
            self.module.computations[name] for name in names if name in self.module.computations
        ]

    def _kernel(self, each: Instruction) -> Kernel | None:
        opcode = each.opcode.removesuffix("-start")
        if opcode in _NO_WORK or opcode.endswith(("-done", "-update")):
            return None
        if opcode == "custom-call" and each.custom_call_target.startswith(_NO_WORK_TARGETS):
            return None
        ops, sources = self._operations(each)
        source = self._source(each) or (sources[0] if sources else None)
        kernel = Kernel(
            name=each.name,
            kind="other",
            ops=ops,
            output=_output(each.shape),
            source=source,
            sources=sources or ((source,) if source else ()),
        )
        if library := self._library(each, opcode):
            return replace(kernel, kind="library", library=library, ops=_library_ops(each) or ops)
        if opcode == "copy":
            return replace(kernel, kind="copy", ops=("copy",))
        if opcode == "fusion":
            return replace(kernel, kind="copy" if self._only_copies(each) else "fusion")
        return kernel

    def _inside(self, each: Instruction) -> Iterator[Instruction]:
        """Yield the instructions of a fusion, fusions in it opened too."""
        for name in each.called("calls"):
            for inner in self.module.computations[name].instructions:
                if inner.opcode == "fusion":
                    yield from self._inside(inner)
                else:
                    yield inner

    def _library(self, each: Instruction, opcode: str) -> str:
        """Return the library that an instruction hands its work to; empty for none."""
        if opcode == "custom-call":
            return library_name(each.custom_call_target)
        if opcode != "fusion":
            return _LIBRARY_OPCODES.get(opcode, "")
        if "__cudnn$fusion" in each.backend_config:
            return "cuDNN"
        targets = [i.custom_call_target for i in self._inside(each) if i.opcode == "custom-call"]
        targets = [target for target in targets if not target.startswith(_NO_WORK_TARGETS)]
        return library_name(targets[0]) if targets else ""

    def _only_copies(self, each: Instruction) -> bool:
        opcodes = {inner.opcode for inner in self._inside(each)} - _NO_WORK
        return opcodes == {"copy"}

    def _operations(self, each: Instruction) -> tuple[tuple[str, ...], tuple[Source, ...]]:
        """Return the JAX operations that an instruction does, in order, and their lines.

        The compiler spells some operations out in several instructions (an error function takes
        dozens). Those carry one name and place but different opcodes; they count as one.
        """
        instructions = list(self._inside(each)) if each.opcode == "fusion" else [each]
        opcodes: dict[tuple[str, str], set[str]] = defaultdict(set)
        named: list[tuple[tuple[str, str], str, Instruction]] = []
        for inner in instructions:
            metadata = _metadata(inner)
            name = _leaf(metadata.get("op_name", ""))
            if inner.opcode in _NO_WORK or (
                inner.opcode in _SILENT and (name in _NAMELESS or inner.opcode == "broadcast")
            ):
                continue
            key = metadata.get("op_name", ""), metadata.get("stack_frame_id", "")
            if name in _NAMELESS:
                key, name = (inner.name, ""), inner.opcode
            opcodes[key].add(inner.opcode)
            named.append((key, name, inner))
        ops: list[str] = []
        sources: dict[Source, None] = {}
        done: set[tuple[str, str]] = set()
        for key, name, inner in named:
            if (source := self._source(inner)) is not None:
                sources[source] = None
            if len(opcodes[key]) > 1:
                if key in done:
                    continue
                done.add(key)
            ops.append(name)
        if not ops:
            name = _leaf(_metadata(each).get("op_name", ""))
            ops = [name if name not in _NAMELESS else _plain(instructions, each.opcode)]
        return tuple(ops), tuple(sources)

    def _source(self, each: Instruction) -> Source | None:
        return pick(self._stacks.frames(_metadata(each)))


def _library_ops(each: Instruction) -> tuple[str, ...]:
    """Return what a matmul call does: the product, and what the library adds to it at the end.

    The compiler names such a call after the last operation it took in, which may be a transpose.
    """
    if not each.custom_call_target.startswith("__cublas"):
        return ()
    epilogue = _EPILOGUE.search(each.backend_config)
    extra = {"BIAS": "add", "RELU": "relu", "GELU": "gelu"}
    words = epilogue.group(1).split("_") if epilogue else []
    return ("dot_general", *(extra[word] for word in words if word in extra))


def _plain(instructions: list[Instruction], opcode: str) -> str:
    """Name a kernel that JAX gave no name: what its last instruction does."""
    working = [inner.opcode for inner in instructions if inner.opcode not in _NO_WORK]
    name = working[-1] if working else opcode
    return {"broadcast": "fill", "fusion": "kernel"}.get(name, name)


def _metadata(each: Instruction) -> dict[str, str]:
    found = _METADATA.findall(each.attributes.get("metadata", "").strip("{}"))
    return {key: quoted or bare for key, quoted, bare in found}


def _leaf(op_name: str) -> str:
    """Return the last name of a path such as `jit(f)/while/body/add`: the JAX operation."""
    path = op_name.split(";", maxsplit=1)[0].partition("[")[0]
    depth, start = 0, 0
    for position, letter in enumerate(path):
        depth += (letter == "(") - (letter == ")")
        if letter == "/" and depth == 0:
            start = position + 1
    leaf = path[start:]
    return "" if leaf.startswith(("args", "jit(")) else leaf


def _output(shape: str) -> str:
    """Write a shape without its layout; of a tuple, the first part and how many more."""
    parts = re.findall(r"[a-z]+\w*\[[\d,<=]*\]", shape)
    if not parts:
        return ""
    return parts[0] if len(parts) == 1 else f"{parts[0]} +{len(parts) - 1}"
