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

template <class Number>
bool read_number(std::string_view digits, Number& number) {
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return error == std::errc() && !digits.empty() && end == digits.data() + digits.size();
}

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

std::string folder_name(std::int64_t step, int copy) {
  std::string digits = std::to_string(step);
  if (digits.size() < kDigits) digits.insert(0, kDigits - digits.size(), '0');
  return std::string(kStep) + digits + (copy > 1 ? "." + std::to_string(copy) : "");
}

std::string beside_name(std::string_view prefix, std::string_view folder) {
  return std::string(prefix) + std::string(folder) + "-" + std::to_string(::getpid());
}

std::optional<FolderName> parse_name(std::string_view name) {
  if (!name.starts_with(kStep)) return std::nullopt;
  const std::size_t dot = name.find('.');
  FolderName parsed;
  parsed.folder = name;
  const bool read =
      read_number(name.substr(kStep.size(), dot == std::string_view::npos ? dot : dot - kStep.size()), parsed.step) &&
      (dot == std::string_view::npos || read_number(name.substr(dot + 1), parsed.copy));
  // Accepts only names that Millrace itself makes; "step-1" and "step--0000001" are foreign.
  if (!read || parsed.step < 0 || folder_name(parsed.step, parsed.copy) != name) return std::nullopt;
  return parsed;
}

std::optional<FolderName> parse_beside(std::string_view prefix, std::string_view name) {
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  const std::size_t dash = name.rfind('-');
  if (dash == std::string_view::npos) return std::nullopt;
  std::optional<FolderName> parsed = parse_name(name.substr(0, dash));
  if (!parsed || !read_number(name.substr(dash + 1), parsed->process) || parsed->process <= 0) return std::nullopt;
  return parsed;
}

std::vector<Candidate> candidates(Fs& fs, const std::filesystem::path& snapshots) {
  std::vector<Candidate> found;
  if (!fs.exists(snapshots)) return found;
  for (const std::string& name : fs.list(snapshots)) {
    auto parsed = parse_name(name);
    const bool is_replaced = !parsed;
    if (is_replaced) parsed = parse_beside(kReplaced, name);
    if (parsed) found.push_back({name, parsed->step, parsed->copy, is_replaced});
  }
  std::sort(found.begin(), found.end(), [](const Candidate& a, const Candidate& b) {
    return std::tuple(a.step, a.copy, !a.is_replaced, std::string_view(a.name)) <
           std::tuple(b.step, b.copy, !b.is_replaced, std::string_view(b.name));
  });
  return found;
}

bool is_taken(const std::filesystem::path& path) {
  std::error_code code;
  return std::filesystem::exists(std::filesystem::symlink_status(path, code));
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
