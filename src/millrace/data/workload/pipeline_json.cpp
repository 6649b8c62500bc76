#include "millrace/data/workload/pipeline_json.h"

#include <algorithm>
#include <map>
#include <optional>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/data/workload/detail/parts.h"

namespace millrace::data {
namespace detail {

void refuse_part(const Part& part, std::string what, std::string next) {
  throw ConfigError(Message{.what = std::move(what), .where = part.place, .next = std::move(next)});
}

Json values_of(const Part& part, const config::Schema& schema) {
  Json given = part.json;
  given.erase("kind");
  given.erase("of");
  config::Layers layers(schema);
  layers.add_values(given, part.place);
  return layers.resolve().values;
}

namespace {

// Returns the kind among `kinds` that a part or step names.
template <class Kind>
const Kind& kind_of(const Part& part, const std::vector<Kind>& kinds, const std::string& called) {
  const auto names = [&] { return "it is one of " + joined(kinds, ", ", &Kind::name); };
  const auto kind = part.json.find("kind");
  if (kind == part.json.end() || !kind->is_string()) refuse_part(part, called + " has no kind", names());
  const auto found = std::ranges::find(kinds, kind->template get_ref<const std::string&>(), &Kind::name);
  if (found == kinds.end()) refuse_part(part, "there is no kind " + quoted(kind->template get<std::string>()), names());
  return *found;
}

std::vector<PartKind> part_kinds() {
  std::vector<PartKind> all;
  for (const auto kinds : {file_kinds(), made_kinds(), compose_kinds()}) all.insert(all.end(), kinds.begin(), kinds.end());
  return all;
}

}  // namespace

SourcePtr open_part(const Part& part) {
  if (!part.json.is_object()) refuse_part(part, "a part is not a JSON object", "write {\"kind\": ..., ...}");
  return kind_of(part, part_kinds(), "a part").open(part);
}

SourcePtr open_below(const Part& part) {
  const auto below = part.json.find("of");
  if (below == part.json.end())
    refuse_part(part, "a part of kind " + quoted(part.json["kind"].get<std::string>()) + " has no part below it",
                "give a part as \"of\"");
  return open_part({*below, part.input, part.place + ".of"});
}

Step open_step(const Part& part) {
  if (!part.json.is_object()) refuse_part(part, "a step is not a JSON object", "write {\"kind\": ..., ...}");
  const auto kinds = step_kinds();
  return kind_of(part, std::vector<StepKind>(kinds.begin(), kinds.end()), "a step").open(part);
}

}  // namespace detail

namespace {

using detail::Part;

struct GroupsKeys {
  Grouping grouping = Grouping::each;
  std::map<std::string, double> weights;
  std::optional<std::int64_t> samples_per_epoch;
  static consteval auto fields() {
    using C = GroupsKeys;
    return std::tuple{
        config::field<&C::grouping>("How the data sets share an epoch's batches."),
        config::field<&C::weights>("For a mix: each data set's share of the rows."),
        config::field<&C::samples_per_epoch>("For a mix: the number of samples in an epoch, over all ranks.").min(1)};
  }
};

// Opens several data sets, each of which is a group of the batch. Only the topmost part may have several.
Pipeline open_groups(const Part& part) {
  const auto keys = detail::keys_of<GroupsKeys>(part);
  const auto below = part.json.find("of");
  if (below == part.json.end() || !below->is_object() || below->empty())
    detail::refuse_part(part, "groups have no data sets", "give data sets by name as \"of\"");
  Pipeline pipeline;
  for (const auto& [name, json] : below->items()) {
    Dataset dataset{.name = name, .source = detail::open_part({json, part.input, part.place + ".of." + name})};
    if (const auto weight = keys.weights.find(name); weight != keys.weights.end()) dataset.weight = weight->second;
    pipeline.datasets.push_back(std::move(dataset));
  }
  for (const auto& [name, weight] : keys.weights) {
    if (!below->contains(name))
      detail::refuse_part(part, "\"weights\" has " + quoted(name) + ", which is not a data set", "use the name of a data set");
  }
  pipeline.grouping = keys.grouping;
  pipeline.samples_per_epoch = keys.samples_per_epoch;
  return pipeline;
}

template <class Kind>
std::string described(const Kind& kind) {
  const std::string name(kind.name);
  return "\n" + name + std::string(name.size() < 14 ? 14 - name.size() : 1, ' ') + std::string(kind.help) + "\n" +
         config::help_text(kind.schema());
}

}  // namespace

Pipeline pipeline_from(const Json& json, const PipelineInput& input) {
  const Part top{json, input, input.name};
  const auto kind = json.is_object() ? json.find("kind") : json.end();
  if (json.is_object() && kind != json.end() && *kind == "groups") return open_groups(top);
  return single(detail::open_part(top));
}

std::string pipeline_kinds_text() {
  std::string text = "\nKinds of parts, and their keys:\n";
  for (const detail::PartKind& kind : detail::part_kinds()) text += described(kind);
  text += "\ngroups        several data sets, given by name as \"of\"; each is a group of the batch\n" +
          config::help_text(config::schema_of<GroupsKeys>());
  text += "\nKinds of steps of an augmentation, and their keys:\n";
  for (const detail::StepKind& kind : detail::step_kinds()) text += described(kind);
  return text;
}

}  // namespace millrace::data
