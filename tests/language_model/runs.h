// Whole runs of the recipe as `millrace train` makes them, for the tests of this folder.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "millrace/train/run/run.h"
#include "recipes/language_model/entry.h"
#include "recipes/language_model/entry_parts.h"
#include "recipes/language_model/make_data.h"

namespace millrace::recipes::language_model {

// An empty folder for this test alone.
inline std::filesystem::path test_folder() {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  const auto folder =
      std::filesystem::current_path() / "language_model_runs" / (std::string(test->test_suite_name()) + "." + test->name());
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

// Trains the preset with `values` (dotted keys) on top, in `run`, quietly.
inline RunOutcome train(const std::string& preset, const Json& values, const std::filesystem::path& run) {
  const Entry row = entry();
  const config::Schema schema = schema_of(row);
  const auto aliases = aliases_of(row);
  config::Layers layers(schema, aliases);
  layers.add_values(row.defaults, "recipe");
  for (const auto& [name, preset_values] : row.presets) {
    if (name == preset) layers.add_values(preset_values, "preset " + preset);
  }
  layers.add_values({{"run.dir", run.string()}, {"log.tensorboard", false}}, "test");
  layers.add_values(values, "test");
  telemetry::Console console(telemetry::Console::Mode::quiet);
  RunRequest request;
  request.entry = &row;
  request.config = layers.resolve();
  request.preset = preset;
  request.console = &console;
  return run_training(request);
}

// The sample text of preset smoke, made once per program.
inline std::string smoke_data() {
  static const std::string folder = [] {
    const auto path = std::filesystem::current_path() / "language_model_runs" / "smoke_data";
    std::filesystem::create_directories(path);
    write_sample_text(*sample_text_of("smoke"), path, 0);
    return path.string();
  }();
  return folder;
}

inline std::filesystem::path tinyshakespeare() {
  return std::filesystem::path(MILLRACE_SOURCE_DIR) / ".." / "shared" / "data" / "text" / "tinyshakespeare.txt";
}

inline double metric(const RunOutcome& outcome, const std::string& name, const std::string& what = "last") {
  return outcome.summary.at("metrics").at(name).at(what).get<double>();
}

}  // namespace millrace::recipes::language_model
