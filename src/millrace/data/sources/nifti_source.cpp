#include "millrace/data/sources/nifti_source.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <system_error>
#include <utility>

#include "millrace/base/doing.h"
#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/hash.h"
#include "millrace/base/input_file.h"
#include "millrace/base/utf8.h"
#include "millrace/data/files/nifti_words.h"
#include "millrace/data/sources/detail/file_list.h"

namespace millrace::data {
namespace {

bool holds(const Shape& volume, const Shape& patch) {
  if (volume.size() != patch.size()) return false;
  for (std::size_t i = 0; i < patch.size(); ++i) {
    if (patch[i] < 1 || patch[i] > volume[i]) return false;
  }
  return true;
}

// Returns the row as floats. The cast is safe: a slot begins at a multiple of 64 bytes, and a row consists of whole floats.
std::span<float> floats_of(std::span<std::byte> row) {
  return {reinterpret_cast<float*>(row.data()), row.size() / sizeof(float)};
}

// The properties of a volume that are needed to cut a block from it. A volume in a cache (a part, see Source::keeps()) begins
// with these properties, followed by the voxels.
struct KeptVolume {
  std::array<std::int64_t, 7> shape{};  // seven sizes, the most axes that NIfTI has
  std::int64_t rank = 0;
  double slope = 1;
  double intercept = 0;
  DType dtype = DType::i16;
  bool scaled = false;
};

KeptVolume kept_of(const NiftiHeader& header) {
  KeptVolume kept{.rank = static_cast<std::int64_t>(header.shape.size()),
                  .slope = header.slope,
                  .intercept = header.intercept,
                  .dtype = header.dtype,
                  .scaled = header.scaled};
  MR_CHECK(header.shape.size() <= kept.shape.size(), "a NIfTI volume must have at most seven axes");
  std::copy(header.shape.begin(), header.shape.end(), kept.shape.begin());
  return kept;
}

// Returns a text about the content of the other file of each pair; "" if no file is one of a pair. `files` has only one file of
// each pair, and stamps cover only the files in `files`. Without this text, a change of the other file would not be noticed by a
// resume or a cache.
std::string partners_text(std::span<const std::filesystem::path> files) {
  std::vector<std::filesystem::path> partners;
  for (const std::filesystem::path& path : files) {
    std::filesystem::path base = path;
    if (to_lower(base.extension().string()) == ".gz") base.replace_extension();
    const std::string own = base.extension().string();
    const std::string kind = to_lower(own);
    if (kind != ".hdr" && kind != ".img") continue;
    const bool is_header = kind == ".hdr";
    base.replace_extension(own == kind ? (is_header ? ".img" : ".hdr") : (is_header ? ".IMG" : ".HDR"));
    for (const char* ending : {"", ".gz", ".GZ"}) {
      std::filesystem::path partner = base;
      partner += ending;
      std::error_code ignored;
      if (std::filesystem::exists(partner, ignored)) partners.push_back(std::move(partner));
    }
  }
  if (partners.empty()) return "";
  std::string contents;
  for (const FileStamp& stamp : stamps_of(partners)) contents += std::to_string(stamp.size) + ' ' + stamp.digest + '\n';
  return " pairs crc32c " + std::to_string(crc32c(std::as_bytes(std::span(contents))));
}

// Describes the first file, and says how the headers of up to kMost files differ from it. The user should know this, because
// volumes of different orientations are mixed, and equal stored numbers mean different values in files with different scales.
std::string words_of(std::span<const std::filesystem::path> files, const NiftiHeader& first, bool as_float) {
  constexpr std::size_t kMost = 64;
  const std::size_t looked = std::min(files.size(), kMost);
  const std::string axes = orientation_of(first);
  std::size_t turned = 0;
  std::string example;
  std::string scale;
  for (std::size_t i = 0; i < looked; ++i) {
    const std::filesystem::path& path = files[i * files.size() / looked];
    doing_moved();
    try {
      const NiftiFile file(path);
      const NiftiHeader& header = file.header();
      const std::string own = orientation_of(header);
      if (own != axes && turned++ == 0) example = own + " in " + path.filename().string();
      if (!as_float && header.scaled && scale.empty()) {
        scale = "slope " + significant(header.slope, 6) + ", intercept " + significant(header.intercept, 6) + " in " +
                path.filename().string();
      }
    } catch (const DataError&) {
      continue;  // not reported here, because the read will report the error
    }
  }
  std::string text = data::read_as(first);
  if (files.size() > 1) text += ", as the first of " + with_commas(std::ssize(files)) + " files says";
  if (turned > 0) {
    text += "; " + std::to_string(turned) + " of " + std::to_string(looked) + " files looked at " +
            (turned == 1 ? "has" : "have") + " another orientation (" + example + "); all files are read as stored";
  }
  if (!scale.empty()) text += "; numbers as stored, without the header's scale (" + scale + ")";
  return text;
}

std::size_t kept_bytes(const NiftiHeader& header) { return sizeof(KeptVolume) + header.voxel_bytes; }

}  // namespace

NiftiSource::NiftiSource(std::vector<std::filesystem::path> files, NiftiSamples samples)
    : files_(std::move(files)), samples_(std::move(samples)), sizes_(files_.size()) {
  fingerprint_ = "nifti " + detail::count_of_files(files_, "volumes");
  const NiftiFile first(files_.front());
  first_bytes_ = kept_bytes(first.header());
  read_as_ = words_of(files_, first.header(), samples_.as_float);
  const bool whole = samples_.patch.empty();
  field_ = {samples_.field, samples_.as_float ? DType::f32 : first.header().dtype, whole ? first.header().shape : samples_.patch};
  if (!whole && !holds(first.header().shape, samples_.patch)) {
    throw DataError(
        {.what = "a patch of " + to_text(samples_.patch) + " does not fit into a volume of " + to_text(first.header().shape),
         .where = files_.front().string(),
         .next = "give one size for each axis, slowest axis first, and none larger than the volume's"});
  }
  fingerprint_ += ' ' + std::string(name_of(field_.dtype)) +
                  (whole             ? " whole "
                   : samples_.random ? " random "
                                     : " middle ") +
                  to_text(field_.shape) + partners_text(files_);
}

void NiftiSource::judge(const std::filesystem::path& path, const NiftiHeader& header) const {
  const bool fits = samples_.patch.empty() ? header.shape == field_.shape : holds(header.shape, field_.shape);
  if (fits && (samples_.as_float || header.dtype == field_.dtype)) return;
  throw DataError({.what = "the volume is " + to_text(header.shape) + ' ' + std::string(name_of(header.dtype)) +
                           ", samples are " + to_text(field_.shape) + ' ' + std::string(name_of(field_.dtype)),
                   .where = path.string(),
                   .next = samples_.patch.empty() ? "use volumes of one shape and dtype, or patches"
                                                  : "use volumes of one dtype, no smaller than the patch"});
}

// Returns where the block begins in the volume: at a random place, or so that it is centred.
Shape NiftiSource::place(const Shape& volume, Philox draws) const {
  Shape offset(volume.size());
  for (std::size_t axis = 0; axis < volume.size(); ++axis) {
    const std::int64_t room = volume[axis] - field_.shape[axis];
    offset[axis] = samples_.random ? static_cast<std::int64_t>(draws.below(static_cast<std::uint64_t>(room) + 1)) : room / 2;
  }
  return offset;
}

void NiftiSource::read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom& random) const {
  const std::size_t row_bytes = field_.bytes();
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const NiftiFile file(files_[static_cast<std::size_t>(indices[i])]);
    judge(file.path(), file.header());
    const Shape offset = place(file.header().shape, random(i));
    const std::span<std::byte> out(rows.row(0, i, row_bytes), row_bytes);
    if (!samples_.as_float) {
      file.read(offset, field_.shape, out);
    } else {
      file.read_scaled(offset, field_.shape, floats_of(out));
    }
  }
}

