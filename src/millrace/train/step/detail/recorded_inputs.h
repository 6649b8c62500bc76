// What the host gives a recorded step anew in each replay: keys and rows of its random sites, and numbers that change from step
// to step. All of it is in the device's memory.
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

// The groups of a batch that have rows, by their earliest row.
[[nodiscard]] std::vector<std::size_t> groups_by_appearance(const Batch& batch);

// Belongs to one recording. place_of() may be called by any thread of a backward pass, the rest by the loop's thread.
class RecordedInputs final : public SiteRecorder, public StepNumbers {
 public:
  RecordedInputs(at::Device device, std::uint64_t seed);

  void begin(const Batch& batch);  // the batch that is recorded from here on
  [[nodiscard]] at::Tensor place_of(StepNumbers::Number number) override;
  // RecipeError for rows in an order that only the recipe knows, and where the device has no kernel that reads sites.
  [[nodiscard]] const void* place_of(const RandomScope::Position& position, std::int64_t elements) override;
  // Brings the sites of this batch and the numbers of this step to the device, in order with its work; the host does not wait.
  // False if the batch's rows do not lie like those of the recorded one: then nothing is written.
  [[nodiscard]] bool write(const Batch& batch, std::int64_t step);
  // The rows of some site were those of two groups in the recorded batch, and are no longer: nobody knows whose they are now.
  [[nodiscard]] bool is_unsure() const noexcept { return is_unsure_; }

 private:
  using Rows = std::vector<IndexRun>;
  struct Entry {
    std::uint64_t site = 0;
    std::int64_t elements = 0;
    std::size_t rows = 0;              // index among rows_in()
    std::size_t first = 0;             // its first byte
    std::vector<std::int64_t> counts;  // elements of each run
  };

  // Orders of a batch's rows in which a recipe may draw: as the batch counts them, all groups one after the other, or by their
  // earliest row, each group.
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
  std::vector<std::pair<std::size_t, StepNumbers::Number>> numbers_;  // place, value
  std::vector<std::byte> host_;                                       // places of sites, then of numbers
};

}  // namespace millrace
