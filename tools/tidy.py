#!/usr/bin/env python3
"""House rules that a compiler can't check. Prints one line per violation, which says what to do; exit status 1 if there is one.

    tools/tidy.py [--root DIR]

The floors stand in ARCHITECTURE.md's table: that table is read, compared with the tree and with CMakeLists.txt, and enforced.
"""
import argparse
import re
import subprocess
import sys
from pathlib import Path

from cpp_shape import end_of_definition, large_classes, line_of, long_functions, without_comments_and_strings

MAX_FUNCTION_LINES = 70
MAX_FILE_KILOBYTES = 256
MAX_FILE_LINES = 500
MAX_ARCHITECTURE_LINES = 150
MAX_FOLDER_FILES, MAX_FOLDER_LINES = 45, 5000  # of sources without tests
LARGE_FOLDERS = re.compile(r"src/millrace/kernels(?:/|$)")  # a file for each operation
MAX_PUBLIC_FUNCTIONS = 20  # of a class in train/; constructors, destructors and operators do not count
SOURCE = (".h", ".cpp", ".inl", ".cu", ".cuh")
CODE = SOURCE + (".py", ".sh", ".cmake", ".in")
TEXT = CODE + (".md", ".txt", ".json", ".toml", ".yaml", ".yml", "")
RECORD_SECTIONS = ("## Context", "## Decision", "## What we gave up", "## How to check it still holds")
# Split into pieces, so that this file does not break its own rules.
OPEN_ENDS = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")
MACHINE_PATH = re.compile(r"(?<![\w.$}~)\]/-])/(?:ho" + r"me|ro" + r"ot|wo" + r"rk|tm" + r"p|mn" + r"t|Us" + r"ers)/(?=\w)")
SCRATCH = "/tm" + "p/"
REGISTRY_HOST = re.compile(r"(?:py" + r"pi\.org|pythonho" + r"sted\.org|download\.py" + r"torch\.org|deb\.deb" + r"ian\.org|"
                           r"security\.deb" + r"ian\.org|index\.crat" + r"es\.io|registry\.np" + r"mjs\.org)")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">]', re.MULTILINE)
FLOOR_ROW = re.compile(r"^\|\s*(\d+)\s*\|\s*`(?:src/millrace/)?([\w/<>]+)`")
KIND_OF_DEVICE = re.compile(r"\bis_cuda\b")
DESTRUCTOR = re.compile(r"~\w+\(\)\s*(?:noexcept\s*)?(?:override\s*)?\{")
# Code that launches a kernel, or may: a call of ATen, a method that writes into a tensor. Settings of the host launch nothing.
LAUNCH = re.compile(r"\bat::(?!autocast|set_num_threads|removeCallback|sequence_number|NoGradGuard|AutoGradMode)\w+\(|"
                    r"[.>](?:copy_|zero_|fill_|add_|mul_|set_state|settle|item|synchronize)\b")
# Code that makes a device or its host wait: numbers of the host copied into a tensor, a tensor's numbers read by the host.
WAITS = re.compile(r"\b(?:at|torch)::tensor\(|\.item(?:<[^>]*>)?\(\)|\.cpu\(\)")
# Folders in which a step may compute, and the files of recipes in them that take no part in a step.
STEP_FOLDERS = re.compile(r"src/millrace/(?:nn|kernels)/|recipes/")
NO_STEP = re.compile(r"recipes/\w+/(?:\w+/)?(?:\w*(?:command|commands|file|files|weights|pictures|convert|sky_\w+|entry)|trained|rank|generate)"
                     r"\.cpp$|_test\.cpp$|/test_\w+\.h$")
EXCUSE = re.compile(r"// host: \w")
EXCUSED_LINES = 5  # with the comment's own
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
UNNAMED = re.compile(r"^namespace \{$.*?^\}  // namespace$", re.MULTILINE | re.DOTALL)
CONSTANT = re.compile(r"^(?:static |inline )*const\w*\b[^=;({]*?\b(k[A-Z]\w*)\b", re.MULTILINE)
RESERVED = re.compile(r"^[ \t]*(?:#[ \t]*define|struct|class|enum(?: class)?|namespace|using)[ \t]+(_[A-Z]\w*|\w*__\w*)", re.MULTILINE)


