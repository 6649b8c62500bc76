"""Runs scripts as `python train.py` would, each in a process forked from one that has imported torch: the import takes seconds.

    with forked.Server() as server:
        done = server.run(folder, "train.py", words, stdin=b"", env={})
        done = server.run(folder, "train.py", words, stdin=b"", env={}, below=["doctor", "--run", "run"])

With `below`, `headrace doctor --run run -- python train.py` runs, and forks the script's process where it would start Python.
"""
import builtins
import json
import os
import subprocess
import sys


class Server:
    """A process with torch, from which the scripts are forked."""

    def __enter__(self):
        asked, self._ask = os.pipe()
        self._told, tell = os.pipe()
        self._process = subprocess.Popen([sys.executable, __file__, str(asked), str(tell)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                         pass_fds=(asked, tell))
        os.close(asked)
        os.close(tell)
        return self

    def __exit__(self, *_):
        os.close(self._ask)
        self._process.wait()
        os.close(self._told)

    def run(self, folder, script, words, stdin, env, below=None):
        """A finished process, with bytes. `below`: the words of headrace before --."""
        names = [str(folder / f".{name}") for name in ("stdin", "stdout", "stderr")]
        with open(names[0], "wb") as file:
            file.write(stdin)
        os.write(self._ask, json.dumps([str(folder), names, script, words, env, below]).encode() + b"\n")
        status = int(read_line(self._told))
        texts = []
        for name in names:
            with open(name, "rb") as file:
                texts.append(file.read())
            os.remove(name)
        return subprocess.CompletedProcess([sys.executable, script, *words], status, texts[1], texts[2])


def read_line(descriptor):
    """Without a buffer, whose rest a forked process would share. "" at the end."""
    line = b""
    while not line.endswith(b"\n"):
        more = os.read(descriptor, 1)
        if not more:
            return ""
        line += more
    return line.decode()


def serve(asked, tell):
    """Returns the script and `below` in each forked process, and None in the server once nobody can ask any more."""
    import torch  # noqa: F401
    while request := read_line(asked):
        folder, names, script, words, env, below = json.loads(request)
        child = os.fork()
        if child:
            os.write(tell, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            continue
        for descriptor, name in enumerate(names):
            opened = os.open(name, os.O_RDONLY if descriptor == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(opened, descriptor)
            os.close(opened)
        os.close(asked)
        os.close(tell)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(env)
        sys.argv[:] = [script, *words]
        sys.path[0] = folder
        return os.path.join(folder, script), below
    return None


def start_below(script, below):
    """Becomes the command of headrace, whose script is this process's script."""
    paths = list(sys.path)
    sys.path[1:1] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    import headrace.__main__
    import headrace.run

    def become_program(_, environment):
        os.environ.clear()
        os.environ.update(environment)
        sys.path[:] = paths
        for name in [name for name in sys.modules if name.split(".")[0] == "headrace"]:
            del sys.modules[name]  # the script's process imports its own
        live(script)

    headrace.run._become = become_program
    sys.exit(headrace.__main__.main([*below, "--", sys.executable, *sys.argv]))


def live(script):
    """The life of the script's process, with the start and the end that Python would give it."""
    import atexit
    import os
    import sys
    import threading  # local names, because `become` clears those of this module
    code = 0
    try:
        sys.path[1:1] = filter(None, os.environ["PYTHONPATH"].split(os.pathsep))
        sys.modules.pop("sitecustomize", None)
        try:
            import sitecustomize  # noqa: F401
        except ImportError as error:
            if error.name != "sitecustomize":
                raise
        become(script, globals())
    except SystemExit as end:
        code = end.code or 0
        if not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def become(script, main):
    """Runs a script as the main module, whose namespace is `main`."""
    with open(script, "rb") as file:
        code = compile(file.read(), script, "exec")
    new = {"__name__": "__main__", "__file__": script, "__builtins__": builtins, "__doc__": None, "__package__": None, "__spec__": None, "__loader__": None}
    main.clear()  # with the names of this file
    main.update(new)
    exec(code, main)


if __name__ == "__main__":
    life = serve(int(sys.argv[1]), int(sys.argv[2]))
    if life is not None and life[1] is None:
        become(life[0], globals())
    elif life is not None:
        start_below(*life)
