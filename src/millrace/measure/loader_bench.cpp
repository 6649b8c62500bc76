#include "millrace/measure/loader_bench.h"

#include <ATen/ops/convolution.h>
#include <ATen/ops/rand.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <deque>

#include "millrace/base/clock.h"
#include "millrace/base/format.h"
#include "millrace/device/device.h"
#include "millrace/system/process.h"
#include "millrace/train/step/feed.h"
#include "millrace/train/step/micro_batches.h"

namespace millrace {
namespace {

// Keeps some batches in memory, to measure the speed of a step without the cost of reading.
class Replay {
 public:
  Replay(data::Pipeline pipeline, data::LoaderOptions options) {
    options.readers = 0;
    options.adapts = false;
    options.prefetch = kBatches;  // allows the loader to lend this many slots
    data::Loader loader(std::move(pipeline), options);
    while (batches_.size() < kBatches) {
      if (auto batch = loader.next()) {
        batches_.push_back(std::move(*batch));
      } else if (!batches_.empty()) {
        break;  // the epoch has fewer batches than kBatches
      }
    }
  }
  // Samples per second of `consume` alone.
  double rate(double seconds, const std::function<void(data::HostBatch)>& consume) const {
    const double began = steady_seconds();
    std::int64_t samples = 0;
    std::size_t next = 0;
    double now = began;
    while (now - began < seconds || next == 0) {
      const data::HostBatch& batch = batches_[next++ % batches_.size()];
      for (const data::HostBatch::Group& group : batch.groups) samples += static_cast<std::int64_t>(group.positions.size());
      consume(batch);
      now = steady_seconds();
    }
    return static_cast<double>(samples) / (now - began);
  }

