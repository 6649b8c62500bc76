// Recipe "autoencoder_3d": compresses volumes and restores them.
//   data     one random crop of each NPZ or NIfTI file, scaled between its percentiles on the device
//   model    a KL autoencoder, and a patch discriminator that judges its reconstructions (model.h)
//   loss     two objectives in one step. autoencoder: reconstruction, divergence of the latent, the discriminator's judgement;
//            discriminator: distinguishing crops from reconstructions. The discriminator joins after recipe.adv_start_epoch
//   metrics  reconstruction from the latent's mean, PSNR, divergence; how often the discriminator is right
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "millrace/train/recipe/entry.h"
#include "recipes/autoencoder_3d/config.h"
#include "recipes/autoencoder_3d/model.h"
#include "recipes/autoencoder_3d/perceptual.h"
#include "recipes/autoencoder_3d/pictures.h"
#include "recipes/autoencoder_3d/volume_source.h"

namespace millrace::recipes::autoencoder_3d {

class Autoencoder3d final : public Recipe {
 public:
  Autoencoder3d(const Sections& sections, const Context& context);
  [[nodiscard]] static std::vector<Problem> problems(const Sections& sections, const RunConfig& run);

  void before_training() override;  // finds the files and reads their headers
  data::Pipeline data(Split split) override;
  // Makes "input" and "target", both in [0, 1], from "image" and "label". Also adds "eps", the random part of the latent, and
  // "slices0" to "slices2", the slices for the perceptual loss.
  Batch prepare(Batch batch) override;
  VolumeGan& model() override;
  bool set_layout(Layout layout) override;
  std::vector<Objective> objectives() override;
  void begin_validation() override { shown_ = {}; }
  void measure(const Batch& batch, const StepResult& result, metrics::Board& board) override;

  // There is no state to load, but a call shows that the weights come from a snapshot.
  void load_state(const State&) override { goes_on_ = true; }
  // Takes "x" (rows, C, D, H, W) in [0, 1]. Returns "recon" of the same shape and "latent" (rows, z, D/f, H/f, W/f), the mean of
  // the latent distribution.
  Tensors predict(const Tensors& inputs) override;
  Facts facts() const override;
  std::vector<Picture> draw() override;

 private:
  std::vector<optim::ParameterGroup> parameters_of(bool discriminator);
  [[nodiscard]] optim::OptimConfig optimizer() const;
  [[nodiscard]] LossTerm perceptual(const at::Tensor& recon, const Batch& batch) const;
  [[nodiscard]] bool judges(const StepContext& context) const;  // true: the discriminator already takes part in training
  std::optional<Loss> autoencoder_loss(const Batch& batch, const StepContext& context);
  std::optional<Loss> discriminator_loss(const Batch& batch, const StepContext& context);

  Context context_;
  RecipeConfig recipe_;
  bool goes_on_ = false;  // true: the weights come from a snapshot and replace those of recipe.pretrained
  std::optional<VolumeFiles> files_;
  std::shared_ptr<VolumeGan> model_;
  std::shared_ptr<Perceptual> perceptual_;  // null: there is no perceptual loss
  Shown shown_;                             // the first sample of the present validation
};

}  // namespace millrace::recipes::autoencoder_3d
