"""Random tables, labels and texts, in the forms of many programs, against pandas and Python's own codecs."""
import csv
import io
import unittest

import numpy as np
import pandas

from probe import Made, ProbeTest

NAMES = ["x", "speed", "a b", "größe", "angle_2", "X"]
SEPARATORS = [",", ";", "\t"]
ALPHABETS = ["abc xyz.,;'\n", "Äpfel früh ÖL ß\n", "Зима и СНЕГ мая\n", "春は曙やうやう\n", "aé😀𝄞 z\n", "ΑΒΓ ἀβγ\n"]
FORMS = ["utf-8", "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be",
         "latin-1", "cp1252", "koi8-r", "shift-jis"]


def number_text(draws, value):
    """A number as programs write it; `value` is a float."""
    return [repr(value), f"{value:.3e}", f"{value:+.4f}", f"{value:.1f}", f"{value:g}", f"{value:.6E}"][draws.integers(0, 6)]


def table_of(draws):
    """The bytes of a table, its columns as [name, type], and the separator."""
    separator = SEPARATORS[draws.integers(0, 3)]
    decimal = "," if separator != "," and draws.random() < 0.5 else "."
    names = [str(n) for n in draws.permutation(NAMES)[:draws.integers(1, 6)]]
    kinds = [str(k) for k in draws.choice(["f32", "i64", "text"], len(names), p=[0.6, 0.25, 0.15])]
    if "f32" not in kinds and "i64" not in kinds:
        kinds[0] = "f32"
    end = ["\n", "\r\n"][draws.integers(0, 2)]
    mixed = 0.3 if draws.random() < 0.15 else 0
    file = io.StringIO()
    quoting = [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC][draws.integers(0, 3)]
    writer = csv.writer(file, delimiter=separator, lineterminator=end, quoting=quoting)
    writer.writerow(names)
    for _ in range(draws.integers(1, 12)):
        row = []
        for kind in kinds:
            if kind == "i64":
                row.append(str(int(draws.integers(-2**62, 2**62) >> int(draws.integers(0, 60)))))
            elif kind == "f32":
                value = float(draws.normal() * 10.0 ** draws.integers(-6, 7))
                mark = "." if draws.random() < mixed else decimal
                row.append(number_text(draws, value).replace(".", mark))
            else:
                row.append(str(draws.choice(["", "a", "b, c", 'say "x"', "1;2", "#7", "é"])))
        writer.writerow(row)
        if draws.random() < 0.1 and len(names) > 1:
            file.write(end)
    text = file.getvalue()
    if draws.random() < 0.2:
        text = text.removesuffix(end)
    mark = "\ufeff" if draws.random() < 0.3 else ""
    return (mark + text).encode(), [[n, k] for n, k in zip(names, kinds) if k != "text"], separator, decimal


def as_pandas(path, columns, separator, decimal):
    """The table, by the first of both marks with which pandas reads it; None where it does so with neither."""
    for mark in (decimal, "."):
        try:
            return pandas.read_csv(path, sep=separator, decimal=mark, encoding="utf-8-sig", float_precision="round_trip",
                                   dtype={name: np.float64 if kind == "f32" else np.int64 for name, kind in columns})
        except ValueError:
            continue
    return None


def labels_of(draws):
    """The bytes of a file of labels, {name: score}, and the words of its refusal."""
    way = draws.integers(0, 6)
    form = ["p{:02}é.jpg", "pic {}.png", "a,b {}.png" if way in (0, 1, 4) else "x{}.jpeg"][draws.integers(0, 3)]
    count = int(draws.integers(3, 14))
    rows = {form.format(i): round(float(draws.normal() * 10.0 ** draws.integers(-1, 3)), int(draws.integers(1, 5)))
            for i in draws.permutation(count)}
    separator = [" ", "\t", ";", ",", "  ", ", "][way]
    decimal = "," if separator in ("\t", ";") and draws.random() < 0.4 else "."
    end = "\r\n" if draws.random() < 0.4 else "\n"
    quote = '"' if separator.strip() and draws.random() < 0.4 else ""
    mixed = 0.3 if decimal == "," and draws.random() < 0.3 else 0
    written = [str(s) if draws.random() < mixed else str(s).replace(".", decimal) for s in rows.values()]
    lines = [f"{quote}{name}{quote}{separator}{quote}{score}{quote}" for name, score in zip(rows, written)]
    if separator.strip() and draws.random() < 0.4:
        lines.insert(0, f"name{separator}score")
    if draws.random() < 0.3:
        lines.insert(len(lines) // 2, "")
    mark = "\ufeff" if draws.random() < 0.3 else ""
    refused = ()
    if any(len(s.partition(",")[2]) == 3 and not s.lstrip("-").startswith("0,") for s in written):
        refused = ("which may mean two numbers",)
    if any("," in s for s in written) and any("." in s for s in written):
        refused += ("some scores have a decimal comma and some a point",)
    return (mark + end.join(lines) + (end if draws.random() < 0.8 else "")).encode(), rows, refused


class RandomTables(ProbeTest):
    def test_tables(self):
        def make(folder, seed):
            draws = np.random.default_rng(8000 + seed)
            content, columns, separator, decimal = table_of(draws)
            path = folder / f"{seed}.csv"
            path.write_bytes(content)
            request = {"kind": "table", "path": path, "columns": columns}
            read = as_pandas(path, columns, separator, decimal)
            if read is None:  # commas and points before decimals
                return Made(request, {}, refused=("a decimal comma and a point", "which is not a number", "the header has 1"))
            arrays = {name: read[name].to_numpy().astype(np.float32 if kind == "f32" else np.int64) for name, kind in columns}
            return Made(request, arrays, optional=("which is not a number", "the header has 1") if decimal == "," else ())

        self.check_random(make)

    def test_labels(self):
        def make(folder, seed):
            content, rows, refused = labels_of(np.random.default_rng(9000 + seed))
            path = folder / f"{seed}" / "labels.txt"
            path.parent.mkdir()
            path.write_bytes(content)
            names = sorted(rows, key=lambda name: name.encode())
            return Made({"kind": "labels", "path": path}, {"scores": np.array([rows[n] for n in names])}, {"names": names},
                        refused=refused)

        self.check_random(make, most_refused=0.4)

    def test_texts(self):
        def make(folder, seed):
            draws = np.random.default_rng(10000 + seed)
            alphabet = ALPHABETS[draws.integers(0, len(ALPHABETS))]
            text = "".join(str(c) for c in draws.choice(list(alphabet), int(draws.integers(200, 900))))
            if draws.random() < 0.3:
                text = text.replace("\n", "\r\n")
            form = FORMS[draws.integers(0, len(FORMS))]
            try:
                content = text.encode(form)
            except UnicodeEncodeError:
                form, content = "utf-8", text.encode()
            path = folder / f"{seed}.txt"
            path.write_bytes(content)
            request = {"kind": "text", "path": path, "bytes": bool(draws.random() < 0.3)}
            is_read = form in ("utf-8", "utf-8-sig") or (content.isascii() and b"\0" not in content)
            plain = content.decode("utf-8-sig") if is_read else ""
            if request["bytes"]:
                ids, characters = [4 + b for b in plain.encode()], []
            else:
                low = [c.lower() for c in plain]
                characters = sorted(set(low))
                ids = [4 + characters.index(c) for c in low]
            refused = () if is_read else (f'{path.name}" is ',)
            return Made(request, {"ids": np.array(ids, np.uint16), "characters": np.array([ord(c) for c in characters], np.uint32)}, refused=refused)

        self.check_random(make, most_refused=0.95)


if __name__ == "__main__":
    unittest.main()
