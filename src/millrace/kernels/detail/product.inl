// C = A B for linear layers, summed and stored in fp32. Two products ATen does badly on some CPUs or at all: in fp32 its library
// takes AVX2 code where it does not know the maker, and it has no bf16 product whose result is fp32 (a weight's gradient).
//
// B is packed into panels of 64 columns, words (see tile.inl) one below the other. A work item is one panel times a group of
// rows; it walks the summed axis in blocks, so that the panel's block and the rows' block stay in the second cache level.
#pragma once

#include "millrace/kernels/detail/elementwise.inl"
#include "millrace/kernels/detail/tile.inl"

namespace {

inline constexpr int kTileRows = 6;
inline constexpr std::int64_t kBlockWords = 512;

// Rows m and m + 1 of a bf16 matrix, 16 columns from c on, as words; past the end zero.
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
  for (std::int64_t p = 0; p < (a.rows + 1) / 2; ++p) {
    for (std::int64_t j = 0; j < kPanelColumns && first_column + j < a.columns; j += 16) {
      store_words(out + p * kPanelColumns + j, row_pair(x, a.rows, a.columns, 2 * p, first_column + j));
    }
  }
}

void pack_rows_panel(const Pack& a, std::int64_t first_column, std::uint32_t* out) {
  const std::int64_t n = a.columns - first_column < kPanelColumns ? a.columns - first_column : kPanelColumns;
  const auto* x = static_cast<const std::uint32_t*>(a.matrix) + first_column;
  for (std::int64_t r = 0; r < a.rows; ++r) {
    copy_bytes(out + r * kPanelColumns, x + r * a.columns, 4 * n);
    clear_bytes(out + r * kPanelColumns + n, 4 * (kPanelColumns - n));
  }
}

// The matrix's rows become columns.
void pack_transposed_panel(const Pack& a, std::int64_t first_row, std::uint32_t* out) {
  const auto* x = static_cast<const std::uint32_t*>(a.matrix);
  for (std::int64_t j = 0; j < kPanelColumns; j += 16) {
    const std::int64_t row = first_row + j;
    const std::int64_t whole = row + 16 <= a.rows ? a.columns / 16 * 16 : 0;
    for (std::int64_t k = 0; k < whole; k += 16)
      transpose(x + row * a.columns + k, a.columns, out + k * kPanelColumns + j, kPanelColumns);
    for (std::int64_t k = whole; k < a.columns; ++k) {
      for (std::int64_t i = 0; i < 16; ++i) out[k * kPanelColumns + j + i] = row + i < a.rows ? x[(row + i) * a.columns + k] : 0U;
    }
  }
}

void pack_panels(const Pack& a, std::int64_t first_panel, std::int64_t last_panel) {
  const std::int64_t words = a.layout == Pack::Layout::pairs  ? (a.rows + 1) / 2
                             : a.layout == Pack::Layout::rows ? a.rows
                                                              : a.columns;
  for (std::int64_t panel = first_panel; panel < last_panel; ++panel) {
    const std::int64_t at = panel * kPanelColumns;
    std::uint32_t* out = a.panels + at * words;
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

// The tile of rows [row, row + kTileRows) for one block of words of one panel. Near the end the tile begins earlier, over rows
// that are done: it may not read past the operand, and leaves those rows alone.
template <class T, bool WordMajor, int NV>
inline void multiply_tile(const Product& a, std::int64_t row, std::int64_t end_row, std::int64_t panel, std::int64_t first_word,
                          std::int64_t words) {
  const std::int64_t missing = row + kTileRows <= end_row ? 0 : row + kTileRows - end_row;
  const std::int64_t done = missing < row ? missing : row;
  const std::int64_t base = row - done;
  const std::int64_t count = end_row - base < kTileRows ? end_row - base : kTileRows;
  const std::int64_t column = panel * kPanelColumns;
  const std::uint32_t* rows = WordMajor ? a.a + first_word * a.a_stride + base : a.a + base * a.a_stride + first_word;
  F c[kTileRows][NV];
  for (int i = 0; i < kTileRows; ++i) {
    const bool adds = first_word > 0 && i < count;
    const float* from = adds ? a.c + (base + i) * a.columns : a.bias;
    for (int j = 0; j < NV; ++j) {
      const std::int64_t at = column + 16 * j;
      c[i][j] = from == nullptr ? splat(0.0F) : load_some(from + at, a.columns - at);
    }
  }
  tile<T, WordMajor>(words, rows, a.a_stride, a.panels + (column * a.words + first_word * kPanelColumns), kPanelColumns, c);
  for (std::int64_t i = done; i < count; ++i) {
    for (int j = 0; j < NV; ++j) {
      const std::int64_t at = column + 16 * j;
      store_some(a.c + (base + i) * a.columns + at, c[i][j], a.columns - at);
    }
  }
}

template <class T, bool WordMajor>
void multiply_of(const Product& a, std::int64_t first_work, std::int64_t last_work) {
  for (std::int64_t work = first_work; work < last_work; ++work) {
    const std::int64_t panel = work / a.row_groups;
    const std::int64_t begin = a.rows * (work % a.row_groups) / a.row_groups;
    const std::int64_t end = a.rows * (work % a.row_groups + 1) / a.row_groups;
    const std::int64_t columns = a.columns - panel * kPanelColumns;
    with_vectors(columns >= kPanelColumns ? 4 : (columns + 15) / 16, [&](auto vectors) {
      constexpr int kVectors = decltype(vectors)::value;
      for (std::int64_t word = 0; word == 0 || word < a.words; word += kBlockWords) {
        const std::int64_t words = a.words - word < kBlockWords ? a.words - word : kBlockWords;
        for (std::int64_t row = begin; row < end; row += kTileRows) {
          multiply_tile<T, WordMajor, kVectors>(a, row, end, panel, word, words);
        }
      }
    });
  }
}

void multiply(const Product& a, std::int64_t first_work, std::int64_t last_work) {
  if (a.type == Type::bf16) return multiply_of<std::uint16_t, true>(a, first_work, last_work);
  if (a.word_major) return multiply_of<float, true>(a, first_work, last_work);
  return multiply_of<float, false>(a, first_work, last_work);
}

}  // namespace
