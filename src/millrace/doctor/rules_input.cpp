#include <algorithm>
#include <cmath>

#include "millrace/base/format.h"
#include "millrace/doctor/detail/rule_list.h"

namespace millrace::doctor::detail {
namespace {

using telemetry::Phase;

constexpr double kWaits = 0.10;    // if steps wait for data for at least this share of the time, a rule reports it
constexpr double kWorthIt = 0.05;  // a remedy is suggested only if it gains at least this
constexpr double kExplains = 0.5;  // if slow files cost more than this share of the reading time, they are the cause of the
                                   // waits
// if at least this share of a file's reads take the usual time, its slow samples are to blame, not the file
constexpr double kMostlyQuick = 0.5;
// if readers use a core for at least this share of their time, more readers than cores slow each other down
constexpr double kComputes = 0.5;
constexpr int kMostSleepers = 32;     // the most readers that are suggested, if readers mostly wait
constexpr double kHandOver = 4e-4;    // seconds that the loop needs to receive a batch from a worker of a DataLoader
constexpr double kManyThreads = 1.2;  // if a step uses more cores than this, its threads wait for each other
constexpr double kHeldUp = 0.8;       // a step with many threads stands still for this share of the time in which readers use
                                      // its cores

double share_of_cpu(const Evidence::Input& input) {
  return input.read_seconds <= 0 ? 1.0 : std::clamp(input.read_cpu_seconds / input.read_seconds, 0.0, 1.0);
}

double excess(const Evidence::Input& input) {
  double sum = 0;
  for (const Evidence::Input::Slow& slow : input.slow) sum += slow.excess_seconds;
  return sum;
}

// Seconds that steps wait for data in the middle of a pass. At the beginning of a pass, a script's workers have nothing ready,
// however fast they are.
double steady_wait(const Evidence& e) {
  const double all = e.times.of(Phase::data_wait);
  if (!e.script || !e.script->loader || e.script->loader->workers == 0 || e.script->loader->epochs < 2) return all;
  const Script::Loader& loader = *e.script->loader;
  return all - std::clamp(loader.first_batch_seconds - (loader.epochs - 1) * loader.usual_batch_seconds, 0.0, all);
}

bool waits(const Evidence& e) { return steady_wait(e) >= kWaits * e.times.loop(); }
bool by_slow_files(const Evidence& e) { return excess(e.input) > kExplains * e.input.read_seconds; }
bool by_single_samples(const Evidence& e) { return e.input.slow.front().quick >= kMostlyQuick; }

// The gain without slow samples. A DataLoader returns batches in order, so all its workers wait for a slow sample. Millrace's
// other readers continue meanwhile.
Finding::Gain gain_without_slow(const Evidence& e) {
  const int at_once = e.script ? 1 : std::max(e.input.readers, 1);
  const double held_up = std::min(e.times.of(Phase::data_wait), excess(e.input) / at_once);
  return gain_of(held_up / e.times.loop());
}

std::string wait_text(const Evidence& e) {
  const double per_step = e.input.read_seconds / static_cast<double>(e.times.steps) * 1e3;
  return "steps wait for data " + percent(e.share(Phase::data_wait)) + " of the time: reading what a step needs takes " +
         significant(per_step, 3) + " ms, of which " + percent(share_of_cpu(e.input)) + " is computing" +
         (share_of_cpu(e.input) > kComputes ? "" : "; the rest is waiting for the disk or a core");
}

std::string in_readers(const Evidence& e) {
  if (e.input.readers == 0) return ", in the loop's own thread";
  return ", in " + std::to_string(e.input.readers) + (e.script ? " worker" : " reader") + (e.input.readers == 1 ? "" : "s");
}

// The time that a script's loop would need to receive its batches from other processes, if it reads them itself now.
double hand_over(const Evidence& e) {
  return e.script && e.input.readers == 0 ? kHandOver * static_cast<double>(e.times.steps) : 0;
}

// True if the user set the number of readers. Always true for a DataLoader, which never changes its number of workers.
bool by_user(const Evidence& e) { return e.input.readers_by_user || (e.script && e.script->loader); }

// The gain with this number of readers. If a script's loop reads its data itself, the gain is at most the time of reading.
double gain_with(const Evidence& e, int readers) {
  const double gain = 1 - (seconds_with(e, readers) + hand_over(e)) / e.times.loop();
  const bool reads_itself = e.script && e.input.readers == 0;
  return reads_itself ? std::min(gain, (e.input.read_seconds - hand_over(e)) / e.times.loop()) : gain;
}

// The gain of a cache. The first epoch gains nothing, because it fills the cache.
double gain_of_cache(const Evidence& e) {
  return e.share(Phase::data_wait) * (e.input.epochs > 0 ? 1 - std::min(1.0, 1 / e.input.epochs) : 1.0);
}

}  // namespace

double seconds_with(const Evidence& e, int readers) {
  const double work = e.times.loop() - e.times.of(Phase::data_wait);
  const double work_cpu = std::min(e.work_cpu_seconds.value_or(work * e.cores), work * e.cores);
  const double shared = std::max({work, e.input.read_seconds / readers, (work_cpu + e.input.read_cpu_seconds) / e.cores});
  const double threads = work > 0 ? work_cpu / work : 1;
  if (!e.script || !e.work_cpu_seconds || threads < kManyThreads || threads + 1 <= e.cores) return shared;
  const double held_up = e.input.read_cpu_seconds * (readers + threads) / (static_cast<double>(readers) * e.cores);
  return std::max(shared, work + kHeldUp * std::max(held_up, e.input.read_cpu_seconds / e.cores));
}

int enough_readers(const Evidence& e) {
  const double work = e.times.loop() - e.times.of(Phase::data_wait);
  return enough_readers(work, e.input.read_seconds, share_of_cpu(e.input) > kComputes, e.cores);
}

int enough_readers(double work_seconds, double read_seconds, bool computes, int cores) {
  const double readers = std::ceil(1.3 * read_seconds / std::max(work_seconds, 1e-9));
  return static_cast<int>(std::clamp(readers, 1.0, static_cast<double>(computes ? std::max(cores, 1) : kMostSleepers)));
}

Finding set(std::string what, std::string key, std::string value, std::optional<Finding::Gain> gain) {
  std::string remedy = "try --" + key + "=" + value;
  return {.id = {},
          .what = std::move(what),
          .remedy = std::move(remedy),
          .key = std::move(key),
          .value = std::move(value),
          .gain = gain};
}

// Fires if samples could not be read. A bad sample counts again in each epoch.
Found bad_samples(const Evidence& e) {
  if (e.input.bad_samples <= 0) return std::nullopt;
  return Finding{.id = {},
                 .what = with_commas(e.input.bad_samples) + (e.input.bad_samples == 1 ? " sample" : " samples") +
                         " could not be read so far and " + (e.input.bad_samples == 1 ? "was" : "were") +
                         " skipped or replaced (data.bad_samples), compared with " + with_commas(e.input.good_samples) +
                         " that could be read",
                 .remedy = "repair or remove them: the run's warnings name the first of each epoch, and say what is wrong",
                 .key = {},
                 .value = {},
                 .gain = std::nullopt};
}

Found slow_file(const Evidence& e) {
  if (!waits(e) || !by_slow_files(e) || by_single_samples(e)) return std::nullopt;
  const Evidence::Input::Slow& worst = e.input.slow.front();
  const std::string others = e.input.slow.size() == 1 ? "" : " and " + std::to_string(e.input.slow.size() - 1) + " more";
  return Finding{.id = {},
                 .what = "steps wait for data " + percent(e.share(Phase::data_wait)) + " of the time, mostly for " + worst.file +
                         others + ": a sample of it takes " + significant(worst.times, 2) + " times as long as usual",
                 .remedy = "copy it to a faster disk, or write it again in smaller chunks",
                 .key = {},
                 .value = {},
                 .gain = gain_without_slow(e)};
}

Found slow_sample(const Evidence& e) {
  if (!waits(e) || !by_slow_files(e) || !by_single_samples(e)) return std::nullopt;
  const Evidence::Input::Slow& worst = e.input.slow.front();
  return Finding{.id = {},
                 .what = "steps wait for data " + percent(e.share(Phase::data_wait)) +
                         " of the time, mostly for single samples of " + worst.file +
                         "; its other samples are as quick as usual, and the slowest, " + worst.sample + ", takes " +
                         significant(worst.sample_times, 2) + " times as long",
                 .remedy =
                     "find out how it differs (larger, compressed differently) and rewrite or remove it; if another file is "
                     "slow each time, the disk stalls: copy the data to another disk",
                 .key = {},
                 .value = {},
                 .gain = gain_without_slow(e)};
}

Found no_readers(const Evidence& e) {
  if (!waits(e) || by_slow_files(e) || e.input.readers > 0 || !by_user(e)) return std::nullopt;
  const int readers = enough_readers(e);
  const double gain = gain_with(e, readers);
  if (gain < kWorthIt) return std::nullopt;
  return set(wait_text(e) + in_readers(e), "data.workers", std::to_string(readers), gain_of(gain));
}

Found few_readers(const Evidence& e) {
  if (!waits(e) || by_slow_files(e) || e.input.readers == 0 || !by_user(e) || threads_in_workers(e)) return std::nullopt;
  const int readers = enough_readers(e);
  const double gain = gain_with(e, readers);
  if (readers <= e.input.readers || gain < kWorthIt) return std::nullopt;
  return set(wait_text(e) + in_readers(e), "data.workers", std::to_string(readers), gain_of(gain));
}

Found cache_off(const Evidence& e) {
  const Evidence::Input& input = e.input;
  if (!waits(e) || input.cached || !input.cache_by_user || input.cacheable_bytes == 0) return std::nullopt;
  if (input.cacheable_bytes > input.free_bytes / 2) return std::nullopt;
  const double gain = gain_of_cache(e);
  if (gain < kWorthIt) return std::nullopt;
  return set(wait_text(e) + "; all samples are " + human_bytes(static_cast<double>(input.cacheable_bytes)) + ", and " +
                 human_bytes(static_cast<double>(input.free_bytes)) + " of memory are free",
             "data.cache", "ram", gain_of(gain));
}

// Fires if reading is too slow although the run has as many readers as the cores can serve.
Found input_bound(const Evidence& e) {
  if (!waits(e) || by_slow_files(e) || cache_off(e) || too_many_workers(e) || threads_in_workers(e)) return std::nullopt;
  const bool more_would_help = by_user(e) && gain_with(e, enough_readers(e)) >= kWorthIt && enough_readers(e) > e.input.readers;
  if (more_would_help) return std::nullopt;  // the rules no_readers and few_readers report this case
  double gain = e.share(Phase::data_wait);
  if (e.script) {  // a script also waits while its workers do other work than reading
    gain = std::min(steady_wait(e), e.input.read_seconds / std::max(e.input.readers, 1)) / e.times.loop();
    if (gain < kWaits || e.input.read_seconds < 3 * hand_over(e)) return std::nullopt;
  }
  const bool computes = share_of_cpu(e.input) > kComputes;
  const std::string what = wait_text(e) + in_readers(e);
  if (!e.input.cached && e.input.cacheable_bytes > 0 && gain_of_cache(e) >= kWorthIt)
    return set(what, "data.cache", "disk", gain_of(gain_of_cache(e), 0.5));
  return Finding{.id = {},
                 .what = what,
                 .remedy = computes ? "decode less (store the data uncompressed, or at the size that is used), or take more cores"
                                    : "use a faster disk, or copy the data to a local disk",
                 .key = {},
                 .value = {},
                 .gain = gain_of(gain, 0.5)};
}

}  // namespace millrace::doctor::detail
