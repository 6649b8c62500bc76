"""Applies a finding of the doctor to the text of a script, word for word as it is printed."""
import ast


class NotApplicable(Exception):
    """The finding names nothing that can be put into the script by a program."""


def literal(value):
    return value["code"] if isinstance(value, dict) else repr(value)


def calls_of(text, name):
    """The calls of a function or class by its last name, in the order of the text."""
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)
             and (node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)) == name]
    return sorted(calls, key=lambda call: (call.lineno, call.col_offset))


def position(text, line, column):
    """ast counts columns in bytes of UTF-8."""
    lines = text.splitlines(keepends=True)
    return sum(len(part) for part in lines[: line - 1]) + len(lines[line - 1].encode()[:column].decode())


def with_argument(text, name, at_line, argument, value):
    """`argument=value` in the call of `name` that stands in `at_line`, else in its first call."""
    calls = calls_of(text, name)
    if not calls:
        raise NotApplicable(f"the script has no call of {name}")
    call = next((call for call in calls if call.lineno <= (at_line or 0) <= call.end_lineno), calls[0])
    for keyword in call.keywords:
        if keyword.arg == argument:
            node = keyword.value
            return text[: position(text, node.lineno, node.col_offset)] + value + text[position(text, node.end_lineno, node.end_col_offset):]
    end = position(text, call.end_lineno, call.end_col_offset) - 1
    comma = "" if text[:end].rstrip().endswith((",", "(")) else ", "
    return f"{text[:end]}{comma}{argument}={value}{text[end:]}"


def line_of(where):
    tail = (where or "").rpartition(":")[2]
    return int(tail) if tail.isdigit() else None


def applied(text, finding):
    """(the script with the remedy, the command before `python`, variables of the environment)."""
    at = line_of(finding.get("where"))
    if "replace" in finding:
        lines = text.splitlines(keepends=True)
        for old, new in finding["replace"].items():
            if not at or lines[at - 1].strip() != old.strip():
                raise NotApplicable(f"line {at} is not {old!r}")
            lines[at - 1] = lines[at - 1].replace(old.strip(), new.strip())
        text = "".join(lines)
    for argument, value in finding.get("set", {}).items() if "call" in finding else ():
        text = with_argument(text, finding["call"], at, argument, literal(value))
    words = finding.get("command", "").partition(" -- ")[0].split()
    if not ({"replace", "call", "command", "environment"} & finding.keys()):
        raise NotApplicable("the remedy is in prose")
    return text, words, finding.get("environment", {})
