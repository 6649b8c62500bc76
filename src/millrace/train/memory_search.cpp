#include "millrace/train/memory_search.h"

#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <functional>

#include "millrace/base/clock.h"
#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/device/device.h"
#include "millrace/device/tensor_memory.h"
#include "millrace/train/feed.h"
#include "millrace/train/generator_state.h"
#include "millrace/train/session.h"
#include "millrace/train/split.h"

namespace millrace {
namespace {

DataError no_batch() {
  return DataError(
      {"there is no batch to try a step with", "the training data", "give more samples, or set data.drop_last=false"});
}

// What a batch of `size` would come to by what `ran` took, where that is more than there is; else 0. A step may not simply be
// tried then: an operation's scratch memory is taken without asking, and the system would end the process.
std::uint64_t too_much(const Json& ran, std::int64_t size) {
  if (!ran.is_object() || !ran.contains("resident_bytes")) return 0;
  const auto before = ran["resident_before_bytes"].get<double>();
  const double grown = std::max(ran["resident_bytes"].get<double>() - before, 0.0);
  const double needed = before + grown * static_cast<double>(size) / ran["batch_size"].get<double>();
  return needed > ran["limit_bytes"].get<double>() ? static_cast<std::uint64_t>(needed) : 0;
}

Json refused(std::uint64_t needed, const Json& ran) {
  return {{"fits", false},
          {"reason", "by what " + ran["batch_size"].dump() + " took it needs " + human_bytes(static_cast<double>(needed)) +
                         " of " + human_bytes(ran["limit_bytes"].get<double>())}};
}

}  // namespace

Json Session::estimate() {
  choose_device();
  make_step();
  const std::optional<Batch> batch = trial_batch();
  if (!batch) throw no_batch();
  Json result = try_memory(*stepper_, *batch, config_.memory, config_.optim.accumulate > 1 || config_.memory.split > 1).trial;
  for (const auto& [part, bytes] : stepper_->state_bytes()) result[part + "_bytes"] = bytes;
  result["gradients_bytes"] = result["parameters_bytes"];
  result["recipe"] = request_.recipe;
  result["batch_size"] = config_.data.batch_size;
  result["split"] = config_.memory.split;
  result["precision"] = plan_.find("precision.dtype")->value;
  result["device"] = context_.device.str();
  const int index = context_.device.has_index() ? context_.device.index() : 0;
  const auto counters = device::backend_of(context_.device).memory(index);
  result["available_bytes"] =
      context_.device.is_cpu() ? device::available_memory_bytes() : counters.total_bytes - counters.allocated_bytes;
  return result;
}

Json Session::try_whole_step() {
  choose_device();
  if (context_.device.is_cpu() && !memory_limit_) memory_limit_.emplace(config_.memory.limit);
  device::release_cached_memory(context_.device);  // what a size tried before has left
  const std::uint64_t before = device::private_resident_bytes();
  make_step();
  decide_memory();
  recipe_->model().train();
  device::reset_peak_tensor_memory(context_.device);
  double seconds = 0;  // of the step with the most rows: an epoch's last batch may be smaller
  std::int64_t most_rows = 0;
  for (std::int64_t step = 0; step < 2; ++step) {
    const double begin = steady_seconds();
    std::int64_t rows = 0;
    stepper_->begin_step(step);
    for (std::int64_t i = 0; i < config_.optim.accumulate; ++i) {
      auto host = loader_->next();
      if (!host) host = loader_->next();  // the next epoch's
      if (!host) break;
      Batch batch = to_batch(std::move(*host), context_.device);
      rows += batch.rows();
      const std::int64_t parts = parts_of(batch, config_.memory.split);
      for (std::int64_t part = 0; part < parts; ++part) {
        const StepResult result = stepper_->accumulate(recipe_->prepare(take_part(batch, part, parts)));
        (void)shown(result.losses[0]).item<double>();  // a device would still be busy
      }
    }
    if (rows == 0) throw no_batch();
    stepper_->update();
    if (rows >= most_rows) {
      seconds = steady_seconds() - begin;
      most_rows = rows;
    }
    if (step == 0 && validation_ != nullptr) {
      (void)validation_means(*recipe_, *stepper_, *validation_, context_.device, 1, config_.memory.split);
      recipe_->model().train();
    }
  }
  const std::uint64_t peak = device::tensor_memory(context_.device).peak_bytes;
  // Batches on their way are host memory that no tensor counter sees.
  const std::uint64_t limit = device::tensor_memory_limit();
  if (context_.device.is_cpu() && limit > 0 && peak + loader_->buffer_bytes() > limit) {
    throw c10::OutOfMemoryError(
        {__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)},
        "the loader's " + human_bytes(static_cast<double>(loader_->buffer_bytes())) + " of batches do not fit as well");
  }
  Json result = {{"fits", true},
                 {"peak_bytes", peak},
                 {"limit_bytes", context_.device.is_cpu() ? limit : device::backend_of(context_.device).memory(0).total_bytes},
                 {"step_ms", seconds * 1e3},
                 {"samples_per_s", static_cast<double>(most_rows) / std::max(seconds, 1e-9)},
                 {"samples_per_epoch", loader_->samples_per_epoch()},
                 {"whole_epoch", loader_->batches_per_epoch() <= 1}};
  if (!context_.device.is_cpu() || limit > 0) return result;
  result["limit_bytes"] = device::resident_memory_limit();
  result["resident_before_bytes"] = before;
  result["resident_bytes"] = device::private_resident_bytes();  // freed memory that is kept counts: the most there was
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
      if (best.is_null()) throw;  // nothing ran yet: the mistake is not the size
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
    if (options.tell) options.tell(result);
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
