#include "recipes/autoencoder_3d/volume_file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <type_traits>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/half.h"
#include "millrace/base/input_file.h"
#include "millrace/base/utf8.h"
#include "millrace/data/files/nifti.h"
#include "millrace/data/files/nifti_words.h"
#include "millrace/format/npy.h"
#include "recipes/autoencoder_3d/scaling.h"

namespace millrace::recipes::autoencoder_3d {
namespace {

constexpr const char* kRepair = R"(repair or remove the file, or set data.bad_samples="skip")";

// True if the file is an NPZ archive; otherwise the file counts as NIfTI. A file named .npz is always an archive, so that a file
// with that name and other content is refused as damaged.
bool is_archive(const std::filesystem::path& path) {
  if (to_lower(path.extension().string()) == ".npz") return true;
  const InputFile file(path);
  std::array<char, 4> magic{};
  if (file.size() >= magic.size()) file.read(0, std::as_writable_bytes(std::span(magic)));
  return std::string_view(magic.data(), magic.size()) == "PK\3\4";
}

// Calls use(T()) with the C++ type T of a real dtype. Returns false for other dtypes.
template <class Use>
bool with_type(DType dtype, const Use& use) {
  switch (dtype) {
    // NOLINTNEXTLINE(bugprone-branch-clone): each has a type of its own
    case DType::boolean:
    case DType::u8:
      return use(std::uint8_t()), true;
    case DType::i8:
      return use(std::int8_t()), true;
    case DType::i16:
      return use(std::int16_t()), true;
    case DType::u16:
      return use(std::uint16_t()), true;
    case DType::i32:
      return use(std::int32_t()), true;
    case DType::u32:
      return use(std::uint32_t()), true;
    case DType::i64:
      return use(std::int64_t()), true;
    case DType::u64:
      return use(std::uint64_t()), true;
    case DType::f32:
      return use(float()), true;
    case DType::f64:
      return use(double()), true;
    default:
      return false;
  }
}

bool is_kept_as_stored(DType dtype) { return (size_of(dtype) <= 2 && dtype != DType::f16) || dtype == DType::f32; }

// Turns a stored number into a value as NiftiFile::read_scaled does: in double, then rounded to float.
struct Scaling {
  double slope, intercept;
  bool scaled;
  template <class T>
  [[nodiscard]] float operator()(T value) const {
    return scaled ? static_cast<float>(static_cast<double>(value) * slope + intercept) : static_cast<float>(value);
  }
};

Scaling scaling_of(const VolumeFile& file) { return {file.slope, file.intercept, file.scaled}; }
// The scaling that the values in memory still need. Values that are not kept as stored need no scaling, because they were scaled
// when they became f32.
Scaling kept_scaling(const VolumeFile& file) { return is_kept_as_stored(file.dtype) ? scaling_of(file) : Scaling{1, 0, false}; }

[[noreturn]] void refuse(const VolumeFile& file, std::string what, std::string next) {
  throw DataError({.what = std::move(what), .where = file.path.string(), .next = std::move(next)});
}

std::size_t voxels_of(const VolumeFile& file) { return static_cast<std::size_t>(element_count(file.shape).value_or(0)); }

VolumeFile judged_npz(VolumeFile file) {
  const format::NpzFile archive(file.path);
  const char* const next =
      "save with numpy.savez(path, array), where array is (2,D,H,W): first the low-count image, then the high-count label";
  const format::NpzEntry* entry = archive.find("arr0");
  if (entry == nullptr) entry = archive.find("arr_0");
  if (entry == nullptr && !archive.unread().empty())
    refuse(file,
           "entry " + archive.unread().front().first + " is not an array of plain numbers: " + archive.unread().front().second,
           next);
  if (entry == nullptr && archive.entries().empty()) refuse(file, "the archive holds no array", next);
  if (entry == nullptr) entry = &archive.entries().front();
  const format::NpyLayout& layout = entry->layout;
  file.entry = entry->name;
  const std::string expected = "entry " + entry->name + " is " + to_text(layout.shape) + ", expected [2,D,H,W]";
  if (layout.shape.size() != 4 || layout.shape[0] != 2) refuse(file, expected, next);
  if (std::any_of(layout.shape.begin(), layout.shape.end(), [](std::int64_t n) { return n < 1; })) refuse(file, expected, next);
  file.shape.assign(layout.shape.begin() + 1, layout.shape.end());
  file.volumes = 2;
  file.dtype = layout.dtype;
  file.read_as = "arrays of .npz files, without orientation and voxel size";
  return file;
}

// Fills in the members of `file` that come from a NIfTI header. Throws DataError unless the header describes a volume or a series
// of volumes.
VolumeFile judged_nifti(VolumeFile file, const data::NiftiHeader& header) {
  Shape shape = header.shape;
  while (shape.size() > 3 && shape.front() == 1) shape.erase(shape.begin());
  const bool is_series = shape.size() == 4;
  if (shape.size() < 3 || shape.size() > 4 || std::any_of(shape.begin(), shape.end(), [](std::int64_t n) { return n < 1; })) {
    refuse(file,
           "the volume is " + to_text(header.shape) + " (slowest axis first), expected three axes, or a series of two volumes",
           "save one volume, or the low-count and the high-count volume along the fourth axis");
  }
  file.shape.assign(shape.end() - 3, shape.end());
  file.volumes = is_series ? 2 : 1;
  file.series = is_series ? shape.front() : 1;
  file.dtype = header.dtype;
  file.scaled = header.scaled;
  file.slope = header.slope;
  file.intercept = header.intercept;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const double size = std::abs(header.pixdim[3 - axis]) * data::millimetres(header);
    file.spacing[axis] = std::isfinite(size) ? size : 0;
  }
  file.orientation = data::orientation_of(header);
  file.read_as = data::read_as(header);
  return file;
}

void check_numbers(const VolumeFile& file) {
  if (file.dtype != DType::f16 && !with_type(file.dtype, [](auto) {})) {
    refuse(file, "the values are " + std::string(name_of(file.dtype)) + ", but a volume must have real numbers",
           "save the magnitude, or another real volume, as f32");
  }
  // For numbers of at most two bytes, slope and intercept show whether all values fit into f32. Wider numbers are checked when
  // they are read.
  if (size_of(file.dtype) <= 2 && file.scaled &&
      !(std::abs(file.slope) * 65536 + std::abs(file.intercept) < std::numeric_limits<float>::max())) {
    refuse(file, "scl_slope and scl_inter give values outside the range of f32", "repair the file's header");
  }
}

std::string index_text(std::size_t at, const Shape& shape) {
  std::vector<std::int64_t> index(shape.size());
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    index[axis] = static_cast<std::int64_t>(at % static_cast<std::size_t>(shape[axis]));
    at /= static_cast<std::size_t>(shape[axis]);
  }
  return to_text(index);
}

