#include "millrace/train/run/detail/snapshot_check.h"

#include <array>
#include <string_view>

#include "millrace/core/saved_json.h"
#include "millrace/snapshot/layout.h"
#include "millrace/train/report/scores.h"

namespace millrace {
namespace {

// the largest number of steps or samples that is accepted; sums of such numbers stay far below 2^63
constexpr std::int64_t kMost = std::int64_t{1} << 53U;

template <std::size_t N>
void check_word(const SavedJson& value, const std::array<std::string_view, N>& words) {
  const std::string word = value.text();
  std::string list;
  for (const std::string_view each : words) {
    if (word == each) return;
    list += (list.empty() ? "" : ", ") + std::string(each);
  }
  value.refuse("one of " + list);
}

// Checks the texts that record choices of trials. A text that selects a code path must be one of a few known words.
void check_choices(const SavedJson& choices) {
  for (const auto& [option, value] : choices.members()) {
    if (option == "precision.dtype") {
      check_word(value, std::array<std::string_view, 3>{"fp32", "bf16", "fp16"});
    } else if (option == "device.layout") {
      check_word(value, std::array<std::string_view, 2>{"contiguous", "channels_last"});
    } else {
      (void)value.text();
    }
  }
}

}  // namespace

void check_trainer_part(const snapshot::Content& content) {
  const State* trainer = snapshot::part_of(content, snapshot::kTrainer);
  if (trainer == nullptr) refuse_part(snapshot::kTrainer, "it is missing");
  const SavedJson json(trainer->json, snapshot::kTrainer);
  if (json["step"].integer(0, kMost) != content.step) json["step"].refuse("the snapshot's step " + std::to_string(content.step));
  for (const char* count : {"samples", "epoch", "validations_without_gain", "epoch_samples"}) (void)json[count].integer(0, kMost);
  (void)json["validation_pending"].boolean();
  (void)json["epoch_sums"].members();
  for (const auto& [name, metric] : json["metrics"].members()) {
    (void)metric_from(metric, content.step);
  }
  if (const auto split = json.find("memory_split")) (void)split->integer(1, kMost);
  for (const char* number : {"early_stop_best", "loss_first"}) {
    if (const auto value = json.find(number)) (void)value->number_or_nan();
  }
  if (const auto ranked = json.find("best")) {
    for (const SavedJson& best : ranked->list()) {
      const auto numbers = best.list(2);
      (void)numbers[0].number();
      (void)numbers[1].integer(0, content.step);
    }
  }
  if (const auto row = json.find("epoch_row")) {
    const auto cells = row->list(2);
    (void)cells[0].integer(0, kMost);
    (void)cells[1].number_or_nan();
  }
  if (const auto choices = json.find("choices")) check_choices(*choices);
}

}  // namespace millrace
