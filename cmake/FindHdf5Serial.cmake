# Debian's serial build of HDF5. Defines Hdf5Serial::Hdf5Serial. (CMake's own FindHDF5 runs compiler wrappers to guess flags.)
include(FindPackageHandleStandardArgs)
find_path(Hdf5Serial_INCLUDE_DIR hdf5.h PATH_SUFFIXES hdf5/serial)
find_library(Hdf5Serial_LIBRARY NAMES hdf5_serial hdf5)
mark_as_advanced(Hdf5Serial_INCLUDE_DIR Hdf5Serial_LIBRARY)
find_package_handle_standard_args(Hdf5Serial REQUIRED_VARS Hdf5Serial_LIBRARY Hdf5Serial_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "Debian's package is libhdf5-dev (./dev build installs it).")
if(Hdf5Serial_FOUND AND NOT TARGET Hdf5Serial::Hdf5Serial)
  add_library(Hdf5Serial::Hdf5Serial UNKNOWN IMPORTED)
  set_target_properties(Hdf5Serial::Hdf5Serial PROPERTIES IMPORTED_LOCATION "${Hdf5Serial_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${Hdf5Serial_INCLUDE_DIR}")
endif()
