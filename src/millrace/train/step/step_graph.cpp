#include "millrace/train/step/step_graph.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/median.h"
#include "millrace/device/device.h"
#include "millrace/device/operation_census.h"
#include "millrace/device/recording.h"
#include "millrace/device/tensor_memory.h"
#include "millrace/telemetry/counter.h"
#include "millrace/train/step/detail/recorded_inputs.h"
#include "millrace/train/step/detail/step_progress.h"
#include "millrace/train/step/stepper.h"

namespace millrace {
namespace {

using telemetry::Phase;
using telemetry::Span;

constexpr std::int64_t kWarmUp = 4;  // launched steps of a shape before one is recorded; in the first, libraries make plans
constexpr int kCompared = 2;       // number of replays compared with launched steps; later, one replay in some epochs is compared
constexpr std::size_t kTimed = 3;  // timed steps of each kind: replayed ones, and ones launched piece by piece
constexpr std::size_t kMostShapes = 3;  // most shapes that are recorded; steps of other shapes are launched piece by piece
constexpr double kTolerance = 2e-3;  // allowed relative difference of losses and norms; half-precision kernels add in any order
constexpr std::int64_t kWorthRecording = 20;  // if each epoch needs a new recording, an epoch must have at least this many steps
constexpr double kWorthIt = 1.02;  // a replay may take this multiple of the launched step's time, because a trial is noisy

// The batch's shape as numbers, which are equal for two batches if one recording can serve both.
std::vector<std::int64_t> shape_of(const Batch& batch, MicroPosition in_step) {
  std::vector<std::int64_t> shape = {in_step.only ? 1 : 0, in_step.last ? 1 : 0};
  for (const Group& group : batch.groups()) {
    shape.push_back(-1);
    shape.push_back(static_cast<std::int64_t>(std::hash<std::string>()(group.name)));
    for (const auto& [name, field] : group.fields) {
      shape.push_back(static_cast<std::int64_t>(std::hash<std::string>()(name)));
      shape.push_back(static_cast<std::int64_t>(field.scalar_type()));
      shape.push_back(field.is_cpu() ? 1 : 0);
      shape.insert(shape.end(), field.sizes().begin(), field.sizes().end());
      shape.insert(shape.end(), field.strides().begin(), field.strides().end());
    }
  }
  if (batch.groups().size() == 1) return shape;
  for (const std::size_t group : groups_by_appearance(batch)) shape.push_back(static_cast<std::int64_t>(group));
  return shape;
}

// Throws if a field is on the host, because each replay would repeat what the host computed with the recorded batch's field.
void refuse_fields_on_host(const Batch& batch) {
  for (const Group& group : batch.groups()) {
    for (const auto& [name, field] : group.fields)
      if (field.is_cpu())
        throw RecipeError({"the batch's field \"" + name + "\" is not on the device", "Recipe::prepare", "move it there"});
  }
}

// The state of the host's generator, which shows whether random numbers were drawn.
at::Tensor host_draws() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::scoped_lock lock(generator.mutex());
  return generator.get_state();
}

Batch like(const Batch& batch) {
  std::vector<Group> groups = batch.groups();
  for (Group& group : groups) {
    for (auto& [name, field] : group.fields) field = at::empty_like(field);
  }
  return Batch(std::move(groups), batch.origin());
}

void copy_into(const Batch& to, const Batch& from) {
  for (std::size_t i = 0; i < to.groups().size(); ++i) {
    for (const auto& [name, field] : to.groups()[i].fields) field.copy_(from.groups()[i].fields.at(name), /*non_blocking=*/true);
  }
}

std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

// True if each objective has a loss.
bool is_whole(const StepResult& result) {
  return std::ranges::none_of(result.losses, [](const Loss& loss) { return loss.terms.empty(); });
}

// The losses of the objectives as logs show them, then the norms of their gradients. On the device.
at::Tensor numbers_of(const StepResult& result, const at::Tensor& gradient_sizes) {
  std::vector<at::Tensor> losses;
  for (const Loss& loss : result.losses) losses.push_back(shown(loss));
  return at::cat({at::stack(losses), gradient_sizes.to(at::kDouble)});
}

// The norm of each objective's gradient. On the device.
at::Tensor sizes_of(const std::vector<ObjectiveStep>& objectives) {
  std::vector<at::Tensor> sizes;
  for (const ObjectiveStep& objective : objectives) sizes.push_back(StepProgress::gradient_size(objective));
  return at::stack(sizes);
}

bool are_equal(double a, double b) {
  return a == b || (!std::isfinite(a) && !std::isfinite(b)) || std::abs(a - b) <= kTolerance * std::max(1e-3, std::abs(b));
}

}  // namespace

