#include <algorithm>
#include <cstring>
#include <fstream>
#include <type_traits>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/input_file.h"
#include "millrace/format/deflate.h"
#include "millrace/format/detail/pickle.h"
#include "millrace/format/detail/pt_content.h"
#include "millrace/format/detail/zip.h"
#include "millrace/format/pt.h"

namespace millrace::format {
namespace {

constexpr std::string_view kPickle = "/data.pkl";
constexpr std::uint64_t kMostPickleBytes = std::uint64_t{64} << 20U;
constexpr std::uint64_t kMostReach = 16;  // limit on the bytes that all tensors cover, as a multiple of the file's size
constexpr std::size_t kPieceRead = std::size_t{1} << 18U;

const char* const kStateDict = "in Python, save the model's state_dict() alone: torch.save(model.state_dict(), path)";
const char* const kDequantized =
    "in Python, save such tensors as numbers: torch.save({name: x.dequantize() if x.is_quantized else x for name, x in "
    "state_dict.items()}, path)";
const char* const kAgain = "copy or download the file again";

[[noreturn]] void refuse_pt(const InputFile& file, std::string what, std::string next = kStateDict) {
  throw DataError({std::move(what), file.path().string(), std::move(next)});
}

// Throws the error for a file that seems intact, but is of a kind that Millrace does not read.
[[noreturn]] void pass_over_pt(const InputFile& file, std::string what, std::string next = kStateDict) {
  throw UnreadKind({std::move(what), file.path().string(), std::move(next)});
}

// Recognises older files and other kinds by their beginning, and refuses each with its own message.
void refuse_other_kinds(const InputFile& file) {
  constexpr std::string_view kLegacy("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 14);
  std::string start(std::min<std::uint64_t>(file.size(), kLegacy.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(start)));
  if (start == kLegacy) {
    pass_over_pt(file, "this .pt file has the format of torch before 1.6", "load and save it again with a newer torch");
  }
  if (start.starts_with('\x80') || start.starts_with("(dp") || start.starts_with("(lp"))
    pass_over_pt(file, "this is a plain Python pickle, not the zip archive that torch.save writes");
}

const detail::ZipMember* find_member(const std::vector<detail::ZipMember>& members, std::string_view name) {
  const auto found =
      std::lower_bound(members.begin(), members.end(), name,
                       [](const detail::ZipMember& member, std::string_view wanted) { return member.name < wanted; });
  return found != members.end() && found->name == name ? &*found : nullptr;
}

std::string read_member(const InputFile& file, const detail::ZipMember& member) {
  if (member.deflated)
    pass_over_pt(file, "member " + quoted(member.name) + " is compressed, but torch.save stores it uncompressed");
  std::string text(member.bytes, '\0');
  file.read(member.offset, std::as_writable_bytes(std::span(text)));
  if (crc32(std::as_bytes(std::span(text))) != member.crc32)
    refuse_pt(file, "member " + quoted(member.name) + " is damaged: its CRC-32 differs", kAgain);
  return text;
}

// Returns the name of the folder in which the archive holds data.pkl.
std::string prefix_of(const InputFile& file, const std::vector<detail::ZipMember>& members) {
  std::string prefix;
  for (const detail::ZipMember& member : members) {
    const std::string path = "/" + member.name + "/";
    if (path.find("/../") != std::string::npos || path.starts_with("//")) {
      refuse_pt(file, "member " + quoted(member.name) + " leads out of the archive");
    }
    if (member.name.ends_with("/constants.pkl") || member.name.find("/code/") != std::string::npos) {
      pass_over_pt(file, "this is a TorchScript archive: it holds code (member " + quoted(member.name) + ")");
    }
    if (!member.name.ends_with(kPickle)) continue;
    if (!prefix.empty())
      refuse_pt(file, "there are two pickles: members " + quoted(prefix + std::string(kPickle)) + " and " + quoted(member.name));
    prefix = member.name.substr(0, member.name.size() - kPickle.size());
  }
  if (prefix.empty()) pass_over_pt(file, "this zip archive has no data.pkl: torch.save did not write it");
  return prefix;
}

// Copies a strided view in row-major order. `from` begins at the view's first element.
void gather(const PtTensor& tensor, std::span<const std::byte> from, std::span<std::byte> into) {
  const std::size_t width = size_of(tensor.dtype);
  std::vector<std::int64_t> at(tensor.shape.size(), 0);
  std::int64_t element = 0;
  for (std::size_t done = 0; done < into.size(); done += width) {
    std::memcpy(into.data() + done, from.data() + static_cast<std::size_t>(element) * width, width);
    for (std::size_t axis = at.size(); axis-- > 0;) {
      element += tensor.strides[axis];
      if (++at[axis] < tensor.shape[axis]) break;
      element -= tensor.strides[axis] * at[axis];
      at[axis] = 0;
    }
  }
}

// Applies an operation that torch deferred: conjugation changes the sign of every second number, negation the sign of every
// number.
template <class Number>
void turn_signs(const PtTensor& tensor, std::uint64_t first, std::span<std::byte> bytes) {
  constexpr bool kIsReal = std::is_floating_point_v<Number>;
  std::uint64_t at = first / sizeof(Number);
  for (std::size_t i = 0; i < bytes.size(); i += sizeof(Number), ++at) {
    if (tensor.negated == (tensor.conjugated && at % 2 == 1)) continue;
    Number number;
    std::memcpy(&number, bytes.data() + i, sizeof(Number));
    number = kIsReal ? -number : static_cast<Number>(Number{0} - number);
    std::memcpy(bytes.data() + i, &number, sizeof(Number));
  }
}

// Applies the operations that torch deferred to `bytes`, a part of the row-major tensor that begins at byte `first`. No number
// is cut at either end.
void do_what_was_left(const PtTensor& tensor, std::uint64_t first, std::span<std::byte> bytes) {
  if (!tensor.conjugated && !tensor.negated) return;
  switch (tensor.dtype) {
    case DType::f16:
    case DType::bf16:
      for (std::size_t i = 1; i < bytes.size(); i += 2) bytes[i] ^= std::byte{0x80};
      return;
    case DType::f32:
    case DType::c64:
      return turn_signs<float>(tensor, first, bytes);
    case DType::f64:
    case DType::c128:
      return turn_signs<double>(tensor, first, bytes);
    default:
      break;
  }
  switch (size_of(tensor.dtype)) {
    case 1:
      return turn_signs<std::uint8_t>(tensor, first, bytes);
    case 2:
      return turn_signs<std::uint16_t>(tensor, first, bytes);
    case 4:
      return turn_signs<std::uint32_t>(tensor, first, bytes);
    default:
      return turn_signs<std::uint64_t>(tensor, first, bytes);
  }
}

// Returns the number of elements of the storage from the tensor's first element to its last.
std::uint64_t extent(const PtTensor& tensor) {
  std::uint64_t last = 0;
  for (std::size_t i = 0; i < tensor.shape.size(); ++i)
    last += static_cast<std::uint64_t>((tensor.shape[i] - 1) * tensor.strides[i]);
  return last + 1;
}

}  // namespace

bool is_row_major(const PtTensor& tensor) noexcept {
  std::int64_t stride = 1;
  for (std::size_t i = tensor.shape.size(); i-- > 0; stride *= tensor.shape[i]) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != stride) return false;
  }
  return true;
}

