#include "millrace/door/headrace.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/base/foreign_json.h"
#include "millrace/base/format.h"
#include "millrace/base/hash.h"
#include "millrace/base/version.h"
#include "millrace/data/workload/workload.h"
#include "millrace/door/detail/answers.h"

namespace {

using namespace millrace;
using door::detail::guarded;
using door::detail::say;
using door::detail::text_of;

// Collects the loader's warnings and notes, which arrive on the caller's thread and on reader threads.
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

// Readers may call the caller's functions only while the gate is open. The gate is needed because Engine::stop() may abandon a
// reader in the middle of a batch.
class Gate {
 public:
  // Admits one call while it exists. The constructor throws DataError when the gate is shut.
  class Pass {
   public:
    explicit Pass(Gate& gate) : gate_(gate) {
      const std::lock_guard lock(gate_.mutex_);
      if (gate_.shut_) throw DataError({.what = "the loader is being closed", .where = "", .next = ""});
      ++gate_.inside_;
    }
    ~Pass() {
      const std::lock_guard lock(gate_.mutex_);
      if (--gate_.inside_ == 0) gate_.empty_.notify_all();
    }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;

   private:
    Gate& gate_;
  };
  void shut() {
    const std::lock_guard lock(mutex_);
    shut_ = true;
  }
  void wait_until_empty() {
    std::unique_lock lock(mutex_);
    empty_.wait(lock, [this] { return inside_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable empty_;
  int inside_ = 0;
  bool shut_ = false;
};

data::MapFunction mapping_of(const headrace_map& given, const std::shared_ptr<Gate>& gate) {
  const auto described = std::make_shared<std::once_flag>();
  return [given, gate, described](const data::Sample& in, const data::MutableSample& out, const data::SampleRandom& random) {
    const Gate::Pass pass(*gate);
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
                       .next = "correct the function, or choose what happens with bad samples"});
    }
  };
}

// Counts the forks between the process of the first loader and this process, so that a forked process has another count. The
// count is read for each batch; getpid() would cost a system call each time.
std::atomic<unsigned> forks = 0;

unsigned counted_forks() {
  static const int failure = ::pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  if (failure != 0) throw std::bad_alloc();
  return forks.load(std::memory_order_relaxed);
}

// The memory to which headrace_batch points.
struct Slot {
  data::HostBatch batch;
  std::vector<std::int64_t> rows;
  std::vector<void*> data;
  std::vector<const std::int64_t*> items;
  unsigned process;
};

// Reports its pieces of memory to the caller, until close() is called.
class WatchedArena final : public data::Arena {
 public:
  explicit WatchedArena(const headrace_watch& watch) : watch_(watch) {}
  std::byte* allocate(std::size_t bytes) override {
    std::byte* const memory = from_->allocate(bytes);
    const std::lock_guard lock(mutex_);
    pieces_.emplace(memory, bytes);
    watch_.taken(memory, bytes, watch_.context);
    return memory;
  }
  void release(std::byte* memory, std::size_t bytes) noexcept override {
    {
      const std::lock_guard lock(mutex_);
      if (pieces_.erase(memory) == 1) watch_.given_back(memory, bytes, watch_.context);
    }
    from_->release(memory, bytes);
  }
  // Reports all pieces as given back, also those of batches that are still held and of readers that were abandoned.
  void close() noexcept {
    const std::lock_guard lock(mutex_);
    for (const auto& [memory, bytes] : pieces_) watch_.given_back(memory, bytes, watch_.context);
    pieces_.clear();
  }

 private:
  const headrace_watch watch_;
  const std::shared_ptr<data::Arena> from_ = data::Arena::host();
  std::mutex mutex_;  // held while a function of the caller runs, so that no call follows close()
  std::map<std::byte*, std::size_t> pieces_;
};

}  // namespace

struct headrace_loader {
  headrace_loader(const data::Workload& workload, std::shared_ptr<Gate> functions, const headrace_watch* watch)
      : gate(std::move(functions)) {
    data::OpenWorkload open = data::open_workload(workload, "");
    cache = std::move(open.cache);
    cache_reason = std::move(open.cache_reason);
    datasets = open.pipeline.datasets;
    for (const std::string& text : open.notices) messages.add("warning", text);
    open.options.warn = [this](const std::string& text) { messages.add("warning", text); };
    open.options.note = [this](const std::string& text) { messages.add("note", text); };
    if (watch != nullptr) open.options.arena = arena = std::make_shared<WatchedArena>(*watch);
    loader.emplace(std::move(open.pipeline), std::move(open.options));
  }
  ~headrace_loader() {
    gate->shut();
    loader.reset();
    gate->wait_until_empty();
    if (arena) arena->close();
  }
  headrace_loader(const headrace_loader&) = delete;
  headrace_loader& operator=(const headrace_loader&) = delete;

