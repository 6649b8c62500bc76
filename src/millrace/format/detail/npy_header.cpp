#include "millrace/format/detail/npy_header.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <limits>
#include <utility>

#include "millrace/base/byte_order.h"
#include "millrace/base/error.h"
#include "millrace/base/format.h"

namespace millrace::format::detail {
namespace {

static_assert(std::endian::native == std::endian::little, "byte orders below are those of a little-endian machine");

constexpr std::string_view kMagic("\x93NUMPY", 6);
constexpr std::size_t kMaxRank = 64;

// NumPy's names of the types, without the byte order.
constexpr std::array<std::pair<DType, std::string_view>, 14> kNames = {{{DType::boolean, "b1"},
                                                                        {DType::u8, "u1"},
                                                                        {DType::i8, "i1"},
                                                                        {DType::i16, "i2"},
                                                                        {DType::u16, "u2"},
                                                                        {DType::i32, "i4"},
                                                                        {DType::u32, "u4"},
                                                                        {DType::i64, "i8"},
                                                                        {DType::u64, "u8"},
                                                                        {DType::f16, "f2"},
                                                                        {DType::f32, "f4"},
                                                                        {DType::f64, "f8"},
                                                                        {DType::c64, "c8"},
                                                                        {DType::c128, "c16"}}};

std::string shown(std::string_view text) {
  constexpr std::size_t kMost = 60;
  return text.size() <= kMost ? quoted(text) : quoted(text.substr(0, kMost)) + "...";
}

// Parses the header's dictionary of descr, fortran_order and shape. parse() returns what is wrong, or "".
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  std::string parse(NpyLayout& layout) {
    if (!eat('{')) return unexpected("'{'");
    while (!eat('}')) {
      std::string key;
      if (!string(key)) return unexpected("the name of a key");
      if (!eat(':')) return unexpected("':'");
      if (std::string problem = value(key, layout); !problem.empty()) return problem;
      if (!eat(',') && !at('}')) return unexpected("',' or '}'");
    }
    skip_space();
    if (position_ != text_.size()) return unexpected("the end of the header");
    for (std::size_t i = 0; i < kKeys.size(); ++i) {
      if (!seen_[i]) return "the header lacks " + quoted(kKeys[i]);
    }
    return "";
  }

  [[nodiscard]] bool is_unread() const noexcept { return is_unread_; }

 private:
  static constexpr std::array<std::string_view, 3> kKeys = {"descr", "fortran_order", "shape"};

  std::string value(const std::string& key, NpyLayout& layout) {
    const auto* const found = std::find(kKeys.begin(), kKeys.end(), key);
    if (found == kKeys.end()) return "the header has the unknown key " + shown(key);
    bool& seen = seen_[static_cast<std::size_t>(found - kKeys.begin())];
    if (std::exchange(seen, true)) return "the header has " + quoted(key) + " twice";
    if (key == "descr") return descr(layout);
    return key == "shape" ? shape(layout) : order(layout);
  }

  std::string descr(NpyLayout& layout) {
    if (at('[')) {
      is_unread_ = true;
      return "the array has records (a structured dtype); only plain numbers are read";
    }
    std::string name;
    if (!string(name)) return unexpected("the dtype");
    is_unread_ = is_of_numpy(name);
    if (name.find('O') != std::string::npos)
      return "the array has Python objects (dtype " + shown(name) + "), which are never loaded";
    const std::string_view word = std::string_view(name).substr(name.empty() ? 0 : 1);
    const auto* const row = std::find_if(kNames.begin(), kNames.end(), [&](const auto& known) { return known.second == word; });
    if (row == kNames.end() || std::string_view("<>|=").find(name.front()) == std::string_view::npos) {
      return "the array has the dtype " + shown(name) +
             ", which Millrace does not read; it reads bool, integers, floats and complex numbers";
    }
    is_unread_ = false;
    layout.dtype = row->first;
    layout.swapped = name.front() == '>' && number_size(row->first) > 1;
    return "";
  }

