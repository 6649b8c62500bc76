#include "millrace/cli/inspect/detail/file_values.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "millrace/base/byte_order.h"
#include "millrace/base/input_file.h"
#include "millrace/base/utf8.h"
#include "millrace/data/files/image.h"
#include "millrace/data/files/nifti.h"
#include "millrace/data/files/token_array.h"
#include "millrace/format/npy.h"
#include "millrace/format/pt.h"
#include "millrace/format/safetensors.h"
#include "millrace/format/wav.h"
#include "millrace/hdf5/file.h"

namespace millrace::cli {
namespace {

namespace fs = std::filesystem;

using Take = std::function<void(std::span<const std::byte>)>;

constexpr std::uint64_t kPiece = std::uint64_t{4} << 20U;  // bytes; a multiple of every dtype's element size

// Reads contiguous elements of a file in pieces and gives each piece to `take`.
void take_bytes(const InputFile& file, std::uint64_t offset, std::uint64_t bytes, DType dtype, bool swapped, const Take& take) {
  std::vector<std::byte> piece(std::min(kPiece, bytes));
  for (std::uint64_t done = 0; done < bytes; done += piece.size()) {
    const auto part = std::span(piece).first(std::min<std::uint64_t>(piece.size(), bytes - done));
    file.read(offset + done, part);
    if (swapped) swap_bytes(dtype, part);
    take(part);
  }
}

// Calls `visit` for blocks of a few megabytes until the array is complete. A block consists of whole chunks, so that no chunk is
// decoded twice. Chunks that are neighbours along the last axes are put into one block, as many as fit.
template <class Visit>
void for_each_block(const Shape& shape, const Shape& chunk, std::size_t width, const Visit& visit) {
  const std::size_t axes = shape.size();
  if (element_count(shape).value_or(0) == 0) return;
  Shape block(axes, 1);
  for (std::size_t i = 0; i < chunk.size(); ++i) block[i] = std::min(chunk[i], shape[i]);
  const auto bytes = [&] { return static_cast<std::uint64_t>(element_count(block).value_or(1)) * width; };
  for (std::size_t i = axes; i-- > 0;) {
    const auto times = static_cast<std::int64_t>(std::max<std::uint64_t>(1, kPiece / std::max<std::uint64_t>(bytes(), 1)));
    block[i] = times > shape[i] / block[i] ? shape[i] : block[i] * times;
    if (block[i] < shape[i]) break;
  }
  Shape offset(axes, 0), size(axes);
  for (;;) {
    for (std::size_t i = 0; i < axes; ++i) size[i] = std::min(block[i], shape[i] - offset[i]);
    visit(offset, size);
    std::size_t axis = axes;
    while (axis > 0 && (offset[axis - 1] += block[axis - 1]) >= shape[axis - 1]) offset[--axis] = 0;
    if (axis == 0) return;
  }
}

std::size_t bytes_of(const Shape& size, std::size_t width) {
  return static_cast<std::size_t>(element_count(size).value_or(0)) * width;
}

}  // namespace

std::vector<LyingArray> safetensors_arrays(const fs::path& path) {
  std::vector<LyingArray> arrays;
  const auto file = std::make_shared<const InputFile>(path);
  const format::SafetensorsFile header(path);
  for (const format::StoredTensor& tensor : header.tensors()) {
    arrays.push_back({tensor.name, tensor.dtype, tensor.shape, [file, tensor](const Take& take) {
                        take_bytes(*file, tensor.offset, tensor.bytes, tensor.dtype, false, take);
                      }});
  }
  return arrays;
}

std::vector<LyingArray> npy_arrays(const fs::path& path) {
  const auto file = std::make_shared<const format::NpyFile>(path);
  return {{"array", file->layout().dtype, file->layout().shape, [file](const Take& take) {
             const format::NpyLayout& layout = file->layout();
             take_bytes(file->file(), layout.header_bytes, layout.bytes, layout.dtype, layout.swapped, take);
           }}};
}

std::vector<LyingArray> npz_arrays(const fs::path& path) {
  std::vector<LyingArray> arrays;
  const auto file = std::make_shared<const format::NpzFile>(path);
  for (const format::NpzEntry& entry : file->entries()) {
    arrays.push_back({entry.name, entry.layout.dtype, entry.layout.shape, [file, &entry](const Take& take) {
                        const format::NpyLayout& layout = entry.layout;
                        if (!entry.deflated)
                          return take_bytes(file->file(), entry.offset + layout.header_bytes, layout.bytes, layout.dtype,
                                            layout.swapped, take);
                        std::vector<std::byte> whole(layout.bytes);
                        file->read(entry, whole);
                        take(whole);
                      }});
  }
  return arrays;
}

std::vector<LyingArray> pt_arrays(const fs::path& path) {
  std::vector<LyingArray> arrays;
  const auto file = std::make_shared<format::PtFile>(path);
  for (const format::PtTensor& tensor : file->tensors()) {
    arrays.push_back({tensor.name, tensor.dtype, tensor.shape, [file, &tensor](const Take& take) {
                        const std::uint64_t at_once = format::is_row_major(tensor) ? kPiece : tensor.bytes;
                        std::vector<std::byte> piece(std::min(at_once, tensor.bytes));
                        for (std::uint64_t done = 0; done < tensor.bytes; done += piece.size()) {
                          const auto part = std::span(piece).first(std::min<std::uint64_t>(piece.size(), tensor.bytes - done));
                          file->read_part(tensor, done, part);
                          take(part);
                        }
                      }});
  }
  return arrays;
}

std::vector<LyingArray> nifti_arrays(const fs::path& path) {
  const auto file = std::make_shared<const data::NiftiFile>(path);
  const data::NiftiHeader& header = file->header();
  const bool scales = header.scaled && header.dtype != DType::c64 && header.dtype != DType::c128;
  const DType dtype = scales ? DType::f32 : header.dtype;
  const bool compressed = to_lower(path.extension().string()) == ".gz";
  return {{"voxels", dtype, header.shape, [file, dtype, scales, compressed](const Take& take) {
             const Shape& shape = file->header().shape;
             const auto visit = [&](const Shape& offset, const Shape& size) {
               std::vector<std::byte> block(bytes_of(size, size_of(dtype)));
               if (scales) {
                 std::vector<float> values(block.size() / sizeof(float));
                 file->read_scaled(offset, size, values);
                 take(std::as_bytes(std::span(values)));
               } else {
                 file->read(offset, size, block);
                 take(block);
               }
             };
             if (compressed)
               // the whole array is one block, because each read would inflate the whole array
               return visit(Shape(shape.size(), 0), shape);
             for_each_block(shape, {}, size_of(dtype), visit);
           }}};
}

std::vector<LyingArray> hdf5_arrays(const fs::path& path) {
  std::vector<LyingArray> arrays;
  const auto file = hdf5::File::open(path);
  for (const hdf5::Dataset& dataset : file->datasets()) {
    arrays.push_back({dataset.name, dataset.dtype, dataset.shape, [file, &dataset](const Take& take) {
                        std::vector<std::byte> block;
                        for_each_block(dataset.shape, dataset.chunk, size_of(dataset.dtype),
                                       [&](const Shape& offset, const Shape& size) {
                                         block.resize(bytes_of(size, size_of(dataset.dtype)));
                                         file->read(dataset.name, offset, size, block);
                                         take(block);
                                       });
                      }});
  }
  return arrays;
}

std::vector<LyingArray> image_arrays(const fs::path& path) {
  const data::PictureSize size = data::Image(path).size();
  const std::int64_t channels = size.stored == data::Pixels::gray ? 1 : 3;
  return {{"pixels", DType::u8, {size.height, size.width, channels}, [path, size, channels](const Take& take) {
             std::vector<std::byte> pixels(static_cast<std::size_t>(size.height * size.width * channels));
             data::Image(path).decode(size.stored, 1, {0, 0, size.height, size.width}, pixels);
             take(pixels);
           }}};
}

std::vector<LyingArray> sound_arrays(const fs::path& path) {
  const auto file = std::make_shared<const format::WavFile>(path);
  const format::WavLayout& layout = file->layout();
  return {{"sound", DType::f32, {layout.channels, layout.frames}, [file](const Take& take) {
             std::vector<float> values(static_cast<std::size_t>(file->layout().channels * file->layout().frames));
             file->read(values);
             take(std::as_bytes(std::span(values)));
           }}};
}

std::vector<LyingArray> token_arrays(const fs::path& path) {
  const auto tokens = data::TokenArray::open(path);
  const DType dtype = tokens->token_bytes() == 2 ? DType::u16 : DType::u32;
  return {{"tokens", dtype, {tokens->size()}, [tokens](const Take& take) {
             const auto width = static_cast<std::int64_t>(tokens->token_bytes());
             const std::int64_t at_once = static_cast<std::int64_t>(kPiece) / width;
             std::vector<std::byte> piece(static_cast<std::size_t>(std::min(at_once, tokens->size()) * width));
             for (std::int64_t done = 0; done < tokens->size(); done += at_once) {
               const std::int64_t count = std::min(at_once, tokens->size() - done);
               tokens->read(done, count, piece.data());
               take(std::span(piece).first(static_cast<std::size_t>(count * width)));
             }
           }}};
}

}  // namespace millrace::cli
