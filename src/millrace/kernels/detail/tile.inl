// The inner loop of every matrix product here: C += A B for MR rows by NV vectors of C. Operands are packed as 32-bit words. A
// word is one fp32 number or two bf16 neighbours along the summed axis (see multiply_accumulate).
#pragma once

#include "millrace/kernels/detail/elementwise.inl"

namespace {

template <class T>
inline constexpr std::int64_t kPerWord = 4 / static_cast<std::int64_t>(sizeof(T));

template <int N>
struct Int {
  static constexpr int value = N;
};
inline constexpr std::int64_t kTileColumns = 16 * kTileVectors;
// Calls run(Int<n>), where n is a compile-time constant: the number of a tile's vectors that the next `columns` columns fill.
template <class Run>
inline void with_vectors(std::int64_t columns, Run run) {
  if constexpr (kTileVectors > 1) {
    if (columns <= 16) return run(Int<1>{});
  }
  if constexpr (kTileVectors > 2) {
    if (columns <= 32) return run(Int<2>{});
  }
  if constexpr (kTileVectors > 3) {
    if (columns <= 48) return run(Int<3>{});
  }
  run(Int<kTileVectors>{});
}

template <int MR, int NV>
inline void clear(F (&c)[MR][NV]) {
#pragma GCC unroll 24
  for (int i = 0; i < MR; ++i) {
    for (int j = 0; j < NV; ++j) c[i][j] = splat(0.0F);
  }
}

// A's word (row i, word k) lies at a[i * lda + k], or at a[k * lda + i] with WordMajor; B's word row k begins at b + k * ldb.
template <class T, bool WordMajor, int MR, int NV>
inline void tile(std::int64_t words, const std::uint32_t* a, std::int64_t lda, const std::uint32_t* b, std::int64_t ldb,
                 F (&c)[MR][NV]) {
  // The pragma unrolls the loop, because the compiler otherwise keeps the sums in memory if there are few registers.
#pragma GCC unroll kWordsAtOnce
  for (std::int64_t k = 0; k < words; ++k, b += ldb) {
    U row[NV];
#pragma GCC unroll 4
    for (int j = 0; j < NV; ++j) row[j] = load_words(b + 16 * j);
#pragma GCC unroll 24
    for (int i = 0; i < MR; ++i) {
      const std::uint32_t x = WordMajor ? a[k * lda + i] : a[i * lda + k];
#pragma GCC unroll 4
      for (int j = 0; j < NV; ++j) c[i][j] = multiply_accumulate<T>(c[i][j], x, row[j]);
    }
  }
}

inline void copy_bytes(void* to, const void* from, std::int64_t bytes) {
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(from);
  for (; bytes >= 64; bytes -= 64, out += 64, in += 64) __builtin_memcpy(out, in, 64);
  if (bytes > 0) __builtin_memcpy(out, in, static_cast<std::size_t>(bytes));
}
inline void clear_bytes(void* to, std::int64_t bytes) {
  if (bytes > 0) __builtin_memset(to, 0, static_cast<std::size_t>(bytes));
}

inline constexpr std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

}  // namespace
