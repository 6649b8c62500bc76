#include "millrace/door/headrace.h"

#include <unistd.h>

#include <chrono>
#include <deque>
#include <mutex>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/base/foreign_json.h"
#include "millrace/base/format.h"
#include "millrace/base/hash.h"
#include "millrace/base/version.h"
#include "millrace/data/workload/workload.h"
#include "millrace/doctor/evidence_json.h"
#include "millrace/doctor/script_sampler.h"
#include "millrace/doctor/verdict.h"

namespace {

using namespace millrace;

thread_local std::string said;    // the text that this thread was given last
thread_local std::string failed;  // headrace_error()

std::string text_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

const char* say(std::string text) {
  said = std::move(text);
  return said.c_str();
}

void keep_failure(std::string_view kind, const Message& message) {
  failed = text_of({{"kind", kind}, {"what", message.what}, {"where", message.where}, {"next", message.next}});
}

// Several problems of a config are one message here, a line each.
Message message_of(const ConfigError& error) {
  if (error.problems().size() == 1) return error.message();
  Message all{.what = std::to_string(error.problems().size()) + " mistakes"};
  for (const Problem& problem : error.problems()) {
    const std::string rest =
        (problem.where.empty() ? "" : " (" + problem.where + ")") + (problem.next.empty() ? "" : ": " + problem.next);
    all.what += "\n" + problem.what + rest;
  }
  return all;
}

// Calls `work`; where it throws, keeps the failure for headrace_error() and returns `otherwise`.
template <class Work, class Result>
Result guarded(Result otherwise, Work work) noexcept {
  try {
    return work();
  } catch (const ConfigError& error) {
    keep_failure(error.kind(), message_of(error));
  } catch (const Error& error) {
    keep_failure(error.kind(), error.message());
  } catch (const std::bad_alloc&) {
    keep_failure("MemoryError", {"memory is out", "", "lower the batch size or max_buffer_bytes, or free memory"});
  } catch (const std::exception& error) {
    keep_failure("InternalError", {error.what(), "libheadrace.so", "report it, with what led to it"});
  }
  return otherwise;
}

// Lines of the loader, which come on the caller's thread and on readers.
class Messages {
 public:
  void add(const char* kind, const std::string& text) {
    const std::lock_guard lock(mutex_);
    lines_.push_back({{"kind", kind}, {"text", text}});
    if (lines_.size() > kMost) lines_.pop_front();
  }
  Json take() {
    const std::lock_guard lock(mutex_);
    Json all = Json::array();
    for (Json& line : lines_) all.push_back(std::move(line));
    lines_.clear();
    return all;
  }

 private:
  static constexpr std::size_t kMost = 100;
  std::mutex mutex_;
  std::deque<Json> lines_;
};

Json fields_json(std::span<const Field> fields) {
  Json all = Json::array();
  for (const Field& field : fields)
    all.push_back({{"name", field.name}, {"dtype", name_of(field.dtype)}, {"shape", field.shape}});
  return all;
}

data::MapFunction mapping_of(const headrace_map& given) {
  const auto described = std::make_shared<std::once_flag>();
  return [given, described](const data::Sample& in, const data::MutableSample& out, const data::SampleRandom& random) {
    if (given.describe != nullptr) {
      std::call_once(*described, [&] {
        given.describe(text_of({{"fields", fields_json(in.fields())}, {"made", fields_json(out.fields())}}).c_str(),
                       given.context);
      });
    }
    std::vector<const void*> from;
    std::vector<void*> to;
    for (std::size_t f = 0; f < in.fields().size(); ++f) from.push_back(in.data(f));
    for (std::size_t f = 0; f < out.fields().size(); ++f) to.push_back(out.data(f));
    Philox draw = random();
    const std::uint64_t seed = (static_cast<std::uint64_t>(draw()) << 32U) | draw();
    if (const int code = given.call(from.data(), to.data(), seed, given.context); code != 0) {
      throw DataError({.what = "the function of map() failed with " + std::to_string(code),
                       .where = "",
                       .next = "mend the function, or choose what happens with bad samples"});
    }
  };
}

// What headrace_batch points to.
struct Slot {
  data::HostBatch batch;
  std::vector<std::int64_t> rows;
  std::vector<void*> data;
  std::vector<const std::int64_t*> items;
  pid_t process;
};

}  // namespace

