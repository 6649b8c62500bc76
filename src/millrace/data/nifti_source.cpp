#include "millrace/data/nifti_source.h"

#include <utility>

#include "millrace/base/error.h"
#include "millrace/data/detail/file_list.h"
#include "millrace/data/nifti.h"

namespace millrace::data {
namespace {

bool holds(const Shape& volume, const Shape& patch) {
  if (volume.size() != patch.size()) return false;
  for (std::size_t i = 0; i < patch.size(); ++i) {
    if (patch[i] < 1 || patch[i] > volume[i]) return false;
  }
  return true;
}

}  // namespace

NiftiSource::NiftiSource(std::vector<std::filesystem::path> files, NiftiSamples samples)
    : files_(std::move(files)), samples_(std::move(samples)) {
  fingerprint_ = "nifti " + detail::fingerprint_of_files(files_, "volumes");
  const NiftiFile first(files_.front());
  const bool whole = samples_.patch.empty();
  field_ = {samples_.field, samples_.as_float ? DType::f32 : first.header().dtype, whole ? first.header().shape : samples_.patch};
  if (!whole && !holds(first.header().shape, samples_.patch)) {
    throw DataError(
        {.what = "a patch of " + to_text(samples_.patch) + " does not fit into a volume of " + to_text(first.header().shape),
         .where = files_.front().string(),
         .next = "give one size for each axis, slowest first, none larger than the volume's"});
  }
  fingerprint_ += ' ' + std::string(name_of(field_.dtype)) +
                  (whole             ? " whole "
                   : samples_.random ? " random "
                                     : " middle ") +
                  to_text(field_.shape);
}

void NiftiSource::read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom& random) const {
  const std::size_t row_bytes = field_.bytes();
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const NiftiFile file(files_[static_cast<std::size_t>(indices[i])]);
    const Shape& shape = file.header().shape;
    const bool fits = samples_.patch.empty() ? shape == field_.shape : holds(shape, field_.shape);
    if (!fits || (!samples_.as_float && file.header().dtype != field_.dtype)) {
      throw DataError({.what = "the volume is " + to_text(shape) + ' ' + std::string(name_of(file.header().dtype)) +
                               ", samples are " + to_text(field_.shape) + ' ' + std::string(name_of(field_.dtype)),
                       .where = file.path().string(),
                       .next = samples_.patch.empty() ? "use volumes of one shape and dtype, or patches"
                                                      : "use volumes of one dtype, no smaller than the patch"});
    }
    Shape offset(shape.size());
    Philox where = random(i);
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
      const std::int64_t room = shape[axis] - field_.shape[axis];
      offset[axis] = samples_.random ? static_cast<std::int64_t>(where.below(static_cast<std::uint64_t>(room) + 1)) : room / 2;
    }
    const std::span<std::byte> out(rows.row(0, i, row_bytes), row_bytes);
    if (!samples_.as_float) {
      file.read(offset, field_.shape, out);
    } else {
      // Rows are aligned for their dtype: a slot begins at 64 bytes and a row is whole floats.
      file.read_scaled(offset, field_.shape, {reinterpret_cast<float*>(out.data()), row_bytes / sizeof(float)});
    }
  }
}

}  // namespace millrace::data
