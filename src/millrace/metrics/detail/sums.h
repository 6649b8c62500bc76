// Tensor helpers shared by the parts of a board.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace millrace::metrics::detail {

constexpr std::size_t kPerTerm = 3;          // number of sums of each term in a total
constexpr std::int64_t kMostClasses = 4096;  // the counts of this number of classes take 134 MB
constexpr std::int64_t kAside = 3;           // cells after the counts: ignored labels, ids that are not a class, rows with a NaN
// The version of metrics that were corrected. Version 1 gave a number where such a metric is undefined.
constexpr int kMendedVersion = 2;
constexpr std::int64_t kExtremes = 4;  // the largest of -label, label, -id and id (Board::Entry::parts)

// A scalar of the widest float type that the device has.
[[nodiscard]] at::Tensor zero_on(const at::Device& device);
[[nodiscard]] at::Tensor integers_on(const at::Device& device, at::IntArrayRef sizes);  // zeros
// Moves sums from the CPU to `device`. Does nothing if `device` is the CPU or holds the sums already.
void move_to(at::Tensor& total, const at::Device& device);
[[nodiscard]] std::string type_text(const at::Tensor& value);   // for example "i64"
[[nodiscard]] std::string shape_text(const at::Tensor& value);  // for example "[8,10]"

// Throws DataError with both shapes if x and y differ in shape.
void check_shapes(std::string_view metric, const char* first, const at::Tensor& x, const char* second, const at::Tensor& y);
// Throws a RecipeError about the use of a board.
[[noreturn]] void refuse(std::string_view metric, const std::string& what, const std::string& next);

}  // namespace millrace::metrics::detail
