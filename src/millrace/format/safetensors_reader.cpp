#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/base/fs.h"
#include "millrace/base/hash.h"
#include "millrace/format/detail/safetensors_header.h"
#include "millrace/format/safetensors.h"

namespace millrace::format {
namespace {

// A single pread returns at most 2^31 bytes.
constexpr std::size_t kMostPerRead = std::size_t{1} << 30U;

[[noreturn]] void refuse_safetensors(const std::filesystem::path& path, std::string what, bool is_unread = false) {
  if (is_unread) {
    const bool has_numbers = what.find("\"F8_") != std::string::npos;
    throw UnreadKind({std::move(what), path.string(),
                      has_numbers
                          ? "in Python, save such tensors as float32: save_file({name: x.float() if x.is_floating_point() "
                            "else x for name, x in load_file(path).items()}, path)"
                          : "convert its tensors to a type that Millrace reads, such as F32"});
  }
  throw DataError({std::move(what), path.string(), "use an intact safetensors file: copy or download it again"});
}

[[noreturn]] void refuse_errno(const std::filesystem::path& path, const std::string& what, int error_number) {
  throw DataError({what + ": " + std::generic_category().message(error_number), path.string(), remedy_for(error_number)});
}

// Reads the whole span or throws DataError.
void read_at(int descriptor, const std::filesystem::path& path, std::uint64_t offset, std::span<std::byte> into) {
  while (!into.empty()) {
    const ssize_t got = ::pread(descriptor, into.data(), std::min(into.size(), kMostPerRead), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse_errno(path, "can't read the file", errno);
    if (got == 0) refuse_safetensors(path, "the file became shorter while it was read (at byte " + std::to_string(offset) + ")");
    into = into.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
}

int open_regular(const std::filesystem::path& path, std::uint64_t& bytes) {
  // O_NONBLOCK keeps a named pipe from blocking this call; the pipe is refused below.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) refuse_errno(path, "can't open the file", errno);
  struct stat status {};
  const int failed = ::fstat(descriptor, &status) != 0 ? errno : 0;
  if (failed != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor);
    if (failed != 0) refuse_errno(path, "can't ask for the file's size", failed);
    if (S_ISDIR(status.st_mode)) throw DataError({"this is a folder, not a safetensors file", path.string(), remedy_for(EISDIR)});
    throw DataError({"this is not a regular file", path.string(), "name a file"});
  }
  bytes = static_cast<std::uint64_t>(status.st_size);
  return descriptor;
}

std::uint64_t little_endian(std::span<const std::byte> bytes) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) value = value << 8U | std::to_integer<std::uint64_t>(bytes[i]);
  return value;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : path_(path) {
  descriptor_ = open_regular(path_, bytes_);
  try {
    if (bytes_ < detail::kLengthBytes) {
      refuse_safetensors(
          path_, "not a safetensors file: it has " + std::to_string(bytes_) + " bytes, but the header alone has at least 10");
    }
    std::string header(detail::kLengthBytes, '\0');
    read_at(descriptor_, path_, 0, std::as_writable_bytes(std::span(header)));
    const std::uint64_t length = little_endian(std::as_bytes(std::span(header)));
    if (length > bytes_ - detail::kLengthBytes || length > detail::kHeaderLimit) {
      refuse_safetensors(path_, "not a safetensors file, or cut off: it announces a header of " + std::to_string(length) +
                                    " bytes, but the file has " + std::to_string(bytes_));
    }
    header.resize(detail::kLengthBytes + length);
    const std::span text = std::span(header).subspan(detail::kLengthBytes);
    read_at(descriptor_, path_, detail::kLengthBytes, std::as_writable_bytes(text));
    header_crc32c_ = crc32c(std::as_bytes(std::span(header)));
    detail::ParsedHeader parsed = detail::parse_header({text.data(), text.size()}, bytes_ - header.size());
    if (!parsed.problem.empty()) refuse_safetensors(path_, std::move(parsed.problem), parsed.is_unread);
    tensors_ = std::move(parsed.header.tensors);
    metadata_ = std::move(parsed.header.metadata);
    for (StoredTensor& tensor : tensors_) tensor.offset += header.size();
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

SafetensorsFile::~SafetensorsFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

SafetensorsFile::SafetensorsFile(SafetensorsFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      bytes_(other.bytes_),
      header_crc32c_(other.header_crc32c_),
      tensors_(std::move(other.tensors_)),
      metadata_(std::move(other.metadata_)) {}

const StoredTensor* SafetensorsFile::find(std::string_view name) const noexcept {
  const auto found = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                      [](const StoredTensor& tensor, std::string_view wanted) { return tensor.name < wanted; });
  return found != tensors_.end() && found->name == name ? &*found : nullptr;
}

void SafetensorsFile::read(const StoredTensor& tensor, std::span<std::byte> into) const {
  MR_CHECK(into.size() == tensor.bytes, "the memory for a tensor must have the tensor's size");
  read_at(descriptor_, path_, tensor.offset, into);
}

}  // namespace millrace::format
