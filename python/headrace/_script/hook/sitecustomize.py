# Python imports this file at its start if `headrace doctor` has put its folder first on PYTHONPATH. The user's own sitecustomize,
# if it exists, still runs, and sys.path is as without this file. An error in this file is one line on stderr, and the script
# continues.
import importlib.machinery
import importlib.util
import os
import sys


def _watch(folder, package):
    if "headrace" not in sys.modules:
        spec = importlib.util.spec_from_file_location("headrace", os.path.join(package, "__init__.py"), submodule_search_locations=[package])
        module = importlib.util.module_from_spec(spec)
        sys.modules["headrace"] = module
        spec.loader.exec_module(module)
    from pathlib import Path

    from headrace._script.watcher import watch
    watcher = watch(Path(folder))
    if "HEADRACE_TRIAL" in os.environ:
        from headrace._script.trial import install
        install(watcher, os.environ["HEADRACE_TRIAL"])


def _hand_on():
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        raise ImportError("no other sitecustomize", name="sitecustomize")  # the error that Python expects if there is no sitecustomize
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [part for part in sys.path if os.path.abspath(part) != _here]
sys.path_importer_cache.pop(_here, None)
try:
    _folder = os.environ.get("HEADRACE_DOCTOR")
    if _folder and os.path.isdir(_folder):
        _watch(_folder, os.path.dirname(os.path.dirname(_here)))
except BaseException as _error:
    print(f"headrace doctor  can't watch, the script runs on: {type(_error).__name__}: {_error}", file=sys.stderr, flush=True)
_hand_on()
