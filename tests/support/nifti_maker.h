// NIfTI files for tests: any header, right or wrong.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace millrace::data::test {

struct NiftiMaker {
  int version = 1;
  bool swapped = false;
  std::vector<std::int64_t> dim = {};  // the sizes; the one along x comes first
  bool pair = false;
  int datatype = 4;  // i16
  int bitpix = 16;
  float slope = 1, intercept = 0;
  std::array<float, 3> pixdim = {1, 1, 1};
  float qfac = 1;
  int qform = 0, sform = 0;
  std::array<float, 3> quatern = {}, qoffset = {};
  std::array<float, 12> srow = {};
  std::vector<std::pair<int, std::string>> extensions = {};

  // Returns all bytes that precede the voxels.
  [[nodiscard]] std::string header() const {
    std::string extra;
    for (const auto& [code, text] : extensions) {
      const std::size_t size = (8 + text.size() + 15) / 16 * 16;
      put<std::int32_t>(extra, extra.size(), static_cast<std::int64_t>(size));
      put<std::int32_t>(extra, extra.size(), code);
      extra += text + std::string(size - 8 - text.size(), '\0');
    }
    const std::size_t own = version == 1 ? 348 : 540;
    std::string bytes(own, '\0');
    version == 1
        ? fill<float, std::int16_t, std::int16_t>(bytes, {70, 40, 76, 108, 112, 252, 256, 280, 344}, own + 4 + extra.size())
        : fill<double, std::int64_t, std::int32_t>(bytes, {12, 16, 104, 168, 176, 344, 352, 400, 4}, own + 4 + extra.size());
    return bytes + std::string{extra.empty() ? '\0' : '\1', '\0', '\0', '\0'} + extra;
  }
  template <class T>
  [[nodiscard]] std::string file(const std::vector<T>& values) const {
    return header() + voxels(values, swapped);
  }
  template <class T>
  [[nodiscard]] static std::string voxels(const std::vector<T>& values, bool swapped) {
    std::string bytes(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
    for (std::size_t at = 0; swapped && at < bytes.size(); at += sizeof(T)) {
      std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(at), bytes.begin() + static_cast<std::ptrdiff_t>(at + sizeof(T)));
    }
    return bytes;
  }

 private:
  struct Places {
    std::size_t datatype, dim, pixdim, offset, slope, qform, quatern, srow, magic;
  };

  template <class T, class Value>
  void put(std::string& to, std::size_t at, Value value) const {
    const auto stored = static_cast<T>(value);
    std::string raw(sizeof stored, '\0');
    std::memcpy(raw.data(), &stored, sizeof stored);
    if (swapped) std::reverse(raw.begin(), raw.end());
    if (to.size() < at + raw.size()) to.resize(at + raw.size());
    to.replace(at, raw.size(), raw);
  }

  template <class Real, class Dim, class Code>
  void fill(std::string& bytes, const Places& at, std::size_t voxel_offset) const {
    put<std::int32_t>(bytes, 0, bytes.size());
    put<std::int16_t>(bytes, at.datatype, datatype);
    put<std::int16_t>(bytes, at.datatype + 2, bitpix);
    put<Dim>(bytes, at.dim, dim.size());
    for (std::size_t i = 0; i < dim.size(); ++i) put<Dim>(bytes, at.dim + (i + 1) * sizeof(Dim), dim[i]);
    put<Real>(bytes, at.pixdim, qfac);
    for (std::size_t i = 0; i < 3; ++i) put<Real>(bytes, at.pixdim + (i + 1) * sizeof(Real), pixdim[i]);
    const std::size_t voxels = pair ? 0 : voxel_offset;
    version == 1 ? put<float>(bytes, at.offset, voxels) : put<std::int64_t>(bytes, at.offset, voxels);
    put<Real>(bytes, at.slope, slope);
    put<Real>(bytes, at.slope + sizeof(Real), intercept);
    put<Code>(bytes, at.qform, qform);
    put<Code>(bytes, at.qform + sizeof(Code), sform);
    for (std::size_t i = 0; i < 3; ++i) {
      put<Real>(bytes, at.quatern + i * sizeof(Real), quatern[i]);
      put<Real>(bytes, at.quatern + (3 + i) * sizeof(Real), qoffset[i]);
    }
    for (std::size_t i = 0; i < 12; ++i) put<Real>(bytes, at.srow + i * sizeof(Real), srow[i]);
    const std::string magic =
        std::string(pair ? "ni" : "n+") + (version == 1 ? std::string("1\0", 2) : std::string("2\0\r\n\x1A\n", 6));
    bytes.replace(at.magic, magic.size(), magic);
  }
};

}  // namespace millrace::data::test
