// What the trainer does when memory runs out: everything it can recompute, then smaller micro-steps. The global batch stays.
#include <torch/nn/module.h>

#include <algorithm>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/device/tensor_memory.h"
#include "millrace/train/trainer.h"

namespace millrace {
namespace {

std::string first_line(std::string_view text) { return std::string(text.substr(0, text.find('\n'))); }

std::string reason_of(const std::exception& error) {
  const auto* const torch_error = dynamic_cast<const c10::Error*>(&error);
  return first_line(torch_error == nullptr ? error.what() : torch_error->what_without_backtrace());
}

bool normalises_batches(const torch::nn::Module& model) {
  return std::ranges::any_of(model.named_buffers(), [](const auto& item) { return item.key().ends_with("running_mean"); });
}

}  // namespace

bool Trainer::accumulate() {
  while (true) {
    std::string reason;
    try {
      return gather();
    } catch (const std::exception& error) {
      if (!parts_.recovers || !device::is_out_of_memory(error)) throw;
      reason = reason_of(error);
    }  // what the failed step held is freed here
    pending_.clear();
    parts_.stepper->abandon_step();
    device::release_cached_memory(parts_.device);
    parts_.loader->load_state(loader_state_);
    epoch_ended_ = false;
    if (parts_.may_recompute && parts_.stepper->recompute_all()) {
      tell_memory("out of memory in step " + std::to_string(step_ + 1) + " (" + reason +
                      "): every block of the model is recomputed from now on, which changes no bit",
                  {{"recompute", "all"}});
    } else {
      split_further("step " + std::to_string(step_ + 1), reason);
    }
  }
}

std::optional<std::map<std::string, double>> Trainer::validation_that_fits() {
  while (true) {
    std::string reason;
    try {
      return validation_means(*parts_.recipe, *parts_.stepper, *parts_.validation, parts_.device,
                              parts_.config->train.validate_batches, split_);
    } catch (const std::exception& error) {
      if (!parts_.recovers || !device::is_out_of_memory(error)) throw;
      reason = reason_of(error);
    }
    (void)parts_.recipe->draw();  // forgets what it kept of the batches that fitted
    device::release_cached_memory(parts_.device);
    split_further("the validation after step " + std::to_string(step_), reason);
  }
}

void Trainer::split_further(const std::string& where, const std::string& reason) {
  if (split_ >= widest_batch_) throw DeviceError(no_room(where, reason));
  split_ *= 2;
  std::string text = "out of memory in " + where + " (" + reason + "): each batch is cut into " + std::to_string(split_) +
                     " parts from now on; the global batch stays";
  if (normalises_batches(parts_.recipe->model())) text += ", but batch norms see a part at a time";
  tell_memory(text, {{"split", split_}});
}

void Trainer::tell_memory(const std::string& text, Json values) const {
  parts_.console->warning(text);
  values["step"] = step_;
  values["text"] = text;
  record("memory", std::move(values));
}

Message Trainer::no_room(const std::string& where, const std::string& reason) const {
  std::string table = where + "; tensors hold " +
                      human_bytes(static_cast<double>(device::tensor_memory(parts_.device).live_bytes)) + " between steps:";
  for (const auto& [part, bytes] : parts_.stepper->state_bytes()) {
    if (bytes > 0) table += " " + part + " " + human_bytes(static_cast<double>(bytes)) + ",";
  }
  table.back() = '.';
  return {"out of memory with one sample at a time: " + reason, table,
          "use a smaller model or smaller samples, set memory.recompute=all if it is off, or give the run more memory"};
}

// The counters are the allocator's own: reading them waits for nothing.
void Trainer::note_peak() { step_peak_bytes_ = std::max(step_peak_bytes_, device::tensor_memory(parts_.device).peak_bytes); }

void Trainer::forget_peak() { device::reset_peak_tensor_memory(parts_.device); }

Json Trainer::memory_results() const {
  Json all = {{"split", split_}, {"step_peak_bytes", step_peak_bytes_}};
  all["recompute"] = parts_.stepper->recompute().patterns();
  for (const auto& [part, bytes] : parts_.stepper->state_bytes()) all[part + "_bytes"] = bytes;
  return all;
}

}  // namespace millrace
