// The config section "recipe" of a neural_response run. Its keys have the names of the YAML files of VisionCore, the program that
// this recipe follows (originals/README.md).
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "millrace/config/field.h"

namespace millrace::recipes::neural_response {

enum class AdapterType : std::uint8_t { adapter, none };
enum class FrontendType : std::uint8_t { learnable_temporal, none };
enum class ConvnetType : std::uint8_t { resnet, none };
enum class ModulatorType : std::uint8_t { convgru, pc, film, concat, stn, none };
enum class ReadoutType : std::uint8_t { gaussian, linear };
enum class Activation : std::uint8_t { none, softplus };
enum class EncoderActivation : std::uint8_t { gelu, silu };
enum class LossType : std::uint8_t { poisson, zip };
enum class BucketMean : std::uint8_t { by_count, unweighted };
enum class SessionWeighting : std::uint8_t { none, equal };
enum class LagOrder : std::uint8_t { oldest_first, newest_first };
enum class StimulusFormat : std::uint8_t { u8, bf16, fp32 };
enum class PenaltyType : std::uint8_t {
  l1,
  l2,
  group_lasso,
  proximal_l1,
  proximal_clamp,
  proximal_clamp_positive,
  proximal_clamp_min
};
enum class PenaltySchedule : std::uint8_t { constant, warmup, linear_ramp, linear_decay };

// What stands before the shared core in each session: a scale of the visual field and a blur, both learned.
struct AdapterConfig {
  AdapterType type = AdapterType::adapter;
  std::int64_t grid_size = 51;
  double init_sigma = 1.0;
  double init_scale = 0.6931471805599453;
  double sigma_max = 3.0;

  static consteval auto fields() {
    using C = AdapterConfig;
    using config::field;
    return std::tuple{
        field<&C::type>("none = the stimulus goes to the frontend unchanged."),
        field<&C::grid_size>("Pixels of a side after resampling.").min(1),
        field<&C::init_sigma>("Standard deviation of the blur at the start.").above(0).unit("pixels"),
        field<&C::init_scale>("Part of the stimulus that fills the grid at the start; the original's is log 2.").above(0),
        field<&C::sigma_max>("Largest deviation that the blur's kernel has room for.").above(0).unit("pixels")};
  }
};

struct FrontendConfig {
  FrontendType type = FrontendType::learnable_temporal;
  std::int64_t kernel_size = 16;
  std::int64_t num_channels = 4;

  static consteval auto fields() {
    using C = FrontendConfig;
    using config::field;
    return std::tuple{field<&C::type>("Filters over time, the same for every pixel; none = the stimulus itself."),
                      field<&C::kernel_size>("Lags of a filter.").min(1), field<&C::num_channels>("Filters.").min(1)};
  }
};

// A stage of the residual core: convolution, RMS norm, SiLU, dropout and pooling, with a shortcut around them.
struct StageConfig {
  std::int64_t channels = 8;
  std::vector<std::int64_t> kernel_size = {3, 5, 5};
  std::vector<std::int64_t> padding = {1, 3, 3};
  std::int64_t stride = 1;
  std::int64_t dilation = 1;
  double dropout = 0.0;
  std::int64_t pool_stride = 0;
  std::int64_t squeeze = 8;

  static consteval auto fields() {
    using C = StageConfig;
    using config::field;
    return std::tuple{
        field<&C::channels>("Output channels.").min(1),
        field<&C::kernel_size>("Size of the kernel along time, height and width.").size(3).min(1),
        field<&C::padding>("Padding along time, height and width; time is padded only on the left, by dilation * (kernel - 1).")
            .size(3)
            .min(0),
        field<&C::stride>("Stride along all three axes.").min(1),
        field<&C::dilation>("Dilation along all three axes.").min(1),
        field<&C::dropout>("Dropout after the activation.").min(0).below(1),
        field<&C::pool_stride>("Stride of the blurred soft pooling; 0 = no pooling.").min(0),
        field<&C::squeeze>("The width of the pooling's gate is the number of channels divided by this.").min(1)};
  }
};

struct ConvnetConfig {
  ConvnetType type = ConvnetType::resnet;
  std::vector<StageConfig> stages = {{.channels = 8, .stride = 2},
                                     {.channels = 256, .dropout = 0.1, .pool_stride = 2, .squeeze = 8},
                                     {.channels = 128,
                                      .kernel_size = {3, 3, 3},
                                      .padding = {2, 2, 2},
                                      .dilation = 2,
                                      .dropout = 0.2,
                                      .pool_stride = 1,
                                      .squeeze = 16}};
  Activation final_activation = Activation::none;

