#include "millrace/format/detail/zip.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "millrace/base/format.h"
#include "millrace/format/deflate.h"

namespace millrace::format::detail {
namespace {

constexpr std::uint32_t kLocal = 0x04034b50, kEntry = 0x02014b50, kEnd = 0x06054b50, kEnd64 = 0x06064b50, kLocator64 = 0x07064b50;
constexpr std::size_t kLocalBytes = 30, kEntryBytes = 46, kEndBytes = 22, kEnd64Bytes = 56, kLocator64Bytes = 20;
constexpr std::uint64_t kFull16 = 0xFFFF, kFull32 = 0xFFFFFFFF;   // these values mean that the number is in the zip64 record
constexpr std::uint16_t kZip64Extra = 1, kPaddingExtra = 0x4246;  // kPaddingExtra is the extra field "FB" of PyTorch's writer
constexpr std::size_t kZip64LocalExtra = 20;
constexpr std::uint16_t kEncrypted = 1, kUtf8Name = 1U << 11U;
constexpr std::uint16_t kStored = 0, kDeflated = 8;

std::uint64_t number(std::span<const std::byte> bytes, std::size_t at, std::size_t width) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = width; i-- > 0;) value = value << 8U | std::to_integer<std::uint64_t>(bytes[at + i]);
  return value;
}

void put(std::string& to, std::uint64_t value, std::size_t width) {
  for (; width > 0; --width, value >>= 8U) to += static_cast<char>(value & 0xFFU);
}

std::vector<std::byte> part(const InputFile& file, std::uint64_t offset, std::uint64_t bytes) {
  std::vector<std::byte> result(bytes);
  file.read(offset, result);
  return result;
}

bool ends_behind(std::span<const std::byte> rest, std::uint64_t comment) {
  if (comment > rest.size()) return false;
  const auto is_padding = [](std::byte b) {
    return b == std::byte{0} || b == std::byte{'\n'} || b == std::byte{'\r'} || b == std::byte{' '};
  };
  rest = rest.subspan(comment);
  return std::all_of(rest.begin(), rest.end(), is_padding);
}

struct Directory {
  std::uint64_t offset = 0, bytes = 0, members = 0;
};

// Finds the list of members; nullopt if there is no end record, or if the end record contradicts the file.
std::optional<Directory> find_directory(const InputFile& file) {
  if (file.size() < kEndBytes) return std::nullopt;
  const std::uint64_t tail = std::min<std::uint64_t>(file.size(), kEndBytes + kFull16);
  const std::vector<std::byte> bytes = part(file, file.size() - tail, tail);
  std::size_t at = tail - kEndBytes;
  // Only the end record's comment and padding may follow the end record. Tapes, archives and editors leave such padding.
  while (number(bytes, at, 4) != kEnd || !ends_behind(std::span(bytes).subspan(at + kEndBytes), number(bytes, at + 20, 2))) {
    if (at-- == 0) return std::nullopt;
  }
  const std::uint64_t end = file.size() - tail + at;
  Directory found{.offset = number(bytes, at + 16, 4), .bytes = number(bytes, at + 12, 4), .members = number(bytes, at + 10, 2)};
  std::uint64_t limit = end;
  if (end >= kLocator64Bytes + kEnd64Bytes) {
    const std::vector<std::byte> locator = part(file, end - kLocator64Bytes, kLocator64Bytes);
    if (number(locator, 0, 4) == kLocator64) {
      const std::uint64_t offset = number(locator, 8, 8);
      if (offset > end - kLocator64Bytes - kEnd64Bytes) return std::nullopt;
      const std::vector<std::byte> record = part(file, offset, kEnd64Bytes);
      if (number(record, 0, 4) != kEnd64) return std::nullopt;
      found = {.offset = number(record, 48, 8), .bytes = number(record, 40, 8), .members = number(record, 32, 8)};
      limit = offset;
    }
  }
  if (found.offset > limit || found.bytes != limit - found.offset || found.members > found.bytes / kEntryBytes)
    return std::nullopt;
  return found;
}

