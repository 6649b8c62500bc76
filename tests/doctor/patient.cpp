#include "patient.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <chrono>
#include <limits>
#include <thread>

#include "millrace/base/clock.h"
#include "millrace/config/schema_of.h"
#include "millrace/data/sources/memory_source.h"
#include "millrace/memory/block.h"
#include "millrace/nn/clamp.h"

namespace millrace::toys {
namespace {

struct PatientConfig {
  std::int64_t rows = 64;
  std::int64_t width = 16;
  std::int64_t layers = 2;
  double work_ms = 0;
  double read_ms = 0;
  double decode_ms = 0;
  double slow_file_ms = 0;
  double growing_ms = 0;
  double contiguous_ms = 0;
  double clamp = 0;
  std::int64_t small_operations = 0;
  std::int64_t mask = 0;
  std::int64_t leak = 0;
  std::int64_t nan_every = 0;
  bool new_shapes = false;
  double slow_sample_ms = 0;
  static consteval auto fields() {
    using C = PatientConfig;
    using config::field;
    return std::tuple{field<&C::rows>("Samples.").min(1),
                      field<&C::width>("Width of the layers.").min(1),
                      field<&C::layers>("Layers, each a block.").min(1),
                      field<&C::work_ms>("A step's work, which needs no core."),
                      field<&C::read_ms>("Waiting for a sample, as on a slow disk."),
                      field<&C::decode_ms>("Computing a sample."),
                      field<&C::slow_file_ms>("Waiting for a sample of one file of ten."),
                      field<&C::growing_ms>("What each step takes more than the one before."),
                      field<&C::contiguous_ms>("What a step computes longer where the layout is not channels_last."),
                      field<&C::clamp>("Limits of what the layers make; 0 = none."),
                      field<&C::small_operations>("Operations that take next to nothing."),
                      field<&C::mask>("A mask of so many rows and columns is made in every step."),
                      field<&C::leak>("Floats that each step leaves behind."),
                      field<&C::new_shapes>("Each batch of an epoch has a field of another width."),
                      field<&C::slow_sample_ms>("Waiting for one sample of four of one file of ten."),
                      field<&C::nan_every>("The loss of each so manieth step is not a number.")};
  }
};

struct Sections {
  PatientConfig patient;
  static consteval auto fields() { return std::tuple{config::field<&Sections::patient>("The faults.")}; }
};

void sleep_ms(double ms) {
  if (ms > 0) std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms));
}

void compute_ms(double ms) {
  const double end = steady_seconds() + ms * 1e-3;
  while (ms > 0 && steady_seconds() < end) {
  }
}

class PatientSource final : public data::Source {
 public:
  PatientSource(data::MemorySource inner, const PatientConfig& config) : inner_(std::move(inner)), config_(config) {}
  [[nodiscard]] std::span<const Field> fields() const override { return inner_.fields(); }
  [[nodiscard]] std::int64_t size() const override { return inner_.size(); }
  [[nodiscard]] std::string fingerprint() const override { return inner_.fingerprint(); }
  [[nodiscard]] bool waits() const override { return config_.read_ms > 0; }
  [[nodiscard]] data::Keeps keeps() const override { return config_.decode_ms > 0 ? data::Keeps::rows : data::Keeps::nothing; }
  [[nodiscard]] std::string describe(std::int64_t index) const override {
    return "part" + std::to_string(index % 10) + ".bin row " + std::to_string(index / 10);
  }
  void read(std::span<const std::int64_t> indices, data::Rows rows, const data::ReadRandom& random) const override {
    for (const std::int64_t index : indices) {
      sleep_ms(index % 10 == 3 ? config_.slow_file_ms : 0);
      sleep_ms(index % 40 == 3 ? config_.slow_sample_ms : 0);
      sleep_ms(config_.read_ms);
      compute_ms(config_.decode_ms);
    }
    inner_.read(indices, rows, random);
  }

 private:
  data::MemorySource inner_;
  PatientConfig config_;
};

struct LayersImpl : torch::nn::Module {
  LayersImpl(std::int64_t count, std::int64_t width) {
    for (std::int64_t i = 0; i < count; ++i)
      all.push_back(register_module("layer" + std::to_string(i), torch::nn::Linear(width, width)));
  }
  std::vector<torch::nn::Linear> all;
};

