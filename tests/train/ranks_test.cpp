// Two ranks as two threads of one process: their agreement, and that together they equal one process.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <fstream>
#include <functional>
#include <mutex>
#include <set>

#include "millrace/base/error.h"
#include "millrace/base/philox.h"
#include "millrace/core/agreement.h"
#include "millrace/data/sources/memory_source.h"
#include "millrace/nn/batch_norm.h"
#include "millrace/nn/functional.h"
#include "millrace/system/signals.h"
#include "millrace/train/run/session.h"
#include "millrace/train/step/micro_batches.h"
#include "millrace/train/step/rank_check.h"
#include "millrace/train/step/stepper_report.h"
#include "millrace/train/step/stepper_state.h"
#include "seats.h"
#include "toys.h"

namespace millrace {
namespace {

using toys::on_ranks;

constexpr std::int64_t kRows = 24;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    first = register_module("first", torch::nn::Linear(3, 7));
    second = register_module("second", torch::nn::Linear(7, 1));
    const at::NoGradGuard no_grad;
    double value = 0.1;
    for (const at::Tensor& parameter : parameters())
      parameter.copy_((at::arange(parameter.numel(), at::kFloat) * (value += 0.2)).sin().view_as(parameter));
  }
  torch::nn::Linear first{nullptr}, second{nullptr};
};

// Remembers what each row of the epoch dropped.
class Dropping final : public Recipe {
 public:
  data::Pipeline data(Split) override {
    std::vector<float> x, y;
    for (std::int64_t i = 0; i < kRows; ++i) {
      for (int k = 0; k < 3; ++k) x.push_back(std::sin(static_cast<float>(3 * i + k)));
      y.push_back(std::cos(static_cast<float>(i)));
    }
    return data::single(std::make_shared<data::MemorySource>(
        std::vector{data::memory_array("x", {3}, std::move(x)), data::memory_array("y", {1}, std::move(y))}));
  }
  NetImpl& model() override { return *net_; }
  std::vector<Objective> objectives() override {
    Objective objective;
    objective.loss = [this](const Batch& batch, const StepContext&) {
      const at::Tensor kept = nn::dropout(at::ones({batch.rows(), 7}), 0.5, {});
      const auto& positions = batch.groups()[0].positions;
      for (std::size_t i = 0; i < positions.size(); ++i) {
        const at::Tensor row = kept[static_cast<std::int64_t>(i)].ne(0);
        std::string bits;
        for (std::int64_t k = 0; k < 7; ++k) bits += row[k].item<bool>() ? '1' : '0';
        dropped[{batch.epoch(), positions[i]}] = bits;
      }
      const at::Tensor error = net_->second(at::tanh(net_->first(batch["x"])) * kept) - batch["y"];
      return Loss{
          .terms = {{.sum = error.square().sum(), .count = at::full({}, static_cast<double>(batch.rows())), .nominal_count = 3}}};
    };
    return {objective};
  }
  std::map<std::pair<std::uint64_t, std::int64_t>, std::string> dropped;

 private:
  std::shared_ptr<NetImpl> net_ = std::make_shared<NetImpl>();
};

struct Trained {
  std::map<std::pair<std::uint64_t, std::int64_t>, std::string> dropped;
  std::vector<at::Tensor> parameters;
};

// Steps of eight rows in all over two epochs; the last step of an epoch has eight too.
Trained train(Agreement& agreement, std::int64_t batch_size, std::int64_t accumulate, std::int64_t micro_batches) {
  Dropping recipe;
  const Switches switches;
  telemetry::Timeline timeline;
  Stepper stepper(recipe, switches, timeline, {.seed = 9, .agreement = &agreement});
  data::LoaderOptions options{.batch_size = batch_size, .shuffle = true, .seed = 4};
  options.readers = 0;
  options.rank = agreement.ranks().rank;
  options.world_size = agreement.ranks().world_size;
  data::Loader loader(recipe.data(Split::train), options);
  const BatchContext context{
      .recipe = recipe, .timeline = nullptr, .device = at::kCPU, .micro_batches = micro_batches, .seed = stepper.seed()};
  for (std::int64_t step = 0; step < 2 * kRows / 8; ++step) {
    stepper.begin_step(step);
    for (std::int64_t i = 0; i < accumulate; ++i) {
      auto host = loader.next();
      if (!host) host = loader.next();  // the next epoch's
      for_each_micro_batch(context, *std::move(host), [&](const Batch& batch, MicroPosition in_batch) {
        stepper.accumulate(batch, {.only = in_batch.only && accumulate == 1, .last = in_batch.last && i + 1 == accumulate});
      });
    }
    stepper.update();
  }
  Trained trained{.dropped = recipe.dropped, .parameters = {}};
  for (const at::Tensor& parameter : recipe.model().parameters()) trained.parameters.push_back(parameter.detach().clone());
  return trained;
}

