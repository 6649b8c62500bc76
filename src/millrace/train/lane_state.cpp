// What of a lane is saved and put back, and what lanes of several ranks add up.
#include <set>
#include <string_view>

#include "millrace/base/error.h"
#include "millrace/base/field.h"
#include "millrace/train/lane_sums.h"

namespace millrace {
namespace {

bool is_own(std::string_view name) { return name.find('.') == std::string_view::npos; }

// The first parameter's gradient and so on; zeros where a rank has none.
at::Tensor or_zeros(const at::Tensor& gradient, const at::Tensor& parameter) {
  return gradient.defined() ? gradient : at::zeros_like(parameter);
}

}  // namespace

// All ranks then hold the same terms and passes in the same order, each gradient the sum of weight * gradient of a term's sum.
void Lane::sum_over(Agreement& agreement) {
  if (agreement.alone()) return;
  Sums& sums = *sums_;
  Json mine = Json::array();
  for (const Term& term : sums.terms) mine.push_back({{"name", term.name}, {"pass", term.pass}});
  std::vector<Term> terms;
  std::vector<std::string> keys;
  for (const Json& rank : agreement.gather(std::move(mine))) {
    for (const Json& known : rank) {
      const auto name = known.at("name").get<std::string>();
      const auto key = known.at("pass").get<std::string>();
      if (std::ranges::find(keys, key) == keys.end()) keys.push_back(key);
      if (std::ranges::find(terms, name, &Term::name) != terms.end()) continue;
      const auto own = std::ranges::find(sums.terms, name, &Term::name);
      if (own != sums.terms.end()) {
        terms.push_back(*own);
        continue;
      }
      const auto f64 = at::zeros({}, bad_.options().dtype(at::kDouble));
      terms.push_back(
          {.name = name, .pass = key, .nominal_number = 1.0, .count = at::zeros_like(bad_), .seen = {.sum = f64, .count = f64}});
    }
  }
  if (terms.empty()) return;
  if (keys.size() > 1 && sums.passes.empty()) separate(sums.key);
  const auto gradients_of = [&](const std::string& key) {
    const auto pass = std::ranges::find(sums.passes, key, &Pass::key);
    std::vector<at::Tensor> gradients;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (pass != sums.passes.end())
        gradients.push_back(pass->gradients[i]);
      else
        gradients.push_back(sums.passes.empty() ? parameters_[i].grad() : at::Tensor());
    }
    return gradients;
  };
  std::vector<Pass> passes;
  std::vector<at::Tensor> all;
  for (const std::string& key : keys) {
    passes.push_back({.key = key, .gradients = gradients_of(key)});
    const Term& first = *std::ranges::find(terms, key, &Term::pass);
    std::vector<at::Tensor> there;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      at::Tensor& gradient = passes.back().gradients[i];
      there.push_back(at::full({}, gradient.defined() ? 1.0 : 0.0, bad_.options()));
      const at::Tensor own = or_zeros(gradient, parameters_[i]);
      gradient = own * first.nominal_like(bad_).to(own.scalar_type());
      all.push_back(gradient);
    }
    all.push_back(at::stack(there));
  }
  for (Term& term : terms) all.push_back(term.count = term.count.clone());
  if (spike_rule_) {
    for (Term& term : terms) {
      term.seen.sum = term.seen.sum.to(at::kDouble);
      term.seen.count = term.seen.count.to(at::kDouble);
      all.insert(all.end(), {term.seen.sum, term.seen.count});
    }
  }
  agreement.sum(all);
  std::size_t next = 0;
  for (Pass& pass : passes) {
    const at::Tensor there = all[next + parameters_.size()];
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const bool any = there[static_cast<std::int64_t>(i)].item<float>() > 0;
      pass.gradients[i] = any ? all[next + i] : at::Tensor();
    }
    next += parameters_.size() + 1;
  }
  for (Term& term : terms) {
    term.count = all[next++];
    term.nominal = at::Tensor();
    term.nominal_number = 1.0;
  }
  for (Term& term : terms) {
    if (!spike_rule_) break;
    term.seen.sum = all[next++];
    term.seen.count = all[next++];
  }
  sums.terms = std::move(terms);
  if (passes.size() > 1) {
    sums.passes = std::move(passes);
    return;
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) parameters_[i].mutable_grad() = passes[0].gradients[i];
}

State Lane::state() const {
  State all = optimizer_->state();
  Json json = {{"optimizer", std::move(all.json)}};
  const auto add = [&all](const State& part) { all.tensors.insert(part.tensors.begin(), part.tensors.end()); };
  if (scale_) add(scale_->state());
  if (average_) all.tensors["ema_updates"] = average_->updates();
  if (spike_rule_) {
    add(spike_rule_->state());
    all.tensors["spikes"] = spiked_;
  }
  if (plateau_) json["plateau"] = plateau_->state();
  if (absent_steps_ > 0) json["absent_steps"] = absent_steps_;
  all.json = std::move(json);
  return all;
}

void Lane::load_state(const State& state, const SavedJson& json, const Tensors& average) {
  State own, update;
  for (const auto& [name, tensor] : state.tensors) (is_own(name) ? own : update).tensors[name] = tensor;
  update.json = json["optimizer"].json();
  optimizer_->load_state(update);
  const auto plateau = json.find("plateau");
  if (plateau_ && plateau) plateau_->load_state(*plateau);
  const auto absent = json.find("absent_steps");
  absent_steps_ = absent ? absent->integer(0) : 0;
  // Another run's snapshot may know neither of scales nor of averages nor of spikes: they begin here then.
  if (scale_ && own.tensors.contains("loss_scale")) scale_->load_state(own);
  if (spike_rule_ && own.tensors.contains("spike_window")) spike_rule_->load_state(own);
  if (const auto it = own.tensors.find("spikes"); it != own.tensors.end()) {
    if (it->second.dim() != 0)
      refuse_part("optimizer",
                  "tensor \"spikes\" is " + to_text(Shape(it->second.sizes().begin(), it->second.sizes().end())) + ", not []");
    spiked_.copy_(it->second);
  }
  if (!average_) return;
  if (average.empty()) {
    average_ = std::make_unique<optim::Average>(optimizer_->groups(), objective_.optim.ema_decay);
  } else {
    average_->load(average, own.tensors["ema_updates"]);
  }
}

}  // namespace millrace
