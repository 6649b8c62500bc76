#include "millrace/train/loop/detail/recovery.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/device/errors.h"
#include "millrace/device/tensor_memory.h"
#include "millrace/train/step/smaller_steps.h"
#include "millrace/train/step/stepper_report.h"

namespace millrace {
namespace {

// marks a failure; so low that the sum over the ranks stays negative, whatever numbers of rows the other ranks add
constexpr std::int64_t kFailed = std::numeric_limits<std::int32_t>::min();

std::string reason_of(const std::exception& error) {
  const auto* const torch_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text = torch_error == nullptr ? error.what() : torch_error->what_without_backtrace();
  return text.substr(0, text.find('\n'));
}

bool normalises_batches(const torch::nn::Module& model) {
  return std::ranges::any_of(model.named_buffers(), [](const auto& item) { return item.key().ends_with("running_mean"); });
}

}  // namespace

Recovery::Recovery(bool recovers, bool may_recompute, std::int64_t micro_batches, Recipe& recipe, Stepper& stepper,
                   Reporter& reporter, Agreement& agreement)
    : recovers_(recovers),
      may_recompute_(may_recompute),
      micro_batches_(micro_batches),
      recipe_(recipe),
      stepper_(stepper),
      reporter_(reporter),
      agreement_(agreement) {}

void Recovery::use_at_least(std::int64_t micro_batches) noexcept { micro_batches_ = std::max(micro_batches_, micro_batches); }

void Recovery::saw(const Batch& batch) noexcept {
  for (const Group& group : batch.groups()) widest_group_ = std::max(widest_group_, group.rows());
}

std::int64_t Recovery::attempt(const Attempt& tried, const std::function<std::int64_t()>& run,
                               const std::function<void()>& undo) {
  if (!recovers_) return with(tried).sum(run());
  for (bool again = false;; again = true) {
    std::string reason;
    std::int64_t rows = 0;
    try {
      rows = run();
    } catch (const std::exception& error) {
      if (!device::is_out_of_memory(error)) throw;
      reason = reason_of(error);
    }  // the error is destroyed here, which frees the memory of the failed try
    rows = with(tried).sum(reason.empty() ? rows : kFailed);
    if (rows >= 0) {
      if (again) warn_of_smaller_steps(tried);
      return rows;
    }
    undo();
    device::release_cached_memory(stepper_.device());
    need_less(tried, reason.empty() ? "on another rank" : reason);
    forget_peak();
  }
}

void Recovery::need_less(const Attempt& tried, const std::string& reason) {
  const bool recomputes = tried.may_recompute && may_recompute_ && stepper_.blocks().recompute_all();
  if (recomputes) {
    return warn(tried,
                "out of memory in " + tried.where + " (" + reason +
                    "): every block of the model is recomputed from now on, which changes no bit of the results",
                {{"recompute", "all"}});
  }
  if (!with(tried).any(micro_batches_ < std::max(widest_group_, tried.rows))) throw DeviceError(no_room(tried, reason));
  micro_batches_ *= 2;
  std::string text = "out of memory in " + tried.where + " (" + reason + "): each batch is cut into " +
                     std::to_string(micro_batches_) + " micro-batches from now on; the global batch does not change";
  if (normalises_batches(recipe_.model())) text += ", but batch norms see a micro-batch at a time";
  warn(tried, text, {{"micro_batches", micro_batches_}});
}

void Recovery::warn(const Attempt& tried, const std::string& text, Json values) const {
  reporter_.warning(text);
  values["step"] = tried.step;
  values["text"] = text;
  reporter_.record("memory", std::move(values));
}

// Shows how much memory a step holds now, and settings with which a step would need less. Called after the first try that
// succeeded, while its peak of memory is known.
void Recovery::warn_of_smaller_steps(const Attempt& tried) const {
  if (!tried.may_recompute) return;  // passes without backward do not show how much memory a step needs
  const device::TensorMemory held = device::tensor_memory(stepper_.device());
  // memory of weights, gradients, optimiser and data; the memory for samples is already freed
  const std::uint64_t fixed = held.live_bytes;
  const std::uint64_t peak = held.peak_bytes;
  const std::int64_t rows = (widest_group_ + micro_batches_ - 1) / micro_batches_;
  const auto in_one = static_cast<std::uint64_t>(static_cast<double>(peak - std::min(fixed, peak)) *
                                                 static_cast<double>(widest_group_) / static_cast<double>(rows));
  const std::vector<SmallerStep> steps = smaller_steps(fixed, fixed + in_one, widest_group_, recipe_.facts().shrinks);
  if (steps.empty()) return;
  warn(tried,
       "a step holds " + human_bytes(static_cast<double>(peak)) + " of tensors now, and would hold " +
           human_bytes(static_cast<double>(fixed + in_one)) +
           " without micro-batches. With one of these settings a step needs less memory, even without micro-batches: " +
           to_text(steps),
       {{"peak_bytes", peak}, {"whole_bytes", fixed + in_one}});
}

Message Recovery::no_room(const Attempt& tried, const std::string& reason) const {
  std::string table = tried.where + "; tensors hold " +
                      human_bytes(static_cast<double>(device::tensor_memory(stepper_.device()).live_bytes)) + " between steps:";
  for (const auto& [part, bytes] : state_bytes_of(stepper_)) {
    if (bytes > 0) table += " " + part + " " + human_bytes(static_cast<double>(bytes)) + ",";
  }
  table.back() = '.';
  const std::vector<Shrink> ways = recipe_.facts().shrinks;
  const std::string smaller = ways.empty() ? "smaller samples" : joined(ways, " or ", &Shrink::setting) + " for smaller samples";
  return {"out of memory with one sample at a time: " + reason, table,
          "use a smaller model, or " + smaller + ", set memory.recompute=all if it is off, or give the run more memory"};
}

void Recovery::record_peak() {
  const std::uint64_t peak = device::tensor_memory(stepper_.device()).peak_bytes;
  step_peak_bytes_ = std::max(step_peak_bytes_, peak);
  epoch_peak_bytes_ = std::max(epoch_peak_bytes_, peak);
}

std::uint64_t Recovery::take_epoch_peak() {
  record_peak();
  forget_peak();
  return std::exchange(epoch_peak_bytes_, 0);
}

void Recovery::forget_peak() { device::reset_peak_tensor_memory(stepper_.device()); }

Json Recovery::results() const {
  Json all = {{"micro_batches", micro_batches_}, {"step_peak_bytes", step_peak_bytes_}};
  all["recompute"] = stepper_.blocks().recompute().patterns();
  for (const auto& [part, bytes] : state_bytes_of(stepper_)) all[part + "_bytes"] = bytes;
  return all;
}

}  // namespace millrace
