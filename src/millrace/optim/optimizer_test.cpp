#include "millrace/optim/optimizer.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <set>
#include <string>

#include "millrace/base/error.h"
#include "tests/support/refusal.h"

namespace millrace::optim {
namespace {

using testing::HasSubstr;

at::Tensor one() { return at::scalar_tensor(1.0F, at::kFloat); }
at::Tensor number(double value) { return at::scalar_tensor(value, at::kFloat); }

// Three parameters of different rank and layout, with the same values in each call.
std::vector<NamedParameter> parameters(at::ScalarType dtype = at::kFloat) {
  at::Generator(at::detail::getDefaultCPUGenerator()).set_current_seed(3);
  std::vector<NamedParameter> made = {{"w", at::randn({4, 3}, dtype)},
                                      {"conv", at::randn({2, 3, 3, 3}, dtype).contiguous(at::MemoryFormat::ChannelsLast)},
                                      {"b", at::randn({5}, dtype)}};
  for (NamedParameter& parameter : made) parameter.value.set_requires_grad(true);
  return made;
}

void set_gradients(const std::vector<NamedParameter>& list, std::uint64_t seed, double scale = 1.0) {
  at::Generator(at::detail::getDefaultCPUGenerator()).set_current_seed(seed);
  for (const NamedParameter& parameter : list) {
    parameter.value.mutable_grad() = at::randn(parameter.value.sizes(), parameter.value.options()).mul_(scale).detach();
  }
}

OptimConfig settings(Algorithm algorithm) {
  OptimConfig c;
  c.name = algorithm;
  c.learning_rate = 0.01;
  c.weight_decay = 0.1;
  return c;
}

constexpr Algorithm kAll[] = {Algorithm::adamw, Algorithm::adam, Algorithm::sgd};

Tensors copy_of(const std::vector<NamedParameter>& list, const Optimizer& optimizer) {
  Tensors copy;
  for (const NamedParameter& parameter : list) copy[parameter.name] = parameter.value.detach().clone();
  for (const auto& [name, tensor] : optimizer.state().tensors) copy[name] = tensor.clone();
  return copy;
}

void expect_bits_equal(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) EXPECT_TRUE(at::equal(tensor, b.at(name))) << name;
}

void expect_close(const Tensors& a, const Tensors& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) EXPECT_TRUE(at::allclose(tensor, b.at(name), tolerance, tolerance)) << name;
}

TEST(Optimizer, OneAdamStepIsTheFormula) {
  OptimConfig c = settings(Algorithm::adamw);
  at::Tensor w = number(2.0).set_requires_grad(true);
  Optimizer optimizer({{.parameters = {{"w", w}}}}, c);
  w.mutable_grad() = number(0.5);
  optimizer.step(one(), one());
  // After the decay, Adam's first step moves each weight by the learning rate against the sign of its gradient.
  EXPECT_NEAR(w.item<float>(), 2.0 * (1 - 0.01 * 0.1) - 0.01, 1e-6);
  const State state = optimizer.state();
  EXPECT_NEAR(state.tensors.at("w.exp_avg").item<float>(), 0.05, 1e-7);
  EXPECT_NEAR(state.tensors.at("w.exp_avg_sq").item<float>(), 0.00025, 1e-9);
  EXPECT_EQ(state.tensors.at("w.step").item<float>(), 1.0F);
}

TEST(Optimizer, SgdMomentumStartsWithTheGradient) {
  OptimConfig c = settings(Algorithm::sgd);
  c.weight_decay = 0.0;
  at::Tensor w = number(1.0).set_requires_grad(true);
  Optimizer optimizer({{.parameters = {{"w", w}}}}, c);
  w.mutable_grad() = number(1.0);
  optimizer.step(one(), one());
  EXPECT_FLOAT_EQ(w.item<float>(), 0.99F);
  optimizer.step(one(), one());
  EXPECT_FLOAT_EQ(w.item<float>(), 0.99F - 0.019F);
  EXPECT_FLOAT_EQ(optimizer.state().tensors.at("w.momentum_buffer").item<float>(), 1.9F);
}