  static consteval auto fields() {
    using C = ConvnetConfig;
    using config::field;
    return std::tuple{field<&C::type>("none: no shared core."), field<&C::stages>("The stages, first to last.").not_empty(),
                      field<&C::final_activation>("Activation after the last stage.")};
  }
};

struct EncoderConfig {
  std::vector<std::int64_t> dims = {64, 64};
  EncoderActivation activation = EncoderActivation::gelu;
  bool residual = true;
  double dropout = 0.0;
  bool last_layer_activation = false;

  static consteval auto fields() {
    using C = EncoderConfig;
    using config::field;
    return std::tuple{field<&C::dims>("Widths of the layers.").not_empty().min(1),
                      field<&C::activation>("Activation after each layer except the last."),
                      field<&C::residual>("Add behaviour to the output of the layers if both have the same width."),
                      field<&C::dropout>("Dropout after each activation except that of the last layer.").min(0).below(1),
                      field<&C::last_layer_activation>("Apply the activation after the last layer too.")};
  }
};

// How behaviour changes the core's features.
struct ModulatorConfig {
  ModulatorType type = ModulatorType::convgru;
  std::int64_t hidden_dim = 128;
  std::int64_t beh_emb_dim = 32;
  std::int64_t kernel_size = 3;
  EncoderConfig encoder_params;

  static consteval auto fields() {
    using C = ModulatorConfig;
    using config::field;
    return std::tuple{
        field<&C::type>(
            "convgru = a recurrent network over frames and behaviour; pc = such a network predicts the last frame, and the "
            "readouts also get the prediction's error; film, concat, stn = encoded behaviour scales and shifts the channels, is "
            "appended to them, or moves the frame."),
        field<&C::hidden_dim>("Channels of the recurrent network (convgru, pc).").min(1),
        field<&C::beh_emb_dim>("Number of channels into which behaviour is embedded (convgru, pc).").min(1),
        field<&C::kernel_size>("Kernel size of the recurrent network's convolutions; odd.").min(1),
        field<&C::encoder_params>("The encoder of behaviour (film, concat, stn).")};
  }
};

struct ReadoutConfig {
  ReadoutType type = ReadoutType::gaussian;
  bool bias = true;
  double initial_std = 5.0;
  double initial_mean_scale = 0.1;
  bool bias_from_rates = true;

  static consteval auto fields() {
    using C = ReadoutConfig;
    using config::field;
    return std::tuple{
        field<&C::type>("gaussian = a unit sees a Gaussian part of the last frame; linear = for features without space."),
        field<&C::bias>("A bias per unit."),
        field<&C::initial_std>("Standard deviation of a unit's Gaussian at the start.").above(0).unit("pixels of the last frame"),
        field<&C::initial_mean_scale>("Standard deviation of the Gaussians' positions at the start.").min(0).unit("pixels"),
        field<&C::bias_from_rates>("Start the bias at the logarithm of the unit's mean count; false = at 0.")};
  }
};

// A rule about parameters: a term in addition to the loss, or a change after each step.
struct PenaltyConfig {
  std::string name;
  PenaltyType type = PenaltyType::l1;
  double lambda = 0.0;
  std::vector<std::string> apply_to;
  PenaltySchedule schedule = PenaltySchedule::constant;
  double start_epoch = 0.0;
  double end_epoch = 0.0;
  double start_lambda = 0.0;