PtFile::PtFile(const std::filesystem::path& path) : file_(std::make_unique<InputFile>(path)) {
  refuse_other_kinds(*file_);
  const detail::ParsedZip zip = detail::read_zip_directory(*file_);
  if (!zip.problem.empty()) refuse_pt(*file_, zip.problem, kAgain);
  const std::string prefix = prefix_of(*file_, zip.members);
  if (const detail::ZipMember* order = find_member(zip.members, prefix + "/byteorder")) {
    constexpr std::uint64_t kWord = 16;
    const std::string word = order->bytes <= kWord ? read_member(*file_, *order) : "";
    if (word != "little")
      pass_over_pt(*file_, "its numbers are in the byte order " + quoted(word), "save it on a little-endian machine");
  }
  const detail::ZipMember* const pickle = find_member(zip.members, prefix + std::string(kPickle));
  if (pickle->bytes > kMostPickleBytes) {
    pass_over_pt(*file_, "data.pkl has " + human_bytes(static_cast<double>(pickle->bytes)) +
                             ", but a dict of tensors takes only some 200 bytes for each tensor");
  }
  const std::string text = read_member(*file_, *pickle);
  const detail::Pickled pickled = detail::unpickle(text);
  if (!pickled.problem.empty()) {
    const bool is_quantized = pickled.problem.find("_rebuild_qtensor") != std::string::npos;
    (pickled.is_unread ? pass_over_pt : refuse_pt)(*file_, "data.pkl: " + pickled.problem,
                                                   is_quantized ? kDequantized : kStateDict);
  }
  detail::PtContent content = detail::interpret(pickled);
  if (!content.problem.empty())
    (content.is_unread ? pass_over_pt : refuse_pt)(*file_, "data.pkl: " + content.problem,
                                                   content.remedy.empty() ? kStateDict : content.remedy);
  for (const detail::PtStorageClaim& claim : content.storages) {
    const std::string name = prefix + "/data/" + claim.key;
    const detail::ZipMember* const member = find_member(zip.members, name);
    if (member == nullptr) refuse_pt(*file_, "member " + quoted(name) + " is missing");
    if (member->deflated)
      pass_over_pt(*file_, "member " + quoted(name) + " is compressed, but torch.save stores it uncompressed");
    if (member->bytes != claim.bytes) {
      refuse_pt(*file_, "member " + quoted(name) + " has " + std::to_string(member->bytes) + " bytes, but data.pkl says " +
                            std::to_string(claim.bytes));
    }
    storages_.push_back({name, member->offset, member->bytes, member->crc32, false});
  }
  if (content.reach / kMostReach > file_->size())
    refuse_pt(*file_, "its tensors overlap so much that together they are over 16 times the file's size");
  tensors_ = std::move(content.tensors);
  values_ = std::move(content.values);
}

