// Windows of a token sequence as samples: field "tokens", u16 or u32, shape [seq_len].
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "millrace/data/files/token_array.h"
#include "millrace/data/loader/source.h"

namespace millrace::data {

struct TokenWindows {
  std::int64_t seq_len = 1;
  std::int64_t overlap = 0;  // tokens shared with the window before, less than seq_len
  std::int64_t begin = 0;    // part of the array: tokens [begin, end)
  std::int64_t end = -1;     // -1 = to the end of the array
};

// Sample i is tokens [begin + i * s, begin + i * s + seq_len) with s = seq_len - overlap, for all i whose window fits.
class TokenSource final : public Source {
 public:
  // `files`: the files that the tokens were made of (TextTokens::files), so that a resume can name the file that changed.
  // DataError if no window fits; ConfigError if the overlap is not less than seq_len.
  TokenSource(std::shared_ptr<const TokenArray> tokens, TokenWindows windows, std::vector<FileStamp> files = {});

  [[nodiscard]] std::span<const Field> fields() const override { return {&field_, 1}; }
  [[nodiscard]] std::int64_t size() const override { return size_; }
  void read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom& random) const override;
  [[nodiscard]] std::string fingerprint() const override;
  [[nodiscard]] std::vector<FileStamp> stamps() const override { return files_; }
  [[nodiscard]] Keeps keeps() const override { return Keeps::memory; }
  [[nodiscard]] std::int64_t samples_per_ticket() const override;
  [[nodiscard]] std::int64_t tokens_left_out() const noexcept;  // tokens at the end, too few for a window

 private:
  std::shared_ptr<const TokenArray> tokens_;
  std::vector<FileStamp> files_;
  TokenWindows windows_;
  Field field_;
  std::size_t row_bytes_ = 0;
  std::int64_t size_ = 0;
};

}  // namespace millrace::data
