#include "millrace/recipes/image_pairs/aliases.h"

#include <string>

namespace millrace::recipes::image_pairs {
namespace {

Json nothing(const Json&) { return {}; }

bool is_true(const Json& value) { return value == Json(true) || value == Json("true"); }

bool is_zero(const Json& value) { return value == Json(0) || value == Json("0"); }

Json memory_of_interval(const Json& value) { return !is_zero(value); }

std::string said_of_interval(const Json& value) {
  return is_zero(value) ? "" : "--gpu_log_interval: memory is part of each log line; log.every says how often there is one";
}

std::string said_of_gradients(const Json&) { return "--grad_log_interval: the gradient's norm is in each log line"; }

std::string said_of_compile(const Json& value) {
  return is_true(value) ? "--compile: there is nothing to compile; what would be gained is in the kernels" : "";
}

std::string said_of_benchmark(const Json&) { return "--cudnn_benchmark: a matter of a GPU's convolutions; images have one size"; }

std::string said_of_anomaly(const Json& value) {
  return is_true(value) ? "--detect_anomaly: a loss or gradient that is not finite is always found; its step counts for nothing"
                        : "";
}

std::string said_of_deterministic(const Json& value) {
  return is_true(value) ? "--deterministic: on a CPU runs of one seed and thread count always give the same bits" : "";
}

std::string said_of_debug(const Json& value) {
  return is_true(value) ? "--debug: everything that is known is in log.jsonl; train --rehearse shows what passes through a step"
                        : "";
}

}  // namespace

std::vector<config::Alias> aliases() {
  std::vector<config::Alias> list = {
      {"data_dir", "data.dir", nullptr, "the original's flag"},
      {"output_dir", "run.parent", nullptr, "the original's flag: folder of the run folders"},
      {"baseline", "recipe.baseline", nullptr, "eval --baseline: beside the network"},
      {"samples", "recipe.val_samples", nullptr, "the original's flag of eval: pairs; 0 = all"},
      {"gpu_log_interval", "log.gpu_memory", memory_of_interval, "0 = off", said_of_interval},
      {"grad_log_interval", "log.tensorboard", nothing, "accepted: it is in each log line", said_of_gradients}};
  // The keys of these stand in for none, and make them flags that need no value.
  const auto accepted = [&](const std::string& name, const std::string& why, std::string (*said)(const Json&)) {
    list.push_back({name, "log.tensorboard", nothing, "accepted: " + why, said});
  };
  accepted("compile", "there is nothing to compile", said_of_compile);
  accepted("cudnn_benchmark", "images have one size", said_of_benchmark);
  accepted("detect_anomaly", "what is not finite is always found", said_of_anomaly);
  accepted("deterministic", "a seed gives the same bits", said_of_deterministic);
  accepted("debug", "log.jsonl has everything", said_of_debug);
  return list;
}

}  // namespace millrace::recipes::image_pairs