struct headrace_loader {
  explicit headrace_loader(const data::Workload& workload) {
    data::OpenWorkload open = data::open_workload(workload, "");
    cache = std::move(open.cache);
    cache_reason = std::move(open.cache_reason);
    datasets = open.pipeline.datasets;
    open.options.warn = [this](const std::string& text) { messages.add("warning", text); };
    open.options.note = [this](const std::string& text) { messages.add("note", text); };
    loader.emplace(std::move(open.pipeline), std::move(open.options));
  }

  const pid_t process = ::getpid();
  Messages messages;
  std::shared_ptr<data::SampleCache> cache;
  std::string cache_reason;
  std::vector<data::Dataset> datasets;
  std::string content;  // of the files; "" = not read yet
  std::optional<data::Loader> loader;
  bool at_end = false;  // the epoch's last batch was handed over, its end was not
};

namespace {

data::Loader& loader_of(headrace_loader* opened) {
  if (opened == nullptr) {
    throw UsageError(
        {.what = "there is no loader", .where = "a function of libheadrace.so", .next = "call headrace_open() first"});
  }
  if (opened->process != ::getpid()) {
    throw UsageError({.what = "this loader was opened by process " + std::to_string(opened->process) +
                              ", and this is a fork of it: threads that read are not copied by a fork",
                      .where = "process " + std::to_string(::getpid()),
                      .next = "open a loader in each process, or start processes by spawn"});
  }
  return *opened->loader;
}

void fill(headrace_batch& out, Slot& slot) {
  for (const data::HostBatch::Group& group : slot.batch.groups) {
    slot.rows.push_back(static_cast<std::int64_t>(group.positions.size()));
    slot.items.push_back(group.indices.data());
    for (std::byte* data : group.data) slot.data.push_back(data);
  }
  out = {.slot = &slot,
         .epoch = slot.batch.epoch,
         .index = slot.batch.index,
         .rows = slot.rows.data(),
         .data = slot.data.data(),
         .items = slot.items.data()};
}

int next(headrace_loader& opened, std::int64_t milliseconds, headrace_batch& out) {
  data::Loader& loader = loader_of(&opened);
  if (!loader.wait(std::chrono::milliseconds(milliseconds))) return HEADRACE_NOT_YET;
  std::optional<data::HostBatch> batch = loader.next();
  opened.at_end = batch && static_cast<std::int64_t>(batch->index) + 1 == loader.batches_per_epoch();
  if (!batch) return HEADRACE_END;
  auto slot =
      std::make_unique<Slot>(Slot{.batch = std::move(*batch), .rows = {}, .data = {}, .items = {}, .process = ::getpid()});
  fill(out, *slot);
  (void)slot.release();
  return HEADRACE_BATCH;
}

// What the files hold, in the order in which they make samples: equal for data that was moved or renamed.
const std::string& content_of(headrace_loader& opened) {
  if (!opened.content.empty()) return opened.content;
  Sha256 hash;
  for (const Json& dataset : opened.loader->data_state()) {
    for (const char* const key : {"files", "groups"}) {  // the last two values of a row: size or number, and digest
      if (!dataset.contains(key)) continue;
      for (const Json& row : dataset[key]) hash.update(row[row.size() - 2].dump() + row[row.size() - 1].dump() + "\n");
    }
  }
  opened.content = hash.hex().substr(0, 32);
  return opened.content;
}

void refuse_other_content(const Json& state, headrace_loader& opened) {
  if (text_at(state, {"content"}).empty() || text_at(state, {"content"}) == content_of(opened)) return;
  throw SnapshotError({.what = "the files are not those that the state was saved with: contents, sizes or their order differ",
                       .where = "content of the state",
                       .next = "restore the files, or accept that they have changed"});
}

Json counters_json(const headrace_loader& opened, const data::Loader& loader) {
  const data::Loader::Counters counters = loader.counters();
  Json slow = Json::array();
  for (const data::Loader::SlowFile& file : loader.slow_files()) {
    slow.push_back({{"name", file.name}, {"reads", file.reads}, {"excess_seconds", file.excess_seconds}, {"worst", file.worst}});
  }
  Json result = {{"batches", counters.batches},
                 {"samples", counters.samples},
                 {"bad_samples", counters.bad_samples},
                 {"wait_seconds", counters.wait_seconds},
                 {"read_seconds", counters.read_seconds},
                 {"read_cpu_seconds", counters.read_cpu_seconds},
                 {"readers", loader.readers()},
                 {"buffer_bytes", loader.buffer_bytes()},
                 {"cache", nullptr},
                 {"slow_files", std::move(slow)}};
  if (opened.cache) {
    const data::Cache::Counters cache = opened.cache->counters();
    result["cache"] = {
        {"hits", cache.hits}, {"misses", cache.misses}, {"bytes", cache.bytes}, {"budget_bytes", cache.budget_bytes}};
  }
  return result;
}

}  // namespace

