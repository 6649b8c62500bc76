#include "millrace/nn/pca.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_eigh.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros.h>

#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/device/autocast.h"
#include "millrace/format/pt.h"
#include "millrace/format/safetensors.h"
#include "millrace/kernels/remove_components.h"

namespace millrace::nn {
namespace {

constexpr auto kAgain = "fit it again: millrace pca fit --config FILE";

// Written for other programs that read the file; load() takes these numbers from the shapes.
constexpr auto kForeground = "N_FG";
constexpr auto kFrequencies = "N_freq";

std::span<std::byte> bytes_of(const at::Tensor& x) {
  return {static_cast<std::byte*>(x.mutable_data_ptr()), static_cast<std::size_t>(x.nbytes())};
}

Shape shape_of(const at::Tensor& x) { return {x.sizes().begin(), x.sizes().end()}; }

// The arrays of a file of components: safetensors, or the .pt dict of the Python original, which holds fp32.
class Arrays {
 public:
  explicit Arrays(const std::filesystem::path& path) : path_(path) {
    if (format::looks_like_pt(path)) {
      pt_.emplace(path);
    } else {
      safetensors_.emplace(path);
    }
  }

  [[nodiscard]] bool has(std::string_view name) const {
    return pt_ ? pt_->find(name) != nullptr : safetensors_->find(name) != nullptr;
  }

  // Reads an array as fp64 on the CPU.
  [[nodiscard]] at::Tensor read(std::string_view name, std::size_t dimensions) {
    if (!has(name)) {
      const std::string all = pt_ ? joined(pt_->tensors(), ", ", &format::PtTensor::name)
                                  : joined(safetensors_->tensors(), ", ", &format::StoredTensor::name);
      throw DataError({path_.string() + " has no " + std::string(name) + " (it has: " + all + ")", "pca file", kAgain});
    }
    at::Tensor value =
        pt_ ? read(*pt_, *pt_->find(name), dimensions) : read(*safetensors_, *safetensors_->find(name), dimensions);
    if (!value.isfinite().all().item<bool>())  // host: a value from a file, read before the run
      throw DataError({std::string(name) + " holds numbers that are not finite", path_.string(), kAgain});
    return value.to(at::kDouble);
  }

  // The metadata of a safetensors file; a .pt file has no metadata.
  [[nodiscard]] format::Metadata metadata() const { return safetensors_ ? safetensors_->metadata() : format::Metadata(); }

 private:
  template <typename File, typename Stored>
  at::Tensor read(File& file, const Stored& stored, std::size_t dimensions) {
    const bool number = stored.dtype == DType::f64 || stored.dtype == DType::f32;
    if (!number || stored.shape.size() != dimensions) {
      throw DataError({stored.name + " is " + std::string(name_of(stored.dtype)) + " " + to_text(stored.shape) +
                           ", expected fp64 or fp32 of " + std::to_string(dimensions) + " dimensions",
                       path_.string(), kAgain});
    }
    at::Tensor value = at::empty(stored.shape, stored.dtype == DType::f64 ? at::kDouble : at::kFloat);
    file.read(stored, bytes_of(value));
    return value;
  }

