// What the doctor tries beside a run: the run's own step in other ways, and a census of its operations.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "millrace/doctor/evidence.h"
#include "millrace/train/assembly/assembly.h"

namespace millrace {

struct DoctorTrials {
  doctor::Experiments experiments;
  std::optional<doctor::Census> census;  // nullopt: there was no batch
  [[nodiscard]] Json to_json() const;    // what was tried, for summary.json
};

// The trials that a run's config leaves something to learn from, made one after the other, the cheapest first. Belongs to the
// loop's thread.
class RemedyTrials {
 public:
  explicit RemedyTrials(Assembly& assembly);  // which outlives it
  [[nodiscard]] bool has_next() const noexcept { return next_ < all_.size(); }
  // What the next one takes at most, in passes forward and backward of one of the run's micro-batches. It reads a batch as well.
  [[nodiscard]] double next_passes() const { return all_[next_].passes; }
  void make_next();  // between two steps; changes no bit of the run. What goes wrong leaves the trial out
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

// None of them made yet.
[[nodiscard]] std::unique_ptr<RemedyTrials> try_remedies(Assembly& assembly);

}  // namespace millrace
