#include "millrace/kernels/detail/dropout_layout.h"

#include <algorithm>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/kernels/arguments.h"
#include "millrace/kernels/device_table.h"
#include "millrace/kernels/parallel.h"

namespace millrace::kernels {
namespace {

detail::DropoutArgs at_stretch(detail::DropoutArgs args, const DropoutRun& stretch) {
  args.x = moved(args.x, stretch.begin, args.x_type);
  args.residual = moved(args.residual, stretch.begin, args.out_type);
  args.out = moved(args.out, stretch.begin, args.out_type);
  return args;
}

detail::GeluArgs at_stretch(detail::GeluArgs args, const DropoutRun& stretch) {
  args.x = moved(args.x, stretch.begin, args.type);
  args.gradient = moved(args.gradient, stretch.begin, args.type);
  args.out = moved(args.out, stretch.begin, args.type);
  return args;
}

// Calls the kernel for all elements of a tensor. Each DropoutRun is cut into groups of kDropoutGroup elements, and each thread
// gets a share of all groups.
template <class Args>
void over_groups(const Args& whole, const Dropout& site, void (*kernel)(const Args&, std::int64_t, std::int64_t)) {
  const std::vector<DropoutRun> stretches = dropout_runs(site, whole.count);
  std::vector<std::int64_t> ends;  // for each run, the number of groups up to the run's end
  ends.reserve(stretches.size());
  std::int64_t groups = 0;
  for (const DropoutRun& stretch : stretches) ends.push_back(groups += (stretch.count + kDropoutGroup - 1) / kDropoutGroup);
  parallel(groups, [&](std::int64_t begin, std::int64_t end) {
    auto i = static_cast<std::size_t>(std::ranges::upper_bound(ends, begin) - ends.begin());
    for (; begin < end; ++i) {
      const std::int64_t before = i == 0 ? 0 : ends[i - 1], until = std::min(end, ends[i]);
      Args args = at_stretch(whole, stretches[i]);
      args.count = stretches[i].count;
      args.keep = keep_of(site);
      args.keep.first = stretches[i].first;
      kernel(args, begin - before, until - before);
      begin = until;
    }
  });
}

}  // namespace

std::vector<DropoutRun> dropout_runs(const Dropout& site, std::int64_t elements) {
  if (site.runs.empty() || site.p <= 0.0) return {{.begin = 0, .count = elements, .first = site.first}};
  std::vector<DropoutRun> all;
  std::int64_t begin = 0;
  for (const IndexRun& run : site.runs) {
    all.push_back({.begin = begin, .count = run.count, .first = run.first});
    begin += run.count;
  }
  MR_CHECK(begin == elements, "a dropout site's runs must cover all elements of its tensor");
  return all;
}

Dropout part_of(const Dropout& site, std::int64_t elements, std::int64_t begin, std::int64_t count) {
  MR_CHECK(site.on_device == nullptr || count == elements, "a device can record dropout only for whole tensors");
  Dropout part{.p = site.p, .key = site.key, .first = site.first + begin, .runs = {}, .on_device = site.on_device};
  if (site.runs.empty() || site.p <= 0.0) return part;
  for (const DropoutRun& stretch : dropout_runs(site, elements)) {
    const std::int64_t from = std::max(begin, stretch.begin), to = std::min(begin + count, stretch.begin + stretch.count);
    if (from < to) part.runs.push_back({stretch.first + from - stretch.begin, to - from});
  }
  return part;
}

namespace {

template <class Args>
void launch_runs(const Args& whole, const Dropout& site, void (*launch)(const Args&, DeviceTable::Site, c10::DeviceIndex),
                 c10::DeviceIndex index) {
  each_run(site, whole.count, [&](const DropoutRun& stretch, DeviceTable::Site recorded) {
    Args args = at_stretch(whole, stretch);
    args.count = stretch.count;
    args.keep = keep_of(site);
    args.keep.first = stretch.first;
    launch(args, recorded, index);
  });
}

const DeviceTable& table_of(c10::Device device) {
  const DeviceTable* table = device_table(device.type());
  MR_CHECK(table != nullptr, "a device without kernels of Millrace must use the plain path");
  return *table;
}

}  // namespace

void each_run(const Dropout& site, std::int64_t elements,
              const std::function<void(const DropoutRun&, const detail::RecordedSite*)>& body) {
  const auto* recorded = static_cast<const detail::RecordedSite*>(site.on_device);
  for (const DropoutRun& stretch : dropout_runs(site, elements)) body(stretch, recorded == nullptr ? nullptr : recorded++);
}

void run_dropout(const detail::DropoutArgs& args, const Dropout& site, c10::Device device) {
  if (device.is_cpu()) return over_groups(args, site, detail::table().dropout);
  launch_runs(args, site, table_of(device).dropout, device.index());
}

void run_gelu(const detail::GeluArgs& args, const Dropout& site, c10::Device device) {
  if (device.is_cpu()) return over_groups(args, site, detail::table().gelu);
  launch_runs(args, site, table_of(device).gelu, device.index());
}

DropoutUnits::DropoutUnits(const Dropout& site, std::int64_t units, std::int64_t width)
    : keep_(keep_of(site)),
      width_(std::max<std::int64_t>(width, 1)),  // at least 1, because each() divides by the width; units of length 0 have no
                                                 // elements
      stretches_(dropout_runs(site, units * width)) {
  for (const DropoutRun& stretch : stretches_)
    MR_CHECK(stretches_.size() == 1 || stretch.count % width_ == 0, "a run of a dropout site must consist of whole rows");
}

void DropoutUnits::each(std::int64_t begin, std::int64_t end,
                        const std::function<void(const detail::Keep&, std::int64_t, std::int64_t)>& body) const {
  if (stretches_.size() == 1) return body(keep_, begin, end);
  for (const DropoutRun& stretch : stretches_) {
    const std::int64_t from = std::max(begin, stretch.begin / width_),
                       to = std::min(end, (stretch.begin + stretch.count) / width_);
    if (from >= to) continue;
    detail::Keep keep = keep_;
    keep.first = stretch.first - stretch.begin;
    body(keep, from, to);
  }
}

}  // namespace millrace::kernels
