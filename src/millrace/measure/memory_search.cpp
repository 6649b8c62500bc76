#include "millrace/measure/memory_search.h"

#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <functional>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/device/device.h"
#include "millrace/device/errors.h"
#include "millrace/device/tensor_memory.h"
#include "millrace/measure/detail/trial_step.h"
#include "millrace/train/loop/validation.h"
#include "millrace/train/step/smaller_steps.h"
#include "millrace/train/step/stepper_report.h"

namespace millrace {
namespace {

// Returns the bytes that a batch of `size` would need, extrapolated from `ran`, if this number exceeds the limit; else 0. A step
// that needs more than the limit is not tried, because operations allocate scratch memory without a check, and the system would
// kill the process.
std::uint64_t too_much(const Json& ran, std::int64_t size) {
  if (!ran.is_object() || !ran.contains("resident_bytes")) return 0;
  const auto before = ran["resident_before_bytes"].get<double>();
  const double grown = std::max(ran["resident_bytes"].get<double>() - before, 0.0);
  const double needed = before + grown * static_cast<double>(size) / ran["batch_size"].get<double>();
  return needed > ran["limit_bytes"].get<double>() ? static_cast<std::uint64_t>(needed) : 0;
}

Json refused(std::uint64_t needed, const Json& ran) {
  return {{"fits", false},
          {"reason", "it needs " + human_bytes(static_cast<double>(needed)) + ", extrapolated from batch size " +
                         ran["batch_size"].dump() + ", but the limit is " + human_bytes(ran["limit_bytes"].get<double>())}};
}

// Makes a step, validates a batch and makes another step.
Json try_whole_step(const RunRequest& request) {
  RunSetup setup(request);
  const at::Device device = setup.context().device;
  // Limits the trial even if the run has no limit, because a trial that runs out of memory does not recover.
  std::optional<MemoryLimit> limited;
  if (device.is_cpu() && !setup.switches().on("memory_recovery")) limited.emplace(setup.config().memory.limit);
  device::release_cached_memory(device);  // frees memory that the trial of another size left
  const std::uint64_t before = device::private_resident_bytes();
  Assembly run(setup, folders_to_look_in());
  run.decide();
  run.decide_memory();
  run.recipe().model().train();
  const std::uint64_t room = device.is_cpu() ? 0 : device::tensor_memory(device).live_bytes + device::free_tensor_memory(device);
  device::reset_peak_tensor_memory(device);
  TrialStep largest = make_trial_step(run, 0);  // the step with more rows counts, because the last batch of an epoch may be
                                                // smaller
  if (run.loaders().validation() != nullptr) {
    (void)run_validation(run.batch_context(), run.stepper(), *run.loaders().validation(), 1);
    run.recipe().model().train();
  }
  if (const TrialStep second = make_trial_step(run, 1); second.rows >= largest.rows) largest = second;
  const std::uint64_t peak = device::tensor_memory(device).peak_bytes;
  // The loader's batches are host memory that does not belong to tensors, so no counter includes that memory.
  const std::uint64_t limit = device::tensor_memory_limit();
  const std::uint64_t buffers = run.loaders().training().buffer_bytes();
  if (device.is_cpu() && limit > 0 && peak + buffers > limit) {
    throw c10::OutOfMemoryError(
        {__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)},
        "the tensors leave no room for the loader's " + human_bytes(static_cast<double>(buffers)) + " of batches");
  }
  Json result = {{"fits", true},
                 {"peak_bytes", peak},
                 {"limit_bytes", device.is_cpu() ? limit : room},
                 {"step_ms", largest.seconds * 1e3},
                 {"samples_per_s", static_cast<double>(largest.rows) / std::max(largest.seconds, 1e-9)},
                 {"samples_per_epoch", run.loaders().training().samples_per_epoch()},
                 {"whole_epoch", run.loaders().training().batches_per_epoch() <= 1}};
  if (!device.is_cpu() || limit > 0) return result;
  result["limit_bytes"] = device::resident_memory_limit();
  result["resident_before_bytes"] = before;
  // This number includes freed memory that the allocator keeps, so it is the peak so far.
  result["resident_bytes"] = device::private_resident_bytes();
  return result;
}

}  // namespace

