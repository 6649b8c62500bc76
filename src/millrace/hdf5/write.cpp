#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/fs.h"
#include "millrace/hdf5/detail/attribute_wire.h"
#include "millrace/hdf5/detail/process.h"
#include "millrace/hdf5/detail/wire.h"
#include "millrace/hdf5/file.h"

namespace millrace::hdf5 {
namespace {

using detail::Codec;

[[noreturn]] void failed(const std::filesystem::path& path, const std::string& why, const std::string& next) {
  throw DataError({.what = quoted(path.string()) + " can't be written: " + why, .where = "", .next = next});
}

constexpr auto kCheck = "check the disk's space, the folder and its permissions";

// Makes a second, readable descriptor of the file. The child reads back its own writes, but the file's descriptor is write-only.
class ForChild {
 public:
  explicit ForChild(const std::filesystem::path& file) : descriptor_(::open(file.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC)) {
    if (descriptor_ < 0) throw FsError("open", file, errno);
  }
  ~ForChild() { ::close(descriptor_); }
  ForChild(const ForChild&) = delete;
  ForChild& operator=(const ForChild&) = delete;
  [[nodiscard]] int number() const noexcept { return descriptor_; }

 private:
  int descriptor_;
};

void put(detail::WireWriter& request, const Array& array) {
  const auto count = element_count(array.shape);
  MR_CHECK(
      count && static_cast<std::size_t>(*count) * size_of(array.dtype) == array.bytes.size(),
      "array " + array.name + " " + to_text(array.shape) + " does not have " + std::to_string(array.bytes.size()) + " bytes");
  MR_CHECK(array.chunk.empty() || array.chunk.size() == array.shape.size(),
           "chunks of " + array.name + " have another rank than the array");
  const bool filtered = array.deflate > 0 || array.lz4 || array.zstd > 0 || array.shuffle || array.fletcher32;
  MR_CHECK(!filtered || !array.chunk.empty(), "filters of " + array.name + " need chunks");
  MR_CHECK((array.deflate > 0) + array.lz4 + (array.zstd > 0) <= 1, "more than one compression for " + array.name);
  Codec codec = array.deflate > 0 ? Codec::deflate : Codec::none;
  if (array.lz4) codec = Codec::lz4;
  if (array.zstd > 0) codec = Codec::zstd;
  request.text(array.name).put(array.dtype).list(std::span<const std::int64_t>(array.shape));
  request.list(std::span<const std::int64_t>(array.chunk))
      .put(codec)
      .put(std::int32_t{array.zstd > 0 ? array.zstd : array.deflate});
  request.put(array.shuffle).put(array.fletcher32);
}

// Adds an attribute to the request. Accepts only attributes that File::attributes() can return.
void put(detail::WireWriter& request, const Attribute& attribute) {
  const std::string& name = attribute.name;
  MR_CHECK(!name.empty() && name.size() <= kMaxAttributeName && name.find('\0') == std::string::npos,
           "an attribute can't be named " + quoted(name));
  MR_CHECK(!std::holds_alternative<std::monostate>(attribute.value), "attribute " + name + " has no value");
  const auto* const text = std::get_if<std::string>(&attribute.value);
  MR_CHECK(text == nullptr || (text->size() <= kMaxAttributeText && text->find('\0') == std::string::npos),
           "attribute " + name + " is too long a text, or holds a zero byte");
  detail::put_attribute(request, attribute);
}

}  // namespace

void write_file(const std::filesystem::path& path, std::span<const Array> arrays, std::span<const Attribute> attributes) {
  detail::WireWriter request;
  request.put(static_cast<std::uint32_t>(attributes.size()));
  for (const Attribute& attribute : attributes) put(request, attribute);
  request.put(static_cast<std::uint32_t>(arrays.size()));
  for (const Array& array : arrays) put(request, array);
  try {
    AtomicFile file(Fs::real(), path);
    const ForChild opened(file.temporary());
    const int descriptor = opened.number();
    detail::Process child("write", std::span(&descriptor, 1));
    bool alive = child.send_frame(request.bytes());
    for (std::size_t i = 0; alive && i < arrays.size(); ++i) alive = child.send(arrays[i].bytes);
    // The child may have answered before it received all bytes.
    const auto answer = child.receive_frame();
    if (!answer) failed(path, "the HDF5 library's process " + child.how_it_ended(), kCheck);
    detail::WireReader words(*answer);
    if (words.get<detail::Answer>() != detail::Answer::ok) failed(path, words.text(), kCheck);
    file.finish();
  } catch (const FsError& error) {
    failed(path, std::generic_category().message(error.error_number()), millrace::remedy_for(error.error_number()));
  }
}

}  // namespace millrace::hdf5
