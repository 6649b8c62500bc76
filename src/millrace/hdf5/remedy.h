// Advice about data sets that are intact but can't be read.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace millrace::hdf5 {

// Reasons why a data set can't be read, as Unreadable::reason gives them.
inline constexpr std::string_view kNewerForm = "in a newer form of HDF5 than version 1.10 reads";
inline constexpr std::string_view kUnknownFilter = "which is not known here";

// Returns a command that rewrites the file in a readable form; "" if rewriting does not help.
[[nodiscard]] std::string remedy_for(std::string_view reason, const std::filesystem::path& file);

}  // namespace millrace::hdf5
