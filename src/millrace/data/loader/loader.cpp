#include "millrace/data/loader/loader.h"

#include <algorithm>

#include "millrace/base/clock.h"
#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/data/loader/detail/batch_work.h"
#include "millrace/data/loader/detail/data_identity.h"
#include "millrace/data/loader/detail/engine.h"
#include "millrace/data/loader/detail/kept_batches.h"
#include "millrace/data/loader/detail/loader_state.h"
#include "millrace/data/loader/detail/readers.h"
#include "millrace/data/loader/detail/tuner.h"
#include "millrace/data/loader/keeping.h"
#include "millrace/telemetry/spans.h"

namespace millrace::data {
namespace {

using detail::BadRow;
using detail::BatchSlot;
using detail::BatchWork;
using detail::GroupSlot;

constexpr std::string_view kRepair =
    "repair or remove the sample, or set data.bad_samples=\"skip\" (counted and logged), \"substitute\" or \"quarantine\"";

[[noreturn]] void refuse(std::string what, std::string where, std::string next) {
  throw ConfigError(Message{.what = std::move(what), .where = std::move(where), .next = std::move(next)});
}

// Returns the names of the files of a source without samples, for the error.
std::string files_of(const Source& source) {
  std::vector<std::string> names;
  for (const FileStamp& stamp : source.stamps()) names.push_back(stamp.name);
  return names.empty() ? "the recipe's data()" : (names.size() == 1 ? "file " : "files ") + detail::joined(names);
}

void check(const Pipeline& pipeline, const LoaderOptions& options) {
  if (pipeline.datasets.empty()) refuse("the pipeline has no data set", "the recipe's data()", "give it at least one");
  for (const Dataset& dataset : pipeline.datasets) {
    if (!dataset.source) refuse("data set \"" + dataset.name + "\" has no source", "the recipe's data()", "give it one");
    if (dataset.source->size() < 1) {
      const std::string called =
          dataset.name.empty() ? options.called : "data set " + quoted(dataset.name) + " of " + options.called;
      refuse(called + " has no samples", files_of(*dataset.source), "check the paths and filters of the data");
    }
    detail::check_keeping(*dataset.source, dataset.name);
  }
  const auto at_least_one = [](std::int64_t value, const std::string& key) {
    if (value < 1) refuse(key + " is " + std::to_string(value), key, "set it to 1 or more");
  };
  at_least_one(options.batch_size, "data.batch_size");
  at_least_one(options.prefetch, "data.prefetch");
  if (options.readers < -1 || options.readers > 1024) {
    refuse("data.workers is " + std::to_string(options.readers), "data.workers", "set it to auto, or to a number from 0 to 1024");
  }
  if (!(options.max_bad_fraction >= 0 && options.max_bad_fraction <= 1)) {
    refuse("the allowed fraction of bad samples is " + significant(options.max_bad_fraction, 6), "data.max_bad_fraction",
           "set it between 0 and 1");
  }
  MR_CHECK(options.world_size >= 1 && options.rank >= 0 && options.rank < options.world_size, "rank must be in [0, world_size)");
  std::int64_t global = 0;
  if (__builtin_mul_overflow(options.batch_size, options.world_size, &global)) {
    refuse("the global batch is too large", "data.batch_size", "lower it");
  }
}

detail::WorkOptions work_options(const LoaderOptions& options, const Pipeline& pipeline) {
  return {.order = {.grouping = pipeline.grouping,
                    .samples_per_epoch = pipeline.samples_per_epoch,
                    .batch_size = options.batch_size,
                    .shuffle = options.shuffle,
                    .drop_last = options.drop_last,
                    .seed = options.seed,
                    .rank = options.rank,
                    .world_size = options.world_size},
          .bad_samples = options.bad_samples,
          .looks_ahead = options.looks_ahead};
}

std::size_t slot_count(const BatchWork& work, const LoaderOptions& options) {
  // Two more than `prefetch`, because the consumer asks for the next batch before it returns the one that it holds.
  const auto wanted = static_cast<std::size_t>(options.prefetch) + 2;
  const std::size_t bytes = std::max<std::size_t>(work.slot_bytes(), 1);
  const std::size_t affordable = options.max_buffer_bytes / bytes;
  if (affordable < 2) {
    refuse("one batch takes " + human_bytes(static_cast<double>(bytes)) + ", and two must fit into the loader's buffer of " +
               human_bytes(static_cast<double>(options.max_buffer_bytes)),
           "data.batch_size", "lower data.batch_size, or raise data.max_buffer_bytes");
  }
  return std::min(wanted, affordable);
}

}  // namespace

struct Loader::Impl {
  Impl(Pipeline pipeline, LoaderOptions given)
      : options(std::move(given)),
        work(std::make_shared<BatchWork>(std::move(pipeline.datasets), work_options(options, pipeline),
                                         options.arena ? options.arena : Arena::host())) {
    if (work->batches_per_epoch() == 0) {
      refuse("no batch is left of " + options.called + ": " + with_commas(work->samples()) + " samples, batch size " +
                 with_commas(options.batch_size) +
                 (options.world_size > 1 ? " on each of " + std::to_string(options.world_size) + " ranks" : "") +
                 ", and drop_last drops the incomplete batch",
             "data.drop_last", "lower data.batch_size, or set data.drop_last=false");
    }
    if (options.max_buffer_bytes == 0) options.max_buffer_bytes = detail::usual_buffer(work->slot_bytes());
    slots = slot_count(*work, options);
    work->on_starved = [this](std::size_t lent) { starved(lent); };
    work->on_stalled = [this](std::uint64_t late, double seconds) { stalled(late, seconds); };
    const int cores = options.cores > 0 ? options.cores : detail::usable_cores();
    const Chosen<int> choice = detail::choose_readers(*work, options.readers, cores);
    reason = choice.reason;
    probe_seconds = work->read_seconds();
    detail::EngineOptions engine_options{.readers = choice.value, .slots = slots};
    engine_options.ahead = std::min(static_cast<std::size_t>(options.prefetch), std::max<std::size_t>(slots, 3) - 2);
    engine_options.max_ahead = std::max(engine_options.ahead, most_ahead());
    engine.emplace(work, engine_options);
    stages = {choice.value, engine_options.ahead};
    tuner.emplace(detail::Limits{.chooses_readers = options.readers < 0,
                                 .cores = cores,
                                 .tickets = static_cast<std::size_t>(work->tickets()),
                                 .max_ahead = engine_options.max_ahead});
    if (options.adapts) begin_interval(kFirstLook);
  }

