// Writes arrays into a new file.
#include <algorithm>

#include "millrace/hdf5/child/attributes.h"
#include "millrace/hdf5/child/driver.h"
#include "millrace/hdf5/child/jobs.h"
#include "millrace/hdf5/child/library.h"
#include "millrace/hdf5/detail/attribute_wire.h"
#include "millrace/hdf5/detail/wire.h"

namespace millrace::hdf5::child {
namespace {

using detail::Answer;
using detail::Codec;
using detail::WireReader;
using detail::WireWriter;

constexpr std::int64_t kBlockBytes = std::int64_t{1} << 24U;

struct Array {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> chunk;
  Codec codec = Codec::none;
  int level = 0;
  bool shuffle = false;
  bool fletcher32 = false;
};

Array get_array(WireReader& request) {
  Array array;
  array.name = request.text();
  array.dtype = request.get<DType>();
  array.shape = request.list<std::int64_t>();
  array.chunk = request.list<std::int64_t>();
  array.codec = request.get<Codec>();
  array.level = request.get<std::int32_t>();
  array.shuffle = request.get<bool>();
  array.fletcher32 = request.get<bool>();
  return array;
}

std::vector<hsize_t> sizes_of(std::span<const std::int64_t> shape) { return {shape.begin(), shape.end()}; }

Id creation_of(const Array& array) {
  Id creation = owned(H5Pcreate(H5P_DATASET_CREATE));
  check(H5Pset_obj_track_times(creation.get(), false));  // no times, so that equal content gives equal bytes
  if (array.chunk.empty()) return creation;
  check(H5Pset_chunk(creation.get(), static_cast<int>(array.chunk.size()), sizes_of(array.chunk).data()));
  if (array.shuffle) check(H5Pset_shuffle(creation.get()));
  const auto level = static_cast<unsigned>(array.level);
  if (array.codec == Codec::deflate) check(H5Pset_deflate(creation.get(), level));
  if (array.codec == Codec::lz4) check(H5Pset_filter(creation.get(), 32004, H5Z_FLAG_OPTIONAL, 0, nullptr));
  if (array.codec == Codec::zstd) check(H5Pset_filter(creation.get(), 32015, H5Z_FLAG_OPTIONAL, 1, &level));
  if (array.fletcher32) check(H5Pset_fletcher32(creation.get()));
  return creation;
}

Id create(hid_t file, const Array& array) {
  const Id type = memory_type_of(array.dtype);
  const std::vector<hsize_t> sizes = sizes_of(array.shape);
  const Id space = sizes.empty() ? owned(H5Screate(H5S_SCALAR))
                                 : owned(H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr));
  const Id links = owned(H5Pcreate(H5P_LINK_CREATE));
  check(H5Pset_create_intermediate_group(links.get(), 1));
  const Id creation = creation_of(array);
  return owned(H5Dcreate2(file, array.name.c_str(), type.get(), space.get(), links.get(), creation.get(), H5P_DEFAULT));
}

// Reads the bytes of a block from the socket in C order and writes them in pieces of whole chunks. Returns false if the socket
// ended.
bool fill(const Array& array, hid_t dataset, hid_t type, std::vector<std::int64_t> offset, std::vector<std::int64_t> count,
          std::string& buffer) {
  auto bytes = static_cast<std::int64_t>(size_of(array.dtype));
  for (const std::int64_t size : count) bytes *= size;
  if (bytes == 0) return true;
  const auto axis =
      static_cast<std::size_t>(std::find_if(count.begin(), count.end(), [](auto size) { return size > 1; }) - count.begin());
  const std::int64_t unit = array.chunk.empty() || axis == count.size() ? 1 : array.chunk[axis];
  if (bytes > kBlockBytes && axis < count.size() && count[axis] > unit) {
    const std::int64_t end = offset[axis] + count[axis];
    const std::int64_t step = std::max<std::int64_t>(1, kBlockBytes / (bytes / count[axis] * unit)) * unit;
    for (; offset[axis] < end; offset[axis] += step) {
      count[axis] = std::min(step, end - offset[axis]);
      if (!fill(array, dataset, type, offset, count, buffer)) return false;
    }
    return true;
  }
  buffer.resize(static_cast<std::size_t>(bytes));
  if (!get_exactly(kSocket, buffer.data(), buffer.size())) return false;
  const Id to = block_of(dataset, offset, count);
  const std::vector<hsize_t> sizes = sizes_of(count);
  const Id from = sizes.empty() ? owned(H5Screate(H5S_SCALAR))
                                : owned(H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr));
  check(H5Dwrite(dataset, type, from.get(), to.get(), H5P_DEFAULT, buffer.data()));
  return true;
}

bool write_file(int descriptor, std::string_view request) {
  WireReader wanted(request);
  const Id access = owned(driver_access(descriptor));
  const Id file = owned(H5Fcreate(kDriverFileName, H5F_ACC_TRUNC, H5P_DEFAULT, access.get()));
  for (auto left = wanted.get<std::uint32_t>(); left > 0; --left) write_attribute(file.get(), detail::get_attribute(wanted));
  const auto arrays = wanted.get<std::uint32_t>();
  std::string buffer;
  for (std::uint32_t i = 0; i < arrays; ++i) {
    const Array array = get_array(wanted);
    try {
      const Id dataset = create(file.get(), array);
      const Id type = memory_type_of(array.dtype);
      if (!fill(array, dataset.get(), type.get(), std::vector<std::int64_t>(array.shape.size(), 0), array.shape, buffer)) {
        return false;
      }
    } catch (const LibraryError& error) {
      throw LibraryError(array.name + ": " + error.what());
    }
  }
  check(H5Fflush(file.get(), H5F_SCOPE_GLOBAL));
  return true;
}

}  // namespace

int write_arrays(int descriptor) {
  std::string request;
  if (!get_frame(kSocket, request)) return 1;
  WireWriter answer;
  try {
    if (!write_file(descriptor, request)) return 1;
    answer.put(Answer::ok);
  } catch (const std::exception& error) {
    answer.put(Answer::refused).text(error.what());
  }
  return put_frame(kSocket, answer.bytes()) ? 0 : 1;
}

}  // namespace millrace::hdf5::child
