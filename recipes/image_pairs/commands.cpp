#include "recipes/image_pairs/commands.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <map>
#include <numeric>
#include <optional>
#include <vector>

#include "millrace/base/clock.h"
#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/config/arguments.h"
#include "millrace/config/schema_of.h"
#include "millrace/data/files/folder.h"
#include "millrace/device/autocast.h"
#include "millrace/format/csv.h"
#include "millrace/memory/budget.h"
#include "millrace/system/on_all_cores.h"
#include "millrace/train/run/loaded.h"
#include "recipes/image_pairs/labels.h"
#include "recipes/image_pairs/originals/adapters.h"
#include "recipes/image_pairs/pair_source.h"
#include "recipes/image_pairs/rank.h"
#include "recipes/image_pairs/ranking.h"
#include "recipes/image_pairs/recipe.h"

namespace millrace::recipes::image_pairs {
namespace {

namespace stdfs = std::filesystem;

constexpr std::string_view kRankHelp = R"(usage: millrace rank --run RUN FOLDER|FILE... [options]

Ranks images by a trained network's answers about pairs of them, each pair in both orders, and prints the list, the best first.
Strengths are those of the Bradley-Terry model: a difference of 1 means odds of 2.7 to 1. FILE is .png, .jpg or .jpeg.

  --run RUN         folder of a run or a snapshot of image_pairs
  --opponents N     number of images with which each image is compared (default 20; 0: all others)
  --out FILE        also write the list as CSV
  --labels FILE     lines "name score"; also prints how well the ranking agrees with them
  --batch N         number of pairs at once (default 32)
  --seed N          seed of the choice of opponents (default 0)
  --device D        auto, cpu, cuda, cuda:1
)";

constexpr std::string_view kAdapterHelp = R"(usage: millrace adapter --run RUN --out DIR [options]

Writes the adapters and the projector that a run has trained, as adapter_model.safetensors and adapter_config.json for PEFT in
Python. With --merge, writes the weights of tower, projector and decoder with the adapters merged in, under their published names.

  --run RUN         folder of a run or a snapshot of image_pairs
  --out DIR         folder for the output, created if it is missing
  --merge           write whole weights instead of the adapter
  --shard SIZE      largest size of a file of merged weights (default 5 GB)
)";

// The arguments that `millrace rank` and `millrace adapter` share.
struct Request {
  std::string command;
  std::string run;
  std::optional<std::string> device;
};

Request request_of(const std::string& command, config::Arguments& arguments) {
  Request request{.command = command, .run = "", .device = std::nullopt};
  auto runs = arguments.values({"run", "from"});
  auto devices = arguments.values({"device", "device.name"});
  if (!devices.empty()) request.device = std::move(devices.back());
  if (runs.empty()) throw UsageError({"no run is named", "millrace " + command, "give --run RUN: the folder of a trained run"});
  request.run = std::move(runs.back());
  return request;
}

Loaded load(const std::function<Entry()>& row, const Request& request, telemetry::Console& console) {
  const Json overrides = request.device ? Json{{"device.name", *request.device}} : Json::object();
  Loaded loaded = load_for_inference(row(), request.run, nullptr, overrides, console);
  console.line(loaded.which);
  return loaded;
}

std::vector<stdfs::path> images_named(const std::vector<stdfs::path>& words, std::vector<std::string>& notices) {
  std::vector<stdfs::path> files;
  for (const stdfs::path& word : words) {
    std::error_code none;
    if (!stdfs::is_directory(word, none)) {
      files.push_back(word);
      continue;
    }
    std::ranges::move(data::files_in(word, {".png", ".jpg", ".jpeg"}, &notices), std::back_inserter(files));
  }
  if (files.size() < 2)
    throw UsageError(
        {"there is only one image, but a ranking needs two", "millrace rank", "name a folder of images, or several files"});
  return files;
}

// Throws if the output file is also an input, because writing the output would replace the input.
void refuse_input_as_output(const stdfs::path& out, const std::vector<stdfs::path>& inputs) {
  for (const stdfs::path& input : inputs) {
    std::error_code ignored;
    if (stdfs::equivalent(out, input, ignored))
      throw UsageError({out.string() + " is an input file, which the output would replace", "flag --out", "give another name"});
  }
}