  // Returns the largest number of batches ahead that the limit of bytes allows. Two more slots are for the consumer.
  [[nodiscard]] std::size_t most_ahead() const {
    constexpr std::size_t kMost = 256;
    const std::size_t affordable = options.max_buffer_bytes / std::max<std::size_t>(work->slot_bytes(), 1);
    return std::clamp<std::size_t>(affordable, 3, kMost + 2) - 2;
  }

  // Starts an interval of measurement; look() evaluates it after at least `length` nanoseconds.
  void begin_interval(std::int64_t length) {
    static const telemetry::Counter taken("loader_adaptation");
    taken.add(1);
    interval = length;
    const detail::ThreadUsage usage = engine->usage();
    mark = {.seconds = steady_seconds(),
            .waited = counters.wait_seconds,
            .batches = counters.batches,
            .read_seconds = work->read_seconds(),
            .cpu_seconds = usage.cpu_seconds + usage.queued_seconds,
            .slowest_read = 0};
    (void)work->take_slowest_seconds();
    next_look = steady_nanoseconds() + interval;
  }

  // Adjusts the number of readers and batches ahead. If there is nothing left to adjust, look() is called less often.
  void look() {
    const detail::ThreadUsage usage = engine->usage();
    detail::Measured now{.seconds = steady_seconds() - mark.seconds,
                         .waited = counters.wait_seconds - mark.waited,
                         .batches = counters.batches - mark.batches,
                         .read_seconds = work->read_seconds() - mark.read_seconds,
                         .cpu_seconds = usage.cpu_seconds + usage.queued_seconds - mark.cpu_seconds,
                         .slowest_read = std::max(mark.slowest_read, work->take_slowest_seconds())};
    if (!detail::Tuner::enough(now)) {
      mark.slowest_read = now.slowest_read;
      next_look = steady_nanoseconds() + interval;
      return;
    }
    const std::optional<detail::Change> change = tuner->look(stages, now);
    if (!change) return begin_interval(std::min(2 * interval, kLastLook));
    if (change->stages.readers != stages.readers) engine->set_readers(change->stages.readers);
    slots = std::max(slots, change->stages.ahead + 2);
    engine->set_stages(change->stages.ahead, slots);
    stages = change->stages;
    reason = change->reason;
    if (options.note) options.note("loader: " + reason);
    begin_interval(kFirstLook);
  }

