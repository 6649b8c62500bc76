#include "millrace/doctor/detail/script_words.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "millrace/base/error.h"
#include "millrace/base/foreign_json.h"
#include "millrace/base/format.h"

namespace millrace::doctor::detail {
namespace {

// A rule that also applies to scripts, with the remedy in a script's terms. "" means that the rule's own remedy fits a script,
// or that the remedy is a key of kDialectRows.
struct ScriptRule {
  std::string_view id, remedy = {};
};

constexpr std::array kScriptRules = {
    ScriptRule{"not_finite",
               "lower the learning rate, clip the gradients, or look for zeros under a root, in a logarithm or in a divisor"},
    ScriptRule{"loss_flat"},
    ScriptRule{"loss_vanished"},
    ScriptRule{"loss_spiking",
               "lower the learning rate, warm it up for longer, or clip the gradients (torch.nn.utils.clip_grad_norm_)"},
    ScriptRule{"gradient_norm"},
    ScriptRule{"overfitting", "stop where the validation is best (early stopping), or regularise"},
    ScriptRule{"memory_high",
               "lower the batch size, accumulate gradients over smaller batches, or compute blocks again in the backward pass "
               "(torch.utils.checkpoint)"},
    ScriptRule{"fragmented"},
    ScriptRule{"list_growing"},
    ScriptRule{"memory_growing",
               "something keeps tensors from step to step, such as a loss that is summed with its graph: detach() what is kept"},
    ScriptRule{"slow_file"},
    ScriptRule{"slow_sample"},
    ScriptRule{"no_readers"},
    ScriptRule{"few_readers"},
    ScriptRule{"workers_respawn"},
    ScriptRule{"too_many_workers"},
    ScriptRule{"threads_in_workers"},
    ScriptRule{"input_bound"},
    ScriptRule{"log_often"},
    ScriptRule{"snapshot_often"},
    ScriptRule{"validate_often"},
    ScriptRule{"validation_input"},
    ScriptRule{"rebuilt_tensors", "make them once, in the module's __init__, and register them as buffers"},
    ScriptRule{"not_pinned"},
    ScriptRule{"copy_bound",
               "send fewer bytes: copy fields as they are stored (uint8, fp16) and convert them to floats on the device, or use "
               "smaller crops"},
    ScriptRule{"item_in_loop"},
    ScriptRule{"host_wait", "keep values on the device (no item(), no comparison in an if), and read them every few steps"},
    ScriptRule{"wrong_device"},
    ScriptRule{"changing_shapes", "crop or pad samples to a few fixed sizes, in the dataset or in collate_fn"},
    ScriptRule{"gil_bound"},
    ScriptRule{"page_faults"},
    ScriptRule{"oversubscribed"},
    ScriptRule{"neighbours"},
    ScriptRule{"slowing_down",
               "something grows from step to step: a list, a graph that is kept, a file that is opened again; torch.profiler "
               "shows which operation takes longer"},
    ScriptRule{"slower_than_before"},
    ScriptRule{"launch_bound",
               "use larger batches (and tune the learning rate), and fewer, larger operations: torch.compile(model)"},
    ScriptRule{"gpu_idle", "use larger batches (and tune the learning rate), and fewer, larger operations: torch.compile(model)"},
    ScriptRule{"gpu_held_back"},
    ScriptRule{"clock_throttled"},
    ScriptRule{
        "unaccounted",
        "this time is spent outside of loader, forward, backward and optimiser; torch.profiler or py-spy shows in which lines"},
};

const ScriptRule* script_rule(std::string_view id) noexcept {
  const auto* const found = std::ranges::find(kScriptRules, id, &ScriptRule::id);
  return found == kScriptRules.end() ? nullptr : found;
}

// The name of a key in a dialect: an argument of a call or, without a call, a text in which {} stands for the value.
struct Words {
  std::string_view call, text;
};
struct DialectRow {
  std::string_view key;
  std::array<Words, kDialects.size()> words;  // in the order of kDialects
};

constexpr std::string_view kLoader = "DataLoader", kArguments = "TrainingArguments";
constexpr std::array kDialectRows = {
    DialectRow{"data.workers",
               {Words{kLoader, "num_workers"},
                {kLoader, "num_workers"},
                {kArguments, "dataloader_num_workers"},
                {kLoader, "num_workers"}}},
    DialectRow{"loader.persistent",
               {Words{kLoader, "persistent_workers"},
                {kLoader, "persistent_workers"},
                {kArguments, "dataloader_persistent_workers"},
                {kLoader, "persistent_workers"}}},
    DialectRow{
        "loader.pinned",
        {Words{kLoader, "pin_memory"}, {kLoader, "pin_memory"}, {kArguments, "dataloader_pin_memory"}, {kLoader, "pin_memory"}}},
    // The Trainer does not pass a worker_init_fn to its DataLoader, so the dataset must call the function.
    DialectRow{"loader.worker_init",
               {Words{kLoader, "worker_init_fn"},
                {kLoader, "worker_init_fn"},
                {"", "torch.set_num_threads(1) where the dataset reads a sample"},
                {kLoader, "worker_init_fn"}}},
    DialectRow{"log.every",
               {Words{"", "log every {} steps"},
                {"Trainer", "log_every_n_steps"},
                {kArguments, "logging_steps"},
                {"", "log every {} steps"}}},
    DialectRow{"snapshot.every_steps",
               {Words{"", "save every {} steps"},
                {"ModelCheckpoint", "every_n_train_steps"},
                {kArguments, "save_steps"},
                {"", "save every {} steps"}}},
    DialectRow{"train.validate_every",
               {Words{"", "validate every {} steps"},
                {"Trainer", "val_check_interval"},
                {kArguments, "eval_steps"},
                {"", "validate every {} steps"}}},
    DialectRow{"optim.clip_norm",
               {Words{"", "torch.nn.utils.clip_grad_norm_(model.parameters(), {})"},
                {"Trainer", "gradient_clip_val"},
                {kArguments, "max_grad_norm"},
                {"", "accelerator.clip_grad_norm_(model.parameters(), {})"}}},
    DialectRow{"device.threads",
               {Words{"", "torch.set_num_threads({})"},
                {"", "torch.set_num_threads({})"},
                {"", "torch.set_num_threads({})"},
                {"", "torch.set_num_threads({})"}}},
};

const Words& words_of(std::string_view key, Dialect dialect) {
  const auto* const row = std::ranges::find(kDialectRows, key, &DialectRow::key);
  MR_CHECK(row != kDialectRows.end(), "no dialect has words for " + std::string(key));
  return row->words[static_cast<std::size_t>(dialect)];
}

std::string in_python(const Json& value) {
  if (value.is_object()) return text_at(value, {"code"});
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  return value.is_null() ? "None" : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// A config value as JSON: a number if the text is a number, otherwise the text.
Json value_of(const std::string& text) {
  const Json number = parse_shallow(text);
  return number.is_number() ? number : Json(text);
}

std::string where_of(const std::string& key, const Script& script) {
  const auto of = [](const auto& part) { return part ? part->where : std::string(); };
  if (key == "data.workers") return of(script.loader);
  if (key == "log.every") return of(script.logs);
  if (key == "snapshot.every_steps") return of(script.saves);
  return key == "train.validate_every" ? of(script.validations) : "";
}

}  // namespace

bool is_for_scripts(std::string_view rule) noexcept { return script_rule(rule) != nullptr; }

Finding::Change change_of(const Script& script, const ScriptSettings& settings) {
  Finding::Change change;
  std::string arguments;
  for (const auto& [key, value] : settings) {
    const Words& words = words_of(key, script.dialect);
    if (words.call.empty()) {
      change.text = words.text;
      if (const std::size_t at = change.text.find("{}"); at != std::string::npos) change.text.replace(at, 2, in_python(value));
      if (change.text.ends_with(" steps")) change.set["every_steps"] = value;
      continue;
    }
    change.call = words.call;
    change.set[std::string(words.text)] = value;
    arguments += ", " + std::string(words.text) + "=" + in_python(value);
  }
  if (!change.call.empty()) change.text = change.call + "(..." + arguments + ")";
  return change;
}

std::string remedy_of(const Finding::Change& change, const std::string& where) {
  return "try " + change.text + (where.empty() ? "" : " in " + where);
}

void put_into_words(Finding& finding, const Script& script) {
  const ScriptRule* const rule = script_rule(finding.id);
  if (rule != nullptr && !rule->remedy.empty()) {
    finding.remedy = rule->remedy;
  } else if (finding.id == "fragmented") {
    finding.change = Finding::Change{.text = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True " + script.command};
    finding.change->environment = {{"PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"}};
    finding.remedy = remedy_of(*finding.change, "");
  } else if (!finding.key.empty()) {
    ScriptSettings settings = {{finding.key, value_of(finding.value)}};
    if (finding.key == "data.workers") settings.emplace_back("loader.persistent", true);
    finding.change = change_of(script, settings);
    finding.where = where_of(finding.key, script);
    finding.remedy = remedy_of(*finding.change, finding.where);
  }
  // No gain: a script makes such steps instead of skipping them, so it loses no time.
  if (finding.id == "not_finite") finding.gain.reset();
  finding.key.clear();
  finding.value.clear();
}

}  // namespace millrace::doctor::detail
