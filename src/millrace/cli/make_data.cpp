#include <filesystem>

#include "millrace/base/format.h"
#include "millrace/base/shell_word.h"
#include "millrace/cli/shared/arguments.h"
#include "millrace/cli/shared/command.h"
#include "millrace/cli/shared/text.h"
#include "millrace/telemetry/run_log.h"
#include "millrace/train/recipe/recipe_guard.h"
#include "millrace/train/run_folder/sample_data.h"

namespace millrace::cli {
namespace {

constexpr std::string_view kMakeDataHelp =
    R"(Writes sample data whose best possible result is known. The same seed gives the same bytes.

  --preset NAME         size of the data (default: the recipe's first preset)
  --out DIR             a new or empty folder (default: runs/data/<recipe>-<preset>; for tables <recipe>-tables)
  --seed N              seed of the random numbers (default 0; for tables of pairs 42, the default seed of a run)
)";

// The option of image_pairs with which the command makes tables of pairs instead of new samples. The pairs consist of existing
// samples.
constexpr const char* kTables = "pairs-from";

// Refuses a folder that is not empty, because the files of two data sets must not be mixed.
[[noreturn]] void refuse_used_folder(const std::filesystem::path& folder) {
  if (!std::filesystem::is_directory(folder)) {
    throw UsageError(
        {"can't make the folder " + folder.string(), "a file of that name exists", "choose another folder with --out"});
  }
  throw UsageError(
      {"the folder " + folder.string() + " is not empty", "--out", "choose another folder with --out, or remove this one first"});
}

DataOptions take_options(Arguments& arguments, const Entry& entry) {
  DataOptions options;
  for (const Entry::DataOption& option : entry.data_options) {
    if (option.value.empty()) {
      if (arguments.flag(option.name)) options[option.name] = "true";
    } else if (auto value = arguments.value(option.name)) {
      options[option.name] = std::move(*value);
    }
  }
  return options;
}

// The help about options of make-data, for each recipe that has such options.
std::string help_of_options(const Invocation& call) {
  std::string text;
  for (const Entry& entry : call.recipes) {
    if (!entry.data_options.empty()) text += "\nOf " + entry.name + ":\n";
    for (const Entry::DataOption& option : entry.data_options) {
      std::string words = "  --" + option.name + (option.value.empty() ? "" : " " + option.value);
      words.resize(std::max<std::size_t>(words.size() + 1, 24), ' ');
      text += words + option.help + "\n";
    }
  }
  return text;
}

struct DataWish {
  std::string preset;
  std::uint64_t seed = 0;
  DataOptions options;
};

void make_folder(const Entry& entry, const DataWish& wish, const std::filesystem::path& folder) {
  telemetry::Console console(telemetry::Console::Mode::automatic, 2);
  Fs& fs = Fs::real();
  const bool made =
      !has_sample_data(fs, folder) && make_sample_data(fs, folder,
                                                       {.make =
                                                            [&](const std::filesystem::path& out) {
                                                              in_entry(entry.name, "make_data", [&] {
                                                                if (wish.options.empty())
                                                                  return entry.make_data(wish.preset, out, wish.seed);
                                                                entry.make_data_with(wish.preset, out, wish.seed, wish.options);
                                                              });
                                                            },
                                                        .begin = {},
                                                        .report = [&](const std::string& text) { console.notice(text); }});
  if (!made) refuse_used_folder(folder);
}

// A file in `folder` whose name starts with `beginning`; if there is no such file, the folder itself.
std::filesystem::path file_beginning(const std::filesystem::path& folder, const std::string& beginning) {
  for (const auto& file : std::filesystem::directory_iterator(folder))
    if (file.path().filename().string().starts_with(beginning)) return file.path();
  return folder;
}

// The flags for a run with the tables of the first fold and with their images, which are next to the file of labels.
std::string words_for_tables(const std::filesystem::path& folder, const DataOptions& options) {
  const std::filesystem::path images = std::filesystem::path(options.at(kTables)).parent_path();
  std::string words = " --data " + shell_word(images.empty() ? "." : images.string()) +
                      " --recipe.train_pairs=" + shell_word(file_beginning(folder, "train_fold1_").string()) +
                      " --recipe.val_pairs=" + shell_word(file_beginning(folder, "eval_fold1_").string());
  if (const auto theta = options.find("theta"); theta != options.end()) words += " --recipe.theta=" + theta->second;
  return words;
}

std::string choose_preset(const Entry& entry, const std::string& wish) {
  std::vector<std::string> names;
  for (const auto& [name, values] : entry.presets) {
    if (name == wish) return name;
    names.push_back(name);
  }
  if (wish.empty()) return names.empty() ? "smoke" : names.front();
  throw UsageError({"recipe " + entry.name + " has no preset " + millrace::quoted(wish), "flag --preset=" + wish,
                    suggestion(wish, names) + "presets: " + joined(names, ", ")});
}

int run_make_data(const Invocation& call) {
  Arguments arguments(call.words);
  const Entry& entry = take_recipe(arguments, call.recipes, "make-data");
  const std::string wish = with_underscores(arguments.value("preset").value_or(""));
  const auto out = arguments.value("out");
  if (out && out->empty())
    arguments.problems().push_back({"--out is empty", "flag --out", "name a new or empty folder: --out=DIR"});
  const DataOptions options = take_options(arguments, entry);
  const bool tables = options.contains(kTables);
  // For tables, the default is the seed of a run, so that the tables are the same as those that the run would draw itself.
  const std::int64_t seed = arguments.integer("seed", tables ? entry.defaults.value("train.seed", std::int64_t{0}) : 0, 0);
  arguments.finish("make-data");
  if (!entry.make_data) {
    throw UsageError({"recipe " + entry.name + " has no sample data", "millrace make-data", "use your own data with --data"});
  }
  const std::string preset = choose_preset(entry, wish);
  const std::filesystem::path folder =
      out ? std::filesystem::path(*out)
          : std::filesystem::path("runs") / "data" / (entry.name + "-" + (tables ? "tables" : preset));
  make_folder(entry, {tables ? wish : preset, static_cast<std::uint64_t>(seed), options}, folder);
  std::vector<std::vector<std::string>> rows;
  for (const auto& file : std::filesystem::directory_iterator(folder))
    if (file.is_regular_file())
      rows.push_back({"  " + file.path().filename().string(), human_bytes(static_cast<double>(file.file_size()))});
  std::sort(rows.begin(), rows.end());
  const std::string what = tables ? "tables of pairs" : "data for preset " + preset;
  const std::string words = tables ? words_for_tables(folder, options) : " --data " + shell_word(folder.string());
  print(what + " of " + entry.name + ", seed " + std::to_string(seed) + ", in " + folder.string() + "\n" + table(rows) +
        "next: " + call.program + " train " + entry.name + " --preset " + preset + words + "\n");
  return 0;
}

}  // namespace

constinit const Command kMakeData = {.name = "make-data",
                                     .arguments = "RECIPE [--preset NAME] [--out DIR] [--seed N]",
                                     .summary = "write sample data with a known best result",
                                     .group = "Make things",
                                     .help = kMakeDataHelp,
                                     .run = run_make_data,
                                     .more_help = help_of_options};

}  // namespace millrace::cli
