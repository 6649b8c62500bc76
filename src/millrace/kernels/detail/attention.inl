// Attention with dropout, for one (batch, head) at a time. A strip of query rows (four; sixteen on a matrix unit) is multiplied
// with all keys that it sees. So scores stay in the first cache level, and nothing of size T * T is written. Any T and head size,
// because operands are packed into zero-padded scratch.
#pragma once

#include "millrace/kernels/detail/elementwise.inl"
#include "millrace/kernels/detail/tiles.inl"

namespace {

// Sizes of the packed operands. The number of rows is padded to 64 (one panel of scores), the head's columns to 16, and the words
// of a row to 16.
struct AttentionShape {
  std::int64_t rows, padded_rows, size, width, words, row_words;
};
template <class T>
inline AttentionShape attention_shape(const Attention& a) {
  const std::int64_t width = round_up(a.head_size, 16);
  const std::int64_t words = width / kPerWord<T>;
  return {a.rows, round_up(a.rows, 64), a.head_size, width, words, round_up(words, 16)};
}

template <class T>
inline constexpr std::int64_t kStrip = kOnTiles<T> ? 16 : 4;  // query rows that are handled together
// A product on tiles sums over whole tiles, which are 32 bf16 neighbours. Columns up to that size are computed and then masked.
template <class T>
inline constexpr std::int64_t kWholeColumns = kOnTiles<T> ? 32 : 16;
template <class T>
inline constexpr std::int64_t kWholeRows = kOnTiles<T> ? 32 : 4;

// The number of keys that the query rows before `end` see. `end` is a multiple of the strip's rows.
inline std::int64_t keys_of_rows(const Attention& a, std::int64_t end) { return a.causal ? end : round_up(a.rows, 4); }
// The number of keys that a row sees, and the first row that sees a key.
inline std::int64_t keys_of_row(const Attention& a, std::int64_t row) { return a.causal ? row + 1 : a.rows; }
inline std::int64_t first_row_of(const Attention& a, std::int64_t key) { return a.causal ? key : 0; }

inline constexpr std::int64_t kQueryBlock = 128;  // rows of the backward pass whose weights are in memory at a time

struct AttentionScratch {
  std::uint32_t *q_rows, *g_rows, *k_rows, *v_rows;  // [padded_rows][row_words]: first operands (A)
  std::uint32_t *k_columns, *v_columns;              // [row_words][padded_rows]: transposed
  // [padded_rows / per word][width]: second operands (B), packed along the rows
  std::uint32_t *q_pairs, *g_pairs, *k_pairs, *v_pairs;
  float *scores, *weight_gradients;                // [kStrip][padded_rows]
  std::uint32_t *weights, *score_gradients;        // [kStrip][padded_rows] in T
  std::uint32_t *block_weights, *block_gradients;  // [kQueryBlock / per word][padded_rows]
  float *k_gradient, *v_gradient;                  // [padded_rows][width]
  std::uint8_t* bits;
  std::size_t bytes;
};

template <class T>
AttentionScratch attention_scratch_of(const Attention& a, bool backward, void* memory) {
  const AttentionShape s = attention_shape<T>(a);
  AttentionScratch out{};
  auto* base = static_cast<char*>(memory);
  const auto take_one = [&]<class P>(P*& pointer, std::int64_t bytes) {
    pointer = reinterpret_cast<P*>(base + out.bytes);
    out.bytes += static_cast<std::size_t>(round_up(bytes, 64));
  };
  const auto take = [&](std::int64_t bytes, auto&... pointers) { (take_one(pointers, bytes), ...); };
  const std::int64_t packed = 4 * s.padded_rows * s.row_words;
  const std::int64_t paired = 4 * s.padded_rows / kPerWord<T> * s.width;
  const std::int64_t strip = 4 * kStrip<T> * s.padded_rows;
  const std::int64_t block = 4 * kQueryBlock / kPerWord<T> * s.padded_rows;
  take(packed, out.q_rows, out.k_rows, out.v_rows, out.k_columns);
  take(strip, out.scores, out.weights);
  take(paired, out.v_pairs);
  take(s.rows / 8 + 128, out.bits);
  if (!backward) return out;
  take(packed, out.g_rows, out.v_columns);
  take(paired, out.q_pairs, out.g_pairs, out.k_pairs);
  take(strip, out.weight_gradients, out.score_gradients);
  take(block, out.block_weights, out.block_gradients);
  take(4 * s.padded_rows * s.width, out.k_gradient, out.v_gradient);
  return out;
}

std::size_t attention_scratch(const Attention& a, bool backward) {
  return a.type == Type::f32 ? attention_scratch_of<float>(a, backward, nullptr).bytes
                             : attention_scratch_of<std::uint16_t>(a, backward, nullptr).bytes;
}

template <class T>
inline T* head_of(const HeadView& view, std::int64_t batch, std::int64_t head) {
  return static_cast<T*>(view.data) + batch * view.batch_stride + head * view.head_stride;
}

template <class T>
void pack_rows(const AttentionShape& s, const T* x, std::int64_t stride, std::uint32_t* out) {
  const auto bytes = static_cast<std::int64_t>(sizeof(T)) * s.size;
  for (std::int64_t t = 0; t < s.padded_rows; ++t) {
    auto* row = reinterpret_cast<char*>(out + t * s.row_words);
    const std::int64_t filled = t < s.rows ? bytes : 0;
    copy_bytes(row, x + t * stride, filled);
    clear_bytes(row + filled, 4 * s.row_words - filled);
  }
}

void pack_columns(const AttentionShape& s, const std::uint32_t* rows, std::uint32_t* out) {
  for (std::int64_t t = 0; t < s.padded_rows; t += 16) {
    for (std::int64_t w = 0; w < s.row_words; w += 16) {
      transpose(rows + t * s.row_words + w, s.row_words, out + w * s.padded_rows + t, s.padded_rows);
    }
  }
}

// Returns the address of the pairs. For fp32 these are the packed rows themselves.
template <class T>
const std::uint32_t* pack_pairs(const AttentionShape& s, const std::uint32_t* rows, std::uint32_t* out) {
  if constexpr (sizeof(T) == 4) {
    return rows;
  } else {
    for (std::int64_t t = 0; t < s.padded_rows; t += 2) {
      const auto* low = reinterpret_cast<const std::uint16_t*>(rows + t * s.row_words);
      const auto* high = reinterpret_cast<const std::uint16_t*>(rows + (t + 1) * s.row_words);
      for (std::int64_t j = 0; j < s.width; j += 16) store_words(out + t / 2 * s.width + j, zip(low + j, high + j));
    }
    return out;
  }
}

// out (a strip x columns) = packed rows times the transposed operand.
template <class T>
inline void strip_product(const AttentionShape& s, const std::uint32_t* rows, const std::uint32_t* transposed,
                          std::int64_t columns, float* out) {
  if constexpr (kOnTiles<T>)
    return tiles_product<false>(s.row_words, rows, s.row_words, transposed, s.padded_rows, columns, out, s.padded_rows);
  for (std::int64_t p = 0; p < columns; p += kTileColumns) {
    with_vectors(columns - p, [&](auto vectors) {
      constexpr int kVectors = decltype(vectors)::value;
      F c[4][kVectors];
      clear(c);
      tile<T, false>(s.words, rows, s.row_words, transposed + p, s.padded_rows, c);
      for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < kVectors; ++j) store(out + i * s.padded_rows + p + 16 * j, c[i][j]);
      }
    });
  }
}

