// Tests that sizes which no machine can hold are refused before any allocation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <limits>

#include "millrace/base/error.h"
#include "millrace/train/run/run.h"
#include "recipes/cosmology/entry.h"
#include "recipes/cosmology/recipe.h"
#include "tests/support/refusal.h"

namespace millrace::recipes::cosmology {
namespace {

std::string config_refusal(const Json& values, bool makes_model) {
  const Entry row = entry();
  const config::Schema schema = schema_of(row);
  config::Layers layers(schema);
  layers.add_values(row.defaults, "recipe");
  layers.add_values(values, "test");
  return refusal<ConfigError>([&] {
    const std::unique_ptr<Recipe> recipe = row.make(layers.resolve().values, Context{});
    if (makes_model) (void)recipe->model();
  });
}

TEST(Limits, AModelThatNoMemoryHoldsIsCountedFirst) {
  for (const std::int64_t filters : {std::int64_t{10'000'000}, std::int64_t{1} << 40, std::numeric_limits<std::int64_t>::max()}) {
    EXPECT_THAT(
        config_refusal({{"recipe.filters", filters}}, true),
        testing::ContainsRegex("ConfigError  a model of [0-9.e+]+ parameters takes [0-9.e+]+ [A-Z]+ before its first step, "
                               ".* are free\n  where    recipe.filters\n  next     choose a smaller model, or free memory"));
  }
}

TEST(Limits, ASplitThatSixtyFourBitsCantMultiplyIsRefused) {
  EXPECT_THAT(config_refusal({{"recipe.split", std::int64_t{1} << 62}}, false),
              testing::HasSubstr("ra_keep 1024 is not a multiple of 4*split = 4*4611686018427387904"));
}

}  // namespace
}  // namespace millrace::recipes::cosmology
