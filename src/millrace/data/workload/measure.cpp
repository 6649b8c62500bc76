// Measures the rates of a loader as its consumer sees them, for `millrace bench loader`.
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "millrace/base/clock.h"
#include "millrace/base/hash.h"
#include "millrace/data/workload/workload.h"

namespace millrace::data {
namespace {

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double quantile(std::vector<double>& values, double q) {
  if (values.empty()) return 0;
  const auto at = std::min(values.size() - 1, static_cast<std::size_t>(q * static_cast<double>(values.size())));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

}  // namespace

Json LoaderRates::to_json() const {
  std::vector<double> turns = turn_rounds;
  const auto rows = static_cast<double>(std::max<std::int64_t>(samples, 1));
  Json json = {{"samples", samples},
               {"batches", batches},
               {"seconds", seconds},
               {"samples_per_s", static_cast<double>(samples) / std::max(seconds, 1e-9)},
               {"first_batch_ms", first_batch * 1e3},
               {"cpu_s_per_1000", cpu_seconds * 1e3 / rows},
               {"wait_ms_p50", wait_p50 * 1e3},
               {"wait_ms_p99", wait_p99 * 1e3},
               {"epochs", turns.size()}};
  if (!turns.empty()) {
    json["turn_round_ms_p50"] = quantile(turns, 0.5) * 1e3;
    json["turn_round_ms_max"] = *std::max_element(turns.begin(), turns.end()) * 1e3;
  }
  return json;
}

LoaderRates measure_loader(Loader& loader, double seconds, const std::function<void(HostBatch)>& consume) {
  LoaderRates rates;
  std::vector<double> waits;
  const double cpu_began = cpu_seconds();
  const double began = steady_seconds();
  double now = began;
  double epoch_ended = -1;
  while (now - began < seconds || rates.batches == 0) {
    const double asked = steady_seconds();
    std::optional<HostBatch> batch = loader.next();
    now = steady_seconds();
    if (!batch) {
      epoch_ended = asked;
      continue;
    }
    if (epoch_ended >= 0) rates.turn_rounds.push_back(now - epoch_ended);
    if (rates.batches == 0) rates.first_batch = now - began;
    epoch_ended = -1;
    waits.push_back(now - asked);
    ++rates.batches;
    for (const HostBatch::Group& group : batch->groups) rates.samples += static_cast<std::int64_t>(group.positions.size());
    consume(std::move(*batch));
    now = steady_seconds();
  }
  rates.seconds = now - began;
  rates.cpu_seconds = cpu_seconds() - cpu_began;
  rates.wait_p50 = quantile(waits, 0.5);
  rates.wait_p99 = quantile(waits, 0.99);
  return rates;
}

StreamDigest digest_epoch(Loader& loader) {
  std::uint64_t sum = 0;
  StreamDigest result;
  while (const std::optional<HostBatch> batch = loader.next()) {
    for (const HostBatch::Group& group : batch->groups) {
      for (std::size_t row = 0; row < group.positions.size(); ++row, ++result.samples) {
        Sha256 hash;
        for (std::size_t f = 0; f < group.fields.size(); ++f) {
          const std::size_t bytes = group.fields[f].bytes();
          hash.update({reinterpret_cast<const char*>(group.data[f] + row * bytes), bytes});
        }
        const std::array<std::uint8_t, 32> digest = hash.digest();
        std::uint64_t word = 0;
        std::memcpy(&word, digest.data(), sizeof word);
        sum += word;
      }
    }
  }
  result.digest = std::to_string(sum);
  return result;
}

}  // namespace millrace::data
