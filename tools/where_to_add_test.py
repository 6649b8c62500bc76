"""Tests of the table "Where do I add …?" in ARCHITECTURE.md: each file that a row names exists, and two rows are carried out.

A doctor rule and a fused kernel are added to a scratch copy of the sources as their rows say: the files that had to be edited must be
those that the row names. What changed is compiled with the build's own commands, linked with the build's libraries and run. The build
is MILLRACE_BUILD (set by tools/run_tests.py), or build/release; a test that lacks what it links is skipped.
"""
import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("MILLRACE_BUILD") or ROOT / "build/release").resolve()
BASE = "src/millrace/"
HEADING = "## Where do I add"
FILE = re.compile(r"[\w./*-]*[\w*]\.(?:h|cpp|inl|py|md|txt|cmake|json)")
SOMETIMES = re.compile(r"[.;] (?=Where |Its tests: )")  # files named after it are edited only in some cases
CASES = ("tests/", "docs/")


def rows(text):
    """Each row of the table: what is added → (what to do, what to copy)."""
    table = text.split(HEADING, 1)[1].split("\n\n")[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table if line.startswith("|")]
    return {row[0]: (row[1], row[2]) for row in cells[2:]}


def named(words):
    """The files named in backticks or by a link, as paths or patterns from the top folder."""
    found = re.findall(r"`([^`]+)`", words) + re.findall(r"\]\(([^)#]+)\)", words)
    return list(dict.fromkeys(from_top(name) for name in found if FILE.fullmatch(name)))


def from_top(name):
    return name if list(ROOT.glob(name)) or not list((ROOT / BASE).glob(name)) else BASE + name


def matches(file, pattern):
    return file.count("/") == pattern.count("/") and fnmatch.fnmatchcase(file, pattern)


def differences(words, edited):
    """The differences between the files that a row names and those that were edited, a line each."""
    always = named(SOMETIMES.split(words)[0])
    found = [f"{file} is not in the row" for file in edited if not any(matches(file, pattern) for pattern in named(words))]
    return found + [f"{pattern} is in the row, and no such file was edited" for pattern in always
                    if not any(matches(file, pattern) for file in edited)]


class Table(unittest.TestCase):
    def setUp(self):
        self.rows = rows((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))

    def test_each_file_that_a_row_names_is_there(self):
        self.assertGreater(len(self.rows), 20)
        for thing, cells in self.rows.items():
            for name in [file for cell in cells for file in named(cell)]:
                with self.subTest(thing):
                    self.assertTrue(list(ROOT.glob(name)), f"{name} is neither there nor in {BASE}")

    def test_a_file_too_few_and_a_file_too_many_are_seen(self):
        words = "a line in `doctor/rules.cpp`, its page. Where it is new: `kernels/detail/*.inl`"
        inl = BASE + "kernels/detail/rows.inl"
        self.assertEqual(differences(words, [BASE + "doctor/rules.cpp"]), [])
        self.assertEqual(differences(words, [BASE + "doctor/rules.cpp", inl]), [])
        self.assertEqual(len(differences(words, [BASE + "doctor/rules.cpp", BASE + "nn/volume.h"])), 1)
        self.assertEqual(len(differences(words, [inl])), 1)


