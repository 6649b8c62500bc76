// Writes files of volumes for tests, and reads them.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/format/deflate.h"
#include "millrace/format/npy.h"
#include "recipes/autoencoder_3d/volume_source.h"
#include "tests/support/refusal.h"

namespace millrace::recipes::autoencoder_3d::test {

namespace stdfs = std::filesystem;

// A NIfTI-1 header with the fields that volumes of i16 and f32 need.
struct Nifti {
  std::vector<std::int16_t> dim;  // the first size is that of x
  bool swapped = false;
  float slope = 0, intercept = 0;
  std::array<float, 3> voxel = {1, 1, 1};

  template <class T>
  [[nodiscard]] std::string file(const std::vector<T>& values) const {
    constexpr bool kFloat = std::is_same_v<T, float>;
    std::string bytes(352, '\0');
    put<std::int32_t>(bytes, 0, 348);
    put<std::int16_t>(bytes, 40, static_cast<std::int16_t>(dim.size()));
    for (std::size_t i = 0; i < 7; ++i) put<std::int16_t>(bytes, 42 + 2 * i, i < dim.size() ? dim[i] : std::int16_t{1});
    put<std::int16_t>(bytes, 70, kFloat ? 16 : 4);
    put<std::int16_t>(bytes, 72, 8 * sizeof(T));
    put<float>(bytes, 76, 1);
    for (std::size_t i = 0; i < 3; ++i) put<float>(bytes, 80 + 4 * i, voxel[i]);
    put<float>(bytes, 108, 352);
    put<float>(bytes, 112, slope);
    put<float>(bytes, 116, intercept);
    bytes.replace(344, 4, std::string("n+1\0", 4));
    const std::size_t head = bytes.size();
    bytes.resize(head + values.size() * sizeof(T));
    for (std::size_t i = 0; i < values.size(); ++i) put<T>(bytes, head + i * sizeof(T), values[i]);
    return bytes;
  }

 private:
  template <class T>
  void put(std::string& to, std::size_t at, T value) const {
    std::array<char, sizeof(T)> raw{};
    std::memcpy(raw.data(), &value, sizeof value);
    if (swapped) std::reverse(raw.begin(), raw.end());
    std::copy(raw.begin(), raw.end(), to.begin() + static_cast<std::ptrdiff_t>(at));
  }
};

template <class T>
std::vector<T> counted(std::size_t count, int modulus = 30011) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<T>(static_cast<int>(i % 1000003) % modulus);
  return values;
}

class VolumeTest : public testing::Test {
 protected:
  VolumeTest()
      : folder_(stdfs::path(testing::TempDir()) / ("volume_source-" + std::to_string(::getpid()) + "-" +
                                                   testing::UnitTest::GetInstance()->current_test_info()->name())) {
    stdfs::remove_all(folder_);
    stdfs::create_directories(folder_);
    recipe_.patch_size = {4, 4, 4};
    recipe_.channels = {8, 16, 32};
    recipe_.val_fraction = 0;
  }
  ~VolumeTest() override { stdfs::remove_all(folder_); }

  stdfs::path write(const std::string& name, const std::string& bytes) const {
    stdfs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return folder_ / name;
  }
  template <class T>
  stdfs::path npz(const std::string& name, DType dtype, const Shape& shape, const std::vector<T>& values,
                  const std::string& entry = "arr_0") const {
    stdfs::create_directories((folder_ / name).parent_path());
    const format::NpzArray array{{entry, dtype, shape}, std::as_bytes(std::span(values))};
    write_atomically(Fs::real(), folder_ / name, [&](WritableFile& file) { format::write_npz(file, {&array, 1}, true); });
    return folder_ / name;
  }
  stdfs::path pair(const std::string& name, const Shape& shape, int from = 0) const {
    const auto count = static_cast<std::size_t>(2 * shape[0] * shape[1] * shape[2]);
    std::vector<float> values(count);
    std::iota(values.begin(), values.end(), static_cast<float>(from));
    return npz(name, DType::f32, {2, shape[0], shape[1], shape[2]}, values);
  }
  static std::string gz(const std::string& bytes) {
    const std::vector<std::byte> packed =
        format::deflate(format::DeflateFrame::gzip, std::as_bytes(std::span(bytes.data(), bytes.size())));
    return {reinterpret_cast<const char*>(packed.data()), packed.size()};
  }
  [[nodiscard]] VolumeFiles open(std::uint64_t seed = 1) const { return open_volumes(recipe_, folder_, seed); }
  // The values of field `field` of these samples, read as if they had the positions 0, 1, ... in the epoch.
  static std::vector<float> read(const data::Source& source, const std::vector<std::int64_t>& indices, std::size_t field = 0,
                                 std::uint64_t epoch = 0) {
    std::vector<std::vector<std::byte>> memory;
    std::vector<std::byte*> rows;
    for (const Field& each : source.fields()) memory.emplace_back(each.bytes() * indices.size(), std::byte{0xAB});
    for (auto& bytes : memory) rows.push_back(bytes.data());
    std::vector<std::int64_t> positions(indices.size());
    std::iota(positions.begin(), positions.end(), 0);
    source.read(indices, {rows}, data::ReadRandom(7, epoch, positions));
    std::vector<float> values(memory[field].size() / sizeof(float));
    std::memcpy(values.data(), memory[field].data(), memory[field].size());
    return values;
  }
  std::vector<float> whole(const stdfs::path& path, std::size_t key = 0) {
    const VolumeFile file = open_volume_file(path);
    std::vector<std::byte> bytes(kept_bytes(file) * static_cast<std::size_t>(file.volumes));
    read_volumes(file, file.volumes, bytes);
    std::vector<float> values(static_cast<std::size_t>(file.shape[0] * file.shape[1] * file.shape[2]));
    cut_volume(file, std::span(bytes).subspan(key * kept_bytes(file), kept_bytes(file)), {0, 0, 0}, file.shape, values);
    return values;
  }

  stdfs::path folder_;
  RecipeConfig recipe_;
};

}  // namespace millrace::recipes::autoencoder_3d::test
