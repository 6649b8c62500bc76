// Pages that `millrace docs` makes from the table of commands: the manual page, and completions for shells.
#pragma once

#include <string>
#include <vector>

#include "millrace/cli/shared/command.h"

namespace millrace::cli {

// A command after `millrace`, and the words that may follow it.
struct CompletedCommand {
  std::string name, summary;
  std::vector<std::string> flags;  // "--preset", in the order of its usage line and its help; config keys are not among them
  std::vector<std::string> words;  // "RECIPE" stands for the names of all recipes
};
// The commands of `millrace --help`: the program's, then the recipes'.
[[nodiscard]] std::vector<CompletedCommand> completed_commands(const Invocation& call);

[[nodiscard]] std::string man_page(const Invocation& call);  // roff, section 1
[[nodiscard]] std::string bash_completion(const Invocation& call);
[[nodiscard]] std::string zsh_completion(const Invocation& call);
[[nodiscard]] std::string fish_completion(const Invocation& call);

}  // namespace millrace::cli
