#include "recipes/autoencoder_3d/codec_commands.h"

#include <filesystem>
#include <iostream>
#include <map>
#include <optional>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/config/arguments.h"
#include "millrace/config/schema_of.h"
#include "millrace/train/run/loaded.h"
#include "recipes/autoencoder_3d/codec.h"

namespace millrace::recipes::autoencoder_3d {
namespace {

namespace stdfs = std::filesystem;

constexpr std::string_view kEncodeHelp = R"(usage: millrace encode --run RUN FILE... --out DIR [options]

Encodes each volume and writes the mean of its latent distribution to DIR/NAME.latent.nii.gz, with the channels as the fourth axis
and at the volume's position in space. FILE is .nii, .nii.gz (the first volume of a series) or .npz (2,D,H,W). Values are scaled
by percentiles 0 and 99.5 of the whole volume, which the latent file stores for millrace decode.

  --run RUN     folder of a run or a snapshot of autoencoder_3d
  --out DIR     folder for the output, created if it is missing
  --tile N      voxels along each axis that go through the network at once (0: the whole volume if half of the free memory is
                enough for it, else the largest tiles that fit); tiles overlap and are blended
  --device D    auto, cpu, cuda, cuda:1
)";

constexpr std::string_view kDecodeHelp = R"(usage: millrace decode --run RUN FILE... --out DIR [options]

Decodes each latent file NAME.latent.nii.gz that millrace encode wrote, and writes the volume to DIR/NAME.decoded.nii.gz as f32.
The decoded volume has the range of values, the shape and the position of the original one. Values above the original's percentile
99.5 are cut off.

  --run RUN     folder of the run or snapshot with which the files were encoded
  --out DIR     folder for the output, created if it is missing
  --tile N      voxels of the volume along each axis that leave the network at once (0: as for millrace encode)
  --device D    auto, cpu, cuda, cuda:1
)";

struct Request {
  bool help = false;
  std::optional<std::string> run, out, device;
  std::int64_t tile = 0;
  std::vector<stdfs::path> files;
};

Request parse(const std::string& command, std::span<const std::string> words) {
  config::Arguments arguments(words);
  Request request{.help = arguments.flag("help") || arguments.flag("h")};
  if (request.help) return request;
  const auto last_of = [&](std::initializer_list<std::string_view> names) {
    auto found = arguments.values(names);
    return found.empty() ? std::nullopt : std::optional(std::move(found.back()));
  };
  request.run = last_of({"run", "from"});
  request.out = arguments.value("out");
  request.device = last_of({"device", "device.name"});
  request.tile = arguments.integer("tile", 0, 0);
  while (auto word = arguments.positional()) {
    if (!request.files.empty() || *word != "autoencoder_3d") request.files.emplace_back(*word);
  }
  arguments.finish(command);
  return request;
}

void require(const std::string& command, bool is_there, const std::string& what, const std::string& next) {
  if (!is_there) throw UsageError({what, "millrace " + command, next});
}

// The name without its ending, such as "sub-01" for "sub-01.nii.gz". If `encodes` is false, ".latent" is removed too.
std::string stem_of(const stdfs::path& file, bool encodes) {
  stdfs::path name = file.filename();
  if (name.extension() == ".gz") name = name.stem();
  name = name.stem();
  if (!encodes && name.extension() == ".latent") name = name.stem();
  return name.string();
}

std::vector<stdfs::path> outputs_of(const std::string& command, const Request& request, bool encodes) {
  std::vector<stdfs::path> outputs;
  std::map<stdfs::path, stdfs::path> taken;
  for (const stdfs::path& file : request.files) {
    outputs.push_back(stdfs::path(*request.out) / (stem_of(file, encodes) + (encodes ? ".latent.nii.gz" : ".decoded.nii.gz")));
    const auto [other, is_new] = taken.emplace(outputs.back(), file);
    require(command, is_new, other->second.string() + " and " + file.string() + " would both become " + outputs.back().string(),
            "write them into different folders");
  }
  return outputs;
}

int run_command(const std::string& command, bool encodes, const std::function<Entry()>& row, std::span<const std::string> words) {
  const Request request = parse(command, words);
  if (request.help) {
    std::cout << (encodes ? kEncodeHelp : kDecodeHelp);
    return 0;
  }
  require(command, request.run.has_value(), "no run is named", "give --run RUN: the folder of a trained run");
  require(command, request.out.has_value(), "no output folder is given", "give --out DIR");
  require(command, !request.files.empty(), "no file is named", "give at least one file; millrace " + command + " --help");
  const std::vector<stdfs::path> outputs = outputs_of(command, request, encodes);
  telemetry::Console console(telemetry::Console::Mode::automatic, 2);
  const Json overrides = request.device ? Json{{"device.name", *request.device}} : Json::object();
  Loaded loaded = load_for_inference(row(), *request.run, nullptr, overrides, console);
  console.line(loaded.which);
  auto& model = dynamic_cast<VolumeGan&>(loaded.recipe->model());
  const RecipeConfig recipe = config::read<Sections>(loaded.config.values).recipe;
  VolumeCodec codec(model.autoencoder(), recipe,
                    {.device = loaded.device, .autocast = loaded.autocast, .tile = request.tile, .weights = loaded.which});
  Fs& fs = Fs::real();
  fs.create_directories(*request.out);
  for (std::size_t i = 0; i < outputs.size(); ++i)
    console.line(encodes ? codec.encode(fs, request.files[i], outputs[i]) : codec.decode(fs, request.files[i], outputs[i]));
  return 0;
}

}  // namespace

RecipeCommand encode_command(std::function<Entry()> row) {
  return {"encode", "encode volumes into latent volumes, as NIfTI",
          [row = std::move(row)](std::span<const std::string> words) { return run_command("encode", true, row, words); }};
}

RecipeCommand decode_command(std::function<Entry()> row) {
  return {"decode", "decode latent volumes into volumes, as NIfTI",
          [row = std::move(row)](std::span<const std::string> words) { return run_command("decode", false, row, words); }};
}

}  // namespace millrace::recipes::autoencoder_3d
