"""The remedies that readers of files can print, taken from their sources: the `next` of each error.

A remedy is told by its text there, `…` in place of what the program fills in. remedies_peer_test.py has a row for each of them.
"""
import re
from pathlib import Path
from typing import NamedTuple

from field import FieldTest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src" / "millrace"
LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')
MADE = re.compile(r"\b(?:DataError|UnreadKind|SnapshotError|Message|NoText|Problem|RefusedContent)(?:\s+\w+)?\s*[({]|\bproblems_?(?:->|\.)push_back\(")
# A function or lambda that takes a remedy: its name, and what it takes.
TAKES = re.compile(r"\b(\w+)(?:\s*=\s*\[[^\]]*\]\s*)?\(([^()]*\b(?:next|remedy)\b[^()]*)\)\s*(?:const)?\s*\{")
STATEMENT = r'((?:"(?:[^"\\]|\\.)*"|[^;"])*);'
NAME = re.compile(r"\b(?:k[A-Z]\w*|next|remedy|correct)\b|\b[a-z]\w*(?=\()")
# What holds no reader, and why its remedies are not tried here.
NO_READERS = {
    "writes files": "format/*_writer.cpp format/detail/npy_header.cpp hdf5/write.cpp data/files/nifti_writer.cpp recipes/*/make_data.cpp",
    "speaks to the author of a recipe, in C++": """data/transforms/augment.cpp data/transforms/compose.cpp data/*/detail/*.h data/loader/detail/batch_*.cpp data/loader/detail/draws.cpp
        data/sources/detail/file_list.cpp data/loader/keeping.cpp data/loader/sample.cpp data/*/*_source.cpp data/sources/token_source.cpp data/workload/*.cpp data/workload/detail/*.cpp door/*.cpp
        data/files/tokenizer.cpp data/loader/arena.cpp""",
    "is about keys of the config, flags, or inputs of predict": """system/instructions.cpp recipes/*/entry.cpp recipes/common/entry.h recipes/*/model.cpp recipes/*/network.cpp
        recipes/*/checks.cpp recipes/*/prompt.cpp recipes/*/recipe.cpp recipes/*/*_command*.cpp recipes/*/commands.cpp recipes/*/trained.cpp
        recipes/*/originals/*_command.cpp recipes/*/originals/model_file.cpp recipes/autoencoder_3d/originals/config_files.cpp""",
    "is about snapshots": "data/loader/detail/data_identity.cpp data/loader/detail/loader_state.cpp",
    "reads weights that other programs made of a whole model: C++ tests of that part load those that fit and refuse the others": """
        recipes/image_pairs/originals/adapters.cpp recipes/image_pairs/originals/base_weights.cpp recipes/language_model/originals/*.cpp recipes/cosmology/originals/config_file.cpp recipes/cosmology/sky_pca.cpp
        recipes/autoencoder_3d/perceptual.cpp recipes/autoencoder_3d/originals/pretrained.cpp""",
}


def without_comments(text):
    return re.sub(r'("(?:[^"\\\n]|\\.)*")|//[^\n]*', lambda found: found.group(1) or "", text)


def parts_of(text, at):
    """What stands between the bracket at `at` and its partner, split at the commas."""
    parts, depth, begin, i = [], 0, at + 1, at
    while i < len(text):
        if text[i] == '"':
            i = LITERAL.match(text, i).end()
            continue
        if text[i] == "'" and re.match(r"'(?:[^'\\]|\\.)'", text[i:i + 4]):
            i = text.index("'", i + 2) + 1
            continue
        depth += (text[i] in "({[") - (text[i] in ")}]")
        if depth == 0 or (depth == 1 and text[i] == ","):
            parts.append(text[begin:i].strip())
            begin = i + 1
        if depth == 0:
            break
        i += 1
    return parts


def remedy_among(parts):
    """The third part of a message: that named .next, or that in its place; of a list within brackets as well."""
    if len(parts) == 1 and parts[0].startswith("{"):
        parts = parts_of(parts[0], 0)
    elif len(parts) == 1 and (inner := re.match(r"(?:Message|Problem)\s*\{", parts[0])):
        parts = parts_of(parts[0], inner.end() - 1)
    named = [part.split("=", 1)[1] for part in parts if part.startswith(".next")]
    return named[0] if named else parts[2] if len(parts) > 2 else ""


