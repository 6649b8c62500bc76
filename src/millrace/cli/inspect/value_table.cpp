#include "millrace/cli/inspect/value_table.h"

#include <cmath>

#include "millrace/base/format.h"

namespace millrace::cli {
namespace {

Json number_or_none(double value) { return std::isnan(value) ? Json() : std::isinf(value) ? Json(fixed(value, 0)) : Json(value); }

std::string cell(const Json& value) {
  if (value.is_null()) return "-";
  if (value.is_string()) return value.get<std::string>();
  return value.is_number_float() ? significant(value.get<double>(), 6) : value.dump();
}

}  // namespace

Json value_json(const std::string& name, const Shape& shape, const ValueSummary& summary) {
  return {{"name", name},
          {"dtype", name_of(summary.dtype)},
          {"shape", shape},
          {"count", summary.count},
          {"least", summary.least},
          {"greatest", summary.greatest},
          {"mean", number_or_none(summary.mean)},
          {"deviation", number_or_none(summary.deviation)},
          {"nan", summary.nans},
          {"infinite", summary.infinities},
          {"different", summary.distinct ? Json(*summary.distinct) : Json()}};
}

std::vector<std::vector<std::string>> value_rows(const std::string& first, const std::vector<Json>& values) {
  std::vector<std::vector<std::string>> rows = {
      {first, "dtype", "shape", "least", "greatest", "mean", "deviation", "NaN", "infinite", "different"}};
  for (const Json& value : values) {
    const auto dtype = value["dtype"].get<std::string>();
    const bool is_whole = dtype[0] == 'i' || dtype[0] == 'u' || dtype == "bool";
    const std::string many = "over " + with_commas(kMostDistinct);
    rows.push_back({value["name"].get<std::string>(), dtype, to_text(value["shape"].get<Shape>()), cell(value["least"]),
                    cell(value["greatest"]), cell(value["mean"]), cell(value["deviation"]),
                    with_commas(value["nan"].get<std::int64_t>()), with_commas(value["infinite"].get<std::int64_t>()),
                    is_whole && value["different"].is_null() ? many : cell(value["different"])});
  }
  return rows;
}

}  // namespace millrace::cli
