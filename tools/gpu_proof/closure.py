"""What some distributions of a Python need: python closure.py NAME... prints JSON, for rehearsal.py.

`paths`: the top files and folders of theirs in site-packages; `missing`: names that are not installed; `installed`: how many are.
"""
import importlib.metadata as metadata
import json
import os
import re
import sys
from pathlib import Path


def needed_by(distribution):
    for line in distribution.requires or []:
        name, _, marker = line.partition(";")
        if "extra" not in marker and "win32" not in marker:
            yield re.split(r"[\s<>=!~\[(]", name.strip())[0]


def tops(distribution):
    """Absolute paths; a distribution of a folder that others share gives the folder once."""
    for file in distribution.files or []:
        first = file.parts[0]
        if first not in ("..", "bin", "__pycache__"):
            yield str(Path(distribution.locate_file("")).resolve() / first)


def closure(names):
    paths, missing, seen, waiting = set(), [], set(), list(names)
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in seen:
            continue
        seen.add(name)
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            missing.append(name)
            continue
        paths.update(tops(distribution))
        waiting += needed_by(distribution)
    return sorted(path for path in paths if os.path.exists(path)), sorted(missing)


def main(names):
    installed = {distribution.metadata["Name"] for distribution in metadata.distributions()}
    # torch asks for CUDA's libraries by way of a distribution of extras, which need not be there where they are.
    paths, missing = closure(names + sorted(name for name in installed if name.startswith("nvidia")))
    custom = getattr(sys.modules.get("sitecustomize"), "__file__", None)
    print(json.dumps({"paths": paths, "missing": missing, "installed": len(installed),
                      "base": getattr(sys, "_base_executable", sys.executable), "library_path": os.environ.get("LD_LIBRARY_PATH", ""),
                      "custom": custom if custom and custom.startswith(tuple(filter(None, os.environ.get("PYTHONPATH", "").split(":")))) else ""}))


if __name__ == "__main__":
    main(sys.argv[1:])