// Throws a DataError about the value with the index `number` among all values that were read.
[[noreturn]] void refuse_value(const VolumeFile& file, std::size_t number, double value) {
  Shape shape = file.shape;
  if (file.volumes == 2) shape.insert(shape.begin(), 2);
  const std::string kind = std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  refuse(file, (file.entry.empty() ? "voxel " : file.entry) + index_text(number, shape) + " is " + kind, kRepair);
}

void check_finite(const VolumeFile& file, std::span<const float> values, const Scaling& scaling) {
  constexpr std::size_t kBlock = 4096;
  for (std::size_t begin = 0; begin < values.size(); begin += kBlock) {
    const std::span<const float> block = values.subspan(begin, std::min(kBlock, values.size() - begin));
    bool finite = true;
    for (const float value : block) finite &= std::abs(scaling(value)) <= std::numeric_limits<float>::max();
    if (finite) continue;
    for (std::size_t i = 0; i < block.size(); ++i) {
      if (!std::isfinite(scaling(block[i]))) refuse_value(file, begin + i, static_cast<double>(scaling(block[i])));
    }
  }
}

// Reads the stored numbers of the first `count` volumes, in this machine's byte order. count <= file.volumes.
void read_stored(const VolumeFile& file, std::int64_t count, std::span<std::byte> out) {
  static thread_local std::vector<std::byte> all;
  if (file.is_archive) {
    const format::NpzFile archive(file.path);
    const format::NpzEntry* entry = archive.find(file.entry);
    const Shape shape = {2, file.shape[0], file.shape[1], file.shape[2]};
    if (entry == nullptr || entry->layout.shape != shape || entry->layout.dtype != file.dtype)
      refuse(file, "the file changed while it was in use", "start again");
    if (count == 2) return archive.read(*entry, out);
    all.resize(entry->layout.bytes);
    archive.read(*entry, all);
    std::memcpy(out.data(), all.data(), out.size());
    return;
  }
  const data::NiftiFile nifti(file.path);
  const VolumeFile now = judged_nifti({.path = file.path}, nifti.header());
  if (now.shape != file.shape || now.dtype != file.dtype || now.volumes != file.volumes || now.slope != file.slope ||
      now.intercept != file.intercept || now.scaled != file.scaled)
    refuse(file, "the file changed while it was in use", "start again");
  Shape size = nifti.header().shape;
  if (file.volumes == 2) size[size.size() - 4] = count;
  nifti.read(Shape(size.size(), 0), size, out);
}

