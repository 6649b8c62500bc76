#include "recipes/autoencoder_3d/recipe.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <string>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/nn/noise.h"
#include "millrace/nn/sent.h"
#include "millrace/train/recipe/config.h"
#include "millrace/train/step/model_size.h"
#include "recipes/autoencoder_3d/loss.h"
#include "recipes/autoencoder_3d/originals/pretrained.h"
#include "recipes/autoencoder_3d/scaling.h"
#include "recipes/autoencoder_3d/volume_look.h"
#include "recipes/common/weights.h"

namespace millrace::recipes::autoencoder_3d {
namespace {

constexpr std::uint64_t kLatentSite = 51, kSliceSite = 52;
constexpr double kReal = 1, kMadeUp = 0;

// True if the parameter belongs to the discriminator. The names are those of VolumeGan.
bool is_discriminator(const std::string& name) {
  return name.starts_with("initial_conv.") || name.starts_with("final_conv.") || (name[0] >= '0' && name[0] <= '9');
}

LossTerm weighted(LossTerm term, std::string name, double weight) {
  term.name = std::move(name);
  term.weight = weight;
  return term;
}

}  // namespace

// ---- 1 config: the keys and their defaults are in config.h, the named sizes in presets.cpp

std::vector<Problem> Autoencoder3d::problems(const Sections& sections, const RunConfig&) {
  return shape_problems(sections.recipe);
}

Autoencoder3d::Autoencoder3d(const Sections& sections, const Context& context) : context_(context), recipe_(sections.recipe) {}

// ---- 2 data

void Autoencoder3d::before_training() {
  files_ = open_volumes(recipe_, context_.config->data.dir, context_.seed, context_.config->data);
  for (const std::string& text : files_->notices) context_.note(text);
  for (const std::string& text : look_at_headers(*files_, recipe_)) context_.note(text);
  if (!context_.places.plan_only) {
    const bool passes = context_.config->data.bad_samples != data::BadSamples::fail;
    for (const std::string& text : look_at_values(*files_, passes)) context_.note(text);
  }
  if (recipe_.perceptual_weight > 0 && recipe_.perceptual_weights.empty())
    context_.note("the perceptual loss is off, because no weights are given (recipe.perceptual_weights)");
  if (recipe_.perceptual_weight > 0 && !recipe_.perceptual_weights.empty()) {
    perceptual_ = std::make_shared<Perceptual>(recipe_.perceptual_weights, recipe_.perceptual_map);
    perceptual_->to(context_.device);
  }
}

data::Pipeline Autoencoder3d::data(Split split) {
  const bool training = split == Split::train;
  const std::vector<VolumeFile>& files = training ? files_->train : files_->validation;
  if (files.empty()) return {};
  data::Pipeline pipeline = data::single(volume_source(files, split, recipe_));
  return pipeline;
}

Batch Autoencoder3d::prepare(Batch batch) {
  // A batch without "image" comes from a benchmark, which supplies the network's input itself.
  if (!batch.has("image")) return batch;
  const at::NoGradGuard no_grad;
  const bool two = batch.has("label");
  const at::Tensor volumes = two ? at::cat({batch["image"], batch["label"]}, 1) : batch["image"];
  const Scaled scaled = scale_to_unit(volumes, batch.has("range") ? batch["range"] : range_of(volumes));
  const bool apart = two && recipe_.image_channels == 1;
  batch.set("input", apart ? scaled.x.narrow(1, 0, 1) : scaled.x);
  batch.set("x", batch["input"]);  // "x" is for predict(), which a rehearsal calls with rows of this batch
  batch.set("target", apart && recipe_.target == Target::label ? scaled.x.narrow(1, 1, 1) : batch["input"]);
  batch.set("flat", scaled.flat);
  nn::RowKey key{context_.seed, kLatentSite, batch.epoch(), batch.groups().front().positions};
  if (batch.split() == Split::train) {
    const std::int64_t f = size_divisor(recipe_);
    batch.set("eps",
              nn::normal_rows(key, {recipe_.latent_channels, volumes.size(2) / f, volumes.size(3) / f, volumes.size(4) / f},
                              volumes.options()));
  }
  if (!perceptual_) return batch;
  key.site = kSliceSite;
  const Slices slices = drawn_slices(key, {volumes.size(2), volumes.size(3), volumes.size(4)});
  const at::Tensor together = nn::sent(at::cat(slices, 1), volumes.device());
  std::int64_t begin = 0;
  for (std::size_t axis = 0; axis < slices.size(); ++axis) {
    batch.set("slices" + std::to_string(axis), together.narrow(1, begin, slices.at(axis).size(1)));
    begin += slices.at(axis).size(1);
  }
  return batch;
}

// ---- 3 model

VolumeGan& Autoencoder3d::model() {
  if (!model_) {
    const double parameters = autoencoder_parameters(recipe_) + (recipe_.adv_weight > 0 ? discriminator_parameters(recipe_) : 0);
    check_model_size(parameters, sizeof(float) * parameters, "recipe.channels, recipe.latent_channels, recipe.disc_channels");
    model_ = std::make_shared<VolumeGan>(recipe_, context_.seed, context_.fused());
    if (finds_weights(context_, "recipe.pretrained", recipe_.pretrained, goes_on_))
      context_.note(take_pretrained(*model_, recipe_.pretrained));
  }
  return *model_;
}

bool Autoencoder3d::set_layout(Layout layout) {
  model().set_channels_last(layout == Layout::channels_last);
  return true;
}

// ---- 4 losses

std::vector<optim::ParameterGroup> Autoencoder3d::parameters_of(bool discriminator) {
  std::vector<optim::ParameterGroup> groups(1);
  for (const auto& item : model().named_parameters()) {
    if (is_discriminator(item.key()) == discriminator) groups[0].parameters.push_back({item.key(), item.value()});
  }
  return groups;
}

// Returns the optimiser's settings. If the config does not set lr_scaling_batch, the learning rate counts as chosen for the
// batch of a single rank.
optim::OptimConfig Autoencoder3d::optimizer() const {
  optim::OptimConfig config = context_.config->optim;
  if (config.lr_scaling_batch == 0) config.lr_scaling_batch = context_.config->data.samples_per_batch() * config.accumulate;
  return config;
}

bool Autoencoder3d::judges(const StepContext& context) const {
  const std::int64_t start = recipe_.adv_start_epoch;
  return recipe_.adv_weight > 0 && (start < 0 || context.epoch.is_above(static_cast<std::uint64_t>(start)));
}

LossTerm Autoencoder3d::perceptual(const at::Tensor& recon, const Batch& batch) const {
  const Slices slices = {batch["slices0"], batch["slices1"], batch["slices2"]};
  const at::Tensor rows = perceptual_->distances(recon, batch["target"], slices);
  const auto count = static_cast<double>(rows.size(0));
  return {.sum = rows.sum(),
          .count = at::full({}, count, rows.options()),
          .nominal_count = std::max(count, 1.0),
          .name = "perceptual",
          .weight = recipe_.perceptual_weight,
          .per_row = true};
}

std::optional<Loss> Autoencoder3d::autoencoder_loss(const Batch& batch, const StepContext& context) {
  AutoencoderKL& autoencoder = model().autoencoder();
  const at::Tensor& target = batch["target"];
  const AutoencoderKL::Latent latent = autoencoder.encode(batch["input"]);
  const at::Tensor z = context.training ? latent.mean + latent.deviation * batch["eps"] : latent.mean;
  const at::Tensor recon = autoencoder.decode(z).to(at::kFloat);
  Loss loss{.outputs = {{"recon", recon}, {"mean", latent.mean}, {"deviation", latent.deviation}}};
  if (!context.training) {
    loss.terms = {reconstruction(recon.clamp(0, 1), target, recipe_.recon_loss)};
    if (perceptual_) loss.terms.push_back(perceptual(recon.clamp(0, 1), batch));
    return loss;
  }
  loss.terms = {reconstruction(recon, target, recipe_.recon_loss),
                weighted(divergence(latent.mean, latent.deviation, recipe_.kl_clamp), "kl", recipe_.kl_weight)};
  if (perceptual_) loss.terms.push_back(perceptual(recon, batch));
  if (judges(context))
    loss.terms.push_back(weighted(judgement(model().discriminator().forward(recon), kReal), "adv", recipe_.adv_weight));
  return loss;
}

std::optional<Loss> Autoencoder3d::discriminator_loss(const Batch& batch, const StepContext& context) {
  if (!judges(context)) return std::nullopt;
  const at::Tensor& recon = context.earlier->at("recon");
  const at::Tensor logits = model().discriminator().forward(at::cat({recon, batch["target"]}));
  const at::Tensor of_recon = logits.narrow(0, 0, recon.size(0)), of_target = logits.narrow(0, recon.size(0), recon.size(0));
  return Loss{.terms = {weighted(judgement(of_recon, kMadeUp), "fake", recipe_.adv_weight / 2),
                        weighted(judgement(of_target, kReal), "real", recipe_.adv_weight / 2)},
              .outputs = {{"fake_right", judged_right(of_recon, kMadeUp)}, {"real_right", judged_right(of_target, kReal)}}};
}

std::vector<Objective> Autoencoder3d::objectives() {
  const auto of = [this](auto loss) {
    return [this, loss](const Batch& batch, const StepContext& context) { return (this->*loss)(batch, context); };
  };
  std::vector<Objective> both = {{.name = "autoencoder",
                                  .parameters = parameters_of(false),
                                  .optim = optimizer(),
                                  .loss = of(&Autoencoder3d::autoencoder_loss)}};
  if (model().has_discriminator()) {
    both.push_back({.name = "discriminator",
                    .parameters = parameters_of(true),
                    .optim = optimizer(),
                    .loss = of(&Autoencoder3d::discriminator_loss)});
  }
  return both;
}

// ---- 5 metrics

void Autoencoder3d::measure(const Batch& batch, const StepResult& result, metrics::Board& board) {
  const at::Tensor& target = batch["target"];
  const at::Tensor recon = result.outputs().at("recon").clamp(0, 1);
  const at::Tensor squared = (recon - target).square().flatten(1).mean(1);
  board.add_mean("psnr", squared.log10() * -10, squared.ne(0));
  board.highest_is_best("psnr");
  if (batch.split() == Split::validation) {  // only in validation, because in training the divergence is a term of the loss
    const LossTerm kl = divergence(result.outputs().at("mean"), result.outputs().at("deviation"), 0);
    board.add("kl", kl.sum, kl.count);
    board.add_mean("latent_sd", result.outputs().at("deviation"));
  }
  if (batch.has("flat")) board.add_rate("flat_crops", batch["flat"]);
  board.quiet("latent_sd");
  board.quiet("flat_crops");
  board.quiet("real_found");
  if (result.losses.size() > 1 && !result.losses[1].terms.empty()) {
    board.add_rate("fake_found", result.outputs(1).at("fake_right"));
    board.add_rate("real_found", result.outputs(1).at("real_right"));
  }
  if (batch.split() == Split::train || shown_.target.defined()) return;
  shown_ = {.target = target[0][0].clone(),
            .recon = recon[0][0].clone(),
            .latent = result.outputs().at("mean")[0].clone(),
            .sample = "",
            .spacing = {}};
  const std::vector<std::int64_t>& samples = batch.groups().front().indices;
  if (!files_ || samples.empty() || static_cast<std::size_t>(samples[0]) >= files_->validation.size()) return;
  const VolumeFile& file = files_->validation[static_cast<std::size_t>(samples[0])];
  shown_.sample = file.path.filename().string();
  shown_.spacing = file.spacing;
}

namespace {

// Returns the change that makes samples smaller: the longest axis of the crops is halved, if the network can divide the result.
std::vector<Shrink> shrinks(std::vector<std::int64_t> patch) {
  const auto longest = std::max_element(patch.begin(), patch.end());
  if (longest == patch.end() || *longest < 32) return {};
  *longest /= 2;
  return {{.setting = "recipe.patch_size=" + joined(patch, ",", [](std::int64_t side) { return std::to_string(side); })}};
}

// The axes of the fields. Crops begin anywhere, so lengths are counted from the crop's corner. Lengths are in mm if all files
// have the same orientation and voxel size, otherwise in voxels.
std::map<std::string, FieldWords> fields_of(const VolumeFiles& files) {
  const VolumeFile& first = files.train.front();
  const auto is_other = [&](const VolumeFile& file) {
    return file.spacing != first.spacing || file.orientation != first.orientation;
  };
  const bool alike = std::ranges::none_of(files.train, is_other) && std::ranges::none_of(files.validation, is_other);
  std::vector<FieldAxis> axes = {{.label = "channel"}, {.label = "z"}, {.label = "y"}, {.label = "x"}};
  for (std::size_t i = 0; i < 3 && alike; ++i) {
    FieldAxis& axis = axes[i + 1];
    if (!first.orientation.empty()) axis.label += std::string(" to ") + first.orientation[2 - i];
    if (first.spacing.at(i) <= 0) continue;
    axis.unit = "mm";
    axis.step = first.spacing.at(i);
  }
  const FieldWords stored{.axes = axes, .value = "value as scaled by the file"},
      scaled{.axes = axes, .value = "share of the range"};
  return {{"image", stored}, {"label", stored}, {"input", scaled}, {"target", scaled}};
}

}  // namespace

Facts Autoencoder3d::facts() const {
  return {.rate_unit = "volumes",
          .units_per_sample = 1.0,
          .history = {"val_autoencoder", "psnr", "kl"},
          .read_as = files_ ? files_->read_as : "",
          .fields = files_ ? fields_of(*files_) : std::map<std::string, FieldWords>(),
          .shrinks = shrinks(recipe_.patch_size)};
}

std::vector<Picture> Autoencoder3d::draw() {
  if (!shown_.target.defined()) return {};
  for (at::Tensor* volume : {&shown_.target, &shown_.recon, &shown_.latent}) *volume = volume->to(at::kCPU);
  std::vector<Picture> pictures = {draw_planes(shown_), draw_latent(shown_)};
  std::ranges::move(draw_slices(shown_), std::back_inserter(pictures));
  return pictures;
}

// ---- 6 use

Tensors Autoencoder3d::predict(const Tensors& inputs) {
  const at::Tensor& x = inputs.at("x");
  const std::int64_t f = size_divisor(recipe_);
  for (std::int64_t axis = 2; axis < 5; ++axis) {
    if (x.size(axis) % f == 0 && x.size(axis) > 0) continue;
    throw DataError({"a volume of " + to_text(Tensors{{"x", x}}) + " can't be halved " +
                         std::to_string(recipe_.channels.size() - 1) + " times",
                     "x", "cut or pad each axis to a multiple of " + std::to_string(f)});
  }
  const AutoencoderKL::Latent latent = model().autoencoder().encode(x);
  return {{"recon", model().autoencoder().decode(latent.mean).to(at::kFloat)}, {"latent", latent.mean}};
}

}  // namespace millrace::recipes::autoencoder_3d
