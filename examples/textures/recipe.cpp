// A recipe of pictures: ten noisy textures of 32 x 32, classified by a small convolutional network.
//   data     gratings of ten directions under noise, cropped, flipped and normalised at each read
//   model    three convolutions, mean over the picture, one linear layer
//   loss     cross-entropy with smoothed labels, and a tenth of the error of the grating's direction
//   metrics  accuracy overall and per class, error of the direction
#include <cmath>
#include <numbers>

#include "millrace/recipe.h"

namespace textures {
namespace {

using namespace millrace;

constexpr std::int64_t kClasses = 10;

struct RecipeConfig {
  std::int64_t pictures = 2000;
  double noise = 3.0;
  std::vector<std::int64_t> widths = {16, 32, 32};
  double label_smoothing = 0.05;
  static consteval auto fields() {
    using C = RecipeConfig;
    using config::field;
    return std::tuple{field<&C::pictures>("Training pictures; a quarter as many more are kept for validation.").min(10),
                      field<&C::noise>("Standard deviation of the noise; a grating's is about 0.7.").min(0),
                      field<&C::widths>("Channels of the three convolutions.").size(3).min(1),
                      field<&C::label_smoothing>("Share of each label that is spread over all classes.").min(0).below(1)};
  }
};

struct Sections {
  RecipeConfig recipe;
  static consteval auto fields() { return std::tuple{config::field<&Sections::recipe>("The network and its pictures.")}; }
};

// Picture i is a pure function of i: a grating of its class's direction, with its own wavelength and phase, under noise.
std::shared_ptr<const data::Source> gratings(std::int64_t first, std::int64_t size, double noise) {
  const auto make = [=](std::int64_t index, const data::MutableSample& out, const data::SampleRandom&) {
    Philox random(make_key(7, first + index));
    const std::int64_t label = index % kClasses;
    const double angle = std::numbers::pi * static_cast<double>(label) / kClasses;
    const double wave = 2 * std::numbers::pi / (4 + 4 * random.uniform());
    const double phase = 2 * std::numbers::pi * random.uniform();
    const auto image = out.values<float>("image");
    for (std::size_t i = 0; i < image.size(); ++i) {
      const double along = std::cos(angle) * static_cast<double>(i % 32) + std::sin(angle) * static_cast<double>(i / 32 % 32);
      image[i] = static_cast<float>(std::sin(wave * along + phase) + noise * random.normal());
    }
    out.values<std::int64_t>("label")[0] = label;
    out.values<float>("direction")[0] = static_cast<float>(std::cos(2 * angle));
    out.values<float>("direction")[1] = static_cast<float>(std::sin(2 * angle));
  };
  const std::vector<Field> fields = {
      {"image", DType::f32, {1, 32, 32}}, {"label", DType::i64, {}}, {"direction", DType::f32, {2}}};
  return data::generate("gratings from " + std::to_string(first), size, fields, make);
}

class Textures final : public Recipe {
 public:
  Textures(const Sections& sections, const Context& context)
      : config_(sections.recipe), context_(context), cross_entropy_({.label_smoothing = config_.label_smoothing}) {
    std::int64_t channels = 1;
    for (const std::int64_t width : config_.widths) {
      model_->push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(channels, width, 3).padding(1).stride(2)));
      model_->push_back(torch::nn::ReLU());
      channels = width;
    }
    model_->push_back(torch::nn::AdaptiveAvgPool2d(torch::nn::AdaptiveAvgPool2dOptions({1, 1})));
    model_->push_back(torch::nn::Flatten());
    model_->push_back(torch::nn::Linear(channels, kClasses + 2));
  }

  data::Pipeline data(Split split) override {
    const data::Step scaled = data::normalise({0.0F}, {static_cast<float>(std::hypot(0.7, config_.noise))});
    if (split == Split::validation)
      return data::single(data::augment(gratings(config_.pictures, config_.pictures / 4, config_.noise), {"image"}, {scaled}));
    const data::Step crop = data::random_crop({32, 32}, {.margin = {2, 2}, .border = data::Border::reflect});
    return data::single(data::augment(gratings(0, config_.pictures, config_.noise), {"image"}, {crop, scaled}));
  }

  torch::nn::Module& model() override { return *model_; }

  std::vector<Objective> objectives() override {
    return {{.optim = context_.config->optim, .loss = [this](const Batch& batch, const StepContext&) {
               const at::Tensor out = model_->forward(batch["image"]).to(at::kFloat);
               const at::Tensor logits = out.narrow(1, 0, kClasses);
               LossTerm classes = cross_entropy_(logits, batch["label"]);
               LossTerm direction = nn::mean_squared_error(out.narrow(1, kClasses, 2), batch["direction"]);
               classes.name = "classes";
               direction.name = "direction";
               direction.weight = 0.1;
               return Loss{.terms = {classes, direction}, .outputs = {{"logits", logits}}};
             }}};
  }

  void measure(const Batch& batch, const StepResult& result, metrics::Board& board) override {
    board.add_classification(result.outputs().at("logits"), batch["label"], {.top_k = 2});
  }

  Tensors predict(const Tensors& inputs) override {
    const at::Tensor out = model_->forward(inputs.at("image").to(at::kFloat));
    return {{"label", out.narrow(1, 0, kClasses).argmax(1)}};
  }

 private:
  RecipeConfig config_;
  Context context_;
  nn::CrossEntropy cross_entropy_;
  torch::nn::Sequential model_;
};

}  // namespace

Entry entry() {
  Entry entry = entry_of<Textures, Sections>("textures", "Ten noisy textures, told apart by a small convolutional network.");
  entry.defaults = Json{{"optim.learning_rate", 5e-3}, {"data.batch_size", 50}, {"train.epochs", 8}};
  return entry;
}

}  // namespace textures

int main(int argc, char** argv) {
  const std::vector<millrace::Entry> recipes = {textures::entry()};
  return millrace::cli_main(argc, argv, recipes);
}
