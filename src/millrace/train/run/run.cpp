#include "millrace/train/run/run.h"

#include <stdlib.h>
#include <torch/nn/module.h>

#include <cerrno>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/hash.h"
#include "millrace/config/schema_of.h"
#include "millrace/train/recipe/foreign_options.h"
#include "millrace/train/recipe/recipe_guard.h"
#include "millrace/train/run/session.h"
#include "millrace/train/run_folder/sample_data.h"

namespace millrace {
config::Schema schema_of(const Entry& entry) {
  config::Schema schema = config::schema_of<RunConfig>();
  schema += entry.sections;
  return schema;
}

std::vector<Problem> run_problems(const Entry& entry, const config::Resolved& config) {
  std::vector<Problem> problems = problems_of(config::read<RunConfig>(config.values));
  if (entry.problems) {
    std::vector<Problem> own;
    in_entry(entry.name, "problems", [&] { own = entry.problems(config.values); });
    for (Problem& problem : own) problems.push_back(std::move(problem));
  }
  for (Problem& problem : problems) {
    const auto origin = config.origins.find(problem.where);
    if (origin != config.origins.end()) problem.where = origin->second;
  }
  return problems;
}

std::vector<config::Alias> aliases_of(const Entry& entry) {
  std::vector<config::Alias> aliases = shared_words();
  for (const config::Alias& own : entry.aliases) {
    std::erase_if(aliases, [&](const config::Alias& shared) { return shared.name == own.name; });
    aliases.push_back(own);
  }
  return aliases;
}

namespace {

std::filesystem::path make_temporary_folder() {
  std::string name = (std::filesystem::temp_directory_path() / "millrace-look-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw FsError("mkdtemp", name, errno);
  return name;
}

DataOptions data_options(const Entry& entry, const config::Resolved& config) {
  DataOptions options;
  if (entry.data_options_of) in_entry(entry.name, "data_options_of", [&] { options = entry.data_options_of(config.values); });
  return options;
}

std::string short_digest(std::string_view text) {
  Sha256 digest;
  digest.update(text);
  return digest.hex().substr(0, 8);
}

// The folder of the preset's sample data, which is different for each set of options.
std::filesystem::path sample_data_folder(const RunRequest& request, const DataOptions& options) {
  std::string name = request.entry->name + "-" + request.preset;
  if (!options.empty()) name += "-" + short_digest(Json(options).dump());
  return std::filesystem::path("runs") / "data" / name;
}

// True if the request resumes a run whose sample data was deleted.
bool is_lost_sample_data(const RunRequest& request, const config::Resolved& config) {
  const auto origin = config.origins.find("data.dir");
  const bool is_of_run = origin != config.origins.end() && origin->second.starts_with("run ");
  const std::string folder = sample_data_folder(request, data_options(*request.entry, config)).string();
  const std::string dir = config::read<DataConfig>(config.values.at("data")).dir;
  return is_of_run && (dir == folder || dir.ends_with("/" + folder)) && !std::filesystem::exists(dir);
}

}  // namespace

SampleInput::SampleInput(RunRequest& request, bool keeps) {
  config::Resolved& config = request.config;
  const Entry& entry = *request.entry;
  if (!entry.needs_data) return;
  bool needs_data = false;
  in_entry(entry.name, "needs_data", [&] { needs_data = entry.needs_data(config.values); });
  const DataOptions options = data_options(entry, config);
  if (!needs_data && !is_lost_sample_data(request, config)) {
    if (!options.empty() && !config.origins["data.dir"].starts_with("run "))
      request.console->notice("data.dir is given, so settings for a preset's own data have no effect");
    return;
  }
  if (!entry.make_data || request.preset.empty()) {
    throw ConfigError({"recipe " + entry.name + " has no input", "data.dir and the recipe's own keys are empty",
                       entry.make_data ? "give --data DIR, or a --preset, which makes its own data" : "give --data DIR"});
  }
  Fs& fs = request.fs == nullptr ? Fs::real() : *request.fs;
  telemetry::Console& console = *request.console;
  std::filesystem::path folder = sample_data_folder(request, options);
  std::string notice = "using the sample data in " + folder.string();
  if (!has_sample_data(fs, folder)) {
    std::string beginning = "making the sample data of preset " + request.preset + " in " + folder.string();
    if (!keeps) {
      temporary_ = make_temporary_folder();
      folder = temporary_ / "data";
      beginning = "the sample data of preset " + request.preset + " is made for this command and then removed";
    }
    constexpr std::uint64_t data_seed = 0;
    const bool made = make_sample_data(fs, folder,
                                       {.make =
                                            [&](const std::filesystem::path& out) {
                                              in_entry(entry.name, "make_data", [&] {
                                                if (options.empty()) return entry.make_data(request.preset, out, data_seed);
                                                entry.make_data_with(request.preset, out, data_seed, options);
                                              });
                                            },
                                        .begin = [&] { console.notice("no input given: " + beginning); },
                                        .report = [&](const std::string& text) { console.notice(text); }});
    if (made) notice.clear();
  }
  if (!notice.empty()) console.notice("no input given: " + notice);
  config.values["data"]["dir"] = folder.string();
  config.origins["data.dir"] = "preset " + request.preset;
}

SampleInput::~SampleInput() {
  std::error_code code;
  if (!temporary_.empty()) std::filesystem::remove_all(temporary_, code);
}

RunOutcome run_training(RunRequest request) {
  std::optional<SampleInput> input;
  Agreement& agreement = request.agreement == nullptr ? Agreement::of_one() : *request.agreement;
  agreement.in_turn([&] { input.emplace(request, /*keeps=*/request.dry_run == DryRun::no); });
  Session session(std::move(request));
  return session.run();
}

}  // namespace millrace