TEST(Ranks, DropWhatOneProcessDropsAndTrainTheSameWeights) {
  const Trained one = train(Agreement::of_one(), 8, 1, 1);
  ASSERT_EQ(one.dropped.size(), 2 * static_cast<std::size_t>(kRows));
  const auto compare = [&](const std::vector<Trained>& ranks, const std::string& how) {
    std::map<std::pair<std::uint64_t, std::int64_t>, std::string> dropped;
    for (const Trained& rank : ranks) dropped.insert(rank.dropped.begin(), rank.dropped.end());
    EXPECT_EQ(dropped, one.dropped) << how;
    for (const Trained& rank : ranks) {
      for (std::size_t i = 0; i < one.parameters.size(); ++i) {
        EXPECT_LT((rank.parameters[i] - one.parameters[i]).abs().max().item<double>(), 1e-6) << how;
        EXPECT_TRUE(at::equal(rank.parameters[i], ranks[0].parameters[i])) << how << ": ranks drift apart";
      }
    }
  };
  compare(on_ranks(2, [](Agreement& agreement) { return train(agreement, 4, 1, 1); }), "two ranks");
  compare(on_ranks(4, [](Agreement& agreement) { return train(agreement, 2, 1, 1); }), "four ranks");
  compare(on_ranks(2, [](Agreement& agreement) { return train(agreement, 2, 2, 1); }), "two ranks that accumulate");
  compare({train(Agreement::of_one(), 8, 1, 3)}, "three micro-batches");
  compare({train(Agreement::of_one(), 2, 4, 1)}, "four batches a step");
  std::set<std::string> patterns;
  for (const auto& [row, bits] : one.dropped) patterns.insert(bits);
  EXPECT_GT(patterns.size(), 20U) << "rows must not all drop the same";
}

// What a rank of `world` ranks trains, which has the others' slices left out.
struct OfARank {
  explicit OfARank(Agreement* agreement, Ranks ranks, std::int64_t average_every, bool shards = false)
      : stepper(recipe, switches, timeline,
                {.seed = 9, .agreement = agreement, .average_every = average_every, .shards_optimizer = shards}),
        loader(recipe.data(Split::train), options_of(ranks)) {}
  static data::LoaderOptions options_of(Ranks ranks) {
    data::LoaderOptions options{.batch_size = 8 / ranks.world_size, .shuffle = true, .seed = 4};
    options.readers = 0;
    options.rank = ranks.rank;
    options.world_size = ranks.world_size;
    return options;
  }
  void step() {
    stepper.begin_step(steps++);
    auto host = loader.next();
    if (!host) host = loader.next();  // the next epoch's
    for_each_micro_batch({recipe, nullptr, at::kCPU, 1}, *std::move(host),
                         [&](const Batch& batch, MicroPosition in_batch) { stepper.accumulate(batch, in_batch); });
    stepper.update();
  }
  [[nodiscard]] Tensors state() const {
    Tensors all = state_of(stepper).tensors;
    const auto parameters = recipe.model().named_parameters();
    for (const auto& item : parameters) all[item.key()] = item.value().detach();
    return all;
  }

  mutable Dropping recipe;
  Switches switches;
  telemetry::Timeline timeline;
  Stepper stepper;
  data::Loader loader;
  std::int64_t steps = 0;
};

