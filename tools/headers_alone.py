#!/usr/bin/env python3
"""Writes BUILD/headers-alone/build.ninja, which compiles each header alone, for `./dev check headers`.

    tools/headers_alone.py --build build/release

LibTorch's headers take seconds in each file, so they are compiled once, ahead of each header that includes them itself, directly or
through headers of ours. That hides no include that is missing: all includes are read before the first line of the header that could need
one, and the headers that it includes are compiled alone too (or with their own sources: BUILD/headers-proven.txt). For the same reason a
header may be compiled in the file of a header that includes it, before that header.
"""
import argparse
import hashlib
import json
import re
import shlex
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# What may be compiled ahead of a header, most costly first; each must save more than it takes.
AHEAD = (("torch/nn/module.h",), ("millrace/train/recipe/recipe.h",), ("ATen/core/Tensor.h", "nlohmann/json.hpp"), ("ATen/core/Tensor.h",),
         ("nlohmann/json.hpp",))
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">]+)[">]', re.MULTILINE)
LINE = re.compile(r'#[ \t]*include[ \t]*["<]([^">]+)[">]|#[ \t]*pragma[ \t]+once\b|//|$')
SUFFIX = "_verify_interface_header_sets"  # CMake's name for a target that compiles the headers of another


def includes_at_top(text):
    """What a header includes before its first line of another kind (`#if` is another kind)."""
    found = []
    for line in text.splitlines():
        match = LINE.match(line.strip())
        if not match:
            break
        if match.group(1):
            found.append(match.group(1))
    return found


class Includes:
    """What our headers include: those named "millrace/..." and "recipes/..."; others are not looked into."""

    def __init__(self, root):
        self.places = (root / "src", root)
        self.texts, self.known = {}, {}

    def text(self, header):
        """"" if the header is not ours."""
        if header not in self.texts:
            found = [place / header for place in self.places if header.startswith(("millrace/", "recipes/")) and (place / header).is_file()]
            self.texts[header] = found[0].read_text(encoding="utf-8") if found else ""
        return self.texts[header]

    def below(self, header):
        """All that `header` is sure to include before its first line of code, directly or not, and itself."""
        if header not in self.known:
            self.known[header] = found = {header}
            for other in includes_at_top(self.text(header)):
                found |= self.below(other)
        return self.known[header]

    def ahead_of(self, header):
        """The first of AHEAD that `header` includes; empty if there is none."""
        return next((choice for choice in AHEAD if header not in choice and self.below(header).issuperset(choice)), ())


def with_their_own(found, proven, includes):
    """`found`, and the headers of ours that these include and that nothing else proves, each with the command of one that includes it."""
    known = dict(found)
    left = dict(known)
    while left:
        header, command = left.popitem()
        for other in INCLUDE.findall(includes.text(header)):
            if other.endswith(".h") and other not in proven and other not in known and includes.text(other):
                left[other] = known[other] = command
    return known


def commands(build):
    """(header, compiler's command without source and output) of each header that CMake would compile alone."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        target, found, header = entry["file"].partition(SUFFIX + "/")
        if found:
            words = shlex.split(entry["command"])
            first = next(at for at, word in enumerate(words) if re.search(r"(?:^|/)[^/]*(?:\+\+|clang|cc)(?:-\d+)?$", word) and "ccache" not in word)
            yield header.removesuffix(".cxx"), words[first:words.index("-o")]


def without_folders(compiler):
    """A compiler's command without the folders to search: what is compiled ahead for one target also serves one that has more of them."""
    return [word for at, word in enumerate(compiler) if not word.startswith(("-I", "-isystem")) and compiler[at - 1] != "-isystem"]


def chains(found, includes):
    """The headers of `found` in lists that a file each includes in order: each header is sure to include those before it.

    As few and as cheap files as possible: Kuhn's matching of headers with headers that include them, the costly headers first. What a
    header includes stands for its cost."""
    def joins(header, other):
        return (header != other and header in includes.below(other) and other not in includes.below(header) and found[header] == found[other]
                and includes.ahead_of(header) == includes.ahead_of(other))

    following = {header: [other for other in sorted(found) if joins(header, other)] for header in found}
    before = {}  # {header: the header right before it}

    def match(header, tried):
        for other in following[header]:
            if other not in tried:
                tried.add(other)
                if other not in before or match(before[other], tried):
                    before[other] = header
                    return True
        return False

    for header in sorted(found, key=lambda header: (-len(includes.below(header)), header)):
        match(header, set())
    for last in sorted(set(found) - set(before.values())):
        chain = [last]
        while chain[0] in before:
            chain.insert(0, before[chain[0]])
        yield chain


def ninja(found, includes):
    """{file: text} of build.ninja and the sources that it names."""
    text, files = ["rule compile\n  command = $compiler -MD -MF $out.d -o $out -c $in\n  depfile = $out.d\n  deps = gcc\n  description = $about\n"], {}

    def compile_file(out, source, compiler, about, needs=""):
        quoted = shlex.join(compiler).replace("$", "$$")
        text.append(f"build {out}: compile {source}{needs}\n  compiler = {quoted}\n  about = {about}\n")

    for chain in chains(found, includes):
        header, compiler = chain[-1], found[chain[-1]]
        ahead, flags, needs = includes.ahead_of(header), [], ""
        if ahead:
            name = f"ahead-{hashlib.sha256(repr((without_folders(compiler), ahead)).encode()).hexdigest()[:12]}.h"
            if name not in files:
                files[name] = "".join(f"#include <{other}>\n" for other in ahead)
                compile_file(f"{name}.gch", name, [*compiler, "-x", "c++-header"], f"Compiling ahead {' '.join(ahead)}")
            flags, needs = ["-Winvalid-pch", "-Werror=invalid-pch", "-include", name], f" | {name}.gch"
        source = header.replace("/", "-") + ".cpp"
        files[source] = "".join(f"#include <{each}>\n" for each in chain)
        compile_file(f"{source}.o", source, [*compiler, *flags], f"Compiling alone {', '.join(chain)}", needs)
    files["build.ninja"] = "\n".join(text)
    return files


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, required=True)
    build = parser.parse_args(arguments).build
    includes = Includes(ROOT)
    found = with_their_own(commands(build), set((build / "headers-proven.txt").read_text().split()), includes)
    folder = build / "headers-alone"
    folder.mkdir(exist_ok=True)
    for name, content in ninja(found, includes).items():
        path = folder / name
        if not path.exists() or path.read_text() != content:  # a file that is not written is not compiled again
            path.write_text(content)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
