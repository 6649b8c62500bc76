#include "recipes/language_model/make_data.h"

#include <array>

#include "millrace/base/fs.h"
#include "millrace/base/json.h"
#include "millrace/base/philox.h"

namespace millrace::recipes::language_model {

std::string sample_text(const SampleText& text, std::uint64_t seed) {
  constexpr unsigned kLetters = 16;
  // Eight equally likely entries give 1, 3, 6 and 10 the probabilities 1/2, 1/4, 1/8 and 1/8.
  constexpr std::array<unsigned, 8> kDistance{1, 1, 1, 1, 3, 3, 6, 10};
  Philox random(make_key(seed, text.order));
  std::string letters;
  letters.reserve(static_cast<std::size_t>(text.training_letters + text.validation_letters));
  unsigned before = random() % kLetters;
  unsigned last = random() % kLetters;
  for (std::int64_t i = 0; i < text.training_letters + text.validation_letters; ++i) {
    const unsigned pull = text.order == 2 ? 2 * before : 0;
    before = last;
    last = (last + pull + kDistance[random() % kDistance.size()]) % kLetters;
    letters.push_back(static_cast<char>('a' + last));
  }
  return letters;
}

void write_sample_text(const SampleText& text, const std::filesystem::path& out, std::uint64_t seed) {
  write_atomically(Fs::real(), out / "letters.txt", sample_text(text, seed));
  const Json truth = {{"what", "Markov chain over the letters a to p"},
                      {"order", text.order},
                      {"seed", seed},
                      {"training_tokens", text.training_letters},
                      {"validation_tokens", text.validation_letters},
                      {"unigram_entropy_nats", kUnigramEntropy},
                      {"entropy_rate_nats", kEntropyRate},
                      {"vocabulary", 20}};
  write_atomically(Fs::real(), out / "truth.json", truth.dump(2) + "\n");
}

}  // namespace millrace::recipes::language_model
