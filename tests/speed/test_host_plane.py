"""On which device the ops of host threads ran: what tells it, and that nothing else does."""

from __future__ import annotations

from collections.abc import Sequence

from xspaces import START_NS, Made, space

from harness.speed.timeline.placements import Part, Placements
from harness.speed.timeline.planes import HostPlane, transfers_between
from harness.speed.timeline.spans import Span
from harness.speed.timeline.xplane import capture_of

TASK = "/job:localhost/replica:0/task:0"
ZERO, ONE = f"{TASK}/device:CPU:0", f"{TASK}/device:CPU:1"


def plane(*events: Made, placements: Placements | None = None, devices: Sequence[str] = (ZERO, ONE)) -> HostPlane:
    made = space({"/host:CPU": {"tf_Compute/1": events}})
    return HostPlane(capture_of(made, TASK, "made"), devices, placements or Placements())


def process(part: int, begin: int, duration: int) -> Made:
    return ("ExecutorState::Process", begin, duration, {"_c": part, "id": 99})


def eager(op: str, begin: int) -> list[Made]:
    return [
        ("EagerExecute", begin, 100, {"eager_op": op, "is_func": 0}),
        ("EagerKernelExecute", begin + 10, 80, {}),
    ]


def devices_of(spans: Sequence[Span]) -> dict[str, str | None]:
    return {span.name: span.device for span in spans}


def test_a_part_is_where_a_recording_has_all_its_ops() -> None:
    known = Placements(parts=(Part(ZERO, frozenset({"MatMul", "Tanh"})), Part(ONE, frozenset({"MatMul_1", "Tanh"}))))
    seen = plane(process(1, 0, 100), ("Tanh:Tanh", 10, 20, {}), ("MatMul_1:MatMul", 40, 20, {}), placements=known)
    assert devices_of(seen.spans([])) == {"Tanh": ONE, "MatMul_1": ONE}


def test_ops_that_a_recording_has_on_two_devices_or_nowhere_have_no_device() -> None:
    known = Placements(parts=(Part(ZERO, frozenset({"Tanh"})), Part(ONE, frozenset({"Tanh"}))))
    seen = plane(
        process(1, 0, 50), ("Tanh:Tanh", 10, 20, {}), process(2, 60, 50), ("Relu:Relu", 70, 20, {}), placements=known
    )
    assert devices_of(seen.spans([])) == {"Tanh": None, "Relu": None}


def test_a_part_is_looked_for_in_the_function_that_started_it() -> None:
    parts = {
        "__inference_f_1": (Part(ZERO, frozenset({"Tanh"})),),
        "__inference_g_2": (Part(ONE, frozenset({"Tanh"})),),
    }
    known = Placements(functions=parts, parts=tuple(part for each in parts.values() for part in each))
    seen = plane(
        ("EagerExecute", 0, 200, {"eager_op": "__inference_g_2", "is_func": 1}),
        ("FunctionRun", 10, 10, {"_p": 5}),
        process(5, 30, 100),
        ("Tanh:Tanh", 40, 20, {}),
        placements=known,
    )
    assert devices_of(seen.spans([])) == {"Tanh": ONE}


def test_a_send_names_the_device_of_its_part() -> None:
    seen = plane(
        process(1, 0, 100),
        ("Odd:Tanh", 10, 20, {}),
        ("Odd/_1:_Send", 40, 5, {"key": f"{ONE};1;{ZERO};edge_1_Odd;0:0"}),
    )
    assert devices_of(seen.spans([])) == {"Odd": ONE, "Odd/_1": ONE}


def test_what_the_optimizer_runs_by_itself_is_no_part_of_the_program() -> None:
    send = ("Odd/_1:_Send", 40, 5, {"key": "/device:CPU:0;1;/device:CPU:0;edge_1_Odd;0:0"})
    assert plane(process(1, 0, 100), ("Odd:Add", 10, 20, {}), send).spans([]) == []


