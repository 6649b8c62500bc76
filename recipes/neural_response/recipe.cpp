#include "recipes/neural_response/recipe.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/fs.h"
#include "millrace/core/host_values.h"
#include "millrace/core/saved_json.h"
#include "millrace/data/transforms/compose.h"
#include "millrace/metrics/information.h"
#include "millrace/train/recipe/config.h"
#include "millrace/train/step/model_size.h"
#include "recipes/common/weights.h"
#include "recipes/neural_response/loss.h"
#include "recipes/neural_response/sessions/session_look.h"
#include "recipes/neural_response/sessions/session_source.h"
#include "recipes/neural_response/sessions/session_words.h"

namespace millrace::recipes::neural_response {
namespace {

constexpr std::uint64_t kOrderKey = 41;  // the key of the random order of the validation
// The name of each StimulusKind in snapshots.
constexpr std::array<std::string_view, 3> kStimulusWords = {"pixels", "grey", "transformed"};

// The groups of a batch that have rows, in the order of their first rows.
std::vector<std::size_t> in_order_of_appearance(const Batch& batch) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < batch.groups().size(); ++i) {
    if (batch.groups()[i].rows() > 0) order.push_back(i);
  }
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return std::ranges::min(batch.groups()[i].positions); });
  return order;
}

// The order of validation samples. The first bins stay in the order of time, for traces. The others are shuffled, so that any
// part of them represents all.
std::vector<std::int64_t> order_of_validation(std::int64_t count) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  Philox random(make_key(kOrderKey));
  for (auto i = static_cast<std::size_t>(count); i > static_cast<std::size_t>(std::min(count, Seen::kTrace)) + 1; --i) {
    const auto from = static_cast<std::size_t>(Seen::kTrace);
    std::swap(order[i - 1], order[from + random.below(i - from)]);
  }
  return order;
}

// Returns the behaviour of a group. If the data has none, returns a matrix without columns, because the model takes a matrix.
at::Tensor behavior_of(const Tensors& fields) {
  const auto found = fields.find("behavior");
  return found != fields.end() ? found->second : fields.at("stim").flatten(1).narrow(1, 0, 0).to(at::kFloat);
}

at::Tensor as_rates(const at::Tensor& predicted, Activation output) {
  return output == Activation::none ? predicted.exp() : predicted;
}

StimulusKind stimulus_from(const SavedJson& saved) {
  const std::string word = saved.text();
  const auto found = std::find(kStimulusWords.begin(), kStimulusWords.end(), word);
  if (found == kStimulusWords.end()) saved.refuse("pixels, grey or transformed");
  return static_cast<StimulusKind>(found - kStimulusWords.begin());
}

at::Tensor as_seen_in_training(const at::Tensor& stim, StimulusKind kind) {
  if (stim.scalar_type() != at::kByte) return stim.to(at::kFloat);
  if (kind == StimulusKind::transformed) {
    throw DataError(
        {"stim holds grey levels, but this run was trained on transformed frames", "the input of predict",
         "give NeuralResponse::predict the transformed frames as f32. millrace predict can't serve this run: its files "
         "hold grey levels, and this run's stimulus has operations besides pixelnorm and unsqueeze"});
  }
  const at::Tensor levels = stim.to(at::kFloat);
  return kind == StimulusKind::pixels ? levels.sub(127).div(255) : levels;
}

}  // namespace

// ---- 1 config: the keys and their defaults are in config.h, the named sizes in presets.cpp

std::vector<Problem> NeuralResponse::problems(const Sections& sections, const RunConfig& run) {
  return problems_of(sections.recipe, run);
}

NeuralResponse::NeuralResponse(const Sections& sections, const Context& context, std::optional<OpenOptions> open)
    : context_(context), recipe_(sections.recipe) {
  const bool remembers = context.on("file_index") && context.places.writes && !context.places.cache_folder.empty();
  open_ = open ? *std::move(open)
               : OpenOptions{open_session_hdf5({.index_folder = remembers ? context.places.cache_folder / "files" : "",
                                                .direct = context.on("hdf5_direct")})};
  for (std::size_t i = 0; i < recipe_.units.size(); ++i)
    known_.push_back(
        {.shape = {.name = "session" + std::to_string(i), .units = recipe_.units[i], .mean_counts = {}}, .cids = {}});
}

