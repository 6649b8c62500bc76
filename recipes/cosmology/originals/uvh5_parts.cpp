#include "recipes/cosmology/originals/uvh5_parts.h"

#include <algorithm>
#include <complex>
#include <cstring>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/base/fs.h"
#include "millrace/base/mapped_file.h"
#include "millrace/hdf5/file.h"

namespace millrace::recipes::cosmology::uvh5 {
namespace {

template <class T>
std::vector<std::byte> stored_as(const Visibilities& block, std::int64_t begin, std::int64_t length) {
  const auto rows = static_cast<std::size_t>(block.shape[0] * block.shape[1]);
  std::vector<std::byte> bytes(rows * static_cast<std::size_t>(length) * sizeof(std::complex<T>));
  std::byte* to = bytes.data();
  for (std::size_t row = 0; row < rows; ++row) {
    const std::complex<double>* from = block.values.data() + row * static_cast<std::size_t>(block.shape[2]) + begin;
    for (std::int64_t t = 0; t < length; ++t, to += sizeof(std::complex<T>)) {
      const std::complex<T> value(from[t]);
      std::memcpy(to, &value, sizeof(value));
    }
  }
  return bytes;
}

}  // namespace

std::int64_t baselines_at_once(const Axes& axes, std::uint64_t memory) {
  const Shape shape = axes.shape();
  const auto each = static_cast<std::uint64_t>(std::max<std::int64_t>(1, shape[1] * shape[2]) * kBytesOfAValue);
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(memory / each));
}

void write_part(const std::filesystem::path& path, const Axes& axes, std::int64_t begin, std::int64_t length,
                std::span<const std::byte> vis) {
  const Shape shape{axes.shape()[0], axes.shape()[1], length};
  std::vector<double> freq_mhz;
  for (const double hz : axes.freq_hz) freq_mhz.push_back(hz / 1e6);
  std::vector<std::int64_t> antennas;
  for (const auto& [a, b] : axes.baselines) antennas.insert(antennas.end(), {a, b});
  std::vector<double> lengths;
  for (const auto& pair : axes.separations) lengths.insert(lengths.end(), pair.begin(), pair.end());
  const std::span<const double> times =
      std::span(axes.times).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(length));
  const auto bytes = [](const auto& values) { return std::as_bytes(std::span(values)); };
  std::vector<hdf5::Array> arrays = {
      {.name = "/vis", .dtype = axes.wide ? DType::c128 : DType::c64, .shape = shape, .bytes = vis},
      {.name = "/index_map/freq", .dtype = DType::f64, .shape = {shape[1]}, .bytes = bytes(freq_mhz)},
      {.name = "/index_map/antennas", .dtype = DType::i64, .shape = {shape[0], 2}, .bytes = bytes(antennas)},
      {.name = "/index_map/times", .dtype = DType::f64, .shape = {length}, .bytes = bytes(times)}};
  if (!lengths.empty())
    arrays.push_back({.name = "/index_map/baselines", .dtype = DType::f64, .shape = {shape[0], 2}, .bytes = bytes(lengths)});
  if (!axes.unit.empty())
    arrays.push_back({.name = "/index_map/unit",
                      .dtype = DType::u8,
                      .shape = {static_cast<std::int64_t>(axes.unit.size())},
                      .bytes = bytes(axes.unit)});
  hdf5::write_file(path, arrays);
}

std::vector<std::byte> stored(const Visibilities& block, const Axes& axes, std::int64_t begin, std::int64_t length) {
  return axes.wide ? stored_as<double>(block, begin, length) : stored_as<float>(block, begin, length);
}

Parts::Parts(std::filesystem::path folder, std::string name, const Axes& axes, std::int64_t length)
    : folder_(std::move(folder)), name_(std::move(name)), axes_(axes), length_(length) {}

Parts::~Parts() {
  try {
    Fs::real().remove_all(waiting(-1));
  } catch (const FsError&) {  // NOLINT(bugprone-empty-catch): the converter removes the folder of these files
  }
}

// The temporary file that collects the blocks of output file number `file`. If `file` is -1, the folder of all temporary files.
std::filesystem::path Parts::waiting(std::int64_t file) const {
  const std::filesystem::path folder = folder_ / (".parts-" + name_);
  return file < 0 ? folder : folder / padded(file);
}

void Parts::add(const Visibilities& block) {
  const bool all = block.shape[0] == axes_.shape()[0];
  if (!all) Fs::real().create_directories(waiting(-1));
  for (std::int64_t file = 0; file < files(); ++file) {
    std::vector<std::byte> bytes = stored(block, axes_, file * length_, length_);
    if (all) {
      whole_.push_back(std::move(bytes));
      continue;
    }
    const auto out = Fs::real().append(waiting(file));
    out->write(bytes);
    out->close();
  }
}

std::int64_t Parts::write() {
  const auto size =
      static_cast<std::uint64_t>(axes_.shape()[0] * axes_.shape()[1] * length_) * size_of(axes_.wide ? DType::c128 : DType::c64);
  for (std::int64_t file = 0; file < files(); ++file) {
    const std::filesystem::path path = folder_ / (name_ + "-t" + padded(file * length_) + ".h5");
    if (!whole_.empty()) {
      auto bytes = std::exchange(whole_[static_cast<std::size_t>(file)], {});
      write_part(path, axes_, file * length_, length_, bytes);
      continue;
    }
    write_part(path, axes_, file * length_, length_, MappedFile(waiting(file), size).bytes());
    Fs::real().remove_all(waiting(file));
  }
  return files();
}

std::string padded(std::int64_t number) {
  std::string digits = std::to_string(number);
  if (digits.size() < 4) digits.insert(0, 4 - digits.size(), '0');
  return digits;
}

}  // namespace millrace::recipes::cosmology::uvh5