void NiftiSource::will_need(std::span<const std::int64_t> indices, const ReadRandom&) const noexcept {
  for (const std::int64_t index : indices) will_need_file(files_[static_cast<std::size_t>(index)]);
}

// Returns the bytes of a part. For a file that can't be read, returns the size of the first file. The file's error must come
// from the read, because data.bad_samples applies to reads.
std::size_t NiftiSource::part_bytes(std::int64_t part) const {
  std::atomic<std::size_t>& size = sizes_[static_cast<std::size_t>(part)];
  if (size.load(std::memory_order_relaxed) == 0) {
    std::size_t bytes = first_bytes_;
    try {
      if (!samples_.patch.empty() || samples_.as_float)
        bytes = kept_bytes(NiftiFile(files_[static_cast<std::size_t>(part)]).header());
    } catch (const DataError&) {
    }
    size.store(bytes, std::memory_order_relaxed);
  }
  return size.load(std::memory_order_relaxed);
}

void NiftiSource::load(std::int64_t part, std::span<std::byte> bytes) const {
  const NiftiFile file(files_[static_cast<std::size_t>(part)]);
  const NiftiHeader& header = file.header();
  judge(file.path(), header);
  if (samples_.as_float && (header.dtype == DType::c64 || header.dtype == DType::c128)) {
    // This call always throws, because the voxels are complex.
    std::vector<float> refused(field_.bytes() / sizeof(float));
    file.read_scaled(place(header.shape, Philox(0)), field_.shape, refused);
  }
  if (kept_bytes(header) != bytes.size()) {
    throw DataError({.what = "the volume changed while it was read", .where = file.path().string(), .next = "start again"});
  }
  const KeptVolume kept = kept_of(header);
  std::memcpy(bytes.data(), &kept, sizeof kept);
  file.read(bytes.subspan(sizeof kept));
}

// Returns the texts from which a cache makes the parts' keys. For a pair of files the text is "", because a stamp covers only
// one of the two files.
std::vector<std::string> NiftiSource::part_texts() const {
  std::vector<std::string> texts;
  for (const FileStamp& stamp : stamps()) {
    const bool is_pair = !stamp.name.ends_with(".nii") && !stamp.name.ends_with(".nii.gz");
    const std::string content = is_pair ? "" : content_text(stamp);
    texts.push_back(content.empty() ? "" : content + " nifti");
  }
  return texts;
}

void NiftiSource::finish(std::int64_t, std::span<const std::span<const std::byte>> parts, Rows rows,
                         const ReadRandom& random) const {
  const std::span<const std::byte> part = parts[0];
  KeptVolume kept;
  std::memcpy(&kept, part.data(), sizeof kept);
  NiftiHeader header;
  header.dtype = kept.dtype;
  header.shape.assign(kept.shape.begin(), kept.shape.begin() + kept.rank);
  header.slope = kept.slope;
  header.intercept = kept.intercept;
  header.scaled = kept.scaled;
  const Shape offset = place(header.shape, random(0));
  const std::span<std::byte> out(rows.row(0, 0, 0), field_.bytes());
  if (!samples_.as_float) {
    cut(header, part.subspan(sizeof kept), offset, field_.shape, out);
  } else {
    cut_scaled(header, part.subspan(sizeof kept), offset, field_.shape, floats_of(out));
  }
}

}  // namespace millrace::data
