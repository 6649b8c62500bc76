"""Tests of tools/tidy.py: a small tree that obeys every rule, and each rule broken once in it."""
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import tidy

TOOL = Path(tidy.__file__)
RECORD = "# 0001 Floors\n\n## Context\nc\n\n## Decision\nd\n\n## What we gave up\ng\n\n## How to check it still holds\nh\n"
GOOD = {
    "ARCHITECTURE.md": "# A\n\n| floor | folder | holds |\n|---|---|---|\n| 0 | `base` | errors |\n| 3 | `data` | loader |\n"
                       "| 3 | `nn` | layers |\n| 4 | `train/step` | a step |\n| 5 | `train/run` | loop |\n",
    "CMakeLists.txt": "project(millrace VERSION 0.1.0 LANGUAGES CXX)\nmr_folder(base)\nmr_folder(data DEPENDS base)\n"
                      "mr_folder(nn DEPENDS base TORCH)\nmr_folder(train/step DEPENDS base)\n"
                      "mr_folder(train/run DEPENDS data nn train/step PCH)\n",
    "CHANGELOG.md": "# Changelog\n\n## [Unreleased]\n- x\n",
    "docs/decisions/README.md": "[0001-floors.md](0001-floors.md)\n",
    "docs/decisions/0001-floors.md": RECORD,
    "cmake/public_headers.txt": "What users get.\nmillrace/base/version.h\nmillrace/data/loader/source.h\n",
    "src/millrace/base/version.h": '// The version.\n#pragma once\ninline constexpr const char* kVersion = "0.1.0";\n',
    "src/millrace/base/error.h": "// Errors.\n#pragma once\n",
    "src/millrace/base/error.cpp": '#include "millrace/base/error.h"\n\n#include <fmt/core.h>\n',
    "src/millrace/data/loader/source.h": '// Samples.\n#pragma once\n#include "millrace/base/version.h"\n',
    "src/millrace/data/loader/loader.h": '// The loader.\n#pragma once\n\n#include "millrace/base/error.h"\n',
    "src/millrace/data/detail/ring.h": "// Slots.\n#pragma once\n",
    "src/millrace/nn/layers.h": "// Layers.\n#pragma once\n#include <torch/nn.h>\n",
    "src/millrace/train/step/objective_step.h": "// A step of one objective.\n#pragma once\n",
    "src/millrace/train/run/run.h": '// Runs.\n#pragma once\n#include <ATen/core/Tensor.h>\n#include "millrace/data/loader/loader.h"\n',
    "src/millrace/train/run/run.cpp": '#include "millrace/train/run/run.h"\n\n#include <ATen/ops/add.h>\n\nint run() { return 0; }\n',
}


def function(lines, head="int f(int x)"):
    return head + " {\n" + "  ++x;\n" * (lines - 2) + "}\n"


