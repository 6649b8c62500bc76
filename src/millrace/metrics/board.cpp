#include "millrace/metrics/board.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>

#include <cmath>
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

void Board::add(std::string_view name, Reading reading, std::vector<at::Tensor> values) {
  Sums& entry = sums_[std::string(name)];
  entry.reading = reading;
  entry.parts.resize(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) accumulate(entry.parts[i], values[i]);
}

void Board::add(std::string_view name, const at::Tensor& sum, const at::Tensor& count) { add(name, Reading::mean, {sum, count}); }

void Board::add(std::string_view name, double sum, double count) {
  add(name, Reading::mean, {at::scalar_tensor(sum, at::kDouble), at::scalar_tensor(count, at::kDouble)});
}

void Board::add_log(std::string_view name, const at::Tensor& sum, const at::Tensor& count) {
  add(name, Reading::log_mean, {sum, count});
}

void Board::add(std::string_view name, const Loss& loss) {
  if (!loss.report) {
    add(name, loss.sum, loss.count);
  } else {
    add(name, loss.report->logarithm ? Reading::log_mean : Reading::mean, {loss.report->sum, loss.report->count});
  }
}

void Board::add_correlation(std::string_view name, const at::Tensor& x, const at::Tensor& y) {
  MR_CHECK(x.sizes() == y.sizes(), "a correlation is of two tensors of one shape");
  const auto wide = zero_on(x.device()).scalar_type();
  const at::Tensor a = x.detach().to(wide);
  const at::Tensor b = y.detach().to(wide);
  add(name, Reading::correlation,
      {at::scalar_tensor(static_cast<double>(x.numel()), at::kDouble), a.sum(), b.sum(), (a * a).sum(), (b * b).sum(),
       (a * b).sum()});
}

double Board::read(Reading reading, const double* value) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  if (reading == Reading::correlation) {
    const double n = value[0];
    const double spread = std::sqrt((n * value[3] - value[1] * value[1]) * (n * value[4] - value[2] * value[2]));
    return spread > 0 ? (n * value[5] - value[1] * value[2]) / spread : kNone;
  }
  if (value[1] == 0.0) return kNone;
  const double mean = value[0] / value[1];
  return reading == Reading::log_mean ? std::log(mean) : mean;
}

std::map<std::string, double> Board::means() const {
  std::map<std::string, double> means;
  if (sums_.empty()) return means;
  at::Device device = at::kCPU;  // the device read back from; sums on the CPU travel there first, which costs no wait
  for (const auto& [name, entry] : sums_) {
    for (const at::Tensor& part : entry.parts) {
      if (!part.is_cpu()) device = part.device();
    }
  }
  const at::TensorOptions options = zero_on(device).options();
  std::vector<at::Tensor> parts;
  for (const auto& [name, entry] : sums_) {
    for (const at::Tensor& part : entry.parts) parts.push_back(part.to(options, /*non_blocking=*/true));
  }
  const at::Tensor host = at::stack(parts).to(at::TensorOptions().dtype(at::kDouble).device(at::kCPU));
  const double* value = host.const_data_ptr<double>();
  for (const auto& [name, entry] : sums_) {
    means[name] = read(entry.reading, value);
    value += entry.parts.size();
  }
  return means;
}

// Means as {sum, count}; the others as {reading, sums}.
Json Board::state() const {
  Json state = Json::object();
  for (const auto& [name, entry] : sums_) {
    if (entry.reading == Reading::mean) {
      state[name] = {{"sum", entry.parts[0].item<double>()}, {"count", entry.parts[1].item<double>()}};
      continue;
    }
    Json sums = Json::array();
    for (const at::Tensor& part : entry.parts) sums.push_back(part.item<double>());
    state[name] = {{"reading", entry.reading == Reading::log_mean ? "log_mean" : "correlation"}, {"sums", std::move(sums)}};
  }
  return state;
}

void Board::load_state(const SavedJson& state) {
  sums_.clear();
  for (const auto& [name, entry] : state.members()) {
    if (const auto sum = entry.find("sum")) {
      add(name, sum->number(), entry["count"].number());
      continue;
    }
    const std::string reading = entry["reading"].text();
    if (reading != "log_mean" && reading != "correlation") entry["reading"].refuse("\"log_mean\" or \"correlation\"");
    const bool correlation = reading == "correlation";
    std::vector<at::Tensor> values;
    for (const SavedJson& value : entry["sums"].list(correlation ? 6 : 2))
      values.push_back(at::scalar_tensor(value.number(), at::kDouble));
    add(name, correlation ? Reading::correlation : Reading::log_mean, std::move(values));
  }
}

void Board::reset() { sums_.clear(); }

}  // namespace millrace::metrics
