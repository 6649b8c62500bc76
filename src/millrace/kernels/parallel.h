// Threads and scratch memory for the kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace millrace::kernels {

// Runs body(begin, end) on contiguous shares of [0, n), one per thread of at::get_num_threads().
void parallel(std::int64_t n, const std::function<void(std::int64_t, std::int64_t)>& body);

// Divides rows into chunks whose partial sums are added in order. The division depends only on the number of rows, so that a sum
// has the same bits for any number of threads.
struct RowChunks {
  explicit RowChunks(std::int64_t rows);
  std::int64_t rows, rows_per_chunk, count;
};
// Runs body(chunk, first_row, last_row) for all chunks, in parallel.
void parallel(const RowChunks& chunks, const std::function<void(std::int64_t, std::int64_t, std::int64_t)>& body);

// Scratch memory of the calling thread: at least `bytes` bytes, 64-byte aligned, uninitialised, valid until the thread's next
// call. The memory is kept for reuse.
void* scratch(std::size_t bytes);

}  // namespace millrace::kernels
