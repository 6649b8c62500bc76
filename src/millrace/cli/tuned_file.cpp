#include "millrace/cli/tuned_file.h"

#include <map>

#include "millrace/base/format.h"

namespace millrace::cli {
namespace {

struct Value {
  std::string text, comment;
};

std::string reason_of(const doctor::Trial& trial) {
  std::string reason = significant(trial.ratio, 3) + " times as fast";
  if (trial.runs > 1)
    reason +=
        " (" + significant(trial.least, 3) + " to " + significant(trial.most, 3) + " in " + std::to_string(trial.runs) + " runs)";
  if (trial.candidate.set.size() > 1) reason += ", with " + doctor::text_of(trial.candidate.set);
  if (!trial.candidate.finding.empty()) reason += "; " + trial.candidate.finding;
  if (!trial.candidate.needs.empty()) reason += "; changes the training: --allow=" + trial.candidate.needs;
  return reason;
}

bool is_kept(const config::Leaf& leaf, const std::string& origin) {
  return !leaf.path.starts_with("run.") && leaf.path != "train.resume" && origin != "default" && !origin.starts_with("recipe ") &&
         !origin.starts_with("preset ");
}

std::string origin_of(const config::Resolved& config, const std::string& path) {
  const auto origin = config.origins.find(path);
  return origin == config.origins.end() ? "default" : origin->second;
}

}  // namespace

std::string tuned_file(const config::Schema& schema, const config::Resolved& config, const doctor::Tuner& tuner,
                       const std::vector<std::string>& heading) {
  std::map<std::string, Value> values;
  for (const config::Leaf& leaf : schema.leaves) {
    const std::string origin = origin_of(config, leaf.path);
    if (is_kept(leaf, origin)) values[leaf.path] = {config.values.at(config::pointer_to(leaf.path)).dump(), ""};
  }
  for (const doctor::Trial& trial : tuner.trials()) {
    if (trial.verdict != doctor::Trial::Verdict::kept) continue;
    for (const auto& [key, text] : trial.candidate.set) {
      const config::Leaf* leaf = schema.find(key);
      std::vector<Problem> problems;
      const Json value = leaf == nullptr ? Json(text) : leaf->canonical(text, /*scalar_text=*/true, problems);
      if (!problems.empty()) throw ConfigError(problems);
      values[key] = {value.dump(), "  # " + reason_of(trial)};
    }
  }
  std::string text;
  for (const std::string& line : heading) text += "# " + line + "\n";
  std::vector<std::string> open;  // the sections that contain the next line
  for (const auto& [path, value] : values) {
    std::vector<std::string> parts;
    for (std::size_t at = 0; at <= path.size();) {
      const std::size_t end = std::min(path.find('.', at), path.size());
      parts.push_back(path.substr(at, end - at));
      at = end + 1;
    }
    std::size_t same = 0;
    while (same < open.size() && same + 1 < parts.size() && open[same] == parts[same]) ++same;
    open.resize(same);
    for (; same + 1 < parts.size(); ++same) {
      text += std::string(2 * same, ' ') + parts[same] + ":\n";
      open.push_back(parts[same]);
    }
    text += std::string(2 * same, ' ') + parts.back() + ": " + value.text + value.comment + "\n";
  }
  return text;
}

}  // namespace millrace::cli