at::Tensor read_images(const std::vector<stdfs::path>& files, const RecipeConfig& recipe) {
  const auto count = static_cast<std::int64_t>(files.size());
  at::Tensor images = at::empty({count, recipe.image_size, recipe.image_size, 3}, at::kByte);
  auto* data = images.mutable_data_ptr<std::uint8_t>();
  const std::int64_t each = images[0].numel();
  on_all_cores(count, [&](std::int64_t i) {
    const std::vector<std::uint8_t> pixels = read_image(files[static_cast<std::size_t>(i)], recipe);
    std::ranges::copy(pixels, data + i * each);
  });
  return images;
}

// True if the file's path ends with the label, including the folders in the label.
bool has_name(const stdfs::path& file, const std::string& label) {
  const std::string path = file.lexically_normal().generic_string();
  const std::string end = stdfs::path(label).lexically_normal().generic_string();
  return path == end || path.ends_with("/" + end);
}

// Returns, among the labels with the file's name, the one that means this file; null if there is none. `alone`: no other file
// has this name. If `alone` and if a single label has the name, that label means the file, even if it names other folders.
const Labelled* label_of(const stdfs::path& file, const std::vector<Labelled>& of_name, bool alone) {
  const Labelled* best = nullptr;
  for (const Labelled& label : of_name) {
    if (has_name(file, label.name) && (best == nullptr || best->name.size() < label.name.size())) best = &label;
  }
  return best == nullptr && alone && of_name.size() == 1 ? of_name.data() : best;
}

// The score of each file that `labels` names; NaN for other files. Throws if a label may mean either of two files.
std::vector<double> scores_of(const stdfs::path& labels, const std::vector<stdfs::path>& files) {
  std::map<std::string, std::vector<Labelled>> by_name;
  for (const Labelled& label : read_labels(labels)) by_name[stdfs::path(label.name).filename().string()].push_back(label);
  std::map<std::string, std::int64_t> called;
  for (const stdfs::path& file : files) ++called[file.filename().string()];
  std::map<const Labelled*, stdfs::path> taken;
  std::vector<double> scores;
  for (const stdfs::path& file : files) {
    const std::string name = file.filename().string();
    const Labelled* const label = label_of(file, by_name[name], called[name] == 1);
    scores.push_back(label == nullptr ? std::nan("") : label->score);
    if (label == nullptr) continue;
    if (const stdfs::path& other = taken.try_emplace(label, file).first->second; other != file)
      throw DataError({"the label " + quoted(label->name) + " may mean " + other.string() + " or " + file.string(),
                       labels.string(), "write each image name in the labels with its folder, such as \"a/1.png\""});
  }
  return scores;
}

std::string csv_of(const std::vector<stdfs::path>& files, const Ranking& ranking, const std::vector<std::size_t>& order) {
  const std::vector<std::string> head = {"rank", "image", "strength", "pairs"};
  std::string text = format::csv_line(head) + "\n";
  for (std::size_t place = 0; place < order.size(); ++place) {
    const std::size_t i = order[place];
    const std::vector<std::string> cells = {std::to_string(place + 1), files[i].string(),
                                            format::csv_number(ranking.strengths[i]), std::to_string(ranking.answers[i])};
    text += format::csv_line(cells) + "\n";
  }
  return text;
}

