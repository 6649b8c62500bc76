#include <c10/util/Exception.h>

#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/hash.h"
#include "millrace/format/safetensors.h"
#include "millrace/snapshot/detail/folders.h"
#include "millrace/snapshot/detail/json_text.h"
#include "millrace/snapshot/detail/manifest.h"
#include "millrace/snapshot/detail/tensors.h"
#include "millrace/snapshot/snapshot.h"

namespace millrace::snapshot {
namespace {

constexpr std::uint64_t kManifestBytesPerTensor = 256;
constexpr std::uint64_t kSlackBytes = std::uint64_t{64} << 10U;  // folders, block rounding

struct TensorFile {
  std::string name;
  std::vector<Field> fields;
  std::vector<at::Tensor> tensors;  // as they are, wherever they are
  std::uint64_t bytes = 0;
};

// Why a tensor can't be written byte by byte; "" when it can.
std::string problem_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return "it is undefined";
  if (tensor.layout() != at::kStrided || tensor.is_nested()) return "it is not dense";
  if (tensor.is_meta()) return "it has no data (meta device)";
  if (!detail::dtype_of(tensor.scalar_type())) return std::string("no file holds ") + c10::toString(tensor.scalar_type());
  return "";
}

TensorFile describe(const std::string& name, const Tensors& tensors) {
  TensorFile file;
  file.name = name + detail::kTensorSuffix;
  for (const auto& [tensor_name, tensor] : tensors) {
    if (const std::string problem = problem_of(tensor); !problem.empty()) {
      throw SnapshotError(
          {"tensor " + millrace::quoted(tensor_name) + " of " + file.name + " can't be stored: " + problem, "", ""});
    }
    file.fields.push_back({tensor_name, *detail::dtype_of(tensor.scalar_type()), tensor.sizes().vec()});
    file.tensors.push_back(tensor);
  }
  file.bytes = format::safetensors_bytes(file.fields);
  return file;
}

std::vector<TensorFile> describe(const Content& content) {
  std::vector<TensorFile> files;
  const auto add = [&](const std::string& name, const Tensors& tensors) {
    if (!detail::is_plain_name(name)) throw SnapshotError({millrace::quoted(name) + " can't be the name of a file", "", ""});
    for (const TensorFile& file : files) {
      if (file.name == name + detail::kTensorSuffix) throw SnapshotError({"two parts have the name " + name, "", ""});
    }
    files.push_back(describe(name, tensors));
  };
  for (const auto& [name, tensors] : content.models) add(name, tensors);
  for (const auto& [name, part] : content.parts) {
    if (!part.tensors.empty()) add(name, part.tensors);
  }
  return files;
}

std::string state_text(const Content& content) {
  Json models = Json::array();
  for (const auto& [name, tensors] : content.models) models.push_back(name);
  Json parts = Json::object();
  for (const auto& [name, part] : content.parts) parts[name] = {{"json", part.json}, {"has_tensors", !part.tensors.empty()}};
  return detail::to_canonical(
             {{"step", content.step}, {"models", std::move(models)}, {"parts", std::move(parts)}, {"config", content.config}},
             1) +
         "\n";
}

// Removes the folder of a save that failed; a failure to do so must not hide the reason.
class TemporaryFolder {
 public:
  TemporaryFolder(Fs& fs, std::filesystem::path path) : fs_(fs), path_(std::move(path)), writing_(path_) {
    fs_.remove_all(path_);
    fs_.create_directories(path_);
  }
  ~TemporaryFolder() {
    if (is_moved_) return;
    try {
      fs_.remove_all(path_);
    } catch (const FsError&) {  // retain() tries again
    }
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  void move_to(const std::filesystem::path& target) {
    fs_.rename(path_, target);
    is_moved_ = true;
  }

 private:
  Fs& fs_;
  std::filesystem::path path_;
  detail::WritingFolder writing_;
  bool is_moved_ = false;
};

// Names the file and its size in what went wrong with it.
template <class Work>
auto writing(const std::string& file, std::uint64_t bytes, const Work& work) {
  try {
    return work();
  } catch (const FsError& error) {
    const bool is_full = error.error_number() == ENOSPC || error.error_number() == EDQUOT;
    throw SnapshotError(
        {"can't write " + file + " (" + human_bytes(static_cast<double>(bytes)) + "): " + error.what(), "",
         is_full ? "free space there, or lower snapshot.keep_last" : "check the disk and the folder's permissions"});
  }
}

detail::FileRecord write_tensors(Fs& fs, const std::filesystem::path& folder, const TensorFile& file) {
  return writing(file.name, file.bytes, [&] {
    const std::unique_ptr<WritableFile> out = fs.create(folder / file.name);
    at::Tensor host;
    const format::WrittenSafetensors written = format::write_safetensors(*out, file.fields, [&](std::size_t index) {
      host = detail::on_host(file.tensors[index]);
      return std::span<const std::byte>(detail::bytes_of(host));
    });
    out->sync();
    out->close();
    detail::FileRecord record{written.bytes, written.crc32c, written.header_crc32c, {}};
    for (std::size_t i = 0; i < file.fields.size(); ++i) record.tensors[file.fields[i].name] = written.tensor_crcs[i];
    return record;
  });
}

detail::FileRecord write_text(Fs& fs, const std::filesystem::path& folder, const std::string& name, const std::string& text) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(text));
  return writing(name, text.size(), [&] {
    const std::unique_ptr<WritableFile> out = fs.create(folder / name);
    out->write(bytes);
    out->sync();
    out->close();
    return detail::FileRecord{text.size(), crc32c(bytes), std::nullopt, {}};
  });
}

