// `millrace bench loader`: measures a workload that a file describes, or compares a recipe's loader with its step.
#include "millrace/cli/bench/benches.h"

#include "millrace/base/format.h"
#include "millrace/cli/shared/take_run.h"
#include "millrace/cli/shared/text.h"
#include "millrace/device/device.h"
#include "millrace/measure/loader_bench.h"

namespace millrace::cli {
namespace {

std::string number(const Json& result, const char* key, int digits) {
  return result.contains(key) && result[key].is_number() ? fixed(result[key].get<double>(), digits) : "-";
}

std::string rate(const Json& result, const char* key) {
  return result.contains(key) ? with_commas(static_cast<std::int64_t>(result[key].get<double>() + 0.5)) : "-";
}

void print_common(std::vector<std::vector<std::string>>& rows, const Json& result) {
  rows.push_back({"  first batch, ms", number(result, "first_batch_ms", 1)});
  rows.push_back({"  CPU seconds per 1,000 samples", number(result, "cpu_s_per_1000", 3)});
  rows.push_back(
      {"  waiting for a batch, ms p50, p99", number(result, "wait_ms_p50", 2) + "  " + number(result, "wait_ms_p99", 2)});
  rows.push_back({"  readers", result["reason"].get<std::string>()});
  const Json& cache = result["cache"];
  rows.push_back({"  cache", cache["reason"].get<std::string>() +
                                 (cache.contains("hit_rate") ? "; hits " + percent(cache["hit_rate"].get<double>()) : "")});
  rows.push_back({"  peak memory", human_bytes(result["peak_memory_bytes"].get<double>())});
}

void print_workload(const Json& result) {
  print("loader of kind " + result["kind"].get<std::string>() + ", batches of " +
        std::to_string(result["batch_size"].get<int>()) + ", " + number(result, "seconds", 1) + " s\n");
  std::vector<std::vector<std::string>> rows = {{"  samples/s", rate(result, "samples_per_s")}};
  if (result.contains("ceiling_samples_per_s")) {
    rows.push_back({"  of the replayed ceiling",
                    percent(result["share_of_ceiling"].get<double>()) + " of " + rate(result, "ceiling_samples_per_s")});
  }
  rows.push_back({"  pause between epochs, ms: median, longest",
                  number(result, "turn_round_ms_p50", 3) + "  " + number(result, "turn_round_ms_max", 3)});
  print_common(rows, result);
  if (result.contains("digest"))
    rows.push_back({"  digest", result["digest"].get<std::string>() + " of " + rate(result, "digest_samples") + " samples"});
  print(table(rows));
}

void print_ceiling(const Json& result) {
  print("ceiling of recipe " + result["recipe"].get<std::string>() + "\n");
  std::vector<std::vector<std::string>> rows = {
      {"  the loader alone feeds, samples/s", rate(result, "loader_samples_per_s")},
      {"  the step alone consumes, samples/s", rate(result, "step_samples_per_s")},
      {"  together, samples/s",
       rate(result, "run_samples_per_s") + ", " + percent(result["share_of_ceiling"].get<double>()) + " of the step alone"}};
  print_common(rows, result);
  print(table(rows) + result["verdict"].get<std::string>() + "\n");
}

int bench_recipe(const Invocation& call, Arguments& arguments, const std::string& name, bool json, double seconds) {
  const auto entry = std::find_if(call.recipes.begin(), call.recipes.end(), [&](const Entry& e) { return e.name == name; });
  if (entry == call.recipes.end()) {
    throw UsageError({"there is no recipe " + millrace::quoted(name), "flag --recipe=" + name,
                      suggestion(name, names_of(call.recipes)) + "recipes: " + joined(names_of(call.recipes), ", ")});
  }
  telemetry::Console console(telemetry::Console::Mode::automatic, json ? 2 : 1);
  const Json result = bench_recipe_loader(take_run(*entry, arguments, console), seconds);
  json ? print_json(result) : print_ceiling(result);
  return 0;
}

}  // namespace

std::string bench_loader_help() { return data::workload_help(); }

int bench_loader(const Invocation& call, Arguments& arguments) {
  const bool json = arguments.flag("json");
  const auto seconds = static_cast<double>(arguments.integer("seconds", 3, 1));
  if (const auto recipe = arguments.value("recipe")) return bench_recipe(call, arguments, *recipe, json, seconds);
  const auto file = arguments.positional();
  if (!file) {
    throw UsageError({"bench loader needs a workload", call.program + " bench loader",
                      "give a JSON file that describes one, or --recipe NAME"});
  }
  LoaderBenchOptions options;
  options.seconds = seconds;
  options.step_ms = static_cast<double>(arguments.integer("step-ms", 0, 0));
  options.digest = !arguments.flag("quick");
  const std::int64_t threads = arguments.integer("threads", device::cpu_info().physical_cores, 1);
  arguments.finish("bench loader");
  device::set_threads(static_cast<int>(threads));
  const std::filesystem::path path = *file;
  const Json result = bench_workload(data::read_workload(path), path.parent_path(), options);
  json ? print_json(result) : print_workload(result);
  return 0;
}

}  // namespace millrace::cli
