"""Kernels are read from a compiled program's text as a GPU would launch them."""

import pytest

from course_utils.instruments.xray.hlo import library_name, read_program
from course_utils.instruments.xray.sources import HloStacks, Source, canonical_text, normal_file

ADD = """
%fused_add (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  %s = f32[8]{0} sine(%p), metadata={op_name="jit(f)/sin" stack_frame_id=1}
  ROOT %a = f32[8]{0} add(%s, %s), metadata={op_name="jit(f)/add" stack_frame_id=1}
}
"""
TABLES = """
FileNames
1 "/home/ann/model.py"
2 "/usr/lib/python3/site-packages/jax/_src/numpy.py"

FunctionNames
1 "f"
2 "sin"

FileLocations
1 {file_name_id=1 function_name_id=1 line=7 end_line=7 column=1 end_column=2}
2 {file_name_id=2 function_name_id=2 line=90 end_line=90 column=1 end_column=2}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}
"""


def program(entry: str, *, computations: str = ADD, tables: str = "") -> str:
    return (
        f"HloModule jit_f, is_scheduled=true\n{tables}\n{computations}\nENTRY %main {{\n{entry}}}\n"
    )


FUSION = (
    "  %x = f32[8]{0} parameter(0)\n  %f = f32[8]{0} fusion(%x), kind=kLoop, calls=%fused_add\n"
)


def test_a_fusion_is_one_kernel_with_its_operations_inside():
    (kernel,) = read_program(program(FUSION)).kernels
    assert (kernel.kind, kernel.ops, kernel.launches) == ("fusion", ("sin", "add"), 1)
    assert kernel.output == "f32[8]"


def test_what_only_names_memory_launches_nothing():
    entry = (
        "  %x = f32[8]{0} parameter(0)\n  %b = f32[2,4]{1,0} bitcast(%x)\n"
        "  ROOT %t = (f32[2,4]{1,0}) tuple(%b)\n"
    )
    assert read_program(program(entry)).kernels == ()


LOOP = """
%body (p: f32[8]) -> f32[8] {{
  %p = f32[8]{{0}} parameter(0)
  ROOT %f = f32[8]{{0}} fusion(%p), kind=kLoop, calls=%fused_add
}}
%cond (p: f32[8]) -> pred[] {{
  %p = f32[8]{{0}} parameter(0)
  ROOT %c = pred[] compare(%p, %p), direction=LT
}}
%outer (p: f32[8]) -> f32[8] {{
  %p = f32[8]{{0}} parameter(0)
  ROOT %w = f32[8]{{0}} while(%p), condition=%cond, body=%body{inner}
}}
"""
TRIPS = ', backend_config={{"known_trip_count":{{"n":"{}"}}}}'


def loop_program(inner: str, outer: str) -> str:
    entry = (
        "  %x = f32[8]{0} parameter(0)\n"
        f"  ROOT %w = f32[8]{{0}} while(%x), condition=%cond, body=%outer{outer}\n"
    )
    return program(entry, computations=ADD + LOOP.format(inner=inner))


def test_nested_loops_multiply_and_their_conditions_launch_nothing():
    text = loop_program(TRIPS.format(5), TRIPS.format(3))
    (kernel,) = read_program(text).kernels
    assert (kernel.launches, kernel.loops, kernel.known) == (15, 2, True)
    assert read_program(text).notes == ()


def test_a_loop_of_unknown_length_counts_once_with_its_condition_and_says_so():
    read = read_program(loop_program(TRIPS.format(5), ""))
    assert [(kernel.launches, kernel.known) for kernel in read.kernels] == [(1, False), (5, False)]
    assert "unknown length" in read.notes[0]


