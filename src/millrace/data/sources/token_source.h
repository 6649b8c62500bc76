// Samples from a sequence of tokens: windows with the field "tokens", u16 or u32, shape [seq_len].
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
  std::int64_t overlap = 0;  // number of tokens that a window shares with the one before it; less than seq_len
  std::int64_t begin = 0;    // the windows are cut from the tokens [begin, end)
  std::int64_t end = -1;     // -1 = to the end of the array
};

// Sample i is the tokens [begin + i * s, begin + i * s + seq_len), where s = seq_len - overlap. Only whole windows are samples.
class TokenSource final : public Source {
 public:
  // `files`: the files from which the tokens were made (TextTokens::files), so that a resume can name a file that changed. Throws
  // DataError if no window fits, and ConfigError if the overlap is not less than seq_len.
  TokenSource(std::shared_ptr<const TokenArray> tokens, TokenWindows windows, std::vector<FileStamp> files = {});

  [[nodiscard]] std::span<const Field> fields() const override { return {&field_, 1}; }
  [[nodiscard]] std::int64_t size() const override { return size_; }
  void read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom& random) const override;
  [[nodiscard]] std::string fingerprint() const override;
  [[nodiscard]] std::vector<FileStamp> stamps() const override { return files_; }
  [[nodiscard]] Keeps keeps() const override { return Keeps::memory; }
  [[nodiscard]] std::int64_t samples_per_ticket() const override;
  [[nodiscard]] std::int64_t tokens_left_out() const noexcept;  // number of tokens at the end that are too few for a window

 private:
  std::shared_ptr<const TokenArray> tokens_;
  std::vector<FileStamp> files_;
  TokenWindows windows_;
  Field field_;
  std::size_t row_bytes_ = 0;
  std::int64_t size_ = 0;
};

}  // namespace millrace::data