struct headrace_sampler {
  headrace_sampler(std::unique_ptr<doctor::Nvml> nvml, int gpu) : sampler(std::move(nvml), gpu) {}

  const pid_t process = ::getpid();
  doctor::ScriptSampler sampler;
};

namespace {

headrace_sampler& sampler_of(headrace_sampler* started) {
  if (started == nullptr) {
    throw UsageError(
        {.what = "there is no sampler", .where = "a function of libheadrace.so", .next = "call headrace_sampler_start() first"});
  }
  if (started->process != ::getpid()) {
    throw UsageError({.what = "this sampler was started by process " + std::to_string(started->process) +
                              ", and this is a fork of it: its thread is not copied by a fork",
                      .where = "process " + std::to_string(::getpid()),
                      .next = "start a sampler in each process"});
  }
  return *started;
}

}  // namespace

const char* headrace_version() { return kVersion.data(); }

const char* headrace_error() { return failed.c_str(); }

headrace_loader* headrace_open(const char* description, const headrace_map* maps, size_t count) {
  return guarded<>(static_cast<headrace_loader*>(nullptr), [&] {
    data::Workload workload = data::parse_workload(description == nullptr ? "" : description, "the loader");
    for (std::size_t i = 0; i < count; ++i) workload.functions.push_back(mapping_of(maps[i]));
    return std::make_unique<headrace_loader>(workload).release();
  });
}

const char* headrace_describe(headrace_loader* loader) {
  return guarded<>(static_cast<const char*>(nullptr), [&] {
    const data::Loader& opened = loader_of(loader);
    Json groups = Json::array();
    const std::vector<data::Loader::DatasetPlan> plans = opened.dataset_plans();
    for (std::size_t i = 0; i < plans.size(); ++i) {
      groups.push_back({{"name", plans[i].name},
                        {"samples", plans[i].samples},
                        {"rows", plans[i].batch_size},
                        {"fields", fields_json(loader->datasets[i].source->fields())}});
    }
    return say(text_of(
        {{"groups", std::move(groups)}, {"batches", opened.batches_per_epoch()}, {"samples", opened.samples_per_epoch()}}));
  });
}

int headrace_next(headrace_loader* loader, int64_t milliseconds, headrace_batch* batch) {
  return guarded<>(static_cast<int>(HEADRACE_FAILED), [&] {
    (void)loader_of(loader);
    return next(*loader, milliseconds, *batch);
  });
}

void headrace_release(void* slot) {
  auto* const lent = static_cast<Slot*>(slot);
  if (lent != nullptr && lent->process == ::getpid()) delete lent;
}

