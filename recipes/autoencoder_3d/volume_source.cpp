#include "recipes/autoencoder_3d/volume_source.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/base/input_file.h"

namespace millrace::recipes::autoencoder_3d {
namespace {

bool has_label(const RecipeConfig& recipe) { return recipe.target == Target::label || recipe.image_channels == 2; }

class VolumeSource final : public data::Source {
 public:
  VolumeSource(std::vector<VolumeFile> files, Split split, const RecipeConfig& recipe)
      : files_(std::move(files)),
        keys_(has_label(recipe) ? 2 : 1),
        random_(split == Split::train),
        ranges_(recipe.scale_on == ScaleOn::volume),
        size_(random_ ? Shape(recipe.patch_size) : validation_size(files_, recipe)) {
    MR_CHECK(!files_.empty(), "a source of volumes has files");
    Shape shape = {1};
    shape.insert(shape.end(), size_.begin(), size_.end());
    fields_.push_back({"image", DType::f32, shape});
    if (keys_ == 2) fields_.push_back({"label", DType::f32, shape});
    if (ranges_) fields_.push_back({"range", DType::f32, {keys_, 2}});
    for (const VolumeFile& file : files_) paths_.push_back(file.path);
  }

  [[nodiscard]] std::span<const Field> fields() const override { return fields_; }
  [[nodiscard]] std::int64_t size() const override { return static_cast<std::int64_t>(files_.size()); }
  [[nodiscard]] std::string fingerprint() const override {
    return "volumes " + std::to_string(files_.size()) + (keys_ == 2 ? " pairs" : " images") +
           (random_ ? " random " : " middle ") + to_text(size_) + (ranges_ ? " with ranges" : "");
  }
  [[nodiscard]] std::vector<data::FileStamp> stamps() const override { return data::stamps_of(paths_); }
  [[nodiscard]] std::string describe(std::int64_t index) const override { return file(index).path.string(); }
  [[nodiscard]] bool looks_ahead() const override { return true; }
  void will_need(std::span<const std::int64_t> indices, const data::ReadRandom&) const noexcept override {
    for (const std::int64_t index : indices) will_need_file(file(index).path);
  }

  void read(std::span<const std::int64_t> indices, data::Rows rows, const data::ReadRandom& random) const override {
    static thread_local std::vector<std::byte> part;
    for (std::size_t i = 0; i < indices.size(); ++i) {
      part.resize(part_bytes(indices[i]));
      load(indices[i], part);
      write(indices[i], part, rows, i, random(i));
    }
  }

  // A part (what a cache keeps of a file) has the file's volumes, followed by the volumes' ranges if they are needed.
  [[nodiscard]] data::Keeps keeps() const override { return data::Keeps::parts; }
  [[nodiscard]] std::size_t part_bytes(std::int64_t part) const override {
    return volumes_bytes(file(part)) + (ranges_ ? range_bytes() : 0);
  }
  void load(std::int64_t part, std::span<std::byte> bytes) const override {
    const VolumeFile& from = file(part);
    const std::span<std::byte> volumes = bytes.first(volumes_bytes(from));
    read_volumes(from, volumes_of(from), volumes);
    if (!ranges_) return;
    std::array<float, 4> ranges{};
    for (std::int64_t key = 0; key < keys_; ++key) {
      const std::array<float, 2> range = range_of_volume(from, volume_of(from, volumes, key));
      std::copy(range.begin(), range.end(), ranges.begin() + 2 * key);
    }
    std::memcpy(bytes.data() + volumes.size(), ranges.data(), range_bytes());
  }
  [[nodiscard]] std::vector<std::string> part_texts() const override {
    std::vector<std::string> texts;
    for (const data::FileStamp& stamp : stamps()) {
      const std::string content = data::content_text(stamp);
      texts.push_back(content.empty() ? "" : content + " volumes " + std::to_string(keys_) + (ranges_ ? " ranges" : ""));
    }
    return texts;
  }
  // Returns a range of bytes for each plane of the crop, from the first to the last row that the crop needs, in each volume;
  // also the range of the percentiles, if the part has them.
  [[nodiscard]] std::vector<data::PartRange> looks_at(std::int64_t index, std::size_t,
                                                      const data::ReadRandom& random) const override {
    const VolumeFile& from = file(index);
    const Shape offset = place(from, random(0));
    const std::size_t row = static_cast<std::size_t>(from.shape[2]) * size_of(kept_dtype(from));
    const auto rows = static_cast<std::size_t>(std::min(size_[1], from.shape[1]));
    std::vector<data::PartRange> ranges;
    for (std::int64_t key = 0; key < volumes_of(from); ++key) {
      for (std::int64_t z = offset[0]; z < std::min(offset[0] + size_[0], from.shape[0]); ++z) {
        const auto first = static_cast<std::size_t>((key * from.shape[0] + z) * from.shape[1] + offset[1]);
        ranges.push_back({first * row, rows * row});
      }
    }
    if (ranges_) ranges.push_back({volumes_bytes(from), range_bytes()});
    return ranges;
  }
  void finish(std::int64_t index, std::span<const std::span<const std::byte>> parts, data::Rows rows,
              const data::ReadRandom& random) const override {
    write(index, parts[0], rows, 0, random(0));
  }

