#include "millrace/train/watch/skipped_inputs.h"

#include <algorithm>
#include <exception>
#include <map>

#include "millrace/base/clock.h"
#include "millrace/data/loader/odd_values.h"

namespace millrace {
namespace {

constexpr double kSecondsToReadAgain = 2, kShareToReadAgain = 0.02;

}  // namespace

struct SkippedInputs::Hit {
  std::pair<std::size_t, std::int64_t> sample;
  std::pair<std::size_t, std::string> field;
  std::uint64_t batch = 0;
  std::string text;
};

std::uint64_t SkippedInputs::sequence(const Json& at) const {
  return at.at("epoch").get<std::uint64_t>() * static_cast<std::uint64_t>(loader_.batches_per_epoch()) +
         at.at("next_batch").get<std::uint64_t>();
}

void SkippedInputs::begin(double skipped, const Json& at) {
  skipped_ = skipped;
  at_ = sequence(at);
  began_ = steady_seconds();
}

void SkippedInputs::read(std::uint64_t sequence, std::vector<Hit>& hits) const {
  const auto per_epoch = static_cast<std::uint64_t>(loader_.batches_per_epoch());
  const data::HostBatch batch = loader_.read_again(sequence / per_epoch, sequence % per_epoch);
  for (const data::NotFinite& found : data::not_finite_in(batch)) {
    const std::int64_t sample = batch.groups[found.group].indices[static_cast<std::size_t>(found.row)];
    hits.push_back({.sample = {found.group, sample},
                    .field = {found.group, found.field},
                    .batch = sequence,
                    .text = loader_.sample_label(found.group, sample) + ", " + data::to_text(found)});
  }
}

std::vector<std::string> SkippedInputs::look(double skipped, const Json& at) {
  const std::uint64_t from = at_, to = sequence(at);
  const double most_batches = (skipped - skipped_) * batches_per_step_;
  const bool looks = rose(skipped);
  at_ = to;
  skipped_ = skipped;
  if (!looks) return {};
  const double begin = steady_seconds();
  const double room = std::max(kSecondsToReadAgain, kShareToReadAgain * (begin - began_)) - spent_;
  std::vector<Hit> hits;
  try {
    for (std::uint64_t batch = from; batch < to && !missed_; ++batch) {
      missed_ = steady_seconds() - begin > room;
      if (!missed_) read(batch, hits);
    }
  } catch (const std::exception&) {  // there may be no memory for another batch
    missed_ = true;
  }
  spent_ += steady_seconds() - begin;
  seen_.all = !missed_;
  std::map<std::pair<std::size_t, std::string>, std::set<std::uint64_t>> batches;
  for (const Hit& hit : hits) batches[hit.field].insert(hit.batch);
  std::vector<std::string> lines;
  for (const Hit& hit : hits) {
    if (static_cast<double>(batches[hit.field].size()) > most_batches || !samples_.insert(hit.sample).second) continue;
    if (seen_.first.empty()) seen_.first = hit.text;
    lines.push_back(hit.text);
  }
  seen_.samples = std::ssize(samples_);
  return lines;
}

}  // namespace millrace
