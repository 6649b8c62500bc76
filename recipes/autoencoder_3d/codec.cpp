#include "recipes/autoencoder_3d/codec.h"

#include <ATen/TensorIndexing.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "millrace/base/clock.h"
#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/core/host_values.h"
#include "millrace/data/files/nifti_writer.h"
#include "millrace/device/autocast.h"
#include "millrace/device/free_memory.h"
#include "recipes/autoencoder_3d/scaling.h"
#include "recipes/autoencoder_3d/volume_file.h"

namespace millrace::recipes::autoencoder_3d {
namespace {

constexpr const char* kKind = "autoencoder_3d latent";
// The number of tensors of the first level's size that exist at the same time, including workspaces. Up to 12 were seen in the
// decoder.
constexpr double kTensorsAtOnce = 14;
constexpr double kLibraries = 128.0 * 1024 * 1024;  // bytes that libraries allocate in the first pass

std::string sizes_text(at::IntArrayRef sizes) {
  std::string text;
  for (const std::int64_t size : sizes) text += (text.empty() ? "" : "x") + std::to_string(size);
  return text;
}

// Where each tile along an axis begins. The last tile ends where the axis ends.
std::vector<std::int64_t> starts(std::int64_t size, std::int64_t tile, std::int64_t overlap) {
  std::vector<std::int64_t> begins = {0};
  while (begins.back() + tile < size) begins.push_back(std::min(begins.back() + tile - overlap, size - tile));
  return begins;
}

// The blending weights of a tile's voxels along an axis. The weights rise over `overlap` voxels from both ends of the tile.
at::Tensor ramp(std::int64_t size, std::int64_t overlap) {
  const at::Tensor from_begin = at::arange(size, at::kFloat) + 0.5;
  const at::Tensor nearest = at::minimum(from_begin, static_cast<double>(size) - from_begin);
  return nearest.clamp_max(std::max(0.5, static_cast<double>(overlap)));
}

at::Tensor block(const at::Tensor& x, const std::array<std::int64_t, 3>& begin, const std::array<std::int64_t, 3>& size) {
  at::Tensor part = x;
  for (std::size_t axis = 0; axis < 3; ++axis) part = part.narrow(static_cast<std::int64_t>(axis) + 2, begin[axis], size[axis]);
  return part;
}

std::span<const std::byte> bytes_of(const at::Tensor& values) {
  return {static_cast<const std::byte*>(values.const_data_ptr()), values.nbytes()};
}

data::NiftiHeader place_of(const VolumeFile& file) {
  if (!file.is_archive) return data::NiftiFile(file.path).header();
  data::NiftiHeader place;
  for (std::size_t i = 0; i < 3; ++i) {
    const double size = file.spacing[2 - i] > 0 ? file.spacing[2 - i] : 1;
    place.pixdim[i + 1] = place.affine[i][i] = size;
  }
  place.affine[3][3] = 1;
  place.sform_code = 1;
  place.units = 2;
  return place;
}

// A header for an array of this shape, with all other fields as in `place`.
data::NiftiHeader header_of(const data::NiftiHeader& place, at::IntArrayRef shape, const std::string& description) {
  data::NiftiHeader header = place;
  header.dtype = DType::f32;
  header.shape = shape.vec();
  header.scaled = false;
  header.description = description;
  for (std::size_t i = 4; i < 8; ++i) header.pixdim[i] = 1;
  return header;
}

}  // namespace

std::string text_of(const LatentRecord& record) {
  Json affine = Json::array();
  for (const auto& row : record.place.affine) affine.push_back(row);
  return Json{{"kind", kKind},
              {"shape", record.shape},
              {"ranges", record.ranges},
              {"pixdim", record.place.pixdim},
              {"affine", affine},
              {"qform", record.place.qform},
              {"qform_code", record.place.qform_code},
              {"sform_code", record.place.sform_code},
              {"units", record.place.units},
              {"weights", record.weights}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

namespace {

// Reads a number. null becomes NaN, because JSON stores a number that is not finite as null.
double number_of(const Json& json) { return json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.get<double>(); }

template <std::size_t kCount>
void take_numbers(const Json& json, std::array<double, kCount>& numbers) {
  for (std::size_t i = 0; i < kCount; ++i) numbers[i] = number_of(json.at(i));
}

}  // namespace

std::optional<LatentRecord> record_of(const std::string& text, std::int64_t channels) {
  const Json tree = Json::parse(text.substr(0, text.find('\0')), nullptr, false);
  if (!tree.is_object() || tree.value("kind", Json()) != Json(kKind)) return std::nullopt;
  LatentRecord record;
  try {
    record.shape = tree.at("shape").get<std::array<std::int64_t, 3>>();
    record.ranges = tree.at("ranges").get<std::vector<std::array<double, 2>>>();
    take_numbers(tree.at("pixdim"), record.place.pixdim);
    for (std::size_t row = 0; row < 4; ++row) take_numbers(tree.at("affine").at(row), record.place.affine[row]);
    take_numbers(tree.at("qform"), record.place.qform);
    record.place.qform_code = tree.at("qform_code").get<std::int16_t>();
    record.place.sform_code = tree.at("sform_code").get<std::int16_t>();
    record.place.units = tree.at("units").get<std::uint8_t>();
    record.weights = tree.at("weights").get<std::string>();
  } catch (const Json::exception&) {
    return std::nullopt;
  }
  const bool is_whole = static_cast<std::int64_t>(record.ranges.size()) == channels &&
                        std::ranges::all_of(record.shape, [](std::int64_t size) { return size >= 1; });
  return is_whole ? std::optional(record) : std::nullopt;
}

at::Tensor in_tiles(const at::Tensor& x, const Tiles& tiles, const std::function<at::Tensor(const at::Tensor&)>& fn) {
  std::array<std::vector<std::int64_t>, 3> begins;
  std::array<std::int64_t, 3> size{};
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const std::int64_t whole = x.size(static_cast<std::int64_t>(axis) + 2);
    size[axis] = std::min(whole, tiles.tile);
    begins[axis] = starts(whole, size[axis], tiles.overlap);
  }
  if (begins[0].size() * begins[1].size() * begins[2].size() == 1) return fn(x);
  const auto out_of = [&](std::int64_t voxels) { return voxels * tiles.up / tiles.down; };
  at::Tensor sum, weights, weight;
  for (const std::int64_t d : begins[0]) {
    for (const std::int64_t h : begins[1]) {
      for (const std::int64_t w : begins[2]) {
        const at::Tensor part = fn(block(x, {d, h, w}, size)).to(at::kFloat);
        if (!sum.defined()) {
          const auto axis_ramp = [&](std::size_t axis) { return ramp(out_of(size[axis]), out_of(tiles.overlap)); };
          weight = (axis_ramp(0).view({-1, 1, 1}) * axis_ramp(1).view({-1, 1}) * axis_ramp(2)).to(part.device());
          const std::array<std::int64_t, 3> all = {out_of(x.size(2)), out_of(x.size(3)), out_of(x.size(4))};
          sum = at::zeros({1, part.size(1), all[0], all[1], all[2]}, part.options());
          weights = at::zeros({1, 1, all[0], all[1], all[2]}, part.options());
        }
        const std::array<std::int64_t, 3> begin = {out_of(d), out_of(h), out_of(w)};
        const std::array<std::int64_t, 3> out = {part.size(2), part.size(3), part.size(4)};
        block(sum, begin, out).add_(part * weight);
        block(weights, begin, out).add_(weight);
      }
    }
  }
  return sum.div_(weights);
}

double pass_bytes(const RecipeConfig& recipe, double voxels) {
  double most = 0;
  for (std::size_t level = 0; level < recipe.channels.size(); ++level)
    most = std::max(most, static_cast<double>(recipe.channels[level]) / std::pow(8.0, static_cast<double>(level)));
  return kLibraries + voxels * sizeof(float) * (most * kTensorsAtOnce + static_cast<double>(recipe.image_channels));
}

VolumeCodec::VolumeCodec(AutoencoderKL& model, const RecipeConfig& recipe, Options options)
    : model_(model), recipe_(recipe), options_(std::move(options)) {}

std::int64_t VolumeCodec::tile_for(const at::Tensor& x, bool encodes, const std::filesystem::path& file) const {
  const std::int64_t factor = size_divisor(recipe_);
  const auto up = [&](std::int64_t voxels) { return (voxels + factor - 1) / factor * factor; };
  if (options_.tile > 0) return up(options_.tile);
  const std::int64_t scale = encodes ? 1 : factor;
  const std::array<std::int64_t, 3> size = {scale * x.size(2), scale * x.size(3), scale * x.size(4)};
  const std::int64_t longest = *std::ranges::max_element(size);
  const auto free = static_cast<double>(options_.free > 0 ? options_.free : device::available_memory_bytes() / 2);
  const auto bytes = [&](std::int64_t tile) {
    double voxels = 1;
    for (const std::int64_t side : size) voxels *= static_cast<double>(std::min(side, tile));
    return pass_bytes(recipe_, voxels);
  };
  const std::int64_t patch = up(*std::ranges::max_element(recipe_.patch_size));
  std::int64_t tile = longest;
  while (tile > patch && bytes(tile) > free) tile = std::max(patch, up(tile * 3 / 4));
  if (bytes(tile) <= free) return tile;
  throw DataError({"a pass over " + std::to_string(tile) + " voxels along each axis takes about " + human_bytes(bytes(tile)) +
                       ", but half of the free memory is " + human_bytes(free),
                   file.string(), "give a smaller --tile, or end other programs"});
}

at::Tensor VolumeCodec::pass(const at::Tensor& x, bool encodes, std::string& how) {
  const at::NoGradGuard no_grad;
  const std::int64_t factor = size_divisor(recipe_);
  const std::int64_t tile = tile_for(x, encodes, file_);
  const std::int64_t overlap = std::max(factor, tile / 4 / factor * factor);
  Tiles tiles = encodes ? Tiles{.tile = tile, .overlap = overlap, .grain = factor, .up = 1, .down = factor}
                        : Tiles{.tile = tile / factor, .overlap = overlap / factor, .grain = 1, .up = factor, .down = 1};
  if (tiles.overlap >= tiles.tile) tiles.overlap = tiles.tile - tiles.grain;
  std::int64_t passes = 0;
  const auto one = [&](const at::Tensor& part) {
    ++passes;
    const device::Autocast autocast(options_.device.type(), options_.autocast);
    const at::Tensor moved = part.contiguous().to(options_.device);
    return (encodes ? model_.encode_mean(moved) : model_.decode(moved)).to(at::kFloat).to(at::kCPU);
  };
  at::Tensor result = in_tiles(x, tiles, one);
  if (passes > 1) {
    how = "in " + std::to_string(passes) + " tiles of " + std::to_string(tile) +
          " voxels, blended; each tile is normalised on its own, so values differ a little from those of the whole volume";
  }
  return result;
}

std::string VolumeCodec::encode(Fs& fs, const std::filesystem::path& in, const std::filesystem::path& out) {
  const double begin = steady_seconds();
  file_ = in;
  const VolumeFile file = open_volume_file(in);
  const Shape& shape = file.shape;
  const std::int64_t channels = recipe_.image_channels;
  const std::int64_t volumes = std::min(channels, file.volumes);
  std::vector<std::byte> kept(kept_bytes(file) * static_cast<std::size_t>(volumes));
  read_volumes(file, volumes, kept);
  at::Tensor x = at::empty({1, channels, shape[0], shape[1], shape[2]}, at::kFloat);
  LatentRecord record{
      .shape = {shape[0], shape[1], shape[2]}, .ranges = {}, .place = place_of(file), .weights = options_.weights};
  for (std::int64_t channel = 0; channel < channels; ++channel) {
    const auto volume =
        std::span(kept).subspan(kept_bytes(file) * static_cast<std::size_t>(std::min(channel, volumes - 1)), kept_bytes(file));
    const at::Tensor to = x[0][channel];
    cut_volume(file, volume, {0, 0, 0}, shape, {to.mutable_data_ptr<float>(), static_cast<std::size_t>(to.numel())});
  }
  const at::Tensor range = range_of(x);
  for (std::int64_t channel = 0; channel < channels; ++channel) {
    const std::vector<double> both = host_values<double>(range[0][channel]);
    record.ranges.push_back({both[0], both[1]});
  }
  x = scale_to_unit(x, range).x;
  const std::int64_t factor = size_divisor(recipe_);
  std::vector<std::int64_t> pad;
  for (const std::int64_t size : {shape[2], shape[1], shape[0]}) {
    pad.push_back(0);
    pad.push_back((factor - size % factor) % factor);
  }
  x = at::constant_pad_nd(x, pad);
  std::string how;
  const at::Tensor latent = pass(x, true, how)[0].contiguous();
  const std::vector<std::string> comments = {text_of(record)};
  data::write_nifti(
      fs, out, header_of(data::with_voxels_of(record.place, static_cast<double>(factor)), latent.sizes(), "mean latent volume"),
      bytes_of(latent), comments);
  return in.string() + ": " + sizes_text(shape) + ", values " + significant(record.ranges[0][0], 4) + " to " +
         significant(record.ranges[0][1], 4) + " -> " + sizes_text(latent.sizes()) + ", " + out.string() + ", " +
         human_duration(steady_seconds() - begin) +
         (volumes < channels ? "\n  the file has one volume, which serves as image and as label" : "") +
         (file.series > volumes ? "\n  of the series of " + std::to_string(file.series) + " volumes the first " +
                                      (volumes == 1 ? "is" : std::to_string(volumes) + " are") + " encoded"
                                : "") +
         (how.empty() ? "" : "\n  " + how);
}

std::string VolumeCodec::decode(Fs& fs, const std::filesystem::path& in, const std::filesystem::path& out) {
  const double begin = steady_seconds();
  file_ = in;
  const data::NiftiFile file(in);
  const data::NiftiHeader& header = file.header();
  if (header.shape.size() != 4 || header.shape[0] != recipe_.latent_channels) {
    throw DataError({"an array of " + to_text(header.shape) + " is no latent volume of this model, which has " +
                         std::to_string(recipe_.latent_channels) + " channels (the fourth axis of a NIfTI file)",
                     in.string(), "give a file that millrace encode wrote with this run"});
  }
  const Shape& shape = header.shape;
  at::Tensor latent = at::empty({1, shape[0], shape[1], shape[2], shape[3]}, at::kFloat);
  file.read_scaled({latent.mutable_data_ptr<float>(), static_cast<std::size_t>(latent.numel())});
  std::optional<LatentRecord> record;
  for (const data::NiftiHeader::Extension& extension : header.extensions) {
    if (record || extension.code != data::kNiftiComment) continue;
    const std::vector<std::byte> text = file.extension(extension);
    record = record_of({reinterpret_cast<const char*>(text.data()), text.size()}, recipe_.image_channels);
  }
  const std::int64_t factor = size_divisor(recipe_);
  std::string notice;
  for (std::size_t axis = 0; record && axis < 3; ++axis) {
    if ((record->shape[axis] + factor - 1) / factor == shape[axis + 1]) continue;
    notice = "\n  the file's record describes another grid, so the record is not used";
    record.reset();
  }
  std::string how;
  at::Tensor x = pass(latent, false, how).clamp_(0, 1)[0];
  data::NiftiHeader place = data::with_voxels_of(header, 1 / static_cast<double>(factor));
  if (record) {
    for (std::size_t axis = 0; axis < 3; ++axis) x = x.narrow(static_cast<std::int64_t>(axis) + 1, 0, record->shape[axis]);
    x = x.contiguous();
    for (std::size_t channel = 0; channel < record->ranges.size(); ++channel) {
      const auto [low, high] = record->ranges[channel];
      x[static_cast<std::int64_t>(channel)].mul_(high - low).add_(low);
    }
    place = record->place;
    if (recipe_.target == Target::label)
      notice +=
          "\n  the network predicts the label from the image; the predicted values are scaled to the image's range, not to the "
          "label's";
    if (record->weights != options_.weights) notice += "\n  the file was encoded with other weights: " + record->weights;
  } else {
    notice += "\n  the file has no record of the volume that was encoded: values go from 0 to 1";
  }
  x = (x.size(0) == 1 ? x[0] : x).contiguous();
  data::write_nifti(fs, out, header_of(place, x.sizes(), "decoded from a latent volume"), bytes_of(x));
  return in.string() + ": " + sizes_text(latent.sizes().slice(1)) + " -> " + sizes_text(x.sizes()) + ", " + out.string() + ", " +
         human_duration(steady_seconds() - begin) + notice + (how.empty() ? "" : "\n  " + how);
}

}  // namespace millrace::recipes::autoencoder_3d
