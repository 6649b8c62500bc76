#include "millrace/train/step/timed_agreement.h"

#include <optional>
#include <utility>

#include "millrace/core/gradient_sums.h"

namespace millrace {

// Calls `call` and records its time. Only calls of the loop's thread are timed. A batch norm on a GPU calls from autograd's
// thread, which has no account.
template <class Call>
auto TimedAgreement::on_account(Call call) {
  std::optional<telemetry::Span> span;
  if (std::this_thread::get_id() == loop_ && timeline_.phase() != telemetry::Phase::startup)
    span.emplace(timeline_, telemetry::Phase::reduction);
  return call();
}

std::vector<Json> TimedAgreement::gather(Json mine) {
  return on_account([&] { return inner_.gather(std::move(mine)); });
}

void TimedAgreement::sum(std::vector<at::Tensor>& values) {
  on_account([&] { inner_.sum(values); });
}

void TimedAgreement::share(std::vector<at::Tensor>& values, const std::vector<int>& owners) {
  on_account([&] { inner_.share(values, owners); });
}

std::unique_ptr<GradientSums> TimedAgreement::gradient_sums(const std::vector<at::Tensor>& parameters,
                                                            const GradientSumsOptions& options) {
  return on_account([&] { return inner_.gradient_sums(parameters, options); });
}

Chosen<std::string> TimedAgreement::use_device(at::Device device, const std::string& wish) {
  return on_account([&] { return inner_.use_device(device, wish); });
}

}  // namespace millrace