// ---- 2 data

void NeuralResponse::before_training() {
  const std::filesystem::path folder = context_.config->data.dir;
  const std::filesystem::path file =
      recipe_.dataset_config.empty() ? folder / "dataset.yaml" : std::filesystem::path(recipe_.dataset_config);
  sessions_ = open_sessions(recipe_, file, folder, open_);
  for (const std::string& text : sessions_->notices) context_.note(text);
  if (!goes_on_ && !context_.places.plan_only)
    for (const std::string& text : look_at_sessions(*sessions_)) context_.note(text);
  std::vector<Known> found;
  for (const auto& session : sessions_->all) {
    const auto counts = session->mean_counts();
    const auto cids = session->cids();
    found.push_back({{session->name(), session->units(), {counts.begin(), counts.end()}}, {cids.begin(), cids.end()}});
  }
  if (goes_on_) check_sessions(known_, found);
  known_ = std::move(found);
  const Session& first = *sessions_->all.front();
  lags_ = first.lags();
  behavior_dim_ = first.behavior_dim();
  bins_per_s_ = first.target_rate();
  const bool alike = std::ranges::all_of(
      sessions_->all, [&first](const auto& session) { return session->stimulus_kind() == first.stimulus_kind(); });
  stimulus_ = alike ? first.stimulus_kind() : StimulusKind::transformed;
  if (recipe_.enable_curriculum) median_contrast_ = median_contrast(*sessions_);
  if (known_.size() == 1) return;
  context_.note(std::to_string(known_.size()) +
                " sessions: a batch has a group for each session, and the core sees the groups in " +
                (context_.on("joined_core") ? "one forward pass" : "a forward pass for each group"));
}

data::SampleWeights NeuralResponse::curriculum(const std::shared_ptr<const Session>& session) const {
  constexpr std::int64_t kLast = 8000;  // all samples are equally likely from this step on
  return [session, median = median_contrast_, updates = updates_per_epoch(), kLast](std::uint64_t epoch) {
    const std::int64_t step = static_cast<std::int64_t>(epoch) * updates;
    return step < kLast ? curriculum_weights(*session, median, step) : std::vector<float>();
  };
}

data::Dataset NeuralResponse::dataset(const std::shared_ptr<const Session>& session, Split split) const {
  auto source = session_source(session, split, recipe_.dset_dtype, recipe_.lag_order);
  if (split == Split::validation) {
    std::vector<std::int64_t> order = order_of_validation(source->size());
    const double part = recipe_.val_fraction * static_cast<double>(order.size());
    order.resize(static_cast<std::size_t>(std::max(1.0, std::round(part))));
    source = data::subset(source, std::move(order));
  }
  data::Dataset dataset{session->name(), std::move(source)};
  if (split == Split::validation) return dataset;
  if (recipe_.session_weighting == SessionWeighting::equal) dataset.weight = 1.0;
  if (recipe_.enable_curriculum) dataset.weights = curriculum(session);
  return dataset;
}

data::Pipeline NeuralResponse::data(Split split) {
  data::Pipeline pipeline;
  for (const auto& session : sessions_->all) pipeline.datasets.push_back(dataset(session, split));
  const std::int64_t batch = context_.config->data.samples_per_batch();
  const auto count = static_cast<std::int64_t>(pipeline.datasets.size());
  if (split == Split::validation) {
    pipeline.batch_size = std::max<std::int64_t>(1, batch / count);  // number of samples of each session
    return pipeline;
  }
  pipeline.grouping = data::Grouping::mix;
  if (recipe_.steps_per_epoch > 0) {
    pipeline.samples_per_epoch = recipe_.steps_per_epoch * batch * context_.ranks.world_size;
  }
  return pipeline;
}

