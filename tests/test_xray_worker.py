"""The worker is started once, survives nothing it should not, and leaves its caller untouched."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import jax.numpy as jnp
import pytest

from course_utils.instruments.xray import XrayTimeout, XrayUnavailable, cache, client, xray
from course_utils.instruments.xray.programs import chain, struct
from course_utils.instruments.xray.toolchain import ROOT_VARIABLE

pytest_plugins = ["xray_fixtures"]
pytestmark = [pytest.mark.xray, pytest.mark.usefixtures("compiler")]


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv(cache.FOLDER_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def new_worker():
    """A worker with the environment of this test alone."""
    client.stop()
    yield
    client.stop()


def run(script: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | env,
    )


def pid() -> int:
    number = client.worker_pid()
    assert number is not None
    return number


def gone(number: int) -> bool:
    stat = Path(f"/proc/{number}/stat")
    try:
        return stat.read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_one_worker_serves_one_request_after_another(empty_cache):
    xray(chain, struct(16))
    first = pid()
    xray(chain, struct(17))
    assert pid() == first


def test_a_second_xray_comes_from_the_cache_without_a_worker(empty_cache, new_worker):
    made = xray(chain, struct(16))
    client.stop()
    found = xray(chain, struct(16))
    assert (made.from_cache, found.from_cache) == (False, True)
    assert found == made
    assert client.worker_pid() is None


def test_the_cache_keeps_programs_cards_and_donation_apart(empty_cache):
    for call in (
        lambda: xray(chain, struct(16)),
        lambda: xray(chain, struct(17)),
        lambda: xray(chain, struct(16), gpu="h100"),
        lambda: xray(chain, struct(16), donate=[0]),
        lambda: xray(lambda x: chain(x) + 1, struct(16)),
    ):
        assert not call().from_cache
        assert call().from_cache


def test_another_process_finds_the_same_program_in_the_cache(empty_cache):
    script = """
        from course_utils.instruments.xray.programs import PROGRAMS
        from course_utils.instruments.xray import client, xray
        fn, args = PROGRAMS["softmax"]
        {spacing}
        found = xray(fn, *args)
        print(found.from_cache, found.kernels, client.worker_pid() is None)
    """
    first = run(script.format(spacing=""))
    second = run(script.format(spacing="# called from another line\n\n"))
    assert (first.stdout, second.stdout) == ("False 3 False\n", "True 3 True\n")


def test_a_damaged_cache_entry_is_compiled_anew(empty_cache):
    xray(chain, struct(16))
    (entry,) = empty_cache.rglob("*.json.gz")
    entry.write_bytes(b"damaged")
    assert not xray(chain, struct(16)).from_cache
    assert xray(chain, struct(16)).from_cache


def test_a_killed_worker_is_replaced(empty_cache):
    xray(chain, struct(16))
    first = pid()
    os.kill(first, signal.SIGKILL)
    assert xray(chain, struct(17)).kernels == 1
    assert pid() != first


def test_too_slow_a_compile_is_stopped_and_the_next_one_works(empty_cache):
    xray(chain, struct(16))
    first = pid()
    with pytest.raises(XrayTimeout, match=r"longer than 0\.001 s"):
        xray(chain, struct(17), timeout=0.001)
    assert gone(first)
    assert xray(chain, struct(17)).kernels == 1


def test_several_threads_get_their_own_answers(empty_cache):
    found = {}

    def ask(size):
        found[size] = xray(chain, struct(size)).argument_bytes

    threads = [threading.Thread(target=ask, args=(size,)) for size in range(32, 38)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {size: 4 * size for size in range(32, 38)}


def test_the_caller_is_left_as_it_was(empty_cache):
    """Environment, flags, modules, output and later JAX work of a fresh process."""
    script = """
        import json, os, sys, warnings
        warnings.simplefilter("error")
        import jax, jax.numpy as jnp
        before = dict(os.environ), jax.config.values.copy(), set(sys.modules)
        from course_utils.instruments.xray import xray
        def f(x):
            return jnp.sin(x) + 1
        compiled = jax.jit(f)
        first = compiled(jnp.ones(3)).tolist()
        kernels = xray(f, jnp.ones(3), gpu="h100").kernels
        changed = {name for name, value in jax.config.values.items() if before[1][name] != value}
        print(json.dumps({
            "kernels": kernels,
            "environment": dict(os.environ) == before[0],
            "config": sorted(changed),
            "plugins": [name for name in sys.modules if "cuda" in name and name not in before[2]],
            "path": [part for part in sys.path if "xray" in part],
            "same": compiled(jnp.ones(3)).tolist() == first,
            "compiled once": compiled._cache_size() == 1,
            "platform": jax.devices()[0].platform,
        }))
    """
    done = run(script)
    assert done.stderr == ""
    assert json.loads(done.stdout) == {
        "kernels": 1,
        "environment": True,
        "config": [],
        "plugins": [],
        "path": [],
        "same": True,
        "compiled once": True,
        "platform": "cpu",
    }


def test_what_steers_the_callers_jax_does_not_reach_the_worker(empty_cache):
    script = """
        import jax
        from course_utils.instruments.xray import xray
        print(xray(jax.numpy.sin, jax.numpy.ones(3), gpu="t4").kernels)
    """
    done = run(
        script,
        XLA_FLAGS="--xla_force_host_platform_device_count=3",
        JAX_DISABLE_MOST_OPTIMIZATIONS="1",
        JAX_DEFAULT_MATMUL_PRECISION="highest",
        CUDA_VISIBLE_DEVICES="0",
        PYTHONWARNINGS="error",
    )
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_the_worker_ends_with_its_caller(empty_cache):
    done = run("""
        import jax
        from course_utils.instruments.xray import client, xray
        xray(jax.numpy.sin, jax.numpy.ones(3))
        print(client.worker_pid())
    """)
    assert gone(int(done.stdout))


def test_a_caller_that_is_killed_takes_its_worker_with_it(empty_cache):
    script = """
        import jax, os, signal
        from course_utils.instruments.xray import client, xray
        xray(jax.numpy.sin, jax.numpy.ones(3))
        print(client.worker_pid(), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    number = int(run(script).stdout)
    waiting = threading.Event()
    for _ in range(50):
        if gone(number):
            break
        waiting.wait(0.1)
    assert gone(number)


def test_a_forked_child_leaves_the_parents_worker_alone(empty_cache):
    script = """
        import os, warnings
        warnings.simplefilter("ignore")  # JAX warns of every fork
        import jax
        from course_utils.instruments.xray import client, xray
        x = jax.ShapeDtypeStruct((16,), "float32")
        xray(lambda x: x + 1, x)
        parent = client.worker_pid()
        child = os.fork()
        if child == 0:
            free = client.worker_pid() is None
            client.stop()
            os._exit(0 if free else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        print(xray(lambda x: x + 2, x).kernels, client.worker_pid() == parent)
    """
    done = run(script)
    assert done.stdout.split() == ["0", "1", "True"]


def test_printing_does_not_disturb_the_answers(empty_cache, new_worker, tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text('print("hello from a stranger" * 1000)')
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert xray(chain, struct(16)).kernels == 1


TOOLS = ("ptxas", "nvcc", "nvlink", "fatbinary")


def test_a_cuda_toolkit_of_the_machine_is_out_of_reach(
    empty_cache, new_worker, tmp_path, monkeypatch
):
    used = tmp_path / "used"
    for folder in (tmp_path / "cuda" / "bin", tmp_path / "bin"):
        folder.mkdir(parents=True)
        for tool in TOOLS:
            (folder / tool).write_text(f"#!/bin/sh\necho $0 >> {used}\nexit 1\n")
            (folder / tool).chmod(0o755)
    path = f"{tmp_path / 'cuda' / 'bin'}:{tmp_path / 'bin'}:{os.environ['PATH']}"
    monkeypatch.setenv("PATH", path)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    monkeypatch.setenv("XLA_FLAGS", f"--xla_gpu_cuda_data_dir={tmp_path / 'cuda'}")
    assert xray(chain, struct(16)).kernels == 1
    assert not used.exists()


def copy_with_links(source: Path, target: Path) -> None:
    """Build a toolchain whose large files are links and whose assembler can be changed."""
    for file in source.rglob("*"):
        place = target / file.relative_to(source)
        if file.is_dir():
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(file)


def test_the_toolchains_own_assembler_is_the_one_that_runs(
    compiler, empty_cache, new_worker, tmp_path, monkeypatch
):
    copy_with_links(compiler, tmp_path / compiler.name)
    assembler = tmp_path / compiler.name / "nvidia/cuda_nvcc/bin/ptxas"
    real = assembler.resolve()
    assembler.unlink()
    assembler.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path / "used"}\nexec {real} "$@"\n')
    assembler.chmod(0o755)
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    assert xray(chain, struct(16)).kernels == 1
    assert "sm_75" in (tmp_path / "used").read_text()


def test_a_toolchain_that_does_not_work_is_named_with_what_to_do(
    compiler, empty_cache, new_worker, tmp_path, monkeypatch
):
    copy_with_links(compiler, tmp_path / compiler.name)
    for name in ("nvidia/cuda_nvcc/bin/ptxas", "nvidia/cuda_nvcc/nvvm/libdevice/libdevice.10.bc"):
        (tmp_path / compiler.name / name).unlink()
        (tmp_path / compiler.name / name).write_text("not what it should be")
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    with pytest.raises(XrayUnavailable, match=r"does not work.*course xray --install"):
        xray(lambda x: jnp.exp(chain(x)), struct(16))
