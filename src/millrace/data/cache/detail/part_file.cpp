#include "millrace/data/cache/detail/part_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <vector>

#include "millrace/base/hash.h"
#include "millrace/data/loader/rows.h"

namespace millrace::data::detail {
namespace {

constexpr std::size_t kBlock = 4096;  // bytes that a checksum covers; few, so that little more than a crop is read
constexpr std::string_view kEnding = ".part";
constexpr std::size_t kNameDigits = 40;

// The beginning of a file, in this machine's byte order. A checksum for each block follows, then zeros up to a multiple of a
// block, then the blocks.
struct Head {
  std::array<char, 8> magic = {'M', 'R', 'P', 'A', 'R', 'T', '1', '\n'};
  PartKey key{};
  std::uint64_t bytes = 0;
  std::uint32_t block = kBlock;
  std::uint32_t crc = 0;  // checksum of this struct, computed with crc = 0, and of the list of checksums
};
static_assert(sizeof(Head) == 56);

std::size_t blocks_of(std::size_t bytes) { return (bytes + kBlock - 1) / kBlock; }
std::size_t offset_of_blocks(std::size_t bytes) {
  return aligned_to(kBlock, sizeof(Head) + blocks_of(bytes) * sizeof(std::uint32_t));
}
// Returns the number of 4-byte words between the head and the blocks: the checksums and the zeros after them.
std::size_t words_of(std::size_t bytes) { return (offset_of_blocks(bytes) - sizeof(Head)) / sizeof(std::uint32_t); }

std::uint32_t crc_of(Head head, std::span<const std::uint32_t> checksums) {
  head.crc = 0;
  return crc32c(std::as_bytes(checksums), crc32c(std::as_bytes(std::span(&head, 1))));
}

class File {
 public:
  explicit File(const std::filesystem::path& path)
      : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW)) {}
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  [[nodiscard]] bool is_open() const { return descriptor_ >= 0; }
  [[nodiscard]] bool has_size(std::uint64_t bytes) const {
    struct stat info {};
    return ::fstat(descriptor_, &info) == 0 && S_ISREG(info.st_mode) && static_cast<std::uint64_t>(info.st_size) == bytes;
  }
  [[nodiscard]] bool read(std::uint64_t offset, std::span<std::byte> out) const {
    while (!out.empty()) {
      const ssize_t got = ::pread(descriptor_, out.data(), out.size(), static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      out = out.subspan(static_cast<std::size_t>(got));
      offset += static_cast<std::uint64_t>(got);
    }
    return true;
  }
  // Asks the system to read all ranges and nothing else. The system's own read-ahead would read rows that a crop does not need.
  void advise(std::uint64_t begin, std::span<const PartRange> ranges) const {
    ::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_RANDOM);
    for (const PartRange& range : ranges)
      ::posix_fadvise(descriptor_, static_cast<off_t>(begin + range.offset), static_cast<off_t>(range.bytes),
                      POSIX_FADV_WILLNEED);
  }

 private:
  int descriptor_;
};