std::int64_t NeuralResponse::updates_per_epoch() const {
  const auto up = [](std::int64_t a, std::int64_t b) { return std::max<std::int64_t>(1, (a + b - 1) / b); };
  std::int64_t samples = 0;
  if (sessions_) {
    for (const auto& session : sessions_->all) samples += static_cast<std::int64_t>(session->samples(Split::train).size());
  }
  const std::int64_t batches = recipe_.steps_per_epoch > 0
                                   ? recipe_.steps_per_epoch
                                   : up(samples, context_.config->data.samples_per_batch() * context_.ranks.world_size);
  return up(batches, context_.config->optim.accumulate);
}

Batch NeuralResponse::prepare(Batch batch) {
  for (Group& group : batch.groups()) {
    at::Tensor& stim = group.fields.at("stim");
    if (stim.scalar_type() == at::kByte) {
      stim = stim.to(at::kFloat).sub_(127).div_(255);
    } else if (stim.scalar_type() != at::kFloat) {
      stim = stim.to(at::kFloat);
    }
  }
  return batch;
}

// ---- 3 model

DigitalTwin& NeuralResponse::model() {
  if (!model_) {
    if (known_.empty()) before_training();  // for weights without a snapshot, the sessions must be opened to know the units
    const ModelConfig config = model_config_of(recipe_, lags_, behavior_dim_);
    std::vector<SessionShape> shapes;
    std::vector<std::int64_t> units;
    for (const Known& session : known_) {
      shapes.push_back(session.shape);
      units.push_back(session.shape.units);
    }
    const double parameters = parameters_of(config, units);
    check_model_size(parameters, sizeof(float) * parameters, "recipe.convnet.stages, recipe.modulator.hidden_dim");
    model_ = std::make_shared<DigitalTwin>(config, std::move(shapes), context_.seed, context_.fused());
    begin_with_pretrained();
    std::vector<std::string> notices;
    penalties_.emplace(recipe_.regularization, *model_, notices);
    for (const std::string& text : notices) context_.note(text);
  }
  return *model_;
}

void NeuralResponse::begin_with_pretrained() {
  const auto is_vision = [](const std::string& name) {
    return name.starts_with("adapters.") || name.starts_with("frontend.") || name.starts_with("convnet.");
  };
  const bool left_out = recipe_.freeze_vision && context_.config->snapshot.frozen == FrozenWeights::leave_out;
  const bool in_snapshot = goes_on_ && !left_out;
  if (finds_weights(context_, "recipe.pretrained", recipe_.pretrained, in_snapshot) && !in_snapshot) {
    const millrace::Weights weights = quiet_weights(recipe_.pretrained);
    const std::int64_t taken = take_pretrained(*model_, weights.models.begin()->second, weights.recipe.json, recipe_.pretrained);
    context_.note("pretrained: " + std::to_string(taken) + " tensors of adapters, frontend and convnet from " + weights.which);
  }
  if (!recipe_.freeze_vision) return;
  if (recipe_.pretrained.empty() && context_.config->train.weights.empty() && !goes_on_)
    context_.note("the frozen adapters, frontend and convnet are random: give recipe.pretrained, or remove recipe.freeze_vision");
  for (auto& item : model_->named_parameters())
    if (is_vision(item.key())) item.value().requires_grad_(false);
}

bool NeuralResponse::set_layout(Layout layout) {
  model().set_channels_last(layout == Layout::channels_last);
  return true;
}

// ---- 4 loss

