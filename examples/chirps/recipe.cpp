// A recipe of signals: folders of .npy files, one folder per class, told apart by a one-dimensional convolutional network.
//   data     one file a sample, a fifth of them for validation; a random crop and noise at each read
//   loss     cross-entropy, in which rare classes weigh as much as frequent ones
//   metrics  accuracy, macro-F1 (which chooses the best snapshot) and the picture of the confusions
#include "millrace/recipe.h"

namespace {

using namespace millrace;

struct RecipeConfig {
  std::int64_t classes = 3, crop = 192;
  double noise = 0.1;
  static consteval auto fields() {
    using C = RecipeConfig;
    return std::tuple{config::field<&C::classes>("How many folders there are.").min(2),
                      config::field<&C::crop>("Length of the crop that the network sees.").min(16),
                      config::field<&C::noise>("Standard deviation of the noise that is added.").min(0)};
  }
};

struct Sections {
  RecipeConfig recipe;
  static consteval auto fields() { return std::tuple{config::field<&Sections::recipe>("Signals and network.")}; }
};

class Chirps final : public Recipe {
 public:
  Chirps(const Sections& sections, const Context& context) : config_(sections.recipe), context_(context) {
    std::int64_t channels = 1;
    for (const std::int64_t width : {16, 32, 64}) {
      model_->push_back(torch::nn::Conv1d(torch::nn::Conv1dOptions(channels, width, 7).stride(2).padding(3)));
      model_->push_back(torch::nn::BatchNorm1d(width));
      model_->push_back(torch::nn::ReLU());
      channels = width;
    }
    model_->push_back(torch::nn::AdaptiveAvgPool1d(1));
    model_->push_back(torch::nn::Flatten());
    model_->push_back(torch::nn::Linear(channels, config_.classes));
  }

  data::Pipeline data(Split split) override {
    const data::LabelledFiles files = data::labelled_files_in(context_.config->data.dir, {".npy"});
    std::vector<double> weights(files.classes.size());  // total / (classes * files of the class)
    for (const std::int64_t label : files.labels) ++weights[static_cast<std::size_t>(label)];
    for (double& weight : weights)
      weight = static_cast<double>(files.labels.size()) / static_cast<double>(weights.size()) / weight;
    cross_entropy_ = nn::CrossEntropy({.class_weights = weights});
    classes_ = files.classes;
    const auto all = std::make_shared<data::FileSource>(files, data::FileSamples{.field = "wave"});
    if (split == Split::validation)
      return data::single(data::augment(data::random_subset(all, {.from = 0.8}), {"wave"}, {data::centre_crop({config_.crop})}));
    return data::single(data::augment(data::random_subset(all, {.to = 0.8}), {"wave"},
                                      {data::random_crop({config_.crop}), data::gaussian_noise(config_.noise)}));
  }

  torch::nn::Module& model() override { return *model_; }

  std::vector<Objective> objectives() override {
    return {{.optim = context_.config->optim, .loss = [this](const Batch& batch, const StepContext&) {
               const at::Tensor logits = model_->forward(batch["wave"].unsqueeze(1));
               return Loss{.terms = {cross_entropy_(logits, batch["label"])}, .outputs = {{"logits", logits}}};
             }}};
  }

  void measure(const Batch& batch, const StepResult& result, metrics::Board& board) override {
    board.add_classification(result.outputs().at("logits"), batch["label"], {.classes = classes_});
  }

  Tensors predict(const Tensors& inputs) override {
    return {{"label", model_->forward(inputs.at("wave").to(at::kFloat).unsqueeze(1)).argmax(1)}};
  }

 private:
  RecipeConfig config_;
  Context context_;
  nn::CrossEntropy cross_entropy_;
  std::vector<std::string> classes_;
  torch::nn::Sequential model_;
};

}  // namespace

int main(int argc, char** argv) {
  Entry entry = entry_of<Chirps, Sections>("chirps", "Signals in folders, told apart by a convolutional network.");
  entry.defaults = Json{{"optim.learning_rate", 3e-3},
                        {"optim.schedule", "warmup_cosine"},
                        {"optim.warmup_frac", 0.1},
                        {"data.batch_size", 32},
                        {"train.epochs", 20},
                        {"train.early_stop_patience", 10},
                        {"snapshot.best_metric", "macro_f1"},
                        {"snapshot.best_is", "highest"}};
  return cli_main(argc, argv, {{entry}});
}
