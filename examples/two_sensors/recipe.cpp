// A recipe for two data sets that differ in shape and length: a camera and a probe measure the same temperature.
//   data     2,000 pictures of 8 x 8 and 500 readings of 5 numbers; the shorter set repeats
//   model    a layer for each sensor, a trunk for both, one output
//   loss     a mean squared error for each sensor, each divided by its own count; the probe's has weight 1/2
//   metrics  error and R2 of each sensor
#include <array>
#include <cmath>

#include "millrace/recipe.h"

namespace two_sensors {
namespace {

using namespace millrace;

struct Sensor {
  const char* name;
  std::int64_t width, samples, batch_size;
  double weight;  // factor of its error in the loss
};
constexpr std::array<Sensor, 2> kSensors = {{{"camera", 64, 2000, 40, 1.0}, {"probe", 5, 500, 20, 0.5}}};

struct RecipeConfig {
  std::int64_t width = 32;
  double noise = 0.1;
  static consteval auto fields() {
    using C = RecipeConfig;
    return std::tuple{config::field<&C::width>("Units of the trunk.").min(1),
                      config::field<&C::noise>("Standard deviation of a reading's noise.").min(0)};
  }
};

struct Sections {
  RecipeConfig recipe;
  static consteval auto fields() { return std::tuple{config::field<&Sections::recipe>("The network and its sensors.")}; }
};

// Each value of a reading sees the temperature through its own curve, with noise.
std::shared_ptr<const data::Source> readings(const Sensor& sensor, std::int64_t first, std::int64_t size, double noise) {
  const auto make = [first, noise](std::int64_t index, const data::MutableSample& out, const data::SampleRandom&) {
    Philox random(make_key(3, out.values<float>("x").size(), first + index));
    const double temperature = 2 * random.uniform() - 1;
    double curve = 0;
    for (float& x : out.values<float>("x"))
      x = static_cast<float>(std::tanh(2 * temperature + (curve += 0.3)) + noise * random.normal());
    out.values<float>("temperature")[0] = static_cast<float>(temperature);
  };
  const std::vector<Field> fields = {{"x", DType::f32, {sensor.width}}, {"temperature", DType::f32, {1}}};
  return data::generate(std::string(sensor.name) + " from " + std::to_string(first), size, fields, make);
}

struct SensorsImpl : torch::nn::Module {
  explicit SensorsImpl(std::int64_t width) {
    for (const Sensor& sensor : kSensors) inputs.push_back(register_module(sensor.name, torch::nn::Linear(sensor.width, width)));
    trunk = register_module("trunk", torch::nn::Linear(width, width));
    output = register_module("output", torch::nn::Linear(width, 1));
  }
  at::Tensor forward(std::size_t sensor, const at::Tensor& x) { return output(trunk(inputs[sensor](x).tanh()).tanh()); }
  std::vector<torch::nn::Linear> inputs;
  torch::nn::Linear trunk{nullptr}, output{nullptr};
};
TORCH_MODULE(Sensors);

class TwoSensors final : public Recipe {
 public:
  TwoSensors(const Sections& sections, const Context& context)
      : config_(sections.recipe), context_(context), model_(config_.width) {}

  data::Pipeline data(Split split) override {
    data::Pipeline pipeline{.grouping = data::Grouping::repeat};
    for (const Sensor& sensor : kSensors) {
      const bool training = split == Split::train;
      auto source =
          readings(sensor, training ? 0 : sensor.samples, training ? sensor.samples : sensor.samples / 5, config_.noise);
      pipeline.datasets.push_back({.name = sensor.name, .source = std::move(source), .batch_size = sensor.batch_size});
    }
    return pipeline;
  }

  torch::nn::Module& model() override { return *model_; }

  std::vector<Objective> objectives() override {
    return {{.optim = context_.config->optim, .loss = [this](const Batch& batch, const StepContext&) {
               Loss loss;
               for (std::size_t i = 0; i < kSensors.size(); ++i) {
                 const Tensors& fields = batch.groups()[i].fields;
                 const at::Tensor predicted = model_->forward(i, fields.at("x"));
                 loss.terms.push_back(nn::mean_squared_error(predicted, fields.at("temperature")));
                 loss.terms.back().name = kSensors[i].name;
                 loss.terms.back().weight = kSensors[i].weight;
                 loss.outputs[kSensors[i].name] = predicted;
               }
               return loss;
             }}};
  }

  void measure(const Batch& batch, const StepResult& result, metrics::Board& board) override {
    for (const Group& group : batch.groups())
      board.add_regression(result.outputs().at(group.name), group.fields.at("temperature"), group.name);
  }

 private:
  RecipeConfig config_;
  Context context_;
  Sensors model_;
};

}  // namespace

Entry entry() {
  Entry entry = entry_of<TwoSensors, Sections>("two_sensors", "Two sensors of unlike shape that measure one temperature.");
  entry.defaults = Json{{"optim.learning_rate", 3e-3}, {"train.epochs", 4}};
  return entry;
}

}  // namespace two_sensors

int main(int argc, char** argv) {
  const std::vector<millrace::Entry> recipes = {two_sensors::entry()};
  return millrace::cli_main(argc, argv, recipes);
}