Tensors copy_of(const Tensors& tensors) {
  Tensors copies;
  for (const auto& [name, tensor] : tensors) copies[name] = tensor.clone();
  return copies;
}

void expect_same_bits(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) EXPECT_TRUE(at::equal(tensor, b.at(name))) << name;
}

// Two processes that know nothing of one another, and whose states are averaged by hand, end in the same bits.
TEST(Ranks, ThatAverageStepForThemselvesInBetween) {
  constexpr int kEvery = 3, kSteps = 2 * kEvery;
  OfARank first(nullptr, {0, 0, 2, 2}, 1), second(nullptr, {1, 1, 2, 2}, 1);
  for (int step = 1; step <= kSteps; ++step) {
    first.step();
    second.step();
    if (step % kEvery != 0) continue;
    const Tensors a = first.state(), b = second.state();
    const at::NoGradGuard no_grad;
    for (const auto& [name, tensor] : a) {
      tensor.copy_((tensor + b.at(name)) * 0.5);
      b.at(name).copy_(tensor);
    }
  }
  const auto ranks = on_ranks(2, [](Agreement& agreement) {
    OfARank rank(&agreement, agreement.ranks(), kEvery);
    EXPECT_TRUE(rank.stepper.averages());
    for (int step = 1; step <= kSteps; ++step) {
      rank.step();
      if (step % kEvery == 0) rank.stepper.average_over_ranks();
    }
    return copy_of(rank.state());
  });
  expect_same_bits(ranks[0], first.state());
  expect_same_bits(ranks[1], first.state());
}

// Each rank has a part of the state, and rank 0 is given all of it.
TEST(Ranks, ThatShareAnOptimiserTrainTheBitsOfOneThatIsWhole) {
  const auto train = [](bool shards) {
    return on_ranks(3, [&](Agreement& agreement) {
      const Ranks ranks{agreement.ranks().rank, agreement.ranks().rank, 4, 4};  // a quarter of each batch is left out
      OfARank rank(&agreement, ranks, 1, shards);
      for (int step = 0; step < 5; ++step) rank.step();
      return std::pair(copy_of(rank.state()), state_bytes_of(rank.stepper).at("optimizer"));
    });
  };
  const auto whole = train(false), parts = train(true);
  std::uint64_t held = 0;
  for (const auto& [state, bytes] : parts) {
    held += bytes;
    for (const auto& [name, tensor] : state) EXPECT_TRUE(at::equal(tensor, whole[0].first.at(name))) << name;
  }
  expect_same_bits(parts[0].first, whole[0].first);
  EXPECT_LT(parts[1].first.size(), whole[0].first.size());
  EXPECT_LT(held, 2 * whole[0].second);
}

struct Normalised {
  at::Tensor y, gradient, weight_gradient, mean, variance;
};

TEST(Ranks, ABatchNormOfAllRanksIsThatOfTheWholeBatch) {
  const at::Tensor x =
      (at::arange(6 * 3 * 4, at::kFloat) * 0.7).sin().view({6, 3, 4}) + at::arange(6, at::kFloat).view({6, 1, 1});
  const at::Tensor factor = (at::arange(6 * 3 * 4, at::kFloat) * 0.3).cos().view({6, 3, 4});
  const auto normalise = [&](std::int64_t first, std::int64_t rows, Agreement* agreement) {
    nn::BatchNorm norm(3);
    nn::share_batch_norms(*norm, agreement);
    const at::Tensor mine = x.narrow(0, first, rows).clone().requires_grad_();
    const at::Tensor y = norm->forward(mine);
    (y.square() * factor.narrow(0, first, rows)).sum().backward();
    return Normalised{y.detach(), mine.grad(), norm->weight.grad(), norm->running_mean, norm->running_var};
  };
  const Normalised whole = normalise(0, 6, nullptr);
  // The last rank has no rows, as some ranks of an epoch's last batch.
  const auto ranks = on_ranks(3, [&](Agreement& agreement) {
    const int rank = agreement.ranks().rank;
    return rank == 0 ? normalise(0, 2, &agreement) : rank == 1 ? normalise(2, 4, &agreement) : normalise(6, 0, &agreement);
  });
  const auto near = [](const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>() < 1e-5; };
  EXPECT_TRUE(near(at::cat({ranks[0].y, ranks[1].y}), whole.y));
  EXPECT_TRUE(near(at::cat({ranks[0].gradient, ranks[1].gradient}), whole.gradient));
  EXPECT_TRUE(near(ranks[0].weight_gradient + ranks[1].weight_gradient, whole.weight_gradient));
  EXPECT_EQ(ranks[2].gradient.numel(), 0);
  EXPECT_TRUE(ranks[2].weight_gradient.eq(0).all().item<bool>());
  for (const Normalised& rank : ranks) {
    EXPECT_TRUE(near(rank.mean, whole.mean));
    EXPECT_TRUE(near(rank.variance, whole.variance));
  }
}

