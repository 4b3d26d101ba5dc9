"""Notes the variables and tables that a program uses, wherever it keeps them, so that they are restored."""

from __future__ import annotations

import functools
import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from weakref import ref

import numpy as np

from harness._tensorflow import interface
from harness.judgement.state import Snapshot, whole_of
from harness.lazy import tf

#: Numbers of dtypes, as ``tensorflow/core/framework/types.proto`` has them.
_RESOURCE, _VARIANT = 20, 21
#: Held by the thread that looks through Python's objects.
_looking = threading.Lock()


@contextmanager
def uses_noted(snapshot: Snapshot) -> Iterator[set[int]]:
    """Collect the ids of the variables that the body uses; those that ``snapshot`` lacks are added to it.

    A variable is used where Python asks for its handle, or where an op or a function gets it. It is added with its
    value from before its first use. So is a hash table that ops can write to.
    """
    private = interface()
    noting = _Noting(snapshot, private)
    handle = vars(private.variable)["handle"].fget

    def handle_noted(variable: Any) -> Any:
        found = handle(variable)
        noting.note(found, variable)
        return found

    def inputs_noted(run: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(run)
        def call(*arguments: Any) -> Any:
            for argument in arguments:
                for each in argument if isinstance(argument, (list, tuple)) else (argument,):
                    if isinstance(each, private.ops._EagerTensorBase) and each._datatype_enum() == _RESOURCE:
                        noting.note(each)
                    elif isinstance(each, private.variable):  # TensorFlow reads it without asking for its handle
                        noting.note(handle(each), each)
            return run(*arguments)

        return call

    with ExitStack() as undo:
        for owner, name in (
            (private.pywrap, "TFE_Py_FastPathExecute"),
            (private.context.Context, "call_function"),
        ):
            undo.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, inputs_noted(getattr(owner, name)))
        undo.callback(setattr, private.variable, "handle", vars(private.variable)["handle"])
        private.variable.handle = property(handle_noted)
        yield noting.used


class _Noting:
    def __init__(self, snapshot: Snapshot, private: Any) -> None:
        self.snapshot = snapshot
        self.private = private
        self.used: set[int] = set()
        #: Variables by their handles' ids, of those that there were when they were last looked for.
        self._owners: dict[int | None, ref[Any]] = {}
        #: The variable of each handle, by the handle's id; ``None`` for what is no variable.
        self.by_handle: dict[int, Any] = {
            variable.handle._id: variable for variable in snapshot.variables if isinstance(variable, private.variable)
        }

    def note(self, handle: Any, variable: Any = None) -> None:
        """Note the use of a variable by its handle; ``variable`` is ``None`` where it is not known."""
        if handle._id not in self.by_handle:
            if not self._is_of_variable(handle):
                self.by_handle[handle._id] = None
                self._note_table(handle)
                return
            if not self._read("VarIsInitializedOp", handle)[0]:
                return  # it is being made
            variable = variable if self._is_variable(type(variable)) else self._owner(handle)
            self.by_handle[handle._id] = variable
            if variable is not None:
                number = variable.dtype.base_dtype.as_datatype_enum
                self.snapshot.variables.append(variable)
                self.snapshot.values.append(np.asarray(self._read("ReadVariableOp", handle, "dtype", number)[0]))
        variable = self.by_handle[handle._id]
        if variable is not None:
            self.used.add(id(variable))
            if (whole := whole_of(variable)) is not None:
                self.used.add(id(whole))

    def _note_table(self, handle: Any) -> None:
        made = _instances({tf.lookup.experimental.MutableHashTable, tf.lookup.experimental.DenseHashTable})
        table = next((each for each in made if each._resource_handle is handle), None)
        if table is not None and all(each is not table for each, _, _ in self.snapshot.tables):
            dtypes = (table.key_dtype.as_datatype_enum, table.value_dtype.as_datatype_enum)
            attributes = ("Tkeys", dtypes[0], "Tvalues", dtypes[1])
            keys, values = self._read("LookupTableExportV2", handle, *attributes, outputs=2)
            # A copy: TensorFlow may go on writing to what it has exported.
            self.snapshot.tables.append((table, np.array(keys), np.array(values)))

    def _read(self, op_type: str, handle: Any, *attributes: Any, outputs: int = 1) -> Any:
        """Run an op without telling those who watch: it is no part of the program."""
        context = self.private.context.context()
        return self.private.pywrap.TFE_Py_Execute(context._handle, None, op_type, [handle], attributes, outputs)

    def _owner(self, handle: Any) -> Any:
        """The variable that keeps this handle, where only a function that was traced before knows it."""
        if handle._id not in self._owners:
            # To look through all objects for one variable takes as long as for all of them.
            kept = filter(lambda each: self._is_variable(type(each)), _instances({self.private.variable}))
            self._owners = {getattr(getattr(each, "_handle", None), "_id", None): ref(each) for each in kept}
        known = self._owners.get(handle._id)
        return known and known()

    def _is_variable(self, kind: type) -> bool:
        # What an assignment returns is a variable too, but not the one that the program keeps.
        return issubclass(kind, self.private.variable) and kind.__name__ != "_UnreadVariable"

    def _is_of_variable(self, handle: Any) -> bool:
        """Whether this is the handle of one variable, of numbers or texts; one on a mesh is left alone."""
        if not isinstance(handle, self.private.ops._EagerTensorBase) or handle.is_packed or "CUSTOM" in handle.device:
            return False
        data = handle._handle_data
        return data is not None and data.is_set and data.shape_and_type[0].dtype not in (_RESOURCE, _VARIANT)


def _instances(kinds: set[type]) -> list[Any]:
    """All objects of these classes, and of those derived from them, that Python keeps.

    Each refers to its class. A list of all objects would refer to tuples that other threads are filling, too, which
    Python then refuses to fill: TensorFlow raises "Error while creating shape", and leaves its function locked.
    """
    found, new = set(kinds), list(kinds)
    while new:
        derived: set[type] = {*new.pop().__subclasses__()} - found
        found |= derived
        new += derived
    with _looking:
        enabled = gc.isenabled()
        # As Python goes through its objects, a tensor makes the dict of its attributes. If that starts the garbage
        # collector, which moves objects to another list, Python 3.11 goes on in the wrong list, and crashes.
        gc.disable()
        try:
            return [each for each in gc.get_referrers(*found) if type(each) in found]
        finally:
            if enabled:
                gc.enable()
