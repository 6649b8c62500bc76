#include <algorithm>
#include <cstring>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/input_file.h"
#include "millrace/format/deflate.h"
#include "millrace/format/detail/npy_header.h"
#include "millrace/format/detail/zip.h"
#include "millrace/format/npy.h"

namespace millrace::format {
namespace {

constexpr std::string_view kSuffix = ".npy";

[[noreturn]] void refuse_npz(const InputFile& file, std::string what) {
  throw DataError(
      {std::move(what), file.path().string(), "use an intact .npz file of plain numbers: write it again with numpy.savez"});
}

// Reads at most `limit` bytes from the beginning of a member.
std::vector<std::byte> head_of(const InputFile& file, const detail::ZipMember& member, std::uint64_t limit,
                               std::string& problem) {
  std::vector<std::byte> head(std::min(limit, member.bytes));
  if (!member.deflated) {
    file.read(member.offset, head);
    return head;
  }
  // Reads enough compressed bytes for `limit` decompressed ones. Deflate makes data longer by at most a few bytes per block.
  std::vector<std::byte> packed(std::min(member.compressed, 2 * limit + 1024));
  file.read(member.offset, packed);
  std::size_t written = 0;
  problem = inflate_head(DeflateFrame::raw, packed, head, written);
  head.resize(written);
  return head;
}

// Returns true for the files that macOS adds to an archive next to each file.
bool is_left_behind(const std::string& name) {
  return name.starts_with("__MACOSX/") || name.substr(name.rfind('/') + 1).starts_with("._");
}

// Returns the layout of a member. If the member is not a plain array, sets `unread` to the reason.
NpyLayout layout_of(const InputFile& file, const detail::ZipMember& member, std::string& unread) {
  std::string problem;
  const std::vector<std::byte> head = head_of(file, member, detail::kNpyPrologue + detail::kNpyHeaderLimit, problem);
  const auto fail = [&](const std::string& what) { refuse_npz(file, "member " + quoted(member.name) + ": " + what); };
  if (!problem.empty()) fail(problem);
  const detail::NpyPrologue prologue = detail::parse_prologue(std::span(head).first(std::min(head.size(), detail::kNpyPrologue)));
  if (!prologue.problem.empty()) fail(prologue.problem);
  if (prologue.header_bytes > head.size()) fail("it is cut off inside its header");
  const std::string_view text(reinterpret_cast<const char*>(head.data()), prologue.header_bytes);
  detail::ParsedNpy parsed = detail::parse_npy(text.substr(prologue.text_at), prologue.header_bytes, member.bytes);
  if (parsed.is_unread) {
    unread = std::move(parsed.problem);
  } else if (!parsed.problem.empty()) {
    fail(parsed.problem);
  }
  return std::move(parsed.layout);
}

}  // namespace

NpzFile::NpzFile(const std::filesystem::path& path) : file_(std::make_unique<InputFile>(path)) {
  detail::ParsedZip zip = detail::read_zip_directory(*file_);
  if (!zip.problem.empty()) refuse_npz(*file_, std::move(zip.problem));
  for (detail::ZipMember& member : zip.members) {
    std::string unread = !member.name.ends_with(kSuffix) ? "it is not a .npy file"
                         : is_left_behind(member.name)   ? "macOS added it to describe another file"
                                                         : "";
    NpyLayout layout = unread.empty() ? layout_of(*file_, member, unread) : NpyLayout();
    if (!unread.empty()) {
      unread_.emplace_back(member.name, std::move(unread));
      continue;
    }
    entries_.push_back({.name = member.name.substr(0, member.name.size() - kSuffix.size()),
                        .layout = std::move(layout),
                        .offset = member.offset,
                        .compressed = member.compressed,
                        .crc32 = member.crc32,
                        .deflated = member.deflated});
  }
}

NpzFile::~NpzFile() = default;
NpzFile::NpzFile(NpzFile&& other) noexcept = default;

std::vector<std::string> zip_names(const std::filesystem::path& path) {
  const InputFile file(path);
  const detail::ParsedZip zip = detail::read_zip_directory(file);
  if (!zip.problem.empty()) throw DataError({zip.problem, path.string(), "copy or download the file again"});
  std::vector<std::string> names;
  for (const detail::ZipMember& member : zip.members) names.push_back(member.name);
  return names;
}

void check_zip(const std::filesystem::path& path) {
  const InputFile file(path);
  const detail::ParsedZip zip = detail::read_zip_directory(file);
  const auto fail = [&](std::string what) {
    throw DataError({std::move(what), path.string(), "copy or download the file again"});
  };
  if (!zip.problem.empty()) fail(zip.problem);
  constexpr std::uint64_t kPiece = std::uint64_t{1} << 18U;
  for (const detail::ZipMember& member : zip.members) {
    std::uint32_t crc = 0;
    std::vector<std::byte> piece(member.deflated ? member.compressed : std::min(kPiece, member.bytes));
    if (member.deflated) {
      file.read(member.offset, piece);
      std::vector<std::byte> whole(member.bytes);
      if (const std::string problem = inflate(piece, whole); !problem.empty())
        fail("member " + quoted(member.name) + " is damaged: " + problem);
      crc = crc32(whole);
    }
    for (std::uint64_t done = 0; !member.deflated && done < member.bytes; done += piece.size()) {
      const auto part = std::span(piece).first(std::min<std::uint64_t>(piece.size(), member.bytes - done));
      file.read(member.offset + done, part);
      crc = crc32(part, crc);
    }
    if (crc != member.crc32) fail("member " + quoted(member.name) + " is damaged: its CRC-32 differs");
  }
}

const NpzEntry* NpzFile::find(std::string_view name) const noexcept {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const NpzEntry& entry) { return entry.name == name; });
  return found == entries_.end() ? nullptr : &*found;
}