def test_of_a_conditional_the_branch_with_most_launches_counts():
    branches = (
        "%small (p: f32[8]) -> f32[8] {\n  %p = f32[8]{0} parameter(0)\n"
        "  ROOT %f = f32[8]{0} fusion(%p), kind=kLoop, calls=%fused_add\n}\n"
        "%large (p: f32[8]) -> f32[8] {\n  %p = f32[8]{0} parameter(0)\n"
        "  %g = f32[8]{0} fusion(%p), kind=kLoop, calls=%fused_add\n"
        "  ROOT %c = f32[8]{0} copy(%g)\n}\n"
    )
    entry = (
        "  %i = s32[] parameter(0)\n  %x = f32[8]{0} parameter(1)\n"
        "  ROOT %c = f32[8]{0} conditional(%i, %x, %x), branch_computations={%small, %large}\n"
    )
    read = read_program(program(entry, computations=ADD + branches))
    assert [kernel.kind for kernel in read.kernels] == ["fusion", "copy"]
    assert "conditional" in read.notes[0]


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("__cublas$lt$matmul", "cuBLAS"),
        ("__cudnn$convForward", "cuDNN"),
        ("cusolver_syevd_ffi", "cuSOLVER"),
        ("__cub$DeviceRadixSort", "CUB"),
        ("my_own_call", "my_own_call"),
    ],
)
def test_library_calls_carry_the_name_people_know(target, name):
    entry = (
        "  %x = f32[8]{0} parameter(0)\n"
        f'  ROOT %c = f32[8]{{0}} custom-call(%x), custom_call_target="{target}"\n'
    )
    (kernel,) = read_program(program(entry)).kernels
    assert (kernel.kind, kernel.library) == ("library", name)
    assert library_name(target) == name


def test_a_transform_is_a_library_call_and_a_lone_operation_is_not_fused():
    entry = (
        "  %x = c64[8]{0} parameter(0)\n  %f = c64[8]{0} fft(%x), fft_type=FFT, fft_length={8}\n"
        "  ROOT %n = c64[8]{0} negate(%f)\n"
    )
    fft, negate = read_program(program(entry)).kernels
    assert (fft.kind, fft.library) == ("library", "cuFFT")
    assert (negate.kind, negate.ops) == ("other", ("negate",))


def test_started_work_counts_once():
    entry = (
        "  %x = f32[8]{0} parameter(0)\n"
        "  %s = (f32[8]{0}, f32[8]{0}, u32[]) copy-start(%x)\n  ROOT %d = f32[8]{0} copy-done(%s)\n"
    )
    (kernel,) = read_program(program(entry)).kernels
    assert kernel.kind == "copy"


def test_a_kernel_points_at_the_learners_line_under_library_frames():
    (kernel,) = read_program(program(FUSION, tables=TABLES)).kernels
    assert kernel.source == Source("/home/ann/model.py", 7, "f")
    frames = HloStacks(program(FUSION, tables=TABLES)).frames({"stack_frame_id": "2"})
    assert [frame.line for frame in frames] == [90, 7]


def test_places_written_beside_the_instruction_are_read_too():
    computations = ADD.replace("stack_frame_id=1", 'source_file="/home/ann/a.py" source_line=3')
    (kernel,) = read_program(program(FUSION, computations=computations)).kernels
    assert kernel.source == Source("/home/ann/a.py", 3)


def test_a_notebook_cell_has_the_same_name_in_every_session():
    assert normal_file("/tmp/ipykernel_4711/123.py") == "<cell 123>"
    assert str(Source("<cell 123>", 4)) == "cell:4"


STABLEHLO = """#loc1 = loc("x")
module @jit_f {{
  func.func public @main(%arg0: tensor<8xf32> loc("x")) -> tensor<8xf32> {{
    %0 = stablehlo.sine %arg0 : tensor<8xf32> loc(#loc6)
    return %0 : tensor<8xf32> loc(#loc)
  }} loc(#loc)
}} loc(#loc)
#loc = loc(unknown)
#loc2 = loc("/home/ann/model.py":{line}:4 to :9)
#loc3 = loc("/home/ann/main.py":{caller}:4 to :9)
#loc4 = loc("f"(#loc2))
#loc5 = loc(callsite(#loc4 at #loc3))
#loc6 = loc("jit(f)/sin"(#loc5))
"""


def test_the_text_that_names_a_program_holds_its_own_lines_and_not_its_callers():
    here = canonical_text(STABLEHLO.format(line=7, caller=1))
    assert here == canonical_text(STABLEHLO.format(line=7, caller=99))
    assert here != canonical_text(STABLEHLO.format(line=8, caller=1))
    assert "model.py:7" in here
    bare = canonical_text(STABLEHLO.format(line=7, caller=1), locations=False)
    assert bare == canonical_text(STABLEHLO.format(line=8, caller=1), locations=False)
    assert "loc(" not in bare