bool read_checked(const File& file, const PartKey& key, std::span<const PartRange> ranges, std::span<std::byte> out) {
  static thread_local std::vector<std::uint32_t> checksums;
  checksums.resize(words_of(out.size()));
  Head head;
  if (!file.has_size(part_file_bytes(out.size())) || !file.read(0, std::as_writable_bytes(std::span(&head, 1))) ||
      !file.read(sizeof head, std::as_writable_bytes(std::span(checksums))))
    return false;
  if (head.magic != Head().magic || head.key != key || head.bytes != out.size() || head.block != kBlock ||
      head.crc != crc_of(head, checksums))
    return false;
  const std::size_t begin_of_blocks = offset_of_blocks(out.size());
  const auto read_blocks = [&](std::size_t first, std::size_t end) {
    const std::size_t begin = first * kBlock;
    const std::span<std::byte> to = out.subspan(begin, std::min(end * kBlock, out.size()) - begin);
    if (!file.read(begin_of_blocks + begin, to)) return false;
    static thread_local std::vector<std::uint32_t> found;
    found.resize(end - first);
    crc32c_blocks(to, kBlock, found);
    return std::equal(found.begin(), found.end(), checksums.begin() + static_cast<std::ptrdiff_t>(first));
  };
  if (ranges.empty()) return read_blocks(0, blocks_of(out.size()));
  file.advise(begin_of_blocks, ranges);
  std::size_t first = 0;  // first of the adjacent blocks that are read together next
  std::size_t end = 0;
  for (const PartRange& range : ranges) {
    if (range.bytes == 0) continue;
    if (range.offset > out.size() || range.bytes > out.size() - range.offset) return false;
    const std::size_t from = range.offset / kBlock;
    const std::size_t to = (range.offset + range.bytes - 1) / kBlock + 1;
    if (from > end) {
      if (first < end && !read_blocks(first, end)) return false;
      first = from;
    }
    end = std::max(end, to);
  }
  return first == end || read_blocks(first, end);
}

}  // namespace

PartKey part_key(std::string_view text) {
  Sha256 hash;
  hash.update(text);
  return hash.digest();
}

std::string part_file_name(const PartKey& key) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string name;
  for (std::size_t i = 0; i < kNameDigits; ++i) name += kDigits[key[i / 2] >> (i % 2 == 0 ? 4U : 0U) & 15U];
  return name.append(kEnding);
}

bool is_part_file_name(std::string_view name) {
  return name.size() >= kNameDigits + kEnding.size() && name.substr(kNameDigits).starts_with(kEnding) &&
         name.substr(0, kNameDigits).find_first_not_of("0123456789abcdef") == std::string_view::npos &&
         (name.size() == kNameDigits + kEnding.size() || name.substr(kNameDigits + kEnding.size()).starts_with(".tmp."));
}

std::uint64_t part_file_bytes(std::size_t part_bytes) { return offset_of_blocks(part_bytes) + part_bytes; }

PartRead read_part(const std::filesystem::path& path, const PartKey& key, std::span<const PartRange> ranges,
                   std::span<std::byte> out) noexcept {
  const File file(path);
  // ELOOP and ENXIO mean that the path is not a part's file. Any other error (too many open files, no permission) does not mean
  // that the file is damaged.
  if (!file.is_open()) return errno == ELOOP || errno == ENXIO ? PartRead::damaged : PartRead::missing;
  try {
    return read_checked(file, key, ranges, out) ? PartRead::done : PartRead::damaged;
  } catch (const std::bad_alloc&) {
    return PartRead::missing;
  }
}

bool will_need_part(const std::filesystem::path& path, std::span<const PartRange> ranges, std::size_t part_bytes) noexcept {
  const File file(path);
  if (!file.is_open()) return false;
  const PartRange whole{0, part_bytes};
  file.advise(offset_of_blocks(part_bytes), ranges.empty() ? std::span(&whole, 1) : ranges);
  return true;
}

void write_part(Fs& fs, const std::filesystem::path& path, const PartKey& key, std::span<const std::byte> bytes) {
  std::vector<std::uint32_t> checksums(words_of(bytes.size()));
  crc32c_blocks(bytes, kBlock, std::span(checksums).first(blocks_of(bytes.size())));
  Head head;
  head.key = key;
  head.bytes = bytes.size();
  head.crc = crc_of(head, checksums);
  std::vector<std::byte> before(offset_of_blocks(bytes.size()));
  std::memcpy(before.data(), &head, sizeof head);
  std::memcpy(before.data() + sizeof head, checksums.data(), checksums.size() * sizeof(std::uint32_t));
  AtomicFile file(fs, path);
  file.file().write(before);
  file.file().write(bytes);
  file.finish_unsynced();
}

}  // namespace millrace::data::detail