class Planted(unittest.TestCase):
    """A scratch copy of the edited files, which precedes the tree in the compiler's list of include folders."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="millrace-where-")
        self.addCleanup(scratch.cleanup)
        self.scratch = Path(scratch.name)
        self.edited = []
        self.objects = []

    def row(self, thing):
        return rows((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))[thing][0]

    def path(self, name):
        path = self.scratch / name
        if name not in self.edited:
            self.edited.append(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).exists():
                shutil.copy(ROOT / name, path)
        return path

    def write(self, name, text):
        self.assertFalse((ROOT / name).exists(), f"{name} is there: choose another name")
        self.path(name).write_text(text, encoding="utf-8")

    def insert(self, name, before, text):
        """Puts `text` before the last line that begins with `before`."""
        path = self.path(name)
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        at = [i for i, line in enumerate(lines) if line.startswith(before)]
        self.assertTrue(at, f"{name} has no line that begins with {before!r}")
        path.write_text("".join(lines[:at[-1]]) + text + "".join(lines[at[-1]:]), encoding="utf-8")

    def expect_the_rows_files(self, thing):
        """The row names exactly the edited files; a row without one of them would be found."""
        words = self.row(thing)
        self.assertEqual(differences(words, self.edited), [])
        for name in named(SOMETIMES.split(words)[0]):
            short = name.removeprefix(BASE)
            with self.subTest(f"a row without {short}"):
                self.assertNotEqual(differences(words.replace(name, "").replace(short, ""), self.edited), [])

    def commands(self):
        """The build's compile commands by the object that they make, and its source folder."""
        listing = BUILD / "compile_commands.json"
        cache = BUILD / "CMakeCache.txt"
        if not listing.exists() or not cache.exists():
            self.skipTest(f"{BUILD} is no build")
        home = re.search(r"^CMAKE_HOME_DIRECTORY:INTERNAL=(.*)$", cache.read_text(encoding="utf-8"), re.MULTILINE).group(1)
        commands = {}
        for entry in json.loads(listing.read_text(encoding="utf-8")):
            words = shlex.split(entry["command"])
            commands[words[words.index("-o") + 1]] = words
        return commands, home

    def compile(self, name, like, *flags):
        """Compiles a file, from the scratch copy if it is in there, as the build compiles the first object whose name begins with `like`."""
        commands, home = self.commands()
        words = next((words for made, words in sorted(commands.items()) if made.startswith(like)), None)
        if words is None:
            self.skipTest(f"{BUILD} does not make {like}")
        words = list(words)
        at = words.index(f"-I{home}/src")
        words[at:at + 1] = [f"-I{self.scratch}/src", f"-I{ROOT}/src"]
        target = self.scratch / (Path(name).name + ".o")
        words[words.index("-o") + 1] = str(target)
        source = self.scratch / name
        words[words.index("-c") + 1] = str(source if source.exists() else ROOT / name)
        done = subprocess.run([*words, *flags], cwd=BUILD, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr[-4000:])
        self.objects.append(str(target))

    def link_and_run(self, like, **environment):
        """Links the objects before the libraries of a test program of the build, and returns the program's output."""
        if shutil.which("ninja") is None:
            self.skipTest("ninja is missing, which knows how the build links")
        listing = subprocess.run(["ninja", "-t", "commands", "-s", like], cwd=BUILD, capture_output=True, text=True)
        if listing.returncode != 0:
            self.skipTest(f"{BUILD} has no {like}")
        command = re.search(r"^: && (.*) && :$", listing.stdout.strip().splitlines()[-1]).group(1)
        words = [word for word in shlex.split(command) if not word.endswith(".o") and "millrace_test_main" not in word]
        missing = [word for word in words if word.endswith(".a") and not (BUILD / word).exists()]
        if missing:
            self.skipTest(f"{BUILD} lacks {missing[0]}")
        words[words.index("-o"):words.index("-o") + 2] = [*self.objects, "-o", str(self.scratch / "program")]
        done = subprocess.run([*words, "-Wl,--allow-multiple-definition"], cwd=BUILD, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr[-4000:])
        done = subprocess.run([self.scratch / "program"], cwd=self.scratch, capture_output=True, text=True,
                              env={**os.environ, **environment})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout.splitlines()

    def program(self, text):
        (self.scratch / "main.cpp").write_text(text, encoding="utf-8")


RULE = """
Found planted_crowd(const Evidence& e) {
  if (e.input.readers < 1000) return std::nullopt;
  return set(std::to_string(e.input.readers) + " readers", "data.workers", "8", gain_of(0.25));
}

"""
JUDGES = """
#include <cstdio>
#include "millrace/doctor/rules.h"

using namespace millrace;

int main() {
  doctor::Evidence evidence;
  evidence.step = evidence.times.steps = 100;
  evidence.cores = 4;
  evidence.times.seconds[static_cast<std::size_t>(telemetry::Phase::forward)] = 10;
  evidence.times.wall = 10;
  for (const doctor::Rule& rule : doctor::rules()) std::printf("rule %s\\n", std::string(rule.id).c_str());
  for (const int readers : {4, 2000}) {
    evidence.input.readers = readers;
    for (const doctor::Finding& finding : doctor::findings_of(evidence))
      std::printf("%d %s\\n", readers, doctor::to_text(finding).c_str());
  }
}
"""


