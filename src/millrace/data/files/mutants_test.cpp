// Damages 1,000 files of each format: no file may crash a reader or exhaust memory, and no truncated file may be accepted.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <numeric>

#include "millrace/base/fs.h"
#include "millrace/data/files/image.h"
#include "millrace/data/files/nifti.h"
#include "millrace/format/deflate.h"
#include "millrace/format/npy.h"
#include "millrace/format/png.h"
#include "millrace/format/pt.h"
#include "millrace/format/safetensors.h"
#include "tests/support/mutants.h"
#include "tests/support/nifti_maker.h"
#include "tests/support/test_support.h"

namespace millrace::data {
namespace {

using test::expect_survives_mutants;
using test::text_of;

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

// A file in memory, for writers that need a file.
class TextFile final : public WritableFile {
 public:
  explicit TextFile(std::string& text) : text_(text) {}
  void write(std::span<const std::byte> bytes) override { text_ += text_of(bytes); }
  void sync() override {}
  void close() override {}

 private:
  std::string& text_;
};

std::string noise(std::size_t size) {
  std::string bytes(size, '\0');
  Philox random(11);
  for (char& byte : bytes) byte = static_cast<char>(random.below(16));
  return bytes;
}

// Adds dtype and shape to the bytes, because they are content too.
std::string named(DType dtype, const Shape& shape, const std::string& bytes) {
  return std::string(name_of(dtype)) + to_text(shape) + bytes;
}

TEST(Mutants, Npy) {
  std::string file;
  TextFile out(file);
  format::write_npy(out, DType::f32, {20, 10}, bytes_of(noise(800)));
  expect_survives_mutants({".npy", file, 80, false, [](const std::filesystem::path& path) {
                             const format::NpyFile npy(path);
                             std::string bytes(npy.layout().bytes, '\0');
                             npy.read(std::as_writable_bytes(std::span(bytes)));
                             return named(npy.layout().dtype, npy.layout().shape, bytes);
                           }});
}

TEST(Mutants, Npz) {
  for (const bool deflated : {false, true}) {
    std::string file;
    TextFile out(file);
    const std::string a = noise(800);
    const std::string b = noise(64);
    const std::vector<format::NpzArray> arrays = {{{"a", DType::f32, {20, 10}}, bytes_of(a)},
                                                  {{"b", DType::i64, {8}}, bytes_of(b)}};
    format::write_npz(out, arrays, deflated);
    expect_survives_mutants({".npz", file, file.size(), true, [](const std::filesystem::path& path) {
                               const format::NpzFile npz(path);
                               std::string all;
                               for (const format::NpzEntry& entry : npz.entries()) {
                                 std::string bytes(entry.layout.bytes, '\0');
                                 npz.read(entry, std::as_writable_bytes(std::span(bytes)));
                                 all += entry.name + named(entry.layout.dtype, entry.layout.shape, bytes);
                               }
                               return all;
                             }});
  }
}

std::string read_nifti(const std::filesystem::path& path) {
  const NiftiFile file(path);
  std::string bytes(file.header().voxel_bytes, '\0');
  file.read(std::as_writable_bytes(std::span(bytes)));
  return named(file.header().dtype, file.header().shape, bytes);
}

std::string nifti_file() {
  std::vector<std::int16_t> voxels(10 * 9 * 8);
  std::iota(voxels.begin(), voxels.end(), std::int16_t{-50});
  return test::NiftiMaker{.dim = {10, 9, 8}, .slope = 2, .extensions = {{6, "a comment"}}}.file(voxels);
}

TEST(Mutants, Nifti) { expect_survives_mutants({".nii", nifti_file(), 368, false, read_nifti}); }

TEST(Mutants, NiftiPacked) {
  const std::string file = text_of(format::deflate(format::DeflateFrame::gzip, bytes_of(nifti_file())));
  expect_survives_mutants({".nii.gz", file, 64, true, read_nifti});
}

// Damages the header of a compressed file before it is compressed: the checksum is then right, but the numbers are wrong.
TEST(Mutants, NiftiPackedLies) {
  expect_survives_mutants({".nii", nifti_file(), 368, false, [](const std::filesystem::path& path) {
                             const std::string plain = Fs::real().read_file(path);
                             const std::filesystem::path packed = path.string() + ".gz";
                             std::ofstream(packed, std::ios::binary)
                                 << text_of(format::deflate(format::DeflateFrame::gzip, bytes_of(plain), 1));
                             const auto removes = [&](const std::filesystem::path* p) { std::filesystem::remove(*p); };
                             const std::unique_ptr<const std::filesystem::path, decltype(removes)> cleans(&packed, removes);
                             return read_nifti(packed);
                           }});
}

std::string read_image(const std::filesystem::path& path) {
  Image image(path);
  const PictureSize& size = image.size();
  std::string bytes(static_cast<std::size_t>(size.height * size.width * 3), '\0');
  image.decode(Pixels::rgb, 1, {0, 0, size.height, size.width}, std::as_writable_bytes(std::span(bytes)));
  return named(DType::u8, {size.height, size.width}, bytes);
}

TEST(Mutants, Png) {
  const std::string pixels = noise(20 * 30 * 3);
  const std::string file = text_of(format::encode_png({20, 30, Pixels::rgb}, bytes_of(pixels)));
  expect_survives_mutants({".png", file, 50, true, read_image});
}

TEST(Mutants, Jpeg) {
  // Pictures of 24 x 24 pixels, gray, in colour and progressive, as libjpeg-turbo wrote them.
  for (const char* const name : {"gray.jpg", "colour.jpg", "progressive.jpg"}) {
    const std::string file = Fs::real().read_file(std::filesystem::path(MILLRACE_SOURCE_DIR) / "tests" / "pictures" / name);
    expect_survives_mutants({".jpg", file, 200, false, read_image});
  }
}

TEST(Mutants, Pt) {
  std::string file;
  TextFile out(file);
  const std::string data = noise(800);
  const std::vector<Field> fields = {{"a", DType::f32, {20, 9}}, {"b", DType::u16, {40}}};
  format::write_pt(out, fields, [&](std::size_t i) { return i == 0 ? bytes_of(data).first(720) : bytes_of(data).subspan(720); });
  expect_survives_mutants({".pt", file, file.size(), true, [](const std::filesystem::path& path) {
                             format::PtFile pt(path);
                             std::string all;
                             for (const format::PtTensor& tensor : pt.tensors()) {
                               std::string bytes(tensor.bytes, '\0');
                               pt.read(tensor, std::as_writable_bytes(std::span(bytes)));
                               all += tensor.name + named(tensor.dtype, tensor.shape, bytes);
                             }
                             return all;
                           }});
}

TEST(Mutants, Safetensors) {
  std::string file;
  TextFile out(file);
  const std::string data = noise(800);
  const std::vector<Field> fields = {{"a", DType::f32, {20, 9}}, {"b", DType::u8, {80}}};
  format::write_safetensors(out, fields,
                            [&](std::size_t i) { return i == 0 ? bytes_of(data).first(720) : bytes_of(data).subspan(720); });
  expect_survives_mutants({".safetensors", file, 120, false, [](const std::filesystem::path& path) {
                             const format::SafetensorsFile tensors(path);
                             std::string all;
                             for (const format::StoredTensor& tensor : tensors.tensors()) {
                               std::string bytes(tensor.bytes, '\0');
                               tensors.read(tensor, std::as_writable_bytes(std::span(bytes)));
                               all += tensor.name + named(tensor.dtype, tensor.shape, bytes);
                             }
                             return all;
                           }});
}

}  // namespace
}  // namespace millrace::data