void StepLaunches::run(Phase phase, const Work& work) {
  const Span span(timeline_, phase);
  work();
}

struct StepGraph::Part {
  Phase phase = Phase::rest;
  StepLaunches::Seed seed;
  std::unique_ptr<device::Recording> work;
};

// A recorded micro-batch: its memory, and its parts in the order of their replay.
struct StepGraph::Micro {
  std::vector<std::int64_t> shape;
  MicroPosition in_step;
  Batch input;
  std::unique_ptr<RecordedInputs> inputs;
  std::vector<Part> passes;
  StepResult result;
  std::vector<StepProgress> after;  // progress of each objective after this micro-batch; empty for the last micro-batch
};

// The recording of all steps whose first micro-batch has this shape.
struct StepGraph::Recorded {
  explicit Recorded(std::vector<std::int64_t> of) : shape(std::move(of)) {}

  // Drops the recording. One more step is launched piece by piece before the next recording, so that libraries can set up.
  void clear() {
    steps = std::min(steps, kWarmUp - 1);
    micros.clear();
    update.clear();
    sizes.reset();
    size_of_gradients.reset();
    reads = {};
  }
  // Drops the recording and waits before the next attempt: 1, 2, 4, … epochs.
  void wait(std::uint64_t now) {
    clear();
    wait_until = now + (std::uint64_t{1} << static_cast<unsigned>(std::min(waits++, 10)));
  }

  std::vector<std::int64_t> shape;
  std::int64_t steps = 0;     // number of steps that were launched piece by piece
  std::vector<Micro> micros;  // empty: the step is not recorded
  std::vector<Part> update;
  at::Tensor sizes;  // norms of the objectives' gradients after the first micro-batch, on the device
  std::unique_ptr<device::Recording> size_of_gradients;  // computes `sizes`
  HostReads reads;
  std::uint64_t epoch = 0;   // epoch of the recording
  std::int64_t replays = 0;  // number of replays since the recording
  int compared = 0;
  std::uint64_t compare_in = 0;  // the first step in this epoch or later is compared again
  std::uint64_t wait_until = 0;  // before this epoch, steps are launched piece by piece
  int waits = 0;
};

// Records each part of a step, and replays the part at once, because the next part needs its values.
class StepGraph::Recorder final : public StepLaunches {
 public:
  Recorder(telemetry::Timeline& timeline, at::Device device, std::int64_t step, HostReads& reads, Micro& micro,
           std::vector<Part>& parts)
      : StepLaunches(timeline), device_(device), step_(step), reads_(reads), micro_(micro), parts_(parts) {}

  void seed(const Batch& batch, const Seed& seed) override {
    seed(batch);
    seed_ = seed;
  }

  void run(Phase phase, const Work& work) override {
    Part part{.phase = phase, .seed = std::exchange(seed_, {}), .work = nullptr};
    const at::Tensor before = host_draws();
    part.work = record(work);
    if (!before.equal(host_draws()))
      throw RecipeError({"the loss draws random numbers on the host", "Objective::loss, after_update",
                         "draw them in layers of nn, or in Recipe::prepare, which runs before each step"});
    if (reads_.step)
      throw RecipeError({"the loss depends on StepContext::step", "Objective::loss", "take the number from StepContext::number"});
    if (part.work->draws() && !part.seed)
      throw RecipeError({"LibTorch's random numbers are drawn outside a forward pass", "memory.recompute, after_update",
                         "draw with layers of nn"});
    MR_CHECK(micro_.inputs->write(micro_.input, step_), "the batch has the same rows as when the recording began");
    if (part.seed) part.seed(micro_.input);
    const Span span(timeline_, phase);
    part.work->replay();
    parts_.push_back(std::move(part));
  }

