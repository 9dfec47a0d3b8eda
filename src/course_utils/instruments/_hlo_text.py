"""Reads the text of an XLA program (HLO) into plain data.

Knows the grammar that XLA prints for a compiled module, on every backend: computations,
instructions, attributes, and where a `metadata` entry points in the Python source. Knows nothing
of what the instructions mean for speed: which of them launch a kernel, and on which device, is
the reader's business. Takes text only, so it needs neither JAX nor a device.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

CALLED_ATTRIBUTES = (
    "calls",
    "to_apply",
    "body",
    "condition",
    "true_computation",
    "false_computation",
    "branch_computations",
    "called_computations",
    "async_computation",
    "select",
    "scatter",
)
"""Attributes whose value names one computation, or several in braces."""

_COMPUTATION = re.compile(r"^(ENTRY\s+)?%?([^\s(={]+)\s*(?:\(.*)?\{\s*$")
_INSTRUCTION = re.compile(r"^\s+(ROOT\s+)?%?(\S+) = (?=\S)")
_OPCODE = re.compile(r"\s*([a-z][\w\-]*)(?=\()")
_NESTING = re.compile(r'"(?:[^"\\]|\\.)*"|[(){}\[\]]')
_SPLITTING = re.compile(r'"(?:[^"\\]|\\.)*"|[(){}\[\],]')
_COMMENT = re.compile(r"/\*.*?\*/")
_ARRAY = re.compile(r"\b([a-z]\w*)\[([^\]]*)\]")
_TRIP_COUNT = re.compile(r'known_trip_count\\?"?\s*[:=]\s*\{\s*\\?"?n\\?"?\s*[:=]\s*\\?"?(\d+)')
_TABLE_ROW = re.compile(r'^(\d+) (?:"(.*)"|\{(.*)\})\s*$')
_TABLE_CELL = re.compile(r"(\w+)=(\d+)")
_METADATA_CELL = re.compile(r'(\w+)=(?:"((?:[^"\\]|\\.)*)"|(\S+))')
_ALIAS = re.compile(r"\{\s*([\d,\s]*)\}:\s*\(\s*(\d+),\s*\{\s*([\d,\s]*)\},\s*([\w\-]+)\s*\)")
_TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")
_BITS = re.compile(r"^(?:pred|[a-z]+?(\d+))")


class HloSyntaxError(ValueError):
    """The text is not an HLO module as XLA prints it."""


@dataclass(frozen=True, slots=True)
class SourceLine:
    """The Python line that an instruction was traced from.

    Attributes:
        file: path as recorded while tracing.
        line: line number, from 1.
    """

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Instruction:
    """One instruction of a computation.

    Attributes:
        name: its name in the module, without the leading `%`.
        opcode: what it does, for example `fusion`, `dot`, `while`.
        shape: its result as printed, with layout, for example `f32[8,8]{1,0}`.
        operands: names of the instructions it reads; empty for parameters and constants.
        literal: what stands between the parentheses of a parameter or a constant, else empty.
        attributes: what follows the operands, by key, each value as printed.
        is_root: whether it is the result of its computation.
        source: the Python line it came from, where the text says.
    """

    name: str
    opcode: str
    shape: str
    operands: tuple[str, ...]
    literal: str
    attributes: Mapping[str, str]
    is_root: bool
    source: SourceLine | None

    @property
    def op_name(self) -> str:
        """The path of JAX names it was traced under, for example `jit(f)/while/body/add`."""
        return _metadata(self.attributes).get("op_name", "")

    @property
    def fusion_kind(self) -> str:
        """`kLoop`, `kInput`, `kOutput` or `kCustom` for a fusion, else empty."""
        return self.attributes.get("kind", "") if self.opcode == "fusion" else ""

    @property
    def custom_call_target(self) -> str:
        """The function that a custom call calls, else empty."""
        return self.attributes.get("custom_call_target", "").strip('"')

    @property
    def backend_config(self) -> str:
        """The backend's own notes on the instruction, as printed; empty without any."""
        return self.attributes.get("backend_config", "")

    @property
    def trip_count(self) -> int | None:
        """How often a `while` runs its body, where XLA found out."""
        if self.opcode != "while":
            return None
        for value in self.attributes.values():
            if found := _TRIP_COUNT.search(value):
                return int(found.group(1))
        value = self.attributes.get("known_trip_count", "")
        digits = re.search(r"\d+", value)
        return int(digits.group()) if digits else None

    def called(self, *attributes: str) -> tuple[str, ...]:
        """Names the computations that this instruction calls.

        Args:
            *attributes: only those called through these attributes; all without any.

        Returns:
            Names of computations, without the leading `%`, in the order printed.
        """
        names: list[str] = []
        for attribute in attributes or CALLED_ATTRIBUTES:
            value = self.attributes.get(attribute, "").strip()
            if value.startswith("{") and value.endswith("}"):
                value = value[1:-1]
            names += [part.strip().lstrip("%") for part in value.split(",") if part.strip()]
        return tuple(names)

    @property
    def bytes(self) -> int:
        """Size of its result in bytes, layout padding left out."""
        return shape_bytes(self.shape)


