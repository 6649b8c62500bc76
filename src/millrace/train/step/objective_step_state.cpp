// Saves and restores an objective, and adds up objectives over ranks.
#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <iterator>
#include <limits>
#include <string_view>

#include "millrace/base/error.h"
#include "millrace/base/field.h"
#include "millrace/train/step/detail/step_sums.h"

namespace millrace {
namespace {

std::int64_t bytes_of(const std::vector<at::Tensor>& gradients) {
  std::int64_t bytes = 0;
  for (const at::Tensor& gradient : gradients) bytes += gradient.defined() ? static_cast<std::int64_t>(gradient.nbytes()) : 0;
  return bytes;
}

bool is_own(std::string_view name) { return name.find('.') == std::string_view::npos; }

// Appends the numbers by which the spike rule judges a term, so that they are summed over the ranks. All ranks must judge by the
// same numbers: if only some ranks skip a step, their weights drift apart. The weight is appended too, because a rank that lacks
// the term does not know the weight.
void add_seen(const LossTerm& seen, std::vector<at::Tensor>& all) {
  const auto wide = [](const at::Tensor& value) { return value.to(at::kDouble).reshape({}).clone(); };
  const at::Tensor count = wide(seen.count);
  all.push_back(wide(seen.sum));
  all.push_back(count);
  all.push_back(seen.weight_now.defined() ? count * wide(seen.weight_now) : count * seen.weight);
  if (seen.report) all.insert(all.end(), {wide(seen.report->sum), wide(seen.report->count)});
}

// Reads the summed numbers that add_seen() had appended.
std::vector<at::Tensor>::iterator take_seen(LossTerm& seen, std::vector<at::Tensor>::iterator next) {
  seen.sum = *next++;
  seen.count = *next++;
  const at::Tensor weighted = *next++;
  seen.weight_now = at::where(seen.count.gt(0), weighted / seen.count, 0.0);
  if (seen.report) {
    seen.report->sum = *next++;
    seen.report->count = *next++;
  }
  return next;
}

}  // namespace

struct ObjectiveStep::OnAllRanks {
  std::vector<Term> terms;  // the terms of all ranks in the same order on each rank; a rank that lacks a term adds nothing to it
  bool some_began = false;  // at least one rank has begun to send gradients
  bool all_whole = true;    // on each rank the gradients come from one pass, and nothing was added after the gradients were sent
};

ObjectiveStep::OnAllRanks ObjectiveStep::known_of_all(Agreement& agreement) const {
  const bool began = gradient_sums_ && gradient_sums_->has_begun();
  Json mine = {
      {"began", began}, {"whole", sums_->passes.empty() && !(began && gradient_sums_->is_spoiled())}, {"terms", Json::array()}};
  for (const Term& term : sums_->terms) {
    mine["terms"].push_back({{"name", term.name}, {"pass", term.pass}});
    if (term.seen.report) mine["terms"].back()["logarithm"] = term.seen.report->logarithm;
  }
  OnAllRanks all;
  for (const Json& rank : agreement.gather(std::move(mine))) {
    all.some_began = all.some_began || rank.at("began").get<bool>();
    all.all_whole = all.all_whole && rank.at("whole").get<bool>();
    for (const Json& known : rank.at("terms")) {
      const auto name = known.at("name").get<std::string>();
      const auto none = at::zeros({}, bad_.options().dtype(at::kDouble));
      auto found = std::ranges::find(all.terms, name, &Term::name);
      if (found == all.terms.end()) {
        const auto own = std::ranges::find(sums_->terms, name, &Term::name);
        all.terms.push_back(own != sums_->terms.end() ? *own
                                                      : Term{.name = name,
                                                             .pass = known.at("pass").get<std::string>(),
                                                             .nominal_number = std::numeric_limits<double>::quiet_NaN(),
                                                             .nominal = {},
                                                             .count = at::zeros_like(bad_),
                                                             .seen = {.sum = none, .count = none}});
        found = std::prev(all.terms.end());
      }
      if (known.contains("logarithm") && !found->seen.report)
        found->seen.report = LossTerm::Report{none, none, known.at("logarithm").get<bool>()};
    }
  }
  return all;
}

// Adds up the gradients over the ranks: those that were sent during the backward pass, and those that this rank still has to
// send.
std::vector<at::Tensor> ObjectiveStep::travelled(bool some_began) {
  if (!some_began) return {};
  if (!gradient_sums_->has_begun()) {
    const bool has_own = !sums_->terms.empty() && sums_->passes.empty();
    gradient_sums_->begin(has_own ? sums_->first_of(sums_->key).nominal_like(bad_) : at::ones_like(bad_));
  }
  gradient_sums_->send();
  std::vector<at::Tensor> sums = gradient_sums_->receive();
  const GradientSums::Traffic sent = gradient_sums_->take_traffic();
  traffic_.buckets += sent.buckets;
  traffic_.early_buckets += sent.early_buckets;
  traffic_.bytes += sent.bytes;
  return sums;
}

// Returns this rank's gradients of one pass, multiplied by the nominal count by which the pass divided its sums.
ObjectiveStep::Pass ObjectiveStep::undivided(const Term& first) const {
  const auto known = std::ranges::find(sums_->passes, first.pass, &Pass::key);
  Pass pass{.key = first.pass, .gradients = {}};
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor gradient;
    if (known != sums_->passes.end()) {
      gradient = known->gradients[i];
    } else if (sums_->passes.empty() && sums_->key == first.pass) {
      gradient = parameters_[i].grad();
    }
    pass.gradients.push_back(gradient.defined() ? gradient * first.nominal_like(bad_).to(gradient.scalar_type()) : gradient);
  }
  return pass;
}

