#include "recipes/neural_response/sessions/session_source.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "millrace/base/error.h"
#include "millrace/base/hash.h"

namespace millrace::recipes::neural_response {
namespace {

constexpr std::int64_t kBlockBins = 64;

std::uint16_t to_bf16(float value) {  // rounds to the nearest value; between two equally near values, to the even one
  auto bits = std::bit_cast<std::uint32_t>(value);
  // Without this, rounding could turn a NaN into infinity.
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<std::uint16_t>((bits >> 16U) | 0x40U);
  bits += 0x7FFFU + ((bits >> 16U) & 1U);
  return static_cast<std::uint16_t>(bits >> 16U);
}

// The model's value for each grey level.
template <class Number>
std::array<Number, 256> levels_of(StimulusKind kind) {
  std::array<Number, 256> levels{};
  for (std::size_t level = 0; level < levels.size(); ++level) {
    const float grey = static_cast<float>(level);
    const float value = kind == StimulusKind::pixels ? (grey - 127.0F) / 255.0F : grey;
    if constexpr (std::is_same_v<Number, std::uint16_t>) {
      levels[level] = to_bf16(value);
    } else {
      levels[level] = value;
    }
  }
  return levels;
}

DType dtype_of(StimulusKind kind, StimulusFormat format) {
  if (format == StimulusFormat::bf16) return DType::bf16;
  return format == StimulusFormat::u8 && kind == StimulusKind::pixels ? DType::u8 : DType::f32;
}

// Successive bins of a file. A cache keeps their frames together.
struct Block {
  std::int64_t first = 0;
  std::int64_t bins = 0;
};

class SessionSource final : public data::Source {
 public:
  SessionSource(std::shared_ptr<const Session> session, Split split, StimulusFormat format, LagOrder order)
      : session_(std::move(session)), split_(split), order_(order) {
    const Session& s = *session_;
    const StimulusKind kind = s.stimulus_kind();
    fields_ = {{"stim", dtype_of(kind, format), {1, s.lags(), s.height(), s.width()}},
               {"robs", DType::f32, {s.units()}},
               {"dfs", DType::f32, {s.units()}}};
    if (s.behavior_dim() > 0) fields_.push_back({"behavior", DType::f32, {s.behavior_dim()}});
    for (const Field& field : fields_) bytes_.push_back(field.bytes());
    levels_f32_ = levels_of<float>(kind);
    levels_bf16_ = levels_of<std::uint16_t>(kind);
    add_blocks();
    Sha256 digest;
    digest.update(s.fingerprint() + (split == Split::train ? " train " : " validation ") +
                  std::string(name_of(fields_[0].dtype)) + (order == LagOrder::oldest_first ? " oldest" : " newest"));
    fingerprint_ = "neural_response " + digest.hex();
  }

  [[nodiscard]] std::span<const Field> fields() const override { return fields_; }
  [[nodiscard]] std::int64_t size() const override { return static_cast<std::int64_t>(session_->samples(split_).size()); }
  [[nodiscard]] std::string fingerprint() const override { return fingerprint_; }
  [[nodiscard]] std::int64_t samples_per_ticket() const override { return 4; }
  [[nodiscard]] std::vector<data::FileStamp> stamps() const override {
    std::vector<std::filesystem::path> paths;
    std::vector<std::string> names;
    for (const SessionPart& part : session_->parts()) {
      paths.push_back(part.file->path());
      names.push_back(session_->name() + "/" + part.type + ".h5");
    }
    return data::stamps_of(paths, std::move(names));
  }
  [[nodiscard]] std::string describe(std::int64_t index) const override { return session_->describe(bin_of(index)); }

  void read(std::span<const std::int64_t> indices, data::Rows rows, const data::ReadRandom&) const override {
    const Session& s = *session_;
    const std::int64_t lags = s.lags();
    static thread_local std::vector<std::uint8_t> frames;
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const std::int64_t bin = bin_of(indices[i]);
      std::byte* stim = rows.row(0, i, bytes_[0]);
      if (s.stimulus_kind() == StimulusKind::transformed) {
        for (std::int64_t lag = 0; lag < lags; ++lag) put_floats(s.transformed().row(bin - lags + 1 + lag), place_of(stim, lag));
      } else {
        frames.resize(static_cast<std::size_t>(lags * pixels()));
        s.read_frames(bin - lags + 1, lags, frames);
        for (std::int64_t lag = 0; lag < lags; ++lag) put_greys(frames.data() + lag * pixels(), place_of(stim, lag));
      }
      put_others(bin, i, rows);
    }
  }

  [[nodiscard]] bool looks_ahead() const override { return session_->stimulus_kind() != StimulusKind::transformed; }
  void will_need(std::span<const std::int64_t> indices, const data::ReadRandom&) const noexcept override {
    for (const std::int64_t index : indices) session_->will_need_frames(bin_of(index) - session_->lags() + 1, session_->lags());
  }

