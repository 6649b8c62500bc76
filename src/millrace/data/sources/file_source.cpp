#include "millrace/data/sources/file_source.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/hash.h"
#include "millrace/base/input_file.h"
#include "millrace/base/utf8.h"
#include "millrace/data/sources/detail/file_list.h"
#include "millrace/format/npy.h"
#include "millrace/format/wav.h"

namespace millrace::data {
namespace {

namespace stdfs = std::filesystem;

std::string field_text(const Field& field) {
  return field.name + ' ' + std::string(name_of(field.dtype)) + ' ' + to_text(field.shape);
}

// The open file of a sample; read() writes its arrays in the order of fields().
class OpenSample {
 public:
  OpenSample(const stdfs::path& path, const FileSamples& samples) : samples_(samples) {
    const std::string ending = to_lower(path.extension().string());
    if (ending == ".npy") {
      npy_.emplace(path);
      fields_.push_back({samples.field, npy_->layout().dtype, npy_->layout().shape});
    } else if (ending == ".npz") {
      npz_.emplace(path);
      for (const format::NpzEntry& entry : npz_->entries())
        fields_.push_back({entry.name, entry.layout.dtype, entry.layout.shape});
    } else if (ending == ".wav") {
      wav_.emplace(path);
      fields_.push_back({samples.field, DType::f32, {wav_->layout().channels, wav_->layout().frames}});
    } else if (ending == ".png" || ending == ".jpg" || ending == ".jpeg") {
      image_.emplace(path);
      fields_.push_back({samples.field, DType::u8, {channels(), image_->size().height, image_->size().width}});
    } else {
      throw DataError({"no reader for files that end in " + quoted(ending), path.string(),
                       "give .npy, .npz, .wav, .png or .jpg files, or write a data::Source"});
    }
    if (fields_.empty()) throw DataError({"the file has no arrays", path.string(), "give files that numpy.savez wrote"});
  }

  [[nodiscard]] const std::vector<Field>& fields() const { return fields_; }
  [[nodiscard]] std::int64_t rate() const { return wav_ ? wav_->layout().rate : 0; }

  void read(std::size_t field, std::span<std::byte> out) {
    if (npy_) return npy_->read(out);
    if (npz_) return npz_->read(npz_->entries()[field], out);
    // The cast is safe, because rows are aligned for their dtype.
    if (wav_) return wav_->read({reinterpret_cast<float*>(out.data()), out.size() / sizeof(float)});
    read_image(out);
  }

 private:
  [[nodiscard]] std::int64_t channels() const { return static_cast<std::int64_t>(samples_.pixels); }

  void read_image(std::span<std::byte> out) {
    thread_local std::vector<std::byte> kept;
    if (kept.size() < out.size()) kept.resize(out.size());
    const std::span<std::byte> pixels = std::span(kept).first(out.size());
    image_->decode(samples_.pixels, 1, {.top = 0, .left = 0, .height = image_->size().height, .width = image_->size().width},
                   pixels);
    const auto count = static_cast<std::size_t>(channels());
    const std::size_t plane = out.size() / count;
    for (std::size_t c = 0; c < count; ++c) {
      for (std::size_t i = 0; i < plane; ++i) out[c * plane + i] = pixels[i * count + c];
    }
  }

  const FileSamples& samples_;
  std::vector<Field> fields_;
  std::optional<format::NpyFile> npy_;
  std::optional<format::NpzFile> npz_;
  std::optional<format::WavFile> wav_;
  std::optional<Image> image_;
};

}  // namespace

FileSource::FileSource(std::vector<stdfs::path> files, FileSamples samples)
    : files_(std::move(files)), samples_(std::move(samples)) {
  fingerprint_ = "files " + detail::count_of_files(files_, "samples");
  const OpenSample first(files_.front(), samples_);
  fields_ = first.fields();
  rate_ = first.rate();
  for (const Field& field : fields_) fingerprint_ += ' ' + field_text(field);
}

FileSource::FileSource(LabelledFiles files, FileSamples samples) : FileSource(std::move(files.files), std::move(samples)) {
  MR_CHECK(files.labels.size() == files_.size(), "each file must have a label");
  labels_ = std::move(files.labels);
  classes_ = std::move(files.classes);
  if (std::any_of(fields_.begin(), fields_.end(), [](const Field& field) { return field.name == "label"; })) {
    throw DataError({"the files have an array \"label\", and the name of the folder gives a field \"label\" too",
                     files_.front().string(), "rename the array, or give the files without their folders' labels"});
  }
  fields_.push_back({"label", DType::i64, {}});
  fingerprint_ += " labels crc32c " + std::to_string(crc32c(std::as_bytes(std::span(labels_))));
}

void FileSource::read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom&) const {
  const std::size_t arrays = fields_.size() - (labels_.empty() ? 0 : 1);
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const auto index = static_cast<std::size_t>(indices[i]);
    OpenSample sample(files_[index], samples_);
    const std::span<const Field> expected = std::span(fields_).first(arrays);
    const auto refuse = [&](const std::string& found, const std::string& first) {
      throw DataError({std::string("the file has ").append(found).append(", the first has ").append(first),
                       files_[index].string(),
                       "make all files alike, or leave this one out; the first is " + files_.front().string()});
    };
    if (!std::equal(expected.begin(), expected.end(), sample.fields().begin(), sample.fields().end()))
      refuse(joined(sample.fields(), ", ", field_text), joined(expected, ", ", field_text));
    if (sample.rate() != rate_) refuse(with_commas(sample.rate()) + " Hz", with_commas(rate_) + " Hz");
    for (std::size_t f = 0; f < arrays; ++f) sample.read(f, {rows.row(f, i, fields_[f].bytes()), fields_[f].bytes()});
    if (!labels_.empty()) std::memcpy(rows.row(arrays, i, sizeof(std::int64_t)), &labels_[index], sizeof(std::int64_t));
  }
}

std::string FileSource::read_as() const {
  return with_commas(size()) + (size() == 1 ? " file: " : " files as the first: ") +
         joined(std::span(fields_).first(fields_.size() - (labels_.empty() ? 0 : 1)), ", ", field_text) +
         (rate_ > 0 ? ", " + with_commas(rate_) + " Hz" : "");
}

void FileSource::will_need(std::span<const std::int64_t> indices, const ReadRandom&) const noexcept {
  for (const std::int64_t index : indices) will_need_file(files_[static_cast<std::size_t>(index)]);
}

}  // namespace millrace::data
