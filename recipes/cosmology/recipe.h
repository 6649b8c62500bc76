// Recipe "cosmology": recovers the 21 cm signal after its foreground was removed by principal components.
//   data     HDF5 visibilities, signal plus a foreground drawn for it; cleaned, scaled and cut into chunks on the device
//   model    3-D U-Net with two levels (model.h)
//   loss     log of the mean squared error over all accumulated batches of a step
//   metrics  correlation with the true signal, residual power, delay spectra; the same for the cleaned input without the network
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "millrace/nn/pca.h"
#include "millrace/train/recipe/entry.h"
#include "recipes/cosmology/config.h"
#include "recipes/cosmology/model.h"
#include "recipes/cosmology/pictures.h"
#include "recipes/cosmology/sky_checks.h"
#include "recipes/cosmology/sky_files.h"
#include "recipes/cosmology/spectra.h"

namespace millrace::recipes::cosmology {

class Cosmology final : public Recipe {
 public:
  Cosmology(const Sections& sections, const Context& context, OpenSky open = {});
  [[nodiscard]] static std::vector<Problem> problems(const Sections& sections, const RunConfig& run);

  // Opens all files (headers only); then finds the foreground components in a file, or fits them.
  void before_training() override;
  data::Pipeline data(Split split) override;
  data::Pipeline test_data() override;
  Batch prepare(Batch batch) override;  // makes "input" and "target", both (B*split,2,RA/split,f,bl), from "x" and "y", both
                                        // complex (B,bl,f,RA)
  UNet& model() override;
  bool set_layout(Layout layout) override;
  std::vector<Objective> objectives() override;
  void begin_validation() override;
  void end_validation(metrics::Board& board) override;
  void measure(const Batch& batch, const StepResult& result, metrics::Board& board) override;

  State state() const override;  // returns the foreground components
  void load_state(const State& state) override;
  // Takes "x", complex (B,bl,f,RA) in kelvin; returns "signal" of the same shape.
  Tensors predict(const Tensors& inputs) override;
  Facts facts() const override;
  std::vector<Picture> draw() override;

 private:
  void use_given_components();
  at::Tensor recover(const at::Tensor& input);  // runs the model; if recipe.pad says so, pads `input` and cuts the padding off
                                                // the result

  Context context_;
  OpenSky open_;
  RecipeConfig recipe_;
  nn::Fused fused_;
  std::optional<Sky> sky_;
  std::optional<nn::ForegroundPca> pca_;
  std::shared_ptr<UNet> model_;
  DelaySpectra spectra_;     // delay spectra of the present validation
  Shown shown_;              // the first chunk of the present validation
  at::Tensor left_, power_;  // sums of squares over the present validation: of recovered minus truth, and of truth
  PinnedLoss pinned_;
  std::int64_t step_ = 0;  // the training step (0-based) of the latest validation
  SkyFiles judged_;        // the files from which validation batches come: the validation's own, or those of recipe.test_dir
};

// The folders that a config names: recipe.signal_dir or else data.dir/signal; recipe.foreground_dir or else data.dir/foreground.
struct SkyFolders {
  std::filesystem::path signal, foreground;
};
[[nodiscard]] SkyFolders sky_folders(const RecipeConfig& recipe, const DataConfig& data);

// The sum and the count of a loss over predictions and targets in fp32; see the recipe's page, section 5.
[[nodiscard]] Loss loss_of(const at::Tensor& predicted, const at::Tensor& target, LossKind kind);

}  // namespace millrace::recipes::cosmology
