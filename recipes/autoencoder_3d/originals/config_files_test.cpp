// Tests with files in the form of the published ones, but with other contents.
#include "recipes/autoencoder_3d/entry_parts.h"

#include <gmock/gmock.h>

#include "millrace/base/error.h"
#include "millrace/base/fs.h"
#include "millrace/config/schema_of.h"
#include "millrace/train/recipe/entry.h"
#include "millrace/train/run/run.h"
#include "recipes/autoencoder_3d/config.h"

namespace millrace::recipes::autoencoder_3d {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kEnvironment = R"({
    "data_base_dir": "./dataset", "model_dir": "./models/ae", "output_dir": "./results", "resume_ckpt": false,
    "npz_dir_train": "/data/train", "npz_dir_val": "/data/val", "val_fraction": 0.0, "tfevent_path": "./events", "seed": 3
})";

constexpr const char* kTraining = R"({
    // comments are allowed
    "channel": 1, "spacing": [5, 3.2, 3.2], "spatial_dims": 3, "image_channels": 2, "latent_channels": 8,
    "autoencoder_def": {
        "_target_": "monai.networks.nets.AutoencoderKL",
        "spatial_dims": "@spatial_dims", "in_channels": "$@image_channels", "out_channels": "@image_channels",
        "latent_channels": "@latent_channels",
        "channels": [32, 64], "num_res_blocks": 1, "norm_num_groups": 16, "norm_eps": 1e-05,
        "attention_levels": [false, true], "with_encoder_nonlocal_attn": false, "with_decoder_nonlocal_attn": true
    },
    "autoencoder_train": {
        "batch_size": 12, "patch_size": [48, 32, 16],
        "lr": 5e-6, /* per GPU */ "lr_scheduler": "cosine", "perceptual_weight": 0.002, "kl_weight": 1e-7, "recon_loss": "l2",
        "max_epochs": 77, "val_interval": 4
    },
    "diffusion_def": {"_target_": "networks.Unet", "in_channels": "@latent_channels", "x": "$1 + 1"},
    "diffusion_train": {"batch_size": 2},
    "NoiseScheduler": {"beta_start": 0.0015}
})";

class OriginalFiles : public testing::Test {
 protected:
  OriginalFiles() {
    row_.name = "autoencoder_3d";
    row_.sections = config::schema_of<Sections>();
    row_.defaults = defaults();
    row_.aliases = aliases();
  }
  config::Resolved resolve(const std::vector<std::string>& files, const std::vector<std::string>& flags = {}) {
    const config::Schema schema = schema_of(row_);
    const auto names = aliases_of(row_);
    config::Layers layers(schema, names);
    layers.add_values(row_.defaults, "recipe");
    for (std::size_t i = 0; i < files.size(); ++i) {
      const auto path = std::filesystem::path(testing::TempDir()) / ("original" + std::to_string(i) + ".json");
      write_atomically(Fs::real(), path, files[i]);
      layers.add_file(path, keys_of_original_file);
    }
    rest_ = layers.add_flags(flags);
    return layers.resolve();
  }
  std::vector<Problem> problems(const std::vector<std::string>& files, const std::vector<std::string>& flags = {}) {
    try {
      static_cast<void>(resolve(files, flags));
    } catch (const ConfigError& error) {
      return error.problems();
    }
    return {};
  }
  // The problems of a config whose network section has this line.
  std::vector<Problem> problems_of_network(const std::string& line) {
    return problems({"{\"image_channels\": 1,\n\"autoencoder_def\": {\n" + line + "\n}}"});
  }
  Entry row_;
  std::vector<std::string> rest_;
};

