"""What the tests of both wheels share."""
import subprocess
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
failures = []


def expect(true, what):
    print(("ok      " if true else "FAILED  ") + what, flush=True)
    if not true:
        failures.append(what)


def pack(build, name, out):
    subprocess.run([ROOT / ".deps/venv/bin/python", ROOT / "tools/wheel.py", name, "--build", build, "--out", out], check=True)
    return next(out.glob("*.whl"))


def unpack(wheel, site):
    """As an installer does: data beside, programs executable as the archive says."""
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            target = Path(archive.extract(entry, site))
            if (entry.external_attr >> 16) & 0o111:
                target.chmod(0o755)