  ~Impl() {
    if (engine->stop()) return;
    for (const std::string& line : work->activity()) warn("the loader stops without waiting for a stuck reader: " + line);
  }

  void warn(const std::string& line) const {
    if (options.warn) options.warn(line);
  }

  void starved(std::size_t lent) {
    const std::uint64_t bytes = work->slot_bytes() * (engine->slots() + 1);
    if (bytes > options.max_buffer_bytes) {
      throw DataError({.what = std::to_string(lent) + " batches are kept, and one more would enlarge the loader's buffer to " +
                               human_bytes(static_cast<double>(bytes)) + ", above the limit of " +
                               human_bytes(static_cast<double>(options.max_buffer_bytes)),
                       .where = place(batch),
                       .next = "release batches, or clone the tensors that are to be kept"});
    }
    if (!std::exchange(warned_starved, true)) {
      warn(std::to_string(lent) + " batches are kept at once: each takes another " +
           human_bytes(static_cast<double>(work->slot_bytes())) + "; clone the tensors that are to be kept");
    }
  }

  void stalled(std::uint64_t sequence, double seconds) const {
    const std::uint64_t per_epoch = work->batches_per_epoch();
    std::string line = "batch " + std::to_string(sequence % per_epoch) + " of epoch " + std::to_string(sequence / per_epoch) +
                       " has not arrived for " + human_duration(seconds);
    std::vector<std::string> reading = work->activity(sequence);
    if (reading.empty()) reading = work->activity();
    for (const std::string& reader : reading) line += "; " + reader;
    warn(line);
  }

  [[nodiscard]] std::string place(std::uint64_t in_epoch) const {
    return "batch " + std::to_string(in_epoch) + " of epoch " + std::to_string(epoch);
  }

  [[nodiscard]] std::uint64_t sequence() const { return epoch * work->batches_per_epoch() + batch; }

  // Returns the error for a bad row: the message of the source, with the sample, the batch and the reader.
  [[nodiscard]] DataError error_of(const BadRow& bad) const {
    const std::string sample = work->sample_name(bad.group, bad.index);
    Message message;
    try {
      message = detail::reason_of(bad, sample);
    } catch (const ConfigError& error) {  // the source itself is at fault, for example because a field is missing
      if (error.problems().size() != 1 || bad.failed.empty()) throw;
      message = error.message();
      message.where += (message.where.empty() ? "" : "\n") + work->sample_label(bad.group, bad.index) + ", " + place(batch);
      throw ConfigError(std::move(message));
    }
    const bool named = message.what.find(sample) != std::string::npos;
    std::string where = message.where.empty() ? "" : message.where + "\n";
    if (!named) where += work->sample_label(bad.group, bad.index) + ", ";
    message.where = where + place(batch) + (bad.reader < 0 ? "" : ", reader " + std::to_string(bad.reader));
    if (message.next.empty()) message.next = kRepair;
    return DataError(std::move(message));
  }