  // Returns true for names of NumPy's other types (text, bytes, dates, objects, long floats): "<U2", "|S10", "<M8[ns]", "|O",
  // "<f16".
  static bool is_of_numpy(std::string_view name) {
    if (name.size() < 2 || std::string_view("<>|=").find(name[0]) == std::string_view::npos) return false;
    const std::string_view word = name.substr(1);
    if (word == "O" || word == "f16" || word == "c32" || word == "f12" || word == "c24") return true;
    const bool is_date = word.starts_with("M8") || word.starts_with("m8");
    const bool has_size = std::ranges::all_of(word.substr(1), [](char c) { return c >= '0' && c <= '9'; });
    return is_date || (std::string_view("USVa").find(word[0]) != std::string_view::npos && has_size);
  }

  std::string order(NpyLayout& layout) {
    skip_space();
    for (const auto& [word, fortran] : {std::pair<std::string_view, bool>{"True", true}, {"False", false}}) {
      if (!text_.substr(position_).starts_with(word)) continue;
      position_ += word.size();
      layout.fortran = fortran;
      return "";
    }
    return unexpected("True or False");
  }

  std::string shape(NpyLayout& layout) {
    if (!eat('(')) return unexpected("'(' of the shape");
    bool comma = false;
    while (!eat(')')) {
      skip_space();
      if (at('-')) return "the shape has a negative size";
      std::int64_t size = 0;
      const char* const begin = text_.data() + position_;
      const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), size);
      if (error == std::errc::result_out_of_range) return "the shape has a size above 2^63";
      if (error != std::errc()) return unexpected("a whole number in the shape");
      if (layout.shape.size() == kMaxRank) return "the array has more than 64 dimensions";
      layout.shape.push_back(size);
      position_ += static_cast<std::size_t>(end - begin);
      eat('L');  // Python 2 wrote an L after a long number
      comma = eat(',');
      if (!comma && !at(')')) return unexpected("',' or ')'");
    }
    if (layout.shape.size() == 1 && !comma) return "the shape is a number in brackets, not a tuple";
    return "";
  }

  void skip_space() noexcept {
    while (position_ < text_.size() && (text_[position_] == ' ' || text_[position_] == '\n' || text_[position_] == '\t'))
      ++position_;
  }
  bool at(char c) noexcept {
    skip_space();
    return position_ < text_.size() && text_[position_] == c;
  }
  bool eat(char c) noexcept { return at(c) && ++position_ > 0; }

  // Reads a string. Escapes are rejected, because no key and no dtype needs one.
  bool string(std::string& out) {
    skip_space();
    if (position_ == text_.size() || (text_[position_] != '\'' && text_[position_] != '"')) return false;
    const std::size_t end = text_.find(text_[position_], position_ + 1);
    if (end == std::string_view::npos) return false;
    out = text_.substr(position_ + 1, end - position_ - 1);
    position_ = end + 1;
    return out.find('\\') == std::string::npos;
  }

  std::string unexpected(const std::string& expected) {
    skip_space();
    const std::string_view rest = text_.substr(position_);
    return "the header is not as NumPy writes it: expected " + expected + ", found " +
           (rest.empty() ? "its end" : shown(rest.substr(0, 20)));
  }

  std::string_view text_;
  std::size_t position_ = 0;
  std::array<bool, 3> seen_{};
  bool is_unread_ = false;
};

// Walks over the output in C order and copies each element from its place in the input, where the first axis varies fastest.
void transpose(const NpyLayout& layout, std::span<const std::byte> in, std::span<std::byte> out) {
  const std::size_t element = size_of(layout.dtype);
  const std::size_t rank = layout.shape.size();
  std::vector<std::size_t> stride(rank);
  std::size_t step = element;
  for (std::size_t axis = 0; axis < rank; ++axis) {
    stride[axis] = step;
    step *= static_cast<std::size_t>(layout.shape[axis]);
  }
  std::vector<std::int64_t> index(rank, 0);
  std::size_t from = 0;
  for (std::size_t to = 0; to < out.size(); to += element) {
    std::memcpy(out.data() + to, in.data() + from, element);
    for (std::size_t axis = rank; axis-- > 0;) {
      from += stride[axis];
      if (++index[axis] < layout.shape[axis]) break;
      from -= stride[axis] * static_cast<std::size_t>(layout.shape[axis]);
      index[axis] = 0;
    }
  }
}

}  // namespace

