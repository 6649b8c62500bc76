#include "millrace/data/files/token_array.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "millrace/base/doing.h"
#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/hash.h"
#include "millrace/base/input_file.h"
#include "millrace/format/npy.h"

namespace millrace::data {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian and read as they are");

constexpr std::uint32_t kVersion = 1;
constexpr std::uint64_t kKeepInMemory = std::uint64_t{64} << 20U;
constexpr std::size_t kBytesAtATime = std::size_t{1} << 20U;   // bytes read at once; a multiple of every token size
constexpr std::uint64_t kMaxNotes = std::uint64_t{16} << 20U;  // the most bytes of the writer's JSON
constexpr std::uint64_t kMaxDocuments = std::uint64_t{1} << 27U;
constexpr int kMaxNotesDepth = 8;
constexpr std::uint64_t kMaxVocab = std::uint64_t{1} << 32U;

struct Header {
  std::array<char, 8> magic = {'M', 'R', 'T', 'O', 'K', 'E', 'N', 'S'};
  std::uint32_t version = kVersion;
  std::uint32_t token_bytes = 2;
};
static_assert(sizeof(Header) == 16);

struct Footer {
  std::uint64_t tokens = 0;
  std::uint64_t documents = 0;
  std::uint64_t vocab_size = 0;
  std::uint64_t notes_bytes = 0;
  std::uint32_t tokens_crc = 0;
  std::uint32_t documents_crc = 0;
  std::uint32_t notes_crc = 0;
  std::uint32_t own_crc = 0;  // checksum of all members before this one
};
static_assert(sizeof(Footer) == 48);

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

std::uint32_t own_crc(const Footer& footer) { return crc32c(bytes_of(footer).first(offsetof(Footer, own_crc))); }

std::uint64_t padding_after(std::uint64_t bytes) { return (8 - bytes % 8) % 8; }

// Returns the position of the first id that is not below `limit`.
template <class T>
std::optional<std::size_t> first_above(std::span<const T> tokens, std::uint64_t limit) {
  if (limit > std::uint64_t{std::numeric_limits<T>::max()}) return std::nullopt;
  const auto bound = static_cast<T>(limit);
  T highest = 0;
  for (const T token : tokens) highest = std::max(highest, token);
  if (highest < bound) return std::nullopt;
  return static_cast<std::size_t>(std::find_if(tokens.begin(), tokens.end(), [&](T t) { return t >= bound; }) - tokens.begin());
}

template <class T>
void check_ids(std::span<const std::byte> bytes, std::uint64_t vocab_size, std::uint64_t first, const std::string& name) {
  std::vector<T> tokens(bytes.size() / sizeof(T));
  std::memcpy(tokens.data(), bytes.data(), tokens.size() * sizeof(T));
  const std::optional<std::size_t> at = first_above<T>(std::span<const T>(tokens), vocab_size);
  if (!at) return;
  throw DataError({.what = "token " + with_commas(static_cast<std::int64_t>(first + *at)) + " of " + name + " is " +
                           std::to_string(tokens[*at]) + ", but the vocabulary has " +
                           with_commas(static_cast<std::int64_t>(vocab_size)) + " entries",
                   .where = "byte " + std::to_string((first + *at) * sizeof(T)) + " of the tokens",
                   .next = "make the token file with the tokenizer of this run"});
}

void check_ids(std::span<const std::byte> bytes, std::size_t token_bytes, std::uint64_t vocab_size, std::uint64_t first,
               const std::string& name) {
  token_bytes == 2 ? check_ids<std::uint16_t>(bytes, vocab_size, first, name)
                   : check_ids<std::uint32_t>(bytes, vocab_size, first, name);
}

class MemoryTokens final : public TokenArray {
 public:
  template <class T>
  MemoryTokens(std::vector<T> tokens, std::uint64_t vocab_size, std::vector<std::int64_t> documents, std::string fingerprint) {
    const auto owner = std::make_shared<const std::vector<T>>(std::move(tokens));
    bytes_ = std::as_bytes(std::span(*owner));
    owner_ = owner;
    size_ = static_cast<std::int64_t>(owner->size());
    token_bytes_ = sizeof(T);
    vocab_size_ = vocab_size;
    documents_ = std::move(documents);
    fingerprint_ = std::move(fingerprint);
    name_ = "tokens in memory";
    check_ids(bytes_, token_bytes_, vocab_size_, 0, name_);
  }
  [[nodiscard]] bool in_memory() const noexcept override { return true; }
  void read(std::int64_t first, std::int64_t count, std::byte* out) const override {
    std::memcpy(out, bytes_.data() + static_cast<std::size_t>(first) * token_bytes_,
                static_cast<std::size_t>(count) * token_bytes_);
  }

