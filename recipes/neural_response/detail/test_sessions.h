// For the tests of this folder: a session whose file is in memory, and its dataset file.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "millrace/base/error.h"
#include "recipes/neural_response/sessions/session.h"
#include "tests/support/refusal.h"

namespace millrace::recipes::neural_response::test {

// An HDF5 file in memory.
class MemoryFile final : public hdf5::File {
 public:
  explicit MemoryFile(std::filesystem::path path) : path_(std::move(path)) {}

  template <class T>
  void set(const std::string& name, DType dtype, Shape shape, const std::vector<T>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    remove(name);
    sets_.push_back({name, dtype, std::move(shape), {}, false, ""});
    bytes_[name].assign(bytes.begin(), bytes.end());
  }
  void set_dtype(const std::string& name, DType dtype) { find(name).dtype = dtype; }
  void set_shape(const std::string& name, Shape shape) { find(name).shape = std::move(shape); }
  void remove(const std::string& name) {
    std::erase_if(sets_, [&name](const hdf5::Dataset& set) { return set.name == name; });
  }

  const std::filesystem::path& path() const override { return path_; }
  std::span<const hdf5::Dataset> datasets() const override { return sets_; }
  std::span<const hdf5::Unreadable> unreadable() const override { return not_readable; }
  std::uint64_t size() const noexcept override { return claimed_size; }
  const hdf5::Attributes& attributes(std::string_view) const override { return own_attributes; }
  const hdf5::Dataset& dataset(std::string_view name) const override { return const_cast<MemoryFile*>(this)->find(name); }
  void read(std::string_view name, std::span<const std::int64_t> offset, std::span<const std::int64_t> count,
            std::span<std::byte> out) const override {
    const hdf5::Dataset& set = dataset(name);
    std::size_t row = size_of(set.dtype);  // only the first axis can be cut
    for (std::size_t axis = 1; axis < set.shape.size(); ++axis) row *= static_cast<std::size_t>(set.shape[axis]);
    const auto begin = static_cast<std::size_t>(offset[0]) * row;
    const auto bytes = static_cast<std::size_t>(count[0]) * row;
    ASSERT_EQ(out.size(), bytes);
    const auto& held = bytes_.at(std::string(name));
    ASSERT_LE(begin + bytes, held.size());
    std::memcpy(out.data(), held.data() + begin, bytes);
  }
  void will_need(std::string_view, std::span<const std::int64_t>, std::span<const std::int64_t>) const override {}

  hdf5::Attributes own_attributes;
  std::vector<hdf5::Unreadable> not_readable;
  std::uint64_t claimed_size = 1U << 20U;

 private:
  hdf5::Dataset& find(std::string_view name) {
    for (hdf5::Dataset& set : sets_) {
      if (set.name == name) return set;
    }
    throw DataError({"no " + std::string(name), path_.string(), ""});
  }

  std::filesystem::path path_;
  std::vector<hdf5::Dataset> sets_;
  std::map<std::string, std::vector<std::byte>> bytes_;
};

// A file with 96 source bins of 4x3 pixels at 240 Hz, 3 columns of spikes, and 4 trials of 24 source bins each.
inline constexpr std::int64_t kBins = 96;
inline std::shared_ptr<MemoryFile> tiny_file(const std::filesystem::path& path) {
  auto file = std::make_shared<MemoryFile>(path);
  std::vector<std::uint8_t> stim;
  for (std::int64_t i = 0; i < kBins * 12; ++i) stim.push_back(static_cast<std::uint8_t>(i * 7 % 251));
  std::vector<float> robs;
  for (std::int64_t i = 0; i < kBins * 3; ++i) robs.push_back(static_cast<float>(i % 5));
  std::vector<float> eye;
  for (std::int64_t i = 0; i < kBins * 2; ++i) eye.push_back(0.01F * static_cast<float>(i * i % 97));
  std::vector<std::int64_t> trials;
  for (std::int64_t i = 0; i < kBins; ++i) trials.push_back(10 + i / 24);
  file->set("/stim", DType::u8, {kBins, 4, 3}, stim);
  file->set("/robs", DType::f32, {kBins, 3}, robs);
  file->set("/eyepos", DType::f32, {kBins, 2}, eye);
  file->set("/dpi_valid", DType::u8, {kBins}, std::vector<std::uint8_t>(kBins, 1));
  file->set("/trial_inds", DType::i64, {kBins}, trials);
  file->set("/t_bins", DType::f64, {kBins}, std::vector<double>(kBins, 0.0));
  return file;
}

class SessionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::current_path() / "neural_response_test" /
              (std::string(::testing::UnitTest::GetInstance()->current_test_info()->test_suite_name()) + "_" +
               ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_ / "sessions");
    write("dataset.yaml", dataset_text());
    write("sessions/a.yaml", "session: a\ncids: [2, 0]\n");
    write("a/backimage.h5", "");
  }
  static std::string dataset_text(const std::string& lags = "[0, 1, 2]", const std::string& n_lags = "4") {
    return "session_dir: sessions\nsessions: [a]\nkeys_lags: {robs: 0, stim: " + lags +
           ", behavior: 0, dfs: 0}\ndatafilters:\n  dfs:\n    ops: [{valid_nlags: {n_lags: " + n_lags +
           "}}, {missing_pct: {threshold: 45}}]\n    expose_as: dfs\n";
  }
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
  }
  // Options that open the files in files_ ("a/backimage.h5"), and a tiny session for any other path.
  OpenOptions options() {
    return {[this](std::span<const std::filesystem::path> paths) {
      std::vector<SessionHdf5> files;
      for (const auto& path : paths) {
        const std::string name = (path.parent_path().filename() / path.filename()).string();
        const auto it = files_.find(name);
        files.push_back(it == files_.end() ? tiny_file(path) : it->second);
      }
      return files;
    }};
  }
  std::shared_ptr<MemoryFile> file(const std::string& name = "a/backimage.h5") {
    auto& file = files_[name];
    if (!file) file = tiny_file(folder_ / name);
    return file;
  }
  Sessions open() { return open_sessions(RecipeConfig{}, folder_ / "dataset.yaml", {}, options()); }
  std::shared_ptr<const Session> one() { return open().all.at(0); }
  std::string refused() {
    return refusal([this] { (void)open(); });
  }

  std::filesystem::path folder_;
  std::map<std::string, std::shared_ptr<MemoryFile>> files_;
};

}  // namespace millrace::recipes::neural_response::test