class Tree:
    """The files of a checkout, read once, and the violations found in them."""

    def __init__(self, root):
        self.root = root
        self.files = {}
        self.kilobytes = {}
        for name in sorted(list_files(root)):
            path = root / name
            if path.is_file():
                self.kilobytes[name] = path.stat().st_size // 1000
            if path.is_file() and not path.is_symlink() and (path.suffix in TEXT or name.endswith(".in")):
                try:
                    self.files[name] = path.read_text(encoding="utf-8")
                except UnicodeDecodeError:
                    continue
        self.found = []
        listing = enumerate(self.files.get(PUBLIC_HEADERS, "").splitlines(), 1)
        self.public = {line: number for number, line in listing if line.startswith("millrace/")}

    def say(self, name, line, message):
        self.found.append((name, line, message))

    def sources(self, suffixes=SOURCE):
        return ((name, text) for name, text in self.files.items() if name.endswith(suffixes))


def list_files(root):
    """Tracked and new files; without git every file outside hidden and build folders."""
    if (root / ".git").exists():
        listing = subprocess.run(["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
                                 check=True, capture_output=True, text=True).stdout
        return [name for name in listing.split("\0") if name]
    names = (path.relative_to(root) for path in root.rglob("*"))
    return [str(name) for name in names if not any(part.startswith(".") or part == "build" for part in name.parts)]


# -- floors -----------------------------------------------------------------------------------------------------------------

def floors_of(tree):
    """{folder: floor} from ARCHITECTURE.md."""
    floors = {}
    for number, line in enumerate(tree.files.get("ARCHITECTURE.md", "").splitlines(), 1):
        row = FLOOR_ROW.match(line)
        if row:
            folder = row.group(2)
            if folder in floors:
                tree.say("ARCHITECTURE.md", number, f"folder {folder} stands twice in the floors table; keep one row")
            floors[folder] = int(row.group(1))
    return floors


def folder_of(path, floors):
    """The folder of the floors table that holds `path`: "train/step" for "millrace/train/step/detail/x.h"; None if no folder does."""
    parts = path.split("/")[1:-1]
    if not path.startswith("millrace/") or not parts:
        return None
    nested = "/".join(parts[:2])
    return nested if nested in floors else parts[0]


def check_floors_table(tree, floors):
    prefix = "src/millrace/"
    there = {folder_of(name[len("src/"):], floors) for name in tree.files if name.startswith(prefix) and name.count("/") > 2}
    for folder in sorted(there - set(floors)):
        tree.say("ARCHITECTURE.md", 1, f"folder src/millrace/{folder} is not in the floors table; add its row")
    for folder in sorted(set(floors) - there):
        tree.say("ARCHITECTURE.md", 1, f"the floors table names src/millrace/{folder}, which does not exist; remove the row")
    cmake = tree.files.get("CMakeLists.txt", "")
    built = set(re.findall(r"\bmr_folder\(([\w/]+)", cmake))
    for folder in sorted(there - built):
        tree.say("CMakeLists.txt", 1, f"src/millrace/{folder} is not built; add mr_folder({folder} ...)")
    for match in re.finditer(r"\bmr_folder\(([\w/]+)\s+DEPENDS\s+((?:[a-z_/]+\s*)+)", cmake):
        folder, line = match.group(1), line_of(cmake, match.start())
        for other in match.group(2).split():
            if other in floors and folder in floors and floors[other] >= floors[folder]:
                tree.say("CMakeLists.txt", line, f"{folder} (floor {floors[folder]}) may not link {other} (floor {floors[other]}); "
                                                 "depend on lower floors only - ARCHITECTURE.md, Floors")


def links_of(tree):
    """{folder: all folders that it links, directly or through others} from CMakeLists.txt."""
    direct = {match.group(1): match.group(2).split() for match in
              re.finditer(r"\bmr_folder\(([\w/]+)(?:\s+DEPENDS\s+((?:[a-z0-9_/]+\s*)+))?()", tree.files.get("CMakeLists.txt", "")) if match.group(2)}
    links = {}

    def all_of(folder):
        if folder not in links:
            links[folder] = set(direct.get(folder, ()))
            for other in direct.get(folder, ()):
                links[folder] |= all_of(other)
        return links[folder]

    for folder in direct:
        all_of(folder)
    return links


def check_includes(tree, floors):
    links = links_of(tree)
    headers = {name.removeprefix("src/") for name in tree.files if name.startswith(("src/", "recipes/"))}
    for name, text in tree.sources():
        parts = name.split("/")
        folder = folder_of(name[len("src/"):], floors) if name.startswith("src/millrace/") and len(parts) > 3 else None
        own = name.removeprefix("src/")[:-4] + ".h"
        first = INCLUDE.search(text)
        if name.endswith(".cpp") and own in headers and (first is None or first.group(2) != own):
            tree.say(name, line_of(text, first.start()) if first else 1,
                     f"include {own} first: so it is known to compile alone (cmake/MillraceFolder.cmake)")
        for match in INCLUDE.finditer(text):
            line, target = line_of(text, match.start()), match.group(2)
            if target.startswith(("millrace/", "recipes/")):
                if match.group(1) == "<":
                    tree.say(name, line, f"write #include \"{target}\" with quotes: it is ours")
                if target not in headers:
                    tree.say(name, line, f"{target} does not exist" + " below src/" * target.startswith("millrace/"))
                if name.startswith("src/millrace/") and target.startswith("recipes/") and name != PROGRAM:
                    tree.say(name, line, f"the runtime knows no recipe; {PROGRAM} alone hands them over")
                if name.startswith("recipes/"):
                    check_recipe_include(tree, name, line, target)
                if folder is not None:
                    check_own_include(tree, floors, name, line, folder, target)
                    other = folder_of(target, floors)
                    if other in floors and floors[other] < floors.get(folder, 0) and other not in links.get(folder, ()):
                        tree.say(name, line, f"{folder} includes {other}, and CMakeLists.txt does not link it: name {other} in "
                                             f"mr_folder({folder} DEPENDS ...)")
            if target.startswith("tests/") and folder is not None and not FOR_TESTS.search(name):
                tree.say(name, line, f"{target} is for tests only; what is installed may not need it")
            check_foreign_include(tree, name, line, folder, target)


def check_own_include(tree, floors, name, line, folder, target):
    parts = target.split("/")
    other = folder_of(target, floors)
    if target in FACES:
        tree.say(name, line, f"{target} stands above all floors, for programs outside this tree; include what you use")
    if len(parts) == 2 or other not in floors or folder not in floors:
        return
    if other != folder and floors[other] >= floors[folder]:
        where = "sideways" if floors[other] == floors[folder] else "up"
        tree.say(name, line, f"{folder} (floor {floors[folder]}) may not include {other} (floor {floors[other]}): that is {where}; "
                             "take what you need as a value or a function and let a higher floor pass it - ARCHITECTURE.md, Floors")
    if other != folder and "detail" in parts:
        tree.say(name, line, f"{target} is internal to {other}; include a header outside detail/")


def check_recipe_include(tree, name, line, target):
    """A recipe may include its own folder, recipes/common and the runtime's public headers; its tests may include everything."""
    if target.startswith("millrace/") and not FOR_TESTS.search(name) and target not in tree.public:
        tree.say(name, line, f"{target} is internal, and a recipe has what an author outside this tree has: name the header in "
                             f"{PUBLIC_HEADERS}, with a contract, or offer the part that is needed in one that is there")
    own, other = name.split("/")[1:-1], target.split("/")[1:-1]
    if target.startswith("recipes/") and own and other and other[0] not in (own[0], COMMON):
        tree.say(name, line, f"recipe {own[0]} may not include recipe {other[0]}; move what both need to recipes/{COMMON}")


FOR_TESTS = re.compile(r"_test\.cpp$|/detail/test_\w+\.h$")
COMMON = "common"  # the folder of recipes/ that all recipes may use
PROGRAM = "src/millrace/cli/main.cpp"
PUBLIC_HEADERS = "cmake/public_headers.txt"
FACES = ("millrace/recipe.h", "millrace/train.h")  # headers for programs outside this tree


def check_public_headers(tree):
    """Installed headers include only installed headers; so do the examples that users read as models of their own code."""
    listing = tree.files.get(PUBLIC_HEADERS)
    if listing is None:
        return
    public = tree.public
    for target, number in public.items():
        if "src/" + target not in tree.files:
            tree.say(PUBLIC_HEADERS, number, f"{target} does not exist below src/; remove the line")
    for name, text in tree.sources(SOURCE + (".in",)):
        own = name.removeprefix("src/")
        if own not in public and not name.startswith(("examples/", "src/millrace/cli/templates/")):
            continue
        for match in INCLUDE.finditer(text):
            target = match.group(2)
            if target.startswith("millrace/") and target not in public:
                tree.say(name, line_of(text, match.start()), f"{target} is internal, and users get this file: declare the class "
                                                             f"instead, or name the header in {PUBLIC_HEADERS}")


def check_recipe_names(tree):
    """The runtime names no recipe: facts that it needs about a recipe are in the recipe's Entry."""
    recipes = sorted({name.split("/")[1] for name in tree.files if name.startswith("recipes/") and name.count("/") > 1} - {COMMON})
    if not recipes:
        return
    named = re.compile(r"\b(?:" + "|".join(recipes) + r")\b")
    for name, text in tree.sources():
        if not name.startswith("src/millrace/") or name.endswith("_test.cpp"):
            continue
        for match in named.finditer(COMMENT.sub(lambda comment: re.sub(r"[^\n]", " ", comment.group()), text)):
            tree.say(name, line_of(text, match.start()), f"\"{match.group()}\": the runtime knows no recipe; let Entry say it "
                                                         "(train/recipe/entry.h)")


def check_foreign_include(tree, name, line, folder, target):
    if target in ("torch/torch.h", "torch/all.h", "torch/extension.h"):
        tree.say(name, line, f"<{target}> costs 10-20 s and 1.2 GB a file; include <ATen/ops/NAME.h> for each operation, or <torch/nn/module.h>")
    elif target in ("ATen/ATen.h", "ATen/Functions.h", "ATen/NativeFunctions.h"):
        tree.say(name, line, f"<{target}> brings every operation; include <ATen/ops/NAME.h> for each one used")
    elif name.endswith(".h") and (target.startswith("torch/") or target.startswith("ATen/ops/")):
        if folder != "nn" and not name.startswith("recipes/") and name.removeprefix("src/") not in FACES and not target.startswith("torch/headeronly/"):
            tree.say(name, line, f"<{target}> is heavy for a header; include <ATen/core/Tensor.h> or declare the class, and move "
                                 "the code that needs it into the .cpp")
    if re.match(r"(fmt|spdlog)/", target) and not re.match(r"src/millrace/base/[^/]+\.cpp$", name):
        tree.say(name, line, f"<{target}>: LibTorch's include folder shadows it with another version; use millrace/base/format.h")


# -- size -------------------------------------------------------------------------------------------------------------------

def check_sizes(tree):
    for name, text in tree.sources(CODE):
        lines = text.count("\n")
        if lines > MAX_FILE_LINES:
            tree.say(name, lines, f"{lines} lines; split the file by idea, {MAX_FILE_LINES} are the most")
    for name, text in tree.sources():
        for line, lines in long_functions(text, MAX_FUNCTION_LINES):
            tree.say(name, line, f"a function of {lines} lines; split it, {MAX_FUNCTION_LINES} are the most")
    check_folders(tree)
    for name, text in tree.sources((".h",)):
        for line, owner, count in large_classes(text, MAX_PUBLIC_FUNCTIONS) if name.startswith("src/millrace/train/") else ():
            tree.say(name, line, f"{owner} has {count} public functions; {MAX_PUBLIC_FUNCTIONS} are the most: give what is not its own "
                                 "to a class of its own or to free functions")
    for name, kilobytes in tree.kilobytes.items():
        if kilobytes > MAX_FILE_KILOBYTES:
            tree.say(name, 1, f"{kilobytes} kB; data, wheels and pictures do not belong into the tree, fetch or generate them")
    lines = tree.files.get("ARCHITECTURE.md", "").count("\n")
    if lines > MAX_ARCHITECTURE_LINES:
        tree.say("ARCHITECTURE.md", lines, f"{lines} lines; {MAX_ARCHITECTURE_LINES} are the most, move detail to a decision record")


def check_folders(tree):
    """A folder of src/ or recipes/ has a limited number of files and lines."""
    folders = {}
    for name, text in tree.sources():
        folder = name.rpartition("/")[0]
        if name.startswith(("src/", "recipes/")) and not FOR_TESTS.search(name) and not LARGE_FOLDERS.match(folder):
            folders.setdefault(folder, []).append(text.count("\n"))
    for folder, lines in folders.items():
        if len(lines) > MAX_FOLDER_FILES or sum(lines) > MAX_FOLDER_LINES:
            tree.say(folder, 1, f"{len(lines)} sources of {sum(lines)} lines; split the folder by idea, {MAX_FOLDER_FILES} sources and "
                                f"{MAX_FOLDER_LINES} lines without tests are the most")


# -- text -------------------------------------------------------------------------------------------------------------------

def check_text(tree):
    for name, text in tree.files.items():
        for pattern, message in (
                (OPEN_ENDS, "finish it or write an issue; no open ends in the tree"),
                (MACHINE_PATH, "a path of one machine; take it from an argument, the environment or the test's own folder"),
                (REGISTRY_HOST, "a registry's host name; let pip or apt use what the machine is set up with")):
            for match in pattern.finditer(text):
                if match.group() == SCRATCH and re.search(r"_test\.(?:cpp|py)$", name):
                    continue  # a value in a test, which writes no such path
                tree.say(name, line_of(text, match.start()), f"\"{match.group().strip()}\": {message}")


def check_names(tree):
    for name, text in tree.sources():
        for match in RESERVED.finditer(text):
            tree.say(name, line_of(text, match.start(1)), f"{match.group(1)} is a name of the compiler's (C++ [lex.name]); choose another")


def check_constants(tree):
    """Sources of a folder are compiled together: one of its constants may hide another one without a word."""
    owners = {}
    for name, text in tree.sources((".cpp",)):
        if name.startswith(("src/", "recipes/")):
            folder = "/".join(name.split("/")[:2]) if name.startswith("recipes/") else name.rpartition("/")[0].removesuffix("/detail")
            for block in UNNAMED.finditer(text):
                for match in CONSTANT.finditer(block.group()):
                    owner = owners.setdefault((folder, FOR_TESTS.search(name) is not None, match.group(1)), name)
                    if owner != name:
                        tree.say(name, line_of(text, block.start() + match.start(1)),
                                 f"{match.group(1)} is a constant of {owner} too, and the two are compiled together; choose another name")


def check_waits(tree):
    for name, text in tree.sources():
        if not STEP_FOLDERS.match(name) or NO_STEP.search(name):
            continue
        lines = text.splitlines()
        found = {line_of(text, match.start()): match.group() for match in WAITS.finditer(without_comments_and_strings(text))}
        for line, what in found.items():
            if not any(EXCUSE.search(near) for near in lines[max(line - EXCUSED_LINES, 0):line]):
                tree.say(name, line, f"{what}: a GPU is waited for, in each step; make it where it is used (arange, fill_), keep it, or say "
                                     "there why not: // host: ...")


def check_guards(tree):
    for name, text in tree.sources((".h", ".cuh")):
        lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("//")]
        if not lines or lines[0].strip() != "#pragma once":
            tree.say(name, 1, "a header begins with a comment that states what it is, then #pragma once")
        elif not text.startswith("//"):
            tree.say(name, 1, "a header begins with a comment that states its contract")


