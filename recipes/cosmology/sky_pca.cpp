#include "recipes/cosmology/sky_pca.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <array>
#include <optional>

#include "millrace/base/clock.h"
#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/hash.h"
#include "millrace/data/files/file_stamps.h"
#include "millrace/system/stop.h"
#include "millrace/train/recipe/config.h"
#include "recipes/common/bad_files.h"

namespace millrace::recipes::cosmology {
namespace {

constexpr auto kAgain = "fit it again: millrace pca fit --config FILE";

// Returns a hash of the training files' stamps, which depend on what the files hold. The sky's fingerprint depends only on
// names, shapes and sizes.
std::string content_of(const RecipeConfig& recipe, const Sky& sky) {
  Sha256 digest;
  for (const data::FileStamp& stamp : training_source(recipe, sky).stamps())
    digest.update(stamp.name + "\n" + std::to_string(stamp.size) + " " + stamp.digest + "\n");
  return digest.hex();
}

// Returns how the components' data differ from the data of this run; "" if they do not differ, or if pca.facts does not tell.
std::string other_data(const nn::ForegroundPca& pca, const RecipeConfig& recipe, const Sky& sky) {
  if (const auto fact = pca.facts.find("fingerprint"); fact != pca.facts.end() && fact->second != sky.fingerprint)
    return "fitted on other files or another split than this run's";
  // Components of earlier versions do not have this fact.
  if (const auto fact = pca.facts.find("content"); fact != pca.facts.end() && fact->second != content_of(recipe, sky))
    return "fitted on files with the same names and sizes but other contents";
  return "";
}

[[noreturn]] void refuse(const std::string& what, const std::string& where) { throw DataError({what, where, kAgain}); }

}  // namespace

std::string pca_file_name(std::int64_t n_fg) { return "pca_components_nfg" + std::to_string(n_fg) + ".safetensors"; }

SkySource training_source(const RecipeConfig& recipe, const Sky& sky) {
  return {sky.train, sky.shape, {.dataset = recipe.vis_dataset, .ra_keep = recipe.ra_keep}};
}

TrainingPair training_pair(const SkySource& source, std::int64_t index, std::uint64_t seed) {
  at::Tensor x = at::empty(source.fields()[0].shape, at::kComplexFloat);
  at::Tensor y = at::empty(source.fields()[1].shape, at::kComplexFloat);
  const std::array<std::byte*, 2> fields{static_cast<std::byte*>(x.mutable_data_ptr()),
                                         static_cast<std::byte*>(y.mutable_data_ptr())};
  const std::span<const std::int64_t> one(&index, 1);
  source.read(one, {fields}, data::ReadRandom(seed, 0, one));
  return {std::move(x), std::move(y)};
}

at::Tensor training_input(const SkySource& source, std::int64_t index, std::uint64_t seed) {
  return training_pair(source, index, seed).x;
}

nn::ForegroundPca fit_pca(const RecipeConfig& recipe, const Sky& sky, std::uint64_t seed, std::int64_t num_samples,
                          const DataConfig& input, const std::function<void(std::int64_t, std::int64_t)>& progress,
                          const Tell& left_out) {
  const SkySource source = training_source(recipe, sky);
  const std::int64_t count = std::min(num_samples, source.size());
  nn::PcaFit fit;
  std::int64_t fitted = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    stop_if_signalled();
    try {
      fit.add(nn::as_pixels(training_input(source, i, seed)));
      ++fitted;
    } catch (const DataError& error) {
      if (!passes_bad(input) || (i + 1 == count && fitted == 0)) throw;
      refuse_too_many(i + 1 - fitted, count, "samples of PCA's fit", error.message(), input);
      if (left_out) left_out(error.message().what);
    }
    if (progress) progress(i + 1, count);
  }
  nn::ForegroundPca pca = fit.finish(recipe.n_fg);
  pca.facts = {{"num_samples", std::to_string(fitted)},
               {"split_seed", std::to_string(seed)},
               {"fingerprint", sky.fingerprint},
               {"content", content_of(recipe, sky)}};
  pca.freq_mhz = at::tensor(sky.freq_mhz, at::kDouble);
  return pca;
}