PtFile::~PtFile() = default;
PtFile::PtFile(PtFile&& other) noexcept = default;

const PtTensor* PtFile::find(std::string_view name) const noexcept {
  const auto found = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                      [](const PtTensor& tensor, std::string_view wanted) { return tensor.name < wanted; });
  return found != tensors_.end() && found->name == name ? &*found : nullptr;
}

void PtFile::check(Storage& storage) {
  if (std::exchange(storage.checked, true)) return;
  std::vector<std::byte> piece(std::min<std::uint64_t>(kPieceRead, storage.bytes));
  std::uint32_t crc = 0;
  for (std::uint64_t at = 0; at < storage.bytes; at += piece.size()) {
    const std::span<std::byte> part = std::span(piece).first(std::min<std::uint64_t>(piece.size(), storage.bytes - at));
    file_->read(storage.offset + at, part);
    crc = crc32(part, crc);
  }
  if (crc == storage.crc32) return;
  storage.checked = false;
  refuse_pt(*file_, "member " + quoted(storage.member) + " is damaged: its CRC-32 differs", kAgain);
}

void PtFile::read(const PtTensor& tensor, std::span<std::byte> into) {
  MR_CHECK(into.size() == tensor.bytes, "the memory for a tensor must have the tensor's size");
  if (tensor.bytes == 0) return;
  Storage& storage = storages_[tensor.storage];
  const std::uint64_t width = size_of(tensor.dtype);
  const std::uint64_t begin = storage.offset + tensor.first * width;
  if (is_row_major(tensor)) {
    if (tensor.bytes != storage.bytes) check(storage);
    file_->read(begin, into);
    if (tensor.bytes == storage.bytes && crc32(into) != storage.crc32) {
      refuse_pt(*file_, "member " + quoted(storage.member) + " is damaged: its CRC-32 differs", kAgain);
    }
    return do_what_was_left(tensor, 0, into);
  }
  check(storage);
  std::vector<std::byte> view(extent(tensor) * width);
  file_->read(begin, view);
  gather(tensor, view, into);
  do_what_was_left(tensor, 0, into);
}

void PtFile::read_part(const PtTensor& tensor, std::uint64_t first, std::span<std::byte> into) {
  if (first == 0 && into.size() == tensor.bytes) return read(tensor, into);
  MR_CHECK(is_row_major(tensor) && first + into.size() <= tensor.bytes, "only a row-major tensor can be read in part");
  const std::size_t width = size_of(tensor.dtype);
  MR_CHECK(first % width == 0 && into.size() % width == 0, "a part of a tensor must consist of whole elements");
  Storage& storage = storages_[tensor.storage];
  check(storage);
  file_->read(storage.offset + tensor.first * width + first, into);
  do_what_was_left(tensor, first, into);
}

bool looks_like_pt(const std::filesystem::path& path) noexcept {
  char start[4] = {};
  std::ifstream stream(path, std::ios::binary);
  return stream.read(start, 4) && std::string_view(start, 4) == std::string_view("PK\3\4", 4);
}

}  // namespace millrace::format
