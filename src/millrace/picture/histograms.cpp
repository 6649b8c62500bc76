#include <algorithm>
#include <cmath>

#include "millrace/base/format.h"
#include "millrace/picture/detail/page.h"

namespace millrace::picture {
namespace {

using namespace detail;

constexpr double kHistogramHeight = 380;
constexpr std::int64_t kMostBins = 400;

void check(const Histograms& what) {
  if (what.series.empty()) refuse(what.name, "has no values", "give it one series or more, or do not draw it");
  for (const Histograms::Sampled& sampled : what.series) {
    if (sampled.values.empty()) refuse(what.name, "has no values in series " + quoted(sampled.name), "remove the series");
  }
  if (what.bins < 0 || what.bins > kMostBins) {
    refuse(what.name, "has " + std::to_string(what.bins) + " bins",
           "give 1 to " + std::to_string(kMostBins) + ", or 0 for a number that fits the values");
  }
  check_axis(what.name, "x axis", what.x, false);
}

struct Binned {
  Range range;
  std::vector<std::vector<std::int64_t>> counts;  // for each series, the counts of its bins
  std::int64_t lost = 0, outside = 0, all = 0, greatest = 0;
};

Binned binned(const Histograms& what) {
  Binned result;
  Span span;
  std::size_t largest = 0;
  for (const Histograms::Sampled& sampled : what.series) {
    for (const float value : sampled.values) span.add(value);
    largest = std::max(largest, sampled.values.size());
  }
  result.lost = span.left_out;
  result.all = span.left_out + span.used;
  const auto rice = static_cast<std::int64_t>(std::ceil(2 * std::cbrt(static_cast<double>(largest))));
  const bool constant = !what.x.limits && span.low == span.high;
  const auto bins = static_cast<std::size_t>(what.bins > 0 ? what.bins : constant ? 1 : std::clamp<std::int64_t>(rice, 4, 100));
  const double around = span.low == 0 ? 0.5 : std::abs(span.low) / 2;
  result.range = what.x.limits ? *what.x.limits
                 : constant    ? Range{span.low - around, span.high + around}
                               : Range{span.low, span.high};
  const double width = result.range.high - result.range.low;
  for (const Histograms::Sampled& sampled : what.series) {
    auto& counts = result.counts.emplace_back(bins, 0);
    for (const double value : sampled.values) {
      if (!std::isfinite(value)) continue;
      const double place = (value - result.range.low) / width;
      if (place < 0 || place > 1) {
        ++result.outside;
        continue;
      }
      const auto bin = std::min(bins - 1, static_cast<std::size_t>(place * static_cast<double>(bins)));
      result.greatest = std::max(result.greatest, ++counts[bin]);
    }
  }
  return result;
}

// Draws the bars' areas, or the line around them. All areas are drawn first, so that they hide no line.
void draw_bars(Canvas& canvas, const Box& box, const std::vector<std::int64_t>& counts, const Ticks& y, std::size_t series,
               bool areas) {
  const Colour colour = line_colour(series);
  std::vector<Point> outline{{box.left, box.bottom()}};
  for (std::size_t bin = 0; bin < counts.size(); ++bin) {
    const auto bins = static_cast<double>(counts.size());
    const double left = std::round(box.left + box.width * static_cast<double>(bin) / bins);
    const double right = std::round(box.left + box.width * static_cast<double>(bin + 1) / bins);
    const double share = counts[bin] == 0 ? 0 : std::clamp(y.share(static_cast<double>(counts[bin])), 0.0, 1.0);
    const double top = std::round(box.bottom() - share * box.height);
    if (areas) canvas.fill({left, top, right - left, box.bottom() - top}, colour, 0.35);
    outline.push_back({left, top});
    outline.push_back({right, top});
  }
  outline.push_back({box.right(), box.bottom()});
  if (!areas) canvas.path(outline, {.colour = colour, .width = 2, .dashed = series >= 8}, box);
}

}  // namespace

Picture histograms(const Histograms& what) {
  check(what);
  const Binned bins = binned(what);
  std::vector<std::string> names;
  for (const Histograms::Sampled& sampled : what.series) names.push_back(sampled.name);
  const Legend legend = legend_of(names.size() == 1 && names[0].empty() ? std::vector<std::string>{} : names);
  const Axis counts{.label = "values in a bin", .logarithmic = what.log_counts};
  const auto greatest = static_cast<double>(std::max<std::int64_t>(bins.greatest, 1));
  const Ticks y =
      ticks_up(counts, {what.log_counts ? 0.7 : 0, greatest * (what.log_counts ? 1.3 : 1.05)}, kHistogramHeight, true);
  const double left = std::ceil(kMargin + kBesideAxis + widest(y) + 8);
  const Box box{left, std::ceil(Page::top(what.title) + legend.height + 6), std::floor(kWidth - kMargin - 16 - left),
                kHistogramHeight};
  const Ticks x = ticks_across(what.x, bins.range, box.width);
  const std::string outside =
      bins.outside == 0 ? "" : with_commas(bins.outside) + " of " + with_commas(bins.all) + " values lie outside the axis.";
  Page page(what.name, what.title, sentences({what.caption, not_finite(bins.lost, bins.all, "left out"), outside}),
            legend.height + 6 + kHistogramHeight + kBelowAxis + 6);
  Canvas& canvas = page.canvas();
  draw_legend(canvas, legend, Page::top(what.title), true);
  draw_sides(canvas, box, {.ticks = x, .axis = what.x}, {.ticks = y, .axis = counts}, true);
  for (const bool areas : {true, false}) {
    for (std::size_t i = 0; i < bins.counts.size(); ++i) draw_bars(canvas, box, bins.counts[i], y, i, areas);
  }
  return page.picture();
}

}  // namespace millrace::picture