 private:
  static constexpr int kBatches = 4;
  std::deque<data::HostBatch> batches_;
};

Json cache_json(const data::Cache* cache, const std::string& reason) {
  if (cache == nullptr) return {{"mode", "off"}, {"reason", reason}};
  const data::Cache::Counters counters = cache->counters();
  return {{"mode", reason.substr(0, reason.find_first_of(":,"))},
          {"reason", reason},
          {"hit_rate", counters.hit_rate()},
          {"bytes", counters.bytes}};
}

}  // namespace

struct ConvolutionStep::Tensors {
  at::Tensor image = at::rand({8, 64, 56, 56});
  at::Tensor weight = at::rand({64, 64, 3, 3});
};

ConvolutionStep::ConvolutionStep(std::int64_t passes) : tensors_(std::make_unique<Tensors>()), passes_(passes) {}

ConvolutionStep ConvolutionStep::for_milliseconds(double milliseconds) {
  ConvolutionStep one(1);
  one();
  double best = 1e9;
  for (int i = 0; i < 5; ++i) {
    const double began = steady_seconds();
    one();
    best = std::min(best, (steady_seconds() - began) * 1e3);
  }
  return ConvolutionStep(std::max<std::int64_t>(1, std::llround(milliseconds / best)));
}

ConvolutionStep::~ConvolutionStep() = default;

void ConvolutionStep::operator()() {
  const at::NoGradGuard no_grad;
  for (std::int64_t i = 0; i < passes_; ++i) {
    (void)at::convolution(tensors_->image, tensors_->weight, {}, {1, 1}, {1, 1}, {1, 1}, false, {0, 0}, 1);
  }
}

double replayed_rate(const data::Pipeline& pipeline, data::LoaderOptions options, double seconds,
                     const std::function<void(data::HostBatch)>& consume) {
  const Replay replay(pipeline, std::move(options));
  (void)replay.rate(0, consume);  // not measured, because the first step allocates memory
  return replay.rate(seconds, consume);
}

Json bench_workload(const data::Workload& workload, const std::filesystem::path& folder, const LoaderBenchOptions& options) {
  const double opening = steady_seconds();
  data::OpenWorkload open = data::open_workload(workload, folder);
  const double opened = steady_seconds();
  std::unique_ptr<ConvolutionStep> step;
  if (options.step_ms > 0) step.reset(new ConvolutionStep(ConvolutionStep::for_milliseconds(options.step_ms)));
  std::vector<std::string> notes = open.notices;
  open.options.note = [&notes](const std::string& line) { notes.push_back(line); };
  const double began = steady_seconds();
  data::Loader loader(open.pipeline, open.options);
  const double made = steady_seconds();
  // Batches become tensors here, so that the cost of making a training step's tensors is included.
  const auto consume = [&step](data::HostBatch host) {
    const Batch batch = to_batch(std::move(host), Split::train, at::kCPU);
    if (step) (*step)();
  };
  data::LoaderRates rates = data::measure_loader(loader, options.seconds, consume);
  rates.first_batch += made - began;
  Json result = rates.to_json();
  result["kind"] = workload.kind();
  result["batch_size"] = workload.loader.batch_size;
  result["samples_per_epoch"] = loader.samples_per_epoch();
  result["open_ms"] = (opened - opening) * 1e3;
  result["readers"] = loader.readers();
  result["reason"] = loader.readers_reason();
  result["choices"] = notes;
  result["buffer_bytes"] = loader.buffer_bytes();
  result["cache"] = cache_json(open.cache.get(), open.cache_reason);
  result["peak_memory_bytes"] = device::peak_resident_bytes();
  if (step) {
    const double ceiling = replayed_rate(open.pipeline, open.options, options.seconds, consume);
    result["step_passes"] = step->passes();
    result["ceiling_samples_per_s"] = ceiling;
    result["share_of_ceiling"] = result["samples_per_s"].get<double>() / ceiling;
  }
  if (options.digest) {
    loader.restart();
    const data::StreamDigest stream = data::digest_epoch(loader);
    result["digest"] = stream.digest;
    result["digest_samples"] = stream.samples;
  }
  return result;
}

Json bench_recipe_loader(RunRequest request, double seconds) {
  const SampleInput input(request, /*keeps=*/true);
  RunSetup setup(request);
  Assembly run(setup, {.run_folder = {}, .new_files = {}, .cache_folder = cache_folder()});
  run.decide();
  run.recipe().model().train();
  request.console->line("plan\n" + setup.plan().to_text());
  std::int64_t step = 0;
  const auto consume = [&](data::HostBatch host) {
    run.stepper().begin_step(step);
    at::Tensor loss;
    const std::int64_t rows = for_each_micro_batch(
        run.batch_context(), std::move(host),
        [&](const Batch& batch, MicroPosition place) { loss = shown(run.stepper().accumulate(batch, place).losses[0]); });
    if (rows == 0) return;
    run.stepper().update();
    ++step;
    (void)loss.item<double>();  // waits for the device
  };
  const data::Pipeline& pipeline = *run.loaders().pipeline(Split::train);
  const auto options = setup.loader_options(pipeline, Split::train);
  double eats = replayed_rate(pipeline, options, seconds / 2, consume);
  const Json fed = data::measure_loader(run.loaders().training(), seconds, [](const data::HostBatch&) {}).to_json();
  const Json both = data::measure_loader(run.loaders().training(), seconds, consume).to_json();
  // Other programs can only slow the step down, so the larger value is the right one.
  eats = std::max(eats, replayed_rate(pipeline, options, seconds / 2, consume));
  const double feeds = fed["samples_per_s"];
  const double runs = both["samples_per_s"];
  std::string bound = "cores";
  std::string verdict = "loader and step share the cores: each alone is faster than both together";
  if (runs >= 0.95 * eats) {
    bound = "step";
    verdict =
        "the step limits the run; the loader alone could feed " + significant(feeds / eats, 3) + " times what the step consumes";
  } else if (feeds < eats) {
    bound = "loader";
    verdict = "the loader limits the run; without the cost of reading, the run would be " + significant(eats / runs, 3) +
              " times as fast";
  }
  return {{"recipe", request.entry->name},
          {"loader_samples_per_s", feeds},
          {"step_samples_per_s", eats},
          {"run_samples_per_s", runs},
          {"share_of_ceiling", runs / eats},
          {"wait_ms_p50", both["wait_ms_p50"]},
          {"wait_ms_p99", both["wait_ms_p99"]},
          {"cpu_s_per_1000", fed["cpu_s_per_1000"]},
          {"first_batch_ms", fed["first_batch_ms"]},
          {"readers", run.loaders().training().readers()},
          {"reason", run.loaders().training().readers_reason()},
          {"cache", cache_json(run.loaders().cache(), setup.plan().find("data.cache")->reason)},
          {"peak_memory_bytes", device::peak_resident_bytes()},
          {"bound", bound},
          {"verdict", verdict}};
}

}  // namespace millrace
