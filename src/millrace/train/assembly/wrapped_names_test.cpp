#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "millrace/train/assembly/weights.h"

namespace millrace {
namespace {

using testing::HasSubstr;

const std::map<std::string, std::vector<std::int64_t>> kWanted = {{"layer.bias", {2}}, {"layer.weight", {2, 3}}};

Tensors with(const std::string& before, const std::string& inside = "") {
  return {{before + "layer." + inside + "bias", at::zeros({2})}, {before + "layer." + inside + "weight", at::zeros({2, 3})}};
}

TEST(WrappedNames, WhatWrappersPutIntoNamesIsPassedOver) {
  for (const char* before : {"module.", "_orig_mod.", "model.", "state_dict.", "module._orig_mod.", "_orig_mod.module.",
                             "state_dict.model.", "state_dict.model._orig_mod.", "model_state_dict.module.model."}) {
    Tensors all = with(before);
    EXPECT_THAT(pass_over_wrappers(all, kWanted), HasSubstr("\"" + std::string(before) + "\"")) << before;
    EXPECT_TRUE(all.contains("layer.weight") && all.size() == 2) << before;
  }
  Tensors inside = with("", "_orig_mod.");
  EXPECT_NE(pass_over_wrappers(inside, kWanted), "");
  EXPECT_TRUE(inside.contains("layer.bias"));
}

TEST(WrappedNames, WhatIsNotClearStaysAsItIs) {
  Tensors own = with("");
  EXPECT_EQ(pass_over_wrappers(own, kWanted), "");
  Tensors twice = with("module.");
  twice.merge(with("state_dict."));
  Tensors other_shape = with("module.");
  other_shape["module.layer.bias"] = at::zeros({3});
  Tensors other_word = with("ema.");
  Tensors one_missing = with("module.");
  one_missing.erase("module.layer.bias");
  for (Tensors* all : {&twice, &other_shape, &other_word, &one_missing}) {
    const std::size_t before = all->size();
    EXPECT_EQ(pass_over_wrappers(*all, kWanted), "");
    EXPECT_EQ(all->size(), before);
  }
}

TEST(WrappedNames, OtherTensorsOfTheFileAreCounted) {
  Tensors all = with("module.");
  all["optimizer.state.0.exp_avg"] = at::zeros({2});
  EXPECT_THAT(pass_over_wrappers(all, kWanted), HasSubstr("1 tensor of the file is ignored, because the model does not have it"));
  EXPECT_EQ(all.size(), 2U);
}

TEST(WrappedNames, WhatStandsBeforeAllNamesGoesWithoutAModelToo) {
  Tensors all = with("state_dict.model._orig_mod.");
  EXPECT_EQ(take_common_wrappers(all), "state_dict.model._orig_mod.");
  EXPECT_TRUE(all.contains("layer.weight"));
  EXPECT_EQ(take_common_wrappers(all), "");
  Tensors mixed = with("module.");
  mixed["step"] = at::zeros({});
  EXPECT_EQ(take_common_wrappers(mixed), "");
  EXPECT_EQ(mixed.size(), 3U);
}

TEST(WrappedNames, APartOfAnyNameThatHasAllIsFound) {
  Tensors all = with("ema.net.");
  all["ema.count"] = at::zeros({});
  EXPECT_EQ(part_with(all, kWanted), "ema.net");
  all["ema.net.layer.bias"] = at::zeros({5});
  EXPECT_EQ(part_with(all, kWanted), "");
}

}  // namespace
}  // namespace millrace