void check_pca(const nn::ForegroundPca& pca, const RecipeConfig& recipe, const Sky& sky, const std::string& where,
               const Tell& report) {
  const std::int64_t frequencies = sky.shape[1];
  if (pca.frequencies() != frequencies) {
    refuse("the PCA file has " + std::to_string(pca.frequencies()) + " frequencies, but the data have " +
               std::to_string(frequencies),
           where);
  }
  if (pca.n_fg() != recipe.n_fg) {
    refuse("the PCA file has n_fg " + std::to_string(pca.n_fg()) + ", but recipe.n_fg is " + std::to_string(recipe.n_fg), where);
  }
  if (pca.freq_mhz.defined()) {
    constexpr double kApart = 1e-3;  // in MHz; frequencies that differ by more than this belong to different channels
    // in MHz; larger numbers must be in Hz, because earlier versions stored an axis in Hz without converting it
    constexpr double kHighest = 1e6;
    const at::Tensor known = pca.freq_mhz.abs().max().item<double>() > kHighest ? pca.freq_mhz * 1e-6 : pca.freq_mhz;
    const auto apart_from = [&](const std::vector<double>& mhz) { return (known - at::tensor(mhz, at::kDouble)).abs(); };
    const at::Tensor apart = apart_from(sky.freq_mhz);
    // If an axis could not be read, earlier versions used recipe.band_mhz instead. The components of such a run are still right
    // for the same data.
    const auto is_default = [&] {
      return other_data(pca, recipe, sky).empty() && apart_from(centres_of(recipe, frequencies)).max().item<double>() <= kApart;
    };
    if (apart.max().item<double>() > kApart && !is_default()) {
      const auto i = apart.argmax().item<std::int64_t>();
      refuse("the PCA file has channel " + std::to_string(i) + " at " + fixed(known[i].item<double>(), 3) +
                 " MHz, but the data have " + fixed(sky.freq_mhz[static_cast<std::size_t>(i)], 3) + " MHz",
             where);
    }
  }
  if (!report) return;
  if (const std::string other = other_data(pca, recipe, sky); !other.empty())
    report("the pca components of " + where + " were " + other);
}

namespace {

std::optional<nn::ForegroundPca> found_pca(const RecipeConfig& recipe, const Sky& sky, const RecipeFolders& places,
                                           const Tell& report) {
  if (places.run_folder.empty()) return std::nullopt;
  const std::string ours = pca_file_name(recipe.n_fg);
  for (const std::string& name : {ours, std::filesystem::path(ours).replace_extension(".pt").string()}) {
    const std::filesystem::path path = places.run_folder / name;
    if (!std::filesystem::exists(path)) continue;
    try {
      nn::ForegroundPca pca = nn::ForegroundPca::load(path);
      check_pca(pca, recipe, sky, path.string(), {});
      if (const std::string other = other_data(pca, recipe, sky); !other.empty()) refuse("they were " + other, path.string());
      // Copies components that were found elsewhere into the run's new files, so that they belong to the run from now on.
      if (!places.new_files.empty() && (places.new_files != places.run_folder || name != ours))
        pca.save(Fs::real(), places.new_files / ours);
      if (report) report("pca components of " + path.string());
      return pca;
    } catch (const DataError& error) {
      if (report) report("the pca components in " + path.string() + " are not used: " + error.message().what + "; fitted again");
    }
  }
  return std::nullopt;
}

nn::ForegroundPca fitted_pca(const RecipeConfig& recipe, const Sky& sky, const Context& run, const Tell& report) {
  const std::string name = pca_file_name(recipe.n_fg);
  const double begin = steady_seconds();
  std::int64_t bad = 0;
  std::string first;
  const Tell left_out = [&](const std::string& why) {
    if (bad++ == 0) first = why;
  };
  nn::ForegroundPca pca = fit_pca(recipe, sky, run.seed, recipe.pca_num_samples, run.config->data, {}, left_out);
  if (bad > 0 && report)
    report("pca fitted without " + std::to_string(bad) + (bad == 1 ? " sample" : " samples") +
           " that can't be read, the first: " + first);
  if (!run.places.new_files.empty()) pca.save(Fs::real(), run.places.new_files / name);
  if (report) {
    report("pca fitted on " + pca.facts.at("num_samples") + " training samples in " + human_duration(steady_seconds() - begin) +
           ": " + std::to_string(recipe.n_fg) + " components hold " + significant(pca.variance_explained() * 100, 12) +
           " % of the variance" + (run.places.new_files.empty() ? "" : "; kept in the run folder as " + name));
  }
  return pca;
}

}  // namespace

nn::ForegroundPca stored_pca(const RecipeConfig& recipe, const Sky& sky, const std::filesystem::path& components,
                             const Context& run, const Tell& report) {
  if (!components.empty()) {
    nn::ForegroundPca pca = nn::ForegroundPca::load(components);
    check_pca(pca, recipe, sky, components.string(), report);
    if (report) report("pca components of " + components.string());
    return pca;
  }
  if (std::optional<nn::ForegroundPca> found = found_pca(recipe, sky, run.places, report)) return *std::move(found);
  return fitted_pca(recipe, sky, run, report);
}

}  // namespace millrace::recipes::cosmology