@dataclass(frozen=True)
class Computation:
    """A named list of instructions, in the order printed.

    Attributes:
        name: its name in the module, without the leading `%`.
        instructions: its instructions; in a scheduled module in the order they run.
        is_entry: whether the program starts here.
    """

    name: str
    instructions: tuple[Instruction, ...]
    is_entry: bool = False

    @cached_property
    def by_name(self) -> Mapping[str, Instruction]:
        """Its instructions by name."""
        return MappingProxyType({each.name: each for each in self.instructions})

    @property
    def root(self) -> Instruction:
        """The instruction whose result is the computation's."""
        for each in self.instructions:
            if each.is_root:
                return each
        return self.instructions[-1]


@dataclass(frozen=True, slots=True)
class Alias:
    """An output that is written over an argument, as donation does.

    Attributes:
        output: index path of the output; empty for a lone array.
        parameter: number of the argument.
        index: index path within the argument; empty for an array.
        kind: `may-alias` or `must-alias`.
    """

    output: tuple[int, ...]
    parameter: int
    index: tuple[int, ...]
    kind: str


@dataclass(frozen=True, slots=True)
class Step:
    """An instruction that the program reaches by itself, outside fusions and reducers.

    Attributes:
        instruction: the instruction.
        computation: name of the computation it stands in.
        times: how often one run of the program runs it: 1 outside loops, the product of the trip
            counts within (a loop's condition runs once more, which is not counted); None inside a
            loop whose trip count XLA does not know.
        loops: names of the enclosing `while` instructions, outermost first.
        branches: names of the enclosing `conditional` instructions, outermost first: of each,
            one branch runs.
    """

    instruction: Instruction
    computation: str
    times: int | None
    loops: tuple[str, ...]
    branches: tuple[str, ...]


