"""The process of one part: python -m gpu_proof.one_part MODULE SETUP.json"""
import importlib
import json
import sys
from pathlib import Path

from .proof import Proof


def main(module, setup_file):
    setup = json.loads(Path(setup_file).read_text(encoding="utf-8"))
    with open(setup["rows"], "a", encoding="utf-8") as rows:
        importlib.import_module(module).run(Proof(setup, rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
