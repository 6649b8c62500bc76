"""What the result file says of the machine: card, driver, cores. Without a GPU: of the processor alone."""
import datetime
import os
import shutil

from . import processes

FIELDS = ("name", "driver_version", "memory.total", "power.limit", "clocks.max.sm")


def cards():
    """The GPUs as nvidia-smi lists them, [] where there is no such program or no card."""
    if not shutil.which("nvidia-smi"):
        return []
    done = processes.run(["nvidia-smi", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader"], 20)
    lines = [line for line in done.out.splitlines() if line.count(",") == len(FIELDS) - 1] if done.status == 0 else []
    return [dict(zip(FIELDS, (value.strip() for value in line.split(",")))) for line in lines]


def processor():
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return "unknown"


def header(device, facts, manifest, isolation):
    """`facts`: programs.torch_facts(); `manifest`: programs.manifest_of(); `isolation`: what a rehearsal hides, "" else."""
    found = cards() if device != "cpu" else []
    card = found[0] if found else {}
    return {"day": datetime.date.today().isoformat(), "device": device, "card": card.get("name") or facts["card"], "driver": card.get("driver_version", ""),
            "card_memory": card.get("memory.total", ""), "cpu": processor(), "cores": len(os.sched_getaffinity(0)), "python": facts["python"],
            "torch": facts["torch"], "millrace": manifest["millrace"], "commit": manifest["commit"], "isolation": isolation}


def title(header_):
    """One line: what ran where and when."""
    if header_["device"] == "cpu":
        where = f"{header_['cpu']}, {header_['cores']} cores, without a GPU"
    else:
        where = f"{header_['card'] or header_['device']}, driver {header_['driver'] or 'unknown'}, {header_['cores']} cores"
    return f"{where}, torch {header_['torch']}, {header_['day']}, Millrace {header_['millrace']} ({header_['commit']})"
