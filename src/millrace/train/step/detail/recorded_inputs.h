// The values that the host writes into the device's memory before each replay of a recorded step. These are the keys and rows of
// the step's random sites (RandomScope::Site), and numbers that change from step to step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "millrace/core/random.h"
#include "millrace/train/recipe/recipe.h"

namespace millrace {

// Indices of the groups that have rows, in the order of their earliest row.
[[nodiscard]] std::vector<std::size_t> groups_by_appearance(const Batch& batch);

// Belongs to one recording. Any thread of a backward pass may call place_of(); the loop's thread calls the other functions.
class RecordedInputs final : public SiteRecorder, public StepNumbers {
 public:
  RecordedInputs(at::Device device, std::uint64_t seed);

  void begin(const Batch& batch);  // takes the batch of the step that is recorded
  [[nodiscard]] at::Tensor place_of(StepNumbers::Number number) override;
  // Throws RecipeError if the rows are in an order that rows_in() does not list, or if the device has no kernel that reads
  // sites.
  [[nodiscard]] const void* place_of(const RandomScope::Position& position, std::int64_t elements) override;
  // Writes the sites of this batch and the numbers of this step to the device, after the work launched so far; the host does not
  // wait. Returns false and writes nothing if the rows of this batch are arranged differently from those of the recorded batch.
  [[nodiscard]] bool write(const Batch& batch, std::int64_t step);
  // True if two orders of rows_in() had equal rows in the recorded batch but differ in this batch. Then it is unknown in which
  // of the two orders a site draws.
  [[nodiscard]] bool is_unsure() const noexcept { return is_unsure_; }

 private:
  using Rows = std::vector<IndexRun>;
  struct Entry {
    std::uint64_t site = 0;
    std::int64_t elements = 0;
    std::size_t rows = 0;              // index into rows_in()
    std::size_t first = 0;             // offset of the site's first byte in the device's memory
    std::vector<std::int64_t> counts;  // number of elements for each IndexRun of the rows
  };

  // The orders in which a recipe may draw for the rows of a batch: the order of rows_of(), all groups one after the other, all
  // groups sorted by their earliest row, and the order of each single group.
  [[nodiscard]] static std::vector<Rows> rows_in(const Batch& batch);
  [[nodiscard]] bool are_alike(const Entry& entry, const std::vector<Rows>& rows) const;
  [[nodiscard]] std::size_t take(std::size_t bytes);
  [[nodiscard]] RandomScope::Site site_of(const Entry& entry, std::uint64_t epoch, const Rows& rows) const;

  at::Device device_;
  std::uint64_t seed_;
  at::Tensor memory_;
  std::mutex mutex_;
  std::uint64_t epoch_ = 0;
  bool is_unsure_ = false;
  std::vector<Rows> recorded_;
  std::vector<Entry> entries_;
  std::vector<std::pair<std::size_t, StepNumbers::Number>> numbers_;  // each number's offset and the function that computes it
  std::vector<std::byte> host_;                                       // sites and numbers, as they are written to the device
};

}  // namespace millrace
