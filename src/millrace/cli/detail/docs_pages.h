// The pages that `millrace docs` makes from the table of commands: the manual page, and completions for shells.
#pragma once

#include <string>
#include <vector>

#include "millrace/cli/shared/command.h"

namespace millrace::cli {

// A command of `millrace`, and the words that may follow it on the command line.
struct CompletedCommand {
  std::string name, summary;
  std::vector<std::string> flags;  // such as "--preset", in the order of the usage line and the help; config keys are left out
  std::vector<std::string> words;  // other words; "RECIPE" stands for the names of all recipes
};
// The commands in `millrace --help`: those of the program, then those of the recipes.
[[nodiscard]] std::vector<CompletedCommand> completed_commands(const Invocation& call);

[[nodiscard]] std::string man_page(const Invocation& call);  // in the format roff, for section 1 of the manual
[[nodiscard]] std::string bash_completion(const Invocation& call);
[[nodiscard]] std::string zsh_completion(const Invocation& call);
[[nodiscard]] std::string fish_completion(const Invocation& call);

}  // namespace millrace::cli
