"""headrace.Loader(device="cuda") in a training loop in Python: nothing is torn, and its copies cost no time. It runs only where it is asked for."""
import json
import os

LIBRARY = "python/lib/libheadrace.so"
WHAT = "headrace.Loader"
SMALL = ["--small", "--batches", 200, "--steps", 5, "--rounds", 1]


def judge(proof, found):
    torn = f"{found['torn_rows']} rows torn and {found['wrong_batches']} batches wrong of {found['batches']:,}"
    whole = not found["torn_rows"] and not found["wrong_batches"]
    proof.row(f"{WHAT}: batches on the device", torn, "ok" if whole else "failed", "" if whole else "a batch was not what its files hold", result=found)
    if not proof.on_gpu:
        proof.skipped(f"{WHAT}: exposed copy")
        return
    peer = found["best_peer"]
    exposed = found["exposed"] <= found["bar"]
    proof.row(f"{WHAT}: exposed copy",
              f"{found['exposed']:.1%} of a step of {found['ms']['resident']:.2f} ms, {found['batch_bytes'] / 1e6:.0f} MB a batch; {peer} "
              f"{found['ms'][peer] / found['ms']['resident'] - 1:.1%}",
              "ok" if exposed else "failed", "" if exposed else f"at most {found['bar']:.0%} is meant; {found['plan']}")


def run(proof):
    library = proof.folder / LIBRARY
    if not library.exists():
        proof.row(WHAT, verdict="left out", why=f"{LIBRARY} was not carried: it was not built")
        return
    out = proof.scratch / "python.json"
    places = [str(library.parent), *filter(None, [proof.environment.get("LD_LIBRARY_PATH")])]  # its libraries lie beside it
    with proof.trying(WHAT):
        proof.run([proof.python, proof.folder / "bench/python_loader/device.py", "--device", proof.device, "--json", out, *(SMALL if proof.small else [])],
                  environment={"HEADRACE_LIBRARY": str(library), "LD_LIBRARY_PATH": os.pathsep.join(places)})
        judge(proof, json.loads(out.read_text()))
