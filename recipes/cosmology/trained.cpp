// The part of the recipe that is about a trained model: its saved state, its facts and predict().
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros_like.h>

#include "millrace/base/axis_text.h"
#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/core/saved_json.h"
#include "millrace/train/recipe/config.h"
#include "recipes/common/weights.h"
#include "recipes/cosmology/preprocess.h"
#include "recipes/cosmology/recipe.h"
#include "recipes/cosmology/sky_pca.h"

namespace millrace::recipes::cosmology {
namespace {

at::Tensor saved_tensor(const State& state, const std::string& name, const Shape& shape) {
  const auto found = state.tensors.find(name);
  if (found == state.tensors.end()) refuse_part("recipe", "tensor \"" + name + "\" is missing");
  const at::Tensor& tensor = found->second;
  if (tensor.scalar_type() != at::kDouble || tensor.sizes() != at::IntArrayRef(shape))
    refuse_part("recipe", "tensor \"" + name + "\" is " + c10::toString(tensor.scalar_type()) + " " + shape_text(tensor) +
                              ", not Double " + to_text(shape));
  if (!tensor.isfinite().all().item<bool>()) refuse_part("recipe", "tensor \"" + name + "\" holds numbers that are not finite");
  return tensor.to(at::kCPU);
}

// Throws if an input is not finite, because the convolutions would spread such a value.
void refuse_not_finite(const at::Tensor& x) {
  const at::Tensor bad = at::view_as_real(x).isfinite().all(-1).logical_not();
  const auto count = bad.sum().item<std::int64_t>();
  if (count == 0) return;
  const at::Tensor first = bad.nonzero()[0];
  std::string place;
  for (std::int64_t i = 0; i < first.numel(); ++i) place += (i == 0 ? "" : ",") + std::to_string(first[i].item<std::int64_t>());
  throw DataError({"\"x\" has " + with_commas(count) + (count == 1 ? " value" : " values") +
                       " that are not finite, the first at [" + place + "]",
                   "predict", "replace them: millrace uvh5 interpolates flagged ones"});
}

}  // namespace

SkyFolders sky_folders(const RecipeConfig& recipe, const DataConfig& data) {
  const std::filesystem::path folder = data.dir;
  return {recipe.signal_dir.empty() ? folder / "signal" : std::filesystem::path(recipe.signal_dir),
          recipe.foreground_dir.empty() ? folder / "foreground" : std::filesystem::path(recipe.foreground_dir)};
}

State Cosmology::state() const {
  State state;
  if (!pca_) return state;
  state.tensors = {{"pca.mean", pca_->mean()}, {"pca.eigenvalues", pca_->eigenvalues()}, {"pca.vectors", pca_->vectors()}};
  if (pca_->freq_mhz.defined()) state.tensors["pca.freq_mhz"] = pca_->freq_mhz;
  state.json["pca"] = {{"n_fg", pca_->n_fg()}, {"facts", pca_->facts}};
  return state;
}

void Cosmology::load_state(const State& state) {
  if (state.tensors.empty() && state.json.empty()) return;  // empty if only weights were loaded, or with pca=batch
  const SavedJson json = SavedJson(state.json, "recipe")["pca"];
  const auto found = state.tensors.find("pca.mean");
  const std::int64_t channels = found != state.tensors.end() && found->second.dim() == 1 ? found->second.size(0) : 0;
  if (channels < 2) refuse_part("recipe", "tensor \"pca.mean\" is missing or not a list of channels");
  nn::ForegroundPca pca(saved_tensor(state, "pca.mean", {channels}), saved_tensor(state, "pca.eigenvalues", {channels}),
                        saved_tensor(state, "pca.vectors", {channels, channels}), json["n_fg"].integer(1, channels - 1));
  for (const auto& [fact, value] : json["facts"].members()) pca.facts[fact] = value.text();
  if (state.tensors.contains("pca.freq_mhz")) pca.freq_mhz = saved_tensor(state, "pca.freq_mhz", {channels});
  if (pca.n_fg() != recipe_.n_fg) json["n_fg"].refuse("recipe.n_fg = " + std::to_string(recipe_.n_fg));
  if (sky_) check_pca(pca, recipe_, *sky_, "the snapshot", {});
  pca_ = std::move(pca);
}

// Loads the components that the config names. Weights without a snapshot need this, because such weights come without
// components. A run's own components are kept.
void Cosmology::use_given_components() {
  if (pca_ || recipe_.pca_components_path.empty() || recipe_.pca.value_or(PcaMode::stored) == PcaMode::batch) return;
  nn::ForegroundPca pca = nn::ForegroundPca::load(recipe_.pca_components_path);
  if (pca.n_fg() != recipe_.n_fg) {
    throw DataError(
        {"the PCA file has n_fg " + std::to_string(pca.n_fg()) + ", but recipe.n_fg is " + std::to_string(recipe_.n_fg),
         std::filesystem::path(recipe_.pca_components_path).string(), "give the components that the model was trained with"});
  }
  pca_ = std::move(pca);
}

Tensors Cosmology::predict(const Tensors& inputs) {
  const auto it = inputs.find("x");
  const bool usable = it != inputs.end() && it->second.is_complex() && it->second.dim() == 4 && it->second.numel() > 0;
  if (!usable) {
    throw UsageError({"the input has no complex tensor \"x\" of shape (batch, baselines, frequencies, RA)", "predict",
                      "give visibilities in kelvin under that name; millrace inspect shows what a file holds"});
  }
  use_given_components();
  const at::Tensor x = it->second.to(at::kComplexFloat).contiguous();
  const std::string shape = shape_text(x);
  const std::int64_t multiple = recipe_.pad == Padding::none ? 4 : 1;
  if (x.size(1) % multiple != 0 || x.size(2) % multiple != 0 || x.size(3) % (multiple * recipe_.split) != 0 ||
      (pca_ && x.size(2) != pca_->frequencies())) {
    const std::string lengths = multiple == 1 ? "RA must be a multiple of split = " + std::to_string(recipe_.split)
                                              : "baselines and frequencies must be multiples of 4, RA a multiple of 4*split = " +
                                                    std::to_string(4 * recipe_.split);
    throw UsageError({"\"x\" is " + shape + ": " + lengths +
                          (pca_ ? ", and the model has " + std::to_string(pca_->frequencies()) + " frequencies" : std::string()),
                      "predict", "cut or regrid the input, or give --recipe.pad=mirror"});
  }
  refuse_not_finite(x);
  RecipeConfig quiet = recipe_;
  quiet.add_noise = false;  // no noise is added, because the input of predict() is real data with its own noise
  const at::Tensor input = preprocess(x, at::zeros_like(x), quiet, pca_ ? &*pca_ : nullptr, {}, fused_).input;
  at::Tensor signal = recover(input).to(at::kFloat);
  if (recipe_.predict_residual) signal = signal + input;
  if (recipe_.target_transform == Transform::arcsinh) signal = signal.sinh();
  return {{"signal", to_sky(signal / recipe_.scale, recipe_.split)}};
}

namespace {

// Returns an axis with coordinates, or an axis that counts indices if the steps of `values` are uneven.
FieldAxis axis_of(const std::string& label, const std::string& unit, const std::vector<double>& values, double period = 0) {
  const int direction = direction_of(values, period);
  if (direction == 0) return {.label = label};
  const double all = period > 0 && direction * (values.back() - values.front()) < 0 ? direction * period : 0;
  return {.label = label,
          .unit = unit,
          .first = values.front(),
          .step = (values.back() - values.front() + all) / static_cast<double>(values.size() - 1)};
}

// The axes of x and y as they are in the files, and of the results of prepare().
std::map<std::string, FieldWords> fields_of(const Sky& sky, const RecipeConfig& recipe) {
  constexpr double kFullTurn = 360;
  FieldAxis ra = axis_of("RA", "degrees", sky.ra, kFullTurn);
  const bool is_moved = recipe.ra_shift || recipe.split > 1;  // true: x and y are rolled or cut along RA
  if (is_moved && !ra.unit.empty()) ra = {.label = "RA offset", .unit = ra.unit, .step = ra.step};
  const FieldAxis frequency = axis_of("freq", "MHz", sky.freq_mhz);
  const std::string unit = sky.unit.empty() ? "K" : sky.unit;
  const FieldWords cube{.axes = {{.label = "baseline"}, frequency, ra}, .value = "magnitude", .unit = unit};
  const std::string scaled = significant(recipe.scale, 4) + " x " + unit;
  const FieldWords volume{.axes = {{.label = "part (real, imaginary)"}, ra, frequency, {.label = "baseline"}},
                          .value = recipe.target_transform == Transform::arcsinh ? "arcsinh of " + scaled : scaled};
  return {{"x", cube}, {"y", cube}, {"input", volume}, {"target", volume}};
}

}  // namespace

Facts Cosmology::facts() const {
  Facts facts{.history = {"corr", "residual_power", "pca_corr"}, .metric_tags = "val/"};
  const std::int64_t half = recipe_.ra_keep / 2;
  if (half > 0 && half % (4 * recipe_.split) == 0) facts.shrinks.push_back({.setting = "recipe.ra_keep=" + std::to_string(half)});
  if (sky_) {
    facts.lines["sky"] = to_text(sky_->shape) + " baselines, frequencies, RA; " + std::to_string(sky_->train.signal.size()) +
                         "+" + std::to_string(sky_->validation.signal.size()) + " signal and " +
                         std::to_string(sky_->train.foreground.size()) + "+" +
                         std::to_string(sky_->validation.foreground.size()) + " foreground files (training+validation)";
    facts.read_as = sky_->read_as;
    facts.fields = fields_of(*sky_, recipe_);
    const Shape chunk{2, recipe_.ra_keep / recipe_.split, sky_->shape[1], sky_->shape[0]};
    std::string chunks = std::to_string(recipe_.split) + " a sample, " + to_text(chunk) + " each";
    if (recipe_.pad != Padding::none) {
      Shape whole = chunk;
      for (std::size_t i = 1; i < whole.size(); ++i) whole[i] = (whole[i] + 3) / 4 * 4;
      if (whole != chunk)
        chunks += "; in the network " + to_text(whole) + ", " + (recipe_.pad == Padding::mirror ? "mirrored" : "circular");
    }
    facts.lines["chunks"] = chunks;
  }
  return facts;
}

}  // namespace millrace::recipes::cosmology
