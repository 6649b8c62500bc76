#include "millrace/cli/inspect/tensor_file.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/fs.h"
#include "millrace/base/input_file.h"
#include "millrace/base/mapped_file.h"
#include "millrace/base/utf8.h"
#include "millrace/core/scalar_type.h"
#include "millrace/format/deflate.h"
#include "millrace/format/npy.h"
#include "millrace/format/pt.h"
#include "millrace/format/safetensors.h"
#include "millrace/hdf5/file.h"

namespace millrace::cli {
namespace {

std::span<std::byte> bytes_of(at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

// Memory for `count` rows of a tensor, or for the whole tensor if `count` is -1.
at::Tensor memory_for(const Field& field, std::int64_t count) {
  Shape shape = field.shape;
  if (count >= 0) shape[0] = count;
  return at::empty(shape, at::TensorOptions().dtype(scalar_type_of(field.dtype)));
}

std::uint64_t row_bytes(const Field& field) {
  Shape row(field.shape.begin() + (field.shape.empty() ? 0 : 1), field.shape.end());
  return static_cast<std::uint64_t>(element_count(row).value_or(0)) * size_of(field.dtype);
}

// Reads arrays that are stored without compression.
class PlainReader : public TensorReader {
 public:
  at::Tensor read(std::size_t index, std::int64_t first, std::int64_t count) override {
    at::Tensor rows = memory_for(fields_[index], count);
    const std::uint64_t skipped = static_cast<std::uint64_t>(count < 0 ? 0 : first) * row_bytes(fields_[index]);
    file_->read(offsets_[index] + skipped, bytes_of(rows));
    return rows;
  }

 protected:
  void add(Field field, std::uint64_t offset) {
    fields_.push_back(std::move(field));
    offsets_.push_back(offset);
  }
  std::unique_ptr<InputFile> file_;
  std::vector<std::uint64_t> offsets_;
};

class SafetensorsReader final : public PlainReader {
 public:
  explicit SafetensorsReader(const std::filesystem::path& path) {
    const format::SafetensorsFile file(path);
    for (const format::StoredTensor& tensor : file.tensors()) add({tensor.name, tensor.dtype, tensor.shape}, tensor.offset);
    file_ = std::make_unique<InputFile>(path);
  }
};

class NpyReader final : public TensorReader {
 public:
  NpyReader(const std::filesystem::path& path, const std::string& name) : file_(path) {
    fields_ = {{name, file_.layout().dtype, file_.layout().shape}};
  }
  at::Tensor read(std::size_t index, std::int64_t first, std::int64_t count) override {
    at::Tensor rows = memory_for(fields_[index], count);
    count < 0 ? file_.read(bytes_of(rows)) : file_.read_rows(first, count, bytes_of(rows));
    return rows;
  }

 private:
  format::NpyFile file_;
};

// Reads a whole tensor at the first request for some of its rows, and keeps it in memory.
class WholeReader : public TensorReader {
 public:
  at::Tensor read(std::size_t index, std::int64_t first, std::int64_t count) override {
    whole_.resize(fields_.size());
    at::Tensor& tensor = whole_[index];
    if (!tensor.defined()) {
      tensor = memory_for(fields_[index], -1);
      read_whole(index, bytes_of(tensor));
    }
    return count < 0 ? tensor : tensor.narrow(0, first, count);
  }

 protected:
  virtual void read_whole(std::size_t index, std::span<std::byte> out) = 0;

 private:
  std::vector<at::Tensor> whole_;
};

class PtReader final : public WholeReader {
 public:
  explicit PtReader(const std::filesystem::path& path) : file_(path) {
    for (const format::PtTensor& tensor : file_.tensors()) fields_.push_back({tensor.name, tensor.dtype, tensor.shape});
  }

 private:
  void read_whole(std::size_t index, std::span<std::byte> out) override { file_.read(file_.tensors()[index], out); }
  format::PtFile file_;
};

class NpzReader final : public WholeReader {
 public:
  explicit NpzReader(const std::filesystem::path& path) : file_(path), checked_(file_.entries().size()) {
    for (const format::NpzEntry& entry : file_.entries()) fields_.push_back({entry.name, entry.layout.dtype, entry.layout.shape});
  }
  at::Tensor read(std::size_t index, std::int64_t first, std::int64_t count) override {
    const format::NpzEntry& entry = file_.entries()[index];
    const bool plain = !entry.deflated && !entry.layout.swapped && (!entry.layout.fortran || entry.layout.shape.size() < 2);
    if (!plain || count < 0) return WholeReader::read(index, first, count);
    if (!checked_[index]) check(entry);
    checked_[index] = true;
    at::Tensor rows = memory_for(fields_[index], count);
    const std::uint64_t skipped = static_cast<std::uint64_t>(first) * row_bytes(fields_[index]);
    file_.file().read(entry.offset + entry.layout.header_bytes + skipped, bytes_of(rows));
    return rows;
  }

 private:
  void check(const format::NpzEntry& entry) const {
    constexpr std::uint64_t kAtOnce = std::uint64_t{1} << 18U;
    std::vector<std::byte> piece(std::min(kAtOnce, entry.compressed));
    std::uint32_t crc = 0;
    for (std::uint64_t at = 0; at < entry.compressed; at += piece.size()) {
      const auto part = std::span(piece).first(std::min<std::uint64_t>(piece.size(), entry.compressed - at));
      file_.file().read(entry.offset + at, part);
      crc = format::crc32(part, crc);
    }
    if (crc == entry.crc32) return;
    throw DataError({"array " + quoted(entry.name) + " is damaged: its CRC-32 differs", file_.file().path().string(),
                     "copy the file again, or write it again with numpy.savez"});
  }
  void read_whole(std::size_t index, std::span<std::byte> out) override { file_.read(file_.entries()[index], out); }
  format::NpzFile file_;
  std::vector<bool> checked_;
};

class Hdf5Reader final : public TensorReader {
 public:
  explicit Hdf5Reader(const std::filesystem::path& path) : file_(hdf5::File::open(path)) {
    for (const hdf5::Dataset& dataset : file_->datasets()) {
      names_.push_back(dataset.name);
      fields_.push_back({dataset.name.substr(dataset.name.starts_with("/") ? 1 : 0), dataset.dtype, dataset.shape});
    }
  }
  at::Tensor read(std::size_t index, std::int64_t first, std::int64_t count) override {
    at::Tensor rows = memory_for(fields_[index], count);
    const Shape counts = rows.sizes().vec();
    Shape offset(counts.size(), 0);
    if (count >= 0) offset[0] = first;
    file_->read(names_[index], offset, counts, bytes_of(rows));
    return rows;
  }

 private:
  std::shared_ptr<const hdf5::File> file_;
  std::vector<std::string> names_;
};

void write_file(const std::filesystem::path& path, TensorFormat format, const std::vector<Field>& fields,
                const std::vector<std::unique_ptr<MappedFile>>& parts) {
  if (format == TensorFormat::hdf5) {
    std::vector<hdf5::Array> arrays;
    for (std::size_t i = 0; i < fields.size(); ++i) {
      arrays.push_back(
          {.name = "/" + fields[i].name, .dtype = fields[i].dtype, .shape = fields[i].shape, .bytes = parts[i]->bytes()});
    }
    return hdf5::write_file(path, arrays);
  }
  const auto bytes = [&](std::size_t i) { return parts[i]->bytes(); };
  write_atomically(Fs::real(), path, [&](WritableFile& out) {
    if (format == TensorFormat::safetensors) format::write_safetensors(out, fields, bytes, {{"format", "pt"}});
    if (format == TensorFormat::pt) format::write_pt(out, fields, bytes);
    if (format == TensorFormat::npy) format::write_npy(out, fields[0].dtype, fields[0].shape, bytes(0));
    if (format != TensorFormat::npz) return;
    std::vector<format::NpzArray> arrays;
    for (std::size_t i = 0; i < fields.size(); ++i) arrays.push_back({fields[i], bytes(i)});
    format::write_npz(out, arrays);
  });
}

}  // namespace

TensorFormat tensor_format(const std::filesystem::path& path, const std::string& flag) {
  const std::string suffix = to_lower(path.extension().string());
  if (suffix == ".safetensors") return TensorFormat::safetensors;
  if (suffix == ".pt" || suffix == ".pth") return TensorFormat::pt;
  if (suffix == ".npy") return TensorFormat::npy;
  if (suffix == ".npz") return TensorFormat::npz;
  if (suffix == ".h5" || suffix == ".hdf5") return TensorFormat::hdf5;
  throw UsageError({"can't tell from the name what kind of file " + quoted(path.string()) + " is", "flag " + flag,
                    "let its name end in .npy, .npz, .safetensors, .pt, .pth, .h5 or .hdf5"});
}

std::unique_ptr<TensorReader> open_tensors(const std::filesystem::path& path, TensorFormat format, const std::string& unnamed) {
  if (format == TensorFormat::safetensors) return std::make_unique<SafetensorsReader>(path);
  if (format == TensorFormat::pt) return std::make_unique<PtReader>(path);
  if (format == TensorFormat::npy) return std::make_unique<NpyReader>(path, unnamed);
  if (format == TensorFormat::npz) return std::make_unique<NpzReader>(path);
  return std::make_unique<Hdf5Reader>(path);
}

struct TensorWriter::Part {
  Field field;  // its shape counts the rows that are written so far
  AtomicFile file;
};

TensorWriter::TensorWriter(std::filesystem::path path, TensorFormat format) : path_(std::move(path)), format_(format) {}
TensorWriter::~TensorWriter() = default;

void TensorWriter::append(const Tensors& rows) {
  const bool begins = parts_.empty();
  if (!begins && rows.size() != parts_.size())
    throw RecipeError({"predict() gave other outputs than for the rows before", "predict()", "give the same names each time"});
  std::size_t i = 0;
  for (const auto& [name, tensor] : rows) {
    const auto dtype = dtype_of(tensor.scalar_type());
    if (!dtype)
      throw DataError(
          {"output " + quoted(name) + " has a type that this kind of file can't hold", path_.string(), "convert it first"});
    Field field{name, *dtype, tensor.sizes().vec()};
    if (begins) {
      const std::filesystem::path beside = path_.string() + ".part" + std::to_string(i);
      parts_.push_back(std::unique_ptr<Part>(new Part{std::move(field), AtomicFile(Fs::real(), beside)}));
    } else {
      Field& known = parts_[i]->field;
      const std::int64_t before = known.shape.empty() ? 0 : known.shape[0];
      const std::int64_t more = field.shape.empty() ? 0 : std::exchange(field.shape[0], before);
      if (field != known || field.shape.empty()) {
        throw RecipeError({"output " + quoted(name) + " of predict() has another name, type or shape than for the rows before",
                           "predict()", "give each output the same shape for all rows; only the first size may differ"});
      }
      known.shape[0] += more;
    }
    parts_[i++]->file.file().write(bytes_of(tensor));
  }
}

std::vector<Field> TensorWriter::finish() {
  std::vector<Field> fields;
  std::vector<std::unique_ptr<MappedFile>> mapped;
  for (const std::unique_ptr<Part>& part : parts_) {
    fields.push_back(part->field);
    const auto elements = static_cast<std::uint64_t>(element_count(part->field.shape).value_or(0));
    mapped.push_back(std::make_unique<MappedFile>(part->file.temporary(), elements * size_of(part->field.dtype)));
  }
  if (format_ == TensorFormat::npy && fields.size() != 1) {
    throw DataError({"a .npy file holds one array, and predict() gave " + std::to_string(fields.size()), path_.string(),
                     "let the name of --output end in .npz"});
  }
  write_file(path_, format_, fields, mapped);
  mapped.clear();
  parts_.clear();
  return fields;
}

}  // namespace millrace::cli
