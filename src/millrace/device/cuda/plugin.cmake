# libmillrace_cuda.so (MILLRACE_CUDA=ON): opened by the program at start when there is an NVIDIA driver.
if(NOT TorchWheel_HAS_CUDA)
  message(FATAL_ERROR "MILLRACE_CUDA needs a torch wheel with CUDA; ${TorchWheel_SITE} has the CPU one\n"
                      "  next     point MILLRACE_TORCH at a CUDA build of torch ${TorchWheel_SERIES}, or leave MILLRACE_CUDA off")
endif()
if(NOT MILLRACE_CUDA_INCLUDE)
  message(FATAL_ERROR "MILLRACE_CUDA needs the headers of CUDA 13 (crt/host_defines.h), and there are none beside torch or in CUDA_HOME\n"
                      "  next     run ./dev build, which fetches them (0.1 MB), or set CUDA_HOME to a toolkit, or leave MILLRACE_CUDA off")
endif()

# NCCL's own header decides how c10d's options lie in memory: it has to be of the version that torch was built with, which the
# wheel names as what it requires.
file(STRINGS "${TorchWheel_SITE}/torch-${TorchWheel_VERSION}.dist-info/METADATA" _nccl_wanted REGEX "^Requires-Dist: nvidia-nccl-")
string(REGEX REPLACE ".*==([0-9]+)\\.([0-9]+).*" "\\1.\\2" _nccl_wanted "${_nccl_wanted}")
find_path(MILLRACE_NCCL_INCLUDE nccl.h HINTS "${TorchWheel_SITE}/nvidia/nccl/include" "${MILLRACE_CUDA_INCLUDE}"
          "$ENV{CUDA_HOME}/include" /usr/local/cuda/include)
set(_nccl_found "")
if(MILLRACE_NCCL_INCLUDE)
  file(STRINGS "${MILLRACE_NCCL_INCLUDE}/nccl.h" _nccl_found REGEX "define NCCL_(MAJOR|MINOR) ")
  string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*" "\\1.\\2" _nccl_found "${_nccl_found}")
endif()
if(NOT _nccl_wanted)
  set(_no_nccl "the torch wheel does not say which NCCL it was made with")
elseif(NOT _nccl_found)
  set(_no_nccl "nccl.h was not found when it was configured")
elseif(NOT _nccl_found VERSION_EQUAL _nccl_wanted)
  set(_no_nccl "nccl.h was that of NCCL ${_nccl_found}, and torch was made with ${_nccl_wanted}")
else()
  set(_no_nccl "")
endif()

file(GLOB _cudart "${TorchWheel_SITE}/nvidia/*/lib/libcudart.so.*")
if(_no_nccl)
  set(_has_nccl false)
  message(STATUS "CUDA plugin without NCCL: ${_no_nccl}")
  add_library(millrace_cuda SHARED "${dir}/cuda/backend.cpp" "${dir}/cuda/record.cpp" "${dir}/cuda/no_nccl.cpp")
  target_compile_definitions(millrace_cuda PRIVATE "MILLRACE_NO_NCCL=\"${_no_nccl}\"")
else()
  set(_has_nccl true)
  message(STATUS "CUDA plugin with NCCL ${_nccl_found} (${MILLRACE_NCCL_INCLUDE})")
  add_library(millrace_cuda SHARED "${dir}/cuda/backend.cpp" "${dir}/cuda/record.cpp" "${dir}/cuda/nccl.cpp")
  target_compile_definitions(millrace_cuda PRIVATE USE_C10D_NCCL)
  target_include_directories(millrace_cuda SYSTEM PRIVATE "${MILLRACE_NCCL_INCLUDE}")
endif()
# Our own kernels need nvcc; without them LibTorch's operations compute the same, slower. Code for A100, H100 and B200, and PTX for
# later GPUs. Machines with older ones do without (kLeastCapability in plugin.cpp).
find_program(MILLRACE_NVCC nvcc HINTS "${TorchWheel_SITE}/nvidia/cu13/bin" "$ENV{CUDA_HOME}/bin" /usr/local/cuda/bin)
if(MILLRACE_NVCC)
  message(STATUS "CUDA plugin with kernels of our own (${MILLRACE_NVCC})")
  set(_folder "${CMAKE_BINARY_DIR}/generated/cuda")
  file(MAKE_DIRECTORY "${_folder}")
  set(_codes "")
  foreach(_number 80 90 100)
    list(APPEND _codes -gencode arch=compute_${_number},code=sm_${_number})
  endforeach()
  set(_objects "")
  file(GLOB _sources CONFIGURE_DEPENDS "${dir}/cuda/*.cu")
  foreach(_source ${_sources})
    cmake_path(GET _source STEM _name)
    set(_object "${_folder}/${_name}.o")
    list(APPEND _objects "${_object}")
    add_custom_command(OUTPUT "${_object}" DEPENDS "${_source}" DEPFILE "${_object}.d" VERBATIM
      COMMAND "${MILLRACE_NVCC}" -ccbin "${CMAKE_CXX_COMPILER}" -std=c++20 -O3 --expt-relaxed-constexpr --compress-mode=size ${_codes}
        -gencode arch=compute_100,code=compute_100 -Xptxas=-warn-spills,-Werror -Werror all-warnings
        -Xcompiler=-fPIC,-fvisibility=hidden,-Wall,-Wextra,-Wshadow "-I${CMAKE_SOURCE_DIR}/src"
        -isystem "${TorchWheel_SITE}/torch/include" -MD -MF "${_object}.d" -c "${_source}" -o "${_object}")
  endforeach()
  target_sources(millrace_cuda PRIVATE "${dir}/cuda/kernels.cpp" ${_objects})
else()
  message(STATUS "CUDA plugin without kernels of our own: there is no nvcc")
endif()
mr_warnings(millrace_cuda)
target_include_directories(millrace_cuda PRIVATE "${CMAKE_SOURCE_DIR}/src")
target_include_directories(millrace_cuda SYSTEM PRIVATE "${MILLRACE_CUDA_INCLUDE}")
# no-as-needed: nothing here calls all of libtorch_cuda, but loading it is what registers LibTorch's kernels.
target_link_libraries(millrace_cuda PRIVATE millrace_system TorchWheel::cpu "-Wl,--no-as-needed"
  "${TorchWheel_SITE}/torch/lib/libtorch_cuda.so" "${TorchWheel_SITE}/torch/lib/libc10_cuda.so" ${_cudart})
target_link_options(millrace_cuda PRIVATE LINKER:--allow-shlib-undefined)
set_target_properties(millrace_cuda PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}" CXX_VISIBILITY_PRESET hidden)
install(TARGETS millrace_cuda LIBRARY DESTINATION lib COMPONENT program)
if(MILLRACE_TESTS)
  mr_test(millrace_cuda_test gpu "${dir}/cuda/backend_test.cpp" "${dir}/cuda/dropout_test.cpp" "${dir}/cuda/kernels_test.cpp"
    "${dir}/cuda/volume_kernels_test.cpp")
  target_link_libraries(millrace_cuda_test PRIVATE ${target})
  target_compile_definitions(millrace_cuda_test PRIVATE MILLRACE_CUDA_PLUGIN="$<TARGET_FILE:millrace_cuda>"
    MILLRACE_HAS_NCCL=${_has_nccl})
  add_dependencies(millrace_cuda_test millrace_cuda)
endif()
