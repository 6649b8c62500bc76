#include "millrace/optim/optimizer.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "millrace/base/error.h"
#include "millrace/base/field.h"
#include "millrace/config/reflect.h"
#include "millrace/device/device.h"
#include "millrace/optim/detail/clip.h"
#include "millrace/optim/detail/update.h"
#include "millrace/telemetry/spans.h"

namespace millrace::optim {

namespace {

// The tensors of one parameter. `index` is the parameter's position in the step counters.
struct Slot {
  std::string name;
  at::Tensor value;
  at::Tensor first;
  at::Tensor second;
  at::Tensor step;
  std::size_t index = 0;
};

// Parameters that one fused call can update.
struct Bucket {
  double learning_rate_scale = 1.0;
  double weight_decay = 0.0;
  bool fused = false;
  at::Tensor learning_rate;
  std::vector<Slot> slots;
  // Lists for the present step:
  std::vector<at::Tensor> gradients;  // gradients of all parameters
  detail::Lists lists;                // lists of the parameters that this rank updates
};

// True if the layouts are equal, except for strides of dimensions of size one, which no kernel uses.
bool same_layout(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  for (std::int64_t i = 0; i < a.dim(); ++i) {
    if (a.size(i) > 1 && a.stride(i) != b.stride(i)) return false;
  }
  return true;
}

// Brings the gradient to the layout of its parameter, because fused kernels treat both as flat memory.
at::Tensor matching_gradient(const at::Tensor& value) {
  at::Tensor& gradient = value.mutable_grad();
  if (!same_layout(gradient, value)) gradient = at::empty_like(value.detach()).copy_(gradient.detach());
  return gradient.detach();
}

// The rank that updates each parameter. Parameters are assigned from the largest to the smallest, each to the rank that has the
// fewest bytes so far.
std::vector<int> owners_of(const std::vector<ParameterGroup>& groups, int ranks) {
  std::vector<std::size_t> bytes;
  for (const ParameterGroup& group : groups) {
    for (const NamedParameter& parameter : group.parameters) bytes.push_back(parameter.value.nbytes());
  }
  std::vector<std::size_t> order(bytes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater<>(), [&](std::size_t i) { return bytes[i]; });
  std::vector<int> owners(bytes.size(), 0);
  std::vector<std::size_t> held(static_cast<std::size_t>(ranks), 0);
  for (const std::size_t i : order) {
    const auto least = std::ranges::min_element(held);
    owners[i] = static_cast<int>(least - held.begin());
    *least += bytes[i];
  }
  return owners;
}

std::string word_of(Algorithm value) {
  return std::string(config::detail::kEnumNames<Algorithm>[static_cast<std::size_t>(value)]);
}

std::string shape_of(const at::Tensor& tensor) {
  return std::string(c10::toString(tensor.scalar_type())) + " " + to_text(Shape(tensor.sizes().begin(), tensor.sizes().end()));
}

}  // namespace

struct Optimizer::Impl {
  OptimConfig config;
  std::vector<ParameterGroup> groups;
  Agreement* shares;        // null: this rank updates all parameters
  std::vector<int> owners;  // rank of each parameter, if there are shares
  std::vector<Bucket> buckets;
  at::Device device = at::kCPU;
  // f32, a counter for each parameter, advanced by one operation; each Slot::step is a view of its counter.
  at::Tensor steps;
  std::vector<float> participants;  // 1 for each parameter that had a gradient in the last step
  // `participants` on the device: one tensor for each set of participants so far, because a recorded step keeps reading the
  // tensor that it recorded.
  std::map<std::vector<float>, at::Tensor> participants_there;
  at::Tensor scale;  // divisor of the gradients in the present step

