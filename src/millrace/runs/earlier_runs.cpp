#include "millrace/runs/earlier_runs.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "millrace/base/foreign_json.h"
#include "millrace/base/hash.h"
#include "millrace/runs/run.h"

namespace millrace::runs {
namespace {

constexpr double kFewSteps = 20;

// Sections of the config that have no effect on the time of a step.
constexpr std::array<std::string_view, 5> kIdleSections = {"run", "log", "targets", "profile", "snapshot"};
constexpr std::array<std::string_view, 4> kIdleKeys = {"seed", "max_steps", "epochs",
                                                       // keys of the section `train` that do not affect the time of a step
                                                       "resume"};

std::optional<double> step_ms_of(const Json& summary, const std::string& likeness) {
  if (!summary.is_object() || summary.value("likeness", Json()) != likeness) return std::nullopt;
  const Json reason = summary.value("exit_reason", Json());
  if (reason != "max_steps" && reason != "epochs" && reason != "early_stop") return std::nullopt;
  if (number_at(summary, {"steps"}).value_or(0) < kFewSteps) return std::nullopt;
  if (number_at(summary, {"others"}).value_or(0) >= kBusy) return std::nullopt;
  const auto ms = number_at(summary, {"step_ms", "p50"});
  return ms && *ms > 0 ? ms : std::nullopt;
}

}  // namespace

std::string Likeness::digest() const {
  Json work = config;
  for (const std::string_view section : kIdleSections) work.erase(std::string(section));
  if (work.contains("train")) {
    for (const std::string_view key : kIdleKeys) work["train"].erase(std::string(key));
  }
  // The folder of the data is removed, because the fingerprint identifies the data better.
  if (work.contains("data")) work["data"].erase("dir");
  Sha256 hash;
  hash.update(Json({recipe, work, data, machine}).dump(-1, ' ', false, Json::error_handler_t::replace));
  return hash.hex();
}

doctor::Evidence::Earlier earlier_runs(const std::filesystem::path& run, const std::string& likeness) noexcept {
  doctor::Evidence::Earlier earlier;
  try {
    for (const std::filesystem::path& folder : runs_beside(run)) {
      const auto ms = step_ms_of(Run(folder).summary(), likeness);
      if (!ms) continue;
      if (earlier.step_ms.empty()) earlier.newest = folder.string();
      earlier.step_ms.push_back(*ms);
    }
  } catch (const std::exception&) {  // a folder could not be read
  }
  return earlier;
}

}  // namespace millrace::runs