  std::unique_ptr<device::Recording> record(const Work& work) {
    const Span span(timeline_, Phase::trials);
    auto recording = device::backend_of(device_).record(device_.index(), work);
    if (!recording) throw DeviceError({"the device can't record work", device_.str(), "train with --off step_graph"});
    return recording;
  }

  [[nodiscard]] SiteRecorder* recorder() override { return micro_.inputs.get(); }
  [[nodiscard]] StepNumbers* numbers() override { return micro_.inputs.get(); }
  [[nodiscard]] HostReads* reads() override { return &reads_; }

 private:
  at::Device device_;
  std::int64_t step_;
  HostReads& reads_;
  Micro& micro_;
  std::vector<Part>& parts_;
  Seed seed_;
};

StepGraph::StepGraph(at::Device device, std::uint64_t seed, telemetry::Timeline& timeline, StepGraph::Parts parts)
    : device_(device),
      seed_(seed),
      timeline_(timeline),
      parts_(std::move(parts)),
      direct_(timeline),
      eager_clock_(device),
      graph_clock_(device) {}

StepGraph::~StepGraph() = default;

std::string StepGraph::use(Stepper& stepper) {
  const Stepper::Options& options = stepper.options_;
  if (options.device.is_cpu()) return "there is no GPU";
  if (!options.trains) return "no steps are made";
  if (!stepper.agreement().alone()) return "there are several ranks";
  if (options.offload_bytes > 0) return "activations are offloaded";
  stepper.graph_ = std::make_unique<StepGraph>(
      options.device, options.seed, stepper.timeline_,
      StepGraph::Parts{.passes = [&stepper](const Batch& batch, MicroPosition in_step,
                                            StepLaunches& launches) { return stepper.passes(batch, in_step, nullptr, launches); },
                       .update = [&stepper](StepLaunches& launches) { stepper.update_by(launches); },
                       .distrust_counters = [&stepper] { stepper.buffers_.distrust_counters(); },
                       .drop =
                           [&stepper] {
                             stepper.buffers_.distrust_counters();
                             stepper.drop_step(nullptr);
                           },
                       .objectives = stepper.objectives_});
  return "";
}

const StepGraph* StepGraph::of(const Stepper& stepper) noexcept { return stepper.graph_.get(); }

void StepGraph::forget() {
  recorded_.clear();
  now_ = timed_ = nullptr;
  records_ = false;
  clock_ = nullptr;
  eager_clock_.clear();
  graph_clock_.clear();
  if (is_final_ && !choice_->value) return;
  choice_.reset();
  is_final_ = false;
}

void StepGraph::give_up(std::string reason) {
  forget();
  choice_ = {false, std::move(reason)};
  is_final_ = true;
}

// Makes no more attempts in this epoch, because the step can't be recorded now but perhaps in a later epoch.
void StepGraph::wait(Recorded& recorded, std::uint64_t epoch, std::string reason) {
  recorded.wait(epoch);
  if (is_final_ && &recorded != timed_) return;
  choice_ = {false, std::move(reason)};
  is_final_ = false;
}

// Finds or adds the entry of a shape; null if there are too many shapes already.
StepGraph::Recorded* StepGraph::known(std::vector<std::int64_t> shape) {
  const auto it = std::ranges::find_if(recorded_, [&](const Recorded& recorded) { return recorded.shape == shape; });
  if (it != recorded_.end()) return &*it;
  return recorded_.size() == kMostShapes ? nullptr : &recorded_.emplace_back(std::move(shape));
}

void StepGraph::begin(std::int64_t step) {
  step_ = step;
  index_ = 0;
  now_ = nullptr;
  records_ = false;
  clock_ = nullptr;
}

std::optional<StepResult> StepGraph::passes(const Batch& batch, MicroPosition in_step) {
  if (is_final_ && !choice_->value) return std::nullopt;
  if (++index_ == 1) return first(batch, in_step);
  return now_ == nullptr ? std::nullopt : next(batch, in_step);
}

