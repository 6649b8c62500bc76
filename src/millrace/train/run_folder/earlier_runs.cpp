#include "millrace/train/run_folder/earlier_runs.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/hash.h"
#include "millrace/base/input_file.h"
#include "millrace/base/shallow_json.h"
#include "millrace/train/run_folder/run_files.h"

namespace millrace {
namespace {

constexpr std::size_t kMostFolders = 64;
constexpr std::uint64_t kMostBytes = 4ULL << 20U;  // of a summary
constexpr double kFewSteps = 20, kBusy = 0.1;

// Sections and keys that change nothing of a step.
constexpr std::array<std::string_view, 5> kIdleSections = {"run", "log", "targets", "profile", "snapshot"};
constexpr std::array<std::string_view, 4> kIdleKeys = {"seed", "max_steps", "epochs", "resume"};  // of section train

Json summary_in(const std::filesystem::path& folder) {
  try {
    const InputFile file(folder / run_files::kSummary);
    std::string text(std::min(file.size(), kMostBytes), '\0');
    file.read(0, std::as_writable_bytes(std::span(text)));
    return parse_shallow(text);
  } catch (const DataError&) {
    return {};
  }
}

std::optional<double> number_at(const Json& json, const Json::json_pointer& place) {
  const bool there = json.is_object() && json.contains(place) && json.at(place).is_number();
  return there ? std::optional(json.at(place).get<double>()) : std::nullopt;
}

std::optional<double> step_ms_of(const Json& summary, const std::string& likeness) {
  if (!summary.is_object() || summary.value("likeness", Json()) != likeness) return std::nullopt;
  const Json reason = summary.value("exit_reason", Json());
  if (reason != "max_steps" && reason != "epochs" && reason != "early_stop") return std::nullopt;
  if (number_at(summary, "/steps"_json_pointer).value_or(0) < kFewSteps) return std::nullopt;
  if (number_at(summary, "/others"_json_pointer).value_or(0) >= kBusy) return std::nullopt;
  const auto ms = number_at(summary, "/step_ms/p50"_json_pointer);
  return ms && *ms > 0 ? ms : std::nullopt;
}

}  // namespace

std::string Likeness::digest() const {
  Json work = config;
  for (const std::string_view section : kIdleSections) work.erase(std::string(section));
  if (work.contains("train")) {
    for (const std::string_view key : kIdleKeys) work["train"].erase(std::string(key));
  }
  if (work.contains("data")) work["data"].erase("dir");  // the fingerprint tells more
  Sha256 hash;
  hash.update(Json({recipe, work, data, machine}).dump(-1, ' ', false, Json::error_handler_t::replace));
  return hash.hex();
}

doctor::Earlier earlier_runs(const std::filesystem::path& run, const std::string& likeness) noexcept {
  doctor::Earlier earlier;
  try {
    std::vector<std::pair<std::filesystem::file_time_type, std::filesystem::path>> folders;
    for (const auto& entry :
         std::filesystem::directory_iterator(std::filesystem::absolute(run).lexically_normal().parent_path())) {
      std::error_code error;
      if (std::filesystem::equivalent(entry.path(), run, error)) continue;
      const auto time = std::filesystem::last_write_time(entry.path() / run_files::kSummary, error);
      if (!error) folders.emplace_back(time, entry.path());
    }
    std::ranges::sort(folders, std::ranges::greater());
    folders.resize(std::min(folders.size(), kMostFolders));
    for (const auto& [time, folder] : folders) {
      const auto ms = step_ms_of(summary_in(folder), likeness);
      if (!ms) continue;
      if (earlier.step_ms.empty()) earlier.newest = folder.string();
      earlier.step_ms.push_back(*ms);
    }
  } catch (const std::exception&) {  // a folder that can't be looked into
  }
  return earlier;
}

}  // namespace millrace
