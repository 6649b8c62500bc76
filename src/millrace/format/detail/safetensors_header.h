// The JSON header of a safetensors file, parsed without building a document: hostile text can't cost more than its length.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "millrace/format/safetensors.h"

namespace millrace::format::detail {

inline constexpr std::uint64_t kHeaderLimit = 100'000'000;  // as the reference implementation has it
inline constexpr std::uint64_t kLengthBytes = 8;

struct Header {
  std::vector<StoredTensor> tensors;  // in order of name; offsets count from the end of the header
  Metadata metadata;
};

// Either `problem` is empty, or it says what is wrong.
struct ParsedHeader {
  Header header;
  std::string problem;
  bool is_unread = false;  // the problem is a dtype that the format has and nobody here reads
};

// Checks everything the text alone can tell and that the tensors fill exactly `data_bytes`.
[[nodiscard]] ParsedHeader parse_header(std::string_view text, std::uint64_t data_bytes);

}  // namespace millrace::format::detail
