#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <string>
#include <system_error>

#include "millrace/base/format.h"
#include "millrace/base/fs.h"
#include "millrace/base/shell_word.h"
#include "millrace/cli/detail/templates.h"
#include "millrace/cli/shared/arguments.h"
#include "millrace/cli/shared/command.h"
#include "millrace/cli/shared/text.h"

namespace millrace::cli {
namespace {

constexpr std::string_view kNewHelp =
    R"(Makes the folder NAME with a recipe of your own, complete and small: data, augmentation, model, loss, metrics, a picture,
predict, and tests. It trains at once, on data that it makes itself; README.md in the folder says which line to change for yours.
NAME is a lower-case word: letters, digits and underscores.

  --kind table          predict a number from the columns of a table: CSV or .npy files (the default)
  --kind image          classify small pictures: a folder of PNG or JPEG files for each class
  --kind signal         classify signals, sounds and series: a folder of .wav or .npy files for each class
  --kind volume         remove noise from 3-D volumes: NIfTI, .npy or HDF5 files
  --kind text           predict the next character of a text: a text file
)";

constexpr std::array kKinds = {"table", "image", "signal", "volume", "text"};

// Reserved words of C++, names of CMake targets, and namespaces that recipe.cpp uses.
constexpr std::array<std::string_view, 110> kForbidden = {
    "alignas",     "alignof",   "and",        "and_eq",    "asm",      "auto",         "bitand",
    "bitor",       "bool",      "break",      "case",      "catch",    "char",         "char8_t",
    "char16_t",    "char32_t",  "class",      "compl",     "concept",  "const",        "consteval",
    "constexpr",   "constinit", "const_cast", "continue",  "co_await", "co_return",    "co_yield",
    "decltype",    "default",   "delete",     "do",        "double",   "dynamic_cast", "else",
    "enum",        "explicit",  "export",     "extern",    "false",    "float",        "for",
    "friend",      "goto",      "if",         "inline",    "int",      "long",         "mutable",
    "namespace",   "new",       "noexcept",   "not",       "not_eq",   "nullptr",      "operator",
    "or",          "or_eq",     "private",    "protected", "public",   "register",     "reinterpret_cast",
    "requires",    "return",    "short",      "signed",    "sizeof",   "static",       "static_assert",
    "static_cast", "struct",    "switch",     "template",  "this",     "thread_local", "throw",
    "true",        "try",       "typedef",    "typeid",    "typename", "union",        "unsigned",
    "using",       "virtual",   "void",       "volatile",  "wchar_t",  "while",        "xor",
    "xor_eq",      "all",       "clean",      "help",      "install",  "package",      "test",
    "at",          "c10",       "config",     "data",      "main",     "metrics",      "millrace",
    "nn",          "optim",     "picture",    "std",       "torch"};

std::string take_kind(Arguments& arguments) {
  const std::vector<std::string> kinds(kKinds.begin(), kKinds.end());
  std::string kind = arguments.value("kind").value_or(kinds.front());
  if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) {
    throw UsageError({"there is no kind of recipe " + millrace::quoted(kind), "millrace new",
                      suggestion(kind, kinds) + "kinds: " + joined(kinds, ", ")});
  }
  return kind;
}

void check_name(const std::string& name, std::span<const Entry> recipes) {
  const auto legal = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
  if (name.empty() || name.size() > 60 || !(name[0] >= 'a' && name[0] <= 'z') || !std::all_of(name.begin(), name.end(), legal)) {
    throw UsageError({millrace::quoted(name) + " can't be the name of a recipe", "millrace new",
                      "begin with a lower-case letter; continue with lower-case letters, digits and underscores (60 at most)"});
  }
  // refused, because the name would be used as a namespace and as the name of a program
  if (std::find(kForbidden.begin(), kForbidden.end(), name) != kForbidden.end()) {
    throw UsageError(
        {millrace::quoted(name) + " can't be the name of a recipe: the word means something else in C++, CMake or Millrace",
         "millrace new", "choose another name, for example my_" + name});
  }
  const std::vector<std::string> taken = names_of(recipes);
  if (std::find(taken.begin(), taken.end(), name) != taken.end())
    throw UsageError({"there is a recipe " + name + " already", "millrace new", "choose another name"});
}

std::string pascal_case(const std::string& name) {
  std::string text;
  bool upper = true;
  for (const char c : name) {
    if (c == '_') {
      upper = true;
    } else {
      text += upper ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
      upper = false;
    }
  }
  return text;
}

std::string replaced(std::string text, std::string_view from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

// The commands that the user needs next. An installed program (PREFIX/libexec/millrace/millrace-torch) knows its prefix. A
// program of a build folder or of a wheel has no headers next to it, so the user must replace PREFIX.
std::string next_steps(const std::string& name) {
  std::error_code ignored;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  const std::filesystem::path prefix = program.parent_path().parent_path().parent_path();
  const bool knows_prefix = std::filesystem::exists(prefix / "lib/cmake/Millrace/MillraceConfig.cmake", ignored);
  return "next: cd " + name +
         " && cmake -B build -DCMAKE_PREFIX_PATH=" + (knows_prefix ? shell_word(prefix.string()) : "PREFIX") +
         " && cmake --build build && ./build/" + name + " train " + name + " smoke.json\n" +
         (knows_prefix
              ? ""
              : "PREFIX is the folder into which ./dev install, in a clone of Millrace, installed Millrace, such as ~/.local\n");
}

int run_new(const Invocation& call) {
  Arguments arguments(call.words);
  const std::string kind = take_kind(arguments);
  const auto name = arguments.positional();
  arguments.finish("new");
  if (!name) throw UsageError({"millrace new needs a name", "millrace new", "write millrace new NAME"});
  check_name(*name, call.recipes);
  const std::filesystem::path folder = *name;
  if (std::filesystem::exists(folder) || std::filesystem::is_symlink(folder)) {
    throw UsageError({"the folder " + *name + " exists already", std::filesystem::current_path().string(),
                      "choose another name, or go to another folder"});
  }
  Fs& fs = Fs::real();
  fs.create_directories(folder);
  for (const Template& file : templates()) {
    if (file.kind != kind) continue;
    const std::string text = replaced(replaced(std::string(file.text), "my_recipe", *name), "MyRecipe", pascal_case(*name));
    write_atomically(fs, folder / file.name, text);
  }
  print("made " + *name + "/, a recipe of the kind " + kind + ": recipe.cpp, smoke.json, README.md, CMakeLists.txt\n" +
        next_steps(*name));
  return 0;
}

}  // namespace

constinit const Command kNew = {.name = "new",
                                .arguments = "NAME [--kind table|image|signal|volume|text]",
                                .summary = "make a folder with a recipe of your own",
                                .group = "Make things",
                                .help = kNewHelp,
                                .run = run_new};

}  // namespace millrace::cli
