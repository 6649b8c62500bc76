// Parses the JSON header of a safetensors file without building a document, so that the cost is bounded by the text's length.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "millrace/format/safetensors.h"

namespace millrace::format::detail {

inline constexpr std::uint64_t kHeaderLimit = 100'000'000;  // the limit of the reference implementation
inline constexpr std::uint64_t kLengthBytes = 8;

struct Header {
  std::vector<StoredTensor> tensors;  // sorted by name; offsets count from the end of the header
  Metadata metadata;
};

// `problem` says what is wrong; "" = the header is valid.
struct ParsedHeader {
  Header header;
  std::string problem;
  bool is_unread = false;  // the problem is a dtype of the format that Millrace does not read
};

// Parses the header and checks everything that the text alone can show. Also checks that the tensors fill exactly `data_bytes`.
[[nodiscard]] ParsedHeader parse_header(std::string_view text, std::uint64_t data_bytes);

}  // namespace millrace::format::detail