const char* headrace_state(headrace_loader* loader) {
  return guarded<>(static_cast<const char*>(nullptr), [&] {
    Json state = loader_of(loader).state();
    state["content"] = content_of(*loader);
    if (loader->at_end) {
      state["epoch"] = state["epoch"].get<std::uint64_t>() + 1;
      state["next_batch"] = 0;
      state["bad_in_epoch"] = 0;
    }
    return say(text_of(state));
  });
}

int headrace_load_state(headrace_loader* loader, const char* state) {
  return guarded<>(static_cast<int>(HEADRACE_FAILED), [&] {
    const Json saved = parse_shallow(state == nullptr ? "" : state);
    data::Loader& opened = loader_of(loader);
    refuse_other_content(saved, *loader);
    opened.load_state(saved);
    loader->at_end = false;
    return 0;
  });
}

int headrace_restart(headrace_loader* loader, uint64_t epoch) {
  return guarded<>(static_cast<int>(HEADRACE_FAILED), [&] {
    loader_of(loader).restart(epoch);
    loader->at_end = false;
    return 0;
  });
}

const char* headrace_counters(headrace_loader* loader) {
  return guarded<>(static_cast<const char*>(nullptr), [&] { return say(text_of(counters_json(*loader, loader_of(loader)))); });
}

const char* headrace_plan(headrace_loader* loader) {
  return guarded<>(static_cast<const char*>(nullptr), [&] {
    const data::Loader& opened = loader_of(loader);
    Json lines = Json::array();
    const std::vector<data::Loader::DatasetPlan> plans = opened.dataset_plans();
    for (std::size_t i = 0; i < plans.size(); ++i) {
      const std::string read_as = loader->datasets[i].source->read_as();
      lines.push_back({{"name", plans[i].name}, {"samples", plans[i].samples}, {"rule", plans[i].rule}, {"read_as", read_as}});
    }
    return say(text_of({{"readers", opened.readers()},
                        {"readers_reason", opened.readers_reason()},
                        {"cache_reason", loader->cache_reason},
                        {"buffer_bytes", opened.buffer_bytes()},
                        {"data", std::move(lines)}}));
  });
}

const char* headrace_messages(headrace_loader* loader) {
  return guarded<>(static_cast<const char*>(nullptr), [&] {
    (void)loader_of(loader);
    return say(text_of(loader->messages.take()));
  });
}

void headrace_close(headrace_loader* loader) {
  if (loader != nullptr && loader->process == ::getpid()) delete loader;
}

const char* headrace_diagnose(const char* evidence) {
  return guarded<>(static_cast<const char*>(nullptr), [&] {
    const Json json = parse_shallow(evidence == nullptr ? "" : evidence);
    if (json.is_discarded()) {
      throw ConfigError(Message{.what = "this is no JSON, or it is nested more than " + std::to_string(kDeepestJson) + " deep",
                                .where = "evidence",
                                .next = R"(write numbers that are not finite as texts: "nan", "inf", "-inf")"});
    }
    return say(text_of(doctor::verdict_on(doctor::evidence_from(json))));
  });
}

const char* headrace_machine() {
  return guarded<>(static_cast<const char*>(nullptr), [&] { return say(text_of(doctor::machine_of_script())); });
}

headrace_sampler* headrace_sampler_start(int gpu) {
  return guarded<>(static_cast<headrace_sampler*>(nullptr), [&] {
    std::string why;
    return std::make_unique<headrace_sampler>(gpu < 0 ? nullptr : doctor::Nvml::open(why), gpu).release();
  });
}

const char* headrace_sampler_read(headrace_sampler* sampler) {
  return guarded<>(static_cast<const char*>(nullptr), [&] { return say(text_of(sampler_of(sampler).sampler.read())); });
}

const char* headrace_sampler_stop(headrace_sampler* sampler) {
  return guarded<>(static_cast<const char*>(nullptr), [&] {
    (void)sampler_of(sampler);
    const std::unique_ptr<headrace_sampler> owner(sampler);
    return say(text_of(owner->sampler.read()));
  });
}