class Planted(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = Path(scratch.name)
        for name, text in GOOD.items():
            self.write(name, text)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def append(self, name, text):
        self.write(name, (self.root / name).read_text() + text)

    def expect(self, name, words, line=None):
        """Expects exactly one violation, in this file, whose message contains these words."""
        found = tidy.tidy(self.root)
        self.assertEqual([entry[0] for entry in found], [name], found)
        for word in words:
            self.assertIn(word, found[0][2])
        if line is not None:
            self.assertEqual(found[0][1], line)

    def expect_clean(self):
        self.assertEqual(tidy.tidy(self.root), [])

    def test_a_public_header_with_an_internal_one(self):
        self.write("src/millrace/base/clock.h", "// Time.\n#pragma once\n")
        self.append("src/millrace/data/loader/source.h", '#include "millrace/base/clock.h"\n')
        self.expect("src/millrace/data/loader/source.h", ["millrace/base/clock.h is internal", "cmake/public_headers.txt"], 4)

    def test_an_example_with_an_internal_header(self):
        self.write("examples/mine/recipe.cpp", '#include "millrace/train/run/run.h"\n')
        self.expect("examples/mine/recipe.cpp", ["millrace/train/run/run.h is internal"], 1)

    def test_a_public_header_that_is_gone(self):
        self.append("cmake/public_headers.txt", "millrace/base/gone.h\n")
        self.expect("cmake/public_headers.txt", ["does not exist"], 4)

    def test_the_public_face_inside_the_tree(self):
        for face in tidy.FACES:
            with self.subTest(face):
                self.write(f"src/{face}", "// The face.\n#pragma once\n")
                self.write("src/millrace/train/run/run.cpp", GOOD["src/millrace/train/run/run.cpp"] + f'#include "{face}"\n')
                self.expect("src/millrace/train/run/run.cpp", ["above all floors"])

    def test_a_recipe_named_in_the_runtime(self):
        self.write("recipes/skies/entry.h", "// Skies.\n#pragma once\n")
        self.append("src/millrace/train/run/run.cpp", '// measured on skies\n')
        self.expect_clean()
        self.append("src/millrace/train/run/run.cpp", 'const char* kFirst = "skies";\n')
        self.expect("src/millrace/train/run/run.cpp", ["skies", "Entry"], 7)

    def test_a_name_that_its_file_does_not_have(self):
        self.append("CHANGELOG.md", "- [`Source::run`](src/millrace/train/run/run.cpp)\n")
        self.expect_clean()
        self.append("CHANGELOG.md", "- [`Source::walk`](src/millrace/train/run/run.cpp)\n")
        self.expect("CHANGELOG.md", ["has no walk"], 6)

    def test_the_good_tree_is_good(self):
        self.expect_clean()

    # floors

    def test_include_up(self):
        self.append("src/millrace/base/error.h", '#include "millrace/train/run/run.h"\n')
        self.expect("src/millrace/base/error.h", ["base (floor 0)", "train/run (floor 5)", "up", "value or a function", "ARCHITECTURE.md"], 3)

    def test_include_up_between_folders_of_one_folder(self):
        self.append("src/millrace/train/step/objective_step.h", '#include "millrace/train/run/run.h"\n')
        self.expect("src/millrace/train/step/objective_step.h", ["train/step (floor 4)", "train/run (floor 5)", "up"])

    def test_include_sideways(self):
        self.append("src/millrace/data/loader/loader.h", '#include "millrace/nn/layers.h"\n')
        self.expect("src/millrace/data/loader/loader.h", ["data (floor 3)", "nn (floor 3)", "sideways"])

    def test_include_of_internals(self):
        self.append("src/millrace/train/run/run.h", '#include "millrace/data/detail/ring.h"\n')
        self.expect("src/millrace/train/run/run.h", ["internal to data"])

    def test_include_of_own_internals_is_fine(self):
        self.append("src/millrace/data/loader/loader.h", '#include "millrace/data/detail/ring.h"\n')
        self.expect_clean()

    def test_include_of_what_is_for_tests(self):
        self.write("src/millrace/data/loader/loader_test.cpp", '#include "tests/support/fault_fs.h"\n')
        self.write("src/millrace/data/detail/test_run.h", '// Runs.\n#pragma once\n#include "tests/support/fault_fs.h"\n')
        self.expect_clean()
        self.append("src/millrace/data/loader/loader.h", '#include "tests/support/fault_fs.h"\n')
        self.expect("src/millrace/data/loader/loader.h", ["for tests only", "installed"], 5)

    def test_include_that_does_not_exist(self):
        self.append("src/millrace/train/run/run.h", '#include "millrace/data/gone.h"\n')
        self.expect("src/millrace/train/run/run.h", ["does not exist"])

    def test_include_of_ours_in_angle_brackets(self):
        self.append("src/millrace/train/run/run.h", "#include <millrace/data/loader/loader.h>\n")
        self.expect("src/millrace/train/run/run.h", ["quotes"])

    def test_recipe_that_uses_another_recipe(self):
        self.write("recipes/a/model.h", "// A.\n#pragma once\n")
        self.write("recipes/common/words.h", "// Words.\n#pragma once\n")
        self.write("recipes/b/files/source.h", "// B.\n#pragma once\n")
        self.write("recipes/b/model.cpp", '#include "recipes/a/model.h"\n#include "recipes/b/files/source.h"\n#include "recipes/common/words.h"\n')
        self.write("recipes/registry.cpp", '#include "recipes/a/model.h"\n')
        self.expect("recipes/b/model.cpp", ["recipe b may not include recipe a"])

    def test_recipe_in_the_runtime(self):
        self.write("recipes/registry.h", "// All.\n#pragma once\n")
        self.append("ARCHITECTURE.md", "| 6 | `cli` | commands |\n")
        self.append("CMakeLists.txt", "mr_folder(cli DEPENDS train/run)\n")
        self.write("src/millrace/cli/main.cpp", '#include "recipes/registry.h"\n')
        self.expect_clean()
        self.append("src/millrace/train/run/run.cpp", '#include "recipes/registry.h"\n')
        self.expect("src/millrace/train/run/run.cpp", ["knows no recipe", "main.cpp"], 6)

    def test_recipe_with_an_internal_header(self):
        self.write("recipes/a/model.cpp", '#include "millrace/data/loader/source.h"\n')
        for name in ("recipes/a/model_test.cpp", "recipes/a/detail/test_rows.h"):
            self.write(name, '// Rows.\n#pragma once\n#include "millrace/data/loader/loader.h"\n')
        self.expect_clean()
        self.append("recipes/a/model.cpp", '#include "millrace/data/loader/loader.h"\n')
        self.expect("recipes/a/model.cpp", ["millrace/data/loader/loader.h is internal", "cmake/public_headers.txt"], 2)

    def test_include_of_a_recipe_that_does_not_exist(self):
        self.write("recipes/registry.cpp", '#include "recipes/a/gone.h"\n')
        self.expect("recipes/registry.cpp", ["recipes/a/gone.h does not exist"])

    def test_folder_without_a_row(self):
        self.write("src/millrace/doctor/rules.h", "// Rules.\n#pragma once\n")
        self.append("CMakeLists.txt", "mr_folder(doctor DEPENDS base)\n")
        self.expect("ARCHITECTURE.md", ["src/millrace/doctor", "add its row"])

    def test_row_without_a_folder(self):
        self.append("ARCHITECTURE.md", "| 3 | `doctor` | rules |\n")
        self.expect("ARCHITECTURE.md", ["src/millrace/doctor", "does not exist"])

    def test_row_that_stands_twice(self):
        self.append("ARCHITECTURE.md", "| 3 | `data` | loader |\n")
        self.expect("ARCHITECTURE.md", ["twice"], 10)

    def test_folder_that_is_not_built(self):
        self.append("ARCHITECTURE.md", "| 3 | `doctor` | rules |\n")
        self.write("src/millrace/doctor/rules.h", "// Rules.\n#pragma once\n")
        self.expect("CMakeLists.txt", ["mr_folder(doctor"])

    def test_library_that_links_up(self):
        self.write("CMakeLists.txt", GOOD["CMakeLists.txt"].replace("data DEPENDS base", "data DEPENDS base train/run"))
        self.expect("CMakeLists.txt", ["data (floor 3)", "train/run (floor 5)"], 3)

    def test_library_that_is_used_and_not_linked(self):
        self.write("CMakeLists.txt", GOOD["CMakeLists.txt"].replace("DEPENDS data nn train/step", "DEPENDS nn train/step"))
        self.expect("src/millrace/train/run/run.h", ["train/run includes data", "mr_folder(train/run DEPENDS ...)"], 4)

    def test_own_header_comes_first(self):
        self.write("src/millrace/base/error.cpp", "// Errors.\n#include <string>\n#include \"millrace/base/error.h\"\n")
        self.expect("src/millrace/base/error.cpp", ["include millrace/base/error.h first"], 2)

    # includes of other folders

    def test_torch_whole(self):
        self.append("src/millrace/train/run/run.cpp", "#include <torch/torch.h>\n")
        self.expect("src/millrace/train/run/run.cpp", ["<torch/torch.h>", "ATen/ops"])

    def test_torch_whole_outside_src(self):
        self.write("bench/step.cpp", "  #  include <torch/torch.h>\n")
        self.expect("bench/step.cpp", ["<torch/torch.h>"], 1)

    def test_all_of_aten(self):
        self.append("src/millrace/train/run/run.cpp", "#include <ATen/ATen.h>\n")
        self.expect("src/millrace/train/run/run.cpp", ["every operation"])

    def test_heavy_header(self):
        self.append("src/millrace/train/run/run.h", "#include <torch/nn.h>\n")
        self.expect("src/millrace/train/run/run.h", ["heavy", "ATen/core/Tensor.h"])

    def test_operation_in_a_header(self):
        self.append("src/millrace/train/run/run.h", "#include <ATen/ops/add.h>\n")
        self.expect("src/millrace/train/run/run.h", ["heavy"])

    def test_fmt_outside_base(self):
        self.append("src/millrace/train/run/run.cpp", "#include <fmt/core.h>\n")
        self.expect("src/millrace/train/run/run.cpp", ["base/format.h"])

    def test_fmt_in_a_header_of_base(self):
        self.append("src/millrace/base/error.h", "#include <fmt/core.h>\n")
        self.expect("src/millrace/base/error.h", ["base/format.h"])

    # sizes

    def test_function_at_the_limit(self):
        self.append("src/millrace/train/run/run.cpp", function(70))
        self.expect_clean()

    def test_long_function(self):
        self.append("src/millrace/train/run/run.cpp", "namespace a {\n" + function(71) + "}  // namespace a\n")
        self.expect("src/millrace/train/run/run.cpp", ["71 lines", "70"], 7)

    def test_long_method(self):
        self.append("src/millrace/train/run/run.cpp", "class A final : public B {\n public:\n" + function(80, "  void f(int x) const override") + "};\n")
        self.expect("src/millrace/train/run/run.cpp", ["80 lines"])

    def test_long_constructor_with_braced_members(self):
        self.append("src/millrace/train/run/run.cpp", function(75, "A::A(int x) : a_{x}, b_{x}"))
        self.expect("src/millrace/train/run/run.cpp", ["75 lines"])

    def test_braces_in_text_and_comments_do_not_count(self):
        noise = 'const char* a = "{ (";  // {\nchar b = \'{\'; /* { */ const char* c = R"x(")" { )x";\n'
        self.append("src/millrace/train/run/run.cpp", noise + function(30, "int g(int x)") + function(71))
        self.expect("src/millrace/train/run/run.cpp", ["71 lines"])

    def test_long_table_is_no_function(self):
        self.append("src/millrace/train/run/run.cpp", "constexpr int kTable[] = {\n" + "  1,\n" * 100 + "};\n")
        self.expect_clean()

    def test_class_with_many_public_functions(self):
        rest = ("  A();\n  ~A();\n  A& operator=(const A&) = delete;\n  enum class B { one, two };\n  std::function<void(int)> told_;\n"
                "  int size_ = count();\n private:\n  void hidden();\n public:\n")
        functions = "".join(f"  [[nodiscard]] std::map<int, int> f{i}(int x = 1) const {{ return {{}}; }}\n" for i in range(20))
        self.append("src/millrace/train/run/run.h", "class A final : public Base {\n public:\n" + rest + functions + "};\n")
        self.expect_clean()
        self.append("src/millrace/train/run/run.h", "struct C {\n" + functions + "  void one_more();\n};\n")
        self.expect("src/millrace/train/run/run.h", ["C has 21 public functions", "20 are the most"], 37)

    def test_class_with_many_public_functions_elsewhere(self):
        functions = "".join(f"  void f{i}();\n" for i in range(21))
        self.append("src/millrace/base/error.h", "struct C {\n" + functions + "};\n")
        self.expect_clean()

    def test_long_file(self):
        self.write("tools/long.py", "x = 1\n" * 501)
        self.expect("tools/long.py", ["501 lines"])

    def test_folder_of_too_many_files(self):
        header = "// Files.\n#pragma once\n"
        for folder in ("src/millrace/train/run", "recipes/a", "recipes/a/files"):
            there = len(list((self.root / folder).glob("*.*")))
            for i in range(there, tidy.MAX_FOLDER_FILES):
                self.write(f"{folder}/more_{i}.h", header)
            self.write(f"{folder}/more_test.cpp", "int x = 0;\n")
            self.write(f"{folder}/detail/test_more.h", header)
            self.expect_clean()
            self.write(f"{folder}/last.h", header)
            self.expect(folder, ["46 sources", "45 sources", "split the folder"])
            (self.root / folder / "last.h").unlink()

    def test_folder_of_too_many_lines(self):
        for i in range(10):
            self.write(f"src/millrace/base/table_{i}.cpp", "int x = 0;\n" * 490)
        self.expect_clean()
        self.write("src/millrace/base/table_10.cpp", "int x = 0;\n" * 101)
        self.expect("src/millrace/base", ["50", "lines", "split the folder"])

    def test_folder_of_kernels_has_a_file_for_each_operation(self):
        self.append("ARCHITECTURE.md", "| 3 | `kernels` | operations |\n")
        self.append("CMakeLists.txt", "mr_folder(kernels DEPENDS base)\n")
        for i in range(46):
            self.write(f"src/millrace/kernels/operation_{i}.h", "// One.\n#pragma once\n")
        self.expect_clean()

    def test_long_architecture_page(self):
        self.append("ARCHITECTURE.md", "\nx" * 150)
        self.expect("ARCHITECTURE.md", ["150 are the most"])

    # text

    def test_machine_path(self):
        self.append("src/millrace/train/run/run.cpp", 'const char* p = "' + "/ho" + 'me/someone/x";\n')
        self.expect("src/millrace/train/run/run.cpp", ["one machine"], 6)

    def test_scratch_path(self):
        self.append("src/millrace/train/run/run.cpp", 'const char* p = "' + "/tm" + 'p/x";\n')
        self.write("src/millrace/train/run/run_test.cpp", 'const char* p = "' + "/tm" + 'p/x";\n')
        self.expect("src/millrace/train/run/run.cpp", ["one machine"])

    def test_path_of_the_environment_is_fine(self):
        self.write("tools/x.sh", 'cache=$HOME' + "/wo" + 'rk/x\nlocal=./' + "tm" + "p/x\n")
        self.expect_clean()

    def test_registry_host(self):
        self.write("tools/fetch.sh", "pip install --index-url https://py" + "pi.org/simple x\n")
        self.expect("tools/fetch.sh", ["registry"])

    def test_open_end(self):
        self.append("src/millrace/train/run/run.cpp", "// TO" + "DO: later\n")
        self.expect("src/millrace/train/run/run.cpp", ["open ends"])

    def test_name_of_the_compiler(self):
        self.append("src/millrace/train/run/run.cpp", "int n = __LINE__;\nstruct _Private {};\n")
        self.expect("src/millrace/train/run/run.cpp", ["_Private is a name of the compiler's"], 7)
        self.write("src/millrace/train/run/run.cpp", '#include "millrace/train/run/run.h"\n#define MR__X 1\n')
        self.expect("src/millrace/train/run/run.cpp", ["MR__X is a name"], 2)

    # headers and papers

    def test_constant_of_two_sources(self):
        text = 'namespace millrace{} {{\nnamespace {{\n\nconstexpr std::array<int, 2> kNames = {{1, 2}};\n\n}}  // namespace\n}}\n'
        self.write("src/millrace/data/a.cpp", text.format(""))
        self.write("src/millrace/data/detail/b.cpp", text.format("::detail"))
        self.expect("src/millrace/data/detail/b.cpp", ["kNames is a constant of src/millrace/data/a.cpp too"])

    def test_constant_of_a_source_and_a_test(self):
        text = "namespace millrace {\nnamespace {\n\nconstexpr int kRows = 2;\n\n}  // namespace\n}\n"
        self.write("src/millrace/data/a.cpp", text)
        self.write("src/millrace/data/a_test.cpp", text)
        self.expect_clean()

    def test_number_of_the_host_in_a_step(self):
        for folder, what in (("nn", "at::tensor({1.0F, 2.0F})"), ("nn", "x.sum().item<double>()"), ("nn", "x.cpu()"),
                             ("nn", "x.max().item<std::int64_t>()"), ("nn", "torch::tensor(taps)")):
            self.write(f"src/millrace/{folder}/layers.cpp", f'#include "millrace/nn/layers.h"\n\nauto f() {{ return {what}; }}\n')
            self.expect(f"src/millrace/{folder}/layers.cpp", ["a GPU is waited for", "// host:"], line=3)

    def test_number_of_the_host_with_a_reason(self):
        self.write("src/millrace/nn/layers.cpp", '#include "millrace/nn/layers.h"\n\n'
                   'auto f() { return at::tensor({1.0F}); }  // host: made once\n// a comment: at::tensor(\n')
        self.expect_clean()

    def test_number_of_the_host_with_an_excuse_that_is_too_far_away(self):
        self.write("src/millrace/nn/layers.cpp", '#include "millrace/nn/layers.h"\n// host: made once\n' + "\n" * 5 + "auto f() { return x.cpu(); }\n")
        self.expect("src/millrace/nn/layers.cpp", ["a GPU is waited for"])

    def test_number_of_the_host_outside_a_step(self):
        for name in ("src/millrace/train/run/report.cpp", "src/millrace/nn/layers_test.cpp"):
            self.write(name, "auto f() { return x.cpu(); }\n")
        self.expect_clean()

    def test_header_without_pragma(self):
        self.write("src/millrace/train/run/more.h", "// More.\n#ifndef MORE_H_\n#define MORE_H_\n#endif\n")
        self.expect("src/millrace/train/run/more.h", ["#pragma once"])

    def test_header_without_contract(self):
        self.write("src/millrace/train/run/more.h", "#pragma once\n")
        self.expect("src/millrace/train/run/more.h", ["contract"])

    def test_a_kind_of_gpu_outside_device(self):
        asks = "\n// is_cuda() in words is none\nbool on(const at::Tensor& x) {\n  return x.is_cuda();\n}\n"
        self.append("src/millrace/train/run/run.cpp", asks)
        self.expect("src/millrace/train/run/run.cpp", ["is_cuda", "nature_of"], 9)
        self.write("src/millrace/train/run/run.cpp", GOOD["src/millrace/train/run/run.cpp"])
        self.write("src/millrace/device/cuda/backend.cpp", asks)
        self.assertFalse([entry for entry in tidy.tidy(self.root) if "nature_of" in entry[2]], "the one place that may")

    def test_a_launch_in_a_destructor(self):
        keep = "struct Keep {{\n  ~Keep() {{\n    {}\n  }}\n}};\n"
        for launch in ("buffer.copy_(value);", "guard.settle(at::ones({1}));", "x->zero_();"):
            self.write("src/millrace/train/run/run.cpp", GOOD["src/millrace/train/run/run.cpp"] + keep.format(launch))
            self.expect("src/millrace/train/run/run.cpp", ["a destructor that calls", "base/finally.h"], 7)
        for quiet in ("try { buffer.copy_(value); } catch (const std::exception&) {}", "at::set_num_threads(2);", "scope = outer_;"):
            self.write("src/millrace/train/run/run.cpp", GOOD["src/millrace/train/run/run.cpp"] + keep.format(quiet))
            self.expect_clean()

    def test_record_without_its_cost(self):
        self.write("docs/decisions/0001-floors.md", RECORD.replace("## What we gave up", "## Gains"))
        self.expect("docs/decisions/0001-floors.md", ["What we gave up"])

    def test_record_with_a_gap_in_the_numbers(self):
        self.write("docs/decisions/0003-loop.md", RECORD)
        self.append("docs/decisions/README.md", "[0003-loop.md](0003-loop.md)\n")
        self.expect("docs/decisions/0003-loop.md", ["0002-"])

    def test_record_that_is_not_listed(self):
        self.write("docs/decisions/0002-loop.md", RECORD)
        self.expect("docs/decisions/README.md", ["0002-loop.md"])

    def test_versions_that_differ(self):
        self.write("src/millrace/base/version.h", GOOD["src/millrace/base/version.h"].replace("0.1.0", "0.2.0"))
        self.expect("src/millrace/base/version.h", ["0.2.0", "0.1.0"])

    def test_a_large_file(self):
        self.write("numbers.whl", "x" * 300_000)
        self.expect("numbers.whl", ["300 kB"])

    def test_changelog_without_an_entry(self):
        self.write("CHANGELOG.md", "# Changelog\n\n## [0.0.9]\n")
        self.expect("CHANGELOG.md", ["Unreleased"])

    def test_changelog_with_the_version(self):
        self.write("CHANGELOG.md", "# Changelog\n\n## [0.1.0] - 2025-01-01\n")
        self.expect_clean()

    def test_dead_link(self):
        self.write("README.md", "[x](docs/decisions/README.md#top) [y](https://example.org) [z](gone.md)\n")
        self.expect("README.md", ["gone.md"])

    # the program

    def run_tool(self):
        return subprocess.run([sys.executable, str(TOOL), "--root", str(self.root)], capture_output=True, text=True)

    def test_exit_status_and_output(self):
        self.assertEqual((self.run_tool().returncode, self.run_tool().stdout), (0, ""))
        self.append("src/millrace/train/run/run.cpp", "#include <torch/torch.h>\n")
        result = self.run_tool()
        self.assertEqual(result.returncode, 1)
        self.assertTrue(result.stdout.startswith("src/millrace/train/run/run.cpp:6: <torch/torch.h>"), result.stdout)
        self.assertEqual(result.stderr, "house rules broken: 1\n")

    def test_only_files_that_git_would_keep(self):
        if shutil.which("git") is None:
            self.skipTest("no git here")
        subprocess.run(["git", "init", "-q", str(self.root)], check=True)
        self.write(".gitignore", "/build/\n")
        self.write("build/x.cpp", "#include <torch/torch.h>\n")
        self.expect_clean()


if __name__ == "__main__":
    unittest.main()
