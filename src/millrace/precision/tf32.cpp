#include "millrace/precision/tf32.h"

#include "millrace/device/autocast.h"
#include "millrace/device/device.h"
#include "millrace/precision/precision.h"

namespace millrace::precision {
namespace {

constexpr int kTf32Capability = 8;

std::string text_of(std::pair<int, int> capability) {
  return "compute capability " + std::to_string(capability.first) + "." + std::to_string(capability.second);
}

}  // namespace

Chosen<bool> choose_tf32(std::optional<bool> wish, c10::Device device, std::pair<int, int> capability,
                         std::optional<c10::ScalarType> format) {
  if (device.is_cpu()) return {.value = false, .reason = wish ? "without effect: only GPUs have TF32" : ""};
  if (capability.first < kTf32Capability)
    return {.value = false, .reason = (wish ? "without effect: " : "") + text_of(capability) + ", but TF32 needs 8.0"};
  if (wish) return {.value = *wish, .reason = *wish ? "fp32 products and convolutions round their factors to 10 bits" : ""};
  if (format)
    return {.value = true, .reason = name_of(format) + " rounds more than TF32, so the operations left in fp32 may use TF32"};
  return {.value = false,
          .reason =
              "fp32 products and convolutions are exact; device.tf32=on rounds their factors to 10 bits and takes a fraction of "
              "the time"};
}

Chosen<bool> choose_tf32(std::optional<bool> wish, c10::Device device, std::optional<c10::ScalarType> format) {
  const int index = device.has_index() ? device.index() : 0;
  return choose_tf32(wish, device, device::backend_of(device).compute_capability(index), format);
}

std::string tf32_remark(const Chosen<bool>& choice, c10::Device device, std::optional<c10::ScalarType> format) {
  if (device.is_cpu() || format) return "";
  return choice.value ? "products and convolutions in TF32, see device.tf32" : "exact, without TF32";
}

void use_tf32(const Chosen<bool>& choice, c10::Device device) {
  if (!device.is_cpu()) device::allow_tf32(choice.value);
}

}  // namespace millrace::precision