TEST(Optimizer, SgdWithoutMomentumHasNoState) {
  OptimConfig c = settings(Algorithm::sgd);
  c.momentum = 0.0;
  c.weight_decay = 0.0;
  at::Tensor w = number(1.0).set_requires_grad(true);
  Optimizer optimizer({{.parameters = {{"w", w}}}}, c);
  w.mutable_grad() = number(1.0);
  optimizer.step(one(), one());
  EXPECT_FLOAT_EQ(w.item<float>(), 0.99F);
  EXPECT_TRUE(optimizer.state().tensors.empty());
}

TEST(Optimizer, FusedEqualsPlainWithinTolerance) {
  for (const Algorithm algorithm : kAll) {
    for (const auto dtype : {at::kFloat, at::kDouble}) {
      OptimConfig c = settings(algorithm);
      c.clip_norm = 2.0;
      const auto a = parameters(dtype);
      const auto b = parameters(dtype);
      Optimizer fused({{.parameters = a}}, c, true);
      Optimizer plain({{.parameters = b}}, c, false);
      for (std::uint64_t step = 0; step < 20; ++step) {
        set_gradients(a, step);
        set_gradients(b, step);
        fused.set_learning_rate(0.01 / static_cast<double>(step + 1));
        plain.set_learning_rate(0.01 / static_cast<double>(step + 1));
        const StepReport x = fused.step(number(3), number(2));
        const StepReport y = plain.step(number(3), number(2));
        EXPECT_TRUE(at::equal(x.gradient_norm, y.gradient_norm));
      }
      expect_close(copy_of(a, fused), copy_of(b, plain), 2e-6);
    }
  }
}

TEST(Optimizer, NonFiniteStepLeavesEveryBit) {
  for (const Algorithm algorithm : kAll) {
    for (const bool fused : {true, false}) {
      const auto list = parameters();
      OptimConfig c = settings(algorithm);
      c.clip_norm = 1.0;
      c.clip_value = 0.5;
      Optimizer optimizer({{.parameters = list}}, c, fused);
      set_gradients(list, 1);
      EXPECT_EQ(optimizer.step(one(), one()).found_inf.item<float>(), 0.0F);
      const Tensors before = copy_of(list, optimizer);
      for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
        set_gradients(list, 2);
        list[1].value.mutable_grad().flatten()[7] = bad;
        const StepReport report = optimizer.step(one(), one());
        EXPECT_EQ(report.found_inf.item<float>(), 1.0F);
        EXPECT_FALSE(std::isfinite(report.gradient_norm.item<float>()));
        expect_bits_equal(copy_of(list, optimizer), before);
      }
      set_gradients(list, 3);
      EXPECT_EQ(optimizer.step(one(), one()).found_inf.item<float>(), 0.0F);
      EXPECT_FALSE(at::equal(list[0].value, before.at("w")));
    }
  }
}

TEST(Optimizer, CountZeroIsASkippedStep) {
  const auto list = parameters();
  Optimizer optimizer({{.parameters = list}}, settings(Algorithm::adamw));
  const Tensors before = copy_of(list, optimizer);
  for (const double scale : {0.0, 1.0}) {
    set_gradients(list, 1, scale);
    EXPECT_EQ(optimizer.step(one(), number(0)).found_inf.item<float>(), 1.0F);
    expect_bits_equal(copy_of(list, optimizer), before);
  }
}

// Two micro-batches of 3 and 5 rows, whose backward passes are each divided by the nominal count 4, equal one batch of 8 rows.
TEST(Optimizer, AccumulationOfUnequalCountsIsOneBatch) {
  for (const Algorithm algorithm : kAll) {
    OptimConfig c = settings(algorithm);
    c.clip_norm = 0.3;
    const auto a = parameters();
    const auto b = parameters();
    Optimizer accumulated({{.parameters = a}}, c);
    Optimizer whole({{.parameters = b}}, c);
    at::Generator(at::detail::getDefaultCPUGenerator()).set_current_seed(5);
    for (std::size_t i = 0; i < a.size(); ++i) {
      const at::Tensor first = at::randn(a[i].value.sizes());   // a sum over 3 rows
      const at::Tensor second = at::randn(a[i].value.sizes());  // a sum over 5 rows
      a[i].value.mutable_grad() = first / 4 + second / 4;
      b[i].value.mutable_grad() = (first + second) / 8;
    }
    const StepReport x = accumulated.step(number(4), number(3) + number(5));
    const StepReport y = whole.step(one(), one());
    EXPECT_TRUE(at::allclose(x.gradient_norm, y.gradient_norm, 1e-6));
    expect_close(copy_of(a, accumulated), copy_of(b, whole), 1e-6);
  }
}

