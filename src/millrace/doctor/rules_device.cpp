// Rules about the devices of tensors, GPU memory, the shapes of batches, and ranks that wait for each other.
#include <algorithm>
#include <numeric>

#include "millrace/base/format.h"
#include "millrace/doctor/detail/rule_list.h"

namespace millrace::doctor::detail {
namespace {

using telemetry::Phase;

constexpr double kKept = 1.5;      // reserved memory / the most memory that tensors used
constexpr double kKeptPart = 0.5;  // reserved memory / all memory of the GPU
constexpr double kFresh = 0.2;     // share of batches that have a new shape
constexpr std::int64_t kManyFresh = 10, kManyShapes = 32;
constexpr double kUneven = 0.10;

double step_share(const Evidence& e) { return e.share(Phase::forward) + e.share(Phase::backward) + e.share(Phase::prepare); }

}  // namespace

// Fires if a step on a GPU copies tensors between devices. On a CPU such a copy causes neither a wait nor a gap.
Found wrong_device(const Evidence& e) {
  if (!e.on_gpu || !e.census || e.census->copies == 0) return std::nullopt;
  const double share = e.census->copied_seconds / std::max(e.census->seconds, 1e-9);
  return Finding{.id = {},
                 .what = "a step copies " + with_commas(e.census->copies) + (e.census->copies == 1 ? " tensor" : " tensors") +
                         " between devices in addition to its batch, the largest by " + e.census->copied_by,
                 .remedy =
                     "create them on the device (with the options of an existing tensor); create constant tensors only once, "
                     "and register them as buffers, which move with the model",
                 .key = {},
                 .value = {},
                 .gain = gain_of(share * step_share(e), 0.5)};
}

// Fires if GPU memory is reserved in pieces that are too small for requests. While enough memory is free, that does no harm, and
// the rule does not fire.
Found fragmented(const Evidence& e) {
  const auto held = static_cast<double>(std::max(e.memory.most_held, e.memory.step_peak));
  const auto kept = static_cast<double>(e.memory.used), room = static_cast<double>(e.memory.room);
  if (!e.on_gpu || held <= 0 || kept < kKept * held || kept < kKeptPart * room) return std::nullopt;
  return set("the GPU's allocator keeps " + human_bytes(kept) + " of " + human_bytes(room) +
                 ", but tensors never held more than " + human_bytes(held) +
                 "; the rest is free memory in fragments that are too small to be used",
             "memory.cleanup_every", "1000", std::nullopt);
}

Found changing_shapes(const Evidence& e) {
  const Evidence::Shapes& shapes = e.shapes;
  if (shapes.fresh < kManyFresh || shapes.all < kManyShapes) return std::nullopt;
  if (static_cast<double>(shapes.fresh) < kFresh * static_cast<double>(shapes.batches)) return std::nullopt;
  return Finding{.id = {},
                 .what = with_commas(shapes.fresh) + " of the last " + with_commas(shapes.batches) +
                         " batches had a new shape, the latest " + shapes.latest + " (" + with_commas(shapes.all) +
                         " shapes so far): for each new shape, memory is allocated and kernels are chosen again",
                 .remedy = "crop or pad samples to a few fixed sizes, in the data source or in prepare()",
                 .key = {},
                 .value = {},
                 .gain = std::nullopt};
}

// Fires if ranks wait for a slow rank, which is the rank that waits least.
Found uneven_ranks(const Evidence& e) {
  if (e.ranks.size() < 2 || e.times.loop() <= 0) return std::nullopt;
  const auto last = std::ranges::min_element(e.ranks, {}, &Evidence::RankTimes::reduction);
  double waited = 0, waited_for_data = 0;
  for (const Evidence::RankTimes& rank : e.ranks) {
    waited += rank.reduction - last->reduction;
    waited_for_data += rank.data_wait;
  }
  const auto others = static_cast<double>(e.ranks.size() - 1);
  const double lost = waited / others / e.times.loop();
  if (lost < kUneven) return std::nullopt;
  const double more_data = last->data_wait - (waited_for_data - last->data_wait) / others;
  const bool by_data = more_data > 0.5 * lost * e.times.loop();
  return Finding{.id = {},
                 .what = "the ranks wait " + percent(lost) + " of the time for rank " + std::to_string(last - e.ranks.begin()) +
                         (by_data ? ", which itself waits for data" : ", whose steps take longer"),
                 .remedy = by_data ? "check the storage that holds the data of that rank, or raise data.workers there"
                                   : "check what else uses the cores or the GPU of that rank, and whether that GPU is slower",
                 .key = {},
                 .value = {},
                 // The gain is the time that the run would save if the slowest rank were as fast as the mean of the others.
                 .gain = gain_of(lost * others / static_cast<double>(e.ranks.size()), 0.5)};
}

}  // namespace millrace::doctor::detail
