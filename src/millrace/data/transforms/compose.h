// Sources made of other sources: map changes samples, subset and take choose some, concat joins sources, repeat goes through one
// again. generate makes a source of a function. Ready-made steps for pictures and volumes: augment.h.
//
//   auto all = std::make_shared<data::NpySource>(std::vector<data::NpyField>{{"x", "x.npy"}, {"y", "y.npy"}});
//   auto train = data::random_subset(all, {.to = 0.9});  // the same samples in every run
//   auto held_out = data::random_subset(all, {.from = 0.9});
//   auto scaled = data::map(train, {.name = "scale by up to 1.1", .makes = {{"x", DType::f32, {20}}},
//       .function = [](const data::Sample& in, const data::MutableSample& out, const data::SampleRandom& random) {
//         const auto factor = static_cast<float>(1 + 0.1 * random().uniform());
//         const auto from = in.values<float>("x");
//         std::transform(from.begin(), from.end(), out.values<float>("x").begin(), [=](float x) { return factor * x; });
//       }});                                               // "y" is passed on
//
// Each passes on what the source inside says of its files, of samples (`describe`) and of reading ahead, adds its own parameters
// to the fingerprint, and shares the source inside: it may stand in several. The cache (data.cache) keeps what the source inside
// stores, never what a map made: the function of a map runs at each read, with the numbers of that epoch and position, and
// streams are equal bit for bit with the cache off and on. What a subset leaves out takes no room in the cache; what repeats is
// kept once. A mistake in the arguments is a ConfigError.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "millrace/data/loader/sample.h"
#include "millrace/data/loader/source.h"

namespace millrace::data {

// Writes all of `out` from `in`, drawing from `random` if it likes. Called from several threads at once; never ATen, no OpenMP.
// A DataError is about the sample, and data.bad_samples applies; another error of Millrace ends the run. Views end with the call.
using MapFunction = std::function<void(const Sample& in, const MutableSample& out, const SampleRandom& random)>;

struct Mapping {
  // What the function does and how strongly ("jitter 0.1"), for the fingerprint: a run goes on only with the same names.
  std::string name;
  // The fields that it writes. One with the name of a field of the source takes that field's place, others come after the
  // source's.
  std::vector<Field> makes;
  std::vector<std::string> drops = {};  // fields of the source that batches shall not have; the function sees them
  MapFunction function;                 // may be empty when nothing is made
};

// Samples of `source` changed by a function, one at a time. Fields that it neither makes nor drops are passed on without a copy.
// Its numbers have nothing in common with those that `source` draws, nor with those of other maps before or after it.
[[nodiscard]] std::shared_ptr<const Source> map(std::shared_ptr<const Source> source, Mapping mapping);

// Samples that a function makes up: `function` writes all of `fields` of sample `index`. Made anew at each read and never kept.
// What shall be the same in each epoch is drawn from a Philox of make_key(seed, index), what shall be new from `random`. `name`
// says what is made, with its seed and version, for the fingerprint.
using GenerateFunction = std::function<void(std::int64_t index, const MutableSample& out, const SampleRandom& random)>;
[[nodiscard]] std::shared_ptr<const Source> generate(std::string name, std::int64_t size, std::vector<Field> fields,
                                                     GenerateFunction function);

// The samples indices[0], indices[1], ... of `source`; an index may come more than once.
[[nodiscard]] std::shared_ptr<const Source> subset(std::shared_ptr<const Source> source, std::vector<std::int64_t> indices);

// A random share of the samples. Sample i belongs to it when from <= u < to, with u in [0, 1) a function of the seed and of i
// alone: shares that do not overlap have no sample in common, all shares together have every sample once, and samples that are
// added at the end of a source move none. So there are about, not exactly, (to - from) * size() of them.
struct Fraction {
  double from = 0;
  double to = 1;
  std::uint64_t seed = 0;  // of the split; not the run's, or each run would hold other samples out
};
// In the order of `source`.
[[nodiscard]] std::shared_ptr<const Source> random_subset(std::shared_ptr<const Source> source, const Fraction& fraction);

// The first `count` samples, or all when there are fewer.
[[nodiscard]] std::shared_ptr<const Source> take(std::shared_ptr<const Source> source, std::int64_t count);

// All samples `times` times, one pass after the other. Each time is a sample of its own: augmented anew, and shuffled with the
// others. (To let a short data set go on beside a long one, see Grouping::repeat.)
[[nodiscard]] std::shared_ptr<const Source> repeat(std::shared_ptr<const Source> source, std::int64_t times);

// The samples of all sources, one source after the other. Fields are equal in name, dtype, shape and order, or the error names
// the first that is not.
[[nodiscard]] std::shared_ptr<const Source> concat(std::vector<std::shared_ptr<const Source>> sources);

}  // namespace millrace::data
