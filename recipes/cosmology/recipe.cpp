#include "recipes/cosmology/recipe.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/softplus.h>

#include <numbers>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/train/recipe/config.h"
#include "millrace/train/step/model_size.h"
#include "recipes/cosmology/padding.h"
#include "recipes/cosmology/preprocess.h"
#include "recipes/cosmology/sky_look.h"
#include "recipes/cosmology/sky_pca.h"
#include "recipes/cosmology/sky_source.h"

namespace millrace::recipes::cosmology {
namespace {

constexpr std::uint64_t kNoiseSite = 22;

}  // namespace

// ---- 1 config: the keys and their defaults are in config.h, the named sizes in presets.cpp

std::vector<Problem> Cosmology::problems(const Sections& sections, const RunConfig&) { return problems_of(sections.recipe); }

Cosmology::Cosmology(const Sections& sections, const Context& context, OpenSky open)
    : context_(context), open_(std::move(open)), recipe_(sections.recipe), fused_(context.fused()) {
  if (!open_) {
    const bool remembers = context.on("file_index") && context.places.writes && !context.places.cache_folder.empty();
    open_ =
        open_hdf5({.index_folder = remembers ? context.places.cache_folder / "files" : "", .direct = context.on("hdf5_direct")});
  }
  if (!context.on("stored_pca")) recipe_.pca = PcaMode::batch;
}

// ---- 2 data

void Cosmology::before_training() {
  const DataConfig& input = context_.config->data;
  const SkyFolders folders = sky_folders(recipe_, input);
  if (!input.dir.empty() && !recipe_.signal_dir.empty() && !recipe_.foreground_dir.empty())
    context_.note("data.dir " + input.dir.string() +
                  " is not used: recipe.signal_dir and recipe.foreground_dir name both folders");
  sky_ = open_sky(recipe_, folders.signal, folders.foreground, context_.seed, open_, input);
  for (const std::string& text : sky_->notices) context_.note(text);
  for (const std::string& text : check_validation_sky(*sky_)) context_.note(text);
  const bool stored = recipe_.pca.value_or(PcaMode::stored) == PcaMode::stored;
  if (pca_ && stored)
    // checks the snapshot's components against the data, because the run uses these components
    return check_pca(*pca_, recipe_, *sky_, "the model's snapshot", context_.notice);
  if (context_.places.plan_only) return;
  if (stored) pca_ = stored_pca(recipe_, *sky_, recipe_.pca_components_path, context_, context_.notice);
  for (const std::string& text : look_at_files(recipe_, *sky_)) context_.note(text);
  for (const std::string& text : check_training_sky(recipe_, *sky_, pca_ ? &*pca_ : nullptr, context_.seed)) context_.note(text);
}

data::Pipeline Cosmology::data(Split split) {
  const bool training = split == Split::train;
  const SkyOptions options{.dataset = recipe_.vis_dataset, .ra_keep = recipe_.ra_keep, .rolls = training && recipe_.ra_shift};
  if (!training) judged_ = sky_->validation;
  return data::single(std::make_shared<SkySource>(training ? sky_->train : judged_, sky_->shape, options));
}

data::Pipeline Cosmology::test_data() {
  if (recipe_.test_dir.empty()) return {};
  std::vector<std::string> notices;
  judged_ = open_test_sky(recipe_, *sky_, open_, context_.config->data, notices);
  for (const std::string& text : notices) context_.note(text);
  const SkyOptions options{.dataset = recipe_.vis_dataset, .ra_keep = recipe_.ra_keep, .rolls = false};
  return data::single(std::make_shared<SkySource>(judged_, sky_->shape, options));
}

Batch Cosmology::prepare(Batch batch) {
  const nn::RowKey key{context_.seed, kNoiseSite, batch.epoch(), batch.groups().front().positions};
  Volumes volumes = preprocess(batch["x"], batch["y"], recipe_, pca_ ? &*pca_ : nullptr, key, fused_);
  batch.set("input", std::move(volumes.input));
  batch.set("target", std::move(volumes.target));
  return batch;
}

// ---- 3 model

UNet& Cosmology::model() {
  if (!model_) {
    const ModelConfig config{.filters = recipe_.filters, .act = recipe_.act};
    const double parameters = parameters_of(static_cast<double>(recipe_.filters));
    check_model_size(parameters, sizeof(float) * parameters, "recipe.filters");
    model_ = std::make_shared<UNet>(config, context_.seed, fused_);
  }
  return *model_;
}

bool Cosmology::set_layout(Layout layout) {
  model().set_channels_last(layout == Layout::channels_last);
  return true;
}

at::Tensor Cosmology::recover(const at::Tensor& input) {
  if (recipe_.pad == Padding::none) return model().forward(input);
  return unpadded(model().forward(padded(input, recipe_.pad)), input);
}

// ---- 4 loss

Loss loss_of(const at::Tensor& predicted, const at::Tensor& target, LossKind kind) {
  const at::Tensor error = predicted - target;
  const auto elements = static_cast<double>(error.numel());
  const at::Tensor count = at::scalar_tensor(elements, error.options());
  if (kind == LossKind::logcosh) {
    const at::Tensor terms = error + at::softplus(-2.0 * error) - std::numbers::ln2;
    return {.terms = {{.sum = terms.sum(), .count = count, .nominal_count = elements}}};
  }
  const at::Tensor sum = error.square().sum();
  if (kind == LossKind::mse) return {.terms = {{.sum = sum, .count = count, .nominal_count = elements}}};
  // The loss is sum / count. If the count is the sum without its gradient, the gradient of the loss is that of log(sum).
  const at::Tensor self = sum.detach().clamp_min(1e-12 * elements);
  return {.terms = {{.sum = sum, .count = self, .nominal_count = elements, .report = LossTerm::Report{self, count, true}}}};
}

std::vector<Objective> Cosmology::objectives() {
  const auto loss = [this](const Batch& batch, const StepContext& context) {
    if (!context.training) step_ = context.step;
    const at::Tensor predicted = recover(batch["input"]).to(at::kFloat);
    Loss result = loss_of(predicted, batch["target"], recipe_.loss);
    result.outputs = {{"predicted", predicted}};
    return result;
  };
  return {{.optim = context_.config->optim, .loss = loss}};
}

// ---- 5 metrics

void Cosmology::measure(const Batch& batch, const StepResult& result, metrics::Board& board) {
  const at::Tensor& input = batch["input"];
  const auto whole = [&](const at::Tensor& x) { return recipe_.predict_residual ? x + input : x; };
  const at::Tensor truth = whole(batch["target"]);
  const at::Tensor recovered = whole(result.outputs().at("predicted"));
  const at::Tensor power = truth.square().sum();
  const at::Tensor left = (input - truth).square().sum();
  board.add_correlation("corr", recovered, truth);
  board.add_correlation("pca_corr", input, truth);
  const at::Tensor residual = (recovered - truth).square().sum();
  board.add("residual_power", residual, power);
  board.add("pca_residual_power", left, power);
  board.add_log("pca_logmse", left, at::scalar_tensor(static_cast<double>(truth.numel()), truth.options()));
  for (const char* power_left : {"residual_power", "delay_residual"}) board.lowest_is_best(power_left);
  DelaySpectra here;
  here.add(truth, recovered, input);
  board.add("delay_residual", here.residual.sum(), here.truth.sum());
  board.add("pca_delay_residual", here.input_residual.sum(), here.truth.sum());
  if (batch.split() == Split::train) return;
  spectra_ += here;
  left_ = left_.defined() ? left_ + residual : residual.clone();
  power_ = power_.defined() ? power_ + power : power.clone();
  if (!shown_.truth.defined()) {
    const std::vector<std::int64_t>& samples = batch.groups().front().indices;
    const bool known = !samples.empty() && static_cast<std::size_t>(samples[0]) < judged_.signal.size();
    const std::string name = known ? judged_.signal[static_cast<std::size_t>(samples[0])]->path().filename().string() : "";
    shown_ = {.input = input[0].clone(),
              .truth = truth[0].clone(),
              .recovered = recovered[0].clone(),
              .sample = name,
              .unit = sky_ ? sky_->unit : ""};
  }
}

void Cosmology::begin_validation() {
  spectra_ = {};
  shown_ = {};
  left_ = power_ = at::Tensor();
}

void Cosmology::end_validation(metrics::Board&) {  // host: waits for two values, once in each validation
  if (!left_.defined() || !pinned_.add(step_, left_.item<double>(), power_.item<double>())) return;
  context_.note("in three validations in a row the error has about as much power as the signal (" +
                percent(left_.item<double>() / power_.item<double>(), 1) +
                "): the network's output is almost zero. Next: check the residual of PCA (pca_residual_power; "
                "raise recipe.n_fg or flag interference), choose recipe.scale so that the signal is about one, or raise "
                "optim.learning_rate");
}

std::vector<Picture> Cosmology::draw() {
  if (!shown_.truth.defined()) return {};
  const std::vector<double> freq_mhz = sky_ ? sky_->freq_mhz : std::vector<double>{};
  return {draw_maps(shown_, recipe_, freq_mhz), draw_delay(spectra_, recipe_, freq_mhz, shown_.unit)};
}

}  // namespace millrace::recipes::cosmology
