"""Makes the texts about a script at its end."""
from __future__ import annotations

import json
from typing import Any

WORDS = {"data_wait": "waiting for data", "copy": "copying the batch", "prepare": "preparing the batch", "optimizer": "optimiser", "log": "logging",
         "snapshot": "saving", "validate": "validation", "profile": "looking", "rest": "the rest of the loop", "reduction": "other ranks"}
NO_STEPS = "steps can't be told apart: no batch came from a DataLoader, and no update of a torch.optim optimizer was seen (a compiled one is not)"
SHOWN = 0.005  # share of the loop; smaller accounts are left out


def diagnose(evidence: dict[str, Any], hints: dict[str, str] | None = None) -> dict[str, Any]:
    """{"findings", "accounts", "verdict"} of the library's rules. `hints`: warnings by the name of the argument that a remedy
    suggests; "validation." precedes the name for the loader of a validation. A finding with such warnings has them as "heed"."""
    from headrace import _library
    found = _library.text(_library.library().diagnose(json.dumps(evidence).encode()))
    for number, finding in enumerate(found["findings"]):
        arguments = {name.removeprefix("dataloader_") for name, value in finding.get("set", {}).items() if value}
        prefix = "validation." if finding["id"] == "validation_input" else ""
        for hint in (hint for name, hint in (hints or {}).items() if name.removeprefix(prefix) in arguments and name.startswith(prefix)):
            finding["text"] += f"; {hint}"
            finding.setdefault("heed", []).append(hint)
            if number == 0:
                first, more, others = found["verdict"].partition(" There ")
                found["verdict"] = f"{first} {hint[0].upper()}{hint[1:]}.{more}{others}"
    return found


def _speed(times: dict[str, Any]) -> str:
    ms = times["step_ms_p50"]
    return f"{times['steps']:,} steps of " + (f"{ms:.3g} ms" if ms < 999.5 else f"{ms / 1e3:.3g} s")


def _change(finding: dict[str, Any]) -> list[str]:
    lines = []
    where = f"   ({finding['where']})" if finding.get("where") else ""
    for old, new in finding.get("replace", {}).items():
        lines += [f"      change   {old}{where}", f"      to       {new}"]
    if not lines and finding.get("change"):
        lines.append(f"      write    {finding['change']}{where}")
    return lines + [f"      and      {hint}" for hint in finding.get("heed", [])]


def text(name: str, evidence: dict[str, Any], verdict: dict[str, Any]) -> str:
    """Several lines, without an empty one at the end."""
    times = evidence["times"]
    startup = times["seconds"].get("startup", 0.0)
    loop = max(times["wall"] - startup, 1e-9)
    lines = [f"headrace doctor  {name}: {_speed(times)} in {loop:.1f} s, after {startup:.1f} s until the first step was done"]
    if verdict.get("verdict"):
        lines.append(f"  {verdict['verdict']}")
    accounts = sorted(((seconds, phase) for phase, seconds in times["seconds"].items() if phase != "startup"), reverse=True)
    for seconds, phase in accounts:
        if seconds / loop >= SHOWN:
            lines.append(f"  {100 * seconds / loop:4.0f} %  {seconds:8.1f} s  {WORDS.get(phase, phase)}")
    findings = verdict.get("findings", [])
    for number, finding in enumerate(findings, 1):
        said = f"{finding['id']}: see above" if number == 1 and verdict.get("verdict") else finding["text"]
        lines += [f"  {number}.  {said}", *_change(finding)]
    if sum("gain" in finding for finding in findings) > 1:
        lines.append("  Each gain is that of one change alone; they do not add up. Make the first change, then ask again.")
    return "\n".join(lines)
