"""Runs the program `millrace predict` on arrays. Inputs and outputs are passed as files; the output files are mapped into memory."""
from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Mapping

from headrace import _safetensors
from headrace.errors import KindError, MissingError, UsageError

REMEDY = "where memory ran out, give a smaller batch_size; `millrace predict` by hand prints all"


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _written(folder: Path, inputs: Any, where: str) -> Path:
    """Writes the inputs into a file and returns it. A single array has no name: the program takes it for the recipe's only input."""
    if isinstance(inputs, Mapping):
        if not inputs:
            raise UsageError("there are no inputs", where, 'give {"name": array}; `millrace predict RECIPE --help` names them')
        _safetensors.save(folder / "input.safetensors", inputs, where)
        return folder / "input.safetensors"
    import numpy
    if _is_tensor(inputs):
        inputs = inputs.detach().cpu()
        array = (inputs.float() if str(inputs.dtype) == "torch.bfloat16" else inputs).numpy()  # NumPy has no bfloat16; float32 holds all of its numbers
    else:
        try:
            array = numpy.asarray(inputs)
        except ValueError as error:  # rows of several lengths
            raise KindError(f"the input is no array: {error}", where, "give rows of one shape") from None
    if array.dtype.kind not in "biuf":
        raise KindError(f"the input is a {type(inputs).__name__}, no array of numbers", where, 'give an array of rows, or {"name": array}')
    numpy.save(folder / "input.npy", array)
    return folder / "input.npy"


def predict(program: str, source: Path, inputs: Any, flags: list[str], failure: Any, where: str) -> dict[str, Any]:
    """Outputs by name: torch tensors if an input was a tensor, else NumPy arrays. `failure` makes an exception from the program's
    output."""
    if not source.exists():
        raise MissingError(f"there is no {source}", where, "run.weights() says which snapshots there are; a run that was stopped has one")
    values = inputs.values() if isinstance(inputs, Mapping) else [inputs]
    to = "torch" if any(_is_tensor(value) for value in values) else "numpy"
    with tempfile.TemporaryDirectory(prefix="headrace-") as name:
        output = Path(name) / "output.safetensors"
        words = [program, "predict", "--from", str(source), "--input", str(_written(Path(name), inputs, where)), "--output", str(output), *flags]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
        if done.returncode < 0:  # without a word of its own
            number = -done.returncode
            raise failure(f"the program was ended by {signal.Signals(number).name if number in signal.valid_signals() else f'signal {number}'}")
        if done.returncode != 0:
            raise failure(done.stderr or done.stdout)
        return _safetensors.load(output, to)  # the mapping keeps the contents of the file, also after the file is removed