// Replaces numbers that did not fit into 32 bits by those of the zip64 record. Returns false if the record lacks one of them.
bool take_zip64(std::span<const std::byte> extra, ZipMember& member, std::uint64_t& local) {
  bool missing = member.bytes == kFull32 || member.compressed == kFull32 || local == kFull32;
  while (extra.size() >= 4) {
    const std::uint64_t kind = number(extra, 0, 2);
    const std::uint64_t size = number(extra, 2, 2);
    if (size > extra.size() - 4) return false;
    if (kind == kZip64Extra) {
      std::size_t at = 4;
      for (std::uint64_t* value : {&member.bytes, &member.compressed, &local}) {
        if (*value != kFull32) continue;
        if (at + 8 > 4 + size) return false;
        *value = number(extra, at, 8);
        at += 8;
      }
      missing = false;
    }
    extra = extra.subspan(4 + size);
  }
  return !missing;
}

// Finds where the member's data begins, from the header in front of the data. That header must repeat the member's name. Returns
// what is wrong, or "".
std::string locate(const InputFile& file, std::uint64_t local, std::uint64_t limit, ZipMember& member) {
  const std::string who = "member " + quoted(member.name);
  const std::uint64_t head = kLocalBytes + member.name.size();
  if (local > limit || head > limit - local)
    return who + " begins at byte " + std::to_string(local) + ", too late to end before the list of members";
  const std::vector<std::byte> bytes = part(file, local, head);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (number(bytes, 0, 4) != kLocal || number(bytes, 26, 2) != member.name.size() || text.substr(kLocalBytes) != member.name) {
    return "the header of " + who + " is not at byte " + std::to_string(local);
  }
  member.offset = local + head + number(bytes, 28, 2);
  if (member.offset > limit || member.compressed > limit - member.offset) {
    return who + " of " + std::to_string(member.compressed) +
           " bytes does not fit before the list of members: the file was cut off";
  }
  return "";
}

// Reads an entry of the directory from the beginning of `rest`, and removes the entry from `rest`.
std::string take_entry(const InputFile& file, const Directory& directory, std::span<const std::byte>& rest, ZipMember& member) {
  if (rest.size() < kEntryBytes || number(rest, 0, 4) != kEntry) return "the list of members is damaged";
  const std::uint64_t name = number(rest, 28, 2);
  const std::uint64_t extra = number(rest, 30, 2);
  const std::uint64_t whole = kEntryBytes + name + extra + number(rest, 32, 2);
  if (whole > rest.size()) return "the list of members is cut off";
  member.name.assign(reinterpret_cast<const char*>(rest.data()) + kEntryBytes, name);
  member.crc32 = static_cast<std::uint32_t>(number(rest, 16, 4));
  member.compressed = number(rest, 20, 4);
  member.bytes = number(rest, 24, 4);
  std::uint64_t local = number(rest, 42, 4);
  const std::string who = "member " + quoted(member.name);
  if ((number(rest, 8, 2) & kEncrypted) != 0) return who + " is encrypted";
  const std::uint64_t method = number(rest, 10, 2);
  if (method != kStored && method != kDeflated) return who + " is compressed by the unknown method " + std::to_string(method);
  member.deflated = method == kDeflated;
  if (!take_zip64(rest.subspan(kEntryBytes + name, extra), member, local)) return who + " lacks its zip64 sizes";
  rest = rest.subspan(whole);
  if (std::string problem = locate(file, local, directory.offset, member); !problem.empty()) return problem;
  const bool possible =
      member.deflated ? member.bytes / kDeflateMostExpansion <= member.compressed : member.bytes == member.compressed;
  if (possible) return "";
  return who + " announces " + std::to_string(member.bytes) + " bytes, but its " + std::to_string(member.compressed) +
         " bytes in the file can't hold so many";
}

}  // namespace

