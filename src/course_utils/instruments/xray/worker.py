"""The worker process: compiles exported programs for described GPUs, one request after another.

Run as a script by `client`, in an environment of its own. Imports nothing of this package, so that
the worker starts fast and its JAX is the only thing it loads. Reads requests from standard input
and answers on the file descriptor that its argument names; what anybody prints goes to the log.

A message is two lengths (8 bytes each, big-endian), a JSON header and a payload of bytes.
"""

import json
import os
import struct
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any, BinaryIO

LENGTHS = struct.Struct(">QQ")


def write_message(stream: BinaryIO, header: dict[str, Any], payload: bytes = b"") -> None:
    """Write one message and flush it."""
    text = json.dumps(header).encode()
    stream.write(LENGTHS.pack(len(text), len(payload)))
    stream.write(text)
    stream.write(payload)
    stream.flush()


def read_message(stream: BinaryIO) -> tuple[dict[str, Any], bytes] | None:
    """Read one message, or return None where the other side has closed the pipe."""
    lengths = stream.read(LENGTHS.size)
    if len(lengths) < LENGTHS.size:
        return None
    header_length, payload_length = LENGTHS.unpack(lengths)
    text, payload = stream.read(header_length), stream.read(payload_length)
    if len(text) < header_length or len(payload) < payload_length:
        return None
    return json.loads(text), payload


class _Compiler:
    """Compiles for described GPUs; keeps one description of each."""

    def __init__(self) -> None:
        self._shardings: dict[str, Any] = {}
        self._text_by_dump = False

    def _sharding(self, target_config: str) -> Any:
        """Place everything whole on the one device of the described machine."""
        import jax  # noqa: PLC0415
        import numpy as np  # noqa: PLC0415
        from jax.experimental import topologies  # noqa: PLC0415

        if target_config not in self._shardings:
            topology = topologies.get_topology_desc(
                platform="cuda", target_config=target_config, topology="1x1x1"
            )
            mesh = jax.sharding.Mesh(np.array(topology.devices), ("gpu",))
            self._shardings[target_config] = jax.sharding.NamedSharding(
                mesh, jax.sharding.PartitionSpec()
            )
        return self._shardings[target_config]

    def _compiled(self, lowered: Any) -> tuple[Any, str]:
        """Compile; return the program and its text, from a dump where old JAX cannot give it."""
        if not self._text_by_dump:
            compiled = lowered.compile()
            if text := compiled.as_text():
                return compiled, text
            self._text_by_dump = True
        with tempfile.TemporaryDirectory() as folder:
            options = {"xla_dump_to": folder, "xla_dump_hlo_as_text": True}
            compiled = lowered.compile(compiler_options=options)
            (path,) = Path(folder).glob("*after_optimizations.txt")
            return compiled, path.read_text()

    def compile(self, request: dict[str, Any], program: bytes) -> tuple[dict[str, Any], bytes]:
        """Compile one exported program.

        Args:
            request: `target_config`, XLA's text for the card, and `donated`, the numbers of the
                arguments whose memory the program may take over.
            program: what `jax.export` serialised.

        Returns:
            The answer's header and the compiled program's text.
        """
        import jax  # noqa: PLC0415
        from jax import export  # noqa: PLC0415

        sharding = self._sharding(request["target_config"])
        exported = export.deserialize(bytearray(program))
        structs = [
            jax.ShapeDtypeStruct(each.shape, each.dtype, sharding=sharding)
            for each in exported.in_avals
        ]
        args, kwargs = jax.tree.unflatten(exported.in_tree, structs)
        start = time.perf_counter()
        try:
            # Without arguments only the results can say which device is meant.
            placed = {} if structs else {"out_shardings": sharding}
            jitted = jax.jit(exported.call, donate_argnums=tuple(request["donated"]), **placed)
            compiled, text = self._compiled(jitted.lower(*args, **kwargs))
        except jax.errors.JaxRuntimeError as error:
            return {"refused": True, "seconds": time.perf_counter() - start}, str(error).encode()
        seconds = time.perf_counter() - start
        stats = compiled.memory_analysis()
        memory = {
            name: int(getattr(stats, f"{name}_size_in_bytes"))
            for name in ("temp", "argument", "output", "alias")
        }
        return {"refused": False, "seconds": seconds, "memory": memory}, text.encode()


def main() -> None:
    """Answer requests until the caller closes the pipe."""
    answers = os.fdopen(int(sys.argv[1]), "wb")
    requests = os.fdopen(os.dup(0), "rb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    compiler = _Compiler()
    while (message := read_message(requests)) is not None:
        header, payload = message
        try:
            if header["what"] == "hello":
                import jax  # noqa: PLC0415

                answer: dict[str, Any] = {"jax": jax.__version__, "backend": jax.default_backend()}
                text = b""
            else:
                answer, text = compiler.compile(header, payload)
        except Exception as error:  # whatever goes wrong is the caller's to report
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
            text = b""
        write_message(answers, answer, text)


if __name__ == "__main__":
    main()
