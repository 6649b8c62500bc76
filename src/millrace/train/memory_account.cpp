#include "millrace/train/memory_account.h"

#include <algorithm>

#include "millrace/base/format.h"

namespace millrace {
namespace {

constexpr double kWorthAWord = 0.01;  // of the peak

double as_double(std::uint64_t bytes) { return static_cast<double>(bytes); }

}  // namespace

std::vector<std::pair<std::string, std::uint64_t>> MemoryAccount::parts() const {
  return {{"weights", weights},         {"gradients", gradients}, {"optimizer", optimizer}, {"averages", averages},
          {"activations", activations}, {"loader", loader},       {"cache", cache},         {"snapshot", snapshot},
          {"scratch", scratch},         {"libraries", libraries}};
}

std::uint64_t MemoryAccount::of_tensors() const noexcept { return weights + gradients + optimizer + averages + activations; }

std::uint64_t MemoryAccount::sum() const noexcept { return of_tensors() + loader + cache + snapshot + scratch + libraries; }

Json MemoryAccount::to_json(std::uint64_t peak) const {
  Json json = Json::object();
  for (const auto& [name, bytes] : parts()) json[name] = bytes;
  json["sum"] = sum();
  json["peak"] = peak;
  json["rest"] = static_cast<std::int64_t>(peak) - static_cast<std::int64_t>(sum());
  return json;
}

std::string MemoryAccount::to_text(std::uint64_t peak) const {
  auto sorted = parts();
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (const auto& [name, bytes] : sorted) {
    if (as_double(bytes) >= kWorthAWord * as_double(peak))
      text += (text.empty() ? "" : ", ") + name + " " + human_bytes(as_double(bytes));
  }
  const double rest = peak == 0 ? 0 : (as_double(peak) - as_double(sum())) / as_double(peak);
  if (rest >= kWorthAWord) text += (text.empty() ? "rest " : ", rest ") + percent(rest);
  if (rest <= -kWorthAWord) text += "; together " + percent(-rest) + " more: not all at one time";
  return "peak memory " + human_bytes(as_double(peak)) + (text.empty() ? "" : ": " + text);
}

}  // namespace millrace