 private:
  std::span<const std::byte> bytes_;
  std::shared_ptr<const void> owner_;
};

class FileTokens final : public TokenArray {
 public:
  explicit FileTokens(const std::filesystem::path& path) : file_(path) { name_ = quoted(path.string()); }

  void load() {
    const Footer footer = read_footer();
    token_bytes_ = read_header().token_bytes;
    vocab_size_ = footer.vocab_size;
    if (vocab_size_ == 0 || vocab_size_ > kMaxVocab) damaged("vocabulary size " + std::to_string(vocab_size_), "footer");
    begin_ = sizeof(Header);
    const std::uint64_t middle = file_.size() - sizeof(Header) - sizeof(Footer);
    // Each count is first compared with the size of the file, so that the sums below can't overflow.
    if (footer.tokens > middle / token_bytes_ || footer.documents > middle / 8 || footer.notes_bytes > middle) {
      damaged("counts that exceed the file", "footer");
    }
    if (footer.notes_bytes > kMaxNotes || footer.documents > kMaxDocuments)
      damaged("a document index or JSON notes of impossible size", "footer");
    const std::uint64_t token_end = begin_ + footer.tokens * token_bytes_;
    const std::uint64_t documents_at = token_end + padding_after(token_end);
    const std::uint64_t notes_at = documents_at + footer.documents * 8;
    if (notes_at + footer.notes_bytes + sizeof(Footer) != file_.size())
      damaged("counts that do not add up to the size of the file", "footer");
    size_ = static_cast<std::int64_t>(footer.tokens);
    load_notes(notes_at, footer);
    load_documents(token_end, documents_at, footer);
    scan(footer.tokens_crc);
  }

  void load_bare(std::size_t token_bytes, std::uint64_t vocab_size) {
    token_bytes_ = token_bytes;
    vocab_size_ = vocab_size;
    if (file_.size() % token_bytes != 0) {
      throw DataError({.what = name_ + " has " + with_commas(static_cast<std::int64_t>(file_.size())) +
                               " bytes, but each token takes " + std::to_string(token_bytes),
                       .where = "",
                       .next = "the file is cut off or its tokens have another size"});
    }
    size_ = static_cast<std::int64_t>(file_.size() / token_bytes);
    if (size_ == 0) throw DataError({.what = name_ + " is empty", .where = "", .next = "check the program that made it"});
    refuse_a_header();
    const std::uint32_t crc = scan(std::nullopt);
    if (has_wider_ids()) {
      throw DataError(
          {.what = name_ + " seems to hold ids of more than " + std::to_string(token_bytes) +
                   " bytes: every second id that is read is 0",
           .where = "",
           .next =
               "give the size of the ids in the file, 2 or 4 bytes, or write the file again: ids.astype('<u2').tofile(FILE)"});
    }
    fingerprint_ = "tokens " + std::to_string(size_) + " x " + std::to_string(token_bytes) + " crc32c " + std::to_string(crc);
  }

  [[nodiscard]] bool in_memory() const noexcept override { return !kept_.empty(); }
  void read(std::int64_t first, std::int64_t count, std::byte* out) const override {
    const std::uint64_t offset = static_cast<std::uint64_t>(first) * token_bytes_;
    const std::size_t bytes = static_cast<std::size_t>(count) * token_bytes_;
    if (!kept_.empty()) {
      std::memcpy(out, kept_.data() + offset, bytes);
    } else {
      file_.read(begin_ + offset, {out, bytes});
    }
  }

 private:
  [[noreturn]] void damaged(const std::string& what, const std::string& where) const {
    throw DataError({.what = name_ + " is not a valid token file: it has " + what,
                     .where = where,
                     .next = "remove the file; in a cache folder it is made again from its sources"});
  }

