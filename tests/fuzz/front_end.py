"""Fuzzes the front end: mutated models must compile or be refused, within bounds.

    python -m tests.fuzz.front_end --seconds 600 --seed 1 --save findings

Ends with status 1 where a model made compile_model raise anything but ModelError and UsageError,
take more than oracle.SECONDS or oracle.MEMORY, open a file outside the model's folder, or write C
that is not C. A model is its number under the seed: `--number N` repeats one with its details.
"""

from __future__ import annotations

import argparse
import collections
import gc
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import onnx

from tests.fuzz.mutations import flipped, mutated
from tests.fuzz.oracle import MEMORY, SECONDS, Outcome, Watch, external_folder, outcome
from tests.fuzz.seed_models import seed_models

EVERY_GCC = 4
"""Of the models that compile, how many go through gcc: one in so many."""


def generated(
    number: int, seed: int, models: Sequence[onnx.ModelProto]
) -> tuple[onnx.ModelProto, bytes | None]:
    """The model of a number; with the bytes of a file where it is to be given as one."""
    random = Random(f"{seed}/{number}")
    model = mutated(random.choice(models), random.choice(models), random)
    kind = random.random()
    if kind < 0.6:
        return model, None
    data = model.SerializeToString()
    return model, flipped(data, random) if kind > 0.8 else data


class _Child:
    """Runs models one after the other in a process of its own, which a fault may end."""

    def __init__(self, seed: int, models: Sequence[onnx.ModelProto], parent: Path) -> None:
        self._seed, self._models = seed, models
        self._folder = external_folder(parent)
        self._path = self._folder / "m.onnx"
        self._watch = Watch(self._folder)
        self._gcc = shutil.which("gcc")

    def run(self, number: int) -> Outcome:
        model, data = generated(number, self._seed, self._models)
        gcc = self._gcc if number % EVERY_GCC == 0 else None
        if data is None:
            return outcome(model, self._watch, gcc)
        self._path.write_bytes(data)
        return outcome(self._path, self._watch, gcc)

    def serve(self, numbers: Iterator[int], pipe: int) -> None:
        """Writes a line when it begins a model and one with what became of it."""
        resource.setrlimit(resource.RLIMIT_DATA, (2 * MEMORY, 2 * MEMORY))
        warnings.simplefilter("error")
        with os.fdopen(pipe, "w", buffering=1) as lines:
            for number in numbers:
                lines.write(f"{number}\n")
                result = self.run(number)
                used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
                if used > MEMORY:
                    result = Outcome("more than a gibibyte of memory", f"{used:,} bytes")
                lines.write(json.dumps([number, result.kind, result.text]) + "\n")
                if used > MEMORY:
                    return


class Campaign:
    """Numbers from `first` on; `found` has the outcomes that are faults, by kind."""

    def __init__(self, seed: int, first: int = 0) -> None:
        self.seed, self.next = seed, first
        self.models = seed_models()
        self.counts: collections.Counter[str] = collections.Counter()
        self.found: dict[str, list[tuple[int, str]]] = {}
        gc.freeze()  # the children share what is there now

    def run(self, seconds: float, count: int) -> None:
        """Until the time or the number of models is spent."""
        end, last = time.monotonic() + seconds, self.next + count
        while self.next < last and time.monotonic() < end:
            with tempfile.TemporaryDirectory() as folder:
                self._one_child(Path(folder), end, last)

    def _one_child(self, folder: Path, end: float, last: int) -> None:
        reader, writer = os.pipe()
        process = os.fork()
        if process == 0:
            os.close(reader)
            status = 1
            try:
                _Child(self.seed, self.models, folder).serve(iter(range(self.next, last)), writer)
                status = 0
            finally:
                os._exit(status)
        os.close(writer)
        with os.fdopen(reader, "rb", buffering=0) as stream:
            ended = self._listen(stream.fileno(), end)
        os.kill(process, signal.SIGKILL)
        _, status = os.waitpid(process, 0)
        if ended:
            self._note(Outcome(ended, f"wait status {status}"))

    def _listen(self, pipe: int, end: float) -> str:
        """Reads what a child says; how the model that it was at ended it, "" for none."""
        text, busy = b"", False
        while True:
            if not select.select([pipe], [], [], SECONDS)[0]:
                return f"more than {SECONDS} seconds"
            piece = os.read(pipe, 1 << 16)
            if not piece:
                return "the process died" if busy else ""
            *lines, text = (text + piece).split(b"\n")
            for line in lines:
                busy = not line.startswith(b"[")
                if not busy:
                    _, kind, details = json.loads(line)
                    self._note(Outcome(kind, details))
            if not busy and time.monotonic() > end:
                return ""

    def _note(self, result: Outcome) -> None:
        self.counts[result.kind] += 1
        if result.fault:
            self.found.setdefault(result.kind, []).append((self.next, result.text))
        self.next += 1

    def save(self, folder: Path) -> None:
        """The first model of each kind of fault, and what it did."""
        folder.mkdir(parents=True, exist_ok=True)
        for findings in self.found.values():
            number, text = findings[0]
            model, data = generated(number, self.seed, self.models)
            (folder / f"{number}.onnx").write_bytes(data or model.SerializeToString())
            (folder / f"{number}.txt").write_text(text, encoding="utf-8")


def _repeat(number: int, seed: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        result = _Child(seed, seed_models(), Path(folder)).run(number)
    print(f"{result.kind}\n{result.text}")
    return int(result.fault)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--count", type=int, default=10**9, help="end after so many models")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the number to begin with")
    parser.add_argument("--number", type=int, help="run this one and show what it does")
    parser.add_argument("--save", type=Path, help="folder for models that show a fault")
    options = parser.parse_args(arguments)
    if options.number is not None:
        return _repeat(options.number, options.seed)
    campaign = Campaign(options.seed, options.first)
    begin = time.monotonic()
    campaign.run(options.seconds, options.count)
    spent = time.monotonic() - begin
    models = sum(campaign.counts.values())
    print(f"{models} models in {spent:.0f} s, {models / spent:.0f} a second")
    for kind, number in campaign.counts.most_common():
        numbers = [n for n, _ in campaign.found.get(kind, [])[:5]]
        print(f"{number:8} {kind}" + (f", numbers {numbers}" if numbers else ""))
    if options.save and campaign.found:
        campaign.save(options.save)
    return int(bool(campaign.found))


if __name__ == "__main__":
    sys.exit(main())
