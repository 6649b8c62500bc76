#include <algorithm>
#include <cctype>
#include <filesystem>

#include "millrace/base/format.h"
#include "millrace/base/fs.h"
#include "millrace/cli/arguments.h"
#include "millrace/cli/command.h"
#include "millrace/cli/templates.h"
#include "millrace/cli/text.h"

namespace millrace::cli {
namespace {

constexpr std::string_view kNewHelp =
    R"(Makes the folder NAME with a recipe of your own, complete and small: a regression on generated points. It builds against an
installed Millrace and is yours to change. NAME is a lower-case word: letters, digits and underscores.
)";

void check_name(const std::string& name, std::span<const Entry> recipes) {
  const auto legal = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
  if (name.empty() || name.size() > 60 || !(name[0] >= 'a' && name[0] <= 'z') || !std::all_of(name.begin(), name.end(), legal)) {
    throw UsageError({millrace::quoted(name) + " can't be the name of a recipe", "millrace new",
                      "begin with a lower-case letter; go on with lower-case letters, digits and underscores (60 at most)"});
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

int run_new(const Invocation& call) {
  Arguments arguments(call.words);
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
    const std::string text = replaced(replaced(std::string(file.text), "my_recipe", *name), "MyRecipe", pascal_case(*name));
    write_atomically(fs, folder / file.name, text);
  }
  print("made " + *name + "/ with " + std::to_string(templates().size()) + " files\nnext: cd " + *name +
        " && cmake -B build && cmake --build build && ./build/" + *name + " train " + *name + " --config smoke.json\n");
  return 0;
}

}  // namespace

constinit const Command kNew = {.name = "new",
                                .arguments = "NAME",
                                .summary = "make a folder with a recipe of your own",
                                .group = "Make things",
                                .help = kNewHelp,
                                .run = run_new};

}  // namespace millrace::cli