# -- devices ----------------------------------------------------------------------------------------------------------------

def check_devices(tree):
    for name, text in tree.sources():
        if not name.startswith(("src/", "recipes/")) or name.startswith("src/millrace/device/") or re.search(r"_test\.(?:cpp|cu)$", name):
            continue
        code = without_comments_and_strings(text)
        for match in KIND_OF_DEVICE.finditer(code):
            tree.say(name, line_of(code, match.start()), f"\"{match.group().strip()}\": device/ alone knows kinds of GPU; ask "
                     "device::nature_of for the fact that decides, or is_cpu()")
        for match in DESTRUCTOR.finditer(code):
            body = code[match.end():end_of_definition(code, match.end() - 1)]
            launch = LAUNCH.search(body)
            if launch and "catch" not in body:
                tree.say(name, line_of(code, match.start()), f"a destructor that calls {launch.group().strip('.>(')}: on a GPU that "
                         "fails after another failure, and ends the program; use finally (base/finally.h), or catch it there")


# -- house papers -----------------------------------------------------------------------------------------------------------

def check_records(tree):
    names = sorted(name for name in tree.files if re.match(r"docs/decisions/\d", name))
    index = tree.files.get("docs/decisions/README.md", "")
    for expected, name in enumerate(names, 1):
        file = name.rsplit("/", 1)[1]
        if not re.fullmatch(r"\d{4}-[a-z0-9-]+\.md", file) or int(file[:4]) != expected:
            tree.say(name, 1, f"decision records are numbered without gaps: this one should begin with {expected:04}-")
        if file not in index:
            tree.say("docs/decisions/README.md", 1, f"{file} is not listed; add its line")
        headings = [line.strip() for line in tree.files[name].splitlines() if line.startswith("## ")]
        for section in RECORD_SECTIONS:
            if section not in headings:
                tree.say(name, 1, f"section \"{section}\" is missing; a record says context, decision, cost and how to check it")