ParsedZip read_zip_directory(const InputFile& file) {
  ParsedZip result;
  const std::optional<Directory> directory = find_directory(file);
  if (!directory) {
    result.problem = "there is no list of members at the end: this is not a zip archive, or it was cut off";
    return result;
  }
  const std::vector<std::byte> bytes = part(file, directory->offset, directory->bytes);
  std::span<const std::byte> rest(bytes);
  result.members.reserve(directory->members);
  for (std::uint64_t i = 0; i < directory->members; ++i) {
    ZipMember& member = result.members.emplace_back();
    result.problem = take_entry(file, *directory, rest, member);
    if (!result.problem.empty()) return result;
  }
  if (!rest.empty())
    result.problem =
        "the list of members holds more than the " + std::to_string(directory->members) + " members that are announced";
  std::sort(result.members.begin(), result.members.end(), [](const ZipMember& a, const ZipMember& b) { return a.name < b.name; });
  const auto twice = std::adjacent_find(result.members.begin(), result.members.end(),
                                        [](const ZipMember& a, const ZipMember& b) { return a.name == b.name; });
  if (twice != result.members.end()) result.problem = "member " + quoted(twice->name) + " occurs twice";
  return result;
}

void ZipWriter::write(std::span<const std::byte> bytes) {
  file_.write(bytes);
  at_ += bytes.size();
}

void ZipWriter::add(const std::string& name, std::span<const std::byte> bytes, bool deflated, std::size_t alignment) {
  const std::vector<std::byte> packed = deflated ? deflate(DeflateFrame::raw, bytes) : std::vector<std::byte>();
  const std::span<const std::byte> data = deflated ? std::span<const std::byte>(packed) : bytes;
  constexpr std::uint64_t kVersion = 45;            // the first version with zip64
  constexpr std::uint64_t kFirstDate = 1 << 5 | 1;  // 1980-01-01, the earliest possible date
  std::string common;
  put(common, kVersion, 2);
  put(common, kUtf8Name, 2);
  put(common, deflated ? kDeflated : kStored, 2);
  put(common, kFirstDate << 16U, 4);
  put(common, crc32(bytes), 4);
  put(common, kFull32, 4);
  put(common, kFull32, 4);
  put(common, name.size(), 2);
  // An empty extra field moves the data to a multiple of `alignment`. Such a field takes at least 4 bytes.
  const std::uint64_t plain_end = at_ + kLocalBytes + name.size() + kZip64LocalExtra;
  std::size_t padding = (alignment - plain_end % alignment) % alignment;
  if (padding > 0 && padding < 4) padding += (4 / alignment + 1) * alignment;
  std::string local;
  put(local, kLocal, 4);
  local += common;
  put(local, kZip64LocalExtra + padding, 2);
  local += name;
  put(directory_, kEntry, 4);
  put(directory_, kVersion, 2);
  directory_ += common;
  put(directory_, 28, 2);
  put(directory_, 0, 2 + 2 + 2 + 4);  // lengths and numbers that are all 0: comment, disk, attributes
  put(directory_, kFull32, 4);
  directory_ += name;
  for (std::string* extra : {&local, &directory_}) {
    put(*extra, kZip64Extra, 2);
    put(*extra, extra == &local ? 16 : 24, 2);
    put(*extra, bytes.size(), 8);
    put(*extra, data.size(), 8);
  }
  put(directory_, at_, 8);
  if (padding > 0) {
    put(local, kPaddingExtra, 2);
    put(local, padding - 4, 2);
    local.append(padding - 4, '\0');
  }
  ++members_;
  write(std::as_bytes(std::span(local)));
  write(data);
}

void ZipWriter::finish() {
  const std::uint64_t directory = at_;
  const std::uint64_t end = directory + directory_.size();
  put(directory_, kEnd64, 4);
  put(directory_, kEnd64Bytes - 12, 8);
  put(directory_, 45, 2);
  put(directory_, 45, 2);
  put(directory_, 0, 8);
  put(directory_, members_, 8);
  put(directory_, members_, 8);
  put(directory_, end - directory, 8);
  put(directory_, directory, 8);
  put(directory_, kLocator64, 4);
  put(directory_, 0, 4);
  put(directory_, end, 8);
  put(directory_, 1, 4);
  put(directory_, kEnd, 4);
  put(directory_, 0, 4);
  put(directory_, kFull16, 2);
  put(directory_, kFull16, 2);
  put(directory_, kFull32, 4);
  put(directory_, kFull32, 4);
  put(directory_, 0, 2);
  write(std::as_bytes(std::span(directory_)));
}

}  // namespace millrace::format::detail
