#include "millrace/train/report/targets.h"

namespace millrace {

std::vector<doctor::Evidence::Target> targets_of(const TargetsConfig& config, const Reached& reached) {
  std::vector<doctor::Evidence::Target> targets;
  const auto at_least = [&](const char* key, const char* what, const char* unit, double asked, std::optional<double> has) {
    if (asked > 0 && has) targets.push_back({.key = key, .what = what, .unit = unit, .asked = asked, .measured = *has});
  };
  at_least("targets.train_it_per_s", "training", "it/s", config.train_it_per_s, reached.train_it_per_s);
  at_least("targets.validation_it_per_s", "validation", "it/s", config.validation_it_per_s, reached.validation_it_per_s);
  at_least("targets.samples_per_s", "training", "samples/s", config.samples_per_s, reached.samples_per_s);
  if (config.data_wait < 1 && reached.data_wait) {
    targets.push_back({.key = "targets.data_wait",
                       .what = "waiting for data",
                       .unit = "",
                       .asked = config.data_wait,
                       .measured = *reached.data_wait,
                       .at_most = true});
  }
  at_least("targets.gpu_busy", "the GPU at work", "", config.gpu_busy, reached.gpu_busy);
  return targets;
}

Json to_json(const std::vector<doctor::Evidence::Target>& targets) {
  Json json = Json::array();
  for (const doctor::Evidence::Target& target : targets)
    json.push_back({{"key", target.key}, {"asked", target.asked}, {"measured", target.measured}, {"met", target.met()}});
  return json;
}

}  // namespace millrace
