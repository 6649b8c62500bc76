#include "millrace/train/assembly/memory_choice.h"

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/device/device.h"
#include "millrace/device/errors.h"
#include "millrace/device/tensor_memory.h"
#include "millrace/train/step/micro_batches.h"

namespace millrace {
namespace {

using memory::Planner;
using memory::Recompute;
using memory::StepProfile;

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none" : text;
}

std::string bytes_text(std::uint64_t bytes) { return human_bytes(static_cast<double>(bytes)); }

// Measures the memory of a step. nullopt if the step does not fit into memory.
std::optional<StepProfile> profile(Stepper& stepper, const Batch& batch, const Recompute& recompute, bool with_gradients,
                                   at::Device device) {
  try {
    return StepTrials(stepper).profile_memory(batch, recompute, with_gradients);
  } catch (const std::exception& error) {
    if (!device::is_out_of_memory(error)) throw;
  }
  device::release_cached_memory(device);
  return std::nullopt;
}

// Plans which blocks to recompute, and checks the predicted memory by trials. The prediction is a sum over blocks. The sum
// ignores that two neighbouring blocks may share a saved tensor.
memory::Planner::RecomputePlan confirmed(Stepper& stepper, const Batch& batch, const Planner& planner, std::uint64_t budget,
                                         bool with_gradients) {
  constexpr int kMostTrials = 4;
  std::uint64_t aim = budget;
  memory::Planner::RecomputePlan plan = planner.choose(aim);
  for (int trial = 0; trial < kMostTrials && !plan.blocks.empty(); ++trial) {
    const auto measured = profile(stepper, batch, Recompute(plan.blocks), with_gradients, stepper.device());
    if (!measured) break;
    const std::uint64_t error = measured->peak_bytes() > plan.predicted_bytes ? measured->peak_bytes() - plan.predicted_bytes : 0;
    const bool could_save_more = plan.fits;
    plan.predicted_bytes = measured->peak_bytes();
    plan.fits = plan.predicted_bytes <= budget;
    if (plan.fits || !could_save_more || error >= aim) break;
    aim -= error;
    memory::Planner::RecomputePlan next = planner.choose(aim);
    if (next.blocks == plan.blocks) break;
    plan = std::move(next);
  }
  return plan;
}

// The smallest number of micro-batches, a power of two, with which a step that recomputes every block fits into `budget`, and the
// bytes of that step. nullopt if there is no such number.
std::optional<std::pair<std::int64_t, std::uint64_t>> micro_batches_that_fit(Stepper& stepper, const Batch& batch,
                                                                             std::uint64_t budget) {
  constexpr std::int64_t kMost = 64;
  for (std::int64_t count = 2; count <= kMost && micro_batches_of(batch, count) == count; count *= 2) {
    const auto measured =
        profile(stepper, micro_batch(batch, 0, count), Recompute({"all"}), /*with_gradients=*/true, stepper.device());
    if (measured && measured->peak_bytes() <= budget) return std::pair(count, measured->peak_bytes());
  }
  return std::nullopt;
}

}  // namespace

std::vector<Problem> memory_problems(const MemoryConfig& config) {
  std::vector<Problem> problems;
  if (!config.budget.empty() && !memory::parse_budget(config.budget)) {
    problems.push_back({"budget " + quoted(config.budget) + " is not an amount of memory", "memory.budget",
                        "write bytes, such as 800 MB or 1.5 GiB, or a share of a step's memory without recompute, such as 60%"});
  }
  if (!config.budget.empty() && Recompute(config.recompute).any()) {
    problems.push_back({"memory.budget chooses the blocks to recompute, but memory.recompute names some too",
                        "memory.budget, memory.recompute", "leave memory.recompute at auto, or memory.budget empty"});
  }
  const auto limit =
      config.limit == "auto" ? memory::Budget{1, false} : memory::parse_budget(config.limit).value_or(memory::Budget{});
  if (limit.amount == 0 || limit.is_share)
    problems.push_back(
        {"limit " + quoted(config.limit) + " is not an amount of memory", "memory.limit", "write auto, or bytes, such as 2 GB"});
  if (!config.offload.empty() && memory::parse_budget(config.offload).value_or(memory::Budget{0, true}).is_share) {
    problems.push_back({"offload " + quoted(config.offload) + " is not an amount of memory", "memory.offload",
                        "write the size, such as 1 MB, from which a tensor is moved to host memory, or leave it empty"});
  }
  return problems;
}

std::uint64_t offload_bytes(const MemoryConfig& config, at::Device device, Switches& switches) {
  if (config.offload.empty()) return 0;
  if (device.is_cpu()) switches.refuse("offload", "the run is on a CPU, where tensors are in host memory already");
  return switches.on("offload") ? memory::parse_budget(config.offload).value_or(memory::Budget{}).bytes(0) : 0;
}

