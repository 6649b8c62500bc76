// A config with one member of each kind, for the tests of this folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "millrace/config/schema.h"

namespace millrace::config::test {

enum class Algorithm : std::uint8_t { adamw, adam, sgd };

struct Block {
  std::int64_t width = 8;
  bool gated = false;
  friend bool operator==(const Block&, const Block&) = default;
  static consteval auto fields() {
    using C = Block;
    return std::tuple{field<&C::width>("Channels.").min(1), field<&C::gated>("With a gate.")};
  }
};

struct OptimSection {
  Algorithm name = Algorithm::adamw;
  double learning_rate = 1e-3;
  std::vector<double> betas = {0.9, 0.999};
  double momentum = 0.9;
  Auto<bool> fused;
  friend bool operator==(const OptimSection&, const OptimSection&) = default;
  static consteval auto fields() {
    using C = OptimSection;
    return std::tuple{field<&C::name>("Update rule."), field<&C::learning_rate>("Learning rate after warm-up.").above(0),
                      field<&C::betas>("Decay rates of the moments.").size(2).min(0).below(1),
                      field<&C::momentum>("Momentum of sgd.").min(0).below(1),
                      field<&C::fused>("One kernel for all parameters.")};
  }
};

struct DataSection {
  std::vector<std::string> sources;
  std::int64_t batch_size = 4;
  Auto<std::int64_t> workers;
  bool shuffle = true;
  std::filesystem::path cache;
  static consteval auto fields() {
    using C = DataSection;
    return std::tuple{field<&C::sources>("Files to read.").required(), field<&C::batch_size>("Samples per step.").min(1),
                      field<&C::workers>("Reader threads.").min(0).max(256), field<&C::shuffle>("New order each epoch."),
                      field<&C::cache>("Folder for what is kept.")};
  }
};

struct ModelSection {
  std::optional<double> dropout;
  std::optional<std::string> start_from;
  std::map<std::string, std::int64_t> sizes;
  std::variant<std::int64_t, std::string> stride = std::int64_t{2};
  std::vector<Block> blocks;
  float scale = 1.0F;
  std::uint8_t bits = 8;
  Auto<Algorithm> solver;
  static consteval auto fields() {
    using C = ModelSection;
    return std::tuple{field<&C::dropout>("Share of activations set to 0.").min(0).below(1),
                      field<&C::start_from>("Weights to begin with."),
                      field<&C::sizes>("Named sizes.").min(1),
                      field<&C::stride>("A number, or a word."),
                      field<&C::blocks>("Layers, first to last."),
                      field<&C::scale>("Factor of the output."),
                      field<&C::bits>("Width of a code.").unit("bits"),
                      field<&C::solver>("Inner solver.")};
  }
};

struct Settings {
  DataSection data;
  OptimSection optim = {.learning_rate = 3e-4};  // replaces the default in OptimSection
  ModelSection model;
  static consteval auto fields() {
    using C = Settings;
    return std::tuple{field<&C::data>("Input."), field<&C::optim>("Optimiser."), field<&C::model>("Network.")};
  }
};

const Schema& settings_schema();  // schema_of<Settings>(), made once
std::vector<Alias> settings_aliases();
// Returns the texts of the problems in `layers`; "" if resolving the layers finds no problem.
std::string text_of_problems(const Layers& layers);

}  // namespace millrace::config::test