std::optional<StepResult> StepGraph::first(const Batch& batch, MicroPosition in_step) {
  Recorded* const recorded = known(shape_of(batch, in_step));
  if (recorded == nullptr && !choice_) choice_ = {false, "batches have more than " + std::to_string(kMostShapes) + " shapes"};
  if (recorded == nullptr || batch.epoch() < recorded->wait_until) return std::nullopt;
  if (recorded->steps < kWarmUp) {
    if (++recorded->steps > 1 && timed_ == nullptr) timed_ = recorded;
    if (recorded->steps > 1 && recorded == timed_ && !is_final_) time_step(eager_clock_);
    return std::nullopt;
  }
  if (recorded->reads.epoch && recorded->epoch != batch.epoch()) {
    if (recorded->replays < kWorthRecording) {
      wait(*recorded, batch.epoch(), "the loss depends on StepContext::epoch, and an epoch has few steps");
      return std::nullopt;
    }
    recorded->clear();
  }
  if (recorded->micros.empty()) {
    device::release_cached_memory(device_);  // frees memory for the recording, which uses separate memory
    recorded->epoch = batch.epoch();
    recorded->replays = 0;
    now_ = recorded;
    records_ = true;
    return record_passes(batch, in_step);
  }
  RecordedInputs& inputs = *recorded->micros.front().inputs;
  if (!inputs.write(batch, step_)) {
    if (inputs.is_unsure()) recorded->clear();
    return std::nullopt;
  }
  if (recorded->compared < kCompared || batch.epoch() >= recorded->compare_in) return compared(*recorded, batch);
  now_ = recorded;
  ++recorded->replays;
  if (recorded == timed_ && !is_final_) time_step(graph_clock_);
  return replay_passes(recorded->micros.front(), batch);
}

std::optional<StepResult> StepGraph::next(const Batch& batch, MicroPosition in_step) {
  if (records_) return record_passes(batch, in_step);
  Micro* const micro = index_ <= now_->micros.size() ? &now_->micros[index_ - 1] : nullptr;
  if (micro != nullptr && micro->shape == shape_of(batch, in_step) && micro->inputs->write(batch, step_))
    return replay_passes(*micro, batch);
  --index_;  // the micro-batch was not replayed, so the index goes back to the last replayed micro-batch
  launch_the_rest();
  return std::nullopt;
}

// Continues the step piece by piece from the state that the replayed micro-batches have left.
void StepGraph::launch_the_rest() {
  const Micro& latest = now_->micros[index_ - 1];
  parts_.distrust_counters();
  for (std::size_t i = 0; i < latest.after.size(); ++i) latest.after[i].restore(parts_.objectives[i]);
  now_ = nullptr;
  if (clock_ != nullptr) clock_->clear();  // the step is not timed, because it has only its first mark
  clock_ = nullptr;
}

// Marks the beginning of the step; update() marks its end.
void StepGraph::time_step(device::DeviceClock& clock) {
  clock_ = &clock;
  clock.mark();
}

// Records the passes of a micro-batch. Returns nullopt if that is impossible; the effects of the micro-batch are then undone.
std::optional<StepResult> StepGraph::record_passes(const Batch& batch, MicroPosition in_step) {
  Recorded& recorded = *now_;
  std::vector<StepProgress> before;
  for (const ObjectiveStep& objective : parts_.objectives) before.emplace_back(objective);
  std::string reason = "an objective has no loss";  // a recording can't count the steps without a loss, as the host does
  bool is_over = false;
  try {
    refuse_fields_on_host(batch);
    Micro& micro = recorded.micros.emplace_back();
    micro.shape = shape_of(batch, in_step);
    micro.in_step = in_step;
    micro.inputs = std::make_unique<RecordedInputs>(device_, seed_);
    micro.inputs->begin(batch);
    micro.input = like(batch);
    copy_into(micro.input, batch);
    Recorder recorder(timeline_, device_, step_, recorded.reads, micro, micro.passes);
    micro.result = parts_.passes(micro.input, in_step, recorder);
    if (is_whole(micro.result)) {
      if (index_ == 1) recorded.size_of_gradients = recorder.record([&] { recorded.sizes = sizes_of(parts_.objectives); });
      if (in_step.last) return micro.result;
      for (const ObjectiveStep& objective : parts_.objectives) micro.after.emplace_back(objective);
      return micro.result;
    }
  } catch (const std::exception& error) {
    reason = first_line(error);
    is_over = !recorded.reads.step;
  }
  if (index_ == 1) parts_.drop();
  for (std::size_t i = 0; i < before.size(); ++i) before[i].restore(parts_.objectives[i]);
  now_ = nullptr;
  records_ = false;
  if (is_over) {
    give_up(std::move(reason));
  } else {
    wait(recorded, batch.epoch(), std::move(reason));
  }
  return std::nullopt;
}

