// What a command of `millrace` consists of. Each command has a source file; commands.cpp has the table of all commands.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/train/recipe/entry.h"

namespace millrace::cli {

struct Invocation {
  std::string program = "millrace";  // "millrace", or the name of a user's program
  std::span<const Entry> recipes;
  std::vector<std::string> words;  // the words after the command's name
};

struct Command {
  std::string_view name;
  std::string_view arguments;  // for the usage line, such as "RECIPE [FILE]..."
  std::string_view summary;    // the text about the command in `millrace --help`
  std::string_view group;      // the heading above the summary; "" = the command is not listed
  std::string_view help;       // the text of `millrace NAME --help` after the usage line
  int (*run)(const Invocation& call);
  std::string (*more_help)(const Invocation& call) = nullptr;  // further help that depends on the words, such as the keys of a
                                                               // recipe
};

// All commands, in the order of --help.
[[nodiscard]] std::span<const Command* const> commands();

// The texts of `millrace --help` and of `millrace NAME --help`.
[[nodiscard]] std::string top_help(const Invocation& call);
[[nodiscard]] std::string command_help(const Command& command, const Invocation& call);

extern const Command kTrain, kLaunch, kPredict, kEval, kExport, kImport, kInspect, kShow, kRuns, kList, kConfig, kBench,
    kEstimate, kMaxBatch, kMakeData, kNew, kDoctor, kTune, kReport, kCompare, kDocs;

}  // namespace millrace::cli
