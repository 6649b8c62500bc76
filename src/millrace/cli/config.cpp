#include "millrace/cli/shared/arguments.h"
#include "millrace/cli/shared/command.h"
#include "millrace/cli/shared/recipe_help.h"
#include "millrace/cli/shared/text.h"
#include "millrace/train/run/command_config.h"
#include "millrace/train/run/run.h"

namespace millrace::cli {
namespace {

constexpr std::string_view kConfigHelp =
    R"(Prints every value a training run would use and where it came from, then the plan: what Millrace chooses by itself and
why. Takes the options of millrace train; nothing is trained. millrace train RECIPE --dry-run does the same.

  --json                values and origins as one JSON object, without the plan
)";

int run_config(const Invocation& call) {
  Arguments arguments(call.words);
  const std::string place = call.program + " config";
  if (call.words.empty() || call.words.front() != "explain")
    throw UsageError({place + " needs the word explain", place, "write " + place + " explain RECIPE [options of train]"});
  if (!arguments.flag("json")) {
    Arguments words(std::span(call.words).subspan(1));
    // Called only for its error. Without a valid recipe kTrain.run() would fail too, but its message would name `train`.
    static_cast<void>(take_recipe(words, call.recipes, "config explain"));
    Invocation train = call;
    train.words.erase(train.words.begin());
    train.words.emplace_back("--dry-run");
    return kTrain.run(train);
  }
  arguments.remove(0);
  const Entry& entry = take_recipe(arguments, call.recipes, "config explain");
  const CommandConfig config = resolve_command_config(entry, arguments);
  print_json({{"values", config.resolved.values}, {"origins", config.resolved.origins}});
  return 0;
}

}  // namespace

constinit const Command kConfig = {.name = "config",
                                   .arguments = "explain RECIPE [options of train]",
                                   .summary = "the resolved config with the origin of each value, and the plan",
                                   .group = "Look at things",
                                   .help = kConfigHelp,
                                   .run = run_config};

}  // namespace millrace::cli