// strip_times_pairs() on tiles, 64 columns at a time, with fp32 sums.
template <class T>
inline void tiled_strip_times_pairs(const AttentionShape& s, const std::uint32_t* strip, std::int64_t keys,
                                    const std::uint32_t* pairs, T* out, std::int64_t stride, std::int64_t rows) {
  alignas(64) float sums[16 * 64];
  for (std::int64_t p = 0; p < s.width; p += 64) {
    const std::int64_t columns = s.width - p < 64 ? s.width - p : 64;
    tiles_product<false>(keys / 2, strip, s.padded_rows / 2, pairs + p, s.width, columns, sums, 64);
    for (std::int64_t i = 0; i < 16 && i < rows; ++i) {
      for (std::int64_t j = 0; j < columns && p + j < s.size; j += 16)
        store_some(out + i * stride + p + j, load(sums + 64 * i + j), s.size - p - j);
    }
  }
}

// A strip's rows of `out` (at most `rows` rows exist) = strip (x keys, in T) times pairs.
template <class T>
inline void strip_times_pairs(const AttentionShape& s, const std::uint32_t* strip, std::int64_t keys, const std::uint32_t* pairs,
                              T* out, std::int64_t stride, std::int64_t rows) {
  if constexpr (kOnTiles<T>) return tiled_strip_times_pairs(s, strip, round_up(keys, kWholeColumns<T>), pairs, out, stride, rows);
  for (std::int64_t p = 0; p < s.width; p += kTileColumns) {
    with_vectors(s.width - p, [&](auto vectors) {
      constexpr int kVectors = decltype(vectors)::value;
      F c[4][kVectors];
      clear(c);
      tile<T, false>(keys / kPerWord<T>, strip, s.padded_rows / kPerWord<T>, pairs + p, s.width, c);
      for (int i = 0; i < 4 && i < rows; ++i) {
        for (int j = 0; j < kVectors; ++j) {
          const std::int64_t column = p + 16 * j;
          if (column < s.size) store_some(out + i * stride + column, c[i][j], s.size - column);
        }
      }
    });
  }
}

