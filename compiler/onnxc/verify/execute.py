"""Running what may crash in a process of its own: the C as a library, and a reference."""

from __future__ import annotations

import faulthandler
import multiprocessing
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxc.compiled import CompiledModel
from onnxc.diagnostics import Kind
from onnxc.errors import CrashError, OnnxcError, RunError
from onnxc.verify.inputs import Case
from onnxc.verify.source import Subject
from onnxc.verify.taps import POINTER, TappedC

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from numpy.typing import NDArray


@dataclass(frozen=True)
class Outcome:
    """What became of one run.

    values  the outputs, then what is tapped
    status  in words, where it was not OK; then there are no values
    """

    values: tuple[NDArray[Any], ...] = ()
    status: str = ""


def run_library(
    subject: Subject,
    cases: Sequence[Case],
    tapped: TappedC | None = None,
    done: Callable[[], None] = lambda: None,
) -> list[Outcome]:
    """The outcome of each case, from a process of its own: C that somebody changed may crash.

    done  is called after each. Raises CrashError, ToolError, UsageError for wrong inputs.
    """
    c_file = tapped.c_file if tapped else subject.c_file
    model = CompiledModel(subject.compiled, c_file)
    model.build()
    outcomes: list[Outcome] = []
    with apart(lambda sender: _send_outcomes(sender, model, cases, tapped)) as receive:
        try:
            while len(outcomes) < len(cases):
                outcome = receive()
                if isinstance(outcome, Exception):
                    raise outcome
                outcomes.append(outcome)
                done()
        except CrashedError as crash:
            where = f"on {cases[len(outcomes)].label} inputs"
            raise CrashError(Kind.CRASH, f"the C crashed {where} ({crash})") from None
    return outcomes


class CrashedError(Exception):
    """A process ended before it sent what was asked for; its text says how."""


@contextmanager
def apart(send: Callable[[Connection], None]) -> Iterator[Callable[[], Any]]:
    """Calls `send` in a copy of this process; gives a function that receives what it sends.

    That function raises CrashedError where the copy ends before it has sent anything more.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def work() -> None:
        faulthandler.disable()  # who asked tells of a crash, in one line
        send(sender)

    process = context.Process(target=work)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of fork beside numpy's own threads
        process.start()
    sender.close()

    def receive() -> Any:
        try:
            return receiver.recv()
        except EOFError:
            process.join()
            code = process.exitcode or 0
            how = signal.Signals(-code).name if code < 0 else f"status {code}"
            raise CrashedError(how) from None

    try:
        yield receive
    finally:
        receiver.close()
        process.join()


def _send_outcomes(
    sender: Connection, model: CompiledModel, cases: Sequence[Case], tapped: TappedC | None
) -> None:
    try:
        memory = np.zeros(tapped.bytes if tapped else 0, np.uint8)
        if tapped:
            built = model.build()
            setattr(built.lib, POINTER, built.ffi.cast("unsigned char *", memory.ctypes.data))
        for case in cases:
            sender.send(_outcome(model, case, tapped, memory))
    except OnnxcError as error:
        sender.send(error)


def _outcome(
    model: CompiledModel, case: Case, tapped: TappedC | None, memory: NDArray[np.uint8]
) -> Outcome:
    try:
        outputs = list(model.run(case.values).values())
    except RunError as error:
        return Outcome(status=str(error))
    between = [tap.value(memory) for tap in tapped.inner] if tapped else []
    return Outcome((*outputs, *between))
