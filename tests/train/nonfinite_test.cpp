// A step that is not finite counts for nothing, wherever it went wrong, and the watch for it costs no wait.
#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <atomic>
#include <limits>

#include "millrace/train/step/stepper.h"
#include "millrace/train/step/stepper_report.h"
#include "millrace/train/step/stepper_state.h"
#include "toys.h"

namespace millrace {
namespace {

enum class Where : std::uint8_t { nowhere, loss, loss_alone, gradient, input, empty };

// Two linear layers with a batch norm between them; one objective, or a second one for the last layer.
struct FewNumbersImpl : torch::nn::Module {
  FewNumbersImpl() {
    first = register_module("first", torch::nn::Linear(6, 8));
    norm = register_module("norm", torch::nn::BatchNorm1d(8));
    second = register_module("second", torch::nn::Linear(8, 1));
  }
  torch::nn::Linear first{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Linear second{nullptr};
};

class Net final : public Recipe {
 public:
  explicit Net(optim::OptimConfig config, bool pair = false) : config_(std::move(config)), pair_(pair) {}
  data::Pipeline data(Split) override { return {}; }
  torch::nn::Module& model() override { return *net_; }
  std::vector<Objective> objectives() override {
    Objective one{.optim = config_, .loss = [this](const Batch& batch, const StepContext&) { return loss(batch, where); }};
    if (!pair_) return {one};
    const auto of = [this](const std::string& prefix) {
      optim::ParameterGroup group;
      for (const auto& item : net_->named_parameters()) {
        if ((item.key().starts_with("second")) == (prefix == "second")) group.parameters.push_back({item.key(), item.value()});
      }
      return group;
    };
    one.name = "first";
    one.parameters = {of("first")};
    Objective two = one;
    two.name = "second";
    two.parameters = {of("second")};
    two.loss = [this](const Batch& batch, const StepContext&) { return loss(batch, Where::nowhere); };
    return {std::move(one), std::move(two)};
  }

  Where where = Where::nowhere;

 private:
  Loss loss(const Batch& batch, Where bad) {
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    const at::Tensor x = bad == Where::input ? batch["x"] * nan : batch["x"];
    at::Tensor y = net_->second(at::relu(net_->norm(net_->first(x)))).to(at::kFloat);
    if (bad == Where::gradient) y.register_hook([](const at::Tensor& g) { return g * std::numeric_limits<double>::infinity(); });
    at::Tensor sum = (y - batch["y"]).square().sum();
    if (bad == Where::loss) sum = sum * nan;
    if (bad == Where::loss_alone) sum = sum + nan;  // its gradient is fine
    const double rows = bad == Where::empty ? 0.0 : static_cast<double>(batch.rows());
    return {.terms = {{.sum = sum, .count = at::full({}, rows), .nominal_count = 5.0}}};
  }

  optim::OptimConfig config_;
  bool pair_;
  // Steps seed the generator that layers are initialised from.
  std::shared_ptr<FewNumbersImpl> net_ = [] {
    torch::manual_seed(3);
    return std::make_shared<FewNumbersImpl>();
  }();
};

struct Bench {
  Bench(std::optional<at::ScalarType> format, optim::OptimConfig config, bool pair = false, Switches rows = Switches())
      : recipe(std::move(config), pair),
        switches(std::move(rows)),
        stepper(recipe, switches, timeline, {.seed = 1, .autocast = format}) {}

  // One step of `micro` micro-batches; the one numbered `bad_one` goes wrong at `where`.
  void step(Where where = Where::nowhere, int micro = 1, int bad_one = 0) {
    stepper.begin_step(steps);
    for (int i = 0; i < micro; ++i) {
      recipe.where = i == bad_one ? where : Where::nowhere;
      const double offset = 0.1 * static_cast<double>(steps) + i;
      const at::Tensor x = at::sin(at::arange(24, at::kFloat).reshape({4, 6}) * 1.3 + offset);
      stepper.accumulate(Batch(Tensors{{"x", x}, {"y", x.sum(1, true)}}));
    }
    stepper.update();
    ++steps;
  }

