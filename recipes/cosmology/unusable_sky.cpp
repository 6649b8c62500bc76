#include "recipes/cosmology/unusable_sky.h"

#include <utility>

namespace millrace::recipes::cosmology {
namespace {

class UnusableSky final : public hdf5::File {
 public:
  UnusableSky(std::filesystem::path path, Problem why) : path_(std::move(path)), why_(std::move(why)) {}
  [[nodiscard]] const std::filesystem::path& path() const override { return path_; }
  [[nodiscard]] std::span<const hdf5::Dataset> datasets() const override { return {}; }
  [[nodiscard]] const hdf5::Dataset& dataset(std::string_view) const override { throw DataError(why_); }
  void read(std::string_view, std::span<const std::int64_t>, std::span<const std::int64_t>, std::span<std::byte>) const override {
    throw DataError(why_);
  }
  void will_need(std::string_view, std::span<const std::int64_t>, std::span<const std::int64_t>) const override {}

 private:
  std::filesystem::path path_;
  Problem why_;
};

}  // namespace

SkyFile unusable_sky(std::filesystem::path path, Problem why) {
  return std::make_shared<UnusableSky>(std::move(path), std::move(why));
}

}  // namespace millrace::recipes::cosmology
