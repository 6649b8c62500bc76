"""Runs scripts as `python train.py` would, each in a process forked from one that has imported torch: the import takes seconds.

    with forked.Server() as server:
        done = server.run(folder, "train.py", words, stdin=b"", env={})
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

    def run(self, folder, script, words, stdin, env):
        """A finished process, with bytes."""
        names = [str(folder / f".{name}") for name in ("stdin", "stdout", "stderr")]
        with open(names[0], "wb") as file:
            file.write(stdin)
        os.write(self._ask, json.dumps([str(folder), names, script, words, env]).encode() + b"\n")
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
    """Returns the script in each forked process, and None in the server once nobody can ask any more."""
    import torch  # noqa: F401
    while request := read_line(asked):
        folder, names, script, words, env = json.loads(request)
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
        return os.path.join(folder, script)
    return None


def become(script, main):
    """Runs a script as the main module, whose namespace is `main`."""
    with open(script, "rb") as file:
        code = compile(file.read(), script, "exec")
    new = {"__name__": "__main__", "__file__": script, "__builtins__": builtins, "__doc__": None, "__package__": None, "__spec__": None, "__loader__": None}
    main.clear()  # with the names of this file
    main.update(new)
    exec(code, main)


if __name__ == "__main__":
    path = serve(int(sys.argv[1]), int(sys.argv[2]))
    if path is not None:
        become(path, globals())
