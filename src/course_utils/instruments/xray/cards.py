"""The GPUs that an X-ray compiles for: public specifications, and the text XLA describes them with.

Sizes are what the CUDA driver reports for the card as clouds lend it, so `memory_bytes` is a
little less than the number on the box. Knows nothing of JAX or of programs.
"""

from dataclasses import dataclass

JAX_POOL_FRACTION = 0.75
"""Share of a GPU's memory that JAX reserves at start unless `XLA_PYTHON_CLIENT_MEM_FRACTION` says
otherwise; a program that needs more than this pool fails, though the card has more."""


@dataclass(frozen=True)
class Card:
    """One GPU model.

    Attributes:
        name: how it is asked for, for example `t4`.
        title: the driver's name of it.
        compute_capability: major and minor version of its instruction set.
        memory_bytes: device memory that the driver reports.
        memory_bandwidth: bytes per second.
        cores: streaming multiprocessors.
        fpus_per_core: single-precision units in each.
        threads_per_core: threads that one multiprocessor holds.
        shared_memory_per_core: bytes of shared memory in each multiprocessor.
        shared_memory_per_block: largest shared memory of one thread block, in bytes, on request.
        l2_cache_bytes: size of the level 2 cache.
        clock_ghz: highest clock rate.
    """

    name: str
    title: str
    compute_capability: tuple[int, int]
    memory_bytes: int
    memory_bandwidth: int
    cores: int
    fpus_per_core: int
    threads_per_core: int
    shared_memory_per_core: int
    shared_memory_per_block: int
    l2_cache_bytes: int
    clock_ghz: float

    @property
    def capability(self) -> str:
        """Its compute capability as NVIDIA writes it, for example `7.5`."""
        return ".".join(map(str, self.compute_capability))


CARDS = {
    card.name: card
    for card in (
        Card(
            name="t4",
            title="Tesla T4",
            compute_capability=(7, 5),
            memory_bytes=15_843_721_216,
            memory_bandwidth=320_064_000_000,
            cores=40,
            fpus_per_core=64,
            threads_per_core=1024,
            shared_memory_per_core=64 << 10,
            shared_memory_per_block=64 << 10,
            l2_cache_bytes=4 << 20,
            clock_ghz=1.59,
        ),
        Card(
            name="l4",
            title="NVIDIA L4",
            compute_capability=(8, 9),
            memory_bytes=22_561 << 20,
            memory_bandwidth=300_096_000_000,
            cores=58,
            fpus_per_core=128,
            threads_per_core=1536,
            shared_memory_per_core=100 << 10,
            shared_memory_per_block=99 << 10,
            l2_cache_bytes=48 << 20,
            clock_ghz=2.04,
        ),
        Card(
            name="a100",
            title="NVIDIA A100-SXM4-40GB",
            compute_capability=(8, 0),
            memory_bytes=42_331_013_120,
            memory_bandwidth=1_555_200_000_000,
            cores=108,
            fpus_per_core=64,
            threads_per_core=2048,
            shared_memory_per_core=164 << 10,
            shared_memory_per_block=163 << 10,
            l2_cache_bytes=40 << 20,
            clock_ghz=1.41,
        ),
        Card(
            name="h100",
            title="NVIDIA H100 80GB HBM3",
            compute_capability=(9, 0),
            memory_bytes=84_942_979_072,
            memory_bandwidth=3_352_320_000_000,
            cores=132,
            fpus_per_core=128,
            threads_per_core=2048,
            shared_memory_per_core=228 << 10,
            shared_memory_per_block=227 << 10,
            l2_cache_bytes=50 << 20,
            clock_ghz=1.98,
        ),
    )
}
"""The cards by name."""

HERE = "here"
"""Asks for the machine's own default device instead of a described card."""


def card(name: str) -> Card:
    """Return the card of that name.

    Raises:
        ValueError: if there is none.
    """
    try:
        return CARDS[name.lower()]
    except (KeyError, AttributeError):
        known = ", ".join(f'"{each}"' for each in (*CARDS, HERE))
        raise ValueError(
            f"xray: `gpu` is {name!r}; expected one of {known}. Pass one of these names."
        ) from None


def target_config(card: Card) -> str:
    """Return XLA's `GpuTargetConfig` text for a card: what the compiler is told of the hardware."""
    major, minor = card.compute_capability
    device = {
        "threads_per_block_limit": 1024,
        "threads_per_warp": 32,
        "shared_memory_per_block": 48 << 10,
        "shared_memory_per_core": card.shared_memory_per_core,
        "threads_per_core_limit": card.threads_per_core,
        "core_count": card.cores,
        "fpus_per_core": card.fpus_per_core,
        "block_dim_limit_x": 2**31 - 1,
        "block_dim_limit_y": 2**16 - 1,
        "block_dim_limit_z": 2**16 - 1,
        "memory_bandwidth": card.memory_bandwidth,
        "l2_cache_size": card.l2_cache_bytes,
        "clock_rate_ghz": card.clock_ghz,
        "device_memory_size": card.memory_bytes,
        "shared_memory_per_block_optin": card.shared_memory_per_block,
        "registers_per_core_limit": 64 << 10,
        "registers_per_block_limit": 64 << 10,
    }
    lines = [f"  {key}: {value}" for key, value in device.items()]
    lines.append(f"  cuda_compute_capability {{ major: {major} minor: {minor} }}")
    return "\n".join(
        (
            "gpu_device_info {",
            *lines,
            "}",
            'platform_name: "CUDA"',
            "dnn_version_info { major: 9 minor: 7 }",
            "runtime_version { major: 12 minor: 8 patch: 0 }",
            f'device_description_str: "{card.title}"',
        )
    )
