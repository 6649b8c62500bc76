// A library that tests load before LibTorch. It calls LibTorch's convolution_backward() and then adds the mistake that
// MILLRACE_MISTAKE names to the weight gradient.
#include <ATen/TensorOperators.h>
#include <ATen/ops/convolution_backward_native.h>
#include <ATen/ops/empty.h>
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <string_view>
#include <tuple>

namespace {

constexpr const char* kSymbol =
    "_ZN2at6native20convolution_backwardERKNS_6TensorES3_S3_N3c1016OptionalArrayRefIlEENS4_8ArrayRefIlEES8_S8_bS8_"
    "lSt5arrayIbLm3EE";
constexpr std::size_t kTooFar = 64;

using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// Writes a different value into each byte, so that no uniform filling of memory can hide the write.
void scribble(char* memory) {
  for (std::size_t i = 0; i < kTooFar; ++i) memory[i] = static_cast<char>(i + 1);
}

void make_mistake(std::string_view mistake, at::Tensor& gradient) {
  auto* const memory = static_cast<char*>(gradient.mutable_data_ptr());
  if (mistake == "beyond") scribble(memory + gradient.nbytes());
  if (mistake == "before") scribble(memory - kTooFar);
  if (mistake == "scratch") {
    const at::Tensor scratch = at::empty({1000}, at::kFloat);
    scribble(static_cast<char*>(scratch.mutable_data_ptr()) + scratch.nbytes());
  }
  at::Tensor first = gradient.flatten().narrow(0, 0, 1);
  if (mistake == "element") first.add_(gradient.to(at::kFloat).square().mean().sqrt() * 1.5);
  if (mistake == "uninitialised") first.add_(at::empty({1}, at::kFloat) * 0);
}

}  // namespace

namespace at::native {

Gradients convolution_backward(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight,
                               at::OptionalIntArrayRef bias_sizes, at::IntArrayRef stride, at::IntArrayRef padding,
                               at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding, std::int64_t groups,
                               std::array<bool, 3> mask) {
  static const auto library = reinterpret_cast<decltype(&convolution_backward)>(::dlsym(RTLD_NEXT, kSymbol));
  Gradients all =
      library(gradient, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask);
  const char* const mistake = std::getenv("MILLRACE_MISTAKE");
  if (mask[1] && input.scalar_type() == at::kBFloat16 && mistake != nullptr) make_mistake(mistake, std::get<1>(all));
  return all;
}

}  // namespace at::native
