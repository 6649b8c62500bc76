#include "millrace/kernels/parallel.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <memory>
#include <new>

namespace millrace::kernels {
namespace {

constexpr std::align_val_t kAlignment{64};
struct Release {
  void operator()(std::byte* memory) const noexcept { ::operator delete(memory, kAlignment); }
};

}  // namespace

void parallel(std::int64_t n, const std::function<void(std::int64_t, std::int64_t)>& body) {
  if (n > 0) at::parallel_for(0, n, 1, body);
}

RowChunks::RowChunks(std::int64_t n)
    : rows(n), rows_per_chunk(std::max<std::int64_t>(32, (n + 255) / 256)), count((n + rows_per_chunk - 1) / rows_per_chunk) {}

void parallel(const RowChunks& chunks, const std::function<void(std::int64_t, std::int64_t, std::int64_t)>& body) {
  parallel(chunks.count, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t chunk = begin; chunk < end; ++chunk) {
      const std::int64_t first = chunk * chunks.rows_per_chunk;
      body(chunk, first, std::min(chunks.rows, first + chunks.rows_per_chunk));
    }
  });
}

void* scratch(std::size_t bytes) {
  static thread_local std::unique_ptr<std::byte, Release> memory;
  static thread_local std::size_t size = 0;
  if (bytes > size) {
    memory.reset();
    size = 0;
    memory.reset(static_cast<std::byte*>(::operator new(bytes, kAlignment)));
    size = bytes;
  }
  return memory.get();
}

}  // namespace millrace::kernels
