// Recipe "image_pairs": which of two pictures has the higher score?
//   data     pairs of PNG or JPEG images, drawn from a list of scores or read from a table (pairs.h)
//   model    a vision tower, a projector and a decoder with adapters (model.h); tower and decoder are frozen if
//            recipe.base_weights gives their weights
//   loss     cross-entropy of the answer, and its change when the two images are exchanged
//   metrics  accuracy, recall of each answer, agreement of both orders; scores of images from all answers about them
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "millrace/train/recipe/entry.h"
#include "recipes/image_pairs/config.h"
#include "recipes/image_pairs/features.h"
#include "recipes/image_pairs/model.h"
#include "recipes/image_pairs/pair_source.h"

namespace millrace::recipes::image_pairs {

class ImagePairs final : public Recipe {
 public:
  ImagePairs(const Sections& sections, const Context& context);
  [[nodiscard]] static std::vector<Problem> problems(const Sections& sections, const RunConfig& run);

  void before_training() override;  // reads labels and pairs, and finds the images
  data::Pipeline data(Split split) override;
  Batch prepare(Batch batch) override;  // makes "pixels" f32 [n,2,3,S,S], normalised as for CLIP, from "images" u8 [n,2,S,S,3]
  PairModel& model() override;
  std::vector<Objective> objectives() override;
  void begin_validation() override { judged_ = {}; }
  void measure(const Batch& batch, const StepResult& result, metrics::Board& board) override;
  void end_validation(metrics::Board& board) override;

  // There is no state to load, but a call shows that the weights come from a snapshot.
  void load_state(const State&) override { goes_on_ = true; }
  // Takes "first" and "second", u8 (rows, S, S, 3). Returns "answers" (rows, 3), the probabilities of First, Second and Similar,
  // and "mirrored", the same for the images in the other order, with First and Second exchanged.
  Tensors predict(const Tensors& inputs) override;
  Facts facts() const override;
  std::vector<Picture> draw() override;
  std::vector<TextTable> tables() override;

 private:
  // The features of a batch's images, and the two images of each row.
  struct Looked {
    at::Tensor features, images;
  };
  // The results of a validation. After end_validation() they are on the host.
  struct Judged {
    std::vector<at::Tensor> logits;     // (2 n, 3) for each micro-batch
    std::vector<std::int64_t> samples;  // numbers of the pairs, in the order of `logits`
    std::vector<std::array<float, 6>> values;
    std::vector<double> found;  // the score found for each image
    double rank_correlation = 0;
  };
  Looked look(const Batch& batch, bool doubled);
  at::Tensor kept_features(const Batch& batch, const at::Tensor& pixels);
  [[nodiscard]] bool is_frozen() const;
  [[nodiscard]] double projector_scale() const;
  void note_trained_parts();
  std::optional<Loss> loss(const Batch& batch, const StepContext& context);
  [[nodiscard]] at::Tensor weight_of_consistency(const StepContext& context) const;
  [[nodiscard]] std::vector<double> known_scores() const;
  [[nodiscard]] TextTable confusion() const;  // for each label the counts of answers, in both orders

  Context context_;
  RecipeConfig recipe_;
  bool goes_on_ = false;  // true: the weights come from a snapshot and replace those of recipe.adapter
  std::optional<PairFiles> files_;
  data::PicturesSeen seen_;  // what the headers of all image files say
  std::shared_ptr<PairModel> model_;
  Prompts prompts_;
  std::optional<FeatureStore> kept_;
  at::ScalarType kept_type_ = at::kFloat;
  std::uint64_t kept_changes_ = 0;  // nn::implementation_changes() when the kept features were made
  Judged judged_;
};

}  // namespace millrace::recipes::image_pairs