// Adds up gradients and counts over the ranks. Afterwards all ranks hold the same terms and passes, and each gradient belongs to
// the terms' sums over all ranks.
void ObjectiveStep::sum_over(Agreement& agreement) {
  if (agreement.alone()) return;
  if (gradient_sums_ && gradient_sums_->has_begun()) gradient_sums_->send();
  OnAllRanks known = known_of_all(agreement);
  const std::vector<at::Tensor> sent = travelled(known.some_began);
  std::vector<Term> terms = std::move(known.terms);
  if (terms.empty()) return;
  std::vector<Pass> passes;
  for (const Term& term : terms) {
    if (std::ranges::find(passes, term.pass, &Pass::key) == passes.end()) passes.push_back(undivided(term));
  }
  const bool whole = known.all_whole && passes.size() == 1;
  const bool arrived = whole && known.some_began;
  std::vector<at::Tensor> all;
  for (const Pass& pass : passes) {
    if (!arrived) add_gradients(pass, all);
    all.push_back(presence(pass));
  }
  for (const Term& term : terms) {
    all.push_back(term.count.clone());
    if (spike_rule_) add_seen(term.seen, all);
  }
  // Each term's divisor divided by the first term's, for terms that share a pass.
  std::vector<at::Tensor> shares;
  shares.reserve(terms.size());
  for (const Term& term : terms)
    shares.push_back(term.nominal_like(bad_) / std::ranges::find(terms, term.pass, &Term::pass)->nominal_like(bad_));
  if (!arrived) {
    ++traffic_.buckets;
    for (const Pass& pass : passes) traffic_.bytes += bytes_of(pass.gradients);
  }
  agreement.sum(all);
  auto next = all.begin();
  if (arrived) all.insert(next, sent.begin(), sent.end());
  next = all.begin();
  for (Pass& pass : passes) next = take_gradients(pass, next);
  for (std::size_t i = 0; i < terms.size(); ++i) {
    Term& term = terms[i];
    const bool leads = &*std::ranges::find(terms, term.pass, &Term::pass) == &term;
    term.count = *next++;
    term.nominal = leads ? at::Tensor() : shares[i];
    term.nominal_number = 1.0;
    if (spike_rule_) next = take_seen(term.seen, next);
  }
  sums_->terms = std::move(terms);
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    parameters_[i].mutable_grad() = passes.size() == 1 ? passes[0].gradients[i] : at::Tensor();
  sums_->passes = passes.size() == 1 ? std::vector<Pass>() : std::move(passes);
  let_travel(agreement, whole);
}

// If this step's gradients could have been sent during its backward pass, gradients are sent that way from the next step on.
void ObjectiveStep::let_travel(Agreement& agreement, bool whole) {
  if (gradient_sums_ && !whole) {
    gradient_sums_.reset();
    keeps_home_ = true;
  }
  if (whole && !gradient_sums_ && !keeps_home_ && options_.gradients.bucket_bytes > 0) {
    gradient_sums_ = agreement.gradient_sums(parameters_, options_.gradients);
    keeps_home_ = gradient_sums_ == nullptr;
  }
}

// Appends the pass's gradients to `all`, with zeros for missing gradients.
void ObjectiveStep::add_gradients(const Pass& pass, std::vector<at::Tensor>& all) const {
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    all.push_back(pass.gradients[i].defined() ? pass.gradients[i] : at::zeros_like(parameters_[i].detach()));
}

at::Tensor ObjectiveStep::presence(const Pass& pass) const {
  std::vector<float> there;
  for (const at::Tensor& gradient : pass.gradients) there.push_back(gradient.defined() ? 1.0F : 0.0F);
  return at::tensor(there);
}

std::vector<at::Tensor>::iterator ObjectiveStep::take_gradients(Pass& pass, std::vector<at::Tensor>::iterator next) const {
  const at::Tensor& there = *(next + static_cast<std::ptrdiff_t>(parameters_.size()));
  const auto* present = there.const_data_ptr<float>();
  for (std::size_t i = 0; i < parameters_.size(); ++i, ++next) pass.gradients[i] = present[i] > 0 ? *next : at::Tensor();
  return next + 1;
}

void ObjectiveStep::follow_root(Agreement& agreement) { absent_steps_ = agreement.from_root(absent_steps_).get<std::int64_t>(); }

State ObjectiveStep::state() const {
  State all = optimizer_->whole_state();
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

void ObjectiveStep::load_state(const State& state, const SavedJson& json, const Tensors& average) {
  State own, update;
  for (const auto& [name, tensor] : state.tensors) (is_own(name) ? own : update).tensors[name] = tensor;
  update.json = json["optimizer"].json();
  optimizer_->load_state(update);
  const auto plateau = json.find("plateau");
  if (plateau_ && plateau) plateau_->load_state(*plateau);
  const auto absent = json.find("absent_steps");
  absent_steps_ = absent ? absent->integer(0) : 0;
  // A snapshot of another run may lack scales, averages or spikes. What is missing starts from the beginning.
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