 private:
  [[nodiscard]] const VolumeFile& file(std::int64_t index) const { return files_[static_cast<std::size_t>(index)]; }
  [[nodiscard]] std::int64_t volumes_of(const VolumeFile& file) const { return std::min(keys_, file.volumes); }
  [[nodiscard]] std::size_t volumes_bytes(const VolumeFile& file) const {
    return kept_bytes(file) * static_cast<std::size_t>(volumes_of(file));
  }
  [[nodiscard]] std::size_t range_bytes() const { return static_cast<std::size_t>(keys_) * 2 * sizeof(float); }
  template <class Byte>
  [[nodiscard]] std::span<Byte> volume_of(const VolumeFile& file, std::span<Byte> volumes, std::int64_t key) const {
    const std::size_t bytes = kept_bytes(file);
    return volumes.subspan(key < volumes_of(file) ? static_cast<std::size_t>(key) * bytes : 0, bytes);
  }

  // Where the crop begins in the volume.
  [[nodiscard]] Shape place(const VolumeFile& from, Philox draws) const {
    Shape offset(3);
    for (std::size_t axis = 0; axis < 3; ++axis) {
      const std::int64_t room = std::max<std::int64_t>(from.shape[axis] - size_[axis], 0);
      offset[axis] = random_ ? static_cast<std::int64_t>(draws.below(static_cast<std::uint64_t>(room) + 1)) : room / 2;
    }
    return offset;
  }

  void write(std::int64_t index, std::span<const std::byte> part, data::Rows rows, std::size_t row, Philox draws) const {
    const VolumeFile& from = file(index);
    const Shape offset = place(from, draws);
    const std::span<const std::byte> volumes = part.first(volumes_bytes(from));
    for (std::int64_t key = 0; key < keys_; ++key) {
      const auto field = static_cast<std::size_t>(key);
      const std::size_t bytes = fields_[field].bytes();
      auto* out = reinterpret_cast<float*>(rows.row(field, row, bytes));
      cut_volume(from, volume_of(from, volumes, key), offset, size_, {out, bytes / sizeof(float)});
    }
    if (ranges_) std::memcpy(rows.row(fields_.size() - 1, row, range_bytes()), part.data() + volumes.size(), range_bytes());
  }

  std::vector<VolumeFile> files_;
  std::vector<std::filesystem::path> paths_;
  std::int64_t keys_;
  bool random_;
  bool ranges_;
  Shape size_;
  std::vector<Field> fields_;
};

}  // namespace

std::shared_ptr<const data::Source> volume_source(std::vector<VolumeFile> files, Split split, const RecipeConfig& recipe) {
  return std::make_shared<VolumeSource>(std::move(files), split, recipe);
}

}  // namespace millrace::recipes::autoencoder_3d
