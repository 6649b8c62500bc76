#include "millrace/train/watch/skipped_inputs.h"

#include <ATen/ops/isfinite.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <iterator>
#include <map>
#include <utility>

#include "millrace/base/clock.h"
#include "millrace/data/loader/odd_values.h"

namespace millrace {
namespace {

constexpr double kSecondsToReadAgain = 2, kShareToReadAgain = 0.02;

// Describes the rows of `values` that hold a value which is not finite. `bad` is true where `values` is not finite.
std::vector<data::NotFinite> rows_of(const at::Tensor& bad, const at::Tensor& values, const std::string& field) {
  std::vector<data::NotFinite> found;
  const at::Tensor rows = bad.reshape({bad.size(0), -1}).sum(1);
  for (std::int64_t row = 0; row < rows.size(0); ++row) {
    const auto count = rows[row].item<std::int64_t>();
    if (count == 0) continue;
    const at::Tensor places = bad[row].nonzero();
    data::NotFinite one{.row = row, .field = field, .count = count, .of = values.numel() / values.size(0), .first = {}};
    at::Tensor value = values[row];
    for (std::int64_t d = 0; d < places.size(1); ++d) {
      one.first.push_back(places[0][d].item<std::int64_t>());
      value = value[one.first.back()];
    }
    const auto number = value.to(at::kCPU).item<c10::complex<double>>();
    one.value = std::isfinite(number.real()) ? number.imag() : number.real();
    found.push_back(std::move(one));
  }
  return found;
}

}  // namespace

struct SkippedInputs::Hit {
  std::pair<std::size_t, std::int64_t> sample;
  std::pair<std::size_t, std::string> field;
  std::uint64_t batch = 0;
  std::string text;
  bool prepared = false;
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

void SkippedInputs::read(std::uint64_t sequence, const BatchContext& context, std::vector<Hit>& hits) const {
  const auto per_epoch = static_cast<std::uint64_t>(loader_.batches_per_epoch());
  data::HostBatch batch = loader_.read_again(sequence / per_epoch, sequence % per_epoch);
  const std::vector<data::NotFinite> all = data::not_finite_in(batch);
  for (const data::NotFinite& found : all) {
    const std::int64_t sample = batch.groups[found.group].indices[static_cast<std::size_t>(found.row)];
    hits.push_back({.sample = {found.group, sample},
                    .field = {found.group, found.field},
                    .batch = sequence,
                    .text = loader_.sample_label(found.group, sample) + ", " + data::to_text(found)});
  }
  if (!all.empty()) return;  // prepare() is not run, because its input already has the values that are not finite
  for_each_micro_batch(context, std::move(batch),
                       [&](const Batch& prepared, MicroPosition) { look_at_prepared(prepared, sequence, hits); });
}

void SkippedInputs::look_at_prepared(const Batch& batch, std::uint64_t sequence, std::vector<Hit>& hits) const {
  for (std::size_t g = 0; g < batch.groups().size(); ++g) {
    const Group& group = batch.groups()[g];
    for (const auto& [name, tensor] : group.fields) {
      if (tensor.dim() == 0 || tensor.numel() == 0 || !(tensor.is_floating_point() || tensor.is_complex())) continue;
      const at::Tensor bad = at::isfinite(tensor.detach()).logical_not();
      const bool by_sample = tensor.size(0) == group.rows() && std::ssize(group.indices) == group.rows();
      for (const data::NotFinite& found : rows_of(bad.to(at::kCPU), tensor, name + " after prepare()")) {
        const std::int64_t sample = by_sample ? group.indices[static_cast<std::size_t>(found.row)] : -1;
        hits.push_back(
            {.sample = {g, sample},
             .field = {g, found.field},
             .batch = sequence,
             .text = (by_sample ? loader_.sample_label(g, sample) : to_text(batch.origin())) + ", " + data::to_text(found),
             .prepared = true});
      }
    }
  }
}

std::vector<std::string> SkippedInputs::look(double skipped, const Json& at, const BatchContext& context) {
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
      if (!missed_) read(batch, context, hits);
    }
  } catch (const std::exception&) {  // ignored: there may be no memory for another batch
    missed_ = true;
  }
  spent_ += steady_seconds() - begin;
  seen_.all = !missed_;
  std::map<std::pair<std::size_t, std::string>, std::set<std::uint64_t>> batches;
  for (const Hit& hit : hits) batches[hit.field].insert(hit.batch);
  std::vector<std::string> lines;
  for (const Hit& hit : hits) {
    if (static_cast<double>(batches[hit.field].size()) > most_batches || !samples_.insert(hit.sample).second) continue;
    if (seen_.first.empty() || (seen_.prepared && !hit.prepared)) {
      seen_.first = hit.text;
      seen_.prepared = hit.prepared;
    }
    lines.push_back(hit.text);
  }
  seen_.samples = std::ssize(samples_);
  return lines;
}

}  // namespace millrace
