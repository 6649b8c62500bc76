# Debian's liblz4 has no CMake config. Defines Lz4::Lz4.
include(FindPackageHandleStandardArgs)
find_path(Lz4_INCLUDE_DIR lz4.h)
find_library(Lz4_LIBRARY lz4)
mark_as_advanced(Lz4_INCLUDE_DIR Lz4_LIBRARY)
find_package_handle_standard_args(Lz4 REQUIRED_VARS Lz4_LIBRARY Lz4_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "Debian's package is liblz4-dev (./dev build installs it).")
if(Lz4_FOUND AND NOT TARGET Lz4::Lz4)
  add_library(Lz4::Lz4 UNKNOWN IMPORTED)
  set_target_properties(Lz4::Lz4 PROPERTIES IMPORTED_LOCATION "${Lz4_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${Lz4_INCLUDE_DIR}")
endif()
