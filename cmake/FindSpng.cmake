# Debian's libspng has no CMake config. Defines Spng::Spng.
include(FindPackageHandleStandardArgs)
find_path(Spng_INCLUDE_DIR spng.h)
find_library(Spng_LIBRARY spng)
mark_as_advanced(Spng_INCLUDE_DIR Spng_LIBRARY)
find_package_handle_standard_args(Spng REQUIRED_VARS Spng_LIBRARY Spng_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "Debian's package is libspng-dev (./dev build installs it).")
if(Spng_FOUND AND NOT TARGET Spng::Spng)
  add_library(Spng::Spng UNKNOWN IMPORTED)
  set_target_properties(Spng::Spng PROPERTIES IMPORTED_LOCATION "${Spng_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${Spng_INCLUDE_DIR}")
endif()
