// A loader's workload, described by a small JSON file. `millrace bench loader` and bench/loader measure it.
//
//   {"kind": "sleeping", "samples": 4000, "batch_size": 16, "sleep_ms": 2, "slow_ms": 120, "slow_fraction": 0.03}
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "millrace/base/json.h"
#include "millrace/config/field.h"
#include "millrace/config/schema.h"
#include "millrace/data/cache/cached_source.h"
#include "millrace/data/loader/loader.h"

namespace millrace::data {

struct Workload {
  std::string kind = "memory";
  std::vector<std::string> files;
  std::vector<std::string> names;
  bool one_a_file = false;
  std::map<std::string, std::string> arrays;
  std::map<std::string, std::vector<std::int64_t>> shapes;
  std::int64_t samples = 20'000;
  std::int64_t datasets = 8;
  std::int64_t window = 1;
  std::int64_t overlap = 0;
  std::vector<std::int64_t> crop;
  bool random = true;
  bool flip = false;
  bool normalise = false;
  double sleep_ms = 2;
  double slow_ms = 120;
  double slow_fraction = 0.03;
  std::int64_t batch_size = 16;
  bool shuffle = true;
  bool drop_last = false;
  std::int64_t seed = 1;
  config::Auto<std::int64_t> readers;
  std::int64_t prefetch = 2;
  std::int64_t max_buffer_bytes = std::int64_t{1} << 30;
  config::Auto<CacheWish> cache = CacheWish::off;
  std::int64_t cache_bytes = std::int64_t{1} << 30;

  static consteval auto fields() {
    using C = Workload;
    using config::field;
    return std::tuple{
        field<&C::kind>("What is read: see the kinds below."),
        field<&C::files>("Files or patterns such as *.h5, beside the description."),
        field<&C::names>("hdf5: the data sets, each a field. npz: the arrays; empty: all."),
        field<&C::one_a_file>("hdf5: a sample is a file's data sets; else an index of their first axis."),
        field<&C::arrays>("memory, grouped: name of a field (or data set) and its file of 32-bit floats."),
        field<&C::shapes>("memory, grouped: the shape of one row of each array. sleeping: of \"x\"."),
        field<&C::samples>("Generated samples, where no file is given (of each data set).").min(1),
        field<&C::datasets>("grouped: generated data sets.").min(1).max(64),
        field<&C::window>("tokens: their number. grouped: rows of a sample.").min(1),
        field<&C::overlap>("tokens: shared with the window before.").min(0),
        field<&C::crop>("nifti: a block of each volume. image: height and width. Empty: the whole volume; 224, 224.").min(1),
        field<&C::random>("nifti, image: where the crop lies is drawn anew at each read."),
        field<&C::flip>("image: half of the reads are flipped left to right."),
        field<&C::normalise>("image: floats by ImageNet's mean and deviation, channels first; else bytes."),
        field<&C::sleep_ms>("sleeping: how long a read takes.").min(0),
        field<&C::slow_ms>("sleeping: how long a slow one takes.").min(0),
        field<&C::slow_fraction>("sleeping: fraction of slow reads.").min(0).max(1),
        field<&C::batch_size>("Samples of a batch (per data set when grouped).").min(1),
        field<&C::shuffle>("A new random order each epoch."),
        field<&C::drop_last>("Drop an epoch's last smaller batch."),
        field<&C::seed>("Seed of order and augmentation.").min(0),
        field<&C::readers>("Reader threads; 0 = in the calling thread.").min(0).max(256),
        field<&C::prefetch>("Batches ready ahead, at first.").min(1).max(1024),
        field<&C::max_buffer_bytes>("Most memory for batches.").min(1).unit("bytes"),
        field<&C::cache>("Keeps samples once read; auto = where all fit into cache_bytes."),
        field<&C::cache_bytes>("Most memory of the cache.").min(1).unit("bytes")};
  }
};

// A row of the table of kinds.
struct WorkloadKind {
  std::string_view name;
  std::string_view help;
  Pipeline (*open)(const Workload& workload, const std::filesystem::path& folder);
};
[[nodiscard]] std::span<const WorkloadKind> workload_kinds();

[[nodiscard]] config::Schema workload_schema();

// Reads a description. Throws ConfigError with all mistakes and their positions.
[[nodiscard]] Workload parse_workload(std::string_view json, const std::string& name);
[[nodiscard]] Workload read_workload(const std::filesystem::path& file);

// A workload whose files are opened; their names are relative to `folder`. The cache is in front of the sources.
struct OpenWorkload {
  Pipeline pipeline;
  LoaderOptions options;
  std::shared_ptr<SampleCache> cache;  // null = no cache
  std::string cache_reason;
};
[[nodiscard]] OpenWorkload open_workload(const Workload& workload, const std::filesystem::path& folder);

// The measured rates of a loader. Times are in seconds.
struct LoaderRates {
  std::int64_t samples = 0;
  std::int64_t batches = 0;
  double seconds = 0;
  double first_batch = 0;             // from the construction of the loader to its first batch
  std::vector<double> turn_rounds;    // for each complete epoch, from its last batch to the first batch of the next epoch
  double cpu_seconds = 0;             // CPU time of the process
  double wait_p50 = 0, wait_p99 = 0;  // time that next() waits: median and 99th percentile
  [[nodiscard]] Json to_json() const;
};

// Takes batches from the loader's current position for at least `seconds`, and passes each to `consume`, which stands for the
// step.
[[nodiscard]] LoaderRates measure_loader(Loader& loader, double seconds, const std::function<void(HostBatch)>& consume);

// The sum over the samples of an epoch of the first 64 bits of the SHA-256 of their bytes, field after field. It does not depend
// on the order of the samples.
struct StreamDigest {
  std::string digest;
  std::int64_t samples = 0;
};
[[nodiscard]] StreamDigest digest_epoch(Loader& loader);

}  // namespace millrace::data
