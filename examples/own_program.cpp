// Millrace in a program of your own: a module, some data, a loss, one call.
//   build/release/examples/example_own_program [RUN_FOLDER]
// With a run folder it saves there; the same command later resumes the run, or reports that it is complete.
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <cstdio>

#include "millrace/train.h"

namespace {

// y = sin(3 x) with a little noise, 2,000 points; training and validation use different seeds.
millrace::data::Pipeline points(std::uint64_t seed) {
  millrace::Philox random(millrace::make_key(seed));
  std::vector<float> x;
  std::vector<float> y;
  for (int i = 0; i < 2000; ++i) {
    x.push_back(static_cast<float>(2 * random.uniform() - 1));
    y.push_back(std::sin(3 * x.back()) + 0.05F * static_cast<float>(random.normal()));
  }
  using millrace::data::memory_array;
  return millrace::data::single(std::make_shared<millrace::data::MemorySource>(
      std::vector{memory_array("x", {1}, std::move(x)), memory_array("y", {1}, std::move(y))}));
}

}  // namespace

int main(int argc, char** argv) {
  torch::nn::Sequential net(torch::nn::Linear(1, 32), torch::nn::Tanh(), torch::nn::Linear(32, 1));

  millrace::TrainOptions options;
  options.config.data.batch_size = 50;
  options.config.optim.learning_rate = 0.01;
  options.config.train.epochs = 10;
  options.config.run.dir = argc > 1 ? argv[1] : "";
  options.validation = points(2);

  const auto loss = [&](const millrace::Batch& batch) {
    const at::Tensor error = net->forward(batch["x"]) - batch["y"];
    const at::Tensor count = at::full({}, static_cast<double>(batch.rows()));
    return millrace::Loss{.terms = {{.sum = error.square().sum(), .count = count, .nominal_count = 50}}};
  };
  try {
    (void)millrace::train(*net, points(1), loss, options);
  } catch (const millrace::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.exit_code();
  }
  const at::Tensor middle = net->forward(at::full({1, 1}, 0.5));
  std::printf("net(0.5) = %.3f, sin(1.5) = %.3f\n", middle.item<double>(), std::sin(1.5));
}
