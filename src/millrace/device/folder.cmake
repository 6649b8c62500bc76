# libmillrace_cuda.so (MILLRACE_CUDA=ON): opened by the program at start when there is an NVIDIA driver.
target_link_libraries(${target} PRIVATE ${CMAKE_DL_LIBS})
# The wheel's libgomp is linked already; this turns on the one parallel region here.
set_source_files_properties("${dir}/cpu.cpp" PROPERTIES COMPILE_FLAGS "-fopenmp")
if(MILLRACE_CUDA AND NOT TARGET millrace_cuda)
  if(NOT TorchWheel_HAS_CUDA)
    message(FATAL_ERROR "MILLRACE_CUDA needs a torch wheel with CUDA; ${TorchWheel_SITE} has the CPU one\n"
                        "  next     point MILLRACE_TORCH at a CUDA build of torch 2.11, or leave MILLRACE_CUDA off")
  endif()
  find_program(MILLRACE_NVCC nvcc HINTS "$ENV{CUDA_HOME}/bin" /usr/local/cuda/bin)
  get_filename_component(_cuda_bin "${MILLRACE_NVCC}" REALPATH)
  get_filename_component(_cuda_bin "${_cuda_bin}" DIRECTORY)
  find_path(MILLRACE_CUDA_INCLUDE crt/host_defines.h HINTS "${_cuda_bin}/../include" "$ENV{CUDA_HOME}/include"
            /usr/local/cuda/include)
  if(NOT MILLRACE_CUDA_INCLUDE)
    message(FATAL_ERROR "MILLRACE_CUDA needs the headers of a CUDA 13 toolkit, and there is none beside nvcc or in CUDA_HOME\n"
                        "  next     set CUDA_HOME to the toolkit, or leave MILLRACE_CUDA off")
  endif()
  file(GLOB _cudart "${TorchWheel_SITE}/nvidia/*/lib/libcudart.so.*")
  add_library(millrace_cuda SHARED "${dir}/cuda/backend.cpp")
  mr_warnings(millrace_cuda)
  target_include_directories(millrace_cuda PRIVATE "${CMAKE_SOURCE_DIR}/src")
  target_include_directories(millrace_cuda SYSTEM PRIVATE "${MILLRACE_CUDA_INCLUDE}")
  # no-as-needed: nothing here calls libtorch_cuda, but loading it is what registers LibTorch's kernels.
  target_link_libraries(millrace_cuda PRIVATE millrace_base TorchWheel::cpu "-Wl,--no-as-needed"
    "${TorchWheel_SITE}/torch/lib/libtorch_cuda.so" "${TorchWheel_SITE}/torch/lib/libc10_cuda.so" ${_cudart})
  target_link_options(millrace_cuda PRIVATE LINKER:--allow-shlib-undefined)
  set_target_properties(millrace_cuda PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}" CXX_VISIBILITY_PRESET hidden)
  install(TARGETS millrace_cuda LIBRARY DESTINATION lib)
  if(MILLRACE_TESTS)
    mr_test(millrace_cuda_test gpu "${dir}/cuda/backend_test.cpp")
    target_link_libraries(millrace_cuda_test PRIVATE ${target})
    add_dependencies(millrace_cuda_test millrace_cuda)
  endif()
endif()
