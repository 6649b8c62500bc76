#include "recipes/image_pairs/recipe.h"

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/config/schema_of.h"
#include "millrace/core/random.h"
#include "millrace/device/free_memory.h"
#include "millrace/format/csv.h"
#include "millrace/nn/pixels.h"
#include "millrace/telemetry/counter.h"
#include "millrace/train/recipe/config.h"
#include "millrace/train/step/model_size.h"
#include "recipes/common/weights.h"
#include "recipes/image_pairs/baseline.h"
#include "recipes/image_pairs/image_look.h"
#include "recipes/image_pairs/loss.h"
#include "recipes/image_pairs/originals/adapters.h"
#include "recipes/image_pairs/originals/base_weights.h"
#include "recipes/image_pairs/originals/log.h"
#include "recipes/image_pairs/pair_source.h"
#include "recipes/image_pairs/pictures.h"
#include "recipes/image_pairs/ranking.h"

namespace millrace::recipes::image_pairs {
namespace {

constexpr double kProjectorPart = 0.1;  // the projector's learning rate on a frozen base, as a share of the run's learning rate
constexpr std::size_t kShownPairs = 12;

// the probabilities of the answers to a pair in the given order, then in the exchanged one
using OfBothOrders = std::array<float, 2 * kAnswerKinds>;

// Returns the most likely answer in an order: 0 is the given order, 1 the exchanged order.
std::size_t answer_in(const OfBothOrders& pair, std::size_t order) {
  const auto begin = pair.begin() + static_cast<std::ptrdiff_t>(kAnswerKinds * order);
  return static_cast<std::size_t>(std::max_element(begin, begin + kAnswerKinds) - begin);
}

// The two images of each row, for pairs whose images are numbered in order. If `doubled`, the row after each pair has the same
// pair in the other order.
at::Tensor images_of_rows(std::int64_t pairs, bool doubled, at::Device device) {
  const at::Tensor straight = at::arange(2 * pairs, at::TensorOptions(at::kLong).device(device)).view({pairs, 2});
  return doubled ? at::stack({straight, straight.flip(1)}, 1).view({2 * pairs, 2}) : straight;
}

at::ScalarType compute_type(at::Device device) {
  return at::autocast::is_autocast_enabled(device.type()) ? at::autocast::get_autocast_dtype(device.type()) : at::kFloat;
}

at::ScalarType type_of(BaseType type) {
  return type == BaseType::bf16 ? at::kBFloat16 : type == BaseType::fp16 ? at::kHalf : at::kFloat;
}

// Counts how often the paths of two switches are taken.
struct Taken {
  telemetry::Counter shared{"shared_features"}, kept{"feature_cache"};
};

const Taken& taken() {
  static const Taken all;
  return all;
}

LossTerm weighted(LossTerm term, at::Tensor weight) {
  term.weight_now = std::move(weight);
  return term;
}

// This rank's part of the free memory on the device that holds the features. Ranks on a CPU share the machine's memory; each GPU
// belongs to one rank.
double free_memory(at::Device device, const Ranks& ranks) {
  return static_cast<double>(device::free_tensor_memory(device)) / (device.is_cpu() ? ranks.local_world_size : 1);
}

// Returns the number of images in each call of a frozen tower, in a run with `pairs` pairs in a batch. On a CPU this is 1: the
// 65 tokens of a single image keep a CPU busy, and with more images at once each image would take as long. A GPU needs more
// images.
std::int64_t images_together(at::Device device, std::int64_t pairs) {
  constexpr std::int64_t kMost = 16;
  return device.is_cpu() ? 1 : std::min(kMost, 2 * pairs);
}

// Adds metrics for LMOL's table: the cross-entropy without weights, in the given and in the exchanged order.
void add_losses_of_orders(const at::Tensor& logits, const at::Tensor& labels, std::int64_t pairs, metrics::Board& board) {
  const at::Tensor of_rows = answer_loss_of_rows(logits, labels);
  const bool doubled = of_rows.size(0) == 2 * pairs;
  const at::Tensor of_orders = of_rows.view({-1, doubled ? 2 : 1});
  board.add_mean("ce_straight", of_orders.select(1, 0));
  board.quiet("ce_straight");
  if (!doubled) return;
  board.add_mean("ce_swapped", of_orders.select(1, 1));
  board.quiet("ce_swapped");
}

}  // namespace

// ---- 1 config: the keys and their defaults are in config.h, the named sizes in presets.cpp

std::vector<Problem> ImagePairs::problems(const Sections& sections, const RunConfig&) {
  std::vector<Problem> problems = shape_problems(sections.recipe);
  // The checks below need valid shapes, because the length of a prompt follows from the number of an image's patches.
  if (!problems.empty()) return problems;
  problems = prompt_problems(sections.recipe);
  if (sections.recipe.fold > sections.recipe.folds) {
    problems.push_back(
        {"there is no fold " + std::to_string(sections.recipe.fold) + " of " + std::to_string(sections.recipe.folds),
         "recipe.fold, recipe.folds", "give a fold from 1 to recipe.folds"});
  }
  if (sections.recipe.freeze_base.value_or(false) && sections.recipe.lora_vision &&
      sections.recipe.cache_image_features.value_or(false)) {
    problems.push_back({"adapters of the vision tower change the image features in each step, so the features can't be kept",
                        "recipe.lora_vision, recipe.cache_image_features", "remove one of the two keys"});
  }
  return problems;
}

ImagePairs::ImagePairs(const Sections& sections, const Context& context) : context_(context), recipe_(sections.recipe) {}

bool ImagePairs::is_frozen() const { return recipe_.freeze_base.value_or(!recipe_.base_weights.empty()); }

// ---- 2 data

void ImagePairs::before_training() {
  files_ = open_pairs(recipe_, context_.config->data.dir, context_.seed, context_.config->data);
  for (const std::string& text : files_->notices) context_.note(text);
  seen_ = look_at_heads(files_->images);
  for (const std::string& text : sign_notices(seen_)) context_.note(text);
  for (const std::string& text : look_at_scores(*files_)) context_.note(text);
  const optim::OptimConfig& rate = context_.config->optim;
  if (rate.min_learning_rate == 0 && rate.schedule != optim::ScheduleKind::constant)
    context_.note(
        "optim.min_learning_rate is 0, which means a hundredth of optim.learning_rate in this recipe, as in LMOL; a tiny number, "
        "such as 1e-12, lets the rate fall to nothing");
  if (context_.places.plan_only) return;
  const bool passes = context_.config->data.bad_samples != data::BadSamples::fail;
  for (const std::string& text : look_at_images(files_->images, recipe_, passes)) context_.note(text);
}

data::Pipeline ImagePairs::data(Split split) {
  const auto& pairs = split == Split::train ? files_->train : files_->validation;
  if (pairs.empty()) return {};
  return data::single(pair_source(*files_, split, recipe_));
}

Batch ImagePairs::prepare(Batch batch) {
  // A batch without "images" comes from a benchmark, which supplies the network's input itself.
  if (!batch.has("images")) return batch;
  const at::Tensor images = batch["images"];
  batch.set("pixels", nn::clip_pixels(images));
  // "first" and "second" are for predict(), which a rehearsal calls with rows of this batch
  batch.set("first", images.select(1, 0));
  batch.set("second", images.select(1, 1));
  return batch;
}

// ---- 3 model

PairModel& ImagePairs::model() {
  if (model_) return *model_;
  const Counts counts = parameter_counts(recipe_);
  const bool has_base = !recipe_.base_weights.empty();
  const auto& precision = context_.config->precision.dtype;
  // The type of the frozen base is recipe.base_dtype if the base comes from a file or the config demands bf16, otherwise fp32.
  const bool keeps_short = has_base || (!precision.is_auto() && precision.value() == Precision::bf16);
  const at::ScalarType type = is_frozen() && keeps_short ? type_of(recipe_.base_dtype) : at::kFloat;
  const double trained = counts.trained(is_frozen());
  check_model_size(counts.total(),
                   sizeof(float) * trained + static_cast<double>(c10::elementSize(type)) * (counts.total() - trained),
                   "recipe.decoder_width, recipe.decoder_layers, recipe.vision_width, recipe.base_dtype");
  if (recipe_.vision_activation.is_auto()) {
    const auto named = activation_of_base(recipe_);
    recipe_.vision_activation = named.value_or(Activation::quick_gelu);
    if (named && *named != Activation::quick_gelu)
      context_.note("the tower's activation is " + config::write(*named).get<std::string>() +
                    ", as config.json of recipe.base_weights says");
  }
  model_ = std::make_shared<PairModel>(recipe_, context_.seed, is_frozen(), context_.fused(), at::kCPU, type);
  if (has_base) context_.note(load_base(*model_, recipe_));
  if (finds_weights(context_, "recipe.adapter", recipe_.adapter, goes_on_)) context_.note(read_adapter(*model_, recipe_.adapter));
  prompts_ = to_tensors({prompt_of(recipe_)}, context_.device);
  note_trained_parts();
  return *model_;
}

void ImagePairs::note_trained_parts() {
  const Counts counts = parameter_counts(recipe_);
  if (!is_frozen()) {
    context_.note("all " + with_commas(static_cast<std::int64_t>(counts.total())) + " parameters are trained: " +
                  (recipe_.base_weights.empty() ? "without recipe.base_weights a frozen tower would have random weights"
                                                : "recipe.freeze_base=false"));
    return;
  }
  // False if train.weights is set, because its weights are loaded later and may replace the base's random weights.
  const bool is_random = recipe_.base_weights.empty() && context_.config->train.weights.empty() && !goes_on_;
  context_.note("tower and decoder are frozen" +
                std::string(recipe_.freeze_base.is_auto() ? ": their weights come from recipe.base_weights" : "") +
                (is_random ? " with random weights, which tell nothing about images (give recipe.base_weights, or remove "
                             "recipe.freeze_base)"
                           : "") +
                "; " + with_commas(static_cast<std::int64_t>(counts.trained(true))) + " of " +
                with_commas(static_cast<std::int64_t>(counts.total())) + " parameters are trained");
}

// ---- 4 losses

double ImagePairs::projector_scale() const {
  if (!recipe_.projector_learning_rate.is_auto())
    return recipe_.projector_learning_rate.value() / context_.config->optim.learning_rate;
  return is_frozen() ? kProjectorPart : 1.0;
}

std::vector<Objective> ImagePairs::objectives() {
  std::vector<optim::ParameterGroup> groups(2);
  groups[0].learning_rate_scale = projector_scale();
  for (const auto& item : model().named_parameters()) {
    if (!item.value().requires_grad()) continue;
    groups[part_of(item.key()) == Part::projector ? 0 : 1].parameters.push_back({item.key(), item.value()});
  }
  optim::OptimConfig optim = context_.config->optim;
  if (optim.min_learning_rate == 0) optim.min_learning_rate = 0.01 * optim.learning_rate;
  std::erase_if(groups, [](const optim::ParameterGroup& group) { return group.parameters.empty(); });
  return {{.parameters = std::move(groups),
           .optim = std::move(optim),
           .loss = [this](const Batch& batch, const StepContext& context) { return loss(batch, context); }}};
}

// Looks features up by image, on the host. A recorded step can't do that, because each replay would use the images of the
// recorded batch.
at::Tensor ImagePairs::kept_features(const Batch& batch, const at::Tensor& pixels) {
  if (RandomScope::is_recorded())
    throw RecipeError({"the host looks up the kept features of a frozen tower by image", "recipe.freeze_base",
                       "steps are launched operation by operation"});
  const at::ScalarType type = compute_type(pixels.device());
  if (!kept_) {
    const auto images = static_cast<std::int64_t>(files_->images.size());
    const double needed =
        static_cast<double>(images * patches_of(recipe_) * recipe_.vision_width) * static_cast<double>(c10::elementSize(type));
    const double budget = free_memory(pixels.device(), context_.ranks) / 4;
    const bool keeps = context_.on("feature_cache") && recipe_.cache_image_features.value_or(needed <= budget);
    context_.note(
        "features of " + with_commas(images) + " images, " + human_bytes(needed) +
        (keeps ? ": kept after they are computed" : ": computed again for each pair") +
        (recipe_.cache_image_features.is_auto() ? " (a quarter of the free memory is " + human_bytes(budget) + ")" : ""));
    kept_.emplace(images, keeps ? static_cast<std::uint64_t>(needed) : 0,
                  images_together(pixels.device(), context_.config->data.samples_per_batch()));
  }
  if (kept_->budget() > 0) taken().kept.add(1);
  if (type != kept_type_ || nn::implementation_changes() != kept_changes_) kept_->forget();
  kept_type_ = type;
  kept_changes_ = nn::implementation_changes();
  const auto& pairs = batch.split() == Split::train ? files_->train : files_->validation;
  std::vector<std::int64_t> ids;
  for (const std::int64_t sample : batch.groups().front().indices) {
    const Pair& pair = pairs[static_cast<std::size_t>(sample)];
    ids.insert(ids.end(), {pair.first, pair.second});
  }
  return kept_->of(ids, pixels, [&](const at::Tensor& some) { return model().features(some).to(type); });
}

ImagePairs::Looked ImagePairs::look(const Batch& batch, bool doubled) {
  const at::Tensor& pixels = batch["pixels"];
  const std::int64_t pairs = pixels.size(0);
  const at::Tensor of_pairs = pixels.flatten(0, 1);
  at::Tensor images = images_of_rows(pairs, doubled, pixels.device());
  const bool knows_images = files_ && static_cast<std::int64_t>(batch.groups().front().indices.size()) == pairs;
  if (is_frozen() && !recipe_.lora_vision && knows_images) return {kept_features(batch, of_pairs), std::move(images)};
  if (context_.on("shared_features") && recipe_.share_image_features.value_or(true)) {
    taken().shared.add(1);
    return {model().features(of_pairs), std::move(images)};
  }
  // the features of each row's images; an image may occur in several rows
  const at::Tensor all = of_pairs.index_select(0, images.flatten());
  return {model().features(all), images_of_rows(images.size(0), false, pixels.device())};
}

at::Tensor ImagePairs::weight_of_consistency(const StepContext& context) const {
  // All validations use the same weight, so that their losses can be compared.
  const bool training = context.training;
  const std::int64_t total = recipe_.consistency_steps > 0 ? recipe_.consistency_steps : context.total_steps;
  const auto weight = [this, training, total](std::int64_t step, std::uint64_t) {
    if (!training) return recipe_.consistency_end;
    return consistency_weight(step, total, recipe_.consistency_start, recipe_.consistency_end, recipe_.consistency_ramp);
  };
  return context.number(weight, context_.device);
}

std::optional<Loss> ImagePairs::loss(const Batch& batch, const StepContext& context) {
  const bool doubled = recipe_.swap_double || !context.training;
  Looked looked = look(batch, doubled);
  const at::Tensor logits = model().forward(std::move(looked.features), looked.images, prompts_);
  const at::Tensor labels = labels_of_rows(batch["label"], doubled);
  Loss loss{.terms = {answer_loss(logits, labels, recipe_.similar_weight, recipe_.swap_ce_weight, doubled)},
            .outputs = {{"logits", logits}, {"labels", labels}}};
  const at::Tensor weight = weight_of_consistency(context);
  if (doubled) loss.terms.push_back(weighted(consistency_loss(logits), weight));
  loss.outputs["consistency_weight"] = weight.to(logits.scalar_type());
  return loss;
}

// ---- 5 metrics

void ImagePairs::measure(const Batch& batch, const StepResult& result, metrics::Board& board) {
  const at::Tensor& logits = result.outputs().at("logits");
  const auto& names = answer_names();
  board.add_classification(logits, result.outputs().at("labels"), {.classes = {names.begin(), names.end()}});
  if (logits.size(0) == 2 * batch.rows()) board.add_rate("swap_agreement", swap_agreement(logits));
  board.highest_is_best("swap_agreement");
  board.add_mean("consistency_weight", result.outputs().at("consistency_weight"));
  board.quiet("consistency_weight");
  board.quiet("balanced_accuracy");
  board.quiet("macro_f1");
  if (batch.split() == Split::train) return add_losses_of_orders(logits, result.outputs().at("labels"), batch.rows(), board);
  if (!files_) return;
  judged_.logits.push_back(logits.clone());
  const auto& samples = batch.groups().front().indices;
  judged_.samples.insert(judged_.samples.end(), samples.begin(), samples.end());
}

std::vector<double> ImagePairs::known_scores() const {
  std::vector<double> scores(files_->images.size());
  std::ranges::transform(files_->images, scores.begin(), [](const auto& image) { return image.score; });
  return scores;
}

void ImagePairs::end_validation(metrics::Board& board) {  // host: the values are read anyway after a validation
  if (judged_.logits.empty() || judged_.samples.empty()) return;
  const at::Tensor probabilities = at::softmax(at::cat(judged_.logits).to(at::kFloat), 1).cpu().contiguous();
  judged_.logits.clear();
  const float* next = probabilities.const_data_ptr<float>();
  std::vector<Answered> answers;
  for (const std::int64_t sample : judged_.samples) {
    OfBothOrders of_pair{};
    std::copy_n(next, of_pair.size(), of_pair.begin());
    next += of_pair.size();
    const Pair& pair = files_->validation[static_cast<std::size_t>(sample)];
    answers.push_back({pair.first, pair.second, static_cast<std::int64_t>(answer_in(of_pair, 0))});
    answers.push_back({pair.second, pair.first, static_cast<std::int64_t>(answer_in(of_pair, 1))});
    judged_.values.push_back(of_pair);
  }
  const std::vector<double> known = known_scores();
  judged_.found = scores_beside_known(answers, known, recipe_.bradley_terry_d, recipe_.bradley_terry_k);
  judged_.rank_correlation = spearman(known, judged_.found);
  board.add("score_spearman", judged_.rank_correlation, 1);
  board.add("score_pearson", pearson(known, judged_.found), 1);
  board.add("score_mae", mean_absolute_difference(known, judged_.found), 1);
  if (recipe_.baseline) {
    const auto read = [&](std::int64_t image) {
      return read_image(files_->images[static_cast<std::size_t>(image)].path, recipe_);
    };
    board.add("baseline_accuracy", baseline_accuracy(files_->validation, files_->images, recipe_.theta, recipe_.image_size, read),
              1);
  }
  board.quiet("score_pearson");
  board.quiet("score_mae");
  board.highest_is_best("score_*");
  board.lowest_is_best("score_mae");
}

Facts ImagePairs::facts() const {
  Facts facts{.rate_unit = "pairs",
              .history = {"accuracy", "swap_agreement", "score_spearman"},
              .frozen_source = recipe_.base_weights.empty()
                                   ? "weights drawn with train.seed"
                                   : joined(recipe_.base_weights, ", ", [](const std::string& path) { return path; }),
              .step_log = original_log({.projector = 0, .lora = 1})};
  if (!files_) return facts;
  facts.lines["images"] = files_->images.size();
  facts.read_as = data::read_as(seen_);
  facts.fields = {
      {"pixels",
       {.axes = {{.label = "picture (first, second)"}, {.label = "channel"}, {.label = "row"}, {.label = "column"}},
        .value = "(value / 255 − mean) / deviation"}},
      {"images", {.axes = {{.label = "picture (first, second)"}, {.label = "row"}, {.label = "column"}, {.label = "channel"}}}}};
  std::array<std::int64_t, kAnswerKinds> pairs{};
  for (const Pair& pair : files_->train) ++pairs.at(static_cast<std::size_t>(pair.label));
  facts.blind = BlindAnswer{.loss = blind_answer_loss(pairs, recipe_.similar_weight, recipe_.swap_ce_weight, recipe_.swap_double),
                            .what = "the entropy of the training pairs' answers"};
  return facts;
}

std::vector<Picture> ImagePairs::draw() {
  if (judged_.values.empty()) return {};
  std::vector<Picture> pictures = {draw_scores(known_scores(), judged_.found, judged_.rank_correlation)};
  struct Mistake {
    double sure;
    std::size_t place, answer;
  };
  std::vector<Mistake> mistakes;
  for (std::size_t i = 0; i < judged_.values.size(); ++i) {
    const auto& p = judged_.values[i];
    const std::size_t answer = answer_in(p, 0);
    const Pair& pair = files_->validation[static_cast<std::size_t>(judged_.samples[i])];
    if (answer != static_cast<std::size_t>(pair.label)) mistakes.push_back({p[answer], i, answer});
  }
  std::ranges::stable_sort(mistakes, std::greater{}, &Mistake::sure);
  const std::size_t wrong = mistakes.size();
  mistakes.resize(std::min(wrong, kShownPairs));
  std::vector<HardPair> shown;
  for (const Mistake& mistake : mistakes) {
    const Pair& pair = files_->validation[static_cast<std::size_t>(judged_.samples[mistake.place])];
    const auto& first = files_->images[static_cast<std::size_t>(pair.first)];
    const auto& second = files_->images[static_cast<std::size_t>(pair.second)];
    shown.push_back({.first = read_image(first.path, recipe_),
                     .second = read_image(second.path, recipe_),
                     .first_name = first.path.filename().string(),
                     .second_name = second.path.filename().string(),
                     .first_score = first.score,
                     .second_score = second.score,
                     .answer = answer_names().at(mistake.answer) + " " + percent(mistake.sure),
                     .is = answer_names().at(static_cast<std::size_t>(pair.label))});
  }
  if (!shown.empty())
    pictures.push_back(draw_hard_pairs(shown, recipe_.image_size, static_cast<std::int64_t>(wrong), std::ssize(judged_.values)));
  return pictures;
}

std::vector<TextTable> ImagePairs::tables() {
  if (judged_.values.empty()) return {};
  TextTable scores{.name = "scores", .columns = {"image", "score", "found"}, .rows = {}};
  for (std::size_t i = 0; i < judged_.found.size(); ++i) {
    if (!std::isfinite(judged_.found[i])) continue;
    const auto& image = files_->images[i];
    scores.rows.push_back(
        {image.path.filename().string(), format::csv_number(image.score), format::csv_number(judged_.found[i])});
  }
  return {std::move(scores), confusion()};
}

TextTable ImagePairs::confusion() const {
  const auto& names = answer_names();
  std::array<std::array<std::int64_t, kAnswerKinds>, kAnswerKinds> counts{};
  for (std::size_t i = 0; i < judged_.values.size(); ++i) {
    const auto label = static_cast<std::size_t>(files_->validation[static_cast<std::size_t>(judged_.samples[i])].label);
    const std::size_t mirror = label == static_cast<std::size_t>(Answer::similar) ? label : 1 - label;
    ++counts.at(label).at(answer_in(judged_.values[i], 0));
    ++counts.at(mirror).at(answer_in(judged_.values[i], 1));
  }
  TextTable table{.name = "confusion", .columns = {"label"}, .rows = {}};
  table.columns.insert(table.columns.end(), names.begin(), names.end());
  for (std::size_t label = 0; label < names.size(); ++label) {
    std::vector<std::string> row = {names.at(label)};
    for (const std::int64_t count : counts.at(label)) row.push_back(std::to_string(count));
    table.rows.push_back(std::move(row));
  }
  return table;
}

// ---- 6 use

Tensors ImagePairs::predict(const Tensors& inputs) {
  const at::Tensor pixels = nn::clip_pixels(at::stack({inputs.at("first"), inputs.at("second")}, 1));
  const std::int64_t rows = pixels.size(0);
  if (pixels.size(-1) != recipe_.image_size || pixels.size(-2) != recipe_.image_size) {
    throw DataError({"images have " + std::to_string(pixels.size(-2)) + "x" + std::to_string(pixels.size(-1)) + " pixels",
                     "first, second", "cut them to recipe.image_size = " + std::to_string(recipe_.image_size)});
  }
  const at::Tensor features = model().features(pixels.flatten(0, 1));
  const at::Tensor logits = model().forward(features, images_of_rows(rows, true, pixels.device()), prompts_);
  const at::Tensor both = at::softmax(logits.to(at::kFloat), 1).view({rows, 2, kAnswerKinds});
  return {{"answers", both.select(1, 0)}, {"mirrored", mirrored(both.select(1, 1))}};
}

}  // namespace millrace::recipes::image_pairs