  // A part (what a cache keeps) is a block of frames. There is a part for each block that a window of this split needs, in
  // order.
  [[nodiscard]] data::Keeps keeps() const override {
    return session_->stimulus_kind() == StimulusKind::transformed ? data::Keeps::memory : data::Keeps::parts;
  }
  [[nodiscard]] std::int64_t parts() const override { return static_cast<std::int64_t>(blocks_.size()); }
  [[nodiscard]] std::size_t parts_per_sample() const override { return 2; }
  void parts_of(std::int64_t index, const data::ReadRandom&, std::span<std::int64_t> parts) const override {
    const std::int64_t bin = bin_of(index);
    parts[0] = block_with(bin - session_->lags() + 1);
    parts[1] = block_with(bin);
  }
  [[nodiscard]] std::size_t part_bytes(std::int64_t part) const override {
    return static_cast<std::size_t>(blocks_[static_cast<std::size_t>(part)].bins * pixels());
  }
  void load(std::int64_t part, std::span<std::byte> bytes) const override {
    const Block& block = blocks_[static_cast<std::size_t>(part)];
    session_->read_frames(block.first, block.bins, {reinterpret_cast<std::uint8_t*>(bytes.data()), bytes.size()});
  }
  void finish(std::int64_t index, std::span<const std::span<const std::byte>> parts, data::Rows rows,
              const data::ReadRandom&) const override {
    const std::int64_t bin = bin_of(index);
    const std::int64_t lags = session_->lags();
    const Block& early = blocks_[static_cast<std::size_t>(block_with(bin - lags + 1))];
    const Block& late = blocks_[static_cast<std::size_t>(block_with(bin))];
    for (std::int64_t lag = 0; lag < lags; ++lag) {
      const std::int64_t frame = bin - lags + 1 + lag;
      const bool is_late = frame >= late.first;
      const auto* from = reinterpret_cast<const std::uint8_t*>(parts[is_late ? 1 : 0].data());
      put_greys(from + (frame - (is_late ? late.first : early.first)) * pixels(), place_of(rows.row(0, 0, 0), lag));
    }
    put_others(bin, 0, rows);
  }

 private:
  [[nodiscard]] std::int64_t bin_of(std::int64_t index) const {
    return session_->samples(split_)[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] std::int64_t pixels() const { return session_->height() * session_->width(); }
  // Returns the place in `stim` of the frame that is `lag` bins newer than the oldest frame of the window.
  [[nodiscard]] std::byte* place_of(std::byte* stim, std::int64_t lag) const {
    const std::int64_t place = order_ == LagOrder::oldest_first ? lag : session_->lags() - 1 - lag;
    return stim + static_cast<std::size_t>(place * pixels()) * size_of(fields_[0].dtype);
  }

  void put_greys(const std::uint8_t* from, std::byte* to) const {
    const auto count = static_cast<std::size_t>(pixels());
    if (fields_[0].dtype == DType::u8) {
      std::memcpy(to, from, count);
    } else if (fields_[0].dtype == DType::f32) {
      auto* out = reinterpret_cast<float*>(to);
      for (std::size_t p = 0; p < count; ++p) out[p] = levels_f32_[from[p]];
    } else {
      auto* out = reinterpret_cast<std::uint16_t*>(to);
      for (std::size_t p = 0; p < count; ++p) out[p] = levels_bf16_[from[p]];
    }
  }
  void put_floats(const float* from, std::byte* to) const {
    const auto count = static_cast<std::size_t>(pixels());
    if (fields_[0].dtype == DType::f32) {
      std::memcpy(to, from, count * sizeof(float));
    } else {
      std::transform(from, from + count, reinterpret_cast<std::uint16_t*>(to), to_bf16);
    }
  }
  void put_others(std::int64_t bin, std::size_t row, data::Rows rows) const {
    const auto units = static_cast<std::size_t>(session_->units());
    session_->counts(bin, {reinterpret_cast<float*>(rows.row(1, row, bytes_[1])), units});
    session_->mask(bin, {reinterpret_cast<float*>(rows.row(2, row, bytes_[2])), units});
    if (fields_.size() > 3) std::memcpy(rows.row(3, row, bytes_[3]), session_->behavior(bin).data(), bytes_[3]);
  }

  void add_blocks() {
    const std::int64_t size = std::max(kBlockBins, session_->lags());
    std::vector<Block> all;
    for (const SessionPart& part : session_->parts()) {
      for (std::int64_t first = 0; first < part.bins; first += size)
        all.push_back({part.first_bin + first, std::min(size, part.bins - first)});
    }
    std::vector<std::uint8_t> used(all.size());
    const auto mark = [&](std::int64_t bin) {
      const std::int64_t block = last_before(all, bin);
      MR_CHECK(block >= 0, "a window begins before its session");
      used[static_cast<std::size_t>(block)] = 1;
    };
    for (const std::int64_t bin : session_->samples(split_)) {
      mark(bin - session_->lags() + 1);
      mark(bin);
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (used[i] != 0) blocks_.push_back(all[i]);
    }
  }
  // The last block that begins at or before `bin`; -1 if there is no such block.
  static std::int64_t last_before(const std::vector<Block>& blocks, std::int64_t bin) {
    const auto it =
        std::upper_bound(blocks.begin(), blocks.end(), bin, [](std::int64_t b, const Block& block) { return b < block.first; });
    return it - blocks.begin() - 1;
  }
  [[nodiscard]] std::int64_t block_with(std::int64_t bin) const { return last_before(blocks_, bin); }

  std::shared_ptr<const Session> session_;
  Split split_;
  LagOrder order_;
  std::vector<Field> fields_;
  std::vector<std::size_t> bytes_;  // bytes of a sample in each field
  std::array<float, 256> levels_f32_{};
  std::array<std::uint16_t, 256> levels_bf16_{};
  std::vector<Block> blocks_;
  std::string fingerprint_;
};

}  // namespace

std::shared_ptr<const data::Source> session_source(std::shared_ptr<const Session> session, Split split, StimulusFormat format,
                                                   LagOrder order) {
  return std::make_shared<SessionSource>(std::move(session), split, format, order);
}

}  // namespace millrace::recipes::neural_response
