#include "millrace/train/recipe/foreign_options.h"

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <map>
#include <stdexcept>

namespace millrace {
namespace {

bool is_one_of(const Json& value, std::initializer_list<const char*> words) {
  return value.is_string() && std::ranges::find(words, value.get_ref<const std::string&>()) != words.end();
}

Json precision_of_amp(const Json& value) {
  if (asks_for_nothing(value)) return "fp32";
  if (value == Json(true) || value == Json(1) || is_one_of(value, {"true", "True", "1"})) return "auto";
  throw std::invalid_argument("amp");
}

Json precision_of_word(const Json& word) {
  static const std::map<std::string, std::string> words = {
      {"32-true", "fp32"},    {"float32", "fp32"},  {"32", "fp32"},        {"none", "fp32"},     {"no", "fp32"},
      {"bf16-mixed", "bf16"}, {"bfloat16", "bf16"}, {"bf16-true", "bf16"}, {"16-mixed", "fp16"}, {"16-true", "fp16"},
      {"fp16-mixed", "fp16"}, {"float16", "fp16"},  {"half", "fp16"},      {"16", "fp16"}};
  if (!word.is_string() && !word.is_number_integer()) return word;
  const auto it = words.find(word.is_string() ? word.get<std::string>() : word.dump());
  return it == words.end() ? word : Json(it->second);
}

Json ways_of_benchmark(const Json& value) {
  if (asks_for_nothing(value)) return "rules";
  if (value == Json(true) || value == Json(1) || is_one_of(value, {"true", "True", "1"})) return "timed";
  throw std::invalid_argument("cudnn_benchmark");
}

// The number of steps that another trainer's option asks for: the given number, or `usual` if the value is true.
Json steps_or(int usual, const Json& value) {
  if (asks_for_nothing(value)) return 0;
  return value == Json(true) || is_one_of(value, {"true", "True", "yes"}) ? Json(usual) : value;
}
Json steps_of_profile(const Json& value) { return steps_or(10, value); }
Json steps_of_interval(const Json& value) { return steps_or(100, value); }

std::string note_of_readers(const Json& value) {
  return asks_for_nothing(value) ? "persistent_workers: readers are threads, and live for the whole run" : "";
}

std::string note_of_pinning(const Json& value) {
  return asks_for_nothing(value) || value == Json("auto") ? ""
                                                          : "pin_memory: without effect on a CPU; it speeds up copies to a GPU";
}

// A note for the user if another trainer's option asks for several GPUs. It is left out on ranks whose launcher (WORLD_SIZE)
// started that number of ranks.
std::string note_of_gpus(const Json& value) {
  const bool is_one = value == Json(1) || is_one_of(value, {"1", "0"}) || asks_for_nothing(value);
  const std::string count = value.is_string() ? value.get<std::string>() : value.dump();
  const char* world = std::getenv("WORLD_SIZE");
  if (is_one || (world != nullptr && count == world)) return "";
  return "gpus " + count + ": each process trains on one device; start " + count + " ranks: millrace launch --nproc " + count +
         " train ...";
}

}  // namespace

bool asks_for_nothing(const Json& value) {
  return value.is_null() || value == Json(false) || value == Json(0) ||
         is_one_of(value, {"", "false", "False", "0", "no", "none"});
}

bool is_true(const Json& value) { return value == Json(true) || value == Json("true"); }

config::Alias accepted_word(const std::string& name, const std::string& reason) {
  return {
      .name = name, .path = "", .convert = nullptr, .note = "accepted: " + reason, .notice = [name, reason](const Json& value) {
        return asks_for_nothing(value) ? "" : name + ": " + reason;
      }};
}

config::Alias accepted_text(const std::string& name, const std::string& reason) {
  config::Alias word = accepted_word(name, reason);
  word.notice = [name, reason](const Json&) { return name + ": " + reason; };
  word.takes_text = true;
  return word;
}

std::vector<config::Alias> shared_words() {
  std::vector<config::Alias> words = {
      {"data", "data.dir", nullptr, "input folder"},
      {"run_dir", "run.dir", nullptr, ""},
      {"off", "train.off", nullptr, "switches to turn off"},
      {"amp", "precision.dtype", precision_of_amp, "true = auto, false = fp32"},
      {"use_amp", "precision.dtype", precision_of_amp, "true = auto, false = fp32"},
      {"amp_dtype", "precision.dtype", precision_of_word, "also none"},
      {"mixed_precision", "precision.dtype", precision_of_word, "also no"},
      {"precision", "precision.dtype", precision_of_word, "also 32-true, bf16-mixed, 16-mixed, 32, 16"},
      {"seed", "train.seed", nullptr, ""},
      {"epochs", "train.epochs", nullptr, ""},
      {"max_epochs", "train.epochs", nullptr, ""},
      {"max_steps", "train.max_steps", nullptr, ""},
      {"batch_size", "data.batch_size", nullptr, ""},
      {"accumulate_grad_batches", "optim.accumulate", nullptr, ""},
      {"learning_rate", "optim.learning_rate", nullptr, ""},
      {"clip_grad_norm", "optim.clip_norm", nullptr, ""},
      {"gradient_clip_val", "optim.clip_norm", nullptr, ""},
      {"num_workers", "data.workers", nullptr, ""},
      {"prefetch_factor", "data.prefetch", nullptr, "batches, of all readers together"},
      {"pin_memory", "data.pin_memory", nullptr, "has an effect on a GPU only", note_of_pinning},
      {"device", "device.name", nullptr, ""},
      {"resume", "train.resume", nullptr, ""},
      {"log_gpu_memory", "log.gpu_memory", nullptr, ""},
      {"gpu_log_interval", "log.gpu_every", steps_of_interval, "0 = off"},
      accepted_word("grad_log_interval", "the gradient's norm is in each line of log.jsonl"),
      accepted_word("compile", "there is nothing to compile: the program is compiled, and its CPU kernels are fused already"),
      {"profile", "profile.steps", steps_of_profile, "true = 10 steps"},
      {"profile.enabled", "profile.steps", steps_of_profile, "true = 10 steps"},
      {"cudnn_benchmark", "device.cudnn", ways_of_benchmark, "true = timed, false = rules"},
      {"deterministic", "train.deterministic", nullptr, ""},
      accepted_word("detect_anomaly", "a loss or gradient that is not finite is always found, and its step is skipped"),
      accepted_word("debug", "log.jsonl has all details; train --rehearse shows what passes through a step"),
      accepted_word("local_rank", "LOCAL_RANK of the environment is read")};
  const auto accept = [&words](const char* name, const char* reason, std::string (*notice)(const Json&)) {
    words.push_back(accepted_word(name, reason));
    words.back().notice = notice;
  };
  for (const char* name : {"persistent_workers", "data.persistent_workers"})
    accept(name, "readers always live for the whole run", note_of_readers);
  for (const char* name : {"gpus", "g", "num_gpus"}) accept(name, "millrace launch --nproc says how many", note_of_gpus);
  return words;
}

}  // namespace millrace
