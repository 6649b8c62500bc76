#include <ATen/TensorOperators.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <filesystem>
#include <iostream>
#include <optional>

#include "millrace/base/clock.h"
#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/config/arguments.h"
#include "millrace/config/schema_of.h"
#include "millrace/format/csv.h"
#include "millrace/telemetry/console.h"
#include "millrace/train/recipe/config.h"
#include "millrace/train/run/command_config.h"
#include "recipes/cosmology/entry.h"
#include "recipes/cosmology/preprocess.h"
#include "recipes/cosmology/recipe.h"
#include "recipes/cosmology/sky_pca.h"

namespace millrace::recipes::cosmology {
namespace {

namespace stdfs = std::filesystem;

constexpr std::string_view kHelp = R"(usage: millrace pca fit [--config FILE | --preset NAME] [--data DIR] [options]
       millrace pca validate --pca-components FILE [--config FILE | --preset NAME] [--data DIR] [options]

fit accumulates the covariance of frequencies over training samples in fp64, one sample in memory at a time, and writes the
components to --output: by default pca_components_nfg<N>.safetensors in the folder of the run that the config names, where training
finds the file, else in the current folder (then give the file to train as recipe.pca_components_path).
validate measures the time of stored components and of components of each batch, and compares the residuals of both.

  --output FILE         the file that fit writes
  --num-samples N       number of samples, at most all (fit 100, validate 5)
  --pca-components FILE the stored components for validate
  --plot                validate writes the eigenvalues as CSV next to the components
  --device D            auto, cpu, cuda (validate); fit computes in fp64 on the CPU
Config keys are given as for train: --recipe.n_fg=7, --signal_dir DIR ...
)";

struct Request {
  bool plot = false;
  std::optional<std::string> output, components;
  std::int64_t samples = 0;
  config::Resolved config;
};

Request request_of(config::Arguments& arguments, std::int64_t samples) {
  Request request;
  request.plot = arguments.flag("plot");
  request.output = arguments.value("output");
  request.components = arguments.value("pca_components");
  request.samples = arguments.integer("num_samples", samples, 1);
  request.config = resolve_command_config(entry(), arguments).resolved;
  return request;
}

// The config and the sky on which `pca fit` and `pca validate` work.
struct Task {
  RecipeConfig recipe;
  RunConfig shared;
  Sky sky;
  std::uint64_t seed;
};

Task task_of(const Request& request) {
  Task task;
  const config::Resolved& config = request.config;
  task.recipe = config::read<Sections>(config.values).recipe;
  task.shared = config::read<RunConfig>(config.values);
  task.seed = static_cast<std::uint64_t>(task.shared.train.seed);
  const SkyFolders folders = sky_folders(task.recipe, task.shared.data);
  task.sky = open_sky(task.recipe, folders.signal, folders.foreground, task.seed, open_hdf5(), task.shared.data);
  for (const std::string& text : task.sky.notices) std::cout << text << "\n";
  return task;
}

std::string eigenvalue_text(const nn::ForegroundPca& pca) {
  std::string text;
  for (std::int64_t i = 0; i < std::min<std::int64_t>(10, pca.frequencies()); ++i)
    text += (i == 0 ? "" : " ") + significant(pca.eigenvalues()[i].item<double>(), 4);
  return text;
}

// Refuses to replace an existing file unless it holds components, because any other file may belong to the data.
void refuse_other_file(const stdfs::path& output) {
  std::error_code ignored;
  if (!stdfs::exists(output, ignored)) return;
  try {
    (void)nn::ForegroundPca::load(output);
  } catch (const std::exception&) {
    throw UsageError({output.string() + " holds something else than components, and would be replaced", "flag --output",
                      "give another name, or remove the file first"});
  }
}

int fit(const Request& request) {
  // A file that can't be written is refused now, before the fit, which may take hours.
  if (request.output && stdfs::is_directory(*request.output))
    throw UsageError({*request.output + " is a folder", "flag --output", "name a file: --output FILE.safetensors"});
  if (request.output) refuse_other_file(*request.output);
  const Task task = task_of(request);
  if (request.output && stdfs::path(*request.output).has_parent_path())
    Fs::real().create_directories(stdfs::path(*request.output).parent_path());
  const RunNames& run = task.shared.run;
  const bool has_run = !run.dir.empty() || !run.name.empty();
  const stdfs::path file = pca_file_name(task.recipe.n_fg);
  const stdfs::path output = request.output ? stdfs::path(*request.output) : has_run ? folder_of_run(entry(), run) / file : file;
  telemetry::Console console(telemetry::Console::Mode::automatic, 2);
  const double begin = steady_seconds();
  double last = begin;
  const auto progress = [&](std::int64_t done, std::int64_t all) {
    if (steady_seconds() - last < 1 && done != all) return;
    last = steady_seconds();
    console.line("fit  " + with_commas(done) + "/" + with_commas(all) + " samples  " + human_duration(last - begin));
  };
  const Tell left_out = [&](const std::string& why) { console.warning("left out: " + why); };
  const nn::ForegroundPca pca = fit_pca(task.recipe, task.sky, task.seed, request.samples, task.shared.data, progress, left_out);
  pca.save(Fs::real(), output);
  std::cout << "N_FG                 " << pca.n_fg() << "\n"
            << "N_freq               " << pca.frequencies() << "\n"
            << "samples              " << pca.facts.at("num_samples") << "\n"
            << "top eigenvalues      " << eigenvalue_text(pca) << "\n"
            << "variance explained   " << significant(pca.variance_explained(), 12) << "\n"
            << "written              " << output.string() << "\n";
  return 0;
}

struct Comparison {
  double stored_ms = 0, batch_ms = 0, difference_sum = 0, difference_max = 0, error = 0, size = 0;
  std::int64_t values = 0;
};

void compare(const nn::ForegroundPca& pca, const at::Tensor& pixels, const RecipeConfig& recipe, Comparison& all) {
  const auto timed = [](double& milliseconds, const auto& run) {
    const double begin = steady_seconds();
    at::Tensor result = run();
    if (!result.is_cpu()) (void)result.flatten()[0].item<float>();  // reading a value waits for the device
    milliseconds += (steady_seconds() - begin) * 1e3;
    return result;
  };
  (void)pca.clean(pixels).sum().item<float>();  // an untimed call first, as a warm-up
  const at::Tensor stored = timed(all.stored_ms, [&] { return pca.clean(pixels); });
  const at::Tensor batch = timed(all.batch_ms, [&] { return clean_by_batch(pixels, recipe.n_fg); });
  const at::Tensor difference = (stored - batch).abs().to(at::kDouble);
  all.difference_sum += difference.sum().item<double>();
  all.difference_max = std::max(all.difference_max, difference.max().item<double>());
  all.error += difference.square().sum().item<double>();
  all.size += batch.to(at::kDouble).square().sum().item<double>();
  all.values += pixels.numel();
}

int validate(const Request& request) {
  if (!request.components)
    throw UsageError({"validate needs --pca-components FILE", "millrace pca validate", "millrace pca fit writes one"});
  keep_memory_unless_off(request.config);  // keeps freed memory, as a training run does
  const Task task = task_of(request);
  const nn::ForegroundPca pca = nn::ForegroundPca::load(*request.components);
  check_pca(pca, task.recipe, task.sky, *request.components, [](const std::string& text) { std::cout << text << "\n"; });
  const at::Device device = ready_device(task.shared.device);

  const SkySource source = training_source(task.recipe, task.sky);
  const std::int64_t samples = std::min(request.samples, source.size());
  Comparison all;
  for (std::int64_t i = 0; i < samples; ++i) {
    const at::Tensor x = training_input(source, i, task.seed).unsqueeze(0);
    compare(pca, nn::as_pixels(x).to(device), task.recipe, all);
  }
  const auto n = static_cast<double>(samples);
  std::cout << "samples              " << samples << " of " << to_text(source.fields()[0].shape) << " on " << device.str() << "\n"
            << "stored components    " << significant(all.stored_ms / n, 4) << " ms a sample\n"
            << "of each batch        " << significant(all.batch_ms / n, 4) << " ms a sample\n"
            << "speed-up             " << significant(all.batch_ms / all.stored_ms, 4) << "\n"
            << "difference           mean " << significant(all.difference_sum / static_cast<double>(all.values), 3) << ", max "
            << significant(all.difference_max, 3) << " kelvin\n"
            << "relative error       " << significant(std::sqrt(all.error / all.size), 3)
            << "   expected, because components fitted to one batch remove more from that batch; judge by the network's metrics\n"
            << "variance explained   " << significant(pca.variance_explained(), 12) << "\n";
  if (request.plot) {
    std::string csv = "component,eigenvalue\n";
    for (std::int64_t i = 0; i < pca.frequencies(); ++i)
      csv += std::to_string(i + 1) + "," + format::csv_number(pca.eigenvalues()[i].item<double>()) + "\n";
    const stdfs::path path = stdfs::path(*request.components).replace_extension(".eigenvalues.csv");
    write_atomically(Fs::real(), path, csv);
    std::cout << "eigenvalues          " << path.string() << "\n";
  }
  return 0;
}

}  // namespace

int pca_command(std::span<const std::string> words) {
  config::Arguments arguments(words);
  if (arguments.flag("help") || arguments.flag("h")) {
    std::cout << kHelp;
    return 0;
  }
  constexpr std::int64_t kFitted = 100, kCompared = 5;  // the default numbers of samples, for `pca fit` and for `pca validate`
  const std::string verb = arguments.positional().value_or("");
  if (verb == "fit") return fit(request_of(arguments, kFitted));
  if (verb == "validate") return validate(request_of(arguments, kCompared));
  throw UsageError({verb.empty() ? "pca needs a verb" : "pca has no verb " + quoted(verb), "millrace pca",
                    "use fit or validate; millrace pca --help explains both"});
}

}  // namespace millrace::recipes::cosmology
