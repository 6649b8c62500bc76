"""headrace.Loader(device="cuda") in a training loop in Python: nothing is torn, and its copies cost no time. It runs only where it is asked for."""
import json
import os

from ..proof import Failure

LIBRARY = "python/lib/libheadrace.so"
WHAT = "headrace.Loader"
SMALL = ["--small", "--batches", 200, "--steps", 5, "--rounds", 1]


END = 25  # seconds that a round which has begun may take


def judge(proof, found, why):
    """`why`: how the program ended, "" where it came to its end."""
    torn = f"{found['torn_rows']} rows torn and {found['wrong_batches']} batches wrong of {found['batches']:,}"
    whole = not found["torn_rows"] and not found["wrong_batches"]
    proof.row(f"{WHAT}: batches on the device", torn, "ok" if whole else "failed", "" if whole else "a batch was not what its files hold", result=found)
    what = f"{WHAT}: exposed copy"
    if "exposed" not in found:
        proof.row(what, verdict="failed", why=why)
        return
    if why:
        proof.row(f"{WHAT}: its end", verdict="failed", why=why)
    if not proof.on_gpu:
        proof.skipped(what)
        return
    peer = found["best_peer"]
    beside = f"; {peer} {found['ms'][peer] / found['ms']['resident'] - 1:.1%}" if peer else ""
    exposed = found["exposed"] <= found["bar"]
    lost = [f"{name}: {reason}" for name, reason in found["left_out"].items()]
    proof.row(what, f"{found['exposed']:.1%} of a step of {found['ms']['resident']:.2f} ms, {found['batch_bytes'] / 1e6:.0f} MB a batch{beside}",
              "ok" if exposed else "failed", "; ".join(([] if exposed else [f"at most {found['bar']:.0%} is meant; {found['plan']}"]) + lost))


def run(proof):
    library = proof.folder / LIBRARY
    if not library.exists():
        proof.row(WHAT, verdict="left out", why=f"{LIBRARY} was not carried: it was not built")
        return
    out = proof.scratch / "python.json"
    places = [str(library.parent), *filter(None, [proof.environment.get("LD_LIBRARY_PATH")])]  # its libraries lie beside it
    with proof.trying(WHAT):
        done = proof.tried([proof.python, proof.folder / "bench/python_loader/device.py", "--device", proof.device, "--json", out,
                            "--seconds", max(proof.left() - END, 0), *(SMALL if proof.small else [])],
                           environment={"HEADRACE_LIBRARY": str(library), "LD_LIBRARY_PATH": os.pathsep.join(places)})
        why = done.why() if done.status != 0 else ""
        if not out.exists():
            raise Failure(why or f"{WHAT} wrote no figures")
        judge(proof, json.loads(out.read_text()), why)
