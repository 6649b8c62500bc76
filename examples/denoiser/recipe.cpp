// A recipe with a frozen part: a denoiser whose result is compared with the truth also by the features of a pretrained network.
//   data     one .npy file [1,H,W] a sample; the noise is drawn in prepare()
//   model    three convolutions, and the first layers of a network from a .pt or .safetensors file, which are not trained
//   loss     squared error of the pixels, and of the features with a weight
//   metrics  PSNR, and pictures of noisy, denoised and clean
#include "millrace/recipe.h"

namespace {

using namespace millrace;
using torch::nn::Conv2d;
using torch::nn::Conv2dOptions;

struct RecipeConfig {
  std::string features;
  double noise = 0.3, perceptual = 0.1;
  static consteval auto fields() {
    using C = RecipeConfig;
    return std::tuple{config::field<&C::features>("File with the weights of the feature network.").path(),
                      config::field<&C::noise>("Standard deviation of the noise.").min(0),
                      config::field<&C::perceptual>("Weight of the features' error.").min(0)};
  }
};

struct Sections {
  RecipeConfig recipe;
  static consteval auto fields() { return std::tuple{config::field<&Sections::recipe>("Noise and loss.")}; }
};

class Denoiser final : public Recipe {
 public:
  Denoiser(const Sections& sections, const Context& context)
      : config_(sections.recipe),
        context_(context),
        features_(config_.features, nn::LoadOptions{.prefix = "features."}, Conv2d(Conv2dOptions(1, 8, 3).padding(1)),
                  torch::nn::ReLU(), Conv2d(Conv2dOptions(8, 8, 3).padding(1))) {
    model_->register_module("net", net_);
    model_->register_module("features", features_);
  }

  data::Pipeline data(Split split) override {
    const data::Fraction part = split == Split::train ? data::Fraction{.to = 0.8} : data::Fraction{.from = 0.8};
    const auto all = std::make_shared<data::FileSource>(data::files_in(context_.config->data.dir, {".npy"}),
                                                        data::FileSamples{.field = "clean"});
    return data::single(data::random_subset(all, part));
  }

  Batch prepare(Batch batch) override {
    const at::Tensor& clean = batch["clean"];
    const nn::RowKey key{.seed = context_.seed, .site = 1, .epoch = batch.epoch(), .positions = batch.groups()[0].positions};
    batch.set("noisy", clean + config_.noise * nn::normal_rows(key, clean.sizes().slice(1), clean.options()));
    return batch;
  }

  torch::nn::Module& model() override { return *model_; }

  std::vector<Objective> objectives() override {
    return {{.optim = context_.config->optim, .loss = [this](const Batch& batch, const StepContext&) {
               const at::Tensor clean = batch["clean"], denoised = batch["noisy"] - net_->forward(batch["noisy"]);
               LossTerm pixels = nn::mean_squared_error(denoised, clean);
               LossTerm features = nn::mean_squared_error(features_->forward(denoised), features_->forward(clean));
               pixels.name = "pixels";
               features.name = "features";
               features.weight = config_.perceptual;
               return Loss{.terms = {pixels, features}, .outputs = {{"denoised", denoised}}};
             }}};
  }

  void measure(const Batch& batch, const StepResult& result, metrics::Board& board) override {
    const at::Tensor denoised = result.outputs().at("denoised").to(at::kFloat);
    board.add_mean("psnr", (denoised - batch["clean"]).square().mean({1, 2, 3}).log10() * -10);
    if (batch.split() == Split::train) return;
    shown_.clear();
    for (const auto& [name, values] : {std::pair{"noisy", batch["noisy"]}, {"denoised", denoised}, {"clean", batch["clean"]}})
      shown_.push_back({name, values.size(2), values.size(3), 1, host_values<float>(values[0])});
  }

  std::vector<Picture> draw() override { return {picture::images({.name = "denoised", .images = shown_})}; }

  Tensors predict(const Tensors& inputs) override {
    return {{"denoised", inputs.at("noisy") - net_->forward(inputs.at("noisy"))}};
  }

 private:
  RecipeConfig config_;
  Context context_;
  torch::nn::Sequential net_{Conv2d(Conv2dOptions(1, 16, 3).padding(1)), torch::nn::ReLU(),
                             Conv2d(Conv2dOptions(16, 16, 3).padding(1)), torch::nn::ReLU(),
                             Conv2d(Conv2dOptions(16, 1, 3).padding(1))};
  nn::Frozen<torch::nn::SequentialImpl> features_;
  std::shared_ptr<torch::nn::Module> model_ = std::make_shared<torch::nn::Module>("Denoiser");
  std::vector<picture::Image> shown_;
};

}  // namespace

int main(int argc, char** argv) {
  Entry entry = entry_of<Denoiser, Sections>("denoiser", "Noise taken off pictures, with a pretrained network in the loss.");
  entry.defaults = Json{{"optim.learning_rate", 3e-3}, {"optim.ema_decay", 0.99},        {"data.batch_size", 16},
                        {"train.epochs", 10},          {"snapshot.best_metric", "psnr"}, {"snapshot.best_is", "highest"}};
  return cli_main(argc, argv, {{entry}});
}