def text_of(expression, whole, seen=()):
    """The texts that an expression may give; of a name what its file says that it is."""
    expression = re.sub(r'(?<!\\)"\s+"', "", expression)
    pieces, last = "", 0
    for found in LITERAL.finditer(expression):
        between = re.sub(r"std::string\(|[\s+(){}=]", "", expression[last:found.start()])
        pieces += ("…" if between else "") + found.group(1).replace('\\"', '"')
        last = found.end()
    if pieces:
        return {pieces + ("…" if re.sub(r"[\s+(){}]", "", expression[last:]) else "")}
    texts = set()
    for name in set(NAME.findall(expression)) - set(seen):
        given = re.findall(rf"\b{name}\s*(?:=|\+=|\{{)" + STATEMENT, whole)
        for function in re.findall(rf"^std::string {name}\([^)]*\) \{{\n(.*?)^}}", whole, re.M | re.S):
            given += re.findall("return " + STATEMENT, function)
        for expression_ in given:
            texts |= text_of(expression_, whole, (*seen, name))
    return texts


def remedies_in(sources):
    """{remedy: names of the sources that hold it} of some sources; what one of them takes another may give."""
    texts = {path: without_comments(path.read_text()) for path in sources}
    takes = {}  # name: the places at which a function of that name takes a remedy
    for path, text in texts.items():
        for found in TAKES.finditer(text):
            names = [part.split("=")[0].split()[-1].strip("&*") for part in parts_of(text, found.start(2) - 1)]
            place = next(i for i, name in enumerate(names) if name in ("next", "remedy"))
            takes.setdefault(found.group(1), set()).add((path, place))
    held = {}
    for path, text in texts.items():
        found = set()
        for made in MADE.finditer(text):
            found |= text_of(remedy_among(parts_of(text, made.end() - 1)), text)
        own = {found.group(1) for found in TAKES.finditer(text)}
        for name, places in takes.items():
            if name not in own and re.search(rf"\b{name} = \[|\bvoid {name}\(", text):  # another function of this name
                continue
            places = {place for place in places if name not in own or place[0] == path}
            for call in re.finditer(rf"\b{name}\(", text):
                parts = parts_of(text, call.end() - 1)
                for source, place in places:
                    if source.parent == path.parent and len(parts) > place:
                        found |= text_of(parts[place], text)
        for function in re.findall(r"^std::string remedy_for\([^)]*\) \{\n(.*?)^}", text, re.M | re.S):  # what the system says of a path
            found |= {remedy for given in re.findall("return " + STATEMENT, function) for remedy in text_of(given, text)}
        for remedy in filter(re.compile("[a-z]{3}").search, found):
            held.setdefault(remedy, []).append(str(path.relative_to(ROOT)).removeprefix("src/millrace/"))
    return held


def readers():
    """The sources that read files of users."""
    every = [path for folder in ("base", "system", "format", "hdf5", "data") for path in sorted((SOURCES / folder).rglob("*"))]
    every += sorted((ROOT / "recipes").rglob("*"))
    others = {path for patterns in NO_READERS.values() for pattern in patterns.split()
              for root in (ROOT, SOURCES) for path in root.glob(pattern)}
    return [path for path in every if path.suffix in (".cpp", ".h") and "test" not in path.stem and path not in others]


class Row(NamedTuple):
    """A remedy, what makes the program give it, and what it advises to do; both are functions, called in `self.folder`."""
    remedy: str
    spoil: object
    mend: object  # takes the remedy as it was printed
    says: str = ""  # where the source has several texts in one: the part that is printed here


class RemedyTest(FieldTest):
    """Tests that do what errors advise."""

    def printed(self, output, row):
        """The remedy of a row as the output has it; None where it has another."""
        text = ".*".join(re.escape(part) for part in (row.says or row.remedy).split("…"))
        pattern = f".*{text}.*" if row.says else text
        return next((line for line in self.nexts_of(output) if re.fullmatch(pattern, line)), None)

    def nexts_of(self, output):
        return [line.split("next", 1)[1].strip() for line in output.splitlines() if line.lstrip().startswith("next ")]

    def follow(self, rows, run):
        """All is spoiled at first; then what the run complains of is mended, until it ends well. `run` takes the status to expect, None for any."""
        for row in rows:
            row.spoil()
        rest = list(rows)
        while rest:
            said = run(status=None)
            met = {}  # a row for each remedy that is printed
            for row in rest:
                if remedy := self.printed(said, row):
                    met.setdefault(remedy, row)
            self.assertTrue(met, f"no remedy of {[row.remedy for row in rest]} in\n{said[-3000:]}")
            for remedy, row in met.items():
                row.mend(remedy)
                rest.remove(row)
        return run(status=0)