  std::filesystem::path path_;
  std::optional<format::SafetensorsFile> safetensors_;
  std::optional<format::PtFile> pt_;
};

}  // namespace

ForegroundPca::ForegroundPca(at::Tensor mean, at::Tensor eigenvalues, at::Tensor vectors, std::int64_t n_fg)
    : mean_(std::move(mean)), eigenvalues_(std::move(eigenvalues)), vectors_(std::move(vectors)), n_fg_(n_fg) {
  MR_CHECK(n_fg_ >= 1 && n_fg_ < frequencies(), "n_fg must be at least 1 and less than the number of frequencies");
}

double ForegroundPca::variance_explained() const {
  return (eigenvalues_.narrow(0, 0, n_fg_).sum() / eigenvalues_.sum()).item<double>();  // host: read once, for the plan
}

const ForegroundPca::OnDevice& ForegroundPca::on(const at::Tensor& like) const {
  if (!cached_ || cached_->mean.device() != like.device() || cached_->mean.scalar_type() != like.scalar_type()) {
    const auto options = like.options();
    const at::Tensor a = components().to(options).contiguous();
    cached_ = OnDevice{mean_.to(options).unsqueeze(1), a};
  }
  return *cached_;
}

at::Tensor ForegroundPca::clean(const at::Tensor& x, const Fused& fused) const {
  MR_CHECK(x.dim() >= 2 && x.size(-2) == frequencies(), "the second-last axis must be the PCA's frequencies");
  const device::NoAutocast full(x.device().type());
  const device::Tf32 exact(false);
  const OnDevice& own = on(x);
  const bool learns = at::GradMode::is_enabled() && x.requires_grad();  // the kernel has no gradient
  if (!choose<kFusedProjection>(fused, !learns)) return kernels::remove_components_plain(x, own.mean, own.components);
  return kernels::remove_components(x, own.mean, own.components);
}

void ForegroundPca::save(Fs& fs, const std::filesystem::path& path) const {
  std::vector<std::pair<std::string, at::Tensor>> arrays = {
      {"fg_components", components().contiguous()},
      {"signal_components", vectors_.narrow(1, n_fg_, frequencies() - n_fg_).contiguous()},
      {"eigenvalues", eigenvalues_},
      {"mean_per_freq", mean_}};
  if (freq_mhz.defined()) arrays.emplace_back("freq_mhz", freq_mhz);
  std::vector<Field> fields;
  for (auto& [name, value] : arrays) {
    value = value.contiguous();
    fields.push_back({name, DType::f64, shape_of(value)});
  }
  format::Metadata metadata(facts.begin(), facts.end());
  metadata[kForeground] = std::to_string(n_fg_);
  metadata[kFrequencies] = std::to_string(frequencies());
  try {
    if (path.has_parent_path()) fs.create_directories(path.parent_path());
    write_atomically(fs, path, [&](WritableFile& out) {
      format::write_safetensors(
          out, fields, [&](std::size_t i) { return std::span<const std::byte>(bytes_of(arrays[i].second)); }, metadata);
    });
  } catch (const FsError& error) {
    throw DataError({"can't write " + path.string(), error.what(), remedy_for(error.error_number())});
  }
}

ForegroundPca ForegroundPca::load(const std::filesystem::path& path) {
  Arrays file(path);
  const at::Tensor foreground = file.read("fg_components", 2);
  const at::Tensor rest = file.read("signal_components", 2);
  const at::Tensor eigenvalues = file.read("eigenvalues", 1);
  const at::Tensor mean = file.read("mean_per_freq", 1);
  const std::int64_t f = mean.size(0);
  const std::int64_t n_fg = foreground.size(1);
  const bool fits = foreground.size(0) == f && rest.size(0) == f && n_fg >= 1 && n_fg + rest.size(1) == f &&
                    eigenvalues.size(0) == f && n_fg < f;
  if (!fits) {
    throw DataError({"fg_components " + to_text(shape_of(foreground)) + ", signal_components " + to_text(shape_of(rest)) +
                         ", eigenvalues " + to_text(shape_of(eigenvalues)) + " and mean_per_freq " + to_text(shape_of(mean)) +
                         " do not belong together",
                     path.string(), kAgain});
  }
  at::Tensor vectors = at::empty({f, f}, at::kDouble);
  vectors.narrow(1, 0, n_fg).copy_(foreground);
  vectors.narrow(1, n_fg, f - n_fg).copy_(rest);
  ForegroundPca pca(mean, eigenvalues, vectors, n_fg);
  if (file.has("freq_mhz")) pca.freq_mhz = file.read("freq_mhz", 1);
  if (pca.freq_mhz.defined() && pca.freq_mhz.size(0) != f) {
    throw DataError(
        {"freq_mhz has " + std::to_string(pca.freq_mhz.size(0)) + " channels, but mean_per_freq has " + std::to_string(f),
         path.string(), kAgain});
  }
  // Takes only the facts that the caller of save() gave, without the numbers that save() adds. So a run that saves and loads its
  // own components has the same state as before.
  for (const auto& [name, value] : file.metadata()) {
    if (name != kForeground && name != kFrequencies) pca.facts[name] = value;
  }
  return pca;
}

void PcaFit::add(const at::Tensor& x) {
  MR_CHECK(x.dim() >= 2 && x.is_floating_point(), "a PCA is fitted on real numbers (..., F, P)");
  const at::Tensor planes = x.reshape({-1, x.size(-2), x.size(-1)});
  for (std::int64_t i = 0; i < planes.size(0); ++i) {  // converts one plane at a time to fp64
    at::Tensor d = planes[i].to(at::kCPU, at::kDouble);
    if (!origin_.defined()) {
      const at::Tensor first = planes.to(at::kCPU, at::kDouble);
      origin_ = first.mean(at::IntArrayRef{0, 2}).unsqueeze(1);
      sum_ = at::zeros({d.size(0)}, at::kDouble);
      products_ = at::zeros({d.size(0), d.size(0)}, at::kDouble);
    }
    MR_CHECK(d.size(0) == sum_.size(0), "the number of frequencies must stay the same");
    d = d - origin_;
    sum_ += d.sum(1);
    products_.addmm_(d, d.t());
    pixels_ += d.size(1);
  }
}

at::Tensor PcaFit::mean() const { return origin_.squeeze(1) + sum_ / static_cast<double>(pixels_); }

at::Tensor PcaFit::covariance() const {
  MR_CHECK(pixels_ >= 2, "a covariance needs two pixels");
  const auto n = static_cast<double>(pixels_);
  const at::Tensor mean = sum_ / n;
  return (products_ - at::outer(mean, mean) * n) / (n - 1.0);
}

ForegroundPca PcaFit::finish(std::int64_t n_fg) const {
  const auto [rising, columns] = at::linalg_eigh(covariance());
  at::Tensor vectors = columns.flip(1);
  const at::Tensor largest = vectors.gather(0, std::get<1>(vectors.abs().max(0, /*keepdim=*/true)));
  vectors = (vectors * largest.sign()).contiguous();
  return {mean(), rising.flip(0).contiguous(), vectors, n_fg};
}

at::Tensor as_pixels(const at::Tensor& x) { return at::view_as_real(x).flatten(-2); }

}  // namespace millrace::nn
