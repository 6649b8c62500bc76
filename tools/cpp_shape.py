"""The shape of C++ sources, for tidy.py: how long functions are, how much a class offers."""
import re


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def without_comments_and_strings(text):
    """Same length and lines, with comments and the insides of literals blanked."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


NOT_A_FUNCTION = re.compile(r"(?:^|\s)(?:namespace|class|struct|union|enum|extern)\b")


def long_functions(text, most):
    """(line, lines) of each function of more than `most` lines. A function is a brace block at namespace or class level behind a ')'."""
    code = without_comments_and_strings(text)
    code = re.sub(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", lambda m: re.sub(r"[^\n]", " ", m.group()), code, flags=re.MULTILINE)
    head_begin, i = 0, 0
    while i < len(code):
        char = code[i]
        if char == ";" or char == "}":
            head_begin = i + 1
        elif char == "{":
            head = code[head_begin:i]
            if NOT_A_FUNCTION.search(re.sub(r"<[^<>{}]*>", "", head)) and not re.search(r"\)\s*(?:const|noexcept|override|final|\s)*$", head):
                head_begin = i + 1  # a namespace or a class: look inside
            else:
                i = end_of_definition(code, i)
                begin = head_begin + re.match(r"(?:\s*(?:public|private|protected)\s*:(?!:))*\s*", head).end()
                lines = code.count("\n", begin, i) + 1
                if ")" in head and lines > most:
                    yield line_of(code, begin), lines
                head_begin = i + 1
        i += 1


def end_of_definition(code, open_brace):
    """Offset of the last '}' of a definition whose first '{' is given; a constructor's a_{1}, b_{2} {body} is one definition."""
    depth, i = 0, open_brace
    while i < len(code):
        if code[i] == "{":
            depth += 1
        elif code[i] == "}":
            depth -= 1
            if depth == 0 and not re.match(r"\s*(?:,|\{)", code[i + 1:i + 400]):
                return i
        i += 1
    return len(code) - 1


CLASS = re.compile(r"\b(class|struct)\s+(?:\[\[\w+\]\]\s*)?(\w+)[^;{}()]*\{")
ACCESS = re.compile(r"\s*(public|private|protected)\s*:(?!:)")


def public_functions(code, open_brace, kind, name):
    """How many functions a class offers; `open_brace` is that of its body, `kind` "class" or "struct"."""
    public, statement, depth, count = kind == "struct", "", 0, 0
    for char in code[open_brace + 1:]:
        if char == "{":
            depth += 1
        elif char == "}":
            depth -= 1
            if depth < 0:
                return count
        if depth > 0 or char not in ";}:":
            statement += char if depth == 0 else ""
            continue
        if char == ":":
            access = ACCESS.match(statement + char)
            public, statement = (access.group(1) == "public", "") if access else (public, statement + char)
            continue
        head = statement.split("=", 1)[0] if "operator" not in statement else ""
        while re.search(r"<[^<>()]*(?:\([^()]*\))*[^<>()]*>", head):
            head = re.sub(r"<[^<>()]*(?:\([^()]*\))*[^<>()]*>", "", head)
        called = re.search(r"(~?\w+)\s*\(", head)
        left_out = called is None or called.group(1).lstrip("~") == name or re.match(r"\s*(?:using|friend|static_assert|enum)\b", head)
        count += public and not left_out
        statement = ""
    return count


def large_classes(text, most):
    """(line, name, functions) of each class that offers more than `most` functions."""
    code = without_comments_and_strings(text)
    for match in CLASS.finditer(code):
        count = public_functions(code, match.end() - 1, match.group(1), match.group(2))
        if count > most:
            yield line_of(code, match.start()), match.group(2), count