  // Handles the bad rows of the next batch. If the policy or the limit requires an error, throws it before anything changes.
  void settle(BatchSlot& slot) {
    std::sort(slot.bad.begin(), slot.bad.end(),
              [](const BadRow& a, const BadRow& b) { return std::pair(a.group, a.row) < std::pair(b.group, b.row); });
    const bool skips = options.bad_samples == BadSamples::skip;
    for (const BadRow& bad : slot.bad) {
      const DataError error = error_of(bad);  // this call rethrows an error that is not about a sample
      if (!bad.replaced && !skips) throw error;
    }
    check_ceiling(slot);
    bad_in_epoch += slot.bad.size();
    counters.bad_samples += slot.bad.size();
    bool grew = false;
    for (const BadRow& bad : slot.bad) {
      report(bad);
      if (options.bad_samples != BadSamples::quarantine) continue;
      for (const std::int64_t index : bad.failed) grew |= quarantine.emplace(bad.group, index).second;
    }
    if (grew) work->set_quarantine(quarantine);
    if (!skips) return;
    work->drop_bad(slot);
  }

  void check_ceiling(const BatchSlot& slot) const {
    const auto rows = work->order().rows_before(static_cast<std::int64_t>(work->batches_per_epoch()));
    const std::uint64_t bad = bad_in_epoch + slot.bad.size();
    if (static_cast<double>(bad) <= most_bad(options.max_bad_fraction, rows)) return;
    const double enough = fraction_for(static_cast<std::int64_t>(bad), rows);
    const DataError last = error_of(slot.bad.back());
    throw DataError(
        {.what = with_commas(static_cast<std::int64_t>(bad)) + " of " + with_commas(rows) + " samples of epoch " +
                 std::to_string(epoch) + " could not be read, more than the fraction " +
                 significant(options.max_bad_fraction, 3) + " that is allowed; the last: " + last.message().what,
         .where = last.message().where,
         .next = "repair the data, or set data.max_bad_fraction to " + significant(enough, 4) + ", or higher if more are bad"});
  }

  void report(const BadRow& bad) {
    constexpr std::uint64_t kNamed = 3;
    if (++reported_in_epoch > kNamed || !bad.error) return;
    const DataError error = error_of(bad);
    warn(work->sample_label(bad.group, bad.index) + (bad.replaced ? " is replaced: " : " is left out: ") + error.message().what +
         " (" + place(batch) + ")");
  }

  void end_epoch() {
    if (bad_in_epoch > 0) {
      warn("epoch " + std::to_string(epoch) + ": " + with_commas(static_cast<std::int64_t>(bad_in_epoch)) + " bad samples " +
           (options.bad_samples == BadSamples::skip ? "left out" : "replaced"));
    }
    ++epoch;
    batch = 0;
    bad_in_epoch = 0;
    reported_in_epoch = 0;
  }

  std::optional<HostBatch> next() {
    if (failed) std::rethrow_exception(failed);
    if (batch == work->batches_per_epoch()) {
      end_epoch();
      return std::nullopt;
    }
    const std::int64_t began = steady_nanoseconds();
    std::shared_ptr<BatchSlot> slot = engine->next();
    const std::int64_t now = steady_nanoseconds();
    counters.wait_seconds += static_cast<double>(now - began) * 1e-9;
    if (kept.are_most(engine->lent(), engine->slots()) && !std::exchange(warned_starved, true))
      warn(detail::KeptBatches::text(engine->lent(), engine->slots()));
    if (!slot->bad.empty()) {
      try {
        settle(*slot);
      } catch (...) {
        failed = std::current_exception();  // stored, because the engine has passed this batch and can't return it again
        throw;
      }
    }
    HostBatch result = hand_over(std::move(slot), epoch, batch);
    ++batch;
    ++counters.batches;
    for (const HostBatch::Group& group : result.groups) counters.samples += group.positions.size();
    if (options.adapts && now >= next_look) look();
    return result;
  }

