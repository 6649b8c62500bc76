// Compares the arithmetic of device/cuda/decoder.cu, thread by thread, with LibTorch's operations and their gradients.
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/silu.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "millrace/kernels/arguments.h"
#include "millrace/kernels/detail/test_launch_decoder.h"

namespace millrace::kernels {
namespace {

constexpr double kEpsilon = 1e-5;

double tolerance(at::ScalarType type) { return type == at::kFloat ? 1e-5 : type == at::kHalf ? 2e-3 : 1.6e-2; }

void expect_near(const at::Tensor& ours, const at::Tensor& theirs, at::ScalarType type, const char* what) {
  const double size = theirs.abs().max().item<double>();
  EXPECT_TRUE(at::allclose(ours.to(at::kDouble), theirs.to(at::kDouble), tolerance(type), tolerance(type) * size)) << what;
}

at::Tensor leaf(at::IntArrayRef sizes, at::ScalarType type) { return at::randn(sizes).to(type).to(at::kDouble).requires_grad_(); }

struct Rms {
  at::Tensor x, branch, weight;  // fp64 leaves whose numbers their narrower types can hold
  at::ScalarType x_type, y_type;

  void check(std::uint32_t seed) const {
    const at::Tensor sum = (branch.defined() ? x + branch : x).detach().to(x_type).to(at::kDouble);
    const at::Tensor exact_sum = branch.defined() ? x + branch : x;
    const at::Tensor y = exact_sum * (exact_sum.square().mean(-1, true) + kEpsilon).rsqrt() * weight;
    const at::Tensor dy = at::randn(x.sizes()).to(y_type), more = at::randn(x.sizes()).to(x_type);
    const auto gradients = torch::autograd::grad({y, exact_sum}, {x}, {dy.to(at::kDouble), more.to(at::kDouble)});
    const at::Tensor input = x.detach().to(x_type), added = branch.defined() ? branch.detach().to(y_type) : at::Tensor();
    const at::Tensor scale = weight.detach().to(at::kFloat), rates = at::empty({x.size(0)});
    const at::Tensor ours_sum = at::empty_like(input), ours_y = at::empty(x.sizes(), input.options().dtype(y_type));
    DeviceRms args{.x = input.const_data_ptr(),
                   .branch = added.defined() ? added.const_data_ptr() : nullptr,
                   .sum = added.defined() ? ours_sum.mutable_data_ptr() : nullptr,
                   .y = ours_y.mutable_data_ptr(),
                   .y_gradient = nullptr,
                   .sum_gradient = nullptr,
                   .x_gradient = nullptr,
                   .branch_gradient = nullptr,
                   .weight = scale.const_data_ptr<float>(),
                   .rates = rates.mutable_data_ptr<float>(),
                   .x_type = type_of(x_type),
                   .y_type = type_of(y_type),
                   .rows = x.size(0),
                   .width = x.size(1),
                   .epsilon = static_cast<float>(kEpsilon)};
    launched::rms_rows(args, launched::Order(seed));
    if (added.defined()) expect_near(ours_sum, sum, x_type, "sum");
    const at::ScalarType coarser = tolerance(x_type) > tolerance(y_type) ? x_type : y_type;
    expect_near(ours_y, y.detach(), added.defined() ? coarser : y_type, "y");
    const at::Tensor dx = at::empty_like(input), db = at::empty_like(ours_y);
    args.x = added.defined() ? ours_sum.const_data_ptr() : input.const_data_ptr();
    args.branch = nullptr;
    args.y_gradient = dy.const_data_ptr();
    args.sum_gradient = more.const_data_ptr();
    args.x_gradient = dx.mutable_data_ptr();
    args.branch_gradient = db.mutable_data_ptr();
    launched::rms_rows(args, launched::Order(seed + 1));
    expect_near(dx, gradients[0], coarser, "gradient of x");
    expect_near(db, gradients[0], coarser, "gradient of the branch");
  }
};

TEST(DecoderLane, NormsRowsAsLibTorch) {
  for (const auto x_type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const auto y_type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      for (const std::int64_t width : {8, 384, 1032}) {
        const at::Tensor weight = (at::rand({width}) + 0.5).to(at::kFloat).to(at::kDouble);
        Rms{leaf({3, width}, x_type), {}, weight, x_type, y_type}.check(7);
        Rms{leaf({3, width}, x_type), leaf({3, width}, y_type), weight, x_type, y_type}.check(8);
      }
    }
  }
}

TEST(DecoderLane, GatesAsLibTorch) {
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor packed = leaf({5, 48}, type), halves = packed;
    const at::Tensor y = at::silu(packed.narrow(1, 0, 24)) * packed.narrow(1, 24, 24), dy = at::randn({5, 24}).to(type);
    const at::Tensor exact = torch::autograd::grad({y}, {packed}, {dy.to(at::kDouble)})[0];
    const at::Tensor x = packed.detach().to(type), out = at::empty({5, 24}, x.options()), dx = at::empty_like(x);
    DeviceSwiglu args{x.const_data_ptr(), nullptr, out.mutable_data_ptr(), type_of(type), 5, 24};
    launched::swiglu(args, launched::Order(1));
    args.gradient = dy.const_data_ptr();
    args.out = dx.mutable_data_ptr();
    launched::swiglu(args, launched::Order(2));
    expect_near(out, y.detach(), type, "y");
    expect_near(dx, exact, type, "gradient");
  }
}