// Turns the scores of one row into weights: softmax, then dropout, for `columns` columns. Only the first `valid` columns count.
template <class T>
inline float softmax_row(const Attention& a, float* scores, std::int64_t columns, std::int64_t valid, const RowBits& keep,
                         T* out) {
  F top = splat(-3.0e38F);
  for (std::int64_t j = 0; j < columns; j += 16) {
    const F x = select(lanes_below(valid - j), mul(load(scores + j), splat(a.scale)), splat(-3.0e38F));
    store(scores + j, x);
    top = max(top, x);
  }
  const float highest = largest(top);
  F total = splat(0.0F);
  for (std::int64_t j = 0; j < columns; j += 16) {
    const F x = keep_lanes(lanes_below(valid - j), exponential(sub(load(scores + j), splat(highest))));
    store(scores + j, x);
    total = add(total, x);
  }
  // If all scores of a row are -inf, the row has no weights and becomes NaN, as in ATen, so that the step notices it.
  const float all = highest > -3.0e38F ? sum(total) : __builtin_nanf("");
  const F factor = splat(a.keep.scale / all);
  for (std::int64_t j = 0; j < columns; j += 16) store(out + j, keep_lanes(keep.lanes(j), mul(load(scores + j), factor)));
  return highest + __builtin_logf(all);
}

