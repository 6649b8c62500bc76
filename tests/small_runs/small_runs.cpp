#include "small_runs.h"

#include <fstream>

#include "millrace/base/philox.h"
#include "recipes/autoencoder_3d/make_data.h"
#include "recipes/image_pairs/make_data.h"
#include "recipes/neural_response/make_data.h"

namespace millrace::test {

namespace fs = std::filesystem;

std::int64_t small_batch(const std::string& recipe) {
  if (recipe == "neural_response") return 6;
  return recipe == "autoencoder_3d" || recipe == "image_pairs" ? 2 : 8;
}

std::vector<std::string> small_run(const std::string& recipe, const fs::path& folder) {
  if (recipe == "neural_response") {
    fs::create_directories(folder / "sessions");
    recipes::neural_response::write_sample_sessions({.sessions = 2, .units = 4, .bins = 1200, .side = 11, .lags = 6},
                                                    folder / "sessions", 0);
    return {"--data.dir=" + (folder / "sessions").string(),
            "--recipe.adapter.grid_size=9",
            "--recipe.frontend.kernel_size=3",
            "--recipe.frontend.num_channels=2",
            R"(--recipe.convnet.stages=[{"channels":4,"stride":2,"dropout":0.1}])",
            "--recipe.modulator.hidden_dim=4",
            "--recipe.modulator.beh_emb_dim=2",
            "--recipe.steps_per_epoch=11",
            "--recipe.enable_curriculum=true",
            "--device.layout=contiguous",
            "--log.images=false"};
  }
  if (recipe == "autoencoder_3d") {
    fs::create_directories(folder / "volumes");
    recipes::autoencoder_3d::write_sample_volumes({.side = 14, .train = 10, .validation = 2, .patch = 12}, folder / "volumes", 0);
    return {"--data.dir=" + (folder / "volumes").string(),
            "--recipe.channels=[4,8]",
            "--recipe.attention_levels=[false,true]",
            "--recipe.latent_channels=2",
            "--recipe.num_res_blocks=1",
            "--recipe.norm_num_groups=2",
            "--recipe.with_decoder_nonlocal_attn=false",
            "--recipe.patch_size=[12,12,12]",
            "--recipe.disc_channels=2",
            "--recipe.disc_layers=2",
            "--recipe.adv_start_epoch=3",
            "--recipe.perceptual_weight=0",
            "--device.layout=contiguous",
            "--log.images=false"};
  }
  if (recipe == "image_pairs") {
    fs::create_directories(folder / "pairs");
    recipes::image_pairs::write_sample_images({.size = 16, .images = 28}, folder / "pairs", 0);
    return {"--data.dir=" + (folder / "pairs").string(),
            "--recipe.image_size=16",
            "--recipe.patch_size=8",
            "--recipe.vision_width=8",
            "--recipe.vision_layers=1",
            "--recipe.vision_heads=2",
            "--recipe.vision_hidden=16",
            "--recipe.vision_feature_layer=-1",
            "--recipe.decoder_width=16",
            "--recipe.decoder_layers=2",
            "--recipe.decoder_heads=2",
            "--recipe.decoder_hidden=24",
            "--recipe.vocab_size=262",
            "--recipe.question=?",
            "--recipe.per_class=6",
            "--recipe.folds=2",
            "--recipe.val_samples=6",
            "--recipe.freeze_base=true",
            "--train.early_stop_patience=0",
            "--log.images=false"};
  }
  Philox random(make_key(3));
  std::ofstream text(folder / "text.txt");
  for (int i = 0; i < 6000; ++i) text << static_cast<char>('a' + random.below(9));
  return {"--recipe.sources=" + (folder / "text.txt").string(),
          "--recipe.model_embd=16",
          "--recipe.model_layer=1",
          "--recipe.model_head=2",
          "--recipe.model_positions=16",
          "--recipe.seq_len=16",
          "--recipe.model_dropout=0.1"};
}

}  // namespace millrace::test
