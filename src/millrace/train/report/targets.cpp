#include "millrace/train/report/targets.h"

#include <algorithm>

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

Json to_json(const TargetsConfig& config, const std::vector<doctor::Evidence::Target>& measured) {
  Json json = Json::array();
  for (const doctor::Evidence::Target& asked : targets_of(config, {0.0, 0.0, 0.0, 0.0, 0.0})) {
    const auto found = std::ranges::find(measured, asked.key, &doctor::Evidence::Target::key);
    const bool is_known = found != measured.end();
    json.push_back({{"key", asked.key},
                    {"asked", asked.asked},
                    {"measured", is_known ? Json(found->measured) : Json()},
                    {"met", is_known && found->met()}});
  }
  return json;
}

}  // namespace millrace
