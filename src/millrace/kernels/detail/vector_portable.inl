// Sixteen lanes in plain C++; the compiler vectorises the loops with the target's instructions.
#pragma once

#include <cstdint>
#include <cstring>

namespace {

using Mask = std::uint16_t;  // one bit per lane

struct F {
  float lane[16];
};
struct U {
  std::uint32_t lane[16];
};

// A matrix product sums this many rows and vectors at once, at most 6 and 4. kBlockWords is the number of words that it handles
// before the next rows.
inline constexpr int kTileRows = 6;
inline constexpr int kTileVectors = 4;
inline constexpr int kWordsAtOnce = 1;
inline constexpr std::int64_t kBlockWords = 512;

template <class Op>
inline F each(Op op) {
  F out;
  for (int i = 0; i < 16; ++i) out.lane[i] = op(i);
  return out;
}
template <class Op>
inline U each_word(Op op) {
  U out;
  for (int i = 0; i < 16; ++i) out.lane[i] = op(i);
  return out;
}

inline std::uint32_t to_bits(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return bits;
}
inline float to_float(std::uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}
inline std::uint16_t round_bf16(float x) {  // to nearest even; NaN stays NaN
  const std::uint32_t bits = to_bits(x);
  const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U;
  return static_cast<std::uint16_t>((bits & 0x7FFFFFFFU) > 0x7F800000U ? (bits >> 16U) | 0x40U : rounded);
}

inline F splat(float x) {
  return each([x](int) { return x; });
}
inline F load(const float* p) {
  return each([p](int i) { return p[i]; });
}
inline F load(const std::uint16_t* p) {
  return each([p](int i) { return to_float(std::uint32_t{p[i]} << 16U); });
}
template <class T>
inline F load_first(const T* p, int n) {  // loads the first n lanes; the other lanes are zero
  T copy[16] = {};
  std::memcpy(copy, p, sizeof(T) * static_cast<std::size_t>(n));
  return load(copy);
}
inline void store(float* p, const F& x) { std::memcpy(p, x.lane, 64); }
inline void store(std::uint16_t* p, const F& x) {
  for (int i = 0; i < 16; ++i) p[i] = round_bf16(x.lane[i]);
}
template <class T>
inline void store_first(T* p, const F& x, int n) {
  T copy[16];
  store(copy, x);
  std::memcpy(p, copy, sizeof(T) * static_cast<std::size_t>(n));
}
inline U load_words(const std::uint32_t* p) {
  U out;
  std::memcpy(out.lane, p, 64);
  return out;
}
inline void store_words(std::uint32_t* p, const U& x) { std::memcpy(p, x.lane, 64); }

inline F add(const F& a, const F& b) {
  return each([&](int i) { return a.lane[i] + b.lane[i]; });
}
inline F sub(const F& a, const F& b) {
  return each([&](int i) { return a.lane[i] - b.lane[i]; });
}
inline F mul(const F& a, const F& b) {
  return each([&](int i) { return a.lane[i] * b.lane[i]; });
}
inline F fma(const F& a, const F& b, const F& c) {
  return each([&](int i) { return a.lane[i] * b.lane[i] + c.lane[i]; });
}
inline F fnma(const F& a, const F& b, const F& c) {  // c - a b
  return each([&](int i) { return c.lane[i] - a.lane[i] * b.lane[i]; });
}
inline F reciprocal(const F& a) {
  return each([&](int i) { return 1.0F / a.lane[i]; });
}
inline F absolute(const F& a) {
  return each([&](int i) { return to_float(to_bits(a.lane[i]) & 0x7FFFFFFFU); });
}
inline F max(const F& a, const F& b) {
  return each([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
}
inline F min(const F& a, const F& b) {
  return each([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
}
inline F keep_lanes(Mask mask, const F& a) {  // keeps the lanes of the mask; the other lanes become zero
  return each([&](int i) { return to_float(to_bits(a.lane[i]) & (0U - ((mask >> i) & 1U))); });
}
inline F select(Mask mask, const F& yes, const F& no) {
  return each([&](int i) { return (mask >> i) & 1 ? yes.lane[i] : no.lane[i]; });
}
inline Mask not_negative(const F& a) {
  unsigned mask = 0;
  for (int i = 0; i < 16; ++i) mask |= static_cast<unsigned>(a.lane[i] >= 0.0F) << i;
  return static_cast<Mask>(mask);
}
inline F round_to_int(const F& a) {  // |a| < 2^22; adding the constant pushes the fraction out of the mantissa
  return each([&](int i) { return (a.lane[i] + 12582912.0F) - 12582912.0F; });
}
inline F times_power_of_two(const F& a, const F& n) {
  return each([&](int i) {
    return a.lane[i] * to_float(static_cast<std::uint32_t>((static_cast<std::int32_t>(n.lane[i]) + 127)) << 23U);
  });
}
inline float sum(const F& a) {  // adds in the same tree as the AVX-512 reduction
  float s[8];
  for (int i = 0; i < 8; ++i) s[i] = a.lane[i] + a.lane[i + 8];
  return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}
inline float largest(const F& a) {
  float best = a.lane[0];
  for (int i = 1; i < 16; ++i) best = best > a.lane[i] ? best : a.lane[i];
  return best;
}

// c + a * b for words. A word of a matrix operand is one fp32 number, or two bf16 neighbours along the summed axis.
template <class T>
inline F multiply_accumulate(const F& c, std::uint32_t a, const U& b) {
  if constexpr (sizeof(T) == 4) {
    const float x = to_float(a);
    return each([&](int i) { return c.lane[i] + x * to_float(b.lane[i]); });
  } else {
    const float low = to_float(a << 16U);
    const float high = to_float(a & 0xFFFF0000U);
    return each([&](int i) { return c.lane[i] + high * to_float(b.lane[i] & 0xFFFF0000U) + low * to_float(b.lane[i] << 16U); });
  }
}
inline U zip(const std::uint16_t* low, const std::uint16_t* high) {
  return each_word([=](int i) { return std::uint32_t{low[i]} | (std::uint32_t{high[i]} << 16U); });
}
inline F add_pairs(const F& sum, const U& pairs) {  // adds both bf16 numbers of each word
  return each([&](int i) { return sum.lane[i] + (to_float(pairs.lane[i] << 16U) + to_float(pairs.lane[i] & 0xFFFF0000U)); });
}
inline void transpose(const std::uint32_t* in, std::int64_t in_stride, std::uint32_t* out, std::int64_t out_stride) {
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 16; ++j) out[i * out_stride + j] = in[j * in_stride + i];
  }
}

struct Words {
  U word[4];
};
// Philox on the 16 counters first .. first + 15 (the low word must not overflow), and the comparison that turns its words into
// keep bits.
inline Words philox(std::uint64_t first, std::uint64_t key) {
  Words c{{each_word([=](int i) { return static_cast<std::uint32_t>(first) + static_cast<std::uint32_t>(i); }),
           each_word([=](int) { return static_cast<std::uint32_t>(first >> 32U); }), U{}, U{}}};
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32U);
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < 16; ++i) {
      const std::uint64_t a = std::uint64_t{0xD2511F53U} * c.word[0].lane[i];
      const std::uint64_t b = std::uint64_t{0xCD9E8D57U} * c.word[2].lane[i];
      c.word[0].lane[i] = static_cast<std::uint32_t>(b >> 32U) ^ c.word[1].lane[i] ^ k0;
      c.word[1].lane[i] = static_cast<std::uint32_t>(b);
      c.word[2].lane[i] = static_cast<std::uint32_t>(a >> 32U) ^ c.word[3].lane[i] ^ k1;
      c.word[3].lane[i] = static_cast<std::uint32_t>(a);
    }
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return c;
}
inline std::uint32_t halves_at_least(const U& words, std::uint32_t threshold) {
  std::uint32_t mask = 0;
  for (int i = 0; i < 16; ++i) {
    mask |= static_cast<std::uint32_t>((words.lane[i] & 0xFFFFU) >= threshold) << (2 * i);
    mask |= static_cast<std::uint32_t>((words.lane[i] >> 16U) >= threshold) << (2 * i + 1);
  }
  return mask;
}

}  // namespace
