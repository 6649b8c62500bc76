// The state of ATen's default CPU generator. Layers draw from counters (core/random.h); recipes may still use at::randn and the
// like.
#pragma once

#include "millrace/core/batch.h"

namespace millrace {

[[nodiscard]] State generator_state();
// Leaves it alone when the state has none. SnapshotError when it is none of this generator.
void set_generator_state(const State& state);

// Puts the generator back at the end of a scope that must leave no trace (trials, samples).
class KeepGenerator {
 public:
  KeepGenerator() : state_(generator_state()) {}
  ~KeepGenerator();  // a generator that takes its state back no more is left as it is: the run is ending of another error
  KeepGenerator(const KeepGenerator&) = delete;
  KeepGenerator& operator=(const KeepGenerator&) = delete;

 private:
  State state_;
};

}  // namespace millrace
