#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <utility>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/hash.h"
#include "millrace/core/scalar_type.h"
#include "millrace/format/safetensors.h"
#include "millrace/snapshot/detail/folders.h"
#include "millrace/snapshot/detail/json_text.h"
#include "millrace/snapshot/detail/manifest.h"
#include "millrace/snapshot/detail/tensors.h"
#include "millrace/snapshot/snapshot.h"

namespace millrace::snapshot {
namespace {

constexpr std::uintmax_t kMostStateBytes = std::uintmax_t{256} << 20U;

// Reads one snapshot's folder; all its errors name the snapshot.
class Loader {
 public:
  Loader(Fs& fs, std::filesystem::path folder) : fs_(fs), folder_(std::move(folder)) {}

  Content load() {
    read_manifest();
    const Json state = read_state();
    try {
      return assemble(state);
    } catch (const Json::exception& error) {
      refuse(detail::kStateFile, std::string("lacks something: ") + error.what());
    }
  }

  // Checks the snapshot while holding one tensor at a time in memory.
  void check() {
    read_manifest();
    static_cast<void>(read_state());
    for (const auto& [file, record] : manifest_.files) {
      if (file != detail::kStateFile) read_file(file, [](const std::string&, const at::Tensor&) {});
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& file, const std::string& why) const {
    throw SnapshotError({folder_.filename().string() + " can't be used: " + file + " " + why, (folder_ / file).string(),
                         "resume from an older snapshot, or copy this one again"});
  }

  std::string read_small(const std::string& file, std::uintmax_t most_bytes) const {
    std::error_code code;
    const std::uintmax_t size = std::filesystem::file_size(folder_ / file, code);  // sets `code` if this is not a regular file
    if (!code && size > most_bytes) refuse(file, "is too large: " + human_bytes(static_cast<double>(size)));
    try {
      return fs_.read_file(folder_ / file);
    } catch (const FsError& error) {
      refuse(file, std::string("can't be read: ") + error.what());
    }
  }

  void read_manifest() {
    detail::ParsedManifest parsed = detail::parse_manifest(read_small(detail::kManifestFile, detail::kMostManifestBytes));
    if (!parsed.problem.empty()) refuse(detail::kManifestFile, "is damaged: " + parsed.problem);
    manifest_ = std::move(parsed.manifest);
  }

  [[nodiscard]] const detail::FileRecord& record_of(const std::string& file) const {
    const auto found = manifest_.files.find(file);
    if (found == manifest_.files.end()) refuse(detail::kManifestFile, "does not mention " + file);
    return found->second;
  }

  void check_size(const std::string& file, std::uint64_t size, std::uint64_t expected) const {
    if (size == expected) return;
    refuse(file, "is damaged: it has " + with_commas(static_cast<std::int64_t>(size)) + " bytes, but the manifest says " +
                     with_commas(static_cast<std::int64_t>(expected)));
  }

  std::string read_text(const std::string& file, std::uintmax_t most_bytes) const {
    const detail::FileRecord& record = record_of(file);
    std::string text = read_small(file, most_bytes);
    check_size(file, text.size(), record.bytes);
    if (crc32c(std::as_bytes(std::span(text))) != record.crc32c)
      refuse(file, "is damaged: its CRC32C differs from the manifest's");
    return text;
  }

  [[nodiscard]] Json read_state() const {
    std::optional<Json> state = detail::from_canonical(read_text(detail::kStateFile, kMostStateBytes));
    if (!state) refuse(detail::kStateFile, "is not JSON, or is nested too deeply");
    return *std::move(state);
  }

  Tensors read_tensors(const std::string& name) const {
    Tensors tensors;
    read_file(name + detail::kTensorSuffix,
              [&](const std::string& tensor, at::Tensor value) { tensors.emplace(tensor, std::move(value)); });
    return tensors;
  }

  void read_file(const std::string& file, const std::function<void(const std::string&, at::Tensor)>& take) const {
    const detail::FileRecord& record = record_of(file);
    try {
      const format::SafetensorsFile stored(folder_ / file);
      check_size(file, stored.bytes(), record.bytes);
      if (stored.header_crc32c() != record.header_crc32c || stored.tensors().size() != record.tensors.size()) {
        refuse(file, "is damaged: its header differs from the one that was written");
      }
      for (const format::StoredTensor& tensor : stored.tensors()) take(tensor.name, read_tensor(stored, tensor, record));
    } catch (const DataError& error) {
      refuse(file, "is damaged: " + error.message().what);
    } catch (const c10::Error& error) {
      refuse(file, std::string("does not fit into memory: ") + error.what_without_backtrace());
    }
  }

  at::Tensor read_tensor(const format::SafetensorsFile& stored, const format::StoredTensor& tensor,
                         const detail::FileRecord& record) const {
    const auto expected = record.tensors.find(tensor.name);
    const std::string file = stored.path().filename().string();
    if (expected == record.tensors.end()) refuse(file, "is damaged: the manifest has no tensor " + millrace::quoted(tensor.name));
    at::Tensor result = at::empty(tensor.shape, at::TensorOptions().dtype(scalar_type_of(tensor.dtype)));
    const std::span<std::byte> bytes = detail::bytes_of(result);
    stored.read(tensor, bytes);
    if (crc32c(bytes) != expected->second) {
      refuse(file, "is damaged: bytes of tensor " + millrace::quoted(tensor.name) + " changed after they were written");
    }
    return result;
  }

  Content assemble(const Json& state) const {
    Content content;
    content.step = state.at("step").get<std::int64_t>();
    if (content.step != manifest_.step) refuse(detail::kStateFile, "belongs to another step than the manifest");
    content.config = state.at("config");
    content.report = state.value("report", Json::object());
    for (const Json& model : state.at("models")) {
      const auto& name = model.get_ref<const std::string&>();
      content.models.emplace(name, read_tensors(name));
    }
    for (const auto& [name, part] : state.at("parts").get_ref<const Json::object_t&>()) {
      State& loaded = content.parts[name];
      loaded.json = part.at("json");
      if (part.at("has_tensors").get<bool>()) loaded.tensors = read_tensors(name);
    }
    return content;
  }

  Fs& fs_;
  std::filesystem::path folder_;
  detail::Manifest manifest_;
};

// Returns the candidates in order of step.
std::vector<detail::Candidate> candidates_of(Fs& fs, const std::filesystem::path& snapshots) {
  try {
    return detail::candidates(fs, snapshots);
  } catch (const FsError& error) {
    throw SnapshotError(
        {std::string("can't look for snapshots: ") + error.what(), snapshots.string(), "check the folder's permissions"});
  }
}

}  // namespace

bool is_ours(Fs& fs, const Found& found) noexcept { return detail::is_our_snapshot(fs, found.path, found.step); }

std::vector<std::string> files_of(Fs& fs, const Found& found) noexcept {
  return detail::files_of_snapshot(fs, found.path, found.step);
}

std::filesystem::path free_place(const std::filesystem::path& run, std::int64_t step) {
  const auto place = [&](int copy) { return detail::snapshots_of(run) / detail::folder_name(step, copy); };
  int copy = 1;
  while (detail::is_taken(place(copy))) ++copy;
  return place(copy);
}

Content load(Fs& fs, const std::filesystem::path& snapshot) { return Loader(fs, snapshot).load(); }

void check(Fs& fs, const std::filesystem::path& snapshot) { Loader(fs, snapshot).check(); }

std::vector<Found> list(Fs& fs, const std::filesystem::path& run) {
  const std::filesystem::path snapshots = detail::snapshots_of(run);
  std::vector<Found> found;
  for (const detail::Candidate& candidate : candidates_of(fs, snapshots)) {
    // A replaced snapshot comes before its replacement, and only the replacement counts.
    if (!found.empty() && found.back().step == candidate.step && found.back().copy == candidate.copy) found.pop_back();
    found.push_back({snapshots / candidate.name, candidate.step, candidate.copy});
  }
  return found;
}

std::optional<Content> load_newest(Fs& fs, const std::filesystem::path& run,
                                   const std::function<void(const std::filesystem::path&, const std::string&)>& passed_over,
                                   std::filesystem::path* found) {
  const std::filesystem::path snapshots = detail::snapshots_of(run);
  const std::vector<detail::Candidate> candidates = candidates_of(fs, snapshots);
  for (auto candidate = candidates.rbegin(); candidate != candidates.rend(); ++candidate) {
    const std::filesystem::path path = snapshots / candidate->name;
    try {
      Content content = load(fs, path);
      if (found != nullptr) *found = path;
      return content;
    } catch (const SnapshotError& error) {
      if (passed_over) passed_over(path, error.message().what);
    }
  }
  return std::nullopt;
}

}  // namespace millrace::snapshot