Json estimate_memory(RunRequest request) {
  const SampleInput input(request, /*keeps=*/false);
  RunSetup setup(request);
  Assembly run(setup, folders_to_look_in());
  run.decide();
  const std::optional<Batch> batch = run.trial_batch();
  if (!batch) throw no_trial_batch();
  const RunConfig& values = run.config();
  const bool with_gradients = values.optim.accumulate > 1 || values.memory.micro_batches > 1;
  Json result = try_memory(run.stepper(), *batch, values.memory, with_gradients).trial;
  for (const auto& [part, bytes] : state_bytes_of(run.stepper())) result[part + "_bytes"] = bytes;
  const MemoryAccount account =
      run.memory_account(result.at("plain_bytes").get<std::uint64_t>(), run.switches().on("async_snapshot"));
  result["account"] = account.to_json(account.sum());
  // Taken from the account of memory, because the trial has already freed the gradients.
  result["gradients_bytes"] = account.gradients;
  const std::uint64_t fixed = account.weights + account.gradients + account.optimizer + account.averages;
  result["lighter"] = Json::array();
  for (const SmallerStep& step :
       smaller_steps(fixed, result.at("plain_bytes").get<std::uint64_t>(), batch->rows(), run.recipe().facts().shrinks))
    result["lighter"].push_back({{"setting", step.setting}, {"bytes", step.bytes}});
  result["recipe"] = request.entry->name;
  result["batch_size"] = values.data.samples_per_batch();
  result["micro_batches"] = values.memory.micro_batches;
  result["precision"] = setup.plan().find("precision.dtype")->value;
  const at::Device device = setup.context().device;
  result["device"] = device.str();
  result["available_bytes"] = device::free_tensor_memory(device);
  return result;
}

Json find_max_batch(RunRequest request, const MaxBatchOptions& options) {
  const SampleInput input(request, /*keeps=*/false);
  Json result = search_max_batch(options, [&request](std::int64_t batch_size) {
    request.config.values["data"]["batch_size"] = batch_size;
    return try_whole_step(request);
  });
  result["recipe"] = request.entry->name;
  return result;
}

Json search_max_batch(const MaxBatchOptions& options, const std::function<Json(std::int64_t batch_size)>& whole_step) {
  Json tried = Json::array();
  Json best;
  std::string bound = "memory";
  const auto fits = [&](std::int64_t size) {
    Json result;
    const std::uint64_t needed = too_much(best, size);
    try {
      result = needed == 0 ? whole_step(size) : refused(needed, best);
    } catch (const Error& error) {
      if (best.is_null()) throw;  // no step succeeded, so the batch size is not the cause
      bound = "config";
      result = {{"fits", false}, {"reason", error.what()}};
    } catch (const std::exception& error) {
      if (!device::is_out_of_memory(error)) throw;
      bound = "memory";
      const std::string_view text = error.what();
      result = {{"fits", false}, {"reason", text.substr(0, text.find('\n'))}};
    }
    result["batch_size"] = size;
    tried.push_back(result);
    if (options.report) options.report(result);
    if (!result.at("fits").get<bool>()) {
      if (needed > 0) bound = "memory";
      return false;
    }
    best = std::move(result);
    return true;
  };
  std::int64_t good = 0;
  std::int64_t bad = 0;
  for (std::int64_t size = std::max<std::int64_t>(options.from, 1); bad == 0;) {
    if (!fits(size)) {
      bad = size;
      break;
    }
    good = size;
    const std::int64_t samples = best.at("samples_per_epoch").get<std::int64_t>();
    if (options.least_batches > 1 && samples < 2 * size * options.least_batches) {
      bound = "batches";
      break;
    }
    if (best.at("whole_epoch").get<bool>() || (options.most > 0 && size >= options.most)) {
      bound = options.most > 0 && size >= options.most ? "most" : "data";
      break;
    }
    size = std::min(size * 2, samples);
    if (options.most > 0) size = std::min(size, options.most);
  }
  while (good > 0 && bad - good > std::max<std::int64_t>(1, good / 16)) {
    const std::int64_t middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  Json result = {{"batch_size", good}, {"bound", bound}, {"tried", std::move(tried)}};
  if (!best.is_null()) {
    for (const char* key : {"peak_bytes", "limit_bytes", "step_ms", "samples_per_s"}) result[key] = best.at(key);
  }
  return result;
}

}  // namespace millrace
