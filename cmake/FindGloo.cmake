# Gloo's headers, which c10d's ProcessGroupGloo.hpp includes and the torch wheel lacks; the library itself is inside the wheel.
# Debian's package has no CMake config. Defines Gloo::headers.
include(FindPackageHandleStandardArgs)
find_path(Gloo_INCLUDE_DIR gloo/config.h)
mark_as_advanced(Gloo_INCLUDE_DIR)
find_package_handle_standard_args(Gloo REQUIRED_VARS Gloo_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "Debian's package is libgloo-dev (./dev build installs it).")
if(Gloo_FOUND AND NOT TARGET Gloo::headers)
  add_library(Gloo::headers INTERFACE IMPORTED)
  set_target_properties(Gloo::headers PROPERTIES INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${Gloo_INCLUDE_DIR}")
endif()