// Puts the finished folder in its place. Whatever call is the last before a crash, a whole snapshot of this step stays if
// there was one: the old one goes aside first, where load_newest() looks too.
void publish(Fs& fs, TemporaryFolder& finished, const std::filesystem::path& snapshots, std::int64_t step) {
  const std::lock_guard lock(detail::moves_mutex());
  const std::filesystem::path target = snapshots / detail::folder_name(step);
  if (!fs.exists(target)) {
    finished.move_to(target);
    return fs.sync_directory(snapshots);
  }
  const std::filesystem::path aside = snapshots / detail::beside_name(detail::kReplaced, step);
  fs.remove_all(aside);  // of an earlier crash; `target` is whole
  fs.rename(target, aside);
  try {
    finished.move_to(target);
  } catch (const FsError&) {
    fs.rename(aside, target);
    throw;
  }
  fs.sync_directory(snapshots);
  fs.remove_all(aside);
}

std::filesystem::path save_unwrapped(Fs& fs, const std::filesystem::path& run, const Content& content) {
  const std::vector<TensorFile> files = describe(content);
  const std::string state = state_text(content);
  std::uint64_t needed = state.size() + kSlackBytes;
  for (const TensorFile& file : files) needed += file.bytes + file.fields.size() * kManifestBytesPerTensor;

  const std::filesystem::path snapshots = detail::snapshots_of(run);
  return writing("the snapshot", needed, [&] {
    const bool is_first = !fs.exists(snapshots);
    fs.create_directories(snapshots);
    if (is_first) fs.sync_directory(run);
    if (const std::uint64_t free = fs.free_bytes(snapshots); free < needed) {
      throw SnapshotError({"it needs " + with_commas(static_cast<std::int64_t>(needed)) + " bytes, " +
                               with_commas(static_cast<std::int64_t>(free)) + " are free",
                           "", "free space there, or lower snapshot.keep_last"});
    }
    TemporaryFolder folder(fs, snapshots / detail::beside_name(detail::kTemporary, content.step));
    detail::Manifest manifest;
    manifest.step = content.step;
    for (const TensorFile& file : files) manifest.files[file.name] = write_tensors(fs, folder.path(), file);
    manifest.files[detail::kStateFile] = write_text(fs, folder.path(), detail::kStateFile, state);
    write_text(fs, folder.path(), detail::kManifestFile, detail::to_text(manifest));
    fs.sync_directory(folder.path());
    publish(fs, folder, snapshots, content.step);
    return snapshots / detail::folder_name(content.step);
  });
}

}  // namespace

std::filesystem::path save(Fs& fs, const std::filesystem::path& run, const Content& content) {
  const auto refuse = [&](std::string why, std::string next) -> SnapshotError {
    return SnapshotError({"can't save the snapshot of step " + std::to_string(content.step) + ": " + std::move(why),
                          detail::snapshots_of(run).string(), std::move(next)});
  };
  if (content.step < 0) throw refuse("steps begin at 0", "");
  try {
    return save_unwrapped(fs, run, content);
  } catch (const SnapshotError& error) {
    throw refuse(error.message().what, error.message().next);
  } catch (const DataError& error) {
    throw refuse(error.message().what, "rename the tensor or store it in another type");
  } catch (const Json::exception& error) {
    throw refuse(std::string("its state is not valid JSON: ") + error.what(), "report this; texts in a state must be UTF-8");
  } catch (const c10::Error& error) {
    throw refuse(std::string("a tensor can't be copied: ") + error.what_without_backtrace(), "see whether the device failed");
  }
}

}  // namespace millrace::snapshot
