#include "millrace/train/run.h"

#include <torch/nn/module.h>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/config/schema_of.h"
#include "millrace/train/loader_bench.h"
#include "millrace/train/memory_search.h"
#include "millrace/train/sample_data.h"
#include "millrace/train/session.h"

namespace millrace {
namespace {

Json precision_of_amp(const Json& amp) { return amp == Json(true) || amp == Json("true") ? Json("auto") : Json("fp32"); }

Json precision_word(const Json& word) {
  static const std::map<std::string, std::string> words = {
      {"32-true", "fp32"},    {"float32", "fp32"},  {"32", "fp32"},        {"none", "fp32"},     {"no", "fp32"},
      {"bf16-mixed", "bf16"}, {"bfloat16", "bf16"}, {"bf16-true", "bf16"}, {"16-mixed", "fp16"}, {"16-true", "fp16"},
      {"fp16-mixed", "fp16"}, {"float16", "fp16"},  {"half", "fp16"},      {"16", "fp16"}};
  if (!word.is_string() && !word.is_number_integer()) return word;
  const auto it = words.find(word.is_string() ? word.get<std::string>() : word.dump());
  return it == words.end() ? word : Json(it->second);
}

// A preset that is started without input makes its own, once.
void make_missing_data(const Entry& entry, const std::string& preset, config::Resolved& config, Fs& fs,
                       telemetry::Console& console) {
  if (!entry.needs_data || !entry.needs_data(config.values)) return;
  const bool can_make = entry.make_data && !preset.empty();
  if (!can_make) {
    throw ConfigError({"recipe " + entry.name + " has no input", "data.dir and the recipe's own keys are empty",
                       entry.make_data ? "give --data DIR, or a --preset, which makes its own data" : "give --data DIR"});
  }
  const std::filesystem::path folder = std::filesystem::path("runs") / "data" / (entry.name + "-" + preset);
  constexpr std::uint64_t data_seed = 0;
  const bool made =
      !has_sample_data(fs, folder) &&
      make_sample_data(
          fs, folder,
          {.make = [&](const std::filesystem::path& out) { entry.make_data(preset, out, data_seed); },
           .begin =
               [&] { console.notice("no input given: making the sample data of preset " + preset + " in " + folder.string()); },
           .tell = [&](const std::string& text) { console.notice(text); }});
  if (!made) console.notice("no input given: using the sample data in " + folder.string());
  config.values["data"]["dir"] = folder.string();
  config.origins["data.dir"] = "preset " + preset;
}

}  // namespace

config::Schema schema_of(const Entry& entry) {
  config::Schema schema = config::schema_of<RunConfig>();
  schema += entry.sections;
  return schema;
}

std::vector<config::Alias> aliases_of(const Entry& entry) {
  std::vector<config::Alias> aliases = {
      {"data", "data.dir", nullptr, "input folder"},
      {"run_dir", "run.dir", nullptr, ""},
      {"off", "train.off", nullptr, "switches to turn off"},
      {"amp", "precision.dtype", precision_of_amp, "true = auto, false = fp32"},
      {"amp_dtype", "precision.dtype", precision_word, "also none"},
      {"mixed_precision", "precision.dtype", precision_word, "also no"},
      {"precision", "precision.dtype", precision_word, "also 32-true, bf16-mixed, 16-mixed, 32, 16"},
      {"seed", "train.seed", nullptr, ""},
      {"epochs", "train.epochs", nullptr, ""},
      {"max_steps", "train.max_steps", nullptr, ""},
      {"batch_size", "data.batch_size", nullptr, ""},
      {"learning_rate", "optim.learning_rate", nullptr, ""},
      {"clip_grad_norm", "optim.clip_norm", nullptr, ""},
      {"num_workers", "data.workers", nullptr, ""},
      {"pin_memory", "data.pin_memory", nullptr, ""},
      {"device", "device.name", nullptr, ""},
      {"resume", "train.resume", nullptr, ""},
  };
  for (const config::Alias& own : entry.aliases) {
    std::erase_if(aliases, [&](const config::Alias& shared) { return shared.name == own.name; });
    aliases.push_back(own);
  }
  return aliases;
}

namespace {

SessionRequest session_request(const RunRequest& request) {
  Fs& fs = request.fs == nullptr ? Fs::real() : *request.fs;
  const Entry& entry = *request.entry;
  SessionRequest session;
  session.recipe = entry.name;
  session.preset = request.preset;
  session.config = request.config;
  make_missing_data(entry, request.preset, session.config, fs, *request.console);
  session.make = entry.make;
  session.free_on_resume = entry.free_on_resume;
  session.config_folder = request.config_folder;
  session.command_line = request.command_line;
  session.fresh = request.fresh;
  session.dry_run = request.dry_run;
  session.console = request.console;
  session.fs = &fs;
  return session;
}

}  // namespace

RunOutcome run_training(const RunRequest& request) {
  SessionRequest session = session_request(request);
  session.run_place = place_of_run(session.recipe, config::read<RunNames>(session.config.values.at("run")));
  return Session(std::move(session)).run();
}

Json estimate_memory(const RunRequest& request) { return Session(session_request(request)).estimate(); }

Json find_max_batch(const RunRequest& request, const MaxBatchOptions& options) {
  SessionRequest session = session_request(request);
  Json result = search_max_batch(options, [&session](std::int64_t batch_size) {
    session.config.values["data"]["batch_size"] = batch_size;
    return Session(session).try_whole_step();
  });
  result["recipe"] = session.recipe;
  return result;
}

Json bench_recipe_loader(const RunRequest& request, double seconds) { return Session(session_request(request)).ceiling(seconds); }

}  // namespace millrace
