// Helpers that read the parts of a pipeline's JSON. A part is an object of the JSON with a "kind" (pipeline_json.h).
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/config/schema_of.h"
#include "millrace/data/transforms/augment.h"
#include "millrace/data/workload/pipeline_json.h"

namespace millrace::data::detail {

using SourcePtr = std::shared_ptr<const Source>;

// A part of the JSON, and its place in the tree.
struct Part {
  const Json& json;
  const PipelineInput& input;
  std::string place;  // the place for messages: "w.json, data.of"
};

[[noreturn]] void refuse_part(const Part& part, std::string what, std::string next);

// Returns the values of a part. Checks all keys except "kind" and "of".
[[nodiscard]] Json values_of(const Part& part, const config::Schema& schema);
template <class Keys>
[[nodiscard]] Keys keys_of(const Part& part) {
  return config::read<Keys>(values_of(part, config::schema_of<Keys>()));
}

struct PartKind {
  std::string_view name;
  std::string_view help;
  config::Schema (*schema)();
  SourcePtr (*open)(const Part& part);
};
struct StepKind {
  std::string_view name;
  std::string_view help;
  config::Schema (*schema)();
  Step (*open)(const Part& part);
};
[[nodiscard]] std::span<const PartKind> file_kinds();     // parts that read files
[[nodiscard]] std::span<const PartKind> made_kinds();     // parts for arrays, for tokens, and for samples that imitate slow reads
[[nodiscard]] std::span<const PartKind> compose_kinds();  // parts that are made of other parts
[[nodiscard]] std::span<const StepKind> step_kinds();

[[nodiscard]] SourcePtr open_part(const Part& part);
// Opens the part under the key "of".
[[nodiscard]] SourcePtr open_below(const Part& part);
[[nodiscard]] Step open_step(const Part& part);

// Returns the files of all `names`, in the given order. For a pattern such as "*.h5" these are the files that match, for a
// folder the files in it that end in one of `endings`; both are sorted by name.
[[nodiscard]] std::vector<std::filesystem::path> files_of(const Part& part, const std::vector<std::string>& names,
                                                          const std::vector<std::string>& endings);

}  // namespace millrace::data::detail