template <class T>
void cut_rows(const T* volume, const Shape& shape, const Shape& offset, const Shape& size, const Scaling& scaling, float* out) {
  Shape inside(3);
  for (std::size_t axis = 0; axis < 3; ++axis) inside[axis] = std::clamp<std::int64_t>(shape[axis] - offset[axis], 0, size[axis]);
  for (std::int64_t z = 0; z < size[0]; ++z) {
    for (std::int64_t y = 0; y < size[1]; ++y, out += size[2]) {
      const std::int64_t filled = z < inside[0] && y < inside[1] ? inside[2] : 0;
      const T* row = volume + ((offset[0] + z) * shape[1] + offset[1] + y) * shape[2] + offset[2];
      if (scaling.scaled) {
        for (std::int64_t x = 0; x < filled; ++x) out[x] = scaling(row[x]);
      } else {
        for (std::int64_t x = 0; x < filled; ++x) out[x] = static_cast<float>(row[x]);
      }
      std::fill(out + filled, out + size[2], 0.0F);
    }
  }
}

}  // namespace

VolumeFile open_volume_file(const std::filesystem::path& path) {
  VolumeFile file{.path = path};
  file.is_archive = is_archive(path);
  file = file.is_archive ? judged_npz(std::move(file)) : judged_nifti(std::move(file), data::NiftiFile(path).header());
  check_numbers(file);
  return file;
}

DType kept_dtype(const VolumeFile& file) { return is_kept_as_stored(file.dtype) ? file.dtype : DType::f32; }

std::size_t kept_bytes(const VolumeFile& file) { return voxels_of(file) * size_of(kept_dtype(file)); }

void read_volumes(const VolumeFile& file, std::int64_t count, std::span<std::byte> out) {
  if (file.unusable) throw DataError(*file.unusable);
  const std::size_t voxels = voxels_of(file) * static_cast<std::size_t>(count);
  MR_CHECK(count <= file.volumes && out.size() == voxels * size_of(kept_dtype(file)), "as many volumes as there is room for");
  const std::span<float> floats(reinterpret_cast<float*>(out.data()), out.size() / sizeof(float));
  if (is_kept_as_stored(file.dtype)) {
    read_stored(file, count, out);
    if (file.dtype == DType::f32) check_finite(file, floats, scaling_of(file));
    return;
  }
  static thread_local std::vector<std::byte> stored;
  stored.resize(voxels * size_of(file.dtype));
  read_stored(file, count, stored);
  const auto convert = [&](auto type) {
    using T = decltype(type);
    const auto* from = reinterpret_cast<const T*>(stored.data());
    const Scaling scaling = scaling_of(file);
    for (std::size_t i = 0; i < voxels; ++i) floats[i] = scaling(from[i]);
  };
  if (file.dtype == DType::f16) {
    const auto* from = reinterpret_cast<const std::uint16_t*>(stored.data());
    const Scaling scaling = scaling_of(file);
    for (std::size_t i = 0; i < voxels; ++i) floats[i] = scaling(of_half(from[i]));
  } else {
    with_type(file.dtype, convert);
  }
  check_finite(file, floats, {1, 0, false});
}

void cut_volume(const VolumeFile& file, std::span<const std::byte> volume, const Shape& offset, const Shape& size,
                std::span<float> out) {
  MR_CHECK(volume.size() == kept_bytes(file) && static_cast<std::int64_t>(out.size()) == element_count(size),
           "a whole volume is cut into a whole crop");
  with_type(kept_dtype(file), [&](auto type) {
    using T = decltype(type);
    cut_rows(reinterpret_cast<const T*>(volume.data()), file.shape, offset, size, kept_scaling(file), out.data());
  });
}

std::array<float, 2> range_of_volume(const VolumeFile& file, std::span<const std::byte> volume) {
  static thread_local std::vector<float> values;
  values.resize(voxels_of(file));
  cut_volume(file, volume, {0, 0, 0}, file.shape, values);
  const Quantile place = upper_place(static_cast<std::int64_t>(values.size()));
  const auto below = values.begin() + place.below;
  const float least = *std::min_element(values.begin(), values.end());
  std::nth_element(values.begin(), below, values.end());
  const float above =
      place.below + 1 < static_cast<std::int64_t>(values.size()) ? *std::min_element(below + 1, values.end()) : *below;
  return {least, *below + static_cast<float>(place.weight) * (above - *below)};
}

}  // namespace millrace::recipes::autoencoder_3d