  bool wait(std::chrono::milliseconds most) {
    if (failed || batch == work->batches_per_epoch()) return true;
    const std::int64_t began = steady_nanoseconds();
    const bool there = engine->wait(most);
    counters.wait_seconds += static_cast<double>(steady_nanoseconds() - began) * 1e-9;
    return there;
  }

  [[nodiscard]] HostBatch read_again(std::uint64_t of_epoch, std::uint64_t index) const {
    std::shared_ptr<BatchSlot> slot = work->make_slot();
    const std::uint64_t number = of_epoch * work->batches_per_epoch() + index;
    work->begin(*slot, number);
    for (std::uint64_t ticket = 0; ticket < work->tickets(); ++ticket) work->run(*slot, number, ticket, -1);
    std::ranges::sort(slot->bad, {}, [](const BadRow& bad) { return std::pair(bad.group, bad.row); });
    work->drop_bad(*slot);
    return hand_over(std::move(slot), of_epoch, index);
  }

  [[nodiscard]] HostBatch hand_over(std::shared_ptr<BatchSlot> slot, std::uint64_t of_epoch, std::uint64_t index) const {
    HostBatch result;
    result.epoch = of_epoch;
    result.index = index;
    result.groups.reserve(slot->groups.size());
    for (std::size_t group = 0; group < slot->groups.size(); ++group) {
      const GroupSlot& here = slot->groups[group];
      result.groups.push_back({.name = work->datasets()[group].name,
                               .fields = work->datasets()[group].source->fields(),
                               .data = here.data,
                               .positions = {here.positions.begin(), here.positions.begin() + here.rows},
                               .indices = {here.indices.data(), static_cast<std::size_t>(here.rows)}});
    }
    result.slot = std::move(slot);
    return result;
  }

  void go_to(std::uint64_t new_epoch, std::uint64_t new_batch) {
    epoch = new_epoch;
    batch = new_batch;
    failed = nullptr;
    bad_in_epoch = 0;
    reported_in_epoch = 0;
    engine->restart(sequence());
  }

  const std::vector<detail::DatasetIdentity>& identity() {
    if (known.empty()) known = detail::identify(work->datasets());
    return known;
  }

  void check_data(const Json& saved, const std::string& called) {
    const auto report = [this](const std::string& line) {
      if (options.note) options.note(line);
    };
    data_check = saved.is_null() ? detail::DataCheck::unknown : detail::DataCheck::same;
    if (saved.is_null())
      return report(
          "an earlier version made the snapshot and did not record which data it used: the run resumes with the present data, "
          "which could not be compared");
    const detail::DataChanges changes = detail::changes_since(saved, identity());
    if (changes.differ.empty()) {
      if (!changes.renamed.empty()) report(called + " has new file names but equal content: " + detail::joined(changes.renamed));
      return;
    }
    const std::string what = called + " has changed since the run began: " + detail::joined(changes.differ);
    if (!options.accepts_changed) {
      throw SnapshotError({.what = what,
                           .where = "data of the snapshot",
                           .next = "restore the data, set data.accept_changed=true to resume with the present data, or "
                                   "begin a new run"});
    }
    data_check = detail::DataCheck::changed;
    warn(what);
    report("data.accept_changed: the run resumes although " + what);
  }

  [[nodiscard]] detail::LoaderState state() const {
    return {.fingerprint = detail::fingerprint_of(work->datasets()),
            .seed = options.seed,
            .global_batch_size = options.batch_size * options.world_size,
            .shuffle = options.shuffle,
            .drop_last = options.drop_last,
            .epoch = epoch,
            .next_batch = batch,
            .bad_in_epoch = bad_in_epoch,
            .order = work->order().order_text(),
            .quarantine = quarantine};
  }

  static constexpr std::int64_t kFirstLook = 100'000'000;  // length of the first interval in nanoseconds
  static constexpr std::int64_t kLastLook = 4'000'000'000;