TEST_F(OriginalFiles, EnvironmentAndTrainingConfigBecomeKeys) {
  const config::Resolved config = resolve({kEnvironment, kTraining});
  const auto recipe = config::read<Sections>(config.values).recipe;
  const auto shared = config::read<RunConfig>(config.values);
  EXPECT_EQ(recipe.train_dir, "/data/train");
  EXPECT_EQ(recipe.val_dir, "/data/val");
  EXPECT_EQ(recipe.val_fraction, 0);
  EXPECT_EQ(shared.train.seed, 3);
  EXPECT_EQ(shared.train.resume, "auto");
  EXPECT_EQ(shared.run.parent, "./models/ae");
  EXPECT_EQ(shared.data.dir, "");
  EXPECT_THAT(recipe.spacing, ElementsAre(5, 3.2, 3.2));
  EXPECT_EQ(recipe.image_channels, 2);
  EXPECT_EQ(recipe.latent_channels, 8);
  EXPECT_THAT(recipe.channels, ElementsAre(32, 64));
  EXPECT_EQ(recipe.num_res_blocks, 1);
  EXPECT_EQ(recipe.norm_num_groups, 16);
  EXPECT_EQ(recipe.norm_eps, 1e-5);
  EXPECT_THAT(recipe.attention_levels, ElementsAre(false, true));
  EXPECT_FALSE(recipe.with_encoder_nonlocal_attn);
  EXPECT_TRUE(recipe.with_decoder_nonlocal_attn);
  EXPECT_EQ(shared.data.batch_size, 12);
  EXPECT_THAT(recipe.patch_size, ElementsAre(48, 32, 16));
  EXPECT_EQ(shared.optim.learning_rate, 5e-6);
  EXPECT_EQ(shared.optim.schedule, optim::ScheduleKind::cosine);
  EXPECT_EQ(shared.optim.warmup_steps, 0);
  EXPECT_EQ(recipe.perceptual_weight, 0.002);
  EXPECT_EQ(recipe.kl_weight, 1e-7);
  EXPECT_EQ(recipe.recon_loss, ReconLoss::l2);
  EXPECT_EQ(shared.train.epochs, 77);
  EXPECT_EQ(shared.train.validate_epochs, 4);
  EXPECT_EQ(shared.snapshot.every_epochs, 4);
  EXPECT_THAT(config.origins.at("optim.learning_rate"), EndsWith("original1.json:13"));
  EXPECT_THAT(config.notices, ElementsAre("data_base_dir: npz_dir, npz_dir_train and npz_dir_val say where volumes are",
                                          "output_dir: not used; give encode and decode their output with --out",
                                          "tfevent_path: event files are in the run folder",
                                          "diffusion_def: it belongs to stage 2, which this recipe does not have",
                                          "diffusion_train: it belongs to stage 2, which this recipe does not have",
                                          "NoiseScheduler: it belongs to stage 2, which this recipe does not have",
                                          "channel: neither Millrace nor the original reads it"));
}

TEST_F(OriginalFiles, WhatAFileIsSilentAboutIsWhatTheOriginalTook) {
  const config::Resolved silent = resolve({R"({"autoencoder_def": {"channels": [32, 64]}, "autoencoder_train": {"lr": 1e-4}})"});
  const auto recipe = config::read<Sections>(silent.values).recipe;
  EXPECT_EQ(recipe.latent_channels, 3);
  EXPECT_TRUE(recipe.with_encoder_nonlocal_attn);
  EXPECT_TRUE(recipe.with_decoder_nonlocal_attn);
  EXPECT_EQ(config::read<RunConfig>(silent.values).optim.schedule, optim::ScheduleKind::constant);
  EXPECT_THAT(silent.notices, ElementsAre(HasSubstr("autoencoder_train has no lr_scheduler")));
  const config::Resolved none = resolve({R"({"autoencoder_train": {"lr_scheduler": null}})"});
  EXPECT_EQ(config::read<RunConfig>(none.values).optim.schedule, optim::ScheduleKind::constant);
  EXPECT_THAT(none.notices, IsEmpty());
  const config::Resolved warm = resolve({R"({"autoencoder_train": {"lr_scheduler": "warmup_cosine"}})"});
  EXPECT_EQ(config::read<RunConfig>(warm.values).optim.warmup_steps, 5);
  const config::Resolved resumed = resolve({R"({"resume_ckpt": true})"});
  EXPECT_THAT(resumed.notices, ElementsAre(HasSubstr("--run")));
}

TEST_F(OriginalFiles, AFileInOurWordsStaysAsItIs) {
  const config::Resolved config = resolve({R"({"recipe": {"train_dir": "$HOME/@x"}, "optim": {"schedule": "cosine"}})"});
  EXPECT_EQ(config.values["recipe"]["train_dir"], "$HOME/@x");
  EXPECT_EQ(config.values["optim"]["warmup_steps"], 5);
}