  static consteval auto fields() {
    using C = PenaltyConfig;
    using config::field;
    return std::tuple{
        field<&C::name>("Name in the logs."),
        field<&C::type>(
            "Kind of the rule: norms are added to the loss; proximal_l1 and the clamps change the parameters after each step."),
        field<&C::lambda>("Strength, or the bound of a clamp.").min(0),
        field<&C::apply_to>(
            "Patterns of parameter names: a name must contain all parts of the pattern, which are separated by slashes."),
        field<&C::schedule>("How lambda changes with the epoch."),
        field<&C::start_epoch>("First epoch of warmup or of a linear change.").min(0).unit("epochs"),
        field<&C::end_epoch>("Last epoch of a linear change.").min(0).unit("epochs"),
        field<&C::start_lambda>("Strength at the start of linear_decay.").min(0)};
  }
};

struct RecipeConfig {
  std::string model_config;
  std::string dataset_config;
  std::int64_t max_datasets = 30;
  SessionWeighting session_weighting = SessionWeighting::none;
  std::int64_t steps_per_epoch = 0;
  double val_fraction = 1.0;
  bool enable_curriculum = false;
  StimulusFormat dset_dtype = StimulusFormat::u8;
  LagOrder lag_order = LagOrder::oldest_first;
  AdapterConfig adapter;
  FrontendConfig frontend;
  ConvnetConfig convnet;
  ModulatorConfig modulator;
  ReadoutConfig readout;
  Activation output_activation = Activation::none;
  LossType loss_type = LossType::poisson;
  BucketMean bucket_mean = BucketMean::by_count;
  double lambda_pred = 0.1;
  std::vector<PenaltyConfig> regularization = {
      {.name = "readout_sparsity",
       .type = PenaltyType::l1,
       .lambda = 1e-7,
       .apply_to = {"readouts/features"},
       .schedule = PenaltySchedule::warmup,
       .start_epoch = 1},
      {.name = "decay_readout_std",
       .type = PenaltyType::proximal_clamp_positive,
       .lambda = 1.5,
       .apply_to = {"readouts/std"},
       .schedule = PenaltySchedule::linear_decay,
       .start_epoch = 0,
       .end_epoch = 50,
       .start_lambda = 10},
      {.name = "exclude_means_from_wd", .type = PenaltyType::l2, .lambda = 0, .apply_to = {"readouts/mean"}}};
  double core_lr_scale = 1.0;
  std::string pretrained;
  bool freeze_vision = false;
  std::int64_t warmup_epochs = 5;
  std::vector<std::int64_t> units;

  static consteval auto fields() {
    using C = RecipeConfig;
    using config::field;
    return std::tuple{
        field<&C::model_config>(
            "YAML file of the model in the original's format; other files and flags override its values. Empty: no file.")
            .path()
            .free_on_resume(),
        field<&C::dataset_config>(
            "File that describes the data: sessions, lags, transforms, filters. Empty: data.dir/dataset.yaml.")
            .path()
            .free_on_resume(),
        field<&C::max_datasets>("Largest number of sessions; the first ones are used.").min(1),
        field<&C::session_weighting>(
            "equal = each session gives the same share of the rows, drawn with replacement; none = all rows count equally."),
        field<&C::steps_per_epoch>("Number of batches in an epoch; 0 = each sample once.").min(0),
        field<&C::val_fraction>(
            "Share of each session's validation samples that a validation uses: always the same samples, at least one.")
            .above(0)
            .max(1)
            .free_on_resume(),
        field<&C::enable_curriculum>("Prefer samples of high contrast until step 8,000."),
        field<&C::dset_dtype>(
            "Number format in which stimuli are copied to the device; u8 only if the transforms leave whole numbers."),
        field<&C::lag_order>("Order of the lags in a sample; newest_first is for weights that the original trained."),
        field<&C::adapter>("Per session: scale and blur of the visual field."),
        field<&C::frontend>("Filters over time."),
        field<&C::convnet>("The residual core."),
        field<&C::modulator>("How behaviour changes the features."),
        field<&C::readout>("Per session: from features to units."),
        field<&C::output_activation>("none = the model predicts logarithms of rates; softplus = it predicts rates."),
        field<&C::loss_type>(
            "poisson = Poisson loss; zip = zero-inflated Poisson loss, for a model that also predicts the share of silent bins."),
        field<&C::bucket_mean>("by_count = all counts of a step have the same weight; unweighted = all sessions have the same "
                               "weight, as in the original."),
        field<&C::lambda_pred>("Weight of the squared prediction error (modulator pc).").min(0),
        field<&C::regularization>("Rules about parameters, in addition to the loss."),
        field<&C::core_lr_scale>(
            "Factor of the learning rate for frontend, convnet and modulator; readouts and adapters use optim.learning_rate.")
            .above(0),
        field<&C::pretrained>(
            "Run, snapshot or file that gives the initial adapters, frontend and convnet. Empty: random weights.")
            .path()
            .free_on_resume(),
        field<&C::freeze_vision>("Do not train adapters, frontend and convnet."),
        field<&C::warmup_epochs>("Length of warm-up in epochs for schedule warmup_cosine, if no number of steps is given.")
            .min(0),
        field<&C::units>("Number of units of each session, for a model without data (to count parameters or to time it).")
            .min(1)};
  }
};

// The config section that this recipe adds to a run.
struct Sections {
  RecipeConfig recipe;

  static consteval auto fields() {
    using C = Sections;
    using config::field;
    return std::tuple{field<&C::recipe>("Sessions, the shared core and its readouts.")};
  }
};

}  // namespace millrace::recipes::neural_response
