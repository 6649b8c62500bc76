"""Peak bytes of tensors in a step of a Python program, as torch's own allocator reports them: on a GPU by its counters, on a CPU to its
profiler."""

import json
import tempfile
from pathlib import Path

import torch


def bytes_of(tensors):
    """Bytes of the tensors' distinct storages."""
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(storages.values())


def tensor_peak(step, model, optimizer, inputs):
    """Peak bytes of tensors in one step, including tensors that exist before it. Gradients are dropped first."""
    optimizer.zero_grad(set_to_none=True)
    if next(model.parameters()).is_cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        step()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated()
    there = [*model.parameters(), *model.buffers(), *inputs]
    for state in optimizer.state.values():
        there += [value for value in state.values() if torch.is_tensor(value)]
    before = bytes_of(there)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        step()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(file))
        events = json.loads(file.read_text())["traceEvents"]
    return before + max(event["args"]["Total Allocated"] for event in events if event.get("name") == "[memory]")