void NpzFile::read(const NpzEntry& entry, std::span<std::byte> out) const {
  const NpyLayout& layout = entry.layout;
  MR_CHECK(out.size() == layout.bytes, "the memory for an array must have the array's size");
  std::vector<std::byte> packed(entry.compressed);
  file_->read(entry.offset, packed);
  std::vector<std::byte> unpacked;
  std::span<const std::byte> member = packed;
  if (entry.deflated) {
    unpacked.resize(layout.header_bytes + layout.bytes);
    if (const std::string problem = inflate(packed, unpacked); !problem.empty()) {
      refuse_npz(*file_, "array " + quoted(entry.name) + ": " + problem);
    }
    member = unpacked;
  }
  if (format::crc32(member) != entry.crc32) refuse_npz(*file_, "array " + quoted(entry.name) + " is damaged: its CRC-32 differs");
  detail::to_native(layout, member.subspan(layout.header_bytes), out);
}

void write_npz(WritableFile& file, std::span<const NpzArray> arrays, bool deflated) {
  detail::ZipWriter zip(file);
  std::vector<std::string> names;
  for (const NpzArray& array : arrays) {
    if (std::find(names.begin(), names.end(), array.field.name) != names.end() || array.field.name.size() > 1000) {
      throw DataError({.what = "array " + quoted(array.field.name) + " can't be stored: its name " +
                               (array.field.name.size() > 1000 ? "has more than 1000 bytes" : "occurs twice"),
                       .where = ".npz file",
                       .next = "give each array a short name of its own"});
    }
    names.push_back(array.field.name);
    std::string member = detail::npy_header(array.field.dtype, array.field.shape, array.bytes.size());
    member.append(reinterpret_cast<const char*>(array.bytes.data()), array.bytes.size());
    zip.add(array.field.name + std::string(kSuffix), std::as_bytes(std::span(member)), deflated);
  }
  zip.finish();
}

}  // namespace millrace::format
