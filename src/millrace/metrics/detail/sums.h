// Tensor helpers shared by the parts of a board.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace millrace::metrics::detail {

constexpr std::size_t kPerTerm = 3;          // sums of a term in a total
constexpr std::int64_t kMostClasses = 4096;  // 134 MB of counts
constexpr std::int64_t kAside = 3;           // cells after the counts: ignored labels, ids of no class, rows with a NaN
// Version 1 used a number where the metric is undefined.
constexpr int kMendedVersion = 2;
constexpr std::int64_t kExtremes = 4;  // see Board::Entry::parts

[[nodiscard]] at::Tensor zero_on(const at::Device& device);                             // a float scalar of the widest type
[[nodiscard]] at::Tensor integers_on(const at::Device& device, at::IntArrayRef sizes);  // zeros
void move_to(at::Tensor& total, const at::Device& device);                              // sums that reached a device stay there
[[nodiscard]] std::string type_text(const at::Tensor& value);                           // "i64"
[[nodiscard]] std::string shape_text(const at::Tensor& value);                          // "[8,10]"

// DataError with both shapes if they differ.
void check_shapes(std::string_view metric, const char* first, const at::Tensor& x, const char* second, const at::Tensor& y);
// RecipeError about the use of a board.
[[noreturn]] void refuse(std::string_view metric, const std::string& what, const std::string& next);

}  // namespace millrace::metrics::detail