MemoryChoice named_memory(const MemoryConfig& config) {
  MemoryChoice choice{.recompute = Recompute(config.recompute), .value = {}, .reason = {}};
  choice.value = joined(choice.recompute.patterns());
  if (choice.value == "*") choice.value = "all";
  const bool automatic = std::ranges::find(config.recompute, "auto") != config.recompute.end();
  if (!choice.recompute.any() && automatic)
    choice.reason = "nothing until memory runs out, then everything that can be recomputed";
  return choice;
}

MemoryChoice try_memory(Stepper& stepper, const Batch& batch, const MemoryConfig& config, bool with_gradients) {
  const at::Device device = stepper.device();
  const Recompute all({"all"});
  std::optional<StepProfile> recomputed = profile(stepper, batch, all, with_gradients, device);
  if (!recomputed) {
    throw DeviceError({"a step does not fit into memory, even when every block is recomputed",
                       std::to_string(batch.rows()) + " samples on " + device.str(),
                       "lower data.batch_size and raise optim.accumulate by the same factor, or raise memory.micro_batches"});
  }
  const Planner planner(std::move(*recomputed), profile(stepper, batch, Recompute(), with_gradients, device));
  std::vector<std::string> every;
  Json blocks = Json::array();
  for (const memory::Planner::BlockCost& cost : planner.costs()) {
    every.push_back(cost.name);
    blocks.push_back({{"name", cost.name}, {"saved_bytes", cost.saved_bytes}, {"ms", cost.ms}});
  }
  MemoryChoice choice = named_memory(config);
  stepper.blocks().check(choice.recompute);
  choice.trial = {{"plain_bytes", planner.plain_bytes()},
                  {"plain_measured", planner.measured_plain()},
                  {"recomputed_bytes", planner.predict(every)},
                  {"blocks", std::move(blocks)}};
  if (config.budget.empty()) {
    std::erase_if(every, [&](const std::string& name) { return !choice.recompute.takes(name); });
    choice.trial["recompute"] = every;
    memory::Planner::Peak peak = planner.peak(every);
    choice.trial["predicted_bytes"] = peak.bytes;
    choice.trial["peak_in"] = std::move(peak.where);
    return choice;
  }
  const std::uint64_t budget = memory::parse_budget(config.budget)->bytes(planner.plain_bytes());
  const memory::Planner::RecomputePlan plan = confirmed(stepper, batch, planner, budget, with_gradients);
  choice.recompute = Recompute(plan.blocks);
  choice.value = joined(plan.blocks);
  choice.reason = "a step takes " + bytes_text(plan.predicted_bytes) + " of the budget of " + bytes_text(budget) +
                  ", and would take " + bytes_text(planner.plain_bytes()) + " without recompute, which costs " +
                  fixed(plan.extra_ms, 1) + " ms";
  if (!plan.fits) {
    choice.reason += "; recompute can't save more" + (plan.peak_in.empty() ? "" : ", because the peak is " + plan.peak_in) + ": ";
    if (const auto smaller = micro_batches_that_fit(stepper, batch, budget)) {
      const std::int64_t count = smaller->first * config.micro_batches;
      choice.reason += "--memory.micro_batches=" + std::to_string(count) + " takes " + bytes_text(smaller->second);
      choice.trial["micro_batches_that_fit"] = count;
      choice.trial["bytes_that_fit"] = smaller->second;
    } else {
      choice.reason += batch.rows() > 1 ? "smaller micro-batches do not fit either" : "a micro-batch is already a single sample";
    }
  }
  choice.trial["budget_bytes"] = budget;
  choice.trial["predicted_bytes"] = plan.predicted_bytes;
  choice.trial["recompute"] = plan.blocks;
  choice.trial["extra_ms"] = plan.extra_ms;
  choice.trial["fits"] = plan.fits;
  choice.trial["peak_in"] = plan.peak_in;
  return choice;
}

MemoryLimit::MemoryLimit(const std::string& limit)
    : outer_(device::tensor_memory_limit()), outer_resident_(device::resident_memory_limit()) {
  device::count_tensor_memory();
  if (limit == "auto") {
    // The limit is not all of the free memory: a tenth is left for operations' scratch memory and for the system.
    constexpr double kShare = 0.9;
    const auto free = kShare * static_cast<double>(device::available_memory_bytes());
    device::limit_resident_memory(device::private_resident_bytes() + static_cast<std::uint64_t>(free));
    return;
  }
  const std::uint64_t bytes = memory::parse_budget(limit).value_or(memory::Budget{}).bytes(0);
  device::limit_tensor_memory(outer_ == 0 ? bytes : std::min(outer_, bytes));
}

MemoryLimit::~MemoryLimit() {
  device::limit_tensor_memory(outer_);
  device::limit_resident_memory(outer_resident_);
}

}  // namespace millrace
