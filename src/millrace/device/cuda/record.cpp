#include "millrace/device/cuda/record.h"

#include <ATen/core/CachingHostAllocator.h>
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

using Pool = std::shared_ptr<const c10::MempoolId_t>;

// The memory pool that all living recordings of a device share. A pool whose last graph is gone can't be used again.
Pool pool_of(c10::DeviceIndex index) {
  static std::mutex mutex;
  static std::map<c10::DeviceIndex, std::weak_ptr<const c10::MempoolId_t>> pools;
  const std::scoped_lock lock(mutex);
  std::weak_ptr<const c10::MempoolId_t>& known = pools[index];
  Pool pool = known.lock();
  if (pool == nullptr) known = pool = std::make_shared<const c10::MempoolId_t>(at::cuda::graph_pool_handle());
  return pool;
}

// The stream on which all recordings of a device are made. This stream must not be the default stream.
c10::cuda::CUDAStream stream_of(c10::DeviceIndex index) {
  static std::mutex mutex;
  static std::map<c10::DeviceIndex, c10::cuda::CUDAStream> streams;
  const std::scoped_lock lock(mutex);
  auto it = streams.find(index);
  if (it == streams.end()) it = streams.emplace(index, c10::cuda::getStreamFromPool(false, index)).first;
  return it->second;
}

// Makes later work of stream `later` wait for the present work of stream `earlier`.
void order(const c10::cuda::CUDAStream& later, const c10::cuda::CUDAStream& earlier) {
  c10::Event event(c10::kCUDA);
  event.record(earlier.unwrap());
  event.block(later.unwrap());
}

class Graph final : public at::cuda::CUDAGraph {
 public:
  // "ThreadLocal" lets other threads allocate and page-lock memory during the capture.
  void begin(c10::MempoolId_t pool) { capture_begin(pool, cudaStreamCaptureModeThreadLocal); }

  // Ends a capture that failed.
  void abandon() noexcept { end(*this); }

  [[nodiscard]] bool draws() const {
    return std::ranges::any_of(captured_generator_states_, [](const auto& state) { return state.second > 0; });
  }

 private:
  // LibTorch 2.15's capture_end() restores all state. LibTorch 2.11's would throw before it has restored everything, so this
  // function does its steps instead of calling it.
  template <class OfEitherTorch>
  static void end(OfEitherTorch& graph) noexcept {
    try {
      if constexpr (requires { graph.capturing_to_pool_; }) {
        if (graph.capturing_to_pool_) graph.capture_end();
      } else {
        cudaGraph_t broken = nullptr;
        static_cast<void>(cudaStreamEndCapture(graph.capture_stream_, &broken));
        if (broken != nullptr) static_cast<void>(cudaGraphDestroy(broken));
        for (auto& [state, increment] : graph.captured_generator_states_) state->capturing_ = false;
        c10::cuda::CUDACachingAllocator::endAllocateToPool(graph.capture_dev_, graph.mempool_id_);
        c10::cuda::CUDACachingAllocator::releasePool(graph.capture_dev_, graph.mempool_id_);
        at::getHostAllocator(at::kCUDA)->end_allocate_to_pool(graph.mempool_id_);
        at::getHostAllocator(at::kCUDA)->release_pool(graph.mempool_id_);
      }
    } catch (const std::exception&) {  // the capture is broken, or had ended already
    }
    static_cast<void>(cudaGetLastError());
  }
};

class CudaRecording final : public Recording {
 public:
  CudaRecording(c10::DeviceIndex index, Pool pool, std::unique_ptr<Graph> graph)
      : index_(index), pool_(std::move(pool)), graph_(std::move(graph)) {}
  // Waits for the last replay, because LibTorch may return a destroyed graph's memory to the driver. If segments grow, LibTorch
  // itself waits only for the recording's stream, on which no replay runs.
  ~CudaRecording() override {
    try {
      const c10::cuda::CUDAGuard guard(index_);
      C10_CUDA_CHECK(cudaDeviceSynchronize());
    } catch (const std::exception&) {  // the device is lost, and the replay with it
    }
  }
  void replay() override {
    const c10::cuda::CUDAGuard guard(index_);
    graph_->replay();
  }
  [[nodiscard]] bool draws() const override { return graph_->draws(); }

 private:
  c10::DeviceIndex index_;
  Pool pool_;  // must outlive the graph
  std::unique_ptr<Graph> graph_;
};

}  // namespace

std::unique_ptr<Recording> record_graph(int index, const std::function<void()>& work) {
  const auto device = static_cast<c10::DeviceIndex>(index);
  const c10::cuda::CUDAGuard guard(device);
  Pool pool = pool_of(device);
  const c10::cuda::CUDAStream stream = stream_of(device), current = c10::cuda::getCurrentCUDAStream(device);
  order(stream, current);
  auto graph = std::make_unique<Graph>();
  {
    const c10::cuda::CUDAStreamGuard on(stream);
    graph->begin(*pool);
    try {
      work();
      graph->capture_end();
    } catch (...) {
      graph->abandon();
      order(current, stream);
      throw;
    }
  }
  order(current, stream);
  return std::make_unique<CudaRecording>(device, std::move(pool), std::move(graph));
}

}  // namespace millrace::device
