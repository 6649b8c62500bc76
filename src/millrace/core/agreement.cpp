#include "millrace/core/agreement.h"

#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <utility>

#include "millrace/core/gradient_sums.h"

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

std::unique_ptr<GradientSums> Agreement::gradient_sums(const std::vector<at::Tensor>& /*parameters*/,
                                                       const GradientSumsOptions& /*options*/) {
  return nullptr;
}

Chosen<std::string> Agreement::use_device(at::Device /*device*/, const std::string& /*wish*/) { return {}; }

// Adds up the values over the ranks. A rank that does not own a value contributes zeros, and adding zeros changes no byte.
void Agreement::share(std::vector<at::Tensor>& values, const std::vector<int>& owners) {
  if (alone()) return;
  std::vector<at::Tensor> bytes;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool own = owners[i] == ranks().rank;
    const at::Tensor whole = values[i].detach().contiguous();
    bytes.push_back((own ? whole.clone() : at::zeros_like(whole)).reshape({-1}).view(at::kByte));
  }
  sum(bytes);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (owners[i] != ranks().rank) values[i].detach().copy_(bytes[i].view(values[i].scalar_type()).reshape(values[i].sizes()));
  }
}

void Agreement::mean(std::vector<at::Tensor>& values) {
  if (alone()) return;
  sum(values);
  for (const at::Tensor& value : values) value.detach().mul_(1.0 / ranks().world_size);
}

void Agreement::in_turn(const std::function<void()>& work) {
  const bool first = ranks().local_rank == 0;
  if (first) work();
  meet();
  if (!first) work();
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