  // Refuses a file whose first bytes are a header. The header's bytes would be learned as ids, and would shift or split all
  // other ids.
  void refuse_a_header() const {
    std::array<char, sizeof(Header::magic)> start{};
    if (file_.size() < start.size()) return;
    file_.read(0, std::as_writable_bytes(std::span(start)));
    const std::string_view text(start.data(), start.size());
    if (start == Header{}.magic) {
      throw DataError({.what = name_ + " is a token file of Millrace, not bare ids",
                       .where = "byte 0",
                       .next = "leave out the size of an id, which the file states"});
    }
    if (format::is_npy(text)) {
      throw DataError({.what = name_ + " is a .npy file, not bare ids: its header would be read as ids",
                       .where = "byte 0",
                       .next = "write bare ids: numpy.load(FILE).astype('<u2').tofile(NEW); '<u4' for ids above 65535"});
    }
  }

  // Returns true if every second number is 0. That happens if ids are read with a half or a quarter of their size.
  [[nodiscard]] bool has_wider_ids() const {
    constexpr std::int64_t kLeast = 256;
    constexpr std::int64_t kMost = 65536;
    if (size_ < kLeast) return false;
    const std::int64_t count = std::min(size_, kMost);
    std::vector<std::byte> bytes(static_cast<std::size_t>(count) * token_bytes_);
    read(0, count, bytes.data());
    bool has_ids = false;
    for (std::size_t at = 0; at < bytes.size(); at += token_bytes_) {
      const std::span<const std::byte> id = std::span<const std::byte>(bytes).subspan(at, token_bytes_);
      const bool is_zero = std::all_of(id.begin(), id.end(), [](std::byte b) { return b == std::byte{0}; });
      if (at / token_bytes_ % 2 == 1 && !is_zero) return false;
      has_ids = has_ids || !is_zero;
    }
    return has_ids;
  }

  Header read_header() const {
    Header header;
    file_.read(0, std::as_writable_bytes(std::span(&header, 1)));
    if (header.magic != Header{}.magic) damaged("first bytes of another kind of file", "byte 0");
    if (header.version != kVersion)
      damaged("version " + std::to_string(header.version) + ", this program reads version 1", "byte 8");
    if (header.token_bytes != 2 && header.token_bytes != 4)
      damaged(std::to_string(header.token_bytes) + " bytes a token", "byte 12");
    return header;
  }

  Footer read_footer() const {
    if (file_.size() < sizeof(Header) + sizeof(Footer)) damaged("only " + std::to_string(file_.size()) + " bytes", "");
    read_header();  // read first, so that a wrong kind of file is reported as such and not as a wrong checksum
    Footer footer;
    file_.read(file_.size() - sizeof(Footer), std::as_writable_bytes(std::span(&footer, 1)));
    if (footer.own_crc != own_crc(footer)) damaged("a wrong checksum", "footer");
    return footer;
  }

  void load_notes(std::uint64_t at, const Footer& footer) {
    std::string text(footer.notes_bytes, '\0');
    file_.read(at, std::as_writable_bytes(std::span(text)));
    if (crc32c(std::as_bytes(std::span(text))) != footer.notes_crc)
      damaged("a wrong checksum", "notes at byte " + std::to_string(at));
    const auto shallow = [](int depth, Json::parse_event_t, Json&) { return depth <= kMaxNotesDepth; };
    notes_ = Json::parse(text, shallow, false);
    if (!notes_.is_object() || !notes_.contains("fingerprint") || !notes_["fingerprint"].is_string()) {
      damaged("JSON notes without a fingerprint", "notes at byte " + std::to_string(at));
    }
    fingerprint_ = notes_["fingerprint"].get<std::string>();
  }

  void load_documents(std::uint64_t padding_at, std::uint64_t at, const Footer& footer) {
    std::array<std::byte, 8> padding{};
    file_.read(padding_at, std::span(padding).first(at - padding_at));
    if (padding != std::array<std::byte, 8>{})
      damaged("bytes other than zeros after the tokens", "byte " + std::to_string(padding_at));
    documents_.resize(footer.documents);
    file_.read(at, std::as_writable_bytes(std::span(documents_)));
    if (crc32c(std::as_bytes(std::span(documents_))) != footer.documents_crc) {
      damaged("a wrong checksum", "document index at byte " + std::to_string(at));
    }
    for (std::size_t i = 0; i < documents_.size(); ++i) {
      const bool ordered = documents_[i] >= (i == 0 ? 0 : documents_[i - 1]) && documents_[i] <= size_;
      if (!ordered)
        damaged("document " + std::to_string(i) + " at token " + std::to_string(documents_[i]) +
                    ", out of order or after the last token",
                "document index");
    }
  }

