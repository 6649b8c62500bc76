#include "millrace/train/assembly/kept_trials.h"

#include <ATen/Version.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "millrace/device/device.h"

namespace millrace {
namespace {

class KeptTrialsTest : public ::testing::Test {
 protected:
  KeptTrialsTest() : folder_(::testing::TempDir() + "kept-trials-" + std::to_string(::getpid())) {}
  ~KeptTrialsTest() override { std::filesystem::remove_all(folder_); }
  [[nodiscard]] KeptTrials open(bool writes = true) const { return {Fs::real(), folder_, writes}; }
  [[nodiscard]] std::string text() const {
    std::ifstream file(folder_ / "trials.json");
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::filesystem::path folder_;
};

TEST_F(KeptTrialsTest, ALaterRunFindsWhatAnEarlierOneKept) {
  KeptTrials first = open();
  EXPECT_EQ(first.find("product f32 2x3x4"), std::nullopt);
  first.keep("product f32 2x3x4", {1.5, 2.5});
  first.save();
  KeptTrials second = open();
  EXPECT_EQ(second.find("product f32 2x3x4"), std::optional(Json({1.5, 2.5})));
  second.keep("norm f32 8x8", {1, 2});
  second.save();
  EXPECT_EQ(open().all().size(), 2U);
}

TEST_F(KeptTrialsTest, TwoRunsAtOnceKeepBoth) {
  KeptTrials first = open();
  KeptTrials second = open();
  first.keep("a", 1);
  second.keep("b", 2);
  first.save();
  second.save();
  EXPECT_EQ(open().all().size(), 2U);
}

TEST_F(KeptTrialsTest, AnotherMachinesEntriesStayAndAreNotTaken) {
  std::filesystem::create_directories(folder_);
  std::ofstream(folder_ / "trials.json") << R"({"another machine": {"a": 1}})";
  KeptTrials kept = open();
  EXPECT_EQ(kept.find("a"), std::nullopt);
  kept.keep("a", 2);
  kept.save();
  EXPECT_NE(text().find("another machine"), std::string::npos);
  EXPECT_EQ(open().find("a"), std::optional(Json(2)));
}

TEST_F(KeptTrialsTest, WhatWasFoundUnderALimitOfInstructionsOrAnotherWaitIsNotTakenWithoutIt) {
  for (const auto& [name, value] : {std::pair{"ONEDNN_MAX_CPU_ISA", "AVX2_VNNI_2"}, std::pair{"GOMP_SPINCOUNT", "17"},
                                    std::pair{"OMP_WAIT_POLICY", "passive"}}) {
    const char* const set = std::getenv(name);
    const std::optional<std::string> before = set == nullptr ? std::nullopt : std::optional<std::string>(set);
    ::setenv(name, value, 1);
    KeptTrials limited = open();
    limited.keep("a", 1);
    limited.save();
    EXPECT_EQ(open().find("a"), std::optional(Json(1))) << name;
    before ? ::setenv(name, before->c_str(), 1) : ::unsetenv(name);
    EXPECT_EQ(open().find("a"), std::nullopt) << name;
  }
}

// Some virtual machines call both Zen 4 and Zen 5 "AMD EPYC", so the family and model numbers must count.
TEST_F(KeptTrialsTest, AMachineIsMoreThanTheNameOfItsCpu) {
  KeptTrials kept = open();
  kept.keep("a", 1);
  kept.save();
  const Json all = Json::parse(text());
  ASSERT_EQ(all.size(), 1U);
  const std::string machine = all.begin().key();
  const device::Cpu& cpu = device::cpu_info();
  for (const std::string& part : {this_cpu(), " on " + std::to_string(cpu.physical_cores) + " cores", at::get_mkldnn_version()})
    EXPECT_NE(machine.find(part), std::string::npos) << part << "\n" << machine;
  EXPECT_TRUE(this_cpu().starts_with(cpu.name + ", family "));
  EXPECT_EQ(machine.find("compute capability"), std::string::npos);
}

TEST_F(KeptTrialsTest, OfAGpuBelongToItsCardAndItsDriver) {
  const std::string here = this_gpu("NVIDIA H100 80GB HBM3", {9, 0}, "580.65.06");
  EXPECT_EQ(here, ", on NVIDIA H100 80GB HBM3, compute capability 9.0, driver 580.65.06");
  EXPECT_NE(here, this_gpu("NVIDIA H200", {9, 0}, "580.65.06"));
  EXPECT_NE(here, this_gpu("NVIDIA H100 80GB HBM3", {9, 0}, "550.54.15"));
}

struct Weighted : torch::nn::Module {
  Weighted() { register_parameter("weight", at::ones({4, 3})); }
};

TEST(StepTrial, IsNamedByWhatAStepDependsOn) {
  const Weighted model;
  const Batch batch(Tensors{{"x", at::ones({2, 3})}});
  const auto named = [&](const Json& config) { return step_trial("convolutions", "toy", config, model, batch); };
  const Json config = {
      {"toy", {{"width", 4}}}, {"train", {{"seed", 1}, {"off", {"autocast"}}}}, {"precision", {{"dtype", "auto"}}}};
  const auto with = [&](const char* place, const Json& value) {
    Json other = config;
    other[Json::json_pointer(place)] = value;
    return named(other);
  };
  EXPECT_EQ(with("/train/seed", 2), named(config));
  EXPECT_EQ(with("/data/dir", "elsewhere"), named(config));
  EXPECT_EQ(with("/precision/dtype", "fp32"), named(config)) << "a run in fp32 has to find what one in bf16 found";
  EXPECT_NE(with("/toy/width", 5), named(config));
  EXPECT_NE(with("/train/off", Json::array()), named(config));
  EXPECT_EQ(with("/train/deterministic", false), named(config));
  EXPECT_NE(with("/train/deterministic", true), named(config));
}

// bf16 may be accurate for one data set, or for untrained weights, and inaccurate for others.
TEST_F(KeptTrialsTest, ThatAFormatIsRightHoldsForTheSameDataAndWeightsAlone) {
  const Json values = {{"data", "1000 samples"}, {"weights", nullptr}}, others = {{"data", "1000 others"}, {"weights", nullptr}};
  const auto word = [](const std::optional<Json>& verdict) { return verdict ? verdict->at("value").get<std::string>() : "none"; };
  KeptTrials kept = open();
  EXPECT_EQ(find_format(kept, "precision toy", values), std::nullopt);
  keep_format(kept, "precision toy", values, "bf16", "faster, and right");
  keep_format(kept, "precision large", values, "fp32", "bf16 is no faster");
  kept.save();
  const KeptTrials later = open();
  EXPECT_EQ(word(find_format(later, "precision toy", values)), "bf16");
  EXPECT_EQ(word(find_format(later, "precision toy", others)), "none");
  EXPECT_EQ(word(find_format(later, "precision large", others)), "fp32") << "times are a matter of shapes";
  kept.keep("precision damaged", 3);
  EXPECT_EQ(word(find_format(kept, "precision damaged", values)), "none");
}

TEST_F(KeptTrialsTest, LookingAloneWritesNothing) {
  KeptTrials kept = open(/*writes=*/false);
  kept.keep("a", 1);
  kept.save();
  EXPECT_FALSE(std::filesystem::exists(folder_));
  KeptTrials nowhere(Fs::real(), "", true);
  nowhere.keep("a", 1);
  nowhere.save();
}

TEST_F(KeptTrialsTest, ADamagedFileIsAnEmptyOne) {
  std::filesystem::create_directories(folder_);
  for (const std::string damaged : {"", "{", "[1, 2]", "null", "{\"m\": 3}", "\xFF\xFE\x00\x01", "{\"m\": {\"a\": ", "17"}) {
    std::ofstream(folder_ / "trials.json") << damaged;
    KeptTrials kept = open();
    EXPECT_TRUE(kept.all().empty()) << damaged;
    kept.keep("a", 1);
    kept.save();
    EXPECT_EQ(open().find("a"), std::optional(Json(1))) << damaged;
  }
}

}  // namespace
}  // namespace millrace
