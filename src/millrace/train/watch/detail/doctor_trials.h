// The doctor's trials during a run: the run's own step with other settings, and a count of the step's operations.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "millrace/doctor/evidence.h"
#include "millrace/train/assembly/assembly.h"

namespace millrace {

struct DoctorTrials {
  doctor::Evidence::Experiments experiments;
  std::optional<doctor::Evidence::Census> census;  // nullopt if there was no batch to count with
  [[nodiscard]] Json to_json() const;              // the results of the trials so far, for summary.json
};

// Makes the trials that can find something in a run with this config, one after the other, cheap ones first. Belongs to the
// loop's thread.
class RemedyTrials {
 public:
  explicit RemedyTrials(Assembly& assembly);  // `assembly` must outlive this object
  [[nodiscard]] bool has_next() const noexcept { return next_ < all_.size(); }
  // An upper bound of the next trial's cost, in forward and backward passes of one of the run's micro-batches. The trial also
  // reads a batch, which is not counted.
  [[nodiscard]] double next_passes() const { return all_[next_].passes; }
  void make_next();  // makes the next trial, between two steps; changes no bit of the run. A trial that fails is left out
  [[nodiscard]] const DoctorTrials& made() const noexcept { return made_; }

 private:
  struct Trial {
    double passes = 0;
    void (*make)(Assembly& assembly, DoctorTrials& to) = nullptr;
  };
  Assembly& assembly_;
  std::vector<Trial> all_;
  std::size_t next_ = 0;
  DoctorTrials made_;
};

// The trials of a run, before the first one is made.
[[nodiscard]] std::unique_ptr<RemedyTrials> try_remedies(Assembly& assembly);

}  // namespace millrace
