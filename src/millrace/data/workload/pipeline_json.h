// A pipeline as JSON: a tree of sources, of what selects and joins them, and of augmentations. It is what `millrace bench loader`
// reads from a file and what the Python package hands to the loader.
//
//   {"kind": "augment", "fields": ["vis", "truth"], "steps": [{"kind": "random_flip", "axes": [-1]}],
//    "of": {"kind": "share", "to": 0.9, "seed": 1,
//           "of": {"kind": "hdf5", "files": ["sky/*.h5"], "fields": {"vis": "/vis", "truth": "/cosmo"}}}}
//
// Every part has a kind; the other keys are those of the kind, and pipeline_kinds_text() describes them. "of" is the part below.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/json.h"
#include "millrace/data/loader/source.h"
#include "millrace/data/transforms/compose.h"

namespace millrace::data {

struct PipelineInput {
  std::filesystem::path folder;             // relative files are looked for in it; empty: the current one
  std::string name = "the pipeline";        // begins the places in messages: a file
  std::vector<MapFunction> functions = {};  // of the parts of kind "map", by number: functions do not come out of a file
};

// Opens the sources. ConfigError lists what is wrong with a part and names its place ("w.json, data.of"); DataError is about
// files.
[[nodiscard]] Pipeline pipeline_from(const Json& json, const PipelineInput& input);

// The kinds of parts and steps with their keys, for help.
[[nodiscard]] std::string pipeline_kinds_text();

}  // namespace millrace::data
