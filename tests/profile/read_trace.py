#!/usr/bin/env python3
"""What TensorBoard's profiler reads from a folder of traces: read_trace.py FOLDER prints JSON.

{"steps": ["3", ...], "operations": [{"name", "shapes", "calls", "total_us", "self_us"}, ...]}, one for each name and shapes, longest
self time first. The numbers are the plugin's own, from its tree of operations.
"""
import json
import sys
import tempfile
from pathlib import Path

from torch_tb_profiler.consts import WORKER_PATTERN
from torch_tb_profiler.profiler.data import RunProfileData


def main():
    traces = sorted(Path(sys.argv[1]).iterdir())
    if len(traces) != 1 or not WORKER_PATTERN.match(traces[0].name):
        sys.exit(f"not one trace of a name that the plugin looks for: {traces}")
    with tempfile.TemporaryDirectory() as cache:
        data = RunProfileData.parse("millrace", "0", str(traces[0]), cache)
    rows = [{"name": each.name, "shapes": each.input_shape, "calls": each.calls, "total_us": each.host_duration,
             "self_us": each.self_host_duration} for each in data.op_list_groupby_name_input]
    rows.sort(key=lambda row: -row["self_us"])
    print("json " + json.dumps({"steps": data.steps_names, "operations": rows}))


if __name__ == "__main__":
    main()
