"""The results are right in eager code, and in a graph that TensorFlow runs as it was written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from harness.judgement.diagnosis.observed import place_of_function
from harness.judgement.diagnosis.question import Array, Cause, Question
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.wording import listed
from harness.judgement.runs import Mode, Program, Result, as_result
from harness.lazy import tf
from harness.plural import plural

#: TensorFlow's optimizers of graphs that are on by default and may change what is computed.
_OPTIMIZERS = ("arithmetic_optimization", "remapping", "layout_optimizer", "constant_folding", "loop_optimization")
#: What is fixed once TensorFlow has started, with what to set before.
_AT_START = (
    "oneDNN off (start the program with TF_ENABLE_ONEDNN_OPTS=0)",
    "deterministic ops (start the program with TF_DETERMINISTIC_OPS=1)",
)


def _claims(question: Question) -> Iterator[Cause]:
    if question.unsteady or not _right_line_by_line(question):
        return
    table = Table(gone=["eager code"])
    with _options(disable_meta_optimizer=True):
        if not table.note("graph optimization off", lambda: _right(question, _run(question, question.mode))):
            yield from _kept_by_a_trace(question)
            return
    guilty = ""
    for name in _OPTIMIZERS:
        with _options(**{name: False}):
            if table.note(f"{name} off", lambda: _right(question, _run(question, question.mode))):
                guilty = guilty or name
    compiled = replace(question.parallel, fn=tf.function(question.parallel.fn, jit_compile=True))
    table.note("XLA (jit_compile=True)", lambda: _right(question, _run(question, "graph", compiled)))
    counts = fewer(len(question.devices))
    if counts and question.maker is None:
        table.untried.append(
            "another number of shards (needs a program made by make_parallel, or a function as shrink=)"
        )
    else:
        for count in counts:
            table.note(
                plural(count, "shard"),
                lambda count=count: _right_on(question, count),  # type: ignore[misc]
            )
    wrong = tuple(question.wrong)
    yield Cause(
        f"{listed([leaf.name for leaf in wrong[:4]])} {'is' if len(wrong) == 1 else 'are'} right in eager code and in "
        f"the graph as written: TensorFlow's graph optimization{f' ({guilty})' if guilty else ''} changes the result",
        None,
        "switch this optimization off: tf.config.optimizer.set_experimental_options("
        f"{{{(guilty or 'disable_meta_optimizer')!r}: {not guilty}}})",
        evidence=table.lines(),
    )


def _kept_by_a_trace(question: Question) -> Iterator[Cause]:
    """The results are right where a ``tf.function`` is traced anew: its trace has kept what Python had before."""
    called: dict[int, Any] = {}

    def run(anew: Collection[int] | None) -> bool:
        def call(original: Callable[..., Any], function: Any, *given: Any, **named: Any) -> Any:
            called.setdefault(id(function), function)
            fresh = anew is None or id(function) in anew
            return original(tf.function(function.python_function) if fresh else function, *given, **named)

        with _calls(call):
            return _right(question, _run(question, question.mode))

    # As it is, once more: only what a new trace changes is its fault.
    if not run(None) or run(()):
        return
    for key, function in list(called.items()):
        if run((key,)):
            place = place_of_function(function.python_function)
            at = f" {name}" if (name := getattr(function.python_function, "__name__", "")) else ""
            yield Cause(
                f"{listed([leaf.name for leaf in question.wrong[:4]])} {'is' if len(question.wrong) == 1 else 'are'} "
                f"right where the tf.function{at} is traced anew: its trace keeps a Python value from an earlier trace",
                place,
                "give the value to the function as an argument, or keep it in a tf.Variable",
                final=True,
            )
            return


@contextmanager
def _calls(call: Callable[..., Any]) -> Iterator[None]:
    """Have ``call(original, function, ...)`` make each call of a ``tf.function`` in the body."""
    owner = type(tf.function(lambda: None))
    original = owner.__call__
    owner.__call__ = lambda self, *given, **named: call(original, self, *given, **named)
    try:
        yield
    finally:
        owner.__call__ = original


def _right_line_by_line(question: Question) -> bool:
    """Whether what differs is the reference's where no graph is made, also not of a ``tf.function`` in the program."""
    if all(replace(leaf, wrong=False).explained_by(leaf.expected) for leaf in question.wrong):
        return False  # it is wrong by its dtype, say, which this comparison cannot tell
    if any(leaf.part == "gradients" for leaf in question.wrong):
        return question.mode != "eager" and _right(question, _run(question, "eager"))
    return question.line_by_line is not None and _right(question, question.line_by_line)


def _right_on(question: Question, shards: int) -> bool:
    """Whether the results are right where the program is made for fewer devices."""
    assert question.maker is not None
    made = replace(question.parallel, fn=question.maker(question.devices[:shards]))
    result = _run(question, question.mode, made)
    if any(_shape(leaf.of(result)) != _shape(leaf.expected) for leaf in question.wrong):
        raise CannotTry("the results' shapes depend on the number of shards")
    return _right(question, result)


def _shape(array: Array | None) -> tuple[int, ...] | None:
    return None if array is None else array.shape


def _run(question: Question, mode: Mode, other: Program | None = None) -> Result:
    program = replace(other or question.parallel, _graphs={})
    with question.from_start():
        return as_result(program.runner(mode)(*program.arguments(mode)), question.watched)


def _right(question: Question, result: Result) -> bool:
    """Whether what differs is the reference's in this run."""
    return all(replace(leaf, found=leaf.of(result), wrong=False).explained_by(leaf.expected) for leaf in question.wrong)


@contextmanager
def _options(**options: bool) -> Iterator[None]:
    """Set options of TensorFlow's graph optimization in the body."""
    before = tf.config.optimizer.get_experimental_options()
    tf.config.optimizer.set_experimental_options(options)
    try:
        yield
    finally:
        # All of these are on by default, and what disables everything is not set.
        usual = {name: name != "disable_meta_optimizer" for name in options}
        tf.config.optimizer.set_experimental_options({**usual, **{n: before[n] for n in options if n in before}})


@dataclass
class Table:
    """What makes the difference go away, what does not, and what could not be tried here."""

    gone: list[str] = field(default_factory=list)
    remains: list[str] = field(default_factory=list)
    untried: list[str] = field(default_factory=list)

    def note(self, setting: str, right: Callable[[], bool]) -> bool:
        """Try a setting: whether the results are right with it."""
        try:
            found = right()
        except Exception as error:  # noqa: BLE001 - not every op has a kernel for every setting: the table says so
            why = str(error) if isinstance(error, CannotTry) else type(error).__name__
            self.untried.append(f"{setting} ({why})")
            return False
        (self.gone if found else self.remains).append(setting)
        return found

    def lines(self) -> tuple[str, ...]:
        """The table, a line for each kind of setting."""
        rows = (
            ("the difference goes away with", self.gone),
            ("the difference stays with", self.remains),
            ("not tried", [*self.untried, *_AT_START]),
        )
        return tuple(f"{title}: {', '.join(names)}" for title, names in rows if names)


class CannotTry(Exception):
    """Why a setting cannot be tried."""


def fewer(shards: int) -> list[int]:
    """The numbers of shards that are tried instead of this one: 1, 2, 4 and so on."""
    return [2**power for power in range((shards - 1).bit_length())]


RULE = Rule("C501", "graph-optimization", "graph optimization", _claims, by="platform")
