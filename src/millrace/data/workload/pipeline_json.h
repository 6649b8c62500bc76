// A pipeline as JSON: a tree of sources, selections, joins and augmentations. `millrace bench loader` reads it from a file; the
// Python package passes it to the loader.
//
//   {"kind": "augment", "fields": ["vis", "truth"], "steps": [{"kind": "random_flip", "axes": [-1]}],
//    "of": {"kind": "share", "to": 0.9, "seed": 1,
//           "of": {"kind": "hdf5", "files": ["sky/*.h5"], "fields": {"vis": "/vis", "truth": "/cosmo"}}}}
//
// Every part has the key "kind", which determines its other keys; pipeline_kinds_text() describes them. "of" is the part whose
// samples this part uses.
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
  std::filesystem::path folder;                 // relative paths start here; empty: the current folder
  std::string name = "the pipeline";            // what stands before a place in messages, such as the name of a file
  std::vector<MapFunction> functions = {};      // functions of the parts of kind "map", by number; JSON can't hold functions
  std::vector<std::string>* notices = nullptr;  // gets lines about the data, such as how many files of a folder are not read
};

// Opens the sources of a pipeline. A ConfigError lists what is wrong with a part and names its place ("w.json, data.of"); a
// DataError is about files.
[[nodiscard]] Pipeline pipeline_from(const Json& json, const PipelineInput& input);

// Returns the kinds of parts and steps with their keys, for help.
[[nodiscard]] std::string pipeline_kinds_text();

}  // namespace millrace::data
