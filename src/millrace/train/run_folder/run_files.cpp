#include "millrace/train/run_folder/run_files.h"

#include <charconv>

#include "millrace/base/format.h"

namespace millrace::run_files {
namespace {

constexpr std::string_view kMark = ".step-";
constexpr std::string_view kSuffix = ".png";

std::string digits_of(std::int64_t step) {
  std::string digits = std::to_string(step);
  digits.insert(0, digits.size() < 8 ? 8 - digits.size() : 0, '0');
  return digits;
}

}  // namespace

std::string picture_of_step(const std::string& name, std::int64_t step) {
  return std::string(kPictures) + "/" + name + std::string(kMark) + digits_of(step) + std::string(kSuffix);
}

std::string trace_of_step(std::int64_t step) { return std::string(kProfile) + "/step-" + digits_of(step) + ".pt.trace.json"; }

std::int64_t step_of_picture(const std::string& file) {
  const std::size_t mark = file.rfind(kMark);
  if (!file.starts_with(std::string(kPictures) + "/") || !file.ends_with(kSuffix) || mark == std::string::npos) return -1;
  const char* const begin = file.data() + mark + kMark.size();
  const char* const end = file.data() + file.size() - kSuffix.size();
  std::int64_t step = -1;
  const auto [rest, error] = std::from_chars(begin, end, step);
  return error == std::errc() && rest == end && begin < end ? step : -1;
}

}  // namespace millrace::run_files