  Impl(std::vector<ParameterGroup> parameter_groups, OptimConfig settings, bool fused, Agreement* agreement)
      : config(std::move(settings)),
        groups(std::move(parameter_groups)),
        shares(agreement == nullptr || agreement->alone() ? nullptr : agreement) {
    if (shares != nullptr) owners = owners_of(groups, shares->ranks().world_size);
    std::size_t count = 0;
    std::set<std::string> names;
    std::set<const void*> seen;
    for (const ParameterGroup& group : groups) {
      for (const NamedParameter& parameter : group.parameters) {
        MR_CHECK(parameter.value.defined() && at::isFloatingType(parameter.value.scalar_type()),
                 "parameter \"" + parameter.name + "\" holds no floating-point numbers");
        MR_CHECK(names.insert(parameter.name).second && seen.insert(parameter.value.unsafeGetTensorImpl()).second,
                 "parameter \"" + parameter.name + "\" is given twice");
        if (count == 0) device = parameter.value.device();
        MR_CHECK(parameter.value.device() == device, "parameter \"" + parameter.name + "\" is on another device");
        ++count;
      }
    }
    steps = at::zeros({static_cast<std::int64_t>(count)}, at::TensorOptions().dtype(at::kFloat).device(device));
    fill_buckets(fused);
  }

  void fill_buckets(bool fused) {
    using Key = std::tuple<double, double, bool, at::ScalarType>;
    std::map<Key, Bucket> by_key;
    const bool fusable = fused && device::nature_of(device).has_fused_optimizers;
    std::size_t index = 0;
    for (const ParameterGroup& group : groups) {
      for (const NamedParameter& parameter : group.parameters) {
        const double decay = weight_decay_of(group, parameter.value);
        const bool fuse = fusable && parameter.value.is_non_overlapping_and_dense();
        Bucket& bucket = by_key[{group.learning_rate_scale, decay, fuse, parameter.value.scalar_type()}];
        bucket.learning_rate_scale = group.learning_rate_scale;
        bucket.weight_decay = decay;
        bucket.fused = fuse;
        bucket.slots.push_back(make_slot(parameter, index++));
      }
    }
    for (auto& [key, bucket] : by_key) {
      const auto options = at::TensorOptions().dtype(detail::learning_rate_dtype(device)).device(device);
      bucket.learning_rate = at::scalar_tensor(config.learning_rate * bucket.learning_rate_scale, options);
      buckets.push_back(std::move(bucket));
    }
  }

  [[nodiscard]] double weight_decay_of(const ParameterGroup& group, const at::Tensor& value) const {
    if (group.weight_decay) return *group.weight_decay;
    return config.decay_only_matrices && value.dim() < 2 ? 0.0 : config.weight_decay;
  }

  [[nodiscard]] bool is_own(const Slot& slot) const { return shares == nullptr || owners[slot.index] == shares->ranks().rank; }

  [[nodiscard]] Slot make_slot(const NamedParameter& parameter, std::size_t index) const {
    Slot slot{.name = parameter.name, .value = parameter.value, .index = index};
    const bool adam = config.name != Algorithm::sgd;
    if (is_own(slot) && has_first()) slot.first = at::zeros_like(parameter.value.detach());
    if (is_own(slot) && adam) slot.second = at::zeros_like(parameter.value.detach());
    if (adam) slot.step = steps.select(0, static_cast<std::int64_t>(index));
    return slot;
  }

  // Collects the parameters that have a gradient.
  detail::GradientLists gather() {
    std::vector<float> present(static_cast<std::size_t>(steps.numel()), 0.0F);
    detail::GradientLists gradients;
    for (Bucket& bucket : buckets) {
      bucket.lists = {};
      bucket.gradients.clear();
      for (const Slot& slot : bucket.slots) {
        if (!slot.value.grad().defined()) continue;
        present[slot.index] = 1.0F;
        bucket.gradients.push_back(matching_gradient(slot.value));
        if (!is_own(slot)) continue;
        bucket.lists.parameters.push_back(slot.value);
        bucket.lists.gradients.push_back(bucket.gradients.back());
        if (slot.first.defined()) bucket.lists.first.push_back(slot.first);
        if (slot.second.defined()) bucket.lists.second.push_back(slot.second);
        if (slot.step.defined()) bucket.lists.steps.push_back(slot.step);
      }
      gradients.push_back(&bucket.gradients);
    }
    if (present != participants) {
      at::Tensor& there = participants_there[present];
      if (!there.defined()) there = at::tensor(present).to(steps.device(), /*non_blocking=*/true);
      participants = std::move(present);
    }
    return gradients;
  }