class DoctorRule(Planted):
    def plant(self):
        doctor = BASE + "doctor/"
        self.insert(doctor + "rules_input.cpp", "}  // namespace millrace::doctor::detail", RULE)
        self.insert(doctor + "detail/rule_list.h", "// In rules_time.cpp:", "Found planted_crowd(const Evidence& evidence);\n")
        self.insert(doctor + "rules.cpp", '    Rule{"log_often"',
                    '    Rule{"planted_crowd", "there is a crowd of readers", detail::planted_crowd, Stake::time, {"data_wait"}},\n')
        self.insert("docs/doctor.md", "### log_often", "### planted_crowd\nThere are a thousand readers or more.\n\n")

    def test_the_row_names_what_a_rule_touches(self):
        self.plant()
        self.expect_the_rows_files("a doctor rule")
        self.assertLessEqual(len([name for name in self.edited if not name.startswith(CASES)]), 4)

    def test_a_rule_planted_by_the_row_speaks(self):
        self.plant()
        self.program(JUDGES)
        for name in (BASE + "doctor/rules_input.cpp", BASE + "doctor/rules.cpp", "main.cpp"):
            self.compile(name, "CMakeFiles/millrace_doctor.dir/", "-O0")
        said = self.link_and_run("millrace_doctor_test")
        self.assertIn("2000 planted_crowd: 2000 readers; try --data.workers=8: about 25 % less time (20 % to 30 %)", said)
        self.assertFalse([line for line in said if line.startswith("4 ")], "a run without the fault")
        page = self.path("docs/doctor.md").read_text(encoding="utf-8")
        rules = [line.removeprefix("rule ") for line in said if line.startswith("rule ")]
        self.assertIn("planted_crowd", rules)
        self.assertEqual([rule for rule in rules if f"\n### {rule}\n" not in page], [])


ARGUMENTS = """// Half of x squared, or with a gradient: the gradient of x. Groups of 128 elements.
struct HalfSquare {
  const void* x;
  const void* gradient;  // null in the forward pass
  void* out;
  Type type;
  std::int64_t count;
};

"""
LOOPS = """// Half of a square, for sixteen lanes at a time.
#pragma once

#include "millrace/kernels/detail/elementwise.inl"
#include "millrace/kernels/detail/table.h"

namespace {

using namespace millrace::kernels::detail;

template <class X>
void half_square_of(const HalfSquare& a, std::int64_t first_group, std::int64_t last_group) {
  const auto* x = static_cast<const X*>(a.x);
  const auto* gradient = static_cast<const X*>(a.gradient);
  auto* out = static_cast<X*>(a.out);
  const std::int64_t end = last_group * 128 < a.count ? last_group * 128 : a.count;
  for (std::int64_t i = first_group * 128; i < end; i += 16) {
    const F v = load_some(x + i, end - i);
    const F other = gradient == nullptr ? mul(v, splat(0.5F)) : load_some(gradient + i, end - i);
    store_some(out + i, mul(v, other), end - i);
  }
}

void half_square(const HalfSquare& a, std::int64_t first_group, std::int64_t last_group) {
  with_type(a.type, [&](auto* x) { half_square_of<typename Pointee<decltype(x)>::type>(a, first_group, last_group); });
}

}  // namespace
"""
OPERATION_HEADER = """// Half of x squared.
#pragma once

#include <ATen/core/Tensor.h>

namespace millrace::kernels {

at::Tensor half_square(const at::Tensor& x);
at::Tensor half_square_plain(const at::Tensor& x);

}  // namespace millrace::kernels
"""
OPERATION = """#include "millrace/kernels/half_square.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "millrace/kernels/arguments.h"
#include "millrace/kernels/operation_span.h"
#include "millrace/kernels/parallel.h"

namespace millrace::kernels {
namespace {

at::Tensor half_square_run(const at::Tensor& x, const at::Tensor& gradient) {
  at::Tensor out = at::empty_like(x);
  const detail::HalfSquare args{.x = x.const_data_ptr(),
                                .gradient = gradient.defined() ? gradient.const_data_ptr() : nullptr,
                                .out = out.mutable_data_ptr(),
                                .type = type_of(x),
                                .count = x.numel()};
  parallel((args.count + 127) / 128, [&](std::int64_t begin, std::int64_t end) { detail::table().half_square(args, begin, end); });
  return out;
}

struct HalfSquareFunction : torch::autograd::Function<HalfSquareFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return half_square_run(x, {});
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    return {half_square_run(context->get_saved_variables()[0], gradients[0].contiguous())};
  }
};

}  // namespace

at::Tensor half_square(const at::Tensor& x) {
  if (!has_kernel(x)) return half_square_plain(x);
  const OperationSpan span("millrace::half_square", x);
  return HalfSquareFunction::apply(x.contiguous());
}

at::Tensor half_square_plain(const at::Tensor& x) { return x * x * 0.5; }

}  // namespace millrace::kernels
"""
SWITCH = """inline constexpr Switch kHalfSquare{"half_square"};  // two products
at::Tensor half_square(const at::Tensor& x, const Fused& fused);

"""
FUNCTION = """at::Tensor half_square(const at::Tensor& x, const Fused& fused) {
  return choose<kHalfSquare>(fused) ? kernels::half_square(x) : kernels::half_square_plain(x);
}

"""
SWITCH_ROW = """    SwitchRow{"half_square", "half of a square in one pass forward and one backward", "two products", Equality::tolerance, 1e-6,
              false, named()},
"""
COMPARES = """
#include <ATen/TensorOperators.h>
#include <ATen/ops/linspace.h>
#include <cstdio>
#include <string>
#include <torch/csrc/autograd/custom_function.h>
#include <vector>
#include "millrace/kernels/detail/choice.h"
#include "millrace/nn/volume.h"
#include "millrace/telemetry/counter.h"
#include "millrace/train/recipe/switchboard.h"

using namespace millrace;

int main() {
  const telemetry::Counter taken("half_square");
  for (const bool is_off : {true, false}) {
    const std::vector<std::string> off(is_off ? 1 : 0, "half-square");
    const Switches switches(off);
    std::vector<nn::Switch> left_out;
    for (const Switches::Setting& setting : switches.settings())
      if (!setting.on) left_out.push_back({setting.row->name});
    const at::Tensor x = at::linspace(-2, 2, 1001).requires_grad_();
    const at::Tensor y = nn::half_square(x, nn::Fused::without(left_out));
    const std::string made_by = y.grad_fn()->name();
    y.sum().backward();
    const double error = (y.detach() - x.detach().square() / 2).abs().max().item<double>();
    const double gradient_error = (x.grad() - x.detach()).abs().max().item<double>();
    std::printf("%s: by %s, kernel %s, taken %d, %s\\n", is_off ? "off" : "on", std::string(kernels::detail::table().name).c_str(),
                made_by.find("HalfSquareFunction") != std::string::npos ? "yes" : "no", static_cast<int>(taken.total()),
                error < 1e-6 && gradient_error < 1e-6 ? "equal" : "wrong");
  }
}
"""


