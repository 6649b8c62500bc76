// A small model of each recipe on generated data, trained within seconds, for tests that run the program.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace millrace::test {

// Makes the data in `folder` and returns the words of `train` after the recipe's name, without batch and length. The runs have
// weighted sampling and groups in neural_response, a second objective that joins later in autoencoder_3d, and a frozen base that
// snapshots leave out in image_pairs.
[[nodiscard]] std::vector<std::string> small_run(const std::string& recipe, const std::filesystem::path& folder);
[[nodiscard]] std::int64_t small_batch(const std::string& recipe);

}  // namespace millrace::test