std::optional<Loss> NeuralResponse::loss(const Batch& batch, const StepContext& context) {
  const std::vector<std::size_t> present = in_order_of_appearance(batch);
  std::vector<Rows> rows;
  for (const std::size_t i : present) {
    const Group& group = batch.groups()[i];
    rows.push_back({i, group.fields.at("stim"), behavior_of(group.fields), group.positions});
  }
  const Predicted predicted = model().forward(rows);
  Loss result;
  at::Tensor sum, count, errors;
  double elements = 0;
  for (std::size_t k = 0; k < present.size(); ++k) {
    const Tensors& fields = batch.groups()[present[k]].fields;
    const at::Tensor& rates = predicted.rates[k];
    MaskedSum here = poisson_loss(rates, fields.at("robs"), fields.at("dfs"), recipe_.output_activation);
    if (recipe_.bucket_mean == BucketMean::unweighted) {
      here.sum = here.sum / here.count.clamp_min(1);
      here.count = here.count.gt(0).to(at::kFloat);
      elements += 1;
    } else {
      elements += static_cast<double>(rates.numel());
    }
    const auto add = [](at::Tensor& total, const at::Tensor& value) { total = total.defined() ? total + value : value; };
    add(sum, here.sum);
    add(count, here.count);
    if (!predicted.error_square_mean.empty()) add(errors, predicted.error_square_mean[k] * here.count);
    const std::string name = std::to_string(present[k]);
    result.outputs["rates/" + name] = rates;
    result.outputs["loss/" + name] = here.sum;
    result.outputs["count/" + name] = here.count;
    result.outputs["nan_skip/" + name] = here.dropped;
  }
  result.outputs["forwards"] = at::scalar_tensor(static_cast<double>(predicted.forwards), at::kDouble);
  result.terms.push_back({.sum = sum, .count = count, .nominal_count = elements, .name = "poisson"});
  if (errors.defined())
    result.terms.push_back(
        {.sum = errors, .count = count, .nominal_count = elements, .name = "prediction_error", .weight = recipe_.lambda_pred});
  if (context.training) {
    for (LossTerm& term : penalties_->terms(epoch_for_penalties(context))) result.terms.push_back(std::move(term));
  }
  if (result.terms.size() == 1) result.terms.front().name.clear();
  return result;
}

// The epoch for the penalties. Read only if a penalty depends on the epoch, because a step whose loss has read the epoch is
// recorded again in each epoch.
std::uint64_t NeuralResponse::epoch_for_penalties(const StepContext& context) const {
  return penalties_->follows_epochs() ? static_cast<std::uint64_t>(context.epoch) : 0;
}

// Parameter groups for core and heads, each with and without weight decay.
std::vector<optim::ParameterGroup> NeuralResponse::groups() {
  std::vector<optim::ParameterGroup> groups;
  for (const bool is_core : {true, false}) {
    for (const bool decays : {true, false}) {
      optim::ParameterGroup group{.learning_rate_scale = is_core ? recipe_.core_lr_scale : 1.0};
      if (!decays) group.weight_decay = 0.0;
      for (const auto& item : model().named_parameters()) {
        const std::string& name = item.key();
        const bool in_head = name.starts_with("adapters.") || name.starts_with("readouts.");
        const bool is_free = item.value().dim() <= 1 || penalties_->excludes_from_decay(name);
        if (in_head != is_core && is_free != decays) group.parameters.push_back({name, item.value()});
      }
      if (!group.parameters.empty()) groups.push_back(std::move(group));
    }
  }
  return groups;
}

// The run's optimiser settings. Where the config gives no length of the warm-up or of a decay step, VisionCore's length in
// epochs is used.
optim::OptimConfig NeuralResponse::optimizer() const {
  constexpr std::int64_t kEpochsBetweenDecays = 30;
  optim::OptimConfig optim = context_.config->optim;
  const bool by_step = optim.schedule_by == optim::ScheduleUnit::step;
  const bool warms = optim.schedule == optim::ScheduleKind::warmup_cosine && optim.warmup_steps == 0 && optim.warmup_frac == 0;
  if (warms && (sessions_ || !by_step)) optim.warmup_steps = recipe_.warmup_epochs * (by_step ? updates_per_epoch() : 1);
  if (optim.schedule == optim::ScheduleKind::step && optim.decay_every == 0)
    optim.decay_every = kEpochsBetweenDecays * (by_step ? updates_per_epoch() : 1);
  return optim;
}

std::vector<Objective> NeuralResponse::objectives() {
  Objective objective{.parameters = groups(), .optim = optimizer()};
  objective.loss = [this](const Batch& batch, const StepContext& context) { return loss(batch, context); };
  if (recipe_.bucket_mean == BucketMean::unweighted)
    objective.whole_batch = "recipe.bucket_mean=unweighted gives the mean of each session in a batch the same weight";
  if (penalties_->any_proximal())
    objective.after_update = [this](const StepContext& context) { penalties_->apply(epoch_for_penalties(context)); };
  return {std::move(objective)};
}

