// Sources made from other sources: map changes samples, subset and take select some, concat joins sources, repeat has each sample
// several times. generate makes a source from a function. Ready-made steps for pictures and volumes: augment.h.
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
// Each of these sources forwards the files, sample descriptions (`describe`) and look-ahead of the inner source and adds its
// own parameters to the fingerprint. Several sources may share one inner source. The cache (data.cache) keeps what the inner
// source would keep, never the result of a map. The function of a map runs at each read, with the random numbers of that epoch
// and position, so a run with the cache gets the same bits as one without. Samples that a subset leaves out take no memory in
// the cache; repeated samples are kept once. Wrong arguments throw ConfigError.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "millrace/data/loader/sample.h"
#include "millrace/data/loader/source.h"

namespace millrace::data {

// Writes all of `out` from `in`, with numbers from `random` if they are needed. Several threads call the function at once; it
// must not call ATen or use OpenMP. `in` and `out` are valid during the call. A DataError is taken as an error of the sample, so
// data.bad_samples applies; any other error of Millrace ends the run.
using MapFunction = std::function<void(const Sample& in, const MutableSample& out, const SampleRandom& random)>;

struct Mapping {
  // The name of the function with its parameters ("jitter 0.1"), for the fingerprint: a run resumes only if the name is the same.
  std::string name;
  // The fields that the function writes. A field that has the name of a field of the source replaces that field; other fields
  // come after the source's fields.
  std::vector<Field> makes;
  std::vector<std::string> drops = {};  // fields of the source that batches do not get; the function can read them
  MapFunction function;                 // may be empty if `makes` is empty
};

// Changes the samples of `source` by a function, one at a time. Fields outside Mapping::makes and Mapping::drops are passed on
// without a copy. The function's random numbers are independent of those of `source` and of other maps.
[[nodiscard]] std::shared_ptr<const Source> map(std::shared_ptr<const Source> source, Mapping mapping);

// Writes all fields of sample `index`. Called from several threads at once; must not call ATen or use OpenMP. Errors mean what
// they mean in a MapFunction.
using GenerateFunction = std::function<void(std::int64_t index, const MutableSample& out, const SampleRandom& random)>;

// Properties of the samples that a function writes.
struct Generated {
  // Returns where a sample comes from, for messages: its file, or a place in its file. If this function is empty, messages name
  // the sample's file if each sample has one, else only its number.
  std::function<std::string(std::int64_t index)> describe = {};
  // nothing: a read computes the sample. rows: a read costs more than a copy, as from a file, and data.cache may keep what the
  // function wrote; the function then draws nothing from `random`. memory: the function copies data that is in memory. parts is
  // not allowed.
  Keeps keeps = Keeps::nothing;
  // The files that the samples are read from. Their content is part of the data's identity: a resume and a cache on disk notice
  // a file that changed. If there are as many files as samples, sample i is from file i.
  std::vector<std::filesystem::path> files = {};
};

// Makes a source of samples that a function generates: at each read it writes `fields`. The function should draw values that
// stay the same in each epoch from Philox(make_key(seed, index)), and values that change from `random`. `name` describes the
// samples, with seed and version, for the fingerprint.
//
//   auto spectra = data::generate("spectra 1", files.size(), {{"counts", DType::f32, {1024}}}, read_spectrum,
//                                 {.keeps = data::Keeps::rows, .files = files});
[[nodiscard]] std::shared_ptr<const Source> generate(const std::string& name, std::int64_t size, std::vector<Field> fields,
                                                     GenerateFunction function, Generated about = {});

// Returns a source of the samples indices[0], indices[1], ... of `source`; an index may occur several times.
[[nodiscard]] std::shared_ptr<const Source> subset(std::shared_ptr<const Source> source, std::vector<std::int64_t> indices);

// A random share of the samples. Each sample i has a number u in [0, 1) that depends only on the seed and i. The sample belongs
// to the share if from <= u < to. So disjoint shares have no sample in common, and shares that together cover [0, 1) have every
// sample once. Samples appended to a source move no other sample to another share. The share has about, not exactly, (to -
// from) * size() samples.
struct Fraction {
  double from = 0;
  double to = 1;
  std::uint64_t seed = 0;  // seed of the split; it is not the run's seed, so all runs hold out the same samples
};
// Returns a source of the samples of the share, in the order of `source`.
[[nodiscard]] std::shared_ptr<const Source> random_subset(std::shared_ptr<const Source> source, const Fraction& fraction);

// Returns a source of the first `count` samples, or of all if there are fewer.
[[nodiscard]] std::shared_ptr<const Source> take(std::shared_ptr<const Source> source, std::int64_t count);

// Returns a source of all samples, `times` times over. Each repetition counts as a separate sample: it is augmented anew, and
// shuffled with the others. (To repeat a short data set next to a long one, see Grouping::repeat.)
[[nodiscard]] std::shared_ptr<const Source> repeat(std::shared_ptr<const Source> source, std::int64_t times);

// Returns a source of the samples of all sources, source after source. The sources' fields must be equal in name, dtype, shape
// and order; the error names the first field that differs.
[[nodiscard]] std::shared_ptr<const Source> concat(std::vector<std::shared_ptr<const Source>> sources);

}  // namespace millrace::data