class Patient final : public Recipe {
 public:
  Patient(const Sections& sections, const Context& context)
      : config_(sections.patient),
        optim_(context.config->optim),
        net_(std::make_shared<LayersImpl>(config_.layers, config_.width)) {}

  data::Pipeline data(Split split) override {
    if (split != Split::train) return {};
    Philox random(5);
    std::vector<float> x(static_cast<std::size_t>(config_.rows * config_.width));
    for (float& value : x) value = static_cast<float>(random.normal());
    return data::single(
        std::make_shared<PatientSource>(data::MemorySource({data::memory_array("x", {config_.width}, std::move(x))}), config_));
  }
  Batch prepare(Batch batch) override {
    if (config_.new_shapes) batch.set("extra", at::ones({batch.rows(), static_cast<std::int64_t>(batch.origin().index) + 1}));
    return batch;
  }
  torch::nn::Module& model() override { return *net_; }
  bool set_layout(Layout layout) override {
    if (config_.contiguous_ms <= 0) return false;
    layout_ = layout;
    return true;
  }
  std::vector<Objective> objectives() override {
    return {{.optim = optim_, .loss = [this](const Batch& batch, const StepContext& context) { return loss(batch, context); }}};
  }

 private:
  Loss loss(const Batch& batch, const StepContext& context) {
    const at::Tensor x = batch.groups().front().fields.at("x");
    at::Tensor h = x;
    for (std::size_t i = 0; i < net_->all.size(); ++i) {
      h = memory::block("layer" + std::to_string(i), *net_->all[i], [this, i, in = h] { return at::tanh(net_->all[i](in)); });
    }
    for (std::int64_t i = 0; i < config_.small_operations; ++i) h = h + 1e-9;
    if (config_.clamp > 0) h = nn::clamp(h, -config_.clamp, config_.clamp, "h");
    if (config_.mask > 0) h = h * at::ones({config_.mask, config_.mask}).tril().cumsum(0).mean();
    if (layout_ == Layout::contiguous) compute_ms(config_.contiguous_ms);
    if (config_.leak > 0 && context.training) kept_.push_back(at::ones({config_.leak}));
    sleep_ms(config_.work_ms + config_.growing_ms * static_cast<double>(context.step));
    at::Tensor sum = (h - x.roll(1, 1)).square().sum();
    if (config_.nan_every > 0 && context.step % config_.nan_every == config_.nan_every - 1)
      sum = sum * std::numeric_limits<double>::quiet_NaN();
    return {.terms = {{.sum = sum,
                       .count = at::full({}, static_cast<double>(x.numel())),
                       .nominal_count = static_cast<double>(x.numel())}}};
  }

  PatientConfig config_;
  optim::OptimConfig optim_;
  Layout layout_ = Layout::contiguous;
  std::shared_ptr<LayersImpl> net_;
  std::vector<at::Tensor> kept_;
};

class SlowFile final : public WritableFile {
 public:
  SlowFile(std::unique_ptr<WritableFile> real, double ms) : real_(std::move(real)), ms_(ms) {}
  void write(std::span<const std::byte> bytes) override {
    sleep_ms(ms_);
    real_->write(bytes);
  }
  void sync() override { real_->sync(); }
  void close() override { real_->close(); }

 private:
  std::unique_ptr<WritableFile> real_;
  double ms_;
};

}  // namespace

std::unique_ptr<WritableFile> SlowFs::create(const std::filesystem::path& path) {
  return std::make_unique<SlowFile>(real_.create(path), write_ms_);
}
std::unique_ptr<WritableFile> SlowFs::create_new(const std::filesystem::path& path) {
  return std::make_unique<SlowFile>(real_.create_new(path), write_ms_);
}
std::unique_ptr<WritableFile> SlowFs::append(const std::filesystem::path& path) {
  return std::make_unique<SlowFile>(real_.append(path), write_ms_);
}

Entry patient() {
  Entry entry = entry_of<Patient, Sections>("patient", "A toy with faults.");
  entry.defaults = {{"data.batch_size", 8},       {"optim.learning_rate", 0.001}, {"train.epochs", 0}, {"train.max_steps", 120},
                    {"precision.dtype", "fp32"},  {"device.threads", 1},          {"log.every", 5},    {"log.doctor_trials", 0.0},
                    {"snapshot.every_epochs", 0}, {"snapshot.every_steps", 0}};
  return entry;
}

}  // namespace millrace::toys