NpyPrologue parse_prologue(std::span<const std::byte> start) {
  NpyPrologue result;
  const std::string_view text(reinterpret_cast<const char*>(start.data()), start.size());
  if (!is_npy(text)) {
    result.problem = "not a .npy file: it does not begin with \\x93NUMPY";
    return result;
  }
  const std::string cut = "the file is cut off inside its header";
  if (start.size() < 10) {
    result.problem = cut;
    return result;
  }
  const auto byte = [&](std::size_t at) { return std::to_integer<std::uint64_t>(start[at]); };
  if (byte(6) < 1 || byte(6) > 3 || byte(7) != 0) {
    result.problem = "version " + std::to_string(byte(6)) + "." + std::to_string(byte(7)) +
                     " of the format is unknown (1.0, 2.0, 3.0 are read)";
    return result;
  }
  result.text_at = byte(6) == 1 ? 10 : 12;
  if (start.size() < result.text_at) {
    result.problem = cut;
    return result;
  }
  std::uint64_t length = byte(8) | byte(9) << 8U;
  if (result.text_at == 12) length |= byte(10) << 16U | byte(11) << 24U;
  result.header_bytes = result.text_at + length;
  if (length > kNpyHeaderLimit)
    result.problem = "the header announces " + std::to_string(length) + " bytes (at most 65536 are read)";
  return result;
}

ParsedNpy parse_npy(std::string_view text, std::uint64_t header_bytes, std::uint64_t whole_bytes) {
  ParsedNpy result;
  NpyLayout& layout = result.layout;
  layout.header_bytes = header_bytes;
  Parser parser(text);
  result.problem = parser.parse(layout);
  result.is_unread = parser.is_unread();
  if (!result.problem.empty()) return result;
  const std::optional<std::int64_t> count = element_count(layout.shape);
  const auto size = static_cast<std::int64_t>(size_of(layout.dtype));
  if (!count || *count > std::numeric_limits<std::int64_t>::max() / size) {
    result.problem = "an array of shape " + to_text(layout.shape) + " is larger than any file";
    return result;
  }
  layout.bytes = static_cast<std::uint64_t>(*count * size);
  const std::uint64_t there = whole_bytes - header_bytes;
  if (layout.bytes != there) {
    result.problem = "an array of shape " + to_text(layout.shape) + " and dtype " + std::string(name_of(layout.dtype)) + " has " +
                     std::to_string(layout.bytes) + " bytes, but " + std::to_string(there) + " follow the header" +
                     (there < layout.bytes ? ": the array was cut off" : "");
  }
  return result;
}

std::string npy_header(DType dtype, const Shape& shape, std::size_t bytes) {
  const auto* const row = std::find_if(kNames.begin(), kNames.end(), [&](const auto& known) { return known.first == dtype; });
  if (row == kNames.end()) {
    throw DataError({.what = "an array of " + std::string(name_of(dtype)) + " can't be stored: NumPy has no such dtype",
                     .where = ".npy file",
                     .next = "convert it to f32 first"});
  }
  const std::optional<std::int64_t> count = element_count(shape);
  if (!count || static_cast<std::uint64_t>(*count) != bytes / size_of(dtype) || bytes % size_of(dtype) != 0) {
    throw DataError({.what = "an array of shape " + to_text(shape) + " and dtype " + std::string(name_of(dtype)) +
                             " does not have " + std::to_string(bytes) + " bytes",
                     .where = ".npy file",
                     .next = "give the shape of the whole array"});
  }
  std::string text = std::string("{'descr': '") + (number_size(dtype) > 1 ? '<' : '|') + std::string(row->second) +
                     "', 'fortran_order': False, 'shape': (";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  text += shape.size() == 1 ? ",), }" : "), }";
  // Pads the header so that the elements begin at a multiple of 64 bytes.
  text.append(63 - (10 + text.size()) % 64, ' ');
  text += '\n';
  std::string header(kMagic);
  header += {'\1', '\0', static_cast<char>(text.size() & 0xFFU), static_cast<char>(text.size() >> 8U)};
  return header + text;
}

void to_native(const NpyLayout& layout, std::span<const std::byte> in, std::span<std::byte> out) {
  if (layout.fortran && layout.shape.size() > 1 && !out.empty()) {
    transpose(layout, in, out);
  } else if (!out.empty()) {
    std::memcpy(out.data(), in.data(), out.size());
  }
  if (layout.swapped) swap_bytes(layout.dtype, out);
}

}  // namespace millrace::format::detail

namespace millrace::format {

bool is_npy(std::string_view start) { return start.starts_with(detail::kMagic); }

}  // namespace millrace::format
