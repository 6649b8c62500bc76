// The config section "recipe" of an image_pairs run.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "millrace/config/field.h"

namespace millrace::recipes::image_pairs {

enum class Resize : std::uint8_t { crop, clip };
enum class BaseType : std::uint8_t { bf16, fp16, fp32 };
enum class PatchInit : std::uint8_t { normal, whitened };
enum class Activation : std::uint8_t { quick_gelu, gelu, gelu_pytorch_tanh };  // the names that published configs use

struct RecipeConfig {
  std::string photographs;
  std::string labels;
  std::string train_pairs;
  std::string val_pairs;
  std::vector<std::string> data_roots;
  std::vector<std::string> strip_prefixes;
  std::int64_t folds = 5;
  std::int64_t fold = 1;
  std::int64_t per_class = 15000;
  double theta = 0.2;
  double near_band = 0.15;
  double near_ratio = 0.5;
  std::int64_t val_samples = 1000;
  std::int64_t image_size = 336;
  Resize resize = Resize::crop;
  bool swap_double = true;
  std::string question = "Which image has less noise? First, Second or Similar?";
  std::vector<std::int64_t> prompt_token_ids;
  std::vector<std::int64_t> answer_token_ids;
  std::int64_t image_token_id = 258;
  std::int64_t max_seq_len = 1250;
  std::int64_t patch_size = 14;
  std::int64_t vision_width = 1024;
  std::int64_t vision_layers = 24;
  std::int64_t vision_heads = 16;
  std::int64_t vision_hidden = 4096;
  std::int64_t vision_feature_layer = -2;
  config::Auto<Activation> vision_activation;
  PatchInit patch_init = PatchInit::normal;
  double position_std = 0.02;
  std::int64_t decoder_width = 4096;
  std::int64_t decoder_layers = 32;
  std::int64_t decoder_heads = 32;
  std::int64_t decoder_hidden = 11008;
  std::int64_t vocab_size = 32064;
  double rope_base = 10000;
  std::int64_t lora_r = 8;
  double lora_alpha = 32;
  double lora_dropout = 0.05;
  std::vector<std::string> lora_targets = {"q_proj", "k_proj", "v_proj", "o_proj"};
  bool lora_vision = false;
  std::vector<std::string> base_weights;
  BaseType base_dtype = BaseType::bf16;
  config::Auto<bool> freeze_base;
  std::string adapter;
  config::Auto<double> projector_learning_rate;
  double similar_weight = 1.2;
  double swap_ce_weight = 1.0;
  double consistency_start = 5;
  double consistency_end = 20;
  double consistency_ramp = 0.5;
  std::int64_t consistency_steps = 0;
  config::Auto<bool> share_image_features;
  config::Auto<bool> cache_image_features;
  double bradley_terry_d = 1.0;
  double bradley_terry_k = 1.0;
  bool baseline = false;

