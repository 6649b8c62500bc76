"""Tests of tools/headers_alone.py: headers with an include missing, in a small tree with a light header in the place of LibTorch's."""
import json
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import headers_alone

HEAVY = "ATen/core/Tensor.h"
USES = "inline at::Tensor* used() { return nullptr; }\n"
INCLUDES_HEAVY = f"// Comment.\n#pragma once\n\n#include <{HEAVY}>\n"


class Headers(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = Path(scratch.name)
        self.build = self.root / "build"
        self.build.mkdir()
        self.write(f"outside/{HEAVY}", "#pragma once\nnamespace at { struct Tensor {}; }\n")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def header(self, name, text):
        self.write(f"src/millrace/{name}", text)
        return f"millrace/{name}"

    def files(self, *headers, proven=()):
        """What is written for a build with these headers."""
        compiler = f"/usr/bin/env ccache g++ -DX -I{self.root}/src -isystem {self.root}/outside -x c++ -std=c++20 -o x.o -c x.cxx"
        entries = [{"file": f"{self.build}/millrace{headers_alone.SUFFIX}/{header}.cxx", "command": compiler} for header in headers]
        (self.build / "compile_commands.json").write_text(json.dumps([*entries, {"file": "src/other.cpp", "command": compiler}]))
        includes = headers_alone.Includes(self.root)
        found = headers_alone.with_their_own(headers_alone.commands(self.build), set(proven), includes)
        return headers_alone.ninja(found, includes)

    def compile_all(self, *headers, proven=()):
        """(exit status, what ninja and the compiler say)."""
        for name, text in self.files(*headers, proven=proven).items():
            (self.build / name).write_text(text)
        done = subprocess.run(["ninja", "-C", self.build, "-k", "0"], capture_output=True, text=True)
        return done.returncode, done.stdout

    def ahead_of(self, header):
        return headers_alone.Includes(self.root).ahead_of(header)


class Ahead(Headers):
    def test_a_header_gets_what_it_includes(self):
        own = self.header("own.h", INCLUDES_HEAVY)
        above = self.header("above.h", f'#pragma once\n#include "{own}"\n')
        self.assertEqual((self.ahead_of(own), self.ahead_of(above)), ((HEAVY,), (HEAVY,)))

    def test_no_header_gets_what_it_does_not_include(self):
        self.header("own.h", INCLUDES_HEAVY)
        self.assertEqual(self.ahead_of(self.header("without.h", "#pragma once\n" + USES)), ())

    def test_an_include_below_code_or_a_condition_does_not_count(self):
        self.assertEqual(self.ahead_of(self.header("below.h", f"#pragma once\n{USES}#include <{HEAVY}>\n")), ())
        self.assertEqual(self.ahead_of(self.header("sometimes.h", f"#pragma once\n#ifdef X\n#include <{HEAVY}>\n#endif\n")), ())

    def test_headers_that_nothing_proves_are_compiled_too(self):
        loose = self.header("detail/loose.h", USES)
        above = self.header("above.h", f'#pragma once\n#include <{HEAVY}>\n#include "{loose}"\n')
        self.assertIn("millrace-detail-loose.h.cpp", self.files(above))
        self.assertNotIn("millrace-detail-loose.h.cpp", self.files(above, proven=[loose]))

    def test_a_header_shares_the_file_of_a_header_that_is_sure_to_include_it(self):
        low = self.header("low.h", "#pragma once\n")
        middle = self.header("middle.h", f'#pragma once\n#include "{low}"\n')
        top = self.header("top.h", f'#pragma once\n#include "{middle}"\n')
        maybe = self.header("maybe.h", f'#pragma once\n#ifdef X\n#include "{top}"\n#endif\n')
        files = self.files(low, middle, top, maybe)
        self.assertEqual(files["millrace-top.h.cpp"], f"#include <{low}>\n#include <{middle}>\n#include <{top}>\n")
        self.assertEqual(files["millrace-maybe.h.cpp"], f"#include <{maybe}>\n")
        self.assertEqual(sorted(name for name in files if name.endswith(".cpp")), ["millrace-maybe.h.cpp", "millrace-top.h.cpp"])


@unittest.skipUnless(shutil.which("g++") and shutil.which("ninja"), "g++ or ninja is missing")
class Compiled(Headers):
    def test_headers_that_include_what_they_use_pass(self):
        own = self.header("own.h", INCLUDES_HEAVY + USES)
        above = self.header("above.h", f'#pragma once\n#include "{own}"\ninline at::Tensor* too() {{ return used(); }}\n')
        status, said = self.compile_all(own, above)
        self.assertEqual(status, 0, said)
        self.assertTrue(list(self.build.glob("*.gch")))

    def test_each_kind_of_missing_include_is_found(self):
        own = self.header("own.h", INCLUDES_HEAVY)
        missing = self.header("missing.h", "#pragma once\n" + USES)
        late = self.header("late.h", f"#pragma once\n{USES}#include <{HEAVY}>\n")
        loose = self.header("detail/loose.h", "#pragma once\n" + USES)
        hiding = self.header("hiding.h", f'#pragma once\n#include "{loose}"\n#include <{HEAVY}>\n')
        status, said = self.compile_all(own, missing, late, hiding)
        self.assertEqual(status, 1, said)
        for header in (missing, late, loose):
            self.assertRegex(said, f"{header}:\\d+:\\d+: error: .at. ", said)
        self.assertEqual(said.count("FAILED"), 3, said)

    def test_a_header_is_not_proven_by_those_before_it_in_its_file(self):
        low = self.header("low.h", "#pragma once\n" + USES)  # lacks an include
        top = self.header("top.h", f'#pragma once\n#include <{HEAVY}>\n#include "{low}"\n')
        status, said = self.compile_all(low, top)
        self.assertEqual(status, 1, said)
        self.assertRegex(said, f"{low}:\\d+:\\d+: error: .at. ", said)


if __name__ == "__main__":
    unittest.main()
