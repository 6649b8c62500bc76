#include "millrace/core/agreement.h"

#include <algorithm>
#include <utility>

namespace millrace {
namespace {

class OneProcess final : public Agreement {
 public:
  [[nodiscard]] Ranks ranks() const override { return {}; }
  [[nodiscard]] std::vector<Json> gather(Json mine) override { return {std::move(mine)}; }
  void sum(std::vector<at::Tensor>&) override {}
};

}  // namespace

Agreement& Agreement::of_one() noexcept {
  static OneProcess one;
  return one;
}

bool Agreement::any(bool mine) {
  if (alone()) return mine;
  return std::ranges::any_of(gather(mine), [](const Json& one) { return one.get<bool>(); });
}

Json Agreement::from_root(Json mine) { return alone() ? mine : gather(std::move(mine)).front(); }

std::int64_t Agreement::sum(std::int64_t mine) {
  if (alone()) return mine;
  std::int64_t all = 0;
  for (const Json& one : gather(mine)) all += one.get<std::int64_t>();
  return all;
}

}  // namespace millrace
