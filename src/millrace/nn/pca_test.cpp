// Tests principal components: the streaming fit against the fit of the whole data, the removed and the remaining part, the file
// and its errors.
#include "millrace/nn/pca.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/linalg_eigh.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <torch/nn/module.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "millrace/base/error.h"
#include "millrace/format/pt.h"
#include "millrace/format/safetensors.h"
#include "tests/support/fault_fs.h"
#include "tests/support/refusal.h"

namespace millrace::nn {
namespace {

using ::testing::HasSubstr;

class Pca : public ::testing::Test {
 protected:
  void SetUp() override {
    torch::manual_seed(3);
    folder_ = std::filesystem::current_path() / "pca_test" / ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  // Data (files, F, P) around an offset, of rank `rank` plus noise.
  static at::Tensor data(std::int64_t files, std::int64_t f, std::int64_t p, std::int64_t rank, double noise,
                         double offset = 1e3) {
    const auto options = at::TensorOptions(at::kDouble);
    const at::Tensor shapes = at::randn({f, rank}, options);
    return at::matmul(shapes, at::randn({files, rank, p}, options)) + at::randn({f, 1}, options) * offset +
           at::randn({files, f, p}, options) * noise;
  }
  static ForegroundPca fit(const at::Tensor& x, std::int64_t n_fg) {
    PcaFit sums;
    for (std::int64_t i = 0; i < x.size(0); ++i) sums.add(x[i]);
    return sums.finish(n_fg);
  }
  static double rms(const at::Tensor& x) { return x.square().mean().sqrt().item<double>(); }
  std::filesystem::path folder_;
};

TEST_F(Pca, StreamingIsTheWholeCovariance) {
  const at::Tensor x = data(7, 12, 50, 3, 1e-2);
  PcaFit sums;
  for (std::int64_t i = 0; i < 7; ++i) sums.add(x[i]);
  EXPECT_EQ(sums.pixels(), 7 * 50);
  const at::Tensor rows = x.permute({0, 2, 1}).reshape({-1, 12});
  const at::Tensor centred = rows - rows.mean(0, true);
  const at::Tensor whole = centred.t().matmul(centred) / static_cast<double>(rows.size(0) - 1);
  EXPECT_LE(rms(sums.covariance() - whole) / rms(whole), 1e-10);
  EXPECT_LE((sums.mean() - rows.mean(0)).abs().max().item<double>(), 1e-9);
  const ForegroundPca pca = sums.finish(3);
  const at::Tensor vectors = std::get<1>(at::linalg_eigh(whole)).flip(1).narrow(1, 0, 3);
  const at::Tensor projector = pca.components().matmul(pca.components().t());
  EXPECT_LE((projector - vectors.matmul(vectors.t())).abs().max().item<double>(), 1e-10);
  EXPECT_TRUE((pca.eigenvalues().diff() <= 0).all().item<bool>());
  const at::Tensor largest = std::get<0>(pca.vectors().max(0)) + std::get<0>(pca.vectors().min(0));
  EXPECT_TRUE((largest >= 0).all().item<bool>()) << "the largest entry of each vector is positive";
}

TEST_F(Pca, RankKVanishesWithKComponentsAndNoFewer) {
  const std::int64_t rank = 10;
  const at::Tensor x = data(3, 64, 300, rank, 0.0, 0.0);
  for (const std::int64_t n : {9, 10, 11}) {
    const ForegroundPca pca = fit(x.narrow(0, 0, 2), n);
    const double exact = rms(pca.clean(x[2])) / rms(x[2]);
    const double single = rms(pca.clean(x[2].to(at::kFloat))) / rms(x[2]);
    if (n < rank) {
      EXPECT_GT(exact, 1e-6);
    } else {
      EXPECT_LT(exact, 1e-9) << n;
      EXPECT_LT(single, 5e-7) << n;
    }
  }
}

TEST_F(Pca, NoiseKeepsItsShareAndCleaningTwiceIsOnce) {
  const std::int64_t f = 128;
  const std::int64_t n = 11;
  ForegroundPca pca = fit(data(2, f, 400, n, 1e-6), n);
  const at::Tensor noise = at::randn({4, f, 500}, at::kDouble);
  const ForegroundPca centred(at::zeros({f}, at::kDouble), pca.eigenvalues(), pca.vectors(), n);
  const at::Tensor once = centred.clean(noise);
  EXPECT_NEAR(once.square().sum().item<double>() / noise.square().sum().item<double>(), static_cast<double>(f - n) / f, 0.005);
  EXPECT_LE((centred.clean(once) - once).abs().max().item<double>(), 1e-6);
}

// The gradient of half the squared length of what remains is what remains, because the removal is a projection.
TEST_F(Pca, CleaningPassesGradientsOn) {
  const std::int64_t f = 16;
  const ForegroundPca pca = fit(data(2, f, 40, 4, 1e-3, 0.0), 4);
  const at::Tensor x = at::randn({2, f, 70}).requires_grad_();
  const at::Tensor rest = pca.clean(x);
  ASSERT_TRUE(rest.requires_grad());
  (rest.square().sum() * 0.5).backward();
  EXPECT_LE((x.grad() - rest.detach()).abs().max().item<double>(), 1e-4);
}

TEST_F(Pca, ComplexPixelsAreRealAndImaginaryRows) {
  const at::Tensor z = at::randn({2, 6, 10}, at::kComplexFloat);
  const at::Tensor pixels = as_pixels(z);
  EXPECT_EQ(pixels.sizes(), (std::vector<std::int64_t>{2, 6, 20}));
  EXPECT_EQ(pixels.data_ptr(), z.data_ptr());
  EXPECT_EQ(pixels[1][2][7].item<float>(), at::imag(z)[1][2][3].item<float>());
}

TEST_F(Pca, AFileGivesTheSameAndAKilledWriteLeavesNone) {
  ForegroundPca pca = fit(data(3, 16, 40, 4, 1e-3), 5);
  pca.facts = {{"num_samples", "3"}, {"fingerprint", "abc"}};
  pca.freq_mhz = at::linspace(500, 600, 16, at::kDouble);
  const auto path = folder_ / "pca_components_nfg5.safetensors";
  FaultFs counting(Fs::real());
  pca.save(counting, folder_ / "counted" / "pca.safetensors");
  const std::int64_t last = counting.calls() - 1;  // the last call syncs the folder; the file is complete before it
  for (std::int64_t call = 0; call < last; ++call) {
    FaultFs faults(Fs::real(), {.fail_at = call, .keeps_failing = true, .tears_write = true});
    EXPECT_THAT(refusal<DataError>([&] { pca.save(faults, path); }), HasSubstr("can't write")) << call;
    EXPECT_FALSE(std::filesystem::exists(path)) << call;
    std::filesystem::remove_all(folder_);
    FaultFs full(Fs::real(), {.fail_at = call, .error_number = ENOSPC, .tears_write = true});
    EXPECT_THAT(refusal<DataError>([&] { pca.save(full, path); }), HasSubstr("free space")) << call;
    EXPECT_TRUE(!std::filesystem::exists(folder_) || std::filesystem::is_empty(folder_)) << call;
  }
  pca.save(Fs::real(), path);
  ForegroundPca again = ForegroundPca::load(path);
  EXPECT_TRUE(at::equal(again.vectors(), pca.vectors()));
  EXPECT_TRUE(at::equal(again.mean(), pca.mean()));
  EXPECT_TRUE(at::equal(again.freq_mhz, pca.freq_mhz));
  EXPECT_EQ(again.n_fg(), 5);
  EXPECT_EQ(again.facts, pca.facts) << "a run that reads its own file again keeps its state";
  EXPECT_EQ(format::SafetensorsFile(path).metadata().at("N_freq"), "16");
  again.freq_mhz = at::linspace(500, 600, 15, at::kDouble);
  again.save(Fs::real(), path);
  EXPECT_THAT(refusal<DataError>([&] { (void)ForegroundPca::load(path); }),
              HasSubstr("freq_mhz has 15 channels, but mean_per_freq has 16"));
  std::ofstream(path, std::ios::app) << "x";
  EXPECT_THAT(refusal<DataError>([&] { (void)ForegroundPca::load(path); }), HasSubstr(path.string()));
}

TEST_F(Pca, TheOriginalsFileIsReadAsItIs) {
  const ForegroundPca pca = fit(data(3, 16, 40, 4, 1e-3), 5);
  const std::vector<std::pair<std::string, at::Tensor>> arrays = {
      {"fg_components", pca.components().contiguous().to(at::kFloat)},
      {"signal_components", pca.vectors().narrow(1, 5, 11).contiguous().to(at::kFloat)},
      {"eigenvalues", pca.eigenvalues().to(at::kFloat)},
      {"mean_per_freq", pca.mean().to(at::kFloat)}};
  const auto path = folder_ / "pca_components_nfg5.pt";
  const auto written = [&](std::size_t count) {
    std::vector<Field> fields;
    for (std::size_t i = 0; i < count; ++i)
      fields.push_back({arrays[i].first, DType::f32, {arrays[i].second.sizes().begin(), arrays[i].second.sizes().end()}});
    write_atomically(Fs::real(), path, [&](WritableFile& out) {
      format::write_pt(out, fields, [&](std::size_t i) {
        const at::Tensor& value = arrays[i].second;
        return std::span(static_cast<const std::byte*>(value.const_data_ptr()), static_cast<std::size_t>(value.nbytes()));
      });
    });
  };
  written(arrays.size());
  const ForegroundPca again = ForegroundPca::load(path);
  EXPECT_EQ(again.n_fg(), 5);
  EXPECT_TRUE(at::equal(again.vectors(), pca.vectors().to(at::kFloat).to(at::kDouble)));
  EXPECT_TRUE(at::equal(again.mean(), pca.mean().to(at::kFloat).to(at::kDouble)));
  written(3);
  EXPECT_THAT(refusal<DataError>([&] { (void)ForegroundPca::load(path); }),
              HasSubstr("has no mean_per_freq (it has: eigenvalues, fg_comp"));
}

}  // namespace
}  // namespace millrace::nn