  // Reads every token once: for the checksum, for the check of ids, and for the copy in memory if the file is small.
  std::uint32_t scan(std::optional<std::uint32_t> expected) {
    const std::uint64_t bytes = static_cast<std::uint64_t>(size_) * token_bytes_;
    const bool keeps = bytes > 0 && bytes <= kKeepInMemory;
    std::vector<std::byte> kept(keeps ? bytes : 0);
    std::vector<std::byte> chunk(keeps ? 0 : std::min<std::uint64_t>(bytes, kBytesAtATime));
    std::uint32_t crc = 0;
    std::optional<DataError> bad_id;  // reported only if the checksum is right, because a wrong checksum explains the wrong id
    for (std::uint64_t at = 0; at < bytes;) {
      const std::size_t count = std::min<std::uint64_t>(kBytesAtATime, bytes - at);
      const std::span<std::byte> part(keeps ? kept.data() + at : chunk.data(), count);
      file_.read(begin_ + at, part);
      crc = crc32c(part, crc);
      doing_moved();
      try {
        if (!bad_id) check_ids(part, token_bytes_, vocab_size_, at / token_bytes_, name_);
      } catch (const DataError& error) {
        bad_id = error;
      }
      at += count;
    }
    if (expected && crc != *expected) damaged("a wrong checksum", "tokens");
    if (bad_id) throw DataError(*bad_id);
    kept_ = std::move(kept);
    return crc;
  }

  InputFile file_;
  std::uint64_t begin_ = 0;
  std::vector<std::byte> kept_;
};

}  // namespace

std::shared_ptr<const TokenArray> TokenArray::in_memory(std::vector<std::uint16_t> tokens, std::uint64_t vocab_size,
                                                        std::vector<std::int64_t> documents, std::string fingerprint) {
  return std::make_shared<MemoryTokens>(std::move(tokens), vocab_size, std::move(documents), std::move(fingerprint));
}

std::shared_ptr<const TokenArray> TokenArray::in_memory(std::vector<std::uint32_t> tokens, std::uint64_t vocab_size,
                                                        std::vector<std::int64_t> documents, std::string fingerprint) {
  return std::make_shared<MemoryTokens>(std::move(tokens), vocab_size, std::move(documents), std::move(fingerprint));
}

std::shared_ptr<const TokenArray> TokenArray::open(const std::filesystem::path& path) {
  auto tokens = std::make_shared<FileTokens>(path);
  tokens->load();
  return tokens;
}

std::shared_ptr<const TokenArray> TokenArray::open_bare(const std::filesystem::path& path, std::size_t token_bytes,
                                                        std::uint64_t vocab_size) {
  MR_CHECK(token_bytes == 2 || token_bytes == 4, "a token must take 2 or 4 bytes");
  auto tokens = std::make_shared<FileTokens>(path);
  tokens->load_bare(token_bytes, vocab_size);
  return tokens;
}

TokenFileWriter::TokenFileWriter(Fs& fs, const std::filesystem::path& path, std::uint64_t vocab_size)
    : file_(fs, path), vocab_size_(vocab_size), token_bytes_(vocab_size <= 65536 ? 2 : 4) {
  Header header;
  header.token_bytes = token_bytes_;
  write(bytes_of(header));
}

void TokenFileWriter::append(std::span<const std::uint32_t> tokens) {
  std::span<const std::byte> bytes = std::as_bytes(tokens);
  if (token_bytes_ == 2) {
    narrow_.assign(tokens.begin(), tokens.end());
    bytes = std::as_bytes(std::span(narrow_));
  }
  write(bytes);
  crc_ = crc32c(bytes, crc_);
  count_ += tokens.size();
}

void TokenFileWriter::finish(const Json& notes) {
  MR_CHECK(notes.contains("fingerprint"), "a token file needs a fingerprint");
  const std::array<std::byte, 8> zeros{};
  write(std::span(zeros).first(padding_after(sizeof(Header) + count_ * token_bytes_)));
  write(std::as_bytes(std::span(documents_)));
  const std::string text = notes.dump(-1, ' ', false, Json::error_handler_t::replace);
  write(std::as_bytes(std::span(text)));
  Footer footer{.tokens = count_,
                .documents = documents_.size(),
                .vocab_size = vocab_size_,
                .notes_bytes = text.size(),
                .tokens_crc = crc_,
                .documents_crc = crc32c(std::as_bytes(std::span(documents_))),
                .notes_crc = crc32c(std::as_bytes(std::span(text)))};
  footer.own_crc = own_crc(footer);
  write(bytes_of(footer));
  file_.finish();
}

}  // namespace millrace::data
