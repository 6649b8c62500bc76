// What helps where a data set can't be read though it is sound.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace millrace::hdf5 {

// Words of Unreadable::reason.
inline constexpr std::string_view kNewerForm = "in a newer form of HDF5 than that of 1.10";
inline constexpr std::string_view kUnknownFilter = "which is not known here";

// A command that writes the file anew in a form that is read here; "" where writing it anew does not help.
[[nodiscard]] std::string remedy_for(std::string_view reason, const std::filesystem::path& file);

}  // namespace millrace::hdf5
