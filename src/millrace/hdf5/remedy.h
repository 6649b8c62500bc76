// Advice for sound data sets that can't be read.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace millrace::hdf5 {

// Reasons that Unreadable::reason can have.
inline constexpr std::string_view kNewerForm = "in a newer form of HDF5 than that of 1.10";
inline constexpr std::string_view kUnknownFilter = "which is not known here";

// A command that rewrites the file in a readable form; "" if rewriting does not help.
[[nodiscard]] std::string remedy_for(std::string_view reason, const std::filesystem::path& file);

}  // namespace millrace::hdf5