// Whole runs of the grouped toy; rank 0 has the folder.
struct Ended {
  Json summary;
  int exit_code = 0;
};

// The weights that a process begins with.
std::vector<at::Tensor> first_weights(const Entry& entry, const Json& config) {
  const RunConfig shared = config::read<RunConfig>(config);
  Context context;
  context.config = &shared;
  torch::manual_seed(static_cast<std::uint64_t>(shared.train.seed));
  std::vector<at::Tensor> weights;
  for (const at::Tensor& weight : entry.make(config, context)->model().parameters()) weights.push_back(weight.detach().clone());
  return weights;
}

// Such a run as one rank of an agreement makes it.
std::function<Ended(Agreement&)> run_of(const Json& overrides, const std::filesystem::path& folder) {
  Entry entry = toys::grouped_regression();
  const config::Schema schema = schema_of(entry);
  config::Layers layers(schema, aliases_of(entry));
  layers.add_values(entry.defaults, "recipe");
  layers.add_values(overrides, "test");
  const config::Resolved config = layers.resolve();
  // Processes have a random generator each, these threads share LibTorch's: what it gives one rank the other does not get.
  const std::vector<at::Tensor> first = first_weights(entry, config.values);
  entry.make = [make = entry.make, first](const Json& values, const Context& context) {
    std::unique_ptr<Recipe> recipe = make(values, context);
    const at::NoGradGuard no_grad;
    std::size_t i = 0;
    for (at::Tensor& weight : recipe->model().parameters()) weight.copy_(first.at(i++));
    return recipe;
  };
  return [entry, config, folder](Agreement& agreement) {
    telemetry::Console console(telemetry::Console::Mode::quiet);
    RunRequest request{.entry = &entry, .config = config, .agreement = &agreement, .console = &console};
    const RunOutcome outcome = Session(std::move(request), {.folder = folder}).run();
    return Ended{outcome.summary, outcome.exit_code};
  };
}

std::vector<Ended> run_on_two(const Json& overrides, const std::filesystem::path& folder) {
  return on_ranks(2, run_of(overrides, folder));
}

class RanksOfARun : public testing::Test {
 protected:
  void SetUp() override {
    for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) std::signal(number, SIG_DFL);
    install_signal_handlers();
    reset_pending_signal_for_test();
  }
  void TearDown() override {
    toys::at_point = nullptr;
    reset_pending_signal_for_test();
  }
  // The faults that these tests plant are to meet a step.
  const Json kTwo = {{"data.batch_size", 2}, {"train.epochs", 2},         {"toy.dropout", 0.25},
                     {"toy.rows", 16},       {"precision.dtype", "auto"}, {"train.off", {"rehearsal"}}};
  toys::TemporaryFolder folder_;
};