TEST(DecoderLane, TurnsHeadsAndTurnsThemBack) {
  const at::Tensor angles = at::randn({3, 8}), cos = angles.cos(), sin = angles.sin();
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor packed = at::randn({2, 3, 3 * 4 * 16}).to(type);  // three parts of four heads
    const at::Tensor x = packed.narrow(2, 64, 64).unflatten(2, {4, 16}), wide = x.to(at::kDouble);
    const at::Tensor a = wide.narrow(3, 0, 8), b = wide.narrow(3, 8, 8);
    const at::Tensor c = cos.to(at::kDouble).unsqueeze(1), s = sin.to(at::kDouble).unsqueeze(1);
    const at::Tensor out = at::empty({2, 3, 4, 16}, x.options()), again = at::empty_like(out);
    DeviceTurn args{.x = x.const_data_ptr(),
                    .out = out.mutable_data_ptr(),
                    .cos = cos.const_data_ptr<float>(),
                    .sin = sin.const_data_ptr<float>(),
                    .type = type_of(type),
                    .batch = 2,
                    .rows = 3,
                    .heads = 4,
                    .half = 8,
                    .batch_stride = x.stride(0),
                    .row_stride = x.stride(1),
                    .out_batch_stride = out.stride(0),
                    .out_row_stride = out.stride(1),
                    .back = false};
    launched::turn(args, launched::Order(3));
    expect_near(out, at::cat({a * c - b * s, b * c + a * s}, 3), type, "turned");
    args.x = out.const_data_ptr();
    args.out = again.mutable_data_ptr();
    args.batch_stride = out.stride(0);
    args.row_stride = out.stride(1);
    args.back = true;
    launched::turn(args, launched::Order(4));
    expect_near(again, x, type, "turned back");
    const at::Tensor others = packed.clone(), in_place = others.narrow(2, 64, 64).unflatten(2, {4, 16});
    args.x = args.out = in_place.mutable_data_ptr();
    args.batch_stride = args.out_batch_stride = in_place.stride(0);
    args.row_stride = args.out_row_stride = in_place.stride(1);
    args.back = false;
    launched::turn(args, launched::Order(5));
    EXPECT_TRUE(at::equal(in_place, out));
    in_place.copy_(x);
    EXPECT_TRUE(at::equal(others, packed)) << "the other parts";
  }
}

}  // namespace
}  // namespace millrace::kernels
