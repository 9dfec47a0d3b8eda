"""`xray` and `xray_eager`: from a function and its arguments to what a GPU would run."""

import functools
import re
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import jax

from course_utils.instruments.xray import cache, cards, client, eager, toolchain
from course_utils.instruments.xray.export import (
    FlatFunction,
    export_program,
    flatten,
    name_of,
)
from course_utils.instruments.xray.hlo import Program, read_program
from course_utils.instruments.xray.result import Xray, card_facts, memory_of

TIMEOUT_SECONDS = 300.0


def xray(
    fn: Any,
    *args: Any,
    gpu: str = "t4",
    donate: Iterable[int] = (),
    timeout: float = TIMEOUT_SECONDS,
) -> Xray:
    """Compile a call for a GPU and read the program: kernels, fusions, memory, refusal.

    Nothing runs, and no GPU is needed: a worker process compiles for the described card. Equal
    programs come from a cache on disk.

    Args:
        fn: a plain function, a `jax.jit` or `filter_jit` function, or a callable Equinox module.
            What `fn` donates by itself is donated here too.
        *args: its positional arguments. Arrays, shape structs and the arrays in Equinox modules
            become arguments of the program; everything else is fixed, as `filter_jit` does.
        gpu: `"t4"`, `"l4"`, `"a100"` or `"h100"`; `"here"` compiles for this process's default
            device and reads that program.
        donate: positions in `args` whose memory the results may take over.
        timeout: seconds that the compiler may take.

    Returns:
        The X-ray. A program that the card cannot run has `refused` set.

    Raises:
        ValueError: `gpu` or `donate` names something that does not exist.
        XrayUnavailable: the toolchain is missing here, or X-rays are not possible here.
        XrayTimeout: the compiler took longer than `timeout`.
        XrayError: the program cannot be exported.

    Example:
        >>> def f(x):
        ...     return jax.numpy.sin(x) * 2 + 1
        >>> xray(f, jax.ShapeDtypeStruct((1024,), "float32"), gpu="t4").kernels  # doctest: +SKIP
        1
    """
    if gpu == cards.HERE:
        return _here(flatten(fn, args, donate))
    card = cards.card(gpu)
    toolchain.require()
    return _for_card(flatten(fn, args, donate), card, timeout)


def xray_eager(
    fn: Any,
    *args: Any,
    gpu: str = "t4",
    timeout: float = TIMEOUT_SECONDS,
) -> Xray:
    """X-ray what the same code launches when it is not jitted, dispatch by dispatch.

    Runs `fn` once on the CPU to list its dispatches, X-rays each distinct one and adds up.

    Args:
        fn: the function. A jit directly around it is taken off; jits inside stay, as each is one
            dispatch.
        *args: its arguments. Shape structs stand for arrays of ones (numbers) or zeros
            (integers, booleans), which matters only where the code looks at values.
        gpu: as for `xray`.
        timeout: seconds that the compiler may take for one dispatch.

    Returns:
        An X-ray with the kernels of all dispatches in order. Its memory is that of the dispatch
        that needs most. The card refuses the code when it refuses one dispatch.

    Raises:
        ValueError: `gpu` names no card.
        XrayUnavailable: the toolchain is missing here, or X-rays are not possible here.
        XrayError: this JAX cannot be listened to, or a dispatch cannot be exported.
    """
    if gpu != cards.HERE:
        cards.card(gpu)
        toolchain.require()
    dispatches = eager.record(fn, args)
    known: dict[str, Xray] = {}
    start = time.perf_counter()
    for each in dispatches:
        if each.identity not in known:
            known[each.identity] = (
                _here(each.program)
                if gpu == cards.HERE
                else _for_card(each.program, cards.card(gpu), timeout, locations=False)
            )
    parts = [known[each.identity] for each in dispatches]
    seconds = time.perf_counter() - start
    title = parts[0].title if parts else cards.card(gpu).title if gpu != cards.HERE else gpu
    whole = Xray(
        gpu=gpu,
        title=title,
        function=f"{name_of(fn)} (eager)",
        dispatches=len(dispatches),
        jax_version=jax.__version__,
        compile_seconds=seconds,
        from_cache=all(part.from_cache for part in parts),
    )
    refusals = Counter(
        (each.program.name, part.refused)
        for each, part in zip(dispatches, parts, strict=True)
        if part.refused
    )
    if refusals:
        (name, reason), _ = refusals.most_common(1)[0]
        text = next(part.compiler_text for part in parts if part.refused == reason)
        return replace(whole, refused=f"{reason} (in the dispatch `{name}`)", compiler_text=text)
    kernels = tuple(
        replace(kernel, source=each.source, sources=_one(each.source), dispatch=number)
        for number, (each, part) in enumerate(zip(dispatches, parts, strict=True))
        for kernel in part.program
    )
    heaviest = max(parts, key=lambda part: part.needed_bytes, default=None)
    notes = tuple(dict.fromkeys(note for part in parts for note in part.notes))
    return replace(
        whole,
        program=kernels,
        memory=heaviest.memory if heaviest else memory_of(_NOTHING),
        memory_bytes=heaviest.memory_bytes if heaviest else None,
        notes=notes,
    )


