"""Labels and tables as spreadsheets and other programs write them: byte-order marks, separators, quotes, decimal commas, columns more."""
import random
import shutil
import unittest

from field import FieldTest


class Tables(FieldTest):
    def tables_of(self, content):
        """The tables of pairs that the program makes of labels: equal where it read equal labels."""
        (self.folder / "labels.txt").write_bytes(content if isinstance(content, bytes) else content.encode())
        shutil.rmtree(self.folder / "tables", ignore_errors=True)
        self.run_millrace("make-data", "image_pairs", "--pairs-from", "labels.txt", "--out", "tables", "--folds", 2, "--per-class", 8, "--theta", 1,
                          "--near-band", 1)
        return {path.name: path.read_bytes() for path in (self.folder / "tables").glob("*.csv")}

    def refusal_of(self, content):
        (self.folder / "labels.txt").write_text(content)
        return self.run_millrace("make-data", "image_pairs", "--pairs-from", "labels.txt", "--out", "no", "--folds", 2, "--per-class", 8, status=None)

    def test_the_files_of_the_field(self):
        folder = self.shared("pictures") / "labels_with_mark"
        marked = (folder / "labels.txt").read_bytes()
        self.assertTrue(marked.startswith(b"\xef\xbb\xbf"))
        self.assertEqual(self.tables_of(marked), self.tables_of(marked[3:]))
        self.run_millrace("train", "image_pairs", "--data", folder, "--preset", "smoke", "--recipe.per_class=10", "--recipe.val_samples=10",
                          "--recipe.folds=2", "--recipe.theta=2", "--recipe.near_band=1", "--data.batch_size=4", "--rehearse")

    def test_forms_of_labels(self):
        for seed in range(4):
            draw = random.Random(seed)
            rows = [(f"pic {i}.png" if seed % 2 else f"p{i:02}.png", draw.randrange(-9000, 9000) / 1000) for i in range(24)]
            plain = self.tables_of("".join(f"{name} {score}\n" for name, score in rows))
            comma = [(name, str(score).replace(".", ",")) for name, score in rows]
            unclear = any(abs(float(text.replace(",", "."))) >= 1 and len(text.split(",")[-1]) == 3 for _, text in comma)
            forms = {
                "mark": "\ufeff" + "".join(f"{n} {s}\n" for n, s in rows),
                "crlf": "".join(f"{n} {s}\r\n" for n, s in rows),
                "tab": "".join(f"{n}\t{s}\n" for n, s in rows),
                "semicolon": "".join(f"{n};{s}\n" for n, s in rows),
                "comma": "".join(f"{n},{s}\n" for n, s in rows),
                "comma and blank": "".join(f"{n}, {s}\n" for n, s in rows),
                "quotes": "".join(f'"{n}","{s}"\r\n' for n, s in rows),
                "heading": "\ufeffname;score\r\n" + "".join(f"{n};{s}\r\n" for n, s in rows),
            }
            for form, text in forms.items():
                with self.subTest(seed=seed, form=form):
                    self.assertEqual(self.tables_of(text), plain)
            if unclear:
                self.assertIn("which may mean two numbers: write it with a point", self.refusal_of("".join(f"{n};{s}\n" for n, s in comma)))
            short = [(n, f"{s:.2f}") for n, s in rows]
            self.assertEqual(self.tables_of("".join(f"{n};{s}\n" for n, s in short).replace(".png", "_png").replace(".", ",").replace("_png", ".png")),
                             self.tables_of("".join(f"{n} {s}\n" for n, s in short)))

    def test_points_of_two_meanings_are_refused_with_a_remedy_that_works(self):
        rows = [(f"p{i:02}.png", 1000 + i // 4 if i % 2 else i // 4 + 0.25) for i in range(24)]
        spoilt = "".join(f"{name};{f'{score:,}'.replace(',', '.') if score >= 1000 else str(score).replace('.', ',')}\n" for name, score in rows)
        self.assertEqual(self.next_of(self.refusal_of(spoilt)), "write all scores with a decimal point, and without marks between thousands")
        self.assertEqual(self.tables_of("".join(f"{name};{score}\n" for name, score in rows)), self.tables_of("".join(f"{n} {s}\n" for n, s in rows)))

    def test_what_is_unclear_is_shown(self):
        self.assertIn('has "1,5" where a score is expected, which may mean two numbers: write it with a point', self.refusal_of("a.png 1,5\nb.png 2,5\n"))
        self.assertIn('has "a.png,1.5" where a score is expected', self.refusal_of("0,a.png,1.5\n1,b.png,2.5\n"))
        self.assertIn("is UTF-16 text with a byte-order mark, not UTF-8", self.refusal_utf16())

    def refusal_utf16(self):
        (self.folder / "labels.txt").write_bytes("a.png 1\nb.png 2\n".encode("utf-16"))
        return self.run_millrace("make-data", "image_pairs", "--pairs-from", "labels.txt", "--out", "no", status=None)


if __name__ == "__main__":
    unittest.main()
