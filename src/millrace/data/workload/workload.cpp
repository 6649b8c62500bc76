#include "millrace/data/workload/workload.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "millrace/base/error.h"
#include "millrace/base/foreign_json.h"
#include "millrace/base/format.h"
#include "millrace/config/schema_of.h"
#include "millrace/system/machine.h"

namespace millrace::data {
namespace {

namespace fs = std::filesystem;

void check_ranks(const Workload& workload) {
  const LoaderKeys& keys = workload.loader;
  constexpr std::int64_t kMostRanks = std::int64_t{1} << 20U;  // a larger number would not fit into an int
  if (keys.rank < keys.ranks && keys.ranks_here <= keys.ranks && keys.ranks <= kMostRanks) return;
  throw ConfigError(Message{.what = "rank " + std::to_string(keys.rank) + ", ranks " + std::to_string(keys.ranks) +
                                    " and ranks_here " + std::to_string(keys.ranks_here) + " do not fit together",
                            .where = workload.name,
                            .next = "rank counts from 0; ranks_here must not exceed ranks; ranks is at most 1048576"});
}

LoaderOptions options_of(const LoaderKeys& keys) {
  LoaderOptions options;
  options.batch_size = keys.batch_size;
  options.shuffle = keys.shuffle;
  options.drop_last = keys.drop_last;
  options.seed = static_cast<std::uint64_t>(keys.seed);
  if (keys.ranks_here > 1)
    options.cores = std::max(1, static_cast<int>(allowed_cpus().size()) / static_cast<int>(keys.ranks_here));
  options.readers = static_cast<int>(keys.readers.value_or(-1));
  options.prefetch = static_cast<int>(keys.prefetch);
  options.rank = static_cast<int>(keys.rank);
  options.world_size = static_cast<int>(keys.ranks);
  options.bad_samples = keys.bad_samples;
  options.max_bad_fraction = keys.max_bad_fraction;
  options.max_buffer_bytes = static_cast<std::uint64_t>(keys.max_buffer_bytes.value_or(0));
  return options;
}

}  // namespace

std::string Workload::kind() const { return text_at(data, {"kind"}); }

std::string workload_help() {
  return "\nKeys of the file:\n  data                  what is read: a part, see the kinds below\n" +
         config::help_text(config::schema_of<LoaderKeys>()) + pipeline_kinds_text();
}

Workload parse_workload(std::string_view json, const std::string& name) {
  Json all = parse_shallow(json);
  const auto refuse = [&name](std::string what, std::string next) {
    throw ConfigError(Message{.what = std::move(what), .where = name, .next = std::move(next)});
  };
  if (all.is_discarded())
    refuse("this is not JSON, or it is nested more than " + std::to_string(kDeepestJson) + " deep", "correct the text");
  if (!all.is_object() || !all.contains("data"))
    refuse("the description has no data", R"(write {"data": {"kind": ...}, "batch_size": ...})");
  Workload workload;
  workload.name = name;
  workload.data = std::move(all["data"]);
  all.erase("data");
  const config::Schema schema = config::schema_of<LoaderKeys>();
  config::Layers layers(schema);
  layers.add_values(all, name);
  workload.loader = config::read<LoaderKeys>(layers.resolve().values);
  check_ranks(workload);
  return workload;
}

Workload read_workload(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw DataError({.what = file.string() + " can't be read", .where = "", .next = "check the path and its permissions"});
  return parse_workload(std::string(std::istreambuf_iterator<char>(in), {}), file.string());
}

OpenWorkload open_workload(const Workload& workload, const fs::path& folder) {
  const LoaderKeys& keys = workload.loader;
  OpenWorkload open;
  open.pipeline = pipeline_from(
      workload.data,
      {.folder = folder, .name = workload.name + ", data", .functions = workload.functions, .notices = &open.notices});
  const std::optional<CacheWish> wish = keys.cache.is_auto() ? std::nullopt : std::optional(keys.cache.value());
  const std::uint64_t available = available_memory_bytes() / static_cast<std::uint64_t>(keys.ranks_here);
  const std::uint64_t promised = std::min(available, static_cast<std::uint64_t>(keys.memory_promised));
  Chosen<std::shared_ptr<SampleCache>> cache =
      choose_cache(open.pipeline.datasets, wish, available - promised, static_cast<std::uint64_t>(keys.cache_bytes.value_or(0)));
  use_cache(open.pipeline, cache.value);
  open.cache = std::move(cache.value);
  open.cache_reason = std::move(cache.reason);
  open.options = options_of(keys);
  return open;
}

}  // namespace millrace::data