template <class T>
void attention_forward_of(const Attention& a, std::int64_t first, std::int64_t last, void* memory) {
  const AttentionShape s = attention_shape<T>(a);
  const AttentionScratch m = attention_scratch_of<T>(a, false, memory);
  auto* weights = reinterpret_cast<T*>(m.weights);
  for (std::int64_t item = first; item < last; ++item) {
    const std::int64_t batch = item / a.heads;
    const std::int64_t head = item % a.heads;
    pack_rows(s, head_of<T>(a.q, batch, head), a.q.row_stride, m.q_rows);
    pack_rows(s, head_of<T>(a.k, batch, head), a.k.row_stride, m.k_rows);
    pack_rows(s, head_of<T>(a.v, batch, head), a.v.row_stride, m.v_rows);
    pack_columns(s, m.k_rows, m.k_columns);
    const std::uint32_t* v_pairs = pack_pairs<T>(s, m.v_rows, m.v_pairs);
    T* out = head_of<T>(a.out, batch, head);
    for (std::int64_t t = 0; t < s.rows; t += kStrip<T>) {
      const std::int64_t keys = keys_of_rows(a, t + kStrip<T>), columns = round_up(keys, kWholeColumns<T>);
      strip_product<T>(s, m.q_rows + t * s.row_words, m.k_columns, columns, m.scores);
      for (std::int64_t i = 0; i < kStrip<T>; ++i) {
        const std::int64_t row = t + i < s.rows ? t + i : s.rows - 1;  // rows past the end repeat the last row and are not stored
        const std::int64_t seen = keys_of_row(a, row);
        const RowBits keep = row_bits(a.keep, (item * s.rows + row) * s.rows, seen, m.bits);
        const float log_sum = softmax_row(a, m.scores + i * s.padded_rows, columns, seen, keep, weights + i * s.padded_rows);
        a.log_sums[item * s.rows + row] = t + i < s.rows ? log_sum : a.log_sums[item * s.rows + row];
      }
      strip_times_pairs(s, m.weights, keys, v_pairs, out + t * a.out.row_stride, a.out.row_stride, s.rows - t);
    }
  }
}

// Computes, for one query row, the dropped weights and the gradient of its scores.
template <class T>
inline void backward_row(const Attention& a, const float* scores, const float* weight_gradients, std::int64_t columns,
                         std::int64_t valid, float log_sum, float delta, const RowBits& keep, T* weights, T* score_gradients) {
  const F keep_scale = splat(a.keep.scale);
  const F scale = splat(a.scale);
  for (std::int64_t j = 0; j < columns; j += 16) {
    const F x = sub(mul(load(scores + j), scale), splat(log_sum));
    const F p = keep_lanes(lanes_below(valid - j), exponential(x));
    const Mask mask = keep.lanes(j);
    const F g = keep_lanes(mask, mul(load(weight_gradients + j), keep_scale));
    store(weights + j, keep_lanes(mask, mul(p, keep_scale)));
    store(score_gradients + j, mul(mul(p, scale), sub(g, splat(delta))));
  }
}

// Stores the rows of a strip as word rows of the block, which then serves as the transposed operand.
template <class T>
inline void store_block_rows(const AttentionShape& s, const std::uint32_t* strip, std::int64_t columns, std::uint32_t* block) {
  const auto* rows = reinterpret_cast<const T*>(strip);
  for (std::int64_t i = 0; i < kStrip<T>; i += kPerWord<T>) {
    std::uint32_t* out = block + i / kPerWord<T> * s.padded_rows;
    for (std::int64_t j = 0; j < columns; j += 16) {
      if constexpr (sizeof(T) == 4) {
        __builtin_memcpy(out + j, rows + i * s.padded_rows + j, 64);
      } else {
        store_words(out + j, zip(rows + i * s.padded_rows + j, rows + (i + 1) * s.padded_rows + j));
      }
    }
  }
}

// A block of query rows [begin, end) and some keys from `key` on; `first_row` is the first row that sees the first of these keys.
struct KeyBlock {
  std::int64_t key, first_row, begin, end;
  [[nodiscard]] bool is_first() const { return first_row >= begin; }  // no earlier block saw the keys
};

