#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>

#include "millrace/base/format.h"
#include "millrace/cli/main.h"
#include "millrace/cli/shared/arguments.h"
#include "millrace/cli/shared/command.h"
#include "millrace/cli/shared/failure.h"
#include "millrace/cli/shared/text.h"
#include "millrace/cli/shared/version.h"
#include "millrace/system/malloc_pages.h"
#include "millrace/system/openmp.h"
#include "millrace/system/process.h"
#include "millrace/system/process_limits.h"
#include "millrace/train/recipe/recipe_guard.h"

namespace millrace {
namespace {

using cli::Command;
using cli::Invocation;

const Command* find_command(const std::string& name) {
  for (const Command* command : cli::commands())
    if (command->name == name) return command;
  return nullptr;
}

const RecipeCommand* find_recipe_command(const Invocation& call, const std::string& name) {
  for (const Entry& entry : call.recipes) {
    for (const RecipeCommand& command : entry.commands)
      if (cli::with_underscores(command.name) == cli::with_underscores(name)) return &command;
  }
  return nullptr;
}

bool asks_for_help(const std::vector<std::string>& words) {
  for (const auto& word : words)
    if (word == "--help" || word == "-h") return true;
  return false;
}

[[noreturn]] void unknown_command(const Invocation& call, const std::string& name) {
  std::vector<std::string> names;
  for (const Command* command : cli::commands())
    if (!command->group.empty()) names.emplace_back(command->name);
  for (const Entry& entry : call.recipes)
    for (const RecipeCommand& command : entry.commands) names.push_back(command.name);
  throw UsageError({"there is no command " + millrace::quoted(name), call.program,
                    cli::suggestion(name, names) + call.program + " --help lists the commands"});
}

void print(const char* text) {
  if (::write(STDERR_FILENO, text, std::strlen(text)) < 0) ::_exit(1);
}

// Ends the program if the current folder was deleted. Otherwise MKL, which LibTorch loads, would end the program with a
// misleading message about a library. This function runs before the code of any library, so it uses hardly any library
// functions.
void refuse_deleted_folder(char** environment) {
  char path[1];
  if (::getcwd(path, sizeof path) != nullptr || errno != ENOENT) return;
  print("FileError  the current folder was deleted\n");
  for (char** entry = environment; entry != nullptr && *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, "PWD=", 4) != 0) continue;
    print("  where    ");
    print(*entry + 4);
    print("\n");
  }
  print("  next     change to a folder that exists (cd) and try again\n");
  ::_exit(1);
}

// Ends the program if its limits are too small. Only programs of `millrace new` need this; for `millrace` itself the launcher has
// checked the limits.
void refuse_small_limits() {
  const std::string refusal = start_refusal();
  if (refusal.empty()) return;
  print((refusal + "\n").c_str());
  ::_exit(1);
}

// Starts the program again with one or two more environment variables, because OpenMP and malloc read them only once, before
// main. If that fails, the program continues without them. Only programs of `millrace new` need this; for `millrace` itself the
// launcher has set the variables.
void set_library_environment(char** words, char** environment) {
  static std::array<const char*, 4096> with;  // static, because no memory can be allocated yet
  std::size_t count = 0;
  const bool waits = !configures_openmp_waits(environment), pages = !configures_malloc(environment);
  if (!waits && !pages) return;
  for (char** entry = environment; *entry != nullptr; ++entry) {
    if (count + 3 >= with.size()) return;
    with[count++] = *entry;
  }
  if (waits) with[count++] = kOpenmpWaits;
  if (pages) with[count++] = kMallocPages;
  with[count] = nullptr;
  static char program[4096];
  const ssize_t length = ::readlink("/proc/self/exe", program, sizeof program - 1);
  if (length <= 0 || length == sizeof program - 1) return;
  ::execve(program, words, const_cast<char**>(with.data()));  // NOLINT(cppcoreguidelines-pro-type-const-cast): it changes nothing
}

void look_around(int, char** words, char** environment) {
  refuse_deleted_folder(environment);
  refuse_small_limits();
  set_library_environment(words, environment);
}

__attribute__((section(".preinit_array"), used)) void (*before_libraries)(int, char**, char**) = &look_around;

// Throws RecipeError if an entry of a user's program has no name, the name of another entry, or no make().
void check_entries(std::span<const Entry> entries) {
  const auto refuse = [](const std::string& what, const std::string& next) {
    throw RecipeError({what, "the entries that the program gives to cli_main()", next});
  };
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    const auto has_its_name = [&](const Entry& other) { return other.name == entry.name; };
    if (entry.name.empty()) refuse("entry " + std::to_string(i) + " has no name", "set Entry::name: the command line needs it");
    if (std::any_of(entries.begin(), entries.begin() + static_cast<std::ptrdiff_t>(i), has_its_name))
      refuse("two entries have the name " + millrace::quoted(entry.name), "give each recipe its own name");
    if (!entry.make)
      refuse("entry " + millrace::quoted(entry.name) + " can make no recipe: Entry::make is empty", "use entry_of()");
  }
}

int dispatch(Invocation call) {
  if (call.words.empty() || call.words[0] == "--help" || call.words[0] == "-h" ||
      call.words == std::vector<std::string>{"help"}) {
    cli::print(cli::top_help(call));
    return 0;
  }
  if (call.words[0] == "--version") {
    cli::print(cli::version_text());
    return 0;
  }
  const bool help_first = call.words[0] == "help";
  const std::string name = call.words[help_first ? 1 : 0];
  call.words.erase(call.words.begin(), call.words.begin() + (help_first ? 2 : 1));
  std::string spelled = name;
  std::replace(spelled.begin(), spelled.end(), '_', '-');
  if (const Command* command = find_command(spelled)) {
    if (help_first || asks_for_help(call.words)) {
      cli::print(cli::command_help(*command, call));
      return 0;
    }
    return command->run(call);
  }
  if (const RecipeCommand* command = find_recipe_command(call, name)) {
    if (help_first) call.words = {"--help"};
    int exit_code = 1;
    in_entry(name, "commands", [&] { exit_code = command->run(call.words); });
    return exit_code;
  }
  unknown_command(call, name);
}

}  // namespace

int cli_main(int argc, char** argv, std::span<const Entry> recipes) {
  prepare_process();
  int exit_code = 1;
  try {
    Invocation call;
    call.recipes = recipes;
    if (argc > 0) {
      call.program = std::filesystem::path(argv[0]).filename().string();
      call.words.assign(argv + 1, argv + argc);
    }
    check_entries(recipes);
    exit_code = dispatch(std::move(call));
  } catch (...) {
    const cli::Failure failure = cli::describe(std::current_exception());
    std::fflush(stdout);
    std::fprintf(stderr, "%s\n", failure.text.c_str());
    return failure.exit_code;
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    std::fprintf(stderr, "%s\n", cli::output_error().what());
    return exit_code == 0 ? 1 : exit_code;
  }
  return exit_code;
}

}  // namespace millrace