def test_the_only_device_of_a_process_ran_everything() -> None:
    seen = plane(process(1, 0, 100), ("Tanh:Tanh", 10, 20, {}), devices=[ONE])
    assert devices_of(seen.spans([])) == {"Tanh": ONE}


def test_eager_ops_are_told_by_their_order_where_it_is_that_of_the_recording() -> None:
    known = Placements(eager=(("MatMul", ZERO), ("MatMul", ONE)))
    events = [*eager("MatMul", 0), *eager("_EagerConst", 120), *eager("MatMul", 240)]
    window = [(START_NS, START_NS + 1000)]
    found = plane(*events, placements=known).spans(window)
    assert [(span.device, span.begin_ns - START_NS, span.eager) for span in found] == [
        (ZERO, 10, True),
        (ONE, 250, True),
    ]
    other = plane(*eager("MatMul", 0), *eager("Tanh", 120), placements=known).spans(window)
    assert [span.device for span in other] == [None, None]


def test_a_function_that_is_traced_anew_keeps_its_place_in_the_order() -> None:
    known = Placements(eager=(("__inference_f_1", ZERO), ("Tanh", ONE)))
    call: Made = ("EagerExecute", 0, 100, {"eager_op": "__inference_f_27", "is_func": 1})
    (found,) = plane(call, *eager("Tanh", 200), placements=known).spans([(START_NS, START_NS + 1000)])
    assert found.device == ONE


def test_an_eager_op_that_runs_a_function_is_counted_there_alone() -> None:
    seen = plane(
        *eager("AddN", 0),
        ("FunctionRun", 20, 10, {"_p": 5}),
        process(5, 110, 50),
        ("AddN:AddN", 120, 20, {}),
        devices=[ZERO],
    )
    assert [(span.name, span.eager) for span in seen.spans([])] == [("AddN", False)]


def test_a_copy_lasts_from_when_both_sides_are_ready_until_it_is_there() -> None:
    send = ("x/_1:_Send", 40, 5, {"key": f"{ZERO};1;{ONE};edge_1_x;0:0"})
    start = (
        "ExecutorState::ProcessAsync::Start",
        10,
        1,
        {"_p": 3, "step_id": 99, "name": "x/_2", "kernel_type": "_Recv"},
    )
    done = (
        "ExecutorState::ProcessAsync::Done",
        90,
        5,
        {"_c": 3, "step_id": 99, "name": "x/_2", "kernel_type": "_Recv"},
    )
    known = Placements(parts=(Part(ONE, frozenset({"y"})),))
    events = [process(2, 0, 20), start, ("y:Neg", 15, 2, {}), process(1, 30, 30), send, done]
    seen = plane(*events, placements=known)
    (copy,) = transfers_between({TASK: seen})
    assert (copy.device, copy.kind) == (ONE, "transfer")
    assert (copy.begin_ns - START_NS, copy.end_ns - START_NS) == (40, 90)
    twice = plane(*events, ("x/_3:_Send", 47, 2, {"key": f"{ZERO};1;{ONE};edge_2_x;0:0"}), placements=known)
    assert transfers_between({TASK: twice}) == [], "which of two is meant is not known"


def test_an_op_of_which_the_profiler_lost_the_surroundings_is_unknown_and_not_left_out() -> None:
    lost: Made = ("Tanh:Tanh", 10, 20, {})
    request: Made = ("EagerService:Enqueue", 40, 20, {})
    assert devices_of(plane(lost, request).spans([])) == {"Tanh": None}
    assert devices_of(plane(lost, request, devices=[ONE]).spans([])) == {"Tanh": ONE}


def test_what_a_tf_data_pipeline_runs_beside_the_calls_is_in_no_devices_time() -> None:
    run: list[Made] = [("InstantiatedCapturedFunction::RunAsync", 0, 20, {}), ("FunctionRun", 5, 10, {"_p": 3})]
    ops: list[Made] = [process(3, 30, 50), ("Mul:Mul", 40, 20, {})]
    assert plane(*run, *ops, devices=[ZERO]).spans([]) == []
    assert len(plane(run[1], *ops, devices=[ZERO]).spans([])) == 1, "a function of the program itself"