// ---- 5 metrics

void NeuralResponse::begin_validation() { seen_.assign(known_.size(), {}); }

void NeuralResponse::measure(const Batch& batch, const StepResult& result, metrics::Board& board) {
  const std::vector<std::size_t> present = in_order_of_appearance(batch);
  const Tensors& outputs = result.outputs();
  const bool training = batch.split() == Split::train;
  const std::string bps = training ? "bps" : "val_bps";
  seen_.resize(known_.size());
  for (const std::size_t i : present) {
    const Tensors& fields = batch.groups()[i].fields;
    const std::string number = std::to_string(i);
    const std::string& name = known_.at(i).shape.name;
    const at::Tensor rates = as_rates(outputs.at("rates/" + number), recipe_.output_activation);
    board.add_bits_per_event(bps + "/" + name, fields.at("robs"), rates, fields.at("dfs"), bps + "_overall");
    board.add("session_loss/" + name, outputs.at("loss/" + number), outputs.at("count/" + number));
    const at::Tensor& dropped = outputs.at("nan_skip/" + number);
    board.add("nan_skip/" + name, dropped, at::ones_like(dropped));
    if (training) continue;
    seen_.at(i).add(fields.at("robs"), rates, fields.at("dfs"), fields.at("stim"), behavior_of(fields));
  }
  board.add("groups_per_step", static_cast<double>(present.size()), 1.0);
  board.add("forwards_per_step", outputs.at("forwards"), at::ones_like(outputs.at("forwards")));
  // Printed lines leave these metrics out. In a few batches many units have no spike, so the metrics would be mere chance.
  for (const char* quiet :
       {"bps/*", "bps_overall/*", "val_bps/*", "session_loss/*", "nan_skip/*", "groups_per_step", "forwards_per_step"})
    board.quiet(quiet);
  board.lowest_is_best("session_loss/*");
  board.lowest_is_best("nan_skip/*");
}

std::vector<std::vector<double>> NeuralResponse::bits() const {
  std::vector<std::vector<double>> bits;
  for (const Seen& seen : seen_) {
    const std::vector<double> sums = seen.empty() ? std::vector<double>() : host_values<double>(seen.sums);
    bits.push_back(metrics::bits_per_event(sums.data(), sums.size() / 4));
  }
  return bits;
}

// The gradient of each shown unit's output with respect to the stimulus, averaged over some rows: (units, L, H, W).
at::Tensor NeuralResponse::gradients_of(std::size_t session) {
  const Seen& seen = seen_.at(session);
  const at::AutoGradMode with_gradients(true);
  const bool trains = model().is_training();
  model().eval();
  const at::Tensor stim = seen.some_stim.detach().clone().requires_grad_();
  const std::vector<Rows> rows = {{session, stim, seen.some_behavior, {}}};
  const at::Tensor outputs = model().forward(rows).rates.front();
  std::vector<at::Tensor> gradients;
  for (std::int64_t u = 0; u < seen.totals.size(1); ++u) {
    stim.mutable_grad().reset();
    outputs.select(1, u).sum().backward({}, /*retain_graph=*/true, /*create_graph=*/false, at::TensorList(&stim, 1));
    gradients.push_back(stim.grad().mean(0)[0]);
  }
  model().train(trains);
  return at::stack(gradients);
}

std::vector<Picture> NeuralResponse::draw() {
  const auto first = std::ranges::find_if(seen_, [](const Seen& seen) { return !seen.empty(); });
  if (first == seen_.end()) return {};
  const auto i = static_cast<std::size_t>(first - seen_.begin());
  const Shown shown{known_.at(i).shape.name, known_.at(i).cids, bins_per_s_};
  std::vector<std::string> names;
  for (const Known& session : known_) names.push_back(session.shape.name);
  std::vector<Picture> pictures = {draw_traces(*first, shown), draw_fields(*first, gradients_of(i), shown),
                                   draw_calibration(seen_, bins_per_s_), draw_bits(bits(), names)};
  const std::int64_t side = side_of_last_frame(model().config(), first->stimuli.size(2));
  if (const at::Tensor masks = model().masks(i, side, side); masks.defined()) pictures.push_back(draw_masks(masks, shown));
  return pictures;
}

