#include <algorithm>
#include <cmath>

#include "millrace/base/field.h"
#include "millrace/base/format.h"
#include "millrace/picture/detail/layout.h"

namespace millrace::picture {
namespace detail {
namespace {

constexpr double kPanelTitle = 28;
constexpr double kYTicks = 62;  // width for the y ticks left of each panel
constexpr double kGap = 14;

std::size_t columns_of(std::size_t maps) { return maps == 4 ? 2 : std::min<std::size_t>(maps, 3); }

void check_axes(const std::string& name, const Map::Axes& axes) {
  check_axis(name, "x axis", axes.x, false);
  check_axis(name, "y axis", axes.y, false);
  for (const auto& [which, extent] : {std::pair("x", axes.x_extent), std::pair("y", axes.y_extent)}) {
    if (extent && (!std::isfinite(extent->first) || !std::isfinite(extent->last))) {
      refuse(name, std::string("has an ") + which + " extent that is not finite", "give two finite numbers, or leave it out");
    }
  }
}

void check(const Maps& what) {
  if (what.maps.empty()) refuse(what.name, "has no maps", "give it one map or more, or do not draw it");
  check_axis(what.name, "colour scale", what.value, false);
  check_axes(what.name, {what.x, what.y, what.x_extent, what.y_extent});
  for (const Map& map : what.maps) {
    if (map.axes) check_axes(what.name, *map.axes);
  }
  for (const Map& map : what.maps) {
    if (map.height < 1 || map.width < 1) {
      refuse(what.name,
             "has " + std::to_string(map.height) + " x " + std::to_string(map.width) + " values in map " + quoted(map.title),
             "remove the map: it has no values");
    }
    const std::optional<std::int64_t> count = element_count({map.height, map.width});
    if (count && *count == static_cast<std::int64_t>(map.values.size())) continue;
    refuse(what.name,
           "has " + std::to_string(map.values.size()) + " values in map " + quoted(map.title) + " of " +
               std::to_string(map.height) + " x " + std::to_string(map.width),
           "give height times width values, rows from the top");
  }
}

Range scale_of(const Maps& what, const Span& span) {
  if (what.value.limits) return *what.value.limits;
  if (what.colours == ColourMap::diverging) {
    const double far = std::max(std::abs(span.low), std::abs(span.high));
    return far > 0 ? Range{-far, far} : Range{-1, 1};
  }
  if (span.low < span.high) return {span.low, span.high};
  const double around = span.low == 0 ? 1 : std::abs(span.low) / 2;
  return {span.low - around, span.high + around};
}

void scale(const Maps& what, MapsLayout& layout) {
  Span shared;
  std::vector<Span> spans(what.maps.size());
  for (std::size_t i = 0; i < what.maps.size(); ++i) {
    for (const float value : what.maps[i].values) spans[i].add(value);
    if (spans[i].any()) {
      shared.add(spans[i].low);
      shared.add(spans[i].high);
    }
    layout.lost += spans[i].left_out;
    layout.all += spans[i].left_out + spans[i].used;
  }
  for (std::size_t i = 0; i < what.maps.size(); ++i) {
    const Range range = scale_of(what, what.shared_scale ? shared : spans[i]);
    layout.ranges.push_back(range);
    layout.outside += std::count_if(what.maps[i].values.begin(), what.maps[i].values.end(), [range](float value) {
      return std::isfinite(value) && (value < static_cast<float>(range.low) || value > static_cast<float>(range.high));
    });
  }
}

}  // namespace

MapsLayout layout_of(const Maps& what) {
  check(what);
  MapsLayout layout{.panels = {}, .ranges = {}, .top = Page::top(what.title)};
  scale(what, layout);
  const std::size_t columns = columns_of(what.maps.size());
  // The label of the y axis is to the left of the first column, or to the left of each column if maps have their own axes.
  const double beside_all = what.maps.front().axes ? 0 : kBesideAxis;
  const double slot = (kInner - beside_all - 10) / static_cast<double>(columns);
  const double left = kYTicks + kBesideAxis - beside_all;
  const double room = slot - left - kGap;
  double top = layout.top;
  for (std::size_t first = 0; first < what.maps.size(); first += columns) {
    double lowest = 0;
    for (std::size_t i = first; i < std::min(first + columns, what.maps.size()); ++i) {
      const Map& map = what.maps[i];
      Panel panel{.cells = {},
                  .fits = fits(map.height, map.width, room, std::min(room * 0.45, 180.0), std::min(room * 1.25, 620.0)),
                  .bar = {},
                  .first_column = i == first || map.axes};
      panel.cells = {std::round(kMargin + beside_all + slot * static_cast<double>(i - first) + left),
                     std::round(top + kPanelTitle), static_cast<double>(panel.fits.columns.pixels()),
                     static_cast<double>(panel.fits.rows.pixels())};
      double below = panel.cells.bottom() + kBelowAxis;
      if (!what.shared_scale) {
        panel.bar = {panel.cells.left, below + 6, std::max(panel.cells.width, std::min(room, 150.0)), kBarHeight};
        below += kBarHeight + 12;
      }
      lowest = std::max(lowest, below);
      layout.panels.push_back(panel);
    }
    top = lowest + 12;
  }
  layout.height = top - layout.top + (what.shared_scale ? kBarHeight + 8 : 0);
  return layout;
}

}  // namespace detail

namespace {

using namespace detail;

Ticks ticks_for(const Axis& axis, const std::optional<Extent>& extent, const Fit& fit, double length, bool up) {
  const auto cells = static_cast<double>(fit.cells);
  const double first = extent ? extent->first : 0;
  const double last = extent ? extent->last : cells - 1;
  const double step = cells > 1 && last != first ? (last - first) / (cells - 1) : 1;
  const double begin = first - step / 2;
  const double end = begin + step * static_cast<double>(fit.covered());
  const Range range{std::min(begin, end), std::max(begin, end)};
  Ticks ticks = up ? ticks_up(axis, range, length, !extent) : ticks_across(axis, range, length, !extent);
  if (!extent) {  // without an extent the axis shows indices, so marks are only at 0 to n - 1
    std::erase_if(ticks.marks, [cells](const Tick& tick) { return tick.value < 0 || tick.value > cells - 1; });
  }
  return ticks;
}

void draw_panel(Canvas& canvas, const Maps& what, const Map& map, const Panel& panel, const Range& range) {
  const Box& cells = panel.cells;
  const auto columns = static_cast<std::size_t>(panel.fits.columns.pixels() / panel.fits.columns.zoom);
  const auto rows = static_cast<std::size_t>(panel.fits.rows.pixels() / panel.fits.rows.zoom);
  std::vector<Colour> colours;  // one colour for each cell
  colours.reserve(columns * rows);
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t column = 0; column < columns; ++column) {
      const double value = mean_under(map.values, panel.fits, static_cast<std::int64_t>(row) * panel.fits.rows.zoom,
                                      static_cast<std::int64_t>(column) * panel.fits.columns.zoom);
      colours.push_back(colour_of(what.colours, (value - range.low) / (range.high - range.low)));
    }
  }
  canvas.pixels(cells, [&](std::int64_t row, std::int64_t column) {
    return colours[static_cast<std::size_t>(row / panel.fits.rows.zoom) * columns +
                   static_cast<std::size_t>(column / panel.fits.columns.zoom)];
  });
  const Map::Axes axes = map.axes.value_or(Map::Axes{what.x, what.y, what.x_extent, what.y_extent});
  const Ticks x = ticks_for(axes.x, axes.x_extent, panel.fits.columns, cells.width, false);
  const Ticks y = ticks_for(axes.y, axes.y_extent, panel.fits.rows, cells.height, true);
  draw_sides(canvas, cells,
             {.ticks = x, .axis = axes.x, .backwards = axes.x_extent && axes.x_extent->last < axes.x_extent->first},
             {.ticks = y,
              .axis = axes.y,
              .backwards = !axes.y_extent || axes.y_extent->last >= axes.y_extent->first,
              .labelled = panel.first_column},
             false);
  canvas.text(fitted(map.title, kTextSize, std::max(cells.width + 40, 150.0)), {cells.left, cells.top - 9});
  if (!what.shared_scale) draw_colour_bar(canvas, panel.bar, what.colours, what.value, range);
}

}  // namespace

Picture maps(const Maps& what) {
  const MapsLayout layout = layout_of(what);
  const std::string outside = layout.outside == 0 ? ""
                                                  : with_commas(layout.outside) + " of " + with_commas(layout.all) +
                                                        " values lie beyond the scale and have the colour of the scale's end.";
  Page page(what.name, what.title, sentences({what.caption, not_finite(layout.lost, layout.all, "grey"), outside}),
            layout.height);
  for (std::size_t i = 0; i < what.maps.size(); ++i) {
    draw_panel(page.canvas(), what, what.maps[i], layout.panels[i], layout.ranges[i]);
  }
  if (what.shared_scale) {
    const double left = layout.panels[0].cells.left;
    double right = left + 300;
    for (const Panel& panel : layout.panels) right = std::max(right, panel.cells.right());
    draw_colour_bar(page.canvas(), {left, layout.top + layout.height - kBarHeight - 6, right - left, kBarHeight}, what.colours,
                    what.value, layout.ranges[0]);
  }
  return page.picture();
}

}  // namespace millrace::picture