TEST_F(OriginalFiles, ReferencesReachTheFilesBefore) {
  const config::Resolved config =
      resolve({R"({"model_dir": "m", "npz_dir": "no-such-folder", "val_fraction": 0.25, "seed": 9})",
               R"({"rate": "@half", "half": 0.5, "wide": [8, 16], "autoencoder_def": {"channels": "$@wide"},
                                               "autoencoder_train": {"lr": "@rate", "kl_weight": "@val_fraction"}})"});
  EXPECT_EQ(config.values["recipe"]["channels"], (Json{8, 16}));
  EXPECT_EQ(config.values["recipe"]["kl_weight"], 0.25);
  EXPECT_EQ(config.values["recipe"]["val_fraction"], 0.25);
  EXPECT_EQ(config.values["optim"]["learning_rate"], 0.5);
  EXPECT_EQ(config.values["data"]["dir"], "no-such-folder");
}

TEST_F(OriginalFiles, CodeAndWhatIsNotHereAreRefusedWithTheLine) {
  const auto only = [](const std::vector<Problem>& found) {
    EXPECT_EQ(found.size(), 1U);
    return found.empty() ? Problem{} : found[0];
  };
  const Problem code = only(problems_of_network("\"channels\": [32, \"$32 * 2\"]"));
  EXPECT_EQ(code.what, "autoencoder_def.channels is \"$32 * 2\", which is code, which a config can't contain");
  EXPECT_THAT(code.where, EndsWith("original0.json:3"));
  EXPECT_EQ(code.next, "write the value that it would give");
  EXPECT_THAT(only(problems_of_network(R"("in_channels": "$@image_channels * 2")")).what, HasSubstr("which is code"));
  const Problem nothing = only(problems_of_network(R"("latent_channels": "@latent")"));
  EXPECT_EQ(nothing.what, "autoencoder_def.latent_channels is \"@latent\", which refers to a key that is in no file");
  EXPECT_THAT(nothing.next, HasSubstr("add \"latent\" at the top"));
  EXPECT_THAT(only(problems_of_network(R"("latent_channels": "@a::b")")).what, HasSubstr("refers to no top-level key"));
  const Problem other = only(problems_of_network(R"("_target_": "networks.VQVAE")"));
  EXPECT_EQ(other.what, "autoencoder_def._target_ is networks.VQVAE, which Millrace does not have");
  EXPECT_THAT(other.where, EndsWith("original0.json:3"));
  EXPECT_TRUE(problems_of_network(R"("_target_": "AutoencoderKL")").empty());
  EXPECT_THAT(only(problems_of_network(R"("_target_": "networks.NotAutoencoderKL")")).what, HasSubstr("does not have"));
  EXPECT_THAT(only(problems_of_network(R"("spatial_dims": 2)")).what, HasSubstr("spatial_dims is 2, which is another network"));
  EXPECT_THAT(only(problems_of_network(R"("in_channels": 1, "out_channels": 2)")).what, HasSubstr("in_channels is 1"));
  EXPECT_THAT(only(problems_of_network(R"("num_res_blocks": [1, 2])")).what, HasSubstr("differs between the levels"));
  EXPECT_THAT(only(problems_of_network(R"("num_chanels": [1, 2])")).next, HasSubstr("num_channels"));
  EXPECT_THAT(only(problems({R"({"a": "@b", "b": "@a", "autoencoder_def": {"channels": "@a"}})"})).what,
              HasSubstr("refers to itself"));
}

TEST_F(OriginalFiles, TheOriginalsFlagsParse) {
  const config::Resolved config =
      resolve({kEnvironment, kTraining}, {"--compile", "--profile", "--no-images", "--amp", "-g", "2", "--local_rank", "0"});
  EXPECT_THAT(rest_, IsEmpty());
  EXPECT_EQ(config.values["precision"]["dtype"], "auto");
  EXPECT_EQ(config.values["log"]["images"], false);
  EXPECT_EQ(config.values["profile"]["steps"], 10);
  for (const char* said : {"compile: there is nothing", "gpus 2: each process trains on one device"})
    EXPECT_THAT(config.notices, Contains(HasSubstr(said)));
  const config::Resolved one = resolve({}, {"--gpus=1", "--no-amp", "--compile", "false", "more"});
  EXPECT_THAT(one.notices, IsEmpty());
  EXPECT_THAT(rest_, ElementsAre("more"));
  EXPECT_EQ(one.values["precision"]["dtype"], "fp32");
}

}  // namespace
}  // namespace millrace::recipes::autoencoder_3d
