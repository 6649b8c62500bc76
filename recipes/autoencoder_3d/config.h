// The config section "recipe" of an autoencoder_3d run. The keys of the network have the names of the JSON files of 3d_ldm, the
// program that this recipe follows (originals/README.md).
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "millrace/config/field.h"

namespace millrace::recipes::autoencoder_3d {

enum class ReconLoss : std::uint8_t { l1, l2 };
enum class Target : std::uint8_t { image, label };
enum class ScaleOn : std::uint8_t { crop, volume };

struct RecipeConfig {
  std::string train_dir;
  std::string val_dir;
  double val_fraction = 0.1;
  std::vector<double> spacing;
  std::vector<std::int64_t> patch_size = {64, 64, 64};
  bool pad_small = true;
  ScaleOn scale_on = ScaleOn::crop;
  Target target = Target::image;
  std::int64_t image_channels = 1;
  std::vector<std::int64_t> channels = {64, 128, 256};
  std::int64_t latent_channels = 16;
  std::int64_t num_res_blocks = 2;
  std::int64_t norm_num_groups = 32;
  double norm_eps = 1e-6;
  std::vector<bool> attention_levels = {false, true, true};
  bool with_encoder_nonlocal_attn = false;
  bool with_decoder_nonlocal_attn = true;
  std::int64_t disc_channels = 32;
  std::int64_t disc_layers = 3;
  ReconLoss recon_loss = ReconLoss::l1;
  double kl_weight = 1e-8;
  double kl_clamp = 0;
  double perceptual_weight = 1e-4;
  std::string perceptual_weights;
  bool perceptual_map = true;
  double adv_weight = 0.01;
  std::int64_t adv_start_epoch = 5;
  std::string pretrained;

  static consteval auto fields() {
    using C = RecipeConfig;
    using config::field;
    return std::tuple{
        field<&C::train_dir>("Folder of .npz or NIfTI files for training. Empty: data.dir/train if it exists, else data.dir.")
            .path()
            .free_on_resume(),
        field<&C::val_dir>("Folder of files for validation. Empty: data.dir/val if it exists, else a part of the training files.")
            .path()
            .free_on_resume(),
        field<&C::val_fraction>("Share of the files that is used for validation if there is no folder for it; 0 = no validation.")
            .min(0)
            .below(1),
        field<&C::spacing>(
            "Expected voxel size along depth, height and width; a file with another voxel size is reported. Nothing "
            "is resampled. Empty: not compared.")
            .above(0)
            .unit("mm"),
        field<&C::patch_size>("Depth, height and width of the crops for training.").size(3).min(1),
        field<&C::pad_small>("Pad a volume smaller than the crop with zeros; false = such a volume is an error."),
        field<&C::scale_on>(
            "How intensities are scaled: percentiles 0 and 99.5 of the crop, or of the whole volume, become 0 and 1."),
        field<&C::target>("What to reconstruct: the low-count image itself, or (denoising) the high-count label beside it."),
        field<&C::image_channels>("1: the low-count image; 2: the low- and the high-count image as two channels.").min(1).max(2),
        field<&C::channels>("Channels of each level, the full size first; each further level has half the size.").min(1),
        field<&C::latent_channels>("Channels of the latent volume.").min(1),
        field<&C::num_res_blocks>("Residual blocks of each level.").min(1),
        field<&C::norm_num_groups>("Groups of the group norms.").min(1),
        field<&C::norm_eps>("Added to the variance in group norms.").above(0),
        field<&C::attention_levels>("Whether self-attention follows the residual blocks, for each level."),
        field<&C::with_encoder_nonlocal_attn>("Attention between two residual blocks at the end of the encoder."),
        field<&C::with_decoder_nonlocal_attn>("Attention between two residual blocks at the start of the decoder."),
        field<&C::disc_channels>("Channels of the discriminator's first layer.").min(1),
        field<&C::disc_layers>("Number of the discriminator's layers between its first and last; 3 is the published network.")
            .min(2)
            .max(5),
        field<&C::recon_loss>("Mean absolute (l1) or mean squared (l2) error."),
        field<&C::kl_weight>("Weight of the latent's Kullback-Leibler divergence from a normal distribution.").min(0),
        field<&C::kl_clamp>(
            "Limit of a sample's divergence; a larger divergence is set to the limit and has no gradient. 0 = no limit; 1000 = "
            "as in the original.")
            .min(0),
        field<&C::perceptual_weight>("Weight of the perceptual loss; used only if recipe.perceptual_weights names its network.")
            .min(0),
        field<&C::perceptual_weights>("Safetensors file of LPIPS's SqueezeNet. Empty: no perceptual loss.").path(),
        field<&C::perceptual_map>("Map [0, 1] to the range [-1, 1] of the perceptual network; false = as in the original."),
        field<&C::adv_weight>("Weight of the adversarial loss, for both networks; 0 = no discriminator.").min(0),
        field<&C::adv_start_epoch>("Last epoch (counted from 0) without the adversarial loss; -1 = it is used from the start.")
            .min(-1),
        field<&C::pretrained>("Initial weights: a folder with autoencoder.pt and optionally discriminator.pt (or .safetensors), "
                              "as MONAI saves them, one of these files, or a run. Empty: random weights.")
            .path()};
  }
};

// The config section that this recipe adds to a run.
struct Sections {
  RecipeConfig recipe;

  static consteval auto fields() {
    using C = Sections;
    using config::field;
    return std::tuple{field<&C::recipe>("The volumes, the autoencoder, its discriminator and their losses.")};
  }
};

}  // namespace millrace::recipes::autoencoder_3d