TEST(Optimizer, ClipsByNormAsTorchDoes) {
  for (const double limit : {0.5, 1e6}) {
    OptimConfig c = settings(Algorithm::sgd);
    c.momentum = 0.0;
    c.weight_decay = 0.0;
    c.learning_rate = 1.0;
    c.clip_norm = limit;
    const auto list = parameters();
    Optimizer optimizer({{.parameters = list}}, c);
    const Tensors before = copy_of(list, optimizer);
    set_gradients(list, 1);
    double square = 0;
    Tensors gradients;
    for (const auto& parameter : list) {
      gradients[parameter.name] = parameter.value.grad().clone() * 3;
      square += std::pow(at::linalg_vector_norm(gradients[parameter.name].to(at::kDouble)).item<double>(), 2);
    }
    const double norm = std::sqrt(square);
    const StepReport report = optimizer.step(number(3), one());
    EXPECT_NEAR(report.gradient_norm.item<float>(), norm, 1e-5 * norm);
    const double coefficient = std::min(1.0, limit / (norm + 1e-6));
    for (const auto& parameter : list) {
      const at::Tensor expected = before.at(parameter.name) - gradients[parameter.name] * coefficient;
      EXPECT_TRUE(at::allclose(parameter.value, expected, 1e-5, 1e-6)) << parameter.name;
    }
  }
}

TEST(Optimizer, ClipsByValueAfterDividing) {
  OptimConfig c = settings(Algorithm::sgd);
  c.momentum = 0.0;
  c.weight_decay = 0.0;
  c.learning_rate = 1.0;
  c.clip_value = 0.25;
  const auto list = parameters();
  Optimizer optimizer({{.parameters = list}}, c);
  const Tensors before = copy_of(list, optimizer);
  set_gradients(list, 1);
  Tensors expected;
  for (const auto& parameter : list) {
    expected[parameter.name] = before.at(parameter.name) - (parameter.value.grad() / 2).clamp(-0.25, 0.25);
  }
  const StepReport report = optimizer.step(one(), number(2));
  EXPECT_GT(report.gradient_norm.item<float>(), 1.0F);  // the norm before clipping
  for (const auto& parameter : list) EXPECT_TRUE(at::allclose(parameter.value, expected.at(parameter.name), 1e-6, 1e-7));
}

TEST(Optimizer, ClipsTheNormOfWhatTheValueClipLeft) {
  OptimConfig c = settings(Algorithm::sgd);
  c.momentum = 0.0;
  c.weight_decay = 0.0;
  c.learning_rate = 1.0;
  c.clip_value = 1.0;
  c.clip_norm = 0.5;
  at::Tensor w = at::zeros({4}).set_requires_grad(true);
  Optimizer optimizer({{.parameters = {{"w", w}}}}, c);
  w.mutable_grad() = at::zeros({4}) + 100.0;
  optimizer.step(one(), one());
  EXPECT_TRUE(at::allclose(w, at::zeros({4}) - 0.25, 1e-5));  // 4 ones have norm 2, scaled to 0.5
}

TEST(Optimizer, GroupsHaveTheirOwnRateAndDecay) {
  OptimConfig c = settings(Algorithm::sgd);
  c.momentum = 0.0;
  c.learning_rate = 0.1;
  at::Tensor a = number(1.0).set_requires_grad(true);
  at::Tensor b = number(1.0).set_requires_grad(true);
  Optimizer optimizer({{.parameters = {{"a", a}}}, {.parameters = {{"b", b}}, .learning_rate_scale = 10.0, .weight_decay = 0.5}},
                      c);
  a.mutable_grad() = number(1.0);
  b.mutable_grad() = number(1.0);
  optimizer.step(one(), one());
  EXPECT_FLOAT_EQ(a.item<float>(), 1.0F - 0.1F * 1.1F);
  EXPECT_FLOAT_EQ(b.item<float>(), 1.0F - 1.0F * 1.5F);
  optimizer.set_learning_rate(0.0);
  optimizer.step(one(), one());
  EXPECT_FLOAT_EQ(a.item<float>(), 1.0F - 0.1F * 1.1F);
}