_NOTHING = {"temp": 0, "argument": 0, "output": 0, "alias": 0}


def _one(source: Any) -> tuple:
    return (source,) if source is not None else ()


def _for_card(
    flat: FlatFunction, card: cards.Card, timeout: float, *, locations: bool = True
) -> Xray:
    """X-ray a flat function for a described card, from the cache where it is there."""
    program = export_program(flat, locations=locations)
    config = cards.target_config(card)
    flags = " ".join(client.COMPILER_FLAGS)
    versions = f"{toolchain.jax_version()} {toolchain.folder().name}"
    name = cache.key(program.fingerprint, config, versions, flags)
    entry = cache.load(name)
    found = entry is not None
    if entry is None:
        request = {"what": "compile", "target_config": config, "donated": list(program.donated)}
        header, text = client.request(request, program.serialized, timeout=timeout)
        entry = header, text.decode()
        cache.store(name, *entry)
    header, text = entry
    result = Xray(
        **card_facts(card),
        function=program.name,
        jax_version=jax.__version__,
        compile_seconds=header["seconds"],
        from_cache=found,
    )
    if header["refused"]:
        return replace(result, refused=plain_refusal(text, card), compiler_text=text)
    read = _read(text)
    return replace(
        result,
        program=read.kernels,
        memory=memory_of(header["memory"]),
        notes=read.notes,
        hlo=text,
    )


@functools.lru_cache(maxsize=256)
def _read(text: str) -> Program:
    return read_program(text)


def _here(flat: FlatFunction) -> Xray:
    """Read the executable that this process's default device would run."""
    device = jax.numpy.zeros(()).device
    if isinstance(device, jax.sharding.Sharding):
        (device,) = device.device_set
    title = f"{device.device_kind} ({device.platform})"
    limits = device.memory_stats() or {}
    result = Xray(
        gpu=cards.HERE,
        title=title,
        function=flat.name,
        memory_bytes=limits.get("bytes_limit"),
        jax_version=jax.__version__,
    )
    start = time.perf_counter()
    try:
        compiled = jax.jit(flat.call, donate_argnums=flat.donated).lower(*flat.structs).compile()
    except jax.errors.JaxRuntimeError as error:
        text = str(error)
        return replace(result, refused=plain_refusal(text, None), compiler_text=text)
    stats = compiled.memory_analysis()
    text = compiled.as_text() or ""
    read: Program = _read(text)
    return replace(
        result,
        program=read.kernels,
        memory=memory_of({name: int(getattr(stats, f"{name}_size_in_bytes")) for name in _NOTHING}),
        notes=read.notes,
        compile_seconds=time.perf_counter() - start,
        hlo=text,
    )


_ALGORITHM = re.compile(r"ALG_DOT_(\w+)")
_SIZES = re.compile(r"(\d[\d.]*\s*(?:[KMGT]i?B|bytes))")


def plain_refusal(text: str, card: cards.Card | None) -> str:
    """Say in plain words why a compiler refused a program.

    Args:
        text: what the compiler said.
        card: the card it compiled for; None for the device at hand.
    """
    who = f"The {card.title} (compute capability {card.capability})" if card else "This device"
    algorithm = _ALGORITHM.search(text)
    if algorithm and "unsupported algorithm" in text.lower():
        kind = algorithm.group(1).split("_")[0]
        if kind == "BF16":
            return (
                f"{who} cannot multiply bfloat16 matrices with this precision: that needs compute "
                "capability 8.0 or newer. Use float16 or float32 on it."
            )
        return f"{who} has no {kind.lower()} matrix multiplication of the kind asked for."
    if "RESOURCE_EXHAUSTED" in text or "out of memory" in text.lower():
        sizes = _SIZES.findall(text)
        asked = f" (it asks for {sizes[0]})" if sizes else ""
        return f"{who} has too little memory for this program{asked}."
    if "shared memory" in text.lower():
        return f"{who} has too little shared memory for one of the program's kernels."
    if "float8" in text.lower() or "f8e" in text.lower():
        return f"{who} has no arithmetic for 8-bit floating point numbers."
    first = next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")
    first = re.sub(r"^[A-Z_]+: ", "", first)
    return f"{who} cannot run this program; the compiler says: {first}"
