// For tests: makes files that Millrace's own writer can't make, through the library's calls.
#pragma once

#include <hdf5.h>
#include <lz4.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace millrace::hdf5::made {

using Bytes = std::vector<unsigned char>;
using Closing = std::pair<herr_t (*)(hid_t), hid_t>;

inline void put_big_endian(Bytes& to, std::uint64_t value, int bytes) {
  for (int i = bytes - 1; i >= 0; --i) to.push_back(static_cast<unsigned char>(value >> (8 * i) & 0xFFU));
}

// Orders bits as bitshuffle does. `from` has `count` elements, a multiple of 8.
inline Bytes shuffled_bits(std::span<const unsigned char> from, std::size_t element) {
  const std::size_t count = from.size() / element;
  Bytes to(from.size());
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t bit = 0; bit < element * 8; ++bit) {
      const unsigned value = from[i * element + bit / 8] >> (bit % 8) & 1U;
      const std::size_t at = bit * count + i;
      to[at / 8] = static_cast<unsigned char>(to[at / 8] | value << (at % 8));
    }
  }
  return to;
}

// Compresses as the bitshuffle filter does. `packing`: 0 not compressed, 2 lz4, 3 zstd; `block` is in elements.
inline Bytes bitshuffled(std::span<const unsigned char> bytes, std::size_t element, std::size_t block, unsigned packing) {
  Bytes out;
  if (packing != 0) {
    put_big_endian(out, bytes.size(), 8);
    put_big_endian(out, block * element, 4);
  }
  const std::size_t in_blocks = bytes.size() / element / 8 * 8;
  for (std::size_t done = 0; done < in_blocks; done += block) {
    const std::size_t size = std::min(block, in_blocks - done) * element;
    Bytes rows = shuffled_bits(bytes.subspan(done * element, size), element);
    if (packing != 0) {
      Bytes packed(size * 2 + 1024);
      const std::size_t have =
          packing == 2 ? static_cast<std::size_t>(LZ4_compress_default(reinterpret_cast<const char*>(rows.data()),
                                                                       reinterpret_cast<char*>(packed.data()),
                                                                       static_cast<int>(size), static_cast<int>(packed.size())))
                       : ZSTD_compress(packed.data(), packed.size(), rows.data(), size, 1);
      packed.resize(have);
      rows = std::move(packed);
      put_big_endian(out, rows.size(), 4);
    }
    out.insert(out.end(), rows.begin(), rows.end());
  }
  out.insert(out.end(), bytes.begin() + static_cast<std::ptrdiff_t>(in_blocks * element), bytes.end());
  return out;
}

// Writes the data set /g/a, f32 [rows,columns], as one chunk, bitshuffled in blocks of `block` elements (0: the format's
// default).
inline void write_bitshuffled(const std::filesystem::path& path, std::span<const float> values, hsize_t rows, hsize_t columns,
                              unsigned block, unsigned packing) {
  const std::array<hsize_t, 2> shape{rows, columns};
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t space = H5Screate_simple(2, shape.data(), nullptr);
  const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(creation, 2, shape.data());
  const std::array<unsigned, 5> options{0, 4, 4, block, packing};
  H5Pset_filter(creation, 32008, H5Z_FLAG_OPTIONAL, options.size(), options.data());
  const hid_t links = H5Pcreate(H5P_LINK_CREATE);
  H5Pset_create_intermediate_group(links, 1);
  const hid_t set = H5Dcreate2(file, "/g/a", H5T_IEEE_F32LE, space, links, creation, H5P_DEFAULT);
  const auto* bytes = reinterpret_cast<const unsigned char*>(values.data());
  const Bytes chunk = bitshuffled({bytes, values.size_bytes()}, 4, block == 0 ? 2048 : block, packing);
  const std::array<hsize_t, 2> origin{0, 0};
  H5Dwrite_chunk(set, H5P_DEFAULT, 0, origin.data(), chunk.size(), chunk.data());
  for (const auto& [release, id] : std::initializer_list<Closing>{
           {H5Dclose, set}, {H5Pclose, links}, {H5Pclose, creation}, {H5Sclose, space}, {H5Fclose, file}})
    release(id);
}

// Writes the data set "/a" of pairs {r,i} of two integers of type `part`. `values` has `count` pairs.
inline void write_integer_pairs(const std::filesystem::path& path, hid_t part, const void* values, hsize_t count) {
  const std::size_t bytes = H5Tget_size(part);
  const hid_t type = H5Tcreate(H5T_COMPOUND, 2 * bytes);
  H5Tinsert(type, "r", 0, part);
  H5Tinsert(type, "i", bytes, part);
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t space = H5Screate_simple(1, &count, nullptr);
  const hid_t set = H5Dcreate2(file, "/a", type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
  for (const auto& [release, id] :
       std::initializer_list<Closing>{{H5Dclose, set}, {H5Sclose, space}, {H5Tclose, type}, {H5Fclose, file}})
    release(id);
}

// Adds an attribute whose type in the file and in `value` is `type`. The attribute is a single value, or an array of `shape`.
inline void attach(hid_t object, const std::string& name, hid_t type, const void* value,
                   std::initializer_list<hsize_t> shape = {}) {
  const hid_t space =
      shape.size() == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(static_cast<int>(shape.size()), shape.begin(), nullptr);
  const hid_t attribute = H5Acreate2(object, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT);
  H5Awrite(attribute, type, value);
  H5Aclose(attribute);
  H5Sclose(space);
}

inline hid_t text_type(std::size_t size, H5T_str_t padding) {
  const hid_t type = H5Tcopy(H5T_C_S1);
  H5Tset_size(type, size);
  if (size != H5T_VARIABLE) H5Tset_strpad(type, padding);
  return type;
}

// Writes the data set "/a" with three whole numbers. `fill` adds attributes to the file's root and to the data set. With
// `newest` the file has the library's newest format, which keeps many attributes in a heap.
inline void write_with_attributes(const std::filesystem::path& path, const std::function<void(hid_t root, hid_t set)>& fill,
                                  bool newest = false) {
  const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  if (newest) H5Pset_libver_bounds(access, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access);
  const hsize_t count = 3;
  const hid_t space = H5Screate_simple(1, &count, nullptr);
  const hid_t set = H5Dcreate2(file, "/a", H5T_STD_I32LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  const std::array<std::int32_t, 3> values{1, 2, 3};
  H5Dwrite(set, H5T_STD_I32LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
  fill(file, set);
  for (const auto& [release, id] :
       std::initializer_list<Closing>{{H5Dclose, set}, {H5Sclose, space}, {H5Fclose, file}, {H5Pclose, access}})
    release(id);
}

}  // namespace millrace::hdf5::made
