#include <algorithm>
#include <array>

#include "millrace/cli/shared/command.h"
#include "millrace/cli/shared/version.h"

namespace millrace::cli {
namespace {

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(text.size() + 2, width), ' ');
  return text;
}

// The words of a usage line before the first flag: "RECIPE" of "RECIPE --from PATH [--json]".
std::string first_words(std::string_view arguments) {
  const std::size_t end = std::min(arguments.find("--"), arguments.find('['));
  const std::string words(arguments.substr(0, end));
  return words.substr(0, words.find_last_not_of(' ') + 1);
}

}  // namespace

std::span<const Command* const> commands() {
  static constexpr std::array<const Command*, 21> kAll = {
      &kTrain,  &kLaunch, &kPredict, &kEval,    &kExport, &kImport,   &kInspect,  &kShow,     &kRuns, &kList, &kConfig,
      &kDoctor, &kTune,   &kReport,  &kCompare, &kBench,  &kEstimate, &kMaxBatch, &kMakeData, &kNew,  &kDocs};
  return kAll;
}

std::string top_help(const Invocation& call) {
  constexpr std::size_t kColumn = 26;
  std::string text = "Millrace " + version_number() +
                     " trains deep-learning models on LibTorch and explains its choices.\n\nusage: " + call.program +
                     " COMMAND ...\n";
  std::string_view group;
  for (const Command* command : commands()) {
    if (command->group.empty()) continue;
    if (command->group != group) {
      group = command->group;
      text += "\n" + std::string(group) + "\n";
    }
    text += padded("  " + std::string(command->name) + " " + first_words(command->arguments), kColumn) +
            std::string(command->summary) + "\n";
  }
  bool heading = false;
  for (const Entry& entry : call.recipes) {
    for (const RecipeCommand& command : entry.commands) {
      text += heading ? "" : "\nCommands of recipes\n";
      heading = true;
      text += padded("  " + command.name, kColumn) + command.help + " (" + entry.name + ")\n";
    }
  }
  text +=
      "\n" + padded("  --version", kColumn) + "versions of Millrace, LibTorch and the compiler, and what this CPU can do\n" +
      padded("  --help", kColumn) + "this text; COMMAND --help says more, train RECIPE --help lists every config key\n" +
      "\nEnvironment: MILLRACE_SECTION__KEY=VALUE sets a config key; MILLRACE_CPU=portable, avx2, avx512, avx512_bf16 or amx\n"
      "limits the program to these instructions of the CPU.\n"
      "\nExit codes: 0 done, 1 failed, 2 usage or config, 3 doctor found something (--strict; --verify\n"
      "always), 4 train missed a target (--strict), 128 + n stopped by signal n (the run is saved first).\n";
  return text;
}

std::string command_help(const Command& command, const Invocation& call) {
  std::string text = "usage: " + call.program + " " + std::string(command.name);
  if (!command.arguments.empty()) text += " " + std::string(command.arguments);
  text += "\n\n" + std::string(command.help);
  if (command.more_help != nullptr) text += command.more_help(call);
  return text;
}

}  // namespace millrace::cli
