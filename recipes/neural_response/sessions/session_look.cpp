#include "recipes/neural_response/sessions/session_look.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "recipes/neural_response/sessions/session_hdf5.h"

namespace millrace::recipes::neural_response {
namespace {

constexpr double kBytesOfAll = 1 << 28;
// kMostFrames: at most this many frames of a file are read. kFewFrames: a file with fewer readable frames is not judged.
constexpr std::int64_t kMostFrames = 64, kFewFrames = 16;
constexpr double kOtherSpread = 30;

// Some frames of a file, and their bins.
struct Frames {
  std::vector<std::int64_t> bins;
  std::vector<std::vector<std::uint8_t>> greys;
};

double chunk_bytes(const SessionPart& part, double frame) {
  const hdf5::Dataset& stim = part.file->dataset("/stim");
  double bytes = frame;
  for (const std::int64_t side : stim.chunk) bytes *= static_cast<double>(std::max<std::int64_t>(side, 1));
  return stim.chunk.empty() ? frame : bytes / frame;
}

Frames frames_of(const Session& session, const SessionPart& part, double budget) {
  const std::int64_t pixels = session.height() * session.width();
  const double each = chunk_bytes(part, static_cast<double>(pixels));
  const auto count = std::min({kMostFrames, part.bins, static_cast<std::int64_t>(budget / each)});
  Frames frames;
  for (std::int64_t i = 0; i < count; ++i) {
    std::vector<std::uint8_t> grey(static_cast<std::size_t>(pixels));
    const std::int64_t bin = part.first_bin + i * part.bins / count;
    try {
      session.read_frames(bin, 1, grey);
    } catch (const DataError&) {
      continue;
    }
    frames.bins.push_back(bin - part.first_bin);
    frames.greys.push_back(std::move(grey));
  }
  return frames;
}

void look_at_frames(const SessionPart& part, const Frames& frames, std::vector<std::string>& notices) {
  const auto count = static_cast<std::int64_t>(frames.bins.size());
  if (count < kFewFrames) return;
  const std::string name = short_name(*part.file) + ": /stim ";
  std::size_t longest = 1, begin = 0;
  for (std::size_t i = 0, first = 0; i < frames.greys.size(); ++i) {
    if (frames.greys[i] != frames.greys[first]) first = i;
    if (i - first + 1 > longest) {
      longest = i - first + 1;
      begin = first;
    }
  }
  std::uint8_t most = 0;
  for (const auto& grey : frames.greys) most = std::max(most, *std::ranges::max_element(grey));
  if (longest == frames.greys.size()) {
    notices.push_back(name + "is one frame throughout: there is nothing to see");
  } else if (4 * longest >= frames.greys.size()) {
    notices.push_back(name + "is one frame from about bin " + with_commas(frames.bins[begin]) + " to " +
                      with_commas(frames.bins[begin + longest - 1]) + " of " + with_commas(part.bins) +
                      ": if the stimulus stood still there, mark these bins with dpi_valid 0");
  }
  if (most == 1)
    notices.push_back(name +
                      "has grey levels of at most 1, but levels from 0 to 255 are expected. Are they fractions? Then write 255 "
                      "times their values");
}

void look_at_units(const Session& session, std::vector<std::string>& notices) {
  const auto units = static_cast<std::size_t>(session.units());
  std::vector<float> counts(units);
  std::vector<std::uint64_t> hash(units);
  std::vector<double> spikes(units);
  for (std::int64_t bin = 0; bin < session.bins(); ++bin) {
    session.counts(bin, counts);
    for (std::size_t u = 0; u < units; ++u) {
      spikes[u] += static_cast<double>(counts[u]);
      hash[u] = (hash[u] ^ std::bit_cast<std::uint32_t>(counts[u])) * 0x100000001B3U + 1;
    }
  }
  std::map<std::pair<std::uint64_t, double>, std::size_t> first;
  for (std::size_t u = 0; u < units; ++u) {
    if (spikes[u] <= 0) continue;
    const auto [at, is_new] = first.try_emplace({hash[u], spikes[u]}, u);
    const std::int64_t cid = session.cids()[u], other = session.cids()[at->second];
    if (is_new || cid == other) continue;  // skipped, because a repeated cid is reported elsewhere
    notices.push_back(short_name(*session.parts()[0].file) + ": /robs of cid " + std::to_string(cid) + " are those of cid " +
                      std::to_string(other) + ": the unit is learned twice; take one of them out of cids");
    return;
  }
}

// The standard deviation of each column over all bins.
std::vector<double> spread_of(const Session& session) {
  const auto columns = static_cast<std::size_t>(session.behavior_dim());
  std::vector<double> sum(columns), squares(columns), spread;
  // subtracted from all values, so that squares of large numbers do not lose digits
  const std::span<const float> origin = session.behavior(0);
  for (std::int64_t bin = 0; bin < session.bins(); ++bin) {
    const std::span<const float> row = session.behavior(bin);
    for (std::size_t c = 0; c < columns; ++c) {
      const auto value = static_cast<double>(row[c]) - static_cast<double>(origin[c]);
      sum[c] += value;
      squares[c] += value * value;
    }
  }
  const auto bins = static_cast<double>(session.bins());
  for (std::size_t c = 0; c < columns; ++c)
    spread.push_back(std::sqrt(std::max(squares[c] / bins - sum[c] / bins * (sum[c] / bins), 0.0)));
  return spread;
}

void look_at_behavior(const Sessions& sessions, std::vector<std::string>& notices) {
  const Session& first = *sessions.all.front();
  if (first.behavior_dim() == 0) return;
  const std::vector<double> usual = spread_of(first);
  for (const auto& session : sessions.all) {
    if (session == sessions.all.front()) continue;
    const std::vector<double> spread = spread_of(*session);
    for (std::size_t c = 0; c < spread.size(); ++c) {
      if (usual[c] == 0 || (spread[c] < kOtherSpread * usual[c] && spread[c] * kOtherSpread > usual[c])) continue;
      notices.push_back(short_name(*session->parts()[0].file) + ": number " + std::to_string(c) + " of behavior varies by " +
                        significant(spread[c], 3) + ", but in session " + first.name() + " by " + significant(usual[c], 3) +
                        ". Do both sessions use the same unit?");
      break;
    }
  }
}

// Compares the sessions' rates. A lag is one bin, so the same lag spans different times in sessions of different rates.
void look_at_rates(const Sessions& sessions, std::vector<std::string>& notices) {
  const Session& first = *sessions.all.front();
  for (const auto& session : sessions.all) {
    if (session->target_rate() == first.target_rate()) continue;
    notices.push_back("session " + session->name() + " is read at " + significant(session->target_rate(), 5) + " Hz, session " +
                      first.name() + " at " + significant(first.target_rate(), 5) +
                      ", so the same lags and filters span different times. Next: give all sessions one sampling.target_rate");
    return;
  }
}

}  // namespace

std::vector<std::string> look_at_sessions(const Sessions& sessions) {
  std::vector<std::string> notices;
  if (sessions.all.empty()) return notices;
  double parts = 0;
  for (const auto& session : sessions.all) parts += static_cast<double>(session->parts().size());
  for (const auto& session : sessions.all) {
    for (const SessionPart& part : session->parts())
      look_at_frames(part, frames_of(*session, part, kBytesOfAll / parts), notices);
    look_at_units(*session, notices);
  }
  look_at_behavior(sessions, notices);
  look_at_rates(sessions, notices);
  return notices;
}

}  // namespace millrace::recipes::neural_response