@dataclass(frozen=True)
class Module:
    """A whole program.

    Attributes:
        name: the module's name, for example `jit_train_step`.
        computations: every computation by name.
        entry: where the program starts.
        aliases: outputs that are written over arguments.
        attributes: the module's own attributes by key, as printed.
        lines: lines of text that are not blank.
    """

    name: str
    computations: Mapping[str, Computation]
    entry: Computation
    aliases: tuple[Alias, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)
    lines: int = 0

    @property
    def instruction_count(self) -> int:
        """Instructions of all computations together: how large the program is."""
        return sum(len(each.instructions) for each in self.computations.values())

    def steps(self) -> Iterator[Step]:
        """Goes through the program from its entry, as it runs.

        Follows loops, branches, plain calls and asynchronous calls, not what a fusion, a
        reduction, a sort or a scatter applies inside itself.

        Yields:
            Every instruction reached, in the order printed, an inner computation after the
            instruction that calls it. A computation called from two places appears twice.
        """
        yield from self._steps(self.entry, 1, (), (), (self.entry.name,))

    def _steps(
        self,
        computation: Computation,
        times: int | None,
        loops: tuple[str, ...],
        branches: tuple[str, ...],
        above: tuple[str, ...],
    ) -> Iterator[Step]:
        for each in computation.instructions:
            yield Step(each, computation.name, times, loops, branches)
            inner_times, inner_loops, inner_branches = times, loops, branches
            match each.opcode:
                case "while":
                    names = each.called("condition", "body")
                    count = each.trip_count
                    inner_times = None if times is None or count is None else times * count
                    inner_loops = (*loops, each.name)
                case "conditional":
                    names = each.called(
                        "true_computation", "false_computation", "branch_computations"
                    )
                    inner_branches = (*branches, each.name)
                case "call":
                    names = each.called("to_apply", "calls")
                case "async-start":
                    names = each.called("calls", "called_computations", "async_computation")
                case _:
                    continue
            for name in names:
                if name in self.computations and name not in above:
                    yield from self._steps(
                        self.computations[name],
                        inner_times,
                        inner_loops,
                        inner_branches,
                        (*above, name),
                    )


