// Detects a consumer that keeps batches permanently. The readers then wait for free slots, so the input looks slow.
#pragma once

#include <cstddef>
#include <string>

namespace millrace::data::detail {

class KeptBatches {
 public:
  // Called with each batch. Returns true if the consumer has held most of the loader's batches for some batches in a row.
  bool are_most(std::size_t lent, std::size_t all) noexcept {
    constexpr std::size_t kUsual = 3;  // the batch of the step, one on its way to the device, and one that is returned late
    constexpr int kInARow = 3;
    in_a_row_ = lent > kUsual && 2 * lent > all ? in_a_row_ + 1 : 0;
    return in_a_row_ >= kInARow;
  }
  [[nodiscard]] static std::string text(std::size_t lent, std::size_t all) {
    return "the recipe holds " + std::to_string(lent) + " of the loader's " + std::to_string(all) +
           " batches, so the readers wait for free ones: clone() the tensors that are to be kept";
  }

 private:
  int in_a_row_ = 0;
};

}  // namespace millrace::data::detail
