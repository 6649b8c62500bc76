// Products on the CPU's matrix unit (AMX), if a file is compiled for it: 16 x 16 fp32 sums of bf16 operands. Operands are packed
// as in tile.inl, with words of two neighbours along the summed axis.
#pragma once

#include "millrace/kernels/detail/tile.inl"

namespace {

#ifdef __AMX_BF16__

template <class T>
inline constexpr bool kOnTiles = sizeof(T) == 2;

// While this object exists, eight tiles of 16 rows of 64 bytes are configured. Afterwards the thread's earlier configuration is
// restored, because LibTorch's libraries use the matrix unit too. The system must have granted its use (system/instructions.h).
class TileUnit {
 public:
  TileUnit() {
    _tile_storeconfig(&before_);
    Config config{.palette = 1};
    for (int i = 0; i < 8; ++i) {
      config.row_bytes[i] = 64;
      config.rows[i] = 16;
    }
    _tile_loadconfig(&config);
  }
  ~TileUnit() {
    if (before_.palette == 0) {
      _tile_release();
    } else {
      _tile_loadconfig(&before_);
    }
  }
  TileUnit(const TileUnit&) = delete;
  TileUnit& operator=(const TileUnit&) = delete;

 private:
  struct alignas(64) Config {
    std::uint8_t palette = 0, start_row = 0, reserved[14] = {};
    std::uint16_t row_bytes[16] = {};
    std::uint8_t rows[16] = {};
  };
  Config before_;
};

// Makes the compiler finish all stores, because g++ does not know that loading a tile reads memory.
inline void finish_stores() { __asm__ volatile("" ::: "memory"); }

template <int N, bool Adds>
inline void some_tiles(std::int64_t words, const std::uint32_t* a, std::int64_t lda, const std::uint32_t* b, std::int64_t ldb,
                       float* c, std::int64_t ldc) {
  finish_stores();
  if constexpr (Adds) {
    _tile_loadd(0, c, 4 * ldc);
    if constexpr (N > 1) _tile_loadd(1, c + 16, 4 * ldc);
    if constexpr (N > 2) _tile_loadd(2, c + 32, 4 * ldc);
    if constexpr (N > 3) _tile_loadd(3, c + 48, 4 * ldc);
  } else {
    _tile_zero(0);
    if constexpr (N > 1) _tile_zero(1);
    if constexpr (N > 2) _tile_zero(2);
    if constexpr (N > 3) _tile_zero(3);
  }
  for (std::int64_t k = 0; k < words; k += 16) {
    const std::uint32_t* row = b + k * ldb;
    _tile_loadd(4, a + k, 4 * lda);
    _tile_loadd(5, row, 4 * ldb);
    _tile_dpbf16ps(0, 4, 5);
    if constexpr (N > 1) {
      _tile_loadd(6, row + 16, 4 * ldb);
      _tile_dpbf16ps(1, 4, 6);
    }
    if constexpr (N > 2) {
      _tile_loadd(7, row + 32, 4 * ldb);
      _tile_dpbf16ps(2, 4, 7);
    }
    if constexpr (N > 3) {
      _tile_loadd(5, row + 48, 4 * ldb);
      _tile_dpbf16ps(3, 4, 5);
    }
  }
  _tile_stored(0, c, 4 * ldc);
  if constexpr (N > 1) _tile_stored(1, c + 16, 4 * ldc);
  if constexpr (N > 2) _tile_stored(2, c + 32, 4 * ldc);
  if constexpr (N > 3) _tile_stored(3, c + 48, 4 * ldc);
}

// c (16 rows x `columns`, a multiple of 16) = A B, or c += A B with Adds. A's word (row i, word k) lies at a[i * lda + k], B's
// word row k begins at b + k * ldb. `words` is a multiple of 16.
template <bool Adds>
inline void tiles_product(std::int64_t words, const std::uint32_t* a, std::int64_t lda, const std::uint32_t* b, std::int64_t ldb,
                          std::int64_t columns, float* c, std::int64_t ldc) {
  std::int64_t p = 0;
  for (; p + 64 <= columns; p += 64) some_tiles<4, Adds>(words, a, lda, b + p, ldb, c + p, ldc);
  if (columns - p == 48) return some_tiles<3, Adds>(words, a, lda, b + p, ldb, c + p, ldc);
  if (columns - p == 32) return some_tiles<2, Adds>(words, a, lda, b + p, ldb, c + p, ldc);
  if (columns - p == 16) some_tiles<1, Adds>(words, a, lda, b + p, ldb, c + p, ldc);
}

#else

template <class T>
inline constexpr bool kOnTiles = false;

struct TileUnit {};

template <bool Adds>
inline void tiles_product(std::int64_t, const std::uint32_t*, std::int64_t, const std::uint32_t*, std::int64_t, std::int64_t,
                          float*, std::int64_t) {}

#endif

}  // namespace