  static consteval auto of_pairs() {
    using C = RecipeConfig;
    using config::field;
    return std::tuple{
        field<&C::photographs>("Folder of clean photographs, from which the presets smoke, small and full make their images: "
                               "crops with noise of known strength. Empty: they use generated textures.")
            .path()
            .free_on_resume(),
        field<&C::labels>("Text file of lines \"name score\". Empty: labels.txt in data.dir.").path().free_on_resume(),
        field<&C::train_pairs>("CSV of training pairs: img1,img2,score1,score2,label. Empty: pairs are drawn from the labels.")
            .path()
            .free_on_resume(),
        field<&C::val_pairs>(
            "CSV of validation pairs. Empty: pairs are drawn from the labels; if train_pairs is set, there is no validation.")
            .path()
            .free_on_resume(),
        field<&C::data_roots>("Folders in which an image is looked for if its name is not the path of an existing file. Empty: "
                              "data.dir/images, data.dir.")
            .path()
            .free_on_resume(),
        field<&C::strip_prefixes>("Prefixes that are removed from image names before images are looked for.").free_on_resume(),
        field<&C::folds>("Number of parts into which the images are split; one part is used for validation.").min(2),
        field<&C::fold>("Number of the part that is used for validation, from 1.").min(1),
        field<&C::per_class>("Number of training pairs for each answer.").min(1),
        field<&C::theta>("Largest difference of scores at which two images count as similar.").min(0),
        field<&C::near_band>(
            "Largest difference of scores of a near pair; near_ratio is the share of near pairs among the similar pairs.")
            .min(0),
        field<&C::near_ratio>("Share of near pairs (see near_band) among the similar pairs.").min(0).max(1),
        field<&C::val_samples>("Number of validation pairs; 0 = all pairs of the validation images.").min(0).free_on_resume(),
        field<&C::image_size>("Rows and columns of the network's input images.").min(16).unit("px"),
        field<&C::resize>("crop = the middle of an image, unscaled; clip = the short side is scaled to image_size first, which "
                          "removes fine detail such as noise."),
        field<&C::swap_double>("Train on each pair in both orders.")};
  }
  static consteval auto of_network() {
    using C = RecipeConfig;
    using config::field;
    return std::tuple{
        field<&C::question>("Text after the two images; it becomes tokens byte by byte."),
        field<&C::prompt_token_ids>("The prompt as tokens of the base model's tokenizer, with image_token_id at the places of "
                                    "the images. Empty: made from the question."),
        field<&C::answer_token_ids>("Tokens of the answers First, Second and Similar. Empty: those of the byte tokenizer."),
        field<&C::image_token_id>("Token that stands for one patch of an image.").min(0),
        field<&C::max_seq_len>("Longest prompt in tokens; a longer one is an error.").min(1),
        field<&C::patch_size>("Rows and columns of a patch, which becomes one token.").min(1).unit("px"),
        field<&C::vision_width>("Width of the vision tower.").min(1),
        field<&C::vision_layers>(
            "Number of blocks of the published vision tower; blocks after vision_feature_layer are not built.")
            .min(1),
        field<&C::vision_heads>("Attention heads in a block of the vision tower.").min(1),
        field<&C::vision_hidden>("Width of the feed-forward layers in the vision tower.").min(1),
        field<&C::vision_feature_layer>(
            "Block of the vision tower whose output is used, counted from the end: -1 = the last, -2 = the last but one.")
            .max(-1),
        field<&C::vision_activation>("Activation in the tower's feed-forward layers; auto = the one that config.json next to "
                                     "base_weights names, else quick_gelu: x sigmoid(1.702 x)."),
        field<&C::patch_init>("How the patch filters are initialised: normal = independent weights; whitened = sums of waves, "
                              "with larger amplitudes for waves that are rare in photographs."),
        field<&C::position_std>("Standard deviation of the vision tower's position embeddings at random initialisation.")
            .above(0),
        field<&C::decoder_width>("Width of the decoder.").min(2),
        field<&C::decoder_layers>("Number of blocks of the decoder.").min(1),
        field<&C::decoder_heads>("Attention heads in a block of the decoder.").min(1),
        field<&C::decoder_hidden>("Width of the feed-forward layers in the decoder.").min(1),
        field<&C::vocab_size>("Number of rows of the decoder's embedding; the byte tokenizer has 262 tokens.").min(1),
        field<&C::rope_base>("Base of the rotary positions' wavelengths.").above(0),
        field<&C::lora_r>("Rank of the adapters; 0 = no adapters.").min(0),
        field<&C::lora_alpha>("Scale of the adapters: their output is multiplied by lora_alpha / lora_r.").above(0),
        field<&C::lora_dropout>("Dropout of an adapter's input.").min(0).below(1),
        field<&C::lora_targets>("Projections of the decoder that get an adapter."),
        field<&C::lora_vision>("Also put adapters on queries, keys and values of the vision tower."),
        field<&C::base_weights>("Safetensors files, or folders with such files and their index, that hold tower, projector and "
                                "decoder under the names of LLaVA-1.5. Empty: random weights.")
            .path()
            .free_on_resume(),
        field<&C::base_dtype>("Number format in which the frozen weights of base_weights are kept."),
        field<&C::freeze_base>("Train only the projector and the adapters; auto = true if base_weights are given."),
        field<&C::adapter>("Initial adapter: a folder with adapter_model.safetensors, as PEFT saves it. Empty: a new adapter.")
            .path(),
        field<&C::projector_learning_rate>(
            "Learning rate of the projector; auto = optim.learning_rate, or a tenth of it if the base is frozen.")
            .above(0),
        field<&C::similar_weight>("Weight of the cross-entropy of similar pairs.").min(0),
        field<&C::swap_ce_weight>("Weight of the cross-entropy of swapped pairs.").min(0),
        field<&C::consistency_start>("Weight, at the first step, of the difference between the answers in a pair's two orders.")
            .min(0),
        field<&C::consistency_end>(
            "Weight, at the end of the ramp, of the difference between the answers in a pair's two orders.")
            .min(0),
        field<&C::consistency_ramp>(
            "Length of the ramp from consistency_start to consistency_end, as a share of consistency_steps.")
            .above(0)
            .max(1),
        field<&C::consistency_steps>("Number of steps that consistency_ramp refers to; 0 = all steps of the run.").min(0),
        field<&C::share_image_features>("Compute the features of a pair's images once for both orders; auto = yes."),
        field<&C::cache_image_features>(
            "Keep the features of a frozen tower from epoch to epoch; auto = if they fit into a quarter of the free memory."),
        field<&C::bradley_terry_d>("Half width of the band of equal scores, in the ranking's model of answers.").min(0),
        field<&C::bradley_terry_k>(
            "How steeply an answer's probability depends on the difference of scores, in the ranking's model of answers.")
            .above(0),
        field<&C::baseline>("Validations also report how many pairs a classical noise estimate gets right.").free_on_resume()};
  }
  static consteval auto fields() { return std::tuple_cat(of_pairs(), of_network()); }
};

// The config section that this recipe adds to a run.
struct Sections {
  RecipeConfig recipe;

  static consteval auto fields() {
    using C = Sections;
    using config::field;
    return std::tuple{field<&C::recipe>("The pairs of images, the network that judges them and its losses.")};
  }
};

}  // namespace millrace::recipes::image_pairs