  const unsigned process = counted_forks();
  const pid_t id = ::getpid();
  Messages messages;
  std::shared_ptr<data::SampleCache> cache;
  std::string cache_reason;
  std::vector<data::Dataset> datasets;
  std::shared_ptr<Gate> gate;
  std::shared_ptr<WatchedArena> arena;  // null if the caller watches no memory
  std::string content;                  // digest of the files; "" = not read yet
  std::optional<data::Loader> loader;
  bool at_end = false;    // true: the epoch's last batch was returned, but the end of the epoch was not reported yet
  std::uint64_t bad = 0;  // number of samples so far that could not be read
};

namespace {

data::Loader& loader_of(headrace_loader* opened) {
  if (opened == nullptr) {
    throw UsageError(
        {.what = "there is no loader", .where = "a function of libheadrace.so", .next = "call headrace_open() first"});
  }
  if (opened->process != forks.load(std::memory_order_relaxed)) {
    throw UsageError({.what = "this loader was opened by process " + std::to_string(opened->id) +
                              ", but this process is a fork of that one: a fork does not copy the threads that read",
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
         .items = slot.items.data(),
         .bad = 0};
}

int next(headrace_loader* from, std::int64_t milliseconds, headrace_batch& out) {
  data::Loader& loader = loader_of(from);
  headrace_loader& opened = *from;
  if (!loader.wait(std::chrono::milliseconds(milliseconds))) return HEADRACE_NOT_YET;
  std::optional<data::HostBatch> batch = loader.next();
  opened.at_end = batch && static_cast<std::int64_t>(batch->index) + 1 == loader.batches_per_epoch();
  if (!batch) return HEADRACE_END;
  auto slot =
      std::make_unique<Slot>(Slot{.batch = std::move(*batch), .rows = {}, .data = {}, .items = {}, .process = opened.process});
  fill(out, *slot);
  const std::uint64_t bad = loader.counters().bad_samples;
  out.bad = bad - std::exchange(opened.bad, bad);
  (void)slot.release();
  return HEADRACE_BATCH;
}

// Returns a digest of the files' content, in the order in which the files make samples. The digest stays the same if data is
// moved or renamed.
const std::string& content_of(headrace_loader& opened) {
  if (!opened.content.empty()) return opened.content;
  Sha256 hash;
  for (const Json& dataset : opened.loader->data_state()) {
    for (const char* const key : {"files", "groups"}) {  // the last two values of a row: the size or the number of files, then
                                                         // the digest
      if (!dataset.contains(key)) continue;
      for (const Json& row : dataset[key]) hash.update(row[row.size() - 2].dump() + row[row.size() - 1].dump() + "\n");
    }
  }
  opened.content = hash.hex().substr(0, 32);
  return opened.content;
}

void refuse_other_content(const Json& state, headrace_loader& opened) {
  if (text_at(state, {"content"}).empty() || text_at(state, {"content"}) == content_of(opened)) return;
  throw SnapshotError(
      {.what = "the files are not those that the state was saved with: the contents, sizes or order of files differ",
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

const char* headrace_version() { return kVersion.data(); }

const char* headrace_error() { return door::detail::failure().c_str(); }

headrace_loader* headrace_open(const char* description, const headrace_map* maps, size_t count, const headrace_watch* watch) {
  return guarded<>(static_cast<headrace_loader*>(nullptr), [&] {
    data::Workload workload = data::parse_workload(description == nullptr ? "" : description, "the loader");
    const auto gate = std::make_shared<Gate>();
    for (std::size_t i = 0; i < count; ++i) workload.functions.push_back(mapping_of(maps[i], gate));
    return std::make_unique<headrace_loader>(workload, gate, watch).release();
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
  return guarded<>(static_cast<int>(HEADRACE_FAILED), [&] { return next(loader, milliseconds, *batch); });
}

void headrace_release(void* slot) {
  auto* const lent = static_cast<Slot*>(slot);
  if (lent != nullptr && lent->process == forks.load(std::memory_order_relaxed)) delete lent;
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
  if (loader != nullptr && loader->process == forks.load(std::memory_order_relaxed)) delete loader;
}
