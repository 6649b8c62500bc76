# Finds LibTorch inside an installed PyPI wheel of torch and defines the imported target TorchWheel::cpu.
# find_package(Torch) is not used: with a CUDA wheel it insists on a CUDA toolkit even for CPU programs.
#
# Input    MILLRACE_TORCH           cache or environment variable: the site-packages folder that holds torch/ (or torch/ itself)
#          MILLRACE_TORCH_DEFAULT   the same, used if neither is given (an installed Millrace names the one it was built with)
# Output   TorchWheel_FOUND, TorchWheel_VERSION (2.11.0), TorchWheel_SERIES (2.11), TorchWheel_SITE, TorchWheel_HAS_CUDA, target TorchWheel::cpu
include(FindPackageHandleStandardArgs)

set(_torch_hints "${MILLRACE_TORCH}" "$ENV{MILLRACE_TORCH}" "${MILLRACE_TORCH_DEFAULT}")
file(GLOB _torch_deps "${CMAKE_SOURCE_DIR}/.deps/venv/lib/python3*/site-packages")
list(APPEND _torch_hints ${_torch_deps})
unset(TorchWheel_SITE)
foreach(_hint IN LISTS _torch_hints)
  if(NOT _hint)
    continue()
  endif()
  get_filename_component(_hint "${_hint}" ABSOLUTE)
  foreach(_candidate "${_hint}" "${_hint}/..")
    if(EXISTS "${_candidate}/torch/lib/libtorch_cpu.so")
      get_filename_component(TorchWheel_SITE "${_candidate}" ABSOLUTE)
      break()
    endif()
  endforeach()
  if(TorchWheel_SITE)
    break()
  endif()
endforeach()

if(TorchWheel_SITE)
  set(_torch "${TorchWheel_SITE}/torch")
  file(STRINGS "${_torch}/include/torch/headeronly/version.h" _version REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*PATCH ([0-9]+).*" "\\1.\\2.\\3" TorchWheel_VERSION "${_version}")
  string(REGEX MATCH "^[0-9]+\\.[0-9]+" TorchWheel_SERIES "${TorchWheel_VERSION}")
  # A program that is built with one series runs with no other: an installed Millrace asks for its own.
  set(_series 2.11 2.15)
  if(TorchWheel_FIND_VERSION)
    set(_series ${TorchWheel_FIND_VERSION})
  endif()
  if(NOT TorchWheel_SERIES IN_LIST _series)
    string(REPLACE ";" " or " _series "${_series}")
    message(FATAL_ERROR "Millrace needs LibTorch ${_series}, found ${TorchWheel_VERSION} in ${_torch}\n"
                        "  next     run ./dev build, which fetches it, or set MILLRACE_TORCH to a site-packages folder with LibTorch ${_series}")
  endif()
  if(EXISTS "${_torch}/lib/libtorch_cuda.so" AND EXISTS "${_torch}/lib/libc10_cuda.so")
    set(TorchWheel_HAS_CUDA TRUE)
  else()
    set(TorchWheel_HAS_CUDA FALSE)
  endif()
endif()
find_package_handle_standard_args(TorchWheel REQUIRED_VARS TorchWheel_SITE VERSION_VAR TorchWheel_VERSION
  REASON_FAILURE_MESSAGE "No wheel of torch. Run ./dev build once (it fetches one into .deps/), or set MILLRACE_TORCH.")

if(TorchWheel_FOUND AND NOT TARGET TorchWheel::cpu)
  set(_rpath_links "${_torch}/lib")
  file(GLOB _nvidia "${TorchWheel_SITE}/nvidia/*/lib")
  list(APPEND _rpath_links ${_nvidia})
  add_library(TorchWheel::cpu INTERFACE IMPORTED)
  # SYSTEM: warnings in LibTorch's headers are not ours to fix. They also contain their own fmt, which would shadow Debian's; only
  # src/millrace/base may include fmt, and base does not use this target.
  set_target_properties(TorchWheel::cpu PROPERTIES
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${_torch}/include;${_torch}/include/torch/csrc/api/include"
    INTERFACE_INCLUDE_DIRECTORIES "${_torch}/include;${_torch}/include/torch/csrc/api/include"
    INTERFACE_LINK_LIBRARIES "${_torch}/lib/libtorch_cpu.so;${_torch}/lib/libc10.so;${_torch}/lib/libgomp.so.1"
    INTERFACE_COMPILE_DEFINITIONS "USE_DISTRIBUTED;USE_C10D_GLOO")
  foreach(_dir IN LISTS _rpath_links)
    set_property(TARGET TorchWheel::cpu APPEND PROPERTY INTERFACE_LINK_OPTIONS "LINKER:-rpath-link,${_dir}")
  endforeach()
  set_property(TARGET TorchWheel::cpu APPEND PROPERTY INTERFACE_LINK_OPTIONS "LINKER:-rpath,${_torch}/lib")
endif()