std::vector<TextTable> NeuralResponse::tables() {
  TextTable table{.name = "bps", .columns = {"session", "cid", "bits_per_spike", "spikes"}, .rows = {}};
  const std::vector<std::vector<double>> all = bits();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (seen_[i].empty()) continue;
    const std::vector<double> spikes = host_values<double>(seen_[i].sums[1]);
    for (std::size_t u = 0; u < all[i].size(); ++u) {
      const std::string cid = u < known_[i].cids.size() ? std::to_string(known_[i].cids[u]) : std::to_string(u);
      const std::string bits_text = std::isnan(all[i][u]) ? "" : significant(all[i][u], 6);  // digits as in history.csv
      table.rows.push_back({known_[i].shape.name, cid, bits_text, significant(spikes[u], 12)});
    }
  }
  if (table.rows.empty()) return {};
  return {std::move(table)};
}

// ---- what a trained model is used for

State NeuralResponse::state() const {
  State state;
  state.json = {{"lags", lags_},
                {"behavior_dim", behavior_dim_},
                {"bins_per_s", bins_per_s_},
                {"stimulus", kStimulusWords.at(static_cast<std::size_t>(stimulus_))},
                {"sessions", Json::array()}};
  for (const Known& session : known_)
    state.json["sessions"].push_back({{"name", session.shape.name}, {"units", session.shape.units}, {"cids", session.cids}});
  return state;
}

void NeuralResponse::load_state(const State& state) {
  if (state.tensors.empty() && state.json.empty()) return;  // true if only weights were loaded
  constexpr std::int64_t kMost = 1'000'000;
  const SavedJson saved(state.json, "recipe");
  std::vector<Known> found;
  for (const SavedJson& session : saved["sessions"].list()) {
    Known known{{session["name"].text(), session["units"].integer(1, kMost), {}}, {}};
    for (const SavedJson& cid : session["cids"].list()) known.cids.push_back(cid.integer(0, kMost));
    found.push_back(std::move(known));
  }
  if (found.empty()) saved["sessions"].refuse("at least one session");
  if (sessions_) check_sessions(found, known_);
  goes_on_ = true;
  lags_ = saved["lags"].integer(1, kMost);
  behavior_dim_ = saved["behavior_dim"].integer(0, kMost);
  bins_per_s_ = saved["bins_per_s"].number();
  if (const auto stimulus = saved.find("stimulus")) stimulus_ = stimulus_from(*stimulus);  // old snapshots lack a stimulus
  if (!sessions_) known_ = std::move(found);
}

Tensors NeuralResponse::predict(const Tensors& inputs) {
  check_inputs(inputs, model().config());
  const at::Tensor pixels = as_seen_in_training(inputs.at("stim"), stimulus_);
  std::vector<at::Tensor> rates;
  for (std::size_t i = 0; i < known_.size(); ++i) {
    const std::vector<Rows> rows = {{i, pixels, behavior_of(inputs), {}}};
    rates.push_back(as_rates(model().forward(rows).rates.front(), recipe_.output_activation));
  }
  return {{"rates", at::cat(rates, 1)}};
}

Facts NeuralResponse::facts() const {
  std::int64_t units = 0;
  for (const Known& session : known_) units += session.shape.units;
  return {.rate_unit = "samples",
          .history = {"val_bps_overall"},
          .frozen_source = recipe_.freeze_vision ? recipe_.pretrained : "",
          .lines = {{"sessions", known_.size()}, {"units", units}},
          .read_as = sessions_ ? read_as(*sessions_) : "",
          .fields = sessions_ ? fields_of(*sessions_, recipe_) : std::map<std::string, FieldWords>()};
}

}  // namespace millrace::recipes::neural_response
