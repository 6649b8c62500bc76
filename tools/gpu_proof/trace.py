"""What a Kineto trace says of a GPU: kernels, copies, waits of the host, and the part of the time in which the device did nothing."""
import json

DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
HOST_CALLS = ("cuda_runtime", "cuda_driver")
WAITS = ("Synchronize",)  # cudaStreamSynchronize, cudaDeviceSynchronize, cudaEventSynchronize


def covered(spans):
    """Length of the union of (begin, end)."""
    total, reach = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reach))
        reach = max(reach, end)
    return total


def read(path):
    """{steps, step_ms, operations, kernels, copies, waits, wait_ms, idle}, each for one step but the first; `idle` is None without a GPU."""
    with open(path, encoding="utf-8") as file:
        events = [event for event in json.load(file)["traceEvents"] if event.get("ph") == "X"]
    steps = [event for event in events if event["name"].startswith("ProfilerStep#") and event.get("cat") not in ("gpu_user_annotation",)]
    if not steps:
        raise ValueError("the trace has no steps")
    count = len(steps)
    begin, end = min(step["ts"] for step in steps), max(step["ts"] + step["dur"] for step in steps)
    device = [event for event in events if event.get("cat") in DEVICE_WORK]
    waits = [event for event in events if event.get("cat") in HOST_CALLS and any(word in event["name"] for word in WAITS)]
    spans = [(event["ts"], event["ts"] + event["dur"]) for event in device]
    if spans:
        end = max(end, max(span[1] for span in spans))
    return {"steps": count, "step_ms": (end - begin) / 1e3 / count,
            "operations": sum(event.get("cat") == "cpu_op" for event in events) / count,
            "kernels": sum(event["cat"] == "kernel" for event in device) / count,
            "copies": sum(event["cat"] != "kernel" for event in device) / count,
            "waits": len(waits) / count, "wait_ms": sum(event["dur"] for event in waits) / 1e3 / count,
            "idle": 1 - covered(spans) / (end - begin) if spans else None}