TEST(Optimizer, DecayOnlyMatricesSparesVectors) {
  OptimConfig c = settings(Algorithm::adamw);
  c.decay_only_matrices = true;
  const auto list = parameters();
  Optimizer optimizer({{.parameters = list}}, c);
  const Tensors before = copy_of(list, optimizer);
  set_gradients(list, 1, 0.0);
  optimizer.step(one(), one());
  EXPECT_TRUE(at::equal(list[2].value, before.at("b")));
  EXPECT_TRUE(at::allclose(list[0].value, before.at("w") * (1 - 0.01 * 0.1), 1e-6));
}

TEST(Optimizer, ParametersWithoutGradientAreLeftAlone) {
  for (const bool fused : {true, false}) {
    const auto list = parameters();
    Optimizer optimizer({{.parameters = list}}, settings(Algorithm::adamw), fused);
    const Tensors before = copy_of(list, optimizer);
    set_gradients(list, 1);
    list[1].value.mutable_grad() = at::Tensor();
    optimizer.step(one(), one());
    const Tensors after = copy_of(list, optimizer);
    for (const char* name : {"conv", "conv.step", "conv.exp_avg", "conv.exp_avg_sq"}) {
      EXPECT_TRUE(at::equal(after.at(name), before.at(name))) << name;
    }
    EXPECT_EQ(after.at("w.step").item<float>(), 1.0F);
    set_gradients(list, 2);
    optimizer.step(one(), one());
    EXPECT_EQ(optimizer.state().tensors.at("conv.step").item<float>(), 1.0F);
    EXPECT_EQ(optimizer.state().tensors.at("w.step").item<float>(), 2.0F);
    optimizer.zero_grad();
    for (const auto& parameter : list) EXPECT_FALSE(parameter.value.grad().defined());
    EXPECT_EQ(optimizer.step(one(), one()).gradient_norm.item<float>(), 0.0F);
  }
}

TEST(Optimizer, GradientsOfAnotherLayoutAreRelaid) {
  const auto a = parameters();
  const auto b = parameters();
  Optimizer straight({{.parameters = a}}, settings(Algorithm::adamw));
  Optimizer crossed({{.parameters = b}}, settings(Algorithm::adamw));
  set_gradients(a, 1);
  set_gradients(b, 1);
  b[0].value.mutable_grad() = b[0].value.grad().t().contiguous().t();  // the same values with other strides
  b[1].value.mutable_grad() = b[1].value.grad().contiguous();
  straight.step(one(), one());
  crossed.step(one(), one());
  expect_close(copy_of(a, straight), copy_of(b, crossed), 1e-7);
}

TEST(Optimizer, StateContinuesToTheBit) {
  for (const Algorithm algorithm : kAll) {
    const auto a = parameters();
    Optimizer whole({{.parameters = a}}, settings(algorithm));
    for (std::uint64_t step = 0; step < 3; ++step) {
      set_gradients(a, step);
      whole.step(one(), one());
    }
    const auto b = parameters();
    {
      const at::NoGradGuard no_grad;
      for (std::size_t i = 0; i < a.size(); ++i) b[i].value.copy_(a[i].value);
    }
    Optimizer resumed({{.parameters = b}}, settings(algorithm));
    resumed.load_state(whole.state());
    for (std::uint64_t step = 3; step < 6; ++step) {
      set_gradients(a, step);
      set_gradients(b, step);
      whole.step(one(), one());
      resumed.step(one(), one());
    }
    expect_bits_equal(copy_of(a, whole), copy_of(b, resumed));
  }
}