class FusedKernel(Planted):
    def plant(self):
        kernels, nn = BASE + "kernels/", BASE + "nn/"
        self.write(kernels + "detail/half_square.inl", LOOPS)
        self.insert(kernels + "detail/table.h", "// Every kernel: ", ARGUMENTS)
        self.add_to_the_list(kernels + "detail/table.h")
        self.insert(kernels + "detail/table.inl", '#include "millrace/kernels/detail/product.inl"',
                    '#include "millrace/kernels/detail/half_square.inl"\n')
        self.write(kernels + "half_square.h", OPERATION_HEADER)
        self.write(kernels + "half_square.cpp", OPERATION)
        self.insert(nn + "volume.h", "}  // namespace millrace::nn", SWITCH)
        self.insert(nn + "volume.cpp", '#include "millrace/kernels/operation_trial.h"', '#include "millrace/kernels/half_square.h"\n')
        self.insert(nn + "volume.cpp", "}  // namespace millrace::nn", FUNCTION)
        self.insert(BASE + "train/recipe/switchboard.cpp", '    SwitchRow{"async_snapshot"', SWITCH_ROW)

    def add_to_the_list(self, name):
        """Adds a line after the last one, so that the other lines keep their positions and only one instruction set is compiled again."""
        path = self.path(name)
        before, rest = path.read_text(encoding="utf-8").split("#define MILLRACE_KERNELS(KERNEL)", 1)
        rows_of_it, after = rest.split("\n\n", 1)
        line = " \\\n  KERNEL(void, half_square, (const HalfSquare&, std::int64_t first_group, std::int64_t last_group))"
        path.write_text(f"{before}#define MILLRACE_KERNELS(KERNEL){rows_of_it}{line}\n\n{after}", encoding="utf-8")

    def test_the_row_names_what_a_kernel_touches(self):
        self.plant()
        self.expect_the_rows_files("a fused kernel")
        new = [BASE + "kernels/detail/half_square.inl", BASE + "kernels/detail/table.inl"]  # count as one: loops may go into an existing .inl
        self.assertLessEqual(len([name for name in self.edited if name not in new]) + 1, 7)

    def test_a_kernel_planted_by_the_row_runs(self):
        self.plant()
        self.program(COMPARES)
        made = "CMakeFiles/millrace_"
        self.compile(BASE + "kernels/detail/table_portable.cpp", made + "kernels.dir/src/millrace/kernels/detail/table_portable", "-O0")
        self.compile(BASE + "kernels/half_square.cpp", made + "kernels.dir/")
        self.compile(BASE + "nn/volume.cpp", made + "nn.dir/")
        self.compile(BASE + "train/recipe/switchboard.cpp", made + "train_recipe.dir/")
        self.compile("main.cpp", made + "kernels.dir/")
        said = self.link_and_run("millrace_train_recipe_test", MILLRACE_CPU="portable")
        self.assertEqual(said, ["off: by portable, kernel no, taken 0, equal", "on: by portable, kernel yes, taken 1, equal"])


if __name__ == "__main__":
    unittest.main()