// add_key_gradients() for 16 keys on tiles. Query rows that share a tile with the keys but do not see them have the weight zero.
inline void add_tiled_key_gradients(const AttentionShape& s, const std::uint32_t* block, const std::uint32_t* pairs,
                                    const KeyBlock& of, float* accumulated) {
  const std::int64_t seen = of.first_row / 32 * 32;
  const std::int64_t begin = seen > of.begin ? seen : of.begin;
  const std::int64_t words = (of.end - begin) / 2;
  alignas(64) std::uint32_t rows[16 * kQueryBlock / 2];  // the block's words of these keys, one row for each key
  const std::uint32_t* a = block + (begin - of.begin) / 2 * s.padded_rows + of.key;
  for (std::int64_t k = 0; k < words; k += 16) transpose(a + k * s.padded_rows, s.padded_rows, rows + k, kQueryBlock / 2);
  const std::uint32_t* b = pairs + begin / 2 * s.width;
  float* to = accumulated + of.key * s.width;
  if (of.is_first())
    tiles_product<false>(words, rows, kQueryBlock / 2, b, s.width, s.width, to, s.width);
  else
    tiles_product<true>(words, rows, kQueryBlock / 2, b, s.width, s.width, to, s.width);
}

// accumulated (as many keys as a strip has rows, from `of.key` on) += block^T pairs, summed over the block's query rows that
// see these keys. The sum of a key that no earlier block saw starts at zero.
template <class T>
inline void add_key_gradients(const AttentionShape& s, const std::uint32_t* block, const std::uint32_t* pairs, const KeyBlock& of,
                              float* accumulated) {
  if constexpr (kOnTiles<T>) return add_tiled_key_gradients(s, block, pairs, of, accumulated);
  const std::int64_t begin = of.first_row > of.begin ? of.first_row : of.begin;
  const std::uint32_t* a = block + (begin - of.begin) / kPerWord<T> * s.padded_rows + of.key;
  const std::uint32_t* b = pairs + begin / kPerWord<T> * s.width;
  for (std::int64_t p = 0; p < s.width; p += kTileColumns) {
    with_vectors(s.width - p, [&](auto vectors) {
      constexpr int kVectors = decltype(vectors)::value;
      F c[4][kVectors];
      clear(c);
      tile<T, true>((of.end - begin) / kPerWord<T>, a, s.padded_rows, b + p, s.width, c);
      for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < kVectors; ++j) {
          float* to = accumulated + (of.key + i) * s.width + p + 16 * j;
          store(to, of.is_first() ? c[i][j] : add(load(to), c[i][j]));
        }
      }
    });
  }
}

template <class T>
void store_gradient(const AttentionShape& s, const float* accumulated, T* out, std::int64_t stride) {
  for (std::int64_t t = 0; t < s.rows; ++t) {
    for (std::int64_t j = 0; j < s.size; j += 16)
      store_some(out + t * stride + j, load(accumulated + t * s.width + j), s.size - j);
  }
}

struct Pairs {
  const std::uint32_t *q, *g, *k;
};

// For the strip of query rows from t on, computes the gradients of its scores into the block, and its part of the query gradient.
template <class T>
void backward_strip(const Attention& a, const AttentionShape& s, const AttentionScratch& m, const Pairs& pairs, std::int64_t item,
                    std::int64_t t, std::int64_t block_begin) {
  const std::int64_t batch = item / a.heads;
  const std::int64_t head = item % a.heads;
  const T* out = head_of<T>(a.out, batch, head);
  const T* gradient = head_of<T>(a.out_gradient, batch, head);
  const std::int64_t keys = keys_of_rows(a, t + kStrip<T>), columns = round_up(keys, kWholeColumns<T>);
  strip_product<T>(s, m.q_rows + t * s.row_words, m.k_columns, columns, m.scores);
  strip_product<T>(s, m.g_rows + t * s.row_words, m.v_columns, columns, m.weight_gradients);
  for (std::int64_t i = 0; i < kStrip<T>; ++i) {
    const std::int64_t at = i * s.padded_rows;
    T* weights = reinterpret_cast<T*>(m.weights) + at;
    T* score_gradients = reinterpret_cast<T*>(m.score_gradients) + at;
    const std::int64_t row = t + i;
    if (row >= s.rows) {
      clear_bytes(weights, columns * static_cast<std::int64_t>(sizeof(T)));
      clear_bytes(score_gradients, columns * static_cast<std::int64_t>(sizeof(T)));
      continue;
    }
    F products = splat(0.0F);
    for (std::int64_t j = 0; j < s.size; j += 16) {
      products = fma(load_some(out + row * a.out.row_stride + j, s.size - j),
                     load_some(gradient + row * a.out_gradient.row_stride + j, s.size - j), products);
    }
    const std::int64_t seen = keys_of_row(a, row);
    const RowBits keep = row_bits(a.keep, (item * s.rows + row) * s.rows, seen, m.bits);
    backward_row(a, m.scores + at, m.weight_gradients + at, columns, seen, a.log_sums[item * s.rows + row], sum(products), keep,
                 weights, score_gradients);
  }
  const std::int64_t word_row = (t - block_begin) / kPerWord<T> * s.padded_rows;
  store_block_rows<T>(s, m.weights, columns, m.block_weights + word_row);
  store_block_rows<T>(s, m.score_gradients, columns, m.block_gradients + word_row);
  strip_times_pairs(s, m.score_gradients, keys, pairs.k, head_of<T>(a.q_gradient, batch, head) + t * a.q_gradient.row_stride,
                    a.q_gradient.row_stride, s.rows - t);
}

