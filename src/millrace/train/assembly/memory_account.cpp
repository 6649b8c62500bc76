#include "millrace/train/assembly/memory_account.h"

#include <algorithm>

#include "millrace/base/format.h"

namespace millrace {
namespace {

constexpr double kSmallestShare = 0.01;  // a part is listed if it is at least this share of the peak

constexpr std::ptrdiff_t kOfTensors = 5;  // the number of parts that consist of tensors; they are the first in parts()

double as_double(std::uint64_t bytes) { return static_cast<double>(bytes); }

// "weights 12 MB, optimizer 4.0 MB": the parts that are a large enough share of `whole`.
std::string largest_of(std::vector<std::pair<std::string, std::uint64_t>> parts, std::uint64_t whole) {
  std::stable_sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (const auto& [name, bytes] : parts) {
    if (as_double(bytes) >= kSmallestShare * as_double(whole))
      text += (text.empty() ? "" : ", ") + name + " " + human_bytes(as_double(bytes));
  }
  return text;
}

}  // namespace

std::vector<std::pair<std::string, std::uint64_t>> MemoryAccount::parts() const {
  return {{"weights", weights},         {"gradients", gradients}, {"optimizer", optimizer}, {"averages", averages},
          {"activations", activations}, {"loader", loader},       {"cache", cache},         {"snapshot", snapshot},
          {"scratch", scratch},         {"libraries", libraries}};
}

std::uint64_t MemoryAccount::of_tensors() const noexcept { return weights + gradients + optimizer + averages + activations; }

std::uint64_t MemoryAccount::sum() const noexcept {
  return (on_gpu ? 0 : of_tensors()) + loader + cache + snapshot + scratch + libraries;
}

Json MemoryAccount::to_json(std::uint64_t peak) const {
  Json json = Json::object();
  for (const auto& [name, bytes] : parts()) json[name] = bytes;
  json["sum"] = sum();
  json["peak"] = peak;
  json["rest"] = static_cast<std::int64_t>(peak) - static_cast<std::int64_t>(sum());
  if (on_gpu) json["gpu"] = of_tensors();
  return json;
}

std::string MemoryAccount::to_text(std::uint64_t peak) const {
  auto all = parts();
  const auto host_begins = all.begin() + (on_gpu ? kOfTensors : 0);
  std::string text = largest_of({host_begins, all.end()}, peak);
  std::string of_gpu;
  if (on_gpu) {
    of_gpu = "GPU memory " + human_bytes(as_double(of_tensors()));
    if (const std::string most = largest_of({all.begin(), host_begins}, of_tensors()); !most.empty()) of_gpu += ": " + most;
    of_gpu += "; ";
  }
  const double rest = peak == 0 ? 0 : (as_double(peak) - as_double(sum())) / as_double(peak);
  if (rest >= kSmallestShare) text += (text.empty() ? "rest " : ", rest ") + percent(rest);
  if (rest <= -kSmallestShare) text += "; their sum is " + percent(-rest) + " larger, because the parts peak at different times";
  return of_gpu + "peak memory " + human_bytes(as_double(peak)) + (text.empty() ? "" : ": " + text);
}

}  // namespace millrace