  StepReport prepare(const at::Tensor& nominal, const at::Tensor& count) {
    const at::NoGradGuard no_grad;
    const detail::GradientLists gradients = gather();
    const at::Tensor factor = (nominal / count).to(at::kFloat);
    const at::Tensor norm = detail::norm_of(gradients, device) * factor;
    // The square must be finite too, because Adam's second moment holds squares.
    const at::Tensor square = norm * norm;
    // inf - inf and nan - nan are NaN, which is not equal to 0.
    const at::Tensor found_inf = (square - square).ne(0).to(at::kFloat);
    scale = (count / nominal).to(at::kFloat);
    at::Tensor norm_to_clip = norm;
    if (config.clip_value > 0.0) {
      detail::scale_and_clamp(gradients, factor, config.clip_value);
      scale = at::ones_like(scale);
      if (config.clip_norm > 0.0) norm_to_clip = detail::norm_of(gradients, device);
    }
    if (config.clip_norm > 0.0) scale = scale / detail::clip_coefficient(norm_to_clip, config.clip_norm);
    return {.gradient_norm = norm, .found_inf = found_inf};
  }

  void apply(const at::Tensor& skip) {
    static const telemetry::Counter taken("fused_optimizer");
    const at::NoGradGuard no_grad;
    if (config.name != Algorithm::sgd) steps.add_(participants_there.at(participants) * (1.0 - skip));
    for (Bucket& bucket : buckets) {
      bucket.gradients.clear();
      if (bucket.lists.parameters.empty()) continue;
      if (bucket.fused) taken.add(1);
      const auto update = bucket.fused ? detail::update_fused : detail::update_plain;
      update(config, bucket.weight_decay, bucket.lists, {bucket.learning_rate, scale, skip});
      bucket.lists = {};
    }
    if (shares != nullptr) spread();
  }

  // Sends to all ranks the new values of all parameters that had a gradient.
  void spread() const {
    std::vector<at::Tensor> values;
    std::vector<int> from;
    for (const Bucket& bucket : buckets) {
      for (const Slot& slot : bucket.slots) {
        if (participants[slot.index] == 0) continue;
        values.push_back(slot.value);
        from.push_back(owners[slot.index]);
      }
    }
    shares->share(values, from);
  }

  [[nodiscard]] bool has_first() const { return config.name != Algorithm::sgd || config.momentum != 0.0; }
  [[nodiscard]] std::string first_name(const Slot& slot) const {
    return slot.name + (config.name != Algorithm::sgd ? ".exp_avg" : ".momentum_buffer");
  }

  // Collects one tensor at a time, so that only rank 0 needs memory for all of them.
  [[nodiscard]] Tensors all_tensors() const {
    Tensors tensors = state_tensors();
    const auto add = [&](const std::string& name, const Slot& slot, const at::Tensor& own) {
      const int owner = owners[slot.index];
      if (owner == 0) return;
      std::vector<at::Tensor> value = {own.defined() ? own : at::empty_like(slot.value.detach())};
      shares->share(value, {owner});
      if (shares->ranks().rank == 0) tensors.emplace(name, value[0]);
    };
    for (const Bucket& bucket : buckets) {
      for (const Slot& slot : bucket.slots) {
        if (has_first()) add(first_name(slot), slot, slot.first);
        if (config.name != Algorithm::sgd) add(slot.name + ".exp_avg_sq", slot, slot.second);
      }
    }
    return tensors;
  }

