#include "millrace/metrics/board.h"

#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>

#include <limits>
#include <vector>

#include "millrace/base/error.h"

namespace millrace::metrics {

namespace {

// Double where the device has it: long runs of small addends would drown in a float sum.
at::Tensor zero_on(const at::Device& device) {
  const auto dtype = device.is_cpu() || device.is_cuda() ? at::kDouble : at::kFloat;
  return at::scalar_tensor(0.0, at::TensorOptions().dtype(dtype).device(device));
}

void accumulate(at::Tensor& total, const at::Tensor& value) {
  MR_CHECK(value.defined() && value.numel() == 1, "a board adds up scalars");
  const at::Tensor scalar = value.detach().reshape({});
  if (!total.defined()) total = zero_on(scalar.device());
  if (total.device() != scalar.device() && !scalar.device().is_cpu()) {
    total = total.to(scalar.device(), scalar.is_cuda() ? at::kDouble : at::kFloat, /*non_blocking=*/true);
  }
  total.add_(scalar.to(total.options(), /*non_blocking=*/true));
}

}  // namespace

void Board::add(std::string_view name, const at::Tensor& sum, const at::Tensor& count) {
  Sum& entry = sums_[std::string(name)];
  accumulate(entry.sum, sum);
  accumulate(entry.count, count);
}

void Board::add(std::string_view name, double sum, double count) {
  Sum& entry = sums_[std::string(name)];
  accumulate(entry.sum, at::scalar_tensor(sum, at::kDouble));
  accumulate(entry.count, at::scalar_tensor(count, at::kDouble));
}

std::map<std::string, double> Board::means() const {
  std::map<std::string, double> means;
  if (sums_.empty()) return means;
  at::Device device = at::kCPU;  // the device read back from; sums on the CPU travel there first, which costs no wait
  for (const auto& [name, entry] : sums_) {
    if (!entry.sum.is_cpu()) device = entry.sum.device();
    if (!entry.count.is_cpu()) device = entry.count.device();
  }
  const at::TensorOptions options = zero_on(device).options();
  std::vector<at::Tensor> parts;
  for (const auto& [name, entry] : sums_) {
    parts.push_back(entry.sum.to(options, /*non_blocking=*/true));
    parts.push_back(entry.count.to(options, /*non_blocking=*/true));
  }
  const at::Tensor host = at::stack(parts).to(at::TensorOptions().dtype(at::kDouble).device(at::kCPU));
  const double* value = host.const_data_ptr<double>();
  for (const auto& [name, entry] : sums_) {
    means[name] = value[1] == 0.0 ? std::numeric_limits<double>::quiet_NaN() : value[0] / value[1];
    value += 2;
  }
  return means;
}

Json Board::state() const {
  Json state = Json::object();
  for (const auto& [name, entry] : sums_)
    state[name] = {{"sum", entry.sum.item<double>()}, {"count", entry.count.item<double>()}};
  return state;
}

void Board::load_state(const Json& state) {
  sums_.clear();
  for (const auto& [name, entry] : state.items()) {
    if (entry.is_object() && entry.contains("sum") && entry.contains("count") && entry["sum"].is_number() &&
        entry["count"].is_number()) {
      add(name, entry["sum"].get<double>(), entry["count"].get<double>());
    }
  }
}

void Board::reset() { sums_.clear(); }

}  // namespace millrace::metrics
