// C = A B for linear layers, summed and stored in fp32. ATen lacks two such products, or computes them slowly, on some CPUs. In
// fp32 its library uses AVX2 code if it does not know the CPU's maker. It has no bf16 product with an fp32 result, which a
// weight's gradient needs.
//
// B is packed into panels of 64 columns. A panel consists of strips as wide as the register tile, whose words (see tile.inl)
// stand one below the other. A work item is one panel times a group of rows. It walks the summed axis in blocks, so that the
// strip's block and the rows' block stay in the cache.
#pragma once

#include "millrace/kernels/detail/elementwise.inl"
#include "millrace/kernels/detail/tile.inl"

namespace {

// Index of column j in a panel's first word. The next words of the column are kTileColumns apart.
inline std::int64_t place_in_panel(std::int64_t j, std::int64_t words) {
  return j / kTileColumns * kTileColumns * words + j % kTileColumns;
}

// Rows m and m + 1 of a bf16 matrix, 16 columns from c on, as words. Elements past the end are zero.
inline U row_pair(const std::uint16_t* x, std::int64_t rows, std::int64_t columns, std::int64_t m, std::int64_t c) {
  const std::uint16_t* low = x + m * columns + c;
  if (c + 16 <= columns && m + 1 < rows) return zip(low, low + columns);
  std::uint16_t padded[2][16] = {};
  const std::int64_t n = columns - c < 16 ? columns - c : 16;
  for (std::int64_t i = 0; i < n; ++i) {
    padded[0][i] = low[i];
    if (m + 1 < rows) padded[1][i] = low[columns + i];
  }
  return zip(padded[0], padded[1]);
}

void pack_pairs_panel(const Pack& a, std::int64_t first_column, std::uint32_t* out) {
  const auto* x = static_cast<const std::uint16_t*>(a.matrix);
  const std::int64_t words = (a.rows + 1) / 2;
  for (std::int64_t p = 0; p < words; ++p) {
    for (std::int64_t j = 0; j < kPanelColumns && first_column + j < a.columns; j += 16) {
      store_words(out + place_in_panel(j, words) + p * kTileColumns, row_pair(x, a.rows, a.columns, 2 * p, first_column + j));
    }
  }
}

void pack_rows_panel(const Pack& a, std::int64_t first_column, std::uint32_t* out) {
  const std::int64_t n = a.columns - first_column < kPanelColumns ? a.columns - first_column : kPanelColumns;
  const auto* x = static_cast<const std::uint32_t*>(a.matrix) + first_column;
  for (std::int64_t r = 0; r < a.rows; ++r) {
    for (std::int64_t j = 0; j < kPanelColumns; j += kTileColumns) {
      const std::int64_t filled = n - j < 0 ? 0 : n - j < kTileColumns ? n - j : kTileColumns;
      std::uint32_t* to = out + place_in_panel(j, a.rows) + r * kTileColumns;
      copy_bytes(to, x + r * a.columns + j, 4 * filled);
      clear_bytes(to + filled, 4 * (kTileColumns - filled));
    }
  }
}

// Packs a panel whose columns are rows of the matrix.
void pack_transposed_panel(const Pack& a, std::int64_t first_row, std::uint32_t* out) {
  const auto* x = static_cast<const std::uint32_t*>(a.matrix);
  for (std::int64_t j = 0; j < kPanelColumns; j += 16) {
    const std::int64_t row = first_row + j;
    std::uint32_t* to = out + place_in_panel(j, a.columns);
    const std::int64_t whole = row + 16 <= a.rows ? a.columns / 16 * 16 : 0;
    for (std::int64_t k = 0; k < whole; k += 16)
      transpose(x + row * a.columns + k, a.columns, to + k * kTileColumns, kTileColumns);
    for (std::int64_t k = whole; k < a.columns; ++k) {
      for (std::int64_t i = 0; i < 16; ++i) to[k * kTileColumns + i] = row + i < a.rows ? x[(row + i) * a.columns + k] : 0U;
    }
  }
}

void pack_panels(const Pack& a, std::int64_t first_panel, std::int64_t last_panel) {
  const std::int64_t words = a.layout == Pack::Layout::pairs  ? (a.rows + 1) / 2
                             : a.layout == Pack::Layout::rows ? a.rows
                                                              : a.columns;
  for (std::int64_t panel = first_panel; panel < last_panel; ++panel) {
    const std::int64_t at = panel * kPanelColumns;
    std::uint32_t* out = a.panels + (at - a.first_panel * kPanelColumns) * words;
    switch (a.layout) {
      case Pack::Layout::pairs:
        pack_pairs_panel(a, at, out);
        break;
      case Pack::Layout::rows:
        pack_rows_panel(a, at, out);
        break;
      case Pack::Layout::transposed:
        pack_transposed_panel(a, at, out);
        break;
    }
  }
}

void pack_word_rows(const WordRows& a, std::int64_t first_strip, std::int64_t last_strip) {
  for (std::int64_t c = first_strip * 16; c < last_strip * 16; c += 16) {
    F total = splat(0.0F);
    for (std::int64_t p = 0; p < (a.rows + 1) / 2; ++p) {
      const U words = row_pair(a.matrix, a.rows, a.columns, 2 * p, c);
      store_words(a.words + p * a.stride + c, words);
      total = add_pairs(total, words);
    }
    if (a.column_sums != nullptr) store_some(a.column_sums + c, total, a.columns - c);
  }
}

// Rows [base, base + count) of the result and their operand. The first `done` rows are complete already. If a tile is not full,
// its other rows are summed and dropped.
struct TileRows {
  const std::uint32_t* words;
  std::int64_t stride, base, done, count;
};

// The operand's address for the tile at `row`. The tile must not read past the operand, so near the end it starts earlier, over
// rows that are complete.
template <bool WordMajor>
inline TileRows rows_in_place(const Product& a, std::int64_t row, std::int64_t end_row, std::int64_t first_word) {
  const std::int64_t missing = row + kTileRows <= end_row ? 0 : row + kTileRows - end_row;
  const std::int64_t done = missing < row ? missing : row;
  const std::int64_t base = row - done;
  const std::uint32_t* words = WordMajor ? a.a + first_word * a.a_stride + base : a.a + base * a.a_stride + first_word;
  return {words, a.a_stride, base, done, end_row - base < kTileRows ? end_row - base : kTileRows};
}

// In a word-major operand the next word is a whole row away. That distance is often a page and a power of two, so that few
// cache lines can hold the words. Therefore a block of the operand is copied, tile by tile, and serves all panels.
inline constexpr std::int64_t kBlockTiles = 40;
inline void pack_tiles(const Product& a, std::int64_t row, std::int64_t rows, std::int64_t first_word, std::int64_t words,
                       std::uint32_t* out) {
  const std::int64_t full = rows / kTileRows;
  const std::int64_t rest = rows % kTileRows;
  for (std::int64_t k = 0; k < words; ++k, out += kTileRows) {
    const std::uint32_t* from = a.a + (first_word + k) * a.a_stride + row;
    for (std::int64_t t = 0; t < full; ++t) {
      __builtin_memcpy(out + t * kTileRows * kBlockWords, from + t * kTileRows, sizeof(std::uint32_t) * kTileRows);
    }
    for (std::int64_t i = 0; i < (rest > 0 ? kTileRows : 0); ++i) {
      out[full * kTileRows * kBlockWords + i] = i < rest ? from[full * kTileRows + i] : 0U;
    }
  }
}

// Multiplies one block of words of one strip.
template <class T, bool WordMajor, int NV>
inline void multiply_tile(const Product& a, const TileRows& r, std::int64_t column, std::int64_t first_word, std::int64_t words) {
  F c[kTileRows][NV];
  for (int i = 0; i < kTileRows; ++i) {
    const bool adds = first_word > 0 && i < r.count;
    const float* from = adds ? a.c + (r.base + i) * a.c_stride : a.bias;
    for (int j = 0; j < NV; ++j) {
      const std::int64_t at = column + 16 * j;
      c[i][j] = from == nullptr ? splat(0.0F) : load_some(from + at, a.columns - at);
    }
  }
  tile<T, WordMajor>(words, r.words, r.stride, a.panels + (column * a.words + first_word * kTileColumns), kTileColumns, c);
  for (std::int64_t i = r.done; i < r.count; ++i) {
    for (int j = 0; j < NV; ++j) {
      const std::int64_t at = column + 16 * j;
      store_some(a.c + (r.base + i) * a.c_stride + at, c[i][j], a.columns - at);
    }
  }
}

struct Block {
  std::int64_t begin_row, end_row, begin_column, end_column, first_word, words;
};
// Multiplies a block of rows and words by a block of panels.
template <class T, bool WordMajor>
void multiply_block(const Product& a, const Block& b) {
  constexpr bool kCopies = WordMajor && kTileColumns < kPanelColumns;
  std::uint32_t packed[kCopies ? kBlockTiles * kTileRows * kBlockWords : 1];
  if constexpr (kCopies) pack_tiles(a, b.begin_row, b.end_row - b.begin_row, b.first_word, b.words, packed);
  for (std::int64_t column = b.begin_column; column < b.end_column; column += kTileColumns) {
    with_vectors(b.end_column - column, [&](auto vectors) {
      for (std::int64_t row = b.begin_row; row < b.end_row; row += kTileRows) {
        TileRows r;
        if constexpr (kCopies) {
          const std::int64_t left = b.end_row - row;
          r = {packed + (row - b.begin_row) * kBlockWords, kTileRows, row, 0, left < kTileRows ? left : kTileRows};
        } else {
          r = rows_in_place<WordMajor>(a, row, b.end_row, b.first_word);
        }
        multiply_tile<T, WordMajor, decltype(vectors)::value>(a, r, column, b.first_word, b.words);
      }
    });
  }
}

// The first row of a group. Groups begin at whole tiles, so that only the last tile may be partial.
inline std::int64_t first_row_of(const Product& a, std::int64_t group) {
  const std::int64_t tiles = (a.rows + kTileRows - 1) / kTileRows;
  const std::int64_t row = tiles * group / a.row_groups * kTileRows;
  return row < a.rows ? row : a.rows;
}

template <class T, bool WordMajor>
void multiply_of(const Product& a, std::int64_t first_work, std::int64_t last_work) {
  const std::int64_t panels = (a.columns + kPanelColumns - 1) / kPanelColumns;
  for (std::int64_t work = first_work; work < last_work;) {
    const std::int64_t group = work / panels;
    const std::int64_t last = (group + 1) * panels < last_work ? (group + 1) * panels : last_work;
    const std::int64_t end_column = (last - group * panels) * kPanelColumns;
    Block b{};
    b.begin_column = work % panels * kPanelColumns;
    b.end_column = end_column < a.columns ? end_column : a.columns;
    const std::int64_t end = first_row_of(a, group + 1);
    const std::int64_t tiles = (end - first_row_of(a, group) + kTileRows - 1) / kTileRows;
    const std::int64_t parts = (tiles + kBlockTiles - 1) / kBlockTiles;
    for (std::int64_t part = 0; part < parts; ++part) {
      b.begin_row = first_row_of(a, group) + tiles * part / parts * kTileRows;
      b.end_row = part + 1 == parts ? end : first_row_of(a, group) + tiles * (part + 1) / parts * kTileRows;
      for (b.first_word = 0; b.first_word == 0 || b.first_word < a.words; b.first_word += kBlockWords) {
        b.words = a.words - b.first_word < kBlockWords ? a.words - b.first_word : kBlockWords;
        multiply_block<T, WordMajor>(a, b);
      }
    }
    work = last;
  }
}

void multiply(const Product& a, std::int64_t first_work, std::int64_t last_work) {
  if (a.type == Type::bf16) return multiply_of<std::uint16_t, true>(a, first_work, last_work);
  if (a.word_major) return multiply_of<float, true>(a, first_work, last_work);
  return multiply_of<float, false>(a, first_work, last_work);
}

}  // namespace