template <class T>
void attention_backward_of(const Attention& a, std::int64_t first, std::int64_t last, void* memory) {
  const AttentionShape s = attention_shape<T>(a);
  const AttentionScratch m = attention_scratch_of<T>(a, true, memory);
  for (std::int64_t item = first; item < last; ++item) {
    const std::int64_t batch = item / a.heads;
    const std::int64_t head = item % a.heads;
    pack_rows(s, head_of<T>(a.q, batch, head), a.q.row_stride, m.q_rows);
    pack_rows(s, head_of<T>(a.k, batch, head), a.k.row_stride, m.k_rows);
    pack_rows(s, head_of<T>(a.v, batch, head), a.v.row_stride, m.v_rows);
    pack_rows(s, head_of<T>(a.out_gradient, batch, head), a.out_gradient.row_stride, m.g_rows);
    pack_columns(s, m.k_rows, m.k_columns);
    pack_columns(s, m.v_rows, m.v_columns);
    const Pairs pairs{pack_pairs<T>(s, m.q_rows, m.q_pairs), pack_pairs<T>(s, m.g_rows, m.g_pairs),
                      pack_pairs<T>(s, m.k_rows, m.k_pairs)};
    for (std::int64_t begin = 0; begin < s.rows; begin += kQueryBlock) {
      const std::int64_t end = begin + kQueryBlock < s.rows ? begin + kQueryBlock : round_up(s.rows, kWholeRows<T>);
      for (std::int64_t t = begin; t < end; t += kStrip<T>) backward_strip<T>(a, s, m, pairs, item, t, begin);
      for (std::int64_t key = 0; key < keys_of_rows(a, end); key += kStrip<T>) {
        const KeyBlock of{key, first_row_of(a, key), begin, end};
        add_key_gradients<T>(s, m.block_gradients, pairs.q, of, m.k_gradient);
        add_key_gradients<T>(s, m.block_weights, pairs.g, of, m.v_gradient);
      }
    }
    store_gradient(s, m.k_gradient, head_of<T>(a.k_gradient, batch, head), a.k_gradient.row_stride);
    store_gradient(s, m.v_gradient, head_of<T>(a.v_gradient, batch, head), a.v_gradient.row_stride);
  }
}

void attention_forward(const Attention& a, std::int64_t first, std::int64_t last, void* scratch) {
  [[maybe_unused]] const TileUnit unit;
  with_type(a.type, [&](auto* x) { attention_forward_of<typename Pointee<decltype(x)>::type>(a, first, last, scratch); });
}
void attention_backward(const Attention& a, std::int64_t first, std::int64_t last, void* scratch) {
  [[maybe_unused]] const TileUnit unit;
  with_type(a.type, [&](auto* x) { attention_backward_of<typename Pointee<decltype(x)>::type>(a, first, last, scratch); });
}

}  // namespace
