// A loader described by JSON: a pipeline, and how its samples become batches. `millrace bench loader` and bench/loader time the
// loader; the Python package trains with it.
//
//   {"data": {"kind": "sleeping", "samples": 4000, "sleep_ms": 2}, "batch_size": 16, "readers": 4}
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "millrace/base/json.h"
#include "millrace/config/field.h"
#include "millrace/config/schema.h"
#include "millrace/data/cache/cached_source.h"
#include "millrace/data/loader/loader.h"
#include "millrace/data/workload/pipeline_json.h"

namespace millrace::data {

struct LoaderKeys {
  std::int64_t batch_size = 16;
  bool shuffle = true;
  bool drop_last = false;
  std::int64_t seed = 1;
  config::Auto<std::int64_t> readers;
  std::int64_t prefetch = 2;
  config::Auto<std::int64_t> max_buffer_bytes;
  config::Auto<CacheWish> cache = CacheWish::off;
  config::Auto<std::int64_t> cache_bytes;
  std::int64_t memory_promised = 0;
  BadSamples bad_samples = BadSamples::fail;
  double max_bad_fraction = 0.001;
  std::int64_t rank = 0;
  std::int64_t ranks = 1;
  std::int64_t ranks_here = 1;

  static consteval auto fields() {
    using C = LoaderKeys;
    using config::field;
    return std::tuple{
        field<&C::batch_size>("Samples in a batch; with groups, samples of each data set.").min(1),
        field<&C::shuffle>("A new random order each epoch."),
        field<&C::drop_last>("Drop the last batch of an epoch if it is smaller."),
        field<&C::seed>("Seed of order and augmentation.").min(0),
        field<&C::readers>("Reader threads; 0 = read in the calling thread.").min(0).max(256),
        field<&C::prefetch>("Batches that are prepared ahead, at the start.").min(1).max(1024),
        field<&C::max_buffer_bytes>("Largest memory for batches; auto = 1 GiB, or three batches if they are larger.")
            .min(1)
            .unit("bytes"),
        field<&C::cache>("Keeps samples in memory after their first read; auto = if all of them fit."),
        field<&C::cache_bytes>("Largest memory of the cache; auto = half of the free memory.").min(1).unit("bytes"),
        field<&C::memory_promised>("The part of the free memory that the caches of other loaders will take.")
            .min(0)
            .unit("bytes"),
        field<&C::bad_samples>("What to do with a sample that can't be read."),
        field<&C::max_bad_fraction>("Largest share of bad samples in an epoch.").min(0).max(1),
        field<&C::rank>("The number of this rank.").min(0),
        field<&C::ranks>("Processes that share each epoch.").min(1),
        field<&C::ranks_here>("Ranks on this machine, which share its cores and memory.").min(1)};
  }
};

struct Workload {
  Json data;                               // the JSON of the pipeline: see pipeline_json.h
  LoaderKeys loader;                       // all keys of the JSON except "data"
  std::string name;                        // what stands before a place in messages
  std::vector<MapFunction> functions;      // see PipelineInput::functions
  [[nodiscard]] std::string kind() const;  // returns the kind of the topmost part
};

// Returns the keys for help: the loader's, and those of each kind of part.
[[nodiscard]] std::string workload_help();

// Parses a workload. A ConfigError lists all that is wrong with the loader's keys. The pipeline is checked when it is opened.
// `name`: the name of the file.
[[nodiscard]] Workload parse_workload(std::string_view json, const std::string& name);
[[nodiscard]] Workload read_workload(const std::filesystem::path& file);

// A workload whose files are open; names of files are relative to `folder`. The cache is in front of the sources.
struct OpenWorkload {
  Pipeline pipeline;
  LoaderOptions options;
  std::shared_ptr<SampleCache> cache;  // null = no cache
  std::string cache_reason;
  std::vector<std::string> notices;  // lines about the data, such as how many files of a folder are not read
};
[[nodiscard]] OpenWorkload open_workload(const Workload& workload, const std::filesystem::path& folder);

// The measured rates of a loader. Times are in seconds.
struct LoaderRates {
  std::int64_t samples = 0;
  std::int64_t batches = 0;
  double seconds = 0;
  double first_batch = 0;             // from the construction of the loader to its first batch
  std::vector<double> turn_rounds;    // for each complete epoch: from its last batch to the first batch of the next epoch
  double cpu_seconds = 0;             // CPU time of the process
  double wait_p50 = 0, wait_p99 = 0;  // time that next() waits: the median and the 99th percentile
  [[nodiscard]] Json to_json() const;
};

// Takes batches from the loader's current position for at least `seconds`, and passes each to `consume`, which stands for the
// step.
[[nodiscard]] LoaderRates measure_loader(Loader& loader, double seconds, const std::function<void(HostBatch)>& consume);

// A digest of an epoch that does not depend on the order of its samples. The bytes of each sample, field after field, are
// hashed with SHA-256; the digest is the sum of the first 64 bits of all hashes.
struct StreamDigest {
  std::string digest;
  std::int64_t samples = 0;
};
[[nodiscard]] StreamDigest digest_epoch(Loader& loader);

}  // namespace millrace::data
