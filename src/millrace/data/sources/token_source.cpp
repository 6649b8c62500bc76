#include "millrace/data/sources/token_source.h"

#include <algorithm>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/base/format.h"

namespace millrace::data {

TokenSource::TokenSource(std::shared_ptr<const TokenArray> tokens, TokenWindows windows, std::vector<FileStamp> files)
    : tokens_(std::move(tokens)), files_(std::move(files)), windows_(windows) {
  if (windows_.end < 0) windows_.end = tokens_->size();
  MR_CHECK(windows_.begin >= 0 && windows_.begin <= windows_.end && windows_.end <= tokens_->size(),
           "[begin, end) must lie inside the tokens");
  if (windows_.seq_len < 1 || windows_.overlap < 0 || windows_.overlap >= windows_.seq_len) {
    throw ConfigError(Message{.what = "windows of " + std::to_string(windows_.seq_len) + " tokens that overlap by " +
                                      std::to_string(windows_.overlap) + " never advance",
                              .where = "seq_len, overlap",
                              .next = "set seq_len to 1 or more and overlap to less than seq_len"});
  }
  const std::int64_t count = windows_.end - windows_.begin;
  if (count < windows_.seq_len) {
    throw DataError({.what = with_commas(count) + " tokens are fewer than one window of " + with_commas(windows_.seq_len),
                     .where = files_.empty()       ? tokens_->name()
                              : files_.size() == 1 ? files_.front().name
                                                   : files_.front().name + " and " + std::to_string(files_.size() - 1) + " more",
                     .next = "lower seq_len to <= " + std::to_string(count) + ", or give more text"});
  }
  size_ = (count - windows_.seq_len) / (windows_.seq_len - windows_.overlap) + 1;
  field_ = {"tokens", tokens_->token_bytes() == 2 ? DType::u16 : DType::u32, {windows_.seq_len}};
  row_bytes_ = field_.bytes();
}

void TokenSource::read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom&) const {
  const std::int64_t stride = windows_.seq_len - windows_.overlap;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    tokens_->read(windows_.begin + indices[i] * stride, windows_.seq_len, rows.row(0, i, row_bytes_));
  }
}

std::string TokenSource::fingerprint() const {
  return tokens_->fingerprint() + " [" + std::to_string(windows_.begin) + "," + std::to_string(windows_.end) + ") windows " +
         std::to_string(windows_.seq_len) + " overlap " + std::to_string(windows_.overlap);
}

std::int64_t TokenSource::samples_per_ticket() const {
  return std::max<std::int64_t>(1, static_cast<std::int64_t>((std::size_t{1} << 18U) / row_bytes_));
}

std::int64_t TokenSource::tokens_left_out() const noexcept {
  const std::int64_t stride = windows_.seq_len - windows_.overlap;
  return windows_.end - windows_.begin - ((size_ - 1) * stride + windows_.seq_len);
}

}  // namespace millrace::data
