// The config section "recipe" of a cosmology run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "millrace/config/field.h"

namespace millrace::recipes::cosmology {

enum class Activation : std::uint8_t { smooth_leaky, silu };
enum class LossKind : std::uint8_t { logmse, mse, logcosh };
enum class PcaMode : std::uint8_t { stored, batch };
enum class Transform : std::uint8_t { linear, arcsinh };
enum class Padding : std::uint8_t { none, circular, mirror };

struct RecipeConfig {
  std::string signal_dir;
  std::string foreground_dir;
  std::string test_dir;
  std::string vis_dataset = "/vis";
  std::vector<double> band_mhz = {500, 600};
  std::int64_t ra_keep = 1024;
  std::int64_t split = 4;
  Padding pad = Padding::none;
  double scale = 1e5;
  std::int64_t filters = 16;
  Activation act = Activation::smooth_leaky;
  LossKind loss = LossKind::logmse;
  std::int64_t n_fg = 11;
  config::Auto<PcaMode> pca;
  std::string pca_components_path;
  std::int64_t pca_num_samples = 100;
  bool add_noise = true;
  double noise_amp = 1.5e-7;
  std::int64_t num_train = -1;
  bool ra_shift = false;
  Transform target_transform = Transform::linear;
  bool predict_residual = false;

  static consteval auto fields() {
    using C = RecipeConfig;
    using config::field;
    return std::tuple{
        field<&C::signal_dir>("Folder of HDF5 files with the signal alone. Empty: data.dir/signal.").path().free_on_resume(),
        field<&C::foreground_dir>("Folder of HDF5 files with foreground. Empty: data.dir/foreground.").path().free_on_resume(),
        field<&C::test_dir>(
            "Folder with signal/ and foreground/ for millrace eval --split=test, which reads all of it. Empty: no test split.")
            .path()
            .free_on_resume(),
        field<&C::vis_dataset>("Name of the visibilities in each file: complex (baselines, frequencies, RA)."),
        field<&C::band_mhz>("Lower and upper edge of the band, for files without /index_map/freq.").size(2).above(0),
        field<&C::ra_keep>("Number of RA samples that are kept, from the first; the others are never read.").min(4),
        field<&C::split>("Number of chunks along RA; each chunk is a sample of the network.").min(1),
        field<&C::pad>("How baselines, frequencies and a chunk's RA are padded to multiples of 4, which the network needs: "
                       "circular repeats the beginning, mirror mirrors the ends, none refuses other lengths. Loss, metrics and "
                       "output leave the padding out."),
        field<&C::scale>("Factor by which cleaned data are multiplied, so that the network's input is around one.").above(0),
        field<&C::filters>("Channels of the U-Net's first layer.").min(1),
        field<&C::act>("Activation."),
        field<&C::loss>(
            "logmse = logarithm of the step's mean squared error, also over accumulated batches; mse = the mean squared error; "
            "logcosh = mean of log cosh."),
        field<&C::n_fg>("Number of principal components that are removed as foreground.").min(1),
        field<&C::pca>("stored = components are fitted once on the training data; batch = they are fitted again on each batch, "
                       "for comparison; "
                       "auto = stored."),
        field<&C::pca_components_path>(
            "File of components from millrace pca fit. Empty: those in the run folder, or a fit at the start.")
            .path(),
        field<&C::pca_num_samples>("Largest number of training samples for the fit at the start.").min(1),
        field<&C::add_noise>("Add noise to the input, in training and in validation."),
        field<&C::noise_amp>("Standard deviation of the noise in kelvin, separately for real and imaginary part.").min(0),
        field<&C::num_train>("Number of signal files for training; -1 = all.").min(-1),
        field<&C::ra_shift>("Roll input and target by the same random offset along RA (training only)."),
        field<&C::target_transform>("Transform of input and target after scaling; arcsinh compresses large values."),
        field<&C::predict_residual>("The network predicts target minus input.")};
  }
};

// The config section that this recipe adds to a run.
struct Sections {
  RecipeConfig recipe;

  static consteval auto fields() {
    using C = Sections;
    using config::field;
    return std::tuple{field<&C::recipe>("The sky, its foreground and the network.")};
  }
};

}  // namespace millrace::recipes::cosmology
