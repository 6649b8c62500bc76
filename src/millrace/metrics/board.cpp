#include "millrace/metrics/board.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "millrace/base/error.h"

namespace millrace::metrics {

namespace {

constexpr std::size_t kPerTerm = 3;

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

std::string_view Board::word_of(Reading reading) {
  switch (reading) {
    case Reading::mean:
      return "mean";
    case Reading::log_mean:
      return "log_mean";
    case Reading::correlation:
      return "correlation";
    case Reading::total:
      return "total";
  }
  return "";
}

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
  const bool plain = loss.terms.size() == 1 && loss.terms.front().weight == 1.0;
  for (const LossTerm& term : loss.terms) {
    const at::Tensor& sum = term.report ? term.report->sum : term.sum;
    const at::Tensor& count = term.report ? term.report->count : term.count;
    const Reading reading = term.report && term.report->logarithm ? Reading::log_mean : Reading::mean;
    add(plain ? std::string(name) : std::string(name) + "/" + term.name, reading, {sum, count});
    if (!plain) add_to_total(name, term.name, reading, {sum, count, count.detach().to(at::kDouble) * term.weight});
  }
}

void Board::add_to_total(std::string_view name, std::string_view term, Reading reading, const std::vector<at::Tensor>& values) {
  Sums& entry = sums_[std::string(name)];
  entry.reading = Reading::total;
  const auto it = std::find(entry.terms.begin(), entry.terms.end(), term);
  const auto first = static_cast<std::size_t>(it - entry.terms.begin()) * kPerTerm;
  if (it == entry.terms.end()) {
    entry.terms.emplace_back(term);
    entry.readings.push_back(reading);
    entry.parts.resize(entry.parts.size() + kPerTerm);
  }
  for (std::size_t i = 0; i < kPerTerm; ++i) accumulate(entry.parts[first + i], values[i]);
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

double Board::read(const Sums& entry, const double* value) {
  if (entry.reading != Reading::total) return read(entry.reading, value);
  double total = std::numeric_limits<double>::quiet_NaN();
  for (std::size_t i = 0; i < entry.terms.size(); ++i, value += kPerTerm) {
    if (value[1] == 0.0) continue;
    const double part = value[2] / value[1] * read(entry.readings[i], value);
    total = std::isnan(total) ? part : total + part;
  }
  return total;
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
    means[name] = read(entry, value);
    value += entry.parts.size();
  }
  return means;
}

// Means as {sum, count}; the others as {reading, sums}, totals with their terms.
Json Board::state() const {
  Json state = Json::object();
  for (const auto& [name, entry] : sums_) {
    if (entry.reading == Reading::mean) {
      state[name] = {{"sum", entry.parts[0].item<double>()}, {"count", entry.parts[1].item<double>()}};
      continue;
    }
    Json sums = Json::array();
    for (const at::Tensor& part : entry.parts) sums.push_back(part.item<double>());
    state[name] = {{"reading", word_of(entry.reading)}, {"sums", std::move(sums)}};
    if (entry.reading != Reading::total) continue;
    Json terms = Json::array();
    for (std::size_t i = 0; i < entry.terms.size(); ++i)
      terms.push_back({{"name", entry.terms[i]}, {"reading", word_of(entry.readings[i])}});
    state[name]["terms"] = std::move(terms);
  }
  return state;
}

void Board::add_saved(std::string_view name, const SavedJson& saved) {
  if (const auto sum = saved.find("sum")) return add(name, sum->number(), saved["count"].number());
  const std::string word = saved["reading"].text();
  const auto reading_of = [](const SavedJson& where, const std::string& text) {
    if (text == "mean") return Reading::mean;
    if (text != "log_mean") where.refuse("\"mean\" or \"log_mean\"");
    return Reading::log_mean;
  };
  if (word != "log_mean" && word != "correlation" && word != "total")
    saved["reading"].refuse("\"log_mean\", \"correlation\" or \"total\"");
  std::vector<std::pair<std::string, Reading>> terms;
  if (word == "total") {
    for (const SavedJson& term : saved["terms"].list())
      terms.emplace_back(term["name"].text(), reading_of(term["reading"], term["reading"].text()));
  }
  const std::size_t count = word == "total" ? kPerTerm * terms.size() : word == "correlation" ? 6 : 2;
  std::vector<at::Tensor> values;
  for (const SavedJson& value : saved["sums"].list(count)) values.push_back(at::scalar_tensor(value.number(), at::kDouble));
  if (word != "total") return add(name, word == "correlation" ? Reading::correlation : Reading::log_mean, std::move(values));
  for (std::size_t i = 0; i < terms.size(); ++i) {
    const auto first = values.begin() + static_cast<std::ptrdiff_t>(kPerTerm * i);
    add_to_total(name, terms[i].first, terms[i].second, {first, first + kPerTerm});
  }
}

void Board::load_state(const SavedJson& state) {
  sums_.clear();
  for (const auto& [name, entry] : state.members()) add_saved(name, entry);
}

void Board::sum_over(Agreement& agreement) {
  if (agreement.alone()) return;
  const std::vector<Json> all = agreement.gather(state());
  sums_.clear();
  for (const Json& one : all) {
    const SavedJson saved(one, "metrics of another rank");
    for (const auto& [name, entry] : saved.members()) add_saved(name, entry);
  }
}

void Board::reset() { sums_.clear(); }

}  // namespace millrace::metrics
