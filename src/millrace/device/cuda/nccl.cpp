#include "millrace/device/cuda/nccl.h"

#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstdlib>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "millrace/base/error.h"

namespace millrace::device {
namespace {

class NcclGroups final : public RankGroups {
 public:
  [[nodiscard]] std::string name() const override { return "nccl"; }
  [[nodiscard]] std::string library() const override { return "NCCL " + c10d::getNcclVersion(); }

  // Returns the bytes by which NCCL detects that two ranks share a GPU.
  [[nodiscard]] std::string identity(int gpu) const override {
    std::array<char, 32> id{};
    const cudaError_t status = cudaDeviceGetPCIBusId(id.data(), static_cast<int>(id.size()), gpu);
    if (status == cudaSuccess) return id.data();
    (void)cudaGetLastError();  // clears the error, which a later call would report again
    throw DeviceError({.what = std::string("the GPU's address can't be read: ") + cudaGetErrorString(status),
                       .where = "cuda:" + std::to_string(gpu),
                       .next = "check that nvidia-smi lists this GPU"});
  }

  [[nodiscard]] c10::intrusive_ptr<c10d::Backend> connect(const RankGroups::Seat& seat) override {
    // Without this setting c10d's watchdog ends the process of a healthy rank when another rank is lost. The ranks notice the
    // loss by their messages over Gloo. A time-out still ends waits on the GPU.
    ::setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "2", /*overwrite=*/0);
    const auto index = static_cast<c10::DeviceIndex>(seat.gpu);
    const c10::Device device(c10::kCUDA, index);
    const c10::cuda::CUDAGuard guard(index);
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = seat.timeout;
    auto group = c10::make_intrusive<c10d::ProcessGroupNCCL>(seat.store, seat.rank, seat.world_size, std::move(options));
    group->setBoundDeviceId(device);
    group->eagerConnectSingleDevice(device);
    return group;
  }
};

}  // namespace

RankGroups* nccl_groups(std::string& /*reason*/) {
  static NcclGroups groups;
  return &groups;
}

}  // namespace millrace::device
