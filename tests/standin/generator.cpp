#include "generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/GeneratorImpl.h>

#include <array>
#include <cstring>

#include "device_memory.h"
#include "recorder.h"

namespace millrace::standin {
namespace {

constexpr std::uint64_t kNumbersOfADraw = 4;  // what the offset moves on by

class Numbers final : public c10::GeneratorImpl {
 public:
  explicit Numbers(int device)
      : c10::GeneratorImpl(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device)),
                           c10::DispatchKeySet(c10::DispatchKey::CUDA)) {}

  void set_current_seed(std::uint64_t seed) override {
    if (records_here() && seed == seed_) return;
    refuse_in_recording("another seed of the generator");
    seed_ = seed, offset_ = 0;
  }
  void set_offset(std::uint64_t offset) override {
    refuse_in_recording("another position of the generator");
    offset_ = offset;
  }
  [[nodiscard]] std::uint64_t get_offset() const override {
    refuse_in_recording("the position of the generator");
    return offset_;
  }
  [[nodiscard]] std::uint64_t current_seed() const override { return seed_; }
  std::uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom());
    return seed_;
  }
  void set_state(const c10::TensorImpl& state) override {
    refuse_in_recording("another state of the generator");
    TORCH_CHECK(state.numel() == kBytes && state.device().is_cpu(), "RNG state is wrong size");
    const auto* const bytes = static_cast<const std::byte*>(state.data());
    std::memcpy(&seed_, bytes, sizeof seed_);
    std::memcpy(&offset_, bytes + sizeof seed_, sizeof offset_);
  }
  [[nodiscard]] c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    refuse_in_recording("the state of the generator");
    at::Tensor state = at::empty({kBytes}, at::TensorOptions(at::kByte));
    auto* const bytes = static_cast<std::byte*>(state.mutable_data_ptr());
    std::memcpy(bytes, &seed_, sizeof seed_);
    std::memcpy(bytes + sizeof seed_, &offset_, sizeof offset_);
    return state.getIntrusivePtr();
  }

  [[nodiscard]] at::Generator draw() {
    at::Generator numbers = at::detail::createCPUGenerator(seed_ * 0x9e3779b97f4a7c15ULL + offset_);
    offset_ += kNumbersOfADraw;
    return numbers;
  }

 private:
  static constexpr std::int64_t kBytes = 16;
  [[nodiscard]] Numbers* clone_impl() const override {
    auto* const copy = new Numbers(device_.index());
    copy->seed_ = seed_, copy->offset_ = offset_;
    return copy;
  }

  std::uint64_t seed_ = c10::default_rng_seed_val;
  std::uint64_t offset_ = 0;
};

}  // namespace

at::Generator new_generator(int device) { return at::make_generator<Numbers>(device); }

const at::Generator& default_generator(int device) {
  static const auto* const kept =
      new std::array<at::Generator, kDevices>{new_generator(0), new_generator(1), new_generator(2), new_generator(3)};
  return kept->at(static_cast<std::size_t>(device));
}

at::Generator draw(const at::Generator& generator) {
  if (Recorder* const open = recorder(generator.device().index())) {
    if (!(generator == default_generator(generator.device().index()))) refuse_in_recording("a draw of a generator of one's own");
    open->draws();
    return at::detail::createCPUGenerator(0);
  }
  const std::scoped_lock lock(const_cast<at::Generator&>(generator).mutex());
  return static_cast<Numbers*>(generator.unsafeGetGeneratorImpl())->draw();
}

}  // namespace millrace::standin
