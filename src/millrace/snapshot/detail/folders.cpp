#include "millrace/snapshot/detail/folders.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <tuple>
#include <utility>

namespace millrace::snapshot::detail {
namespace {

constexpr std::string_view kStep = "step-";
constexpr std::size_t kDigits = 8;

std::mutex& writing_mutex() {
  static std::mutex mutex;
  return mutex;
}

std::multiset<std::filesystem::path>& writing_folders() {
  static std::multiset<std::filesystem::path> folders;
  return folders;
}

}  // namespace

std::filesystem::path snapshots_of(const std::filesystem::path& run) { return run / "snapshots"; }

std::string folder_name(std::int64_t step) {
  std::string digits = std::to_string(step);
  if (digits.size() < kDigits) digits.insert(0, kDigits - digits.size(), '0');
  return std::string(kStep) + digits;
}

std::string beside_name(std::string_view prefix, std::int64_t step) {
  return std::string(prefix) + folder_name(step) + "-" + std::to_string(::getpid());
}

std::optional<std::int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kStep)) return std::nullopt;
  const std::string_view digits = name.substr(kStep.size());
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  // The name must be the one we would give: "step-1" or "step--0000001" are somebody else's.
  if (error != std::errc() || step < 0 || end != digits.data() + digits.size() || folder_name(step) != name) return std::nullopt;
  return step;
}

std::optional<std::int64_t> step_of_replaced(std::string_view name) {
  if (!name.starts_with(kReplaced)) return std::nullopt;
  name.remove_prefix(kReplaced.size());
  const std::size_t dash = name.rfind('-');
  return dash == std::string_view::npos ? std::nullopt : step_of(name.substr(0, dash));
}

std::vector<Candidate> candidates(Fs& fs, const std::filesystem::path& snapshots) {
  std::vector<Candidate> found;
  if (!fs.exists(snapshots)) return found;
  for (const std::string& name : fs.list(snapshots)) {
    if (const auto step = step_of(name)) found.push_back({name, *step, false});
    if (const auto step = step_of_replaced(name)) found.push_back({name, *step, true});
  }
  std::sort(found.begin(), found.end(), [](const Candidate& a, const Candidate& b) {
    return std::tuple(a.step, !a.is_replaced, std::string_view(a.name)) <
           std::tuple(b.step, !b.is_replaced, std::string_view(b.name));
  });
  return found;
}

std::mutex& moves_mutex() {
  static std::mutex mutex;
  return mutex;
}

WritingFolder::WritingFolder(std::filesystem::path path) : path_(std::move(path)) {
  const std::lock_guard lock(writing_mutex());
  writing_folders().insert(path_);
}

WritingFolder::~WritingFolder() {
  const std::lock_guard lock(writing_mutex());
  writing_folders().erase(writing_folders().find(path_));
}

bool WritingFolder::is_written(const std::filesystem::path& path) {
  const std::lock_guard lock(writing_mutex());
  return writing_folders().contains(path);
}

}  // namespace millrace::snapshot::detail
