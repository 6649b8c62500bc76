// Makes a text whose lowest possible loss is known. The text is a Markov chain over sixteen letters.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace millrace::recipes::language_model {

// order 1: the next letter is the last letter plus d (mod 16), where d is 1, 3, 6 or 10 with probability 1/2, 1/4, 1/8 or 1/8.
// order 2: twice the letter before the last one is also added, so that the last letter is not enough to predict the next.
struct SampleText {
  int order = 1;
  std::int64_t training_letters = 200'000;
  std::int64_t validation_letters = 20'000;  // number of letters at the end of the text; recipe.val_fraction is this number
                                             // divided by the number of all letters
  [[nodiscard]] double validation_share() const noexcept {
    return static_cast<double>(validation_letters) / static_cast<double>(training_letters + validation_letters);
  }
};

// The sample text of a preset. nullopt for presets that are meant for a real text.
[[nodiscard]] std::optional<SampleText> sample_text_of(const std::string& preset);

// The lowest loss that any model can reach, in nats per letter: the entropy of a letter given all letters before it.
inline constexpr double kEntropyRate = 1.2130075659799042;
// The lowest loss of a model that knows only how often each letter occurs, in nats per letter.
inline constexpr double kUnigramEntropy = 2.7725887222397811;

// Returns the text. It depends only on the arguments.
[[nodiscard]] std::string sample_text(const SampleText& text, std::uint64_t seed);

// Writes letters.txt and truth.json into the existing folder `out`.
void write_sample_text(const SampleText& text, const std::filesystem::path& out, std::uint64_t seed);

}  // namespace millrace::recipes::language_model