  [[nodiscard]] Tensors state_tensors() const {
    Tensors tensors;
    for (const Bucket& bucket : buckets) {
      for (const Slot& slot : bucket.slots) {
        if (slot.first.defined()) tensors.emplace(first_name(slot), slot.first);
        if (slot.second.defined()) tensors.emplace(slot.name + ".exp_avg_sq", slot.second);
        if (slot.step.defined()) tensors.emplace(slot.name + ".step", slot.step);
      }
    }
    return tensors;
  }

  // Throws SnapshotError if `given` does not fit; called before anything is changed.
  void check(const Tensors& own, const State& given) const {
    const auto refuse = [](std::string what, const std::string& name) {
      throw SnapshotError({.what = std::move(what),
                           .where = "snapshot, optimiser state \"" + name + "\"",
                           .next = "resume with the model and the optimiser the snapshot was made with, or start with --fresh"});
    };
    const Json algorithm = given.json.is_object() ? given.json.value("algorithm", Json()) : Json();
    if (algorithm != word_of(config.name)) {
      refuse("the snapshot's optimiser is " + algorithm.dump() + ", but the run's is \"" + word_of(config.name) + "\"",
             "algorithm");
    }
    for (const auto& [name, tensor] : own) {
      const auto found = given.tensors.find(name);
      if (found == given.tensors.end() || !found->second.defined()) refuse("the optimiser's state lacks a tensor", name);
      if (found->second.sizes() != tensor.sizes() || found->second.scalar_type() != tensor.scalar_type()) {
        refuse("the optimiser's state has " + shape_of(found->second) + ", but the model needs " + shape_of(tensor), name);
      }
    }
    std::set<std::string> others;  // state of parameters that another rank updates
    for (const Bucket& bucket : buckets) {
      for (const Slot& slot : bucket.slots) {
        if (!is_own(slot)) others.insert({first_name(slot), slot.name + ".exp_avg_sq"});
      }
    }
    for (const auto& [name, tensor] : given.tensors) {
      if (!own.contains(name) && !others.contains(name))
        refuse("the optimiser's state has a tensor that this model does not have", name);
    }
  }
};

Optimizer::Optimizer(std::vector<ParameterGroup> groups, OptimConfig config, bool fused, Agreement* shares)
    : impl_(std::make_unique<Impl>(std::move(groups), std::move(config), fused, shares)) {}
Optimizer::~Optimizer() = default;

StepReport Optimizer::step(const at::Tensor& nominal, const at::Tensor& count) {
  StepReport report = impl_->prepare(nominal, count);
  impl_->apply(report.found_inf);
  return report;
}

StepReport Optimizer::prepare(const at::Tensor& nominal, const at::Tensor& count) { return impl_->prepare(nominal, count); }

void Optimizer::apply(const at::Tensor& skip) { impl_->apply(skip); }

void Optimizer::set_learning_rate(double learning_rate) {
  if (learning_rate == impl_->config.learning_rate) return;
  impl_->config.learning_rate = learning_rate;
  for (Bucket& bucket : impl_->buckets) bucket.learning_rate.fill_(learning_rate * bucket.learning_rate_scale);
}

void Optimizer::zero_grad() {
  for (const ParameterGroup& group : impl_->groups) {
    for (const NamedParameter& parameter : group.parameters) parameter.value.mutable_grad() = at::Tensor();
  }
}

const std::vector<ParameterGroup>& Optimizer::groups() const noexcept { return impl_->groups; }

State Optimizer::state() const {
  return {.tensors = impl_->state_tensors(), .json = {{"algorithm", word_of(impl_->config.name)}}};
}

State Optimizer::whole_state() const {
  State all = state();
  if (impl_->shares != nullptr) all.tensors = impl_->all_tensors();
  return all;
}

void Optimizer::load_state(const State& state) {
  const Tensors own = impl_->state_tensors();
  impl_->check(own, state);
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : own) tensor.copy_(state.tensors.at(name));
}

}  // namespace millrace::optim