def check_versions(tree):
    changelog = tree.files.get("CHANGELOG.md", "")
    found = re.search(r'kVersion = "([\d.]+)"', tree.files.get("src/millrace/base/version.h", ""))
    project = re.search(r"project\(millrace VERSION ([\d.]+)", tree.files.get("CMakeLists.txt", ""))
    if found and project and found.group(1) != project.group(1):
        tree.say("src/millrace/base/version.h", 1, f"kVersion is {found.group(1)}, CMakeLists.txt says {project.group(1)}; make them equal")
    entries = re.findall(r"^## \[([^\]]+)\]", changelog, re.MULTILINE)
    if "Unreleased" not in entries and (not project or project.group(1) not in entries):
        tree.say("CHANGELOG.md", 1, "add an entry \"## [Unreleased]\", or one of the version in CMakeLists.txt")


def check_links(tree):
    for name, text in tree.files.items():
        if not name.endswith(".md"):
            continue
        for match in re.finditer(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text):
            target = (tree.root / name).parent / match.group(1)
            if not target.exists():
                tree.say(name, line_of(text, match.start()), f"the link to {match.group(1)} leads nowhere")
        for match in re.finditer(r"\[`([\w:]+)`\]\(([^)#:\s]+)\)", text):  # a name that links to the file that defines it
            target = (tree.root / name).parent / match.group(2)
            word = match.group(1).rsplit("::", 1)[-1]
            if target.is_file() and target.suffix in SOURCE and not re.search(rf"\b{word}\b", target.read_text(encoding="utf-8")):
                tree.say(name, line_of(text, match.start()), f"{match.group(2)} has no {word}; link to the file that has it")


def tidy(root):
    """All violations below `root`, as (file, line, message)."""
    tree = Tree(root)
    floors = floors_of(tree)
    check_floors_table(tree, floors)
    check_includes(tree, floors)
    check_public_headers(tree)
    check_recipe_names(tree)
    check_sizes(tree)
    check_text(tree)
    check_names(tree)
    check_constants(tree)
    check_guards(tree)
    check_devices(tree)
    check_waits(tree)
    check_records(tree)
    check_versions(tree)
    check_links(tree)
    return sorted(tree.found)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    found = tidy(parser.parse_args().root)
    for name, line, message in found:
        print(f"{name}:{line}: {message}")
    if found:
        print(f"house rules broken: {len(found)}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