  LoaderOptions options;
  std::shared_ptr<BatchWork> work;
  std::size_t slots = 0;
  std::string reason;
  double probe_seconds = 0;  // seconds that choosing the number of readers spent in read()
  std::optional<detail::Engine<BatchWork>> engine;
  std::uint64_t epoch = 0;
  std::uint64_t batch = 0;  // number of the next batch in the epoch; if it is batches_per_epoch, next() reports the epoch's end
  std::uint64_t bad_in_epoch = 0;
  std::uint64_t reported_in_epoch = 0;
  detail::Quarantine quarantine;
  std::exception_ptr failed;  // next() throws this again until restart() or load_state() is called
  bool warned_starved = false;
  detail::KeptBatches kept;
  std::optional<detail::Tuner> tuner;
  detail::Stages stages;
  detail::Measured mark;  // the counters' values at the beginning of the interval
  std::int64_t interval = 0;
  std::int64_t next_look = 0;
  Loader::Counters counters;
  std::vector<detail::DatasetIdentity> known;  // identities of the data sets; empty until they are computed
  Json known_as_json;
  detail::DataCheck data_check = detail::DataCheck::same;  // what the next load_state() assumes about the data
};

Loader::Loader(Pipeline pipeline, LoaderOptions options) {
  check(pipeline, options);
  impl_ = std::make_unique<Impl>(std::move(pipeline), std::move(options));
}

Loader::~Loader() = default;

std::optional<HostBatch> Loader::next() { return impl_->next(); }

bool Loader::wait(std::chrono::milliseconds most) { return impl_->wait(most); }

HostBatch Loader::read_again(std::uint64_t epoch, std::uint64_t index) const { return impl_->read_again(epoch, index); }

std::string Loader::sample_label(std::size_t group, std::int64_t index) const { return impl_->work->sample_label(group, index); }

std::uint64_t Loader::epoch() const noexcept { return impl_->epoch; }

std::int64_t Loader::batches_per_epoch() const noexcept { return static_cast<std::int64_t>(impl_->work->batches_per_epoch()); }

std::int64_t Loader::samples_per_epoch() const noexcept { return impl_->work->order().samples_per_epoch(); }

std::int64_t Loader::rows_per_batch() const noexcept { return impl_->work->order().rows_per_batch(); }

std::vector<Loader::DatasetPlan> Loader::dataset_plans() const { return impl_->work->order().dataset_plans(); }

Json Loader::state() const { return detail::to_json(impl_->state()); }

void Loader::load_state(const Json& state) {
  const detail::LoaderState loaded = detail::loader_state_from(state, impl_->state(), *impl_->work, impl_->data_check);
  impl_->data_check = detail::DataCheck::same;
  impl_->quarantine = loaded.quarantine;
  impl_->work->set_quarantine(loaded.quarantine);
  impl_->go_to(loaded.epoch, loaded.next_batch);
  impl_->bad_in_epoch = loaded.bad_in_epoch;
}

Json Loader::data_state() const {
  if (impl_->known_as_json.is_null()) impl_->known_as_json = detail::to_json(impl_->identity());
  return impl_->known_as_json;
}

void Loader::check_data(const Json& saved, const std::string& called) { impl_->check_data(saved, called); }

void Loader::restart(std::uint64_t epoch) { impl_->go_to(epoch, 0); }

Loader::Counters Loader::counters() const {
  Loader::Counters counters = impl_->counters;
  counters.read_seconds = impl_->work->read_seconds() - impl_->probe_seconds;
  counters.read_cpu_seconds = impl_->work->read_cpu_seconds();
  return counters;
}

std::vector<Loader::SlowFile> Loader::slow_files() const { return impl_->work->slow_files(); }

int Loader::readers() const noexcept { return impl_->engine->readers(); }

std::string Loader::readers_reason() const { return impl_->reason; }

std::uint64_t Loader::buffer_bytes() const noexcept {
  return impl_->work->slot_bytes() * std::max(impl_->slots, impl_->engine->slots());
}

}  // namespace millrace::data
