"""The table: Markdown of at most 12,000 characters, what matters most at its end."""
from . import machine
from .proof import BAD, shortened
from .runner import all_rows, counts_text, is_good

MOST_CHARACTERS = 12_000
# The least important first; a part that is not named here comes before all others.
ORDER = ["sanitizer", "python", "loads", "ceilings", "tests", "compiling", "profile", "feed", "life", "parity", "graph", "steps"]
HIDDEN_FIRST = (("skipped", "left out"), ("measured", "ok"), BAD)  # when the table is too long; what is bad stands at its end once more


def cell(text, most=300):
    """A cell is one line; the end of an error says more than its beginning."""
    text = " / ".join(line.strip() for line in str(text).splitlines() if line.strip()).replace("|", "\\|")
    return shortened(text, most)


def line_of(row):
    figure = " ".join(filter(None, [cell(row["figure"]), f"({cell(row['why'])})" if row["why"] else ""]))
    return f"| {cell(row['what'], 120)} | {figure} | {row['verdict']} |"


def section(result, rows, hidden):
    head = f"**{result['title']}**: {counts_text(result['rows'])}; {result['seconds']:.0f} s of {result['limit']:.0f} s"
    if hidden:
        head += f"; {hidden} more rows are in result.json"
    lines = ["", head]
    if rows:
        lines += ["", "| what | figure | |", "|---|---|---|", *(line_of(row) for row in rows)]
    return lines


def importance(result):
    return ORDER.index(result["name"]) if result["name"] in ORDER else -1


def tail(results, seconds):
    rows = all_rows(results)
    bad = [(result["title"], row) for result in results for row in result["rows"] if row["verdict"] in BAD]
    lines = [""]
    if bad:
        lines += ["**What is not as it should be**", ""]
        lines += [f"- {title}, {cell(row['what'], 100)}: {row['verdict']}. "
              + "; ".join(filter(None, [cell(row["figure"], 120), cell(row["why"], 200)])) for title, row in bad[:20]]
        lines += [f"- and {len(bad) - 20} more"] if len(bad) > 20 else []
        lines += [""]
    verdict = "green" if is_good(results) else "NOT GREEN"
    return lines + [f"{len(results)} parts, {seconds:.0f} s, {len(rows)} rows: {counts_text(rows)}. {verdict}"]


def table(header, results, seconds):
    """The whole text, short enough whatever the parts say."""
    ordered = sorted(results, key=importance)
    shown = {id(result): list(result["rows"]) for result in ordered}

    def text():
        lines = [f"# gpu-proof: {machine.title(header)}"]
        if header["isolation"]:
            lines += ["", header["isolation"]]
        for result in ordered:
            rows = shown[id(result)]
            lines += section(result, rows, len(result["rows"]) - len(rows))
        return "\n".join(lines + tail(results, seconds)) + "\n"

    for verdicts in HIDDEN_FIRST:
        for result in ordered:
            rows = shown[id(result)]
            while len(text()) > MOST_CHARACTERS and any(row["verdict"] in verdicts for row in rows):
                hide(rows, verdicts, len(text()) - MOST_CHARACTERS)
    return text()[-MOST_CHARACTERS:]


def hide(rows, verdicts, characters):
    """Takes the first rows with these verdicts out, as many as hold so many characters."""
    for row in [row for row in rows if row["verdict"] in verdicts]:
        rows.remove(row)
        characters -= len(line_of(row)) + 1
        if characters <= 0:
            return
