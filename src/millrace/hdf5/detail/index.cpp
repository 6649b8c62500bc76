#include "millrace/hdf5/detail/index.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "millrace/base/clock.h"
#include "millrace/base/error.h"
#include "millrace/base/hash.h"
#include "millrace/base/input_file.h"
#include "millrace/base/version.h"
#include "millrace/hdf5/detail/wire.h"

namespace millrace::hdf5::detail {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostBytes = std::uint64_t{512} << 20U;
constexpr std::size_t kMostAnswer = std::size_t{1} << 20U;
constexpr double kQuietSeconds = 2;

std::string full_path(const fs::path& file) { return file.is_absolute() ? file.string() : fs::absolute(file).string(); }

// Returns the deepest folder that contains all files. The folder stays the same if files are added to it.
std::string common_folder(std::span<const fs::path> files) {
  std::string common = files.empty() ? "" : full_path(files.front());
  for (const fs::path& path : files) {
    const std::string file = full_path(path);
    const auto differs = std::mismatch(common.begin(), common.end(), file.begin(), file.end()).first;
    common.erase(differs, common.end());
  }
  return common.substr(0, common.rfind('/') + 1);
}

std::string head_line() { return "millrace index of HDF5 files, answers of version " + std::to_string(kAnswerVersion); }

std::string name_of(std::span<const fs::path> files, std::span<const std::string> datasets) {
  Sha256 hash;
  hash.update(head_line() + '\n' + common_folder(files) + '\n');
  for (const std::string& name : datasets) hash.update((name.starts_with('/') ? name : '/' + name) + '\n');
  return hash.hex().substr(0, 24) + ".files";
}

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }

}  // namespace

Index::Index(const fs::path& folder, std::span<const fs::path> files, std::span<const std::string> datasets)
    : path_(folder / name_of(files, datasets)) {
  std::error_code none;
  if (!fs::is_regular_file(path_, none)) return;
  try {
    read();
  } catch (const DataError&) {
    entries_.clear();
  }
}

void Index::read() {
  const InputFile file(path_);
  if (file.size() > kMostBytes) return;
  bytes_.resize(file.size());
  file.read(0, std::as_writable_bytes(std::span(bytes_)));
  WireReader in(bytes_);
  if (in.view() != head_line() || in.get<std::uint32_t>() != crc32c(bytes_of(in.rest()))) return;
  const auto count = in.get<std::uint64_t>();
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string_view path = in.view();
    Entry entry;
    entry.stamp.bytes = in.get<std::uint64_t>();
    entry.stamp.modified_ns = in.get<std::int64_t>();
    entry.stamp.head = in.get<std::uint32_t>();
    entry.answer = in.view();
    entries_.insert_or_assign(path, entry);
  }
}

std::string_view Index::find(const fs::path& file, const Stamp& stamp) const {
  const auto found = entries_.find(full_path(file));
  return found != entries_.end() && found->second.stamp == stamp ? found->second.answer : std::string_view();
}

void Index::add(const fs::path& file, const Stamp& stamp, const std::string& answer) {
  if (answer.size() > kMostAnswer || static_cast<double>(stamp.modified_ns) * 1e-9 > unix_seconds() - kQuietSeconds) return;
  std::string path = full_path(file);
  WireWriter out;
  out.text(path).put(stamp.bytes).put(stamp.modified_ns).put(stamp.head).text(answer);
  new_bytes_.insert_or_assign(std::move(path), out.bytes());
}

void Index::save(Fs& system) {
  if (new_bytes_.empty()) return;
  std::uint64_t count = 0;
  std::string body;
  const auto add = [&](const std::string& entry) {
    if (body.size() + entry.size() > kMostBytes / 2) return;
    body += entry;
    ++count;
  };
  for (const auto& [path, entry] : new_bytes_) add(entry);
  for (const auto& [view, entry] : entries_) {
    const std::string path(view);
    if (new_bytes_.contains(path) || ::access(path.c_str(), F_OK) != 0) continue;
    WireWriter out;
    out.text(path).put(entry.stamp.bytes).put(entry.stamp.modified_ns).put(entry.stamp.head).text(entry.answer);
    add(out.bytes());
  }
  const std::string checked = WireWriter().put(count).bytes() + body;
  const std::string start = WireWriter().text(head_line()).put(crc32c(bytes_of(checked))).bytes();
  try {
    system.create_directories(path_.parent_path());
    write_atomically(system, path_, start + checked);
  } catch (const FsError&) {
    return;  // nothing is saved, as index.h says; only the next start is slower
  }
}

}  // namespace millrace::hdf5::detail
