#include "recipes/image_pairs/originals/log.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <ctime>

namespace millrace::recipes::image_pairs {
namespace {

std::string printed(const char* form, double value) {
  std::array<char, 64> text{};
  const int length = std::snprintf(text.data(), text.size(), form, value);
  return {text.data(), static_cast<std::size_t>(std::clamp(length, 0, static_cast<int>(text.size()) - 1))};
}

std::string cell(double value) { return std::isfinite(value) ? printed("%.6e", value) : ""; }

// Writes a share as ".52" or "1.0"; "-" if it was not measured.
std::string share(double value) {
  if (!std::isfinite(value)) return "-";
  const std::string text = printed("%.1f", value);
  return text.starts_with("0.") ? text.substr(1) : text;
}

std::string now() {
  const std::time_t seconds = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

double rate_of(const LoggedStep& step, std::size_t group) {
  return group < step.learning_rates.size() ? step.learning_rates[group] : std::nan("");
}

std::vector<std::string> row_of(const LoggedStep& step, LogGroups groups) {
  constexpr double kMegabyte = 1024.0 * 1024.0;
  const double straight = step.mean("train/ce_straight"), swapped = step.mean("train/ce_swapped");
  const double lora = rate_of(step, groups.lora);
  return {now(),
          cell(step.epoch),
          cell(step.mean("loss")),
          cell(step.mean("loss/ce")),
          cell(step.mean("loss/consistency")),
          cell(step.mean("train/consistency_weight")),
          cell(std::isfinite(swapped) ? (straight + swapped) / 2 : straight),
          cell(1.0),
          cell(step.gradient_norm),
          cell(lora),
          cell(rate_of(step, groups.projector)),
          cell(lora),
          cell(step.mean("train/accuracy")),
          cell(step.mean("train/recall/First")),
          cell(step.mean("train/recall/Second")),
          cell(step.mean("train/recall/Similar")),
          cell(straight / swapped),
          "",
          cell(static_cast<double>(step.memory_bytes) / kMegabyte),
          cell(step.seconds_per_step * 1e3)};
}

std::string line_of(const LoggedStep& step, LogGroups groups) {
  const double accuracy = step.mean("train/accuracy");
  return "Batch " + std::to_string(step.step) + " | Epoch " + printed("%.3f", step.epoch) +
         " | Loss: " + printed("%.2e", step.mean("loss")) + " (CE: " + printed("%.1e", step.mean("loss/ce")) +
         ", Cons: " + printed("%.1e", step.mean("loss/consistency")) +
         ") | Acc: " + (std::isfinite(accuracy) ? printed("%.2f", accuracy) : "-") + " (F " +
         share(step.mean("train/recall/First")) + " S " + share(step.mean("train/recall/Second")) + " Sim " +
         share(step.mean("train/recall/Similar")) + ") | LR: Proj = " + printed("%.1e", rate_of(step, groups.projector)) +
         ", LoRA = " + printed("%.1e", rate_of(step, groups.lora)) + " | Grad: " + printed("%.1e", step.gradient_norm);
}

}  // namespace

StepLog original_log(LogGroups groups) {
  return {.name = "training_log",
          .columns = {"timestamp",         "epoch",    "loss",         "ce_loss",         "cons_loss",
                      "cons_weight",       "base_ce",  "ce_weight",    "grad_norm",       "learning_rate",
                      "lr_projection",     "lr_lora",  "train_acc",    "train_acc_first", "train_acc_second",
                      "train_acc_similar", "ce_ratio", "ema_ce_ratio", "memory_usage_mb", "batch_time_ms"},
          .row = [groups](const LoggedStep& step) { return row_of(step, groups); },
          .line = [groups](const LoggedStep& step) { return line_of(step, groups); }};
}

}  // namespace millrace::recipes::image_pairs
