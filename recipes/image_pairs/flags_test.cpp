// Tests of the flags of LMOL, the program that this recipe follows.
#include <gmock/gmock.h>

#include "millrace/train/run/run.h"
#include "recipes/image_pairs/entry.h"
#include "recipes/image_pairs/recipe.h"

namespace millrace::recipes::image_pairs {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

config::Resolved resolve(const std::vector<std::string>& words) {
  const Entry row = entry();
  const config::Schema schema = schema_of(row);
  const auto aliases = aliases_of(row);
  config::Layers layers(schema, aliases);
  layers.add_values(row.defaults, "recipe");
  EXPECT_THAT(layers.add_flags(words), IsEmpty());
  return layers.resolve();
}

TEST(PairFlags, TheGuidesCommandLinesParse) {
  const config::Resolved quick =
      resolve({"--max_steps", "2", "--amp_dtype", "bf16", "--cudnn_benchmark", "true", "--gpu_log_interval", "1"});
  EXPECT_EQ(quick.values["train"]["max_steps"], 2);
  EXPECT_EQ(quick.values["precision"]["dtype"], "bf16");
  EXPECT_EQ(quick.values["log"]["gpu_every"], 1);
  EXPECT_EQ(quick.values["device"]["cudnn"], "timed");
  const config::Resolved all = resolve({"--amp_dtype",
                                        "none",
                                        "--compile",
                                        "true",
                                        "--gpu_log_interval",
                                        "0",
                                        "--grad_log_interval",
                                        "10",
                                        "--clip_grad_norm",
                                        "0.5",
                                        "--detect_anomaly",
                                        "--epochs",
                                        "2",
                                        "--batch_size",
                                        "16",
                                        "--learning_rate",
                                        "1e-4",
                                        "--data_dir",
                                        "d",
                                        "--output_dir",
                                        "o",
                                        "--debug",
                                        "--deterministic",
                                        "--seed",
                                        "7",
                                        "--samples",
                                        "0"});
  EXPECT_EQ(all.values["precision"]["dtype"], "fp32");
  EXPECT_EQ(all.values["log"]["gpu_every"], 0);
  EXPECT_EQ(all.values["optim"]["clip_norm"], 0.5);
  EXPECT_EQ(all.values["train"]["epochs"], 2);
  EXPECT_EQ(all.values["data"]["batch_size"], 16);
  EXPECT_EQ(all.values["optim"]["learning_rate"], 1e-4);
  EXPECT_EQ(all.values["data"]["dir"], "d");
  EXPECT_EQ(all.values["run"]["parent"], "o");
  EXPECT_EQ(all.values["train"]["seed"], 7);
  EXPECT_EQ(all.values["recipe"]["val_samples"], 0);
  for (const char* said : {"compile: ", "detect_anomaly: ", "debug: ", "grad_log_interval: "})
    EXPECT_THAT(all.notices, Contains(HasSubstr(said)));
}

// Each flag changes its key and no other; a flag without a key changes none.
TEST(PairFlags, AFlagThatIsNotGivenChangesNothing) {
  const config::Resolved plain = resolve({});
  EXPECT_EQ(plain.values["optim"]["clip_norm"], 1.0);
  EXPECT_EQ(plain.values["log"]["gpu_every"], 100);
  EXPECT_EQ(plain.values["precision"]["dtype"], "auto");
  EXPECT_THAT(plain.notices, IsEmpty());
  for (const auto& [flag, key] : {std::pair("--max_steps=3", "/train/max_steps"),
                                  {"--epochs=7", "/train/epochs"},
                                  {"--batch_size=3", "/data/batch_size"},
                                  {"--learning_rate=0.5", "/optim/learning_rate"},
                                  {"--clip_grad_norm=0.5", "/optim/clip_norm"},
                                  {"--amp_dtype=bf16", "/precision/dtype"},
                                  {"--gpu_log_interval=7", "/log/gpu_every"},
                                  {"--cudnn_benchmark=true", "/device/cudnn"},
                                  {"--data_dir=d", "/data/dir"},
                                  {"--output_dir=o", "/run/parent"},
                                  {"--seed=7", "/train/seed"},
                                  {"--samples=7", "/recipe/val_samples"},
                                  {"--compile=true", ""},
                                  {"--detect_anomaly", ""},
                                  {"--grad_log_interval=3", ""}}) {
    const Json changes = Json::diff(plain.values, resolve({flag}).values);
    ASSERT_EQ(changes.size(), *key == '\0' ? 0U : 1U) << flag << ": " << changes;
    for (const Json& change : changes) EXPECT_EQ(change["path"], key) << flag;
  }
}

// The adapters learn at the given rate, and on a frozen base the projector learns at a tenth of it.
TEST(PairFlags, TheProjectorKeepsItsPartOfTheLearningRate) {
  const auto scales = [](const std::vector<std::string>& more) {
    std::vector<std::string> words = {
        "--recipe.image_size=16",   "--recipe.patch_size=8",      "--recipe.vision_width=8",  "--recipe.vision_layers=1",
        "--recipe.vision_heads=2",  "--recipe.vision_hidden=16",  "--recipe.decoder_width=8", "--recipe.decoder_layers=1",
        "--recipe.decoder_heads=2", "--recipe.decoder_hidden=16", "--recipe.vocab_size=262",  "--recipe.vision_feature_layer=-1",
        "--recipe.question=?",      "--learning_rate=1e-3"};
    words.insert(words.end(), more.begin(), more.end());
    const config::Resolved config = resolve(words);
    const RunConfig run = config::read<RunConfig>(config.values);
    ImagePairs recipe(config::read<Sections>(config.values), {.config = &run});
    std::vector<double> all;
    for (const auto& group : recipe.objectives().front().parameters) all.push_back(group.learning_rate_scale);
    return all;
  };
  EXPECT_THAT(scales({}), testing::ElementsAre(1.0, 1.0));
  EXPECT_THAT(scales({"--recipe.freeze_base=true"}), testing::ElementsAre(0.1, 1.0));
  EXPECT_THAT(scales({"--recipe.projector_learning_rate=2e-4"}), testing::ElementsAre(testing::DoubleNear(0.2, 1e-12), 1.0));
}

// A frozen base that no file gives is legal, because its speed can be measured. It must be said.
TEST(PairFlags, AFrozenBaseOfRandomWeightsIsSaid) {
  const auto notices = [](const std::vector<std::string>& more) {
    std::vector<std::string> words = {
        "--recipe.image_size=16",   "--recipe.patch_size=8",      "--recipe.vision_width=8",  "--recipe.vision_layers=1",
        "--recipe.vision_heads=2",  "--recipe.vision_hidden=16",  "--recipe.decoder_width=8", "--recipe.decoder_layers=1",
        "--recipe.decoder_heads=2", "--recipe.decoder_hidden=16", "--recipe.vocab_size=262",  "--recipe.vision_feature_layer=-1",
        "--recipe.question=?"};
    words.insert(words.end(), more.begin(), more.end());
    const config::Resolved config = resolve(words);
    const RunConfig run = config::read<RunConfig>(config.values);
    std::vector<std::string> said;
    Context context;
    context.config = &run;
    context.notice = [&](const std::string& text) { said.push_back(text); };
    ImagePairs recipe(config::read<Sections>(config.values), context);
    (void)recipe.model();
    return said;
  };
  const auto random = Contains(HasSubstr("with random weights, which tell nothing about images (give recipe.base_weights"));
  EXPECT_THAT(notices({"--recipe.freeze_base=true"}), random);
  EXPECT_THAT(notices({}), testing::Not(random));
  EXPECT_THAT(notices({"--recipe.freeze_base=true", "--train.weights=runs/earlier"}), testing::Not(random));
}

}  // namespace
}  // namespace millrace::recipes::image_pairs
