// The definition of a command. There is one file per command; commands.cpp is the table.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/train/recipe/entry.h"

namespace millrace::cli {

struct Invocation {
  std::string program = "millrace";  // or the name of a user's program
  std::span<const Entry> recipes;
  std::vector<std::string> words;  // after the command's name
};

struct Command {
  std::string_view name;
  std::string_view arguments;  // "RECIPE [FILE]...", for the usage line
  std::string_view summary;    // the command's line in `millrace --help`
  std::string_view group;      // the heading of that line; "" = not listed
  std::string_view help;       // text of `millrace NAME --help` after the usage line
  int (*run)(const Invocation& call);
  std::string (*more_help)(const Invocation& call) = nullptr;  // text that depends on the words, e.g. a recipe's keys
};

// All commands in the order of --help.
[[nodiscard]] std::span<const Command* const> commands();

// `millrace --help` and `millrace NAME --help`.
[[nodiscard]] std::string top_help(const Invocation& call);
[[nodiscard]] std::string command_help(const Command& command, const Invocation& call);

extern const Command kTrain, kLaunch, kPredict, kEval, kExport, kImport, kInspect, kShow, kRuns, kList, kConfig, kBench,
    kEstimate, kMaxBatch, kMakeData, kNew, kDoctor, kTune, kReport, kCompare, kDocs;

}  // namespace millrace::cli