def parse(text: str) -> Module:
    """Reads a module's text.

    Args:
        text: what `compiled.as_text()` or `compiler_ir(...).as_hlo_text()` returned, for one
            module.

    Returns:
        The module. Instructions of a form not known are read as far as they go: an attribute
        keeps its printed value.

    Raises:
        HloSyntaxError: there is no `ENTRY` computation in the text.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    name, attributes = "", {}
    tables: dict[str, dict[int, str]] = {table: {} for table in _TABLES}
    bodies: list[tuple[str, bool, list[str]]] = []
    table: dict[int, str] | None = None
    body: list[str] | None = None
    for line in lines:
        if body is not None:
            if line.startswith("}"):
                body = None
            elif _INSTRUCTION.match(line) or not body:
                body.append(line)
            else:  # a constant or a string that goes on in the next line
                body[-1] += "\n" + line
        elif line.startswith("HloModule"):
            parts = _split(line.removeprefix("HloModule").strip())
            name = parts[0].strip() if parts else ""
            attributes = dict(_attribute(part) for part in parts[1:])
        elif line.strip() in _TABLES:
            table = tables[line.strip()]
        elif table is not None and (row := _TABLE_ROW.match(line)):
            table[int(row.group(1))] = row.group(2) if row.group(2) is not None else row.group(3)
        elif header := _COMPUTATION.match(line):
            table, body = None, []
            bodies.append((header.group(2), bool(header.group(1)), body))
    computations = {
        computation: Computation(
            computation,
            tuple(each for line in body if (each := _instruction(line, tables)) is not None),
            is_entry,
        )
        for computation, is_entry, body in bodies
    }
    entries = [each for each in computations.values() if each.is_entry]
    if not entries:
        raise HloSyntaxError(
            f"no ENTRY computation in {len(lines)} lines of text: expected one HLO module as "
            "`compiled.as_text()` prints it. Pass that string unchanged."
        )
    return Module(
        name=name,
        computations=MappingProxyType(computations),
        entry=entries[-1],
        aliases=_aliases(attributes.get("input_output_alias", "")),
        attributes=MappingProxyType(attributes),
        lines=len(lines),
    )


def shape_bytes(shape: str) -> int:
    """Size of a printed shape.

    Args:
        shape: for example `f32[8,8]{1,0}` or `(s32[], f32[7]{0})`; a bound on a dynamic
            dimension (`<=8`) counts as its size.

    Returns:
        Bytes of all arrays in it together, padding left out; tokens and opaque values are 0.
    """
    total = 0
    for dtype, dims in _ARRAY.findall(_COMMENT.sub("", shape)):
        size = _dtype_bits(dtype)
        for dim in dims.split(","):
            if dim.strip():
                size *= int(dim.strip().removeprefix("<="))
        total += (size + 7) // 8
    return total


def _dtype_bits(dtype: str) -> int:
    """Bits that one element takes: `f8e4m3fn` is 8, `pred` is 8, a token is 0."""
    if dtype == "pred":
        return 8
    found = _BITS.match(dtype)
    return int(found.group(1)) if found and found.group(1) else 0


def _instruction(line: str, tables: Mapping[str, Mapping[int, str]]) -> Instruction | None:
    start = _INSTRUCTION.match(line)
    if start is None:
        return None
    rest = line[start.end() :]
    shape_end = _closing(rest) if rest.startswith("(") else rest.find(" ")
    opcode = _OPCODE.match(rest, shape_end) if shape_end > 0 else None
    if opcode is None:
        return None
    inside_end = opcode.end() + _closing(rest[opcode.end() :])
    inside = rest[opcode.end() + 1 : inside_end - 1]
    name = opcode.group(1)
    is_literal = name in ("parameter", "constant")
    attributes = dict(_attribute(part) for part in _split(rest[inside_end:]) if "=" in part)
    return Instruction(
        name=start.group(2),
        opcode=name,
        shape=_COMMENT.sub("", rest[:shape_end]),
        operands=() if is_literal else tuple(_operand(part) for part in _split(inside)),
        literal=inside if is_literal else "",
        attributes=MappingProxyType(attributes),
        is_root=bool(start.group(1)),
        source=_source(_metadata(attributes), tables),
    )


def _operand(text: str) -> str:
    """The name at the end of `%a`, `a`, or `f32[8]{0} %a`."""
    words = _COMMENT.sub("", text).split()
    return words[-1].lstrip("%") if words else ""


def _attribute(text: str) -> tuple[str, str]:
    key, _, value = text.strip().partition("=")
    return key.strip(), value.strip()


def _metadata(attributes: Mapping[str, str]) -> dict[str, str]:
    found = _METADATA_CELL.findall(attributes.get("metadata", "").strip("{}"))
    return {key: quoted or bare for key, quoted, bare in found}


def _source(
    metadata: Mapping[str, str], tables: Mapping[str, Mapping[int, str]]
) -> SourceLine | None:
    """The line given in the metadata itself, or through the tables that newer XLA prints."""
    if "source_file" in metadata and metadata.get("source_line", "").isdigit():
        return SourceLine(metadata["source_file"], int(metadata["source_line"]))
    if not metadata.get("stack_frame_id", "").isdigit():
        return None
    frame = _row(tables["StackFrames"], int(metadata["stack_frame_id"]))
    location = _row(tables["FileLocations"], frame.get("file_location_id", 0))
    file = tables["FileNames"].get(location.get("file_name_id", 0))
    return SourceLine(file, location["line"]) if file and "line" in location else None


def _row(table: Mapping[int, str], key: int) -> dict[str, int]:
    return {name: int(value) for name, value in _TABLE_CELL.findall(table.get(key, ""))}


def _aliases(text: str) -> tuple[Alias, ...]:
    return tuple(
        Alias(_index(output), int(parameter), _index(index), kind)
        for output, parameter, index, kind in _ALIAS.findall(text)
    )


def _index(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part.strip())


def _closing(text: str) -> int:
    """Position just after the bracket that closes the one `text` starts with."""
    depth = 0
    for found in _NESTING.finditer(text):
        token = found.group()
        if token in "([{":
            depth += 1
        elif token in ")]}":
            depth -= 1
            if depth == 0:
                return found.end()
    return len(text)


def _split(text: str) -> list[str]:
    """Splits at commas outside brackets and strings."""
    parts: list[str] = []
    depth, start = 0, 0
    for found in _SPLITTING.finditer(text):
        token = found.group()
        if token in ("(", "[", "{"):
            depth += 1
        elif token in (")", "]", "}"):
            depth -= 1
        elif token == "," and depth == 0:
            parts.append(text[start : found.start()])
            start = found.end()
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]
