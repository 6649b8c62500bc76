#include <cerrno>
#include <string>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/hash.h"
#include "millrace/format/safetensors.h"
#include "millrace/snapshot/detail/folders.h"
#include "millrace/snapshot/detail/image.h"
#include "millrace/snapshot/detail/manifest.h"
#include "millrace/snapshot/snapshot.h"

namespace millrace::snapshot {
namespace {

constexpr std::uint64_t kManifestBytesPerTensor = 256;
constexpr std::uint64_t kSlackBytes = std::uint64_t{64} << 10U;  // room for folders and for rounding to blocks

// The temporary folder of a save; the destructor removes it if the save failed. An error of the removal is dropped, because it
// must not hide the error of the save.
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
    } catch (const FsError&) {  // the next process of the run removes the folder
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

// Runs `work`, and adds the file's name and size to its errors.
template <class Work>
auto writing(const std::string& file, std::uint64_t bytes, const Work& work) {
  try {
    return work();
  } catch (const FsError& error) {
    const bool is_full = error.error_number() == ENOSPC || error.error_number() == EDQUOT;
    throw SnapshotError({"can't write " + file + " (" + human_bytes(static_cast<double>(bytes)) + "): " + error.what(), "",
                         is_full ? "free space there, or lower snapshot.keep_last" : remedy_for(error.error_number())});
  }
}

detail::FileRecord write_tensors(Fs& fs, const std::filesystem::path& folder, const detail::ImageFile& file) {
  return writing(file.name, file.bytes, [&] {
    const std::unique_ptr<WritableFile> out = fs.create(folder / file.name);
    const format::WrittenSafetensors written = format::write_safetensors(*out, file.fields, file.bytes_of);
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

// Returns the path for a temporary folder of this process: the first name that is free, or that has only a leftover of an
// earlier save, which may be overwritten.
std::filesystem::path temporary_place(Fs& fs, const std::filesystem::path& snapshots, std::int64_t step) {
  for (int copy = 1;; ++copy) {
    auto place = snapshots / detail::beside_name(detail::kTemporary, detail::folder_name(step, copy));
    if (!detail::is_taken(place) || detail::is_our_leftover(fs, place)) return place;
  }
}

// Moves the finished folder to its place and returns that place. If there was a snapshot of this step, a crash at any point
// leaves a whole one, because the old snapshot is first moved to a name under which load_newest() also looks.
std::filesystem::path publish(Fs& fs, TemporaryFolder& finished, const std::filesystem::path& snapshots, std::int64_t step) {
  const std::lock_guard lock(detail::moves_mutex());
  const auto aside_of = [&](const std::filesystem::path& path) {
    return snapshots / detail::beside_name(detail::kReplaced, path.filename().string());
  };
  const auto can_be_replaced = [&](const std::filesystem::path& path) {
    const std::filesystem::path aside = aside_of(path);
    return detail::is_our_snapshot(fs, path, step) && (!detail::is_taken(aside) || detail::is_our_leftover(fs, aside));
  };
  int copy = 1;
  std::filesystem::path target = snapshots / detail::folder_name(step);
  while (detail::is_taken(target) && !can_be_replaced(target)) target = snapshots / detail::folder_name(step, ++copy);
  if (!detail::is_taken(target)) {
    finished.move_to(target);
    fs.sync_directory(snapshots);
    return target;
  }
  const std::filesystem::path aside = aside_of(target);
  fs.remove_all(aside);  // an earlier crash may have left `aside`, which is not needed because `target` is whole
  fs.rename(target, aside);
  try {
    finished.move_to(target);
  } catch (const FsError&) {
    fs.rename(aside, target);
    throw;
  }
  fs.sync_directory(snapshots);
  fs.remove_all(aside);
  return target;
}

}  // namespace

std::filesystem::path detail::write_image(Fs& fs, const std::filesystem::path& run, const Image& image) {
  std::uint64_t needed = image.state.size() + kSlackBytes;
  for (const ImageFile& file : image.files) needed += file.bytes + file.fields.size() * kManifestBytesPerTensor;

  const std::filesystem::path snapshots = snapshots_of(run);
  return writing("the snapshot", needed, [&] {
    const bool is_first = !fs.exists(snapshots);
    fs.create_directories(snapshots);
    if (is_first) fs.sync_directory(run);
    // Some file systems, such as some mounted by FUSE, do not know how much is free and report 0. For them only the write itself
    // shows whether the snapshot fits.
    if (const std::uint64_t free = fs.free_bytes(snapshots); free > 0 && free < needed) {
      throw SnapshotError({"it needs " + with_commas(static_cast<std::int64_t>(needed)) + " bytes, but only " +
                               with_commas(static_cast<std::int64_t>(free)) + " are free",
                           "", "free space there, or lower snapshot.keep_last"});
    }
    TemporaryFolder folder(fs, temporary_place(fs, snapshots, image.step));
    Manifest manifest;
    manifest.step = image.step;
    for (const ImageFile& file : image.files) manifest.files[file.name] = write_tensors(fs, folder.path(), file);
    manifest.files[kStateFile] = write_text(fs, folder.path(), kStateFile, image.state);
    write_text(fs, folder.path(), kManifestFile, to_text(manifest));
    fs.sync_directory(folder.path());
    return publish(fs, folder, snapshots, image.step);
  });
}

std::filesystem::path save(Fs& fs, const std::filesystem::path& run, const Content& content) {
  std::filesystem::path folder;
  detail::saving(run, content.step, [&] { folder = detail::write_image(fs, run, detail::image_of(content)); });
  return folder;
}

}  // namespace millrace::snapshot