TEST_F(RanksOfARun, MetricsAndChoicesAreThoseOfBoth) {
  const std::vector<Ended> ranks = run_on_two(kTwo, folder_.path());
  Json one_config = kTwo;
  one_config["data.batch_size"] = 4;
  one_config["precision.dtype"] = "fp32";
  EXPECT_EQ(ranks[0].summary.at("metrics"), ranks[1].summary.at("metrics"));
  EXPECT_EQ(ranks[0].summary.at("samples"), ranks[1].summary.at("samples"));
  const auto format_of = [](const Ended& rank) {
    for (const Json& choice : rank.summary.at("choices")) {
      if (choice.at("option") == "precision.dtype") return choice;
    }
    return Json();
  };
  EXPECT_FALSE(format_of(ranks[0]).is_null());
  EXPECT_EQ(format_of(ranks[0]), format_of(ranks[1])) << "the clock of each would decide for itself";
  Json two_config = kTwo;
  two_config["precision.dtype"] = "fp32";
  const toys::TemporaryFolder other;
  const std::vector<Ended> plain = run_on_two(two_config, other.path());
  const RunOutcome one = toys::run(toys::grouped_regression(), "", one_config);
  EXPECT_NEAR(plain[0].summary.at("metrics").at("val_loss").at("last").get<double>(),
              one.summary.at("metrics").at("val_loss").at("last").get<double>(), 1e-6);
  EXPECT_EQ(plain[0].summary.at("samples"), one.summary.at("samples"));
}

// Which rank has more of them changes with each batch; the rows that are left drop what they drop beside them.
TEST_F(RanksOfARun, LeaveOutWhatCanNotBeReadOnOneOfThem) {
  Json config = kTwo;
  config.update({{"precision.dtype", "fp32"},
                 {"toy.unreadable", 7},
                 {"toy.dropout", 0.25},
                 {"data.bad_samples", "skip"},
                 {"data.max_bad_fraction", 0.5}});
  const std::vector<Ended> ranks = run_on_two(config, folder_.path());
  config["data.batch_size"] = 4;
  const RunOutcome one = toys::run(toys::grouped_regression(), "", config);
  EXPECT_GT(ranks[0].summary.at("loader").at("bad_samples"), 0);
  EXPECT_EQ(ranks[0].summary.at("samples"), one.summary.at("samples"));
  EXPECT_EQ(ranks[0].summary.at("metrics"), ranks[1].summary.at("metrics"));
  EXPECT_NEAR(ranks[0].summary.at("metrics").at("val_loss").at("last").get<double>(),
              one.summary.at("metrics").at("val_loss").at("last").get<double>(), 1e-6);
}

// A run whose epochs are no multiple of it, stopped in between, ends in the bits of one that was not.
TEST_F(RanksOfARun, ThatAverageGoOnWhereTheyWereStopped) {
  Json config = kTwo;
  config.update(
      {{"precision.dtype", "fp32"}, {"distributed.average_every", 5}, {"device.kernels", "library"}, {"toy.dropout", 0.0}});
  const std::vector<Ended> straight = run_on_two(config, folder_.path());
  EXPECT_EQ(straight[0].summary.at("exit_reason"), "epochs");
  const toys::TemporaryFolder other;
  std::atomic<int> losses{0};
  toys::at_point = [&](const char* at) {
    if (std::string(at) == "loss" && ++losses == 15) std::raise(SIGTERM);
  };
  const std::vector<Ended> stopped = run_on_two(config, other.path());
  EXPECT_EQ(stopped[0].exit_code, 128 + SIGTERM);
  EXPECT_EQ(stopped[0].summary.at("steps"), stopped[1].summary.at("steps"));
  toys::at_point = nullptr;
  reset_pending_signal_for_test();
  const std::vector<Ended> resumed = run_on_two(config, other.path());
  EXPECT_EQ(resumed[0].summary.at("steps"), straight[0].summary.at("steps"));
  EXPECT_EQ(resumed[0].summary.at("state_sha256"), straight[0].summary.at("state_sha256"));
  EXPECT_EQ(resumed[1].summary.at("state_sha256"), straight[0].summary.at("state_sha256"));
}

TEST_F(RanksOfARun, StopAtTheSameStep) {
  std::atomic<int> losses{0};
  toys::at_point = [&](const char* at) {
    if (std::string(at) == "loss" && ++losses == 9) std::raise(SIGTERM);
  };
  const std::vector<Ended> ranks = run_on_two(kTwo, folder_.path());
  EXPECT_EQ(ranks[0].exit_code, 128 + SIGTERM);
  EXPECT_EQ(ranks[1].exit_code, 128 + SIGTERM);
  EXPECT_EQ(ranks[0].summary.at("steps"), ranks[1].summary.at("steps"));
  EXPECT_EQ(ranks[0].summary.at("state_sha256").get<std::string>().size(), 64U);
}