  double skipped() { return stepper.skips().in_all().item<double>(); }

  // fp16's scale finds its place within a few steps.
  void settle() {
    for (double before = -1; before != skipped();) {
      before = skipped();
      step();
    }
  }

  // All but what counts steps and scales: parameters, running statistics, optimiser, averaged weights, the spike rule.
  Tensors state() {
    Tensors all;
    for (const auto& item : recipe.model().named_parameters()) all["p." + item.key()] = item.value().detach().clone();
    for (const auto& item : recipe.model().named_buffers()) all["b." + item.key()] = item.value().clone();
    for (const auto& [name, tensor] : averaged_weights(stepper)) all["a." + name] = tensor.clone();
    for (const auto& [name, tensor] : state_of(stepper).tensors) {
      const bool counts = name.ends_with("loss_scale") || name.ends_with("growth_tracker") || name.starts_with("overflow") ||
                          name.starts_with("skipped") || name == "gave_up";
      if (!counts) all["o." + name] = tensor.clone();
    }
    return all;
  }

  telemetry::Timeline timeline;
  Net recipe;
  Switches switches;
  Stepper stepper;
  std::int64_t steps = 0;
};

optim::OptimConfig everything() {
  optim::OptimConfig config;
  config.learning_rate = 0.02;
  config.ema_decay = 0.9;
  config.spike_zscore = 6.0;
  config.clip_norm = 1.0;
  return config;
}

std::vector<std::string> differing(const Tensors& a, const Tensors& b) {
  std::vector<std::string> names;
  EXPECT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) {
    if (!at::equal(tensor, b.at(name))) names.push_back(name);
  }
  return names;
}

using Injection = std::tuple<const char*, Where, int>;  // format, place, micro-batch of two

class NonFinite : public testing::TestWithParam<Injection> {};

TEST_P(NonFinite, AStepLeavesEveryBitAndTheNextOneCounts) {
  const auto [format, where, bad_one] = GetParam();
  Bench run(precision::format_of(format), everything());
  run.settle();
  const Tensors before = run.state();
  const double skipped = run.skipped();
  run.step(where, 2, bad_one);
  EXPECT_EQ(run.skipped(), skipped + 1);
  EXPECT_EQ(run.stepper.skips().in_a_row().item<double>(), 1.0);
  EXPECT_THAT(differing(before, run.state()), testing::IsEmpty());
  EXPECT_TRUE(run.stepper.is_finite());
  run.settle();
  const auto moved = differing(before, run.state());
  EXPECT_THAT(moved, testing::IsSupersetOf({"p.first.weight", "b.norm.running_mean", "b.norm.num_batches_tracked",
                                            "a.second.bias", "o.second.weight.exp_avg", "o.first.bias.step", "o.spike_window"}));
}

std::string name_of(const testing::TestParamInfo<Injection>& injection) {
  constexpr std::array names = {"nowhere", "loss", "loss_alone", "gradient", "input", "empty"};
  const auto& [format, where, bad_one] = injection.param;
  return std::string(format) + "_" + names[static_cast<std::size_t>(where)] + "_" + std::to_string(bad_one);
}

INSTANTIATE_TEST_SUITE_P(Injected, NonFinite,
                         testing::Combine(testing::Values("fp32", "bf16", "fp16"),
                                          testing::Values(Where::loss, Where::loss_alone, Where::gradient, Where::input),
                                          testing::Values(0, 1)),
                         name_of);

TEST(NonFiniteStep, NothingToCountIsSkippedToo) {
  Bench run(std::nullopt, everything());
  run.step();
  const Tensors before = run.state();
  run.step(Where::empty);
  EXPECT_THAT(differing(before, run.state()), testing::IsEmpty());
}

TEST(NonFiniteStep, OneObjectiveHoldsTheOtherBack) {
  Bench run(std::nullopt, everything(), /*pair=*/true);
  run.step();
  const Tensors before = run.state();
  run.step(Where::loss);  // of the first objective alone
  EXPECT_EQ(run.skipped(), 1.0);
  EXPECT_THAT(differing(before, run.state()), testing::IsEmpty());
}

TEST(NonFiniteStep, TheHostsDecisionIsTheDevices) {
  const std::vector<std::string> off = {"device_skip"};
  for (const char* format : {"fp32", "fp16"}) {
    Bench device(precision::format_of(format), everything());
    Bench host(precision::format_of(format), everything(), false, Switches(off));
    for (Bench* each : {&device, &host}) {
      each->settle();
      for (const Where where : {Where::loss_alone, Where::nowhere, Where::gradient, Where::nowhere}) each->step(where);
    }
    EXPECT_EQ(device.skipped(), host.skipped());
    EXPECT_THAT(differing(device.state(), host.state()), testing::IsEmpty()) << format;
    EXPECT_EQ(reports_of(device.stepper)[0].loss_scale, reports_of(host.stepper)[0].loss_scale);
  }
}

TEST(NonFiniteStep, ASpikeIsLeftOutAndCountedApart) {
  Bench run(std::nullopt, everything());
  for (int i = 0; i < 70; ++i) run.step();
  EXPECT_EQ(reports_of(run.stepper)[0].spikes, 0.0);
  const Tensors before = run.state();
  run.stepper.begin_step(run.steps);
  const at::Tensor x = at::ones({4, 6}) * at::arange(4, at::kFloat).unsqueeze(1);
  run.stepper.accumulate(Batch(Tensors{{"x", x}, {"y", at::full({4, 1}, 1e4)}}));  // a mislabelled batch
  run.stepper.update();
  EXPECT_EQ(reports_of(run.stepper)[0].spikes, 1.0);
  EXPECT_EQ(run.skipped(), 0.0);
  EXPECT_THAT(differing(before, run.state()), testing::UnorderedElementsAre("o.spike_window", "o.spike_seen", "o.spikes"));
  run.step();
  EXPECT_EQ(reports_of(run.stepper)[0].spikes, 1.0);
}

TEST(NonFiniteStep, TheStateSavedIsTheStateGoneOnFrom) {
  for (const char* format : {"fp32", "bf16", "fp16"}) {
    Bench whole(precision::format_of(format), everything());
    for (int i = 0; i < 70; ++i) whole.step(i % 9 == 8 ? Where::gradient : Where::nowhere);
    Bench resumed(precision::format_of(format), everything());
    {
      const at::NoGradGuard no_grad;
      auto from = whole.recipe.model().named_parameters();
      for (auto& item : resumed.recipe.model().named_parameters()) item.value().copy_(from[item.key()]);
      auto buffers = whole.recipe.model().named_buffers();
      for (auto& item : resumed.recipe.model().named_buffers()) item.value().copy_(buffers[item.key()]);
    }
    load_state(resumed.stepper, state_of(whole.stepper), averaged_weights(whole.stepper));
    resumed.steps = whole.steps;
    for (Bench* each : {&whole, &resumed}) {
      for (int i = 0; i < 10; ++i) each->step(i == 4 ? Where::input : Where::nowhere);
    }
    EXPECT_THAT(differing(whole.state(), resumed.state()), testing::IsEmpty()) << format;
    EXPECT_EQ(reports_of(whole.stepper)[0].loss_scale, reports_of(resumed.stepper)[0].loss_scale);
    EXPECT_EQ(whole.skipped(), resumed.skipped());
  }
}

// What hands a device value to the host, and how much work the step asked for. Fused kernels on the CPU read their own scalars,
// which waits for nothing; on a GPU they are given pointers.
std::atomic<int> read_backs{0};
std::atomic<int> operations{0};
thread_local int inside_fused = 0;

struct FusedScope final : at::ObserverContext {
  explicit FusedScope(bool is_fused) : fused(is_fused) {}
  bool fused;
};

class Counted {
 public:
  Counted() {
    read_backs = operations = 0;
    const auto start = [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
      const std::string name = function.name();
      const bool fused = name.starts_with("aten::_fused_");
      inside_fused += fused ? 1 : 0;
      ++operations;
      const bool reads = name == "aten::item" || name == "aten::_local_scalar_dense" || name == "aten::is_nonzero" ||
                         name == "aten::nonzero" || name == "aten::equal";
      if (reads && inside_fused == 0) ++read_backs;
      return std::make_unique<FusedScope>(fused);
    };
    const auto end = [](const at::RecordFunction&, at::ObserverContext* scope) {
      inside_fused -= static_cast<FusedScope*>(scope)->fused ? 1 : 0;
    };
    handle_ = at::addGlobalCallback(at::RecordFunctionCallback(start, end).scopes({at::RecordScope::FUNCTION}));
  }
  ~Counted() { at::removeCallback(handle_); }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  at::CallbackHandle handle_{};
};

TEST(Watch, NothingIsReadBackInAStep) {
  for (const char* format : {"fp32", "bf16", "fp16"}) {
    for (const bool pair : {false, true}) {
      Bench run(precision::format_of(format), everything(), pair);
      run.step();
      const Counted counted;
      for (const Where where : {Where::nowhere, Where::gradient, Where::nowhere, Where::input}) run.step(where, 2);
      EXPECT_EQ(read_backs.load(), 0) << format;
      EXPECT_GT(operations.load(), 100);
    }
  }
}

TEST(Watch, TheCountSeesAHostThatAsks) {
  const std::vector<std::string> off = {"device_skip"};
  Bench run(std::nullopt, everything(), false, Switches(off));
  run.step();
  const Counted counted;
  run.step();
  EXPECT_GT(read_backs.load(), 0);
}

// Whole steps of the loop, loader and metrics included, between two log lines.
TEST(Watch, NothingIsReadBackBetweenLogLines) {
  for (const char* format : {"fp32", "bf16", "fp16"}) {
    std::unique_ptr<Counted> counted;
    int seen = 0;
    int counted_steps = 0;
    toys::at_point = [&](const char* point) {
      if (std::string_view(point) != "loss") return;
      ++seen;
      if (seen == 3) counted = std::make_unique<Counted>();
      if (seen == 9) {
        counted_steps = operations > 0 ? 6 : 0;
        counted.reset();
      }
    };
    (void)toys::run(toys::grouped_regression(), "",
                    {{"precision.dtype", format},
                     {"log.every", 1000},
                     {"optim.ema_decay", 0.9},
                     {"optim.spike_zscore", 6.0},
                     {"toy.bad_from", 5},
                     {"train.epochs", 1}});
    toys::at_point = nullptr;
    EXPECT_EQ(counted_steps, 6);
    EXPECT_EQ(read_backs.load(), 0) << format;
  }
}

TEST(BufferGuard, PutsBackWhatAnOperationMovedUnseen) {
  torch::nn::BatchNorm1d norm(3);
  at::Tensor table = at::arange(BufferGuard::kSmall + 1, at::kFloat);
  std::vector<at::Tensor> buffers = norm->buffers();
  buffers.push_back(table);
  BufferGuard guard(buffers);
  const auto pass = [&](double value, bool bad) {
    guard.begin();
    (void)norm(at::full({4, 3}, value) * at::arange(4, at::kFloat).unsqueeze(1));
    table.add_(1.0);
    guard.settle(at::full({}, bad ? 1.0 : 0.0, at::kFloat));
  };
  pass(1.0, false);
  const at::Tensor mean = norm->running_mean.clone();
  EXPECT_EQ(norm->num_batches_tracked.item<std::int64_t>(), 1);
  pass(std::numeric_limits<double>::quiet_NaN(), true);
  EXPECT_TRUE(at::equal(norm->running_mean, mean));
  EXPECT_EQ(norm->num_batches_tracked.item<std::int64_t>(), 1);
  EXPECT_EQ(table[0].item<float>(), 1.0F);
  {
    const at::NoGradGuard no_grad;
    norm->running_mean.fill_(7.0);  // as a snapshot would
  }
  pass(std::numeric_limits<double>::quiet_NaN(), true);
  EXPECT_EQ(norm->running_mean[0].item<float>(), 7.0F);
  pass(2.0, false);
  EXPECT_NE(norm->running_mean[0].item<float>(), 7.0F);
  EXPECT_EQ(table[0].item<float>(), 2.0F);
}

}  // namespace
}  // namespace millrace