TEST(Optimizer, LoadStateRefusesWhatDoesNotFit) {
  const auto list = parameters();
  Optimizer optimizer({{.parameters = list}}, settings(Algorithm::adamw));
  const Tensors before = copy_of(list, optimizer);
  const auto refusal = [&](auto change) {
    State state = optimizer.state();
    change(state);
    return millrace::refusal<SnapshotError>([&] { optimizer.load_state(state); });
  };
  EXPECT_EQ(refusal([](State&) {}), "accepted");
  EXPECT_EQ(refusal([](State& s) { s.tensors.erase("w.exp_avg"); }),
            "SnapshotError  the optimiser's state lacks a tensor\n"
            "  where    snapshot, optimiser state \"w.exp_avg\"\n"
            "  next     resume with the model and the optimiser the snapshot was made with, or start with --fresh");
  EXPECT_THAT(refusal([](State& s) {
                s.tensors["w.exp_avg"] = at::zeros({3, 4});
              }),
              HasSubstr("the optimiser's state has Float [3,4], but the model needs Float [4,3]"));
  EXPECT_THAT(refusal([](State& s) { s.tensors["w.step"] = at::zeros({}, at::kLong); }),
              HasSubstr("has Long [], but the model needs"));
  EXPECT_THAT(refusal([](State& s) { s.tensors["old.step"] = at::zeros({}); }),
              HasSubstr("has a tensor that this model does not have"));
  EXPECT_THAT(refusal([](State& s) { s.json["algorithm"] = "sgd"; }),
              HasSubstr("the snapshot's optimiser is \"sgd\", but the run's is \"adamw\""));
  EXPECT_THAT(refusal([](State& s) { s.json = Json::array(); }), HasSubstr("the snapshot's optimiser is null"));
  expect_bits_equal(copy_of(list, optimizer), before);
}

TEST(Optimizer, ParametersGivenTwiceAreRefused) {
  const auto list = parameters();
  EXPECT_THROW(Optimizer({{.parameters = {list[0], list[0]}}}, settings(Algorithm::sgd)), InternalError);
  EXPECT_THROW(Optimizer({{.parameters = {list[0], {"again", list[0].value}}}}, settings(Algorithm::sgd)), InternalError);
}

struct Watch {
  int inside_fused = 0;
  int fused_calls = 0;
  std::set<std::string> read_backs;
};
Watch* watch = nullptr;

struct Scope final : at::ObserverContext {
  explicit Scope(bool is_fused) : fused(is_fused) {}
  bool fused;
};

// Counts operations that return a device value to the host. On the CPU the fused kernels read their scalars, which needs no wait;
// on a GPU they get pointers.
Watch watched(Optimizer& optimizer) {
  Watch seen;
  watch = &seen;
  const auto start = [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
    const std::string name = function.name();
    const bool fused = name.starts_with("aten::_fused_");
    watch->inside_fused += fused ? 1 : 0;
    watch->fused_calls += fused ? 1 : 0;
    const bool reads = name == "aten::item" || name == "aten::_local_scalar_dense" || name == "aten::is_nonzero";
    if (reads && watch->inside_fused == 0) watch->read_backs.insert(name);
    return std::make_unique<Scope>(fused);
  };
  const auto end = [](const at::RecordFunction&, at::ObserverContext* scope) {
    watch->inside_fused -= static_cast<Scope*>(scope)->fused ? 1 : 0;
  };
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(start, end).scopes({at::RecordScope::FUNCTION}));
  optimizer.set_learning_rate(0.5);
  optimizer.step(one(), one());
  at::removeCallback(handle);
  return seen;
}

TEST(Optimizer, NothingIsReadBack) {
  for (const Algorithm algorithm : kAll) {
    for (const bool fused : {true, false}) {
      OptimConfig c = settings(algorithm);
      c.clip_norm = 1.0;
      c.clip_value = 1.0;
      const auto list = parameters();
      Optimizer optimizer({{.parameters = list}}, c, fused);
      set_gradients(list, 1);
      const Watch seen = watched(optimizer);
      EXPECT_THAT(seen.read_backs, testing::IsEmpty());
      EXPECT_EQ(seen.fused_calls, fused ? 1 : 0);
    }
  }
}

}  // namespace
}  // namespace millrace::optim
