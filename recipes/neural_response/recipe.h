// Recipe "neural_response": spike counts of many units in many recording sessions, from the stimulus and the eye's behaviour.
//   data     HDF5 sessions; a batch has a group for each session, rows drawn from all of them (Grouping::mix)
//   model    an adapter and a readout per session around a core that all sessions share (model.h)
//   loss     masked Poisson over all accumulated batches; plus the predictor's squared error and penalties of parameters
//   metrics  bits per spike of each session and overall
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "millrace/train/recipe/entry.h"
#include "recipes/neural_response/checks.h"
#include "recipes/neural_response/config.h"
#include "recipes/neural_response/model.h"
#include "recipes/neural_response/penalties.h"
#include "recipes/neural_response/pictures.h"
#include "recipes/neural_response/sessions/session.h"

namespace millrace::recipes::neural_response {

class NeuralResponse final : public Recipe {
 public:
  NeuralResponse(const Sections& sections, const Context& context, std::optional<OpenOptions> open = {});
  [[nodiscard]] static std::vector<Problem> problems(const Sections& sections, const RunConfig& run);

  void before_training() override;  // opens all sessions and reads everything except the stimuli
  data::Pipeline data(Split split) override;
  Batch prepare(Batch batch) override;  // turns "stim" into f32; u8 grey levels x become (x - 127) / 255
  DigitalTwin& model() override;
  bool set_layout(Layout layout) override;
  std::vector<Objective> objectives() override;
  void begin_validation() override;
  void measure(const Batch& batch, const StepResult& result, metrics::Board& board) override;

  State state() const override;  // returns the names and units of the sessions, and the kind of their stimuli
  void load_state(const State& state) override;
  // Takes "stim" (rows, 1, L, H, W) and "behavior" f32 (rows, B). Returns "rates" (rows, units of all sessions), in spikes per
  // bin. A "stim" of u8 has grey levels, which are scaled as in training; throws DataError if training used other transforms. A
  // "stim" of f32 has the frames as the model sees them.
  Tensors predict(const Tensors& inputs) override;
  Facts facts() const override;
  std::vector<Picture> draw() override;
  std::vector<TextTable> tables() override;

 private:
  data::Dataset dataset(const std::shared_ptr<const Session>& session, Split split) const;
  data::SampleWeights curriculum(const std::shared_ptr<const Session>& session) const;
  [[nodiscard]] std::int64_t updates_per_epoch() const;
  [[nodiscard]] optim::OptimConfig optimizer() const;
  std::vector<optim::ParameterGroup> groups();
  [[nodiscard]] std::uint64_t epoch_for_penalties(const StepContext& context) const;
  void begin_with_pretrained();
  std::optional<Loss> loss(const Batch& batch, const StepContext& context);
  std::vector<std::vector<double>> bits() const;
  at::Tensor gradients_of(std::size_t session);

  Context context_;
  OpenOptions open_;
  RecipeConfig recipe_;
  std::optional<Sessions> sessions_;
  std::vector<Known> known_;
  std::int64_t lags_ = 25;
  std::int64_t behavior_dim_ = 42;
  double bins_per_s_ = 120;
  StimulusKind stimulus_ = StimulusKind::pixels;  // the kind of all sessions' stimuli; `transformed` if the sessions differ
  double median_contrast_ = 1;
  bool goes_on_ = false;  // true: the weights come from a snapshot
  std::shared_ptr<DigitalTwin> model_;
  std::optional<Penalties> penalties_;
  std::vector<Seen> seen_;  // sums of the present validation, for each session
};

}  // namespace millrace::recipes::neural_response
