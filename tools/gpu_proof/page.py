"""docs/gpu.md: what is proved on which card on which day. The page is written by this file and by results, never by hand."""
import json
import re

from . import machine, report
from .errors import ProofError
from .parts import ALL
from .runner import counts_text

NOT_YET = "not yet"
HEAD = """# What is proved on a GPU

`tools/gpu-proof --page RESULT.json...` writes this page from results of `tools/gpu-proof` on a GPU; a test holds it against the script. A table
that says "not yet" has been measured on no GPU, and nothing is claimed.

How to measure on yours: `./dev build --all` (for its tests), `./dev wheel` and `tools/gpu-proof --carry` make `build/gpu-proof`, at most 55 MB. Bring that folder to a machine with a
GPU and a Python that has torch 2.11 and say `python3 gpu-proof/tools/gpu-proof`: nine minutes, no network, no compiler. `tools/gpu-proof
--rehearse` runs every part in small without a GPU first. Results of the same card and day take the place of earlier ones.
"""
ABOUT = {
    "loads": "The programs' libraries are all there, Python torch and `millrace doctor` see the same card.",
    "ceilings": "What the card gives a program that does one thing: products, copies, launches. Floors and ceilings of all later figures.",
    "tests": "The tests under the label `gpu`, on this card.",
    "compiling": "How long `torch.compile` takes before its first step, beside other parts, with the number of cores it may use.",
    "parity": "The five recipes beside CPU references that were made beforehand: losses of 20 steps, and the gradients of the first step as what "
              "one step of plain SGD moves. Relative distance and cosine.",
    "life": "Training, kill and resume, recompute, offload, out of memory, `doctor --verify`: what the README promises, on this card.",
    "graph": "The training step recorded once and replayed as a CUDA graph, beside the same step launched kernel by kernel (`--off step_graph`): time, "
             "losses, and the saved state of whole runs.",
    "steps": "A training step beside Python torch in the same call, in turns: milliseconds, and the ratio to the fastest way with its 95 % interval.",
    "feed": "Readers against the device: waiting for data, copies, how busy the GPU is; the pause of a snapshot.",
    "profile": "Three steps as Kineto records them: kernels, copies, waits, and the part of the time in which the GPU does nothing.",
    "python": "`headrace.Loader(device=\"cuda\")` in a training loop in Python: torn batches, and what its copies cost a step. Only where it is asked for, "
              "by `--parts python`.",
    "sanitizer": "`compute-sanitizer`, memcheck and racecheck, over the kernels of ours in their tests. Only where it is asked for, by `--parts sanitizer`: "
                 "it takes longer than a call of nine minutes has left.",
}
SECTION = re.compile(r"^## ", re.MULTILINE)
RESULT = re.compile(r"^### ", re.MULTILINE)


def key_of(title):
    """Results of one card, driver and day replace each other; torch and Millrace may differ."""
    return title.partition(", torch ")[0] + re.search(r", (\d{4}-\d\d-\d\d),", title).group(1)


def read_page(text):
    """{title of a section: {title of a result: its text}}"""
    sections = {}
    for section in SECTION.split(text)[1:]:
        title, _, rest = section.partition("\n")
        sections[title] = {}
        for entry in RESULT.split(rest)[1:]:
            name, _, body = entry.partition("\n")
            sections[title][name] = body.strip()
    return sections


def render(sections):
    lines = [HEAD]
    for part in ALL:
        lines += [f"## {part.title}", ABOUT[part.name], ""]
        entries = sections.get(part.title, {})
        for name, body in entries.items():
            lines += [f"### {name}", body, ""]
        if not entries:
            lines += [NOT_YET, ""]
    return "\n".join(lines).rstrip() + "\n"


def body_of(result):
    rows = [report.line_of(row) for row in result["rows"]]
    return "\n".join([f"{counts_text(result['rows'])}; {result['seconds']:.0f} s", "", "| what | figure | |", "|---|---|---|", *rows])


def with_result(sections, result):
    """The newest result of a section first."""
    title = machine.title(result)
    for part in result["parts"]:
        old = {name: body for name, body in sections.get(part["title"], {}).items() if key_of(name) != key_of(title)}
        sections[part["title"]] = {title: body_of(part), **old}
    return sections


def read_result(file):
    try:
        result = json.loads(file.read_text(encoding="utf-8"))
        device, parts = result["device"], result["parts"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ProofError(f"that is no result of gpu-proof: {error}", file, "give a result.json that it wrote") from error
    if device == "cpu" or not result.get("card"):
        raise ProofError("that result is of a rehearsal, and a rehearsal proves nothing on a GPU", file, "give a result of a GPU")
    if not parts:
        raise ProofError("that result has no parts: the proof was stopped in its first", file, "run gpu-proof again")
    return result


def write(page, files, say):
    """Puts results into the page; 0."""
    sections = read_page(page.read_text(encoding="utf-8")) if page.exists() else {}
    for file in files:
        sections = with_result(sections, read_result(file))
    page.write_text(render(sections), encoding="utf-8")
    say(f"wrote {page}")
    return 0
