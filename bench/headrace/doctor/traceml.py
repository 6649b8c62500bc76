"""What TraceML (traceml-ai on the Python index) says of a script: unchanged, and with the lines that its README asks for."""
import os
import re
import subprocess
import sys
from pathlib import Path

STEP_LOOPS = {"neural_response": r"for which, .* in enumerate\(batches\):", "nano_gpt": r"for step in range\(STEPS\):"}  # of the others: over `loader`
MODELS = {"gan": "judge"}  # of the others: `model`
ATTACHED = ("with_lightning", "with_trainer")  # init() puts its callback into their trainers
VERDICT = re.compile(r"^\|\s*(Verdict|Why|Next): (.*?)\s*\|$", re.MULTILINE)


def with_step_lines(text, script):
    """`text` with init() and, where the loop is the script's, each step in a trace_step()."""
    text, count = re.subn(r"^import torch$", "import torch\nimport traceml_ai\ntraceml_ai.init(mode=\"auto\")", text, count=1, flags=re.MULTILINE)
    assert count == 1, f"{script} has no line `import torch`"
    if script in ATTACHED:
        return text
    loop = re.compile(rf"^( *){STEP_LOOPS.get(script, 'for .* in loader:')}$")
    lines, indent, found = [], None, False
    for line in text.splitlines():
        opens = loop.match(line)
        if indent is not None and line.strip() and len(line) - len(line.lstrip()) <= indent:
            indent = None
        lines.append(line if indent is None or not line.strip() else "    " + line)
        if opens:
            indent, found = len(opens[1]), True
            lines.append(" " * (indent + 4) + f"with traceml_ai.trace_step({MODELS.get(script, 'model')}):")
    assert found, f"{script} has no loop over its steps"
    return "\n".join(lines) + "\n"


def told(folder, environment):
    """Its verdict on the script train.py of `folder`: {"Verdict", "Why", "Next"}, or what it printed last."""
    done = subprocess.run([str(Path(sys.executable).with_name("traceml")), "run", "--mode", "summary", "train.py"], cwd=folder,
                          env={**os.environ, **environment}, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=900)
    return dict(VERDICT.findall(done.stdout)) or {"printed": done.stdout[-2000:]}