int run_rank(const std::function<Entry()>& row, std::span<const std::string> words) {
  config::Arguments arguments(words);
  if (arguments.flag("help") || arguments.flag("h")) {
    std::cout << kRankHelp;
    return 0;
  }
  const Request request = request_of("rank", arguments);
  const std::int64_t opponents = arguments.integer("opponents", 20, 0), batch = arguments.integer("batch", 32, 1);
  const std::int64_t seed = arguments.integer("seed", 0, 0);
  const auto out = arguments.value("out"), labels = arguments.value("labels");
  std::vector<stdfs::path> names;
  while (auto word = arguments.positional()) {
    if (!names.empty() || *word != "image_pairs") names.emplace_back(*word);
  }
  arguments.finish("rank");
  if (names.empty()) throw UsageError({"no image is named", "millrace rank", "name a folder of images; millrace rank --help"});
  std::vector<std::string> left_out;
  const std::vector<stdfs::path> files = images_named(names, left_out);
  if (out) refuse_input_as_output(*out, files);
  if (out && labels) refuse_input_as_output(*out, {*labels});
  telemetry::Console console(telemetry::Console::Mode::automatic, 2);
  for (const std::string& line : left_out) console.line("note: " + line);
  Loaded loaded = load(row, request, console);
  const RecipeConfig recipe = config::read<Sections>(loaded.config.values).recipe;
  const std::vector<double> known = labels ? scores_of(*labels, files) : std::vector<double>();
  const at::NoGradGuard no_grad;
  const device::Autocast autocast(loaded.device.type(), loaded.autocast);
  const Judge judge = [&](const at::Tensor& first, const at::Tensor& second) {
    const Tensors outputs = loaded.recipe->predict({{"first", first.to(loaded.device)}, {"second", second.to(loaded.device)}});
    return BothOrders{outputs.at("answers").cpu(), outputs.at("mirrored").cpu()};
  };
  double last = steady_seconds();
  const Ranking ranking = rank_images(read_images(files, recipe), judge, opponents, batch, static_cast<std::uint64_t>(seed),
                                      [&](std::int64_t done, std::int64_t all) {
                                        if (steady_seconds() - last < 2 && done != all) return;
                                        last = steady_seconds();
                                        console.line(with_commas(done) + "/" + with_commas(all) + " pairs");
                                      });
  std::vector<std::size_t> order(files.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater{}, [&](std::size_t i) { return ranking.strengths[i]; });
  for (std::size_t place = 0; place < order.size(); ++place)
    std::cout << place + 1 << "  " << fixed(ranking.strengths[order[place]], 2) << "  " << files[order[place]].string() << "\n";
  console.line(percent(ranking.agreement) + " of " + with_commas(ranking.pairs) + " pairs have the same answer in both orders");
  if (labels) {
    console.line("rank correlation with " + *labels + ": " + figure(spearman(known, ranking.strengths)) + " over " +
                 with_commas(std::ranges::count_if(known, [](double score) { return std::isfinite(score); })) + " images");
  }
  if (out) {
    write_atomically(Fs::real(), *out, csv_of(files, ranking, order));
    console.line("wrote " + *out);
  }
  return 0;
}

std::uint64_t bytes_of(const std::string& text) {
  const auto bytes = memory::parse_budget(text);
  if (!bytes || bytes->is_share)
    throw UsageError(
        {"--shard is " + quoted(text) + ", not a number of bytes", "millrace adapter", "write for example --shard=5GB"});
  return bytes->bytes(0);
}

int run_adapter(const std::function<Entry()>& row, std::span<const std::string> words) {
  config::Arguments arguments(words);
  if (arguments.flag("help") || arguments.flag("h")) {
    std::cout << kAdapterHelp;
    return 0;
  }
  const Request request = request_of("adapter", arguments);
  const auto out = arguments.value("out");
  const bool merges = arguments.flag("merge");
  const std::uint64_t shard = bytes_of(arguments.value("shard").value_or("5 GB"));
  if (auto word = arguments.positional(); word && *word != "image_pairs") arguments.add(*word);
  arguments.finish("adapter");
  if (!out) throw UsageError({"no output folder is given", "millrace adapter", "give --out DIR"});
  telemetry::Console console(telemetry::Console::Mode::automatic, 2);
  Loaded loaded = load(row, request, console);
  const RecipeConfig recipe = config::read<Sections>(loaded.config.values).recipe;
  if (!merges && !recipe.adapter.empty()) {  // merged weights are written to files with other names
    const stdfs::path file = "adapter_model.safetensors", begun_from = recipe.adapter;
    refuse_input_as_output(stdfs::path(*out) / file, {begun_from, begun_from / file});
  }
  auto& model = dynamic_cast<PairModel&>(loaded.recipe->model());
  if (!merges && !model.frozen()) {
    throw UsageError({"the run also trained tower and decoder, so the adapter alone would not reproduce the run's answers",
                      request.run, "use --merge, which writes whole weights"});
  }
  Fs& fs = Fs::real();
  fs.create_directories(*out);
  console.line(merges ? merge_adapters(fs, model, recipe, *out, shard) : write_adapter(fs, model, recipe, *out));
  return 0;
}

}  // namespace

RecipeCommand rank_command(std::function<Entry()> row) {
  return {"rank", "rank the images of a folder by a trained network's answers",
          [row = std::move(row)](std::span<const std::string> words) { return run_rank(row, words); }};
}

RecipeCommand adapter_command(std::function<Entry()> row) {
  return {"adapter", "export a run's adapters and projector for PEFT",
          [row = std::move(row)](std::span<const std::string> words) { return run_adapter(row, words); }};
}

}  // namespace millrace::recipes::image_pairs