void StepGraph::record_update() {
  Recorded& recorded = *now_;
  std::string reason = "a step ended before its last micro-batch";
  try {
    if (recorded.micros.back().in_step.last) {
      Recorder recorder(timeline_, device_, step_, recorded.reads, recorded.micros.back(), recorded.update);
      return parts_.update(recorder);
    }
  } catch (const std::exception& error) {
    reason = first_line(error);
  }
  parts_.drop();
  const std::vector<Micro> micros = std::exchange(recorded.micros, {});
  give_up(std::move(reason));
  for (const Micro& micro : micros) static_cast<void>(parts_.passes(micro.input, micro.in_step, direct_));
  parts_.update(direct_);
}

const StepResult& StepGraph::replay_passes(Micro& micro, const Batch& batch) {
  static const telemetry::Counter taken("step_graph");
  taken.add(1);
  copy_into(micro.input, batch);
  for (const Part& part : micro.passes) {
    if (part.seed) part.seed(batch);
    const Span span(timeline_, part.phase);
    part.work->replay();
  }
  return micro.result;
}

// Replays the step, launches it again piece by piece, and compares. The launched step counts, so a wrong recording is harmless.
StepResult StepGraph::compared(Recorded& recorded, const Batch& batch) {
  Micro& micro = recorded.micros.front();
  static_cast<void>(replay_passes(micro, batch));
  recorded.size_of_gradients->replay();
  const at::Tensor replayed = numbers_of(micro.result, recorded.sizes);
  parts_.drop();
  StepResult itself = parts_.passes(batch, micro.in_step, direct_);
  if (!is_whole(itself)) {
    give_up("an objective has a loss in only some steps");
    return itself;
  }
  const device::ExpectedReads of_the_comparison;
  const at::Tensor both = at::stack({replayed, numbers_of(itself, sizes_of(parts_.objectives))}).cpu();
  ++recorded.compared;
  recorded.compare_in = batch.epoch() + std::max<std::uint64_t>(1, batch.epoch() - recorded.epoch);
  for (std::int64_t i = 0; i < both.size(1); ++i) {
    const double graph = both[0][i].item<double>(), step = both[1][i].item<double>();
    if (are_equal(graph, step)) continue;
    const std::string what = i < std::ssize(itself.losses) ? "the loss" : "the gradient's norm";
    give_up(what + " of a replayed step was " + significant(graph, 6) + ", but " + significant(step, 6) +
            " in the same step without the recording, so it depends on something that changes on the host");
    break;
  }
  return itself;
}

void StepGraph::update() {
  if (now_ != nullptr && !records_ && index_ != now_->micros.size()) launch_the_rest();  // the recorded step is longer
  if (now_ == nullptr) {
    parts_.update(direct_);
  } else if (records_) {
    record_update();
  } else {
    for (const Part& part : now_->update) {
      const Span span(timeline_, part.phase);
      part.work->replay();
    }
  }
  now_ = nullptr;
  device::DeviceClock* const clock = std::exchange(clock_, nullptr);
  if (clock != nullptr) clock->mark();
  if (clock == &graph_clock_) settle_when_timed();
}

void StepGraph::settle_when_timed() {
  if (is_final_ || graph_clock_.marks() < 2 * kTimed) return;
  const auto step_ms = [](const device::DeviceClock& clock) {
    const std::vector<double> between = clock.between();
    std::vector<double> steps;
    for (std::size_t i = 0; i < between.size(); i += 2) steps.push_back(between[i]);
    return median(steps);
  };
  const double eager = step_ms(eager_clock_), graph = step_ms(graph_clock_);
  const std::string both =
      significant(graph, 3) + " ms a step as graphs, " + significant(eager, 3) + " ms launched operation by operation";
  if (graph > kWorthIt * eager) return give_up(both);
  choice_ = {true, both};
  is_final_ = true;
}

}  // namespace millrace
