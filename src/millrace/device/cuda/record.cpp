#include "millrace/device/cuda/record.h"

#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/Event.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

namespace millrace::device {
namespace {

// All recordings of a device share a pool, and are made on one stream, which must not be the default one.
struct Place {
  c10::MempoolId_t pool;
  c10::cuda::CUDAStream stream;
};

Place place_of(c10::DeviceIndex index) {
  static std::mutex mutex;
  static std::map<c10::DeviceIndex, Place> places;
  const std::scoped_lock lock(mutex);
  auto it = places.find(index);
  if (it == places.end()) {
    it = places.emplace(index, Place{at::cuda::graph_pool_handle(), c10::cuda::getStreamFromPool(false, index)}).first;
    c10::cuda::CUDACachingAllocator::createOrIncrefPool(index, it->second.pool);  // a pool that its last graph left can't be used again
  }
  return it->second;
}

// The first stream's later work waits for the second's so far.
void order(const c10::cuda::CUDAStream& later, const c10::cuda::CUDAStream& earlier) {
  c10::Event event(c10::kCUDA);
  event.record(earlier.unwrap());
  event.block(later.unwrap());
}

class Graph final : public at::cuda::CUDAGraph {
 public:
  // Other threads may allocate and page-lock memory in the meantime.
  void begin(const Place& place) { capture_begin(place.pool, cudaStreamCaptureModeThreadLocal); }

  // Ends a capture that failed: LibTorch's own end throws before it has put everything back.
  void abandon() noexcept {
    cudaGraph_t broken = nullptr;
    static_cast<void>(cudaStreamEndCapture(capture_stream_, &broken));
    if (broken != nullptr) static_cast<void>(cudaGraphDestroy(broken));
    static_cast<void>(cudaGetLastError());
    for (auto& [state, increment] : captured_generator_states_) state->capturing_ = false;
    try {
      c10::cuda::CUDACachingAllocator::endAllocateToPool(capture_dev_, mempool_id_);
      c10::cuda::CUDACachingAllocator::releasePool(capture_dev_, mempool_id_);
    } catch (const std::exception&) {  // it was ended before
    }
  }

  [[nodiscard]] bool draws() const {
    return std::ranges::any_of(captured_generator_states_, [](const auto& state) { return state.second > 0; });
  }
};

class CudaRecording final : public Recording {
 public:
  CudaRecording(c10::DeviceIndex index, std::unique_ptr<Graph> graph) : index_(index), graph_(std::move(graph)) {}
  void replay() override {
    const c10::cuda::CUDAGuard guard(index_);
    graph_->replay();
  }
  [[nodiscard]] bool draws() const override { return graph_->draws(); }

 private:
  c10::DeviceIndex index_;
  std::unique_ptr<Graph> graph_;
};

}  // namespace

std::unique_ptr<Recording> record_graph(int index, const std::function<void()>& work) {
  const auto device = static_cast<c10::DeviceIndex>(index);
  const c10::cuda::CUDAGuard guard(device);
  const Place place = place_of(device);
  const c10::cuda::CUDAStream current = c10::cuda::getCurrentCUDAStream(device);
  order(place.stream, current);
  auto graph = std::make_unique<Graph>();
  {
    const c10::cuda::CUDAStreamGuard on(place.stream);
    graph->begin(place);
    try {
      work();
      graph->capture_end();
    } catch (...) {
      graph->abandon();
      order(current, place.stream);
      throw;
    }
  }
  order(current, place.stream);
  return std::make_unique<CudaRecording>(device, std::move(graph));
}

}  // namespace millrace::device