TEST_F(RanksOfARun, RecoverTogetherWhenOneRunsOutOfMemory) {
  std::atomic<bool> failed{false};
  toys::at_point = [&](const char* at) {
    if (std::string(at) == "loss" && !failed.exchange(true))
      throw c10::OutOfMemoryError({__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, "not enough for one of them");
  };
  Json config = kTwo;
  config.update({{"precision.dtype", "fp32"}, {"device.kernels", "library"}});  // the first loss is a step's
  const std::vector<Ended> ranks = run_on_two(config, folder_.path());
  for (const Ended& rank : ranks) {
    EXPECT_EQ(rank.summary.at("memory").at("micro_batches"), 2);
    EXPECT_EQ(rank.summary.at("exit_reason"), "epochs");
  }
  EXPECT_EQ(ranks[0].summary.at("metrics"), ranks[1].summary.at("metrics"));
}

TEST_F(RanksOfARun, EndTogetherWhenASnapshotCanNotBeWritten) {
  Json config = kTwo;
  config.update(
      {{"snapshot.every_steps", 2}, {"snapshot.on_error", "stop"}, {"precision.dtype", "fp32"}, {"device.kernels", "library"}});
  std::once_flag once;
  toys::at_point = [&](const char* at) {  // a file lies where the folder of the snapshots is to be
    if (std::string(at) == "loss") std::call_once(once, [&] { std::ofstream(folder_.path() / "snapshots") << "in the way"; });
  };
  EXPECT_THROW((void)run_on_two(config, folder_.path()), Error);
}

TEST_F(RanksOfARun, SaveNothingThatWasComputedWithHalfASum) {
  for (const bool has_half : {false, true}) {
    int losses = 0;
    toys::at_point = [&](const char* at) {
      if (std::string(at) == "loss" && ++losses == 9) throw DistributedError({"a rank is gone", "here", "see there"});
    };
    toys::HalfASum agreement(has_half);
    const std::filesystem::path run = folder_.path() / (has_half ? "half" : "whole");
    EXPECT_THROW((void)run_of(kTwo, run)(agreement), Error);
    EXPECT_EQ(snapshot::list(Fs::real(), run).empty(), has_half);
  }
}

std::string error_of_check(Agreement& seat, NetImpl& net) {
  try {
    check_same_weights(seat, net, 7);
  } catch (const DistributedError& error) {
    return error.what();
  }
  return "";
}

TEST(Replicas, ABitThatFlippedIsFoundAndItsRankNamed) {
  Philox random(make_key(5));
  for (int round = 0; round < 100; ++round) {
    const auto bit = static_cast<std::int64_t>(random.below(3 * 7 * 32));
    const int odd = static_cast<int>(random.below(3));
    const auto errors = on_ranks(3, [&](Agreement& seat) {
      NetImpl net;
      if (seat.ranks().rank == odd) {
        auto* words = reinterpret_cast<std::uint32_t*>(net.first->weight.data_ptr<float>());
        words[bit / 32] ^= std::uint32_t{1} << static_cast<unsigned>(bit % 32);
      }
      return error_of_check(seat, net);
    });
    for (const std::string& error : errors)
      ASSERT_THAT(error, testing::AllOf(testing::HasSubstr("the weights of rank " + std::to_string(odd) + " on "),
                                        testing::HasSubstr("step 7")));
  }
}

TEST(Replicas, OfTwoThatDifferBothAreNamed) {
  const auto errors = on_ranks(2, [&](Agreement& seat) {
    NetImpl net;
    if (seat.ranks().rank == 1) net.first->weight.data_ptr<float>()[0] += 1;
    return error_of_check(seat, net);
  });
  EXPECT_THAT(errors[0], testing::AllOf(testing::HasSubstr("rank 0"), testing::HasSubstr("rank 1")));
}

}  // namespace
}  // namespace millrace
