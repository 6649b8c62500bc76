#include "millrace/hdf5/child/open.h"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "millrace/hdf5/child/driver.h"
#include "millrace/hdf5/child/jobs.h"
#include "millrace/hdf5/remedy.h"

namespace millrace::hdf5::child {
namespace {

constexpr std::size_t kMaxNames = 24;

herr_t collect_name(hid_t, const char* name, const H5L_info_t*, void* to) {
  auto& names = *static_cast<std::vector<std::string>*>(to);
  names.emplace_back(name);
  return names.size() > kMaxNames ? 1 : 0;
}

bool exists(hid_t file, const std::string& path) {
  const htri_t there = H5Oexists_by_name(file, path.c_str(), H5P_DEFAULT);
  H5Eclear2(H5E_DEFAULT);
  return there > 0;
}

// Returns the contents of the innermost existing group on the path of `name`: "/map, /index_map".
std::string names_near(hid_t file, const std::string& name) {
  std::string group = "/";
  for (std::size_t slash = name.find('/', 1); slash != std::string::npos; slash = name.find('/', slash + 1)) {
    if (!exists(file, name.substr(0, slash))) break;
    group = name.substr(0, slash) + '/';
  }
  std::vector<std::string> names;
  H5Literate_by_name(file, group.c_str(), H5_INDEX_NAME, H5_ITER_INC, nullptr, collect_name, &names, H5P_DEFAULT);
  H5Eclear2(H5E_DEFAULT);
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += ", ";
    text += i == kMaxNames ? "..." : group + names[i];
  }
  return text.empty() ? "nothing" : text;
}

// Throws Millrace's own error if any part of the path is a link to another file. The library can't follow such a link, because
// the driver opens no other file.
void refuse_foreign_links(hid_t file, const std::string& name) {
  for (std::size_t end = name.find('/', 1);; end = name.find('/', end + 1)) {
    const std::string part = name.substr(0, end);
    H5L_info_t info{};
    if (part != "/" && H5Lget_info(file, part.c_str(), &info, H5P_DEFAULT) >= 0 && info.type == H5L_TYPE_EXTERNAL) {
      throw LibraryError(part + " is a link to another file");
    }
    H5Eclear2(H5E_DEFAULT);
    if (end == std::string::npos) return;
  }
}

// Rejects a file that a program is writing. Such a file has a mark in version 3 of the superblock (byte 11: 1 = write, 4 =
// single writer, many readers). The library checks the mark only with its own drivers.
void refuse_unfinished(hid_t file, int descriptor) {
  const Id creation = owned(H5Fget_create_plist(file));
  hsize_t userblock = 0;
  check(H5Pget_userblock(creation.get(), &userblock));
  std::array<unsigned char, 12> block{};
  const auto size = static_cast<ssize_t>(block.size());
  if (::pread(descriptor, block.data(), block.size(), static_cast<off_t>(userblock)) != size) return;
  if (block[8] >= 3 && (block[11] & 5U) != 0) {
    throw LibraryError("it is open for writing, or its writer was killed (h5clear -s clears the flag)");
  }
}

std::size_t chunk_bytes(const OpenDataset& dataset) {
  std::vector<hsize_t> chunk(dataset.shape.size());
  if (H5Pget_layout(dataset.creation.get()) != H5D_CHUNKED) return 0;
  check(H5Pget_chunk(dataset.creation.get(), static_cast<int>(chunk.size()), chunk.data()));
  std::size_t bytes = dataset.element_bytes;
  for (const hsize_t size : chunk) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) return std::size_t{1} << 32U;
  }
  return std::min(bytes, std::size_t{1} << 32U);
}

// Opens a data set. Rejects a data set whose header has a message of a version that this library does not know; a later library
// writes such messages with libver="latest".
Id open_in_known_form(hid_t file, const std::string& name, hid_t access) {
  Id id(H5Dopen2(file, name.c_str(), access));
  if (id.get() >= 0) return id;
  const std::string words = library_words();
  const std::size_t version = words.find("bad version");
  if (version == std::string::npos) throw LibraryError(words);
  throw LibraryError(std::string(kNewerForm) + " (" + words.substr(version) + ")");
}

}  // namespace

Id open_file(int descriptor) {
  const Id access = owned(driver_access(descriptor));
  Id file = owned(H5Fopen(kDriverFileName, H5F_ACC_RDONLY, access.get()));
  refuse_unfinished(file.get(), descriptor);
  return file;
}

OpenDataset open_dataset(hid_t file, const std::string& name) {
  OpenDataset dataset;
  if (name.empty() || name[0] != '/' || name.find('\0') != std::string::npos) throw MissingError(name, names_near(file, "/"));
  refuse_foreign_links(file, name);
  if (!exists(file, name)) throw MissingError(name, names_near(file, name));
  const Id access = owned(H5Pcreate(H5P_DATASET_ACCESS));
  dataset.id = open_in_known_form(file, name, access.get());
  dataset.creation = owned(H5Dget_create_plist(dataset.id.get()));
  const Id space = owned(H5Dget_space(dataset.id.get()));
  if (H5Sget_simple_extent_type(space.get()) == H5S_NULL) throw LibraryError("no elements at all (a null data space)");
  const int rank = H5Sget_simple_extent_ndims(space.get());
  check(rank);
  std::vector<hsize_t> sizes(static_cast<std::size_t>(rank));
  check(H5Sget_simple_extent_dims(space.get(), sizes.data(), nullptr));
  dataset.shape.assign(sizes.begin(), sizes.end());
  const Id type = owned(H5Dget_type(dataset.id.get()));
  Element element = element_of(type.get());
  dataset.dtype = element.dtype;
  dataset.memory_type = std::move(element.memory_type);
  dataset.element_bytes = size_of(dataset.dtype);
  std::int64_t bytes = static_cast<std::int64_t>(dataset.element_bytes);
  for (const std::int64_t size : dataset.shape) {
    if (size < 0 || (size > 0 && __builtin_mul_overflow(bytes, size, &bytes))) throw LibraryError("an impossible shape");
  }
  dataset.same_in_memory = H5Tequal(type.get(), dataset.memory_type.get()) > 0;
  dataset.big_endian = H5Tget_order(type.get()) == H5T_ORDER_BE;
  H5Eclear2(H5E_DEFAULT);
  return dataset;
}

void read_block(const OpenDataset& dataset, std::span<const std::int64_t> offset, std::span<const std::int64_t> count,
                void* out) {
  // The library holds a chunk three times (stored, inflated and cached), and its buffer may double while it inflates the chunk.
  allow_memory(5 * chunk_bytes(dataset));
  const Id from = block_of(dataset.id.get(), offset, count);
  const std::vector<hsize_t> sizes(count.begin(), count.end());
  const Id to = offset.empty() ? owned(H5Screate(H5S_SCALAR))
                               : owned(H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr));
  check(H5Dread(dataset.id.get(), dataset.memory_type.get(), to.get(), from.get(), H5P_DEFAULT, out));
}

}  // namespace millrace::hdf5::child
