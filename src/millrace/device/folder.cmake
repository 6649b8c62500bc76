# LibTorch is built with NDEBUG. Without NDEBUG, RecordFunction::inputs() asks a flag that the library never sets. The file is
# compiled separately, so that the other files keep their assertions.
set_source_files_properties("${dir}/operation_census.cpp" PROPERTIES COMPILE_DEFINITIONS NDEBUG SKIP_UNITY_BUILD_INCLUSION ON)
# cpu.cpp creates OpenMP's threads, because at::parallel_for's OpenMP body is compiled into the file that calls it.
# shared_cores.cpp creates idle OpenMP threads.
set_source_files_properties("${dir}/cpu.cpp" "${dir}/shared_cores.cpp" "${dir}/shared_cores_test.cpp" PROPERTIES COMPILE_FLAGS "-fopenmp" SKIP_UNITY_BUILD_INCLUSION ON)
# millrace-convolutions: a separate program for computations that may hang or crash (convolution_trial.h).
set_source_files_properties("${dir}/convolution_trial.cpp" PROPERTIES COMPILE_DEFINITIONS
  "MILLRACE_CONVOLUTIONS_BUILT=\"${CMAKE_BINARY_DIR}/millrace-convolutions\";MILLRACE_CONVOLUTIONS_INSTALLED=\"${CMAKE_INSTALL_FULL_LIBEXECDIR}/millrace/millrace-convolutions\""
  SKIP_UNITY_BUILD_INCLUSION ON)
add_executable(millrace-convolutions "${dir}/child/main.cpp" "${dir}/child/watched_memory.cpp")
mr_warnings(millrace-convolutions)
target_link_libraries(millrace-convolutions PRIVATE ${target})
set_target_properties(millrace-convolutions PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}")
if(MILLRACE_TESTS)  # in place of LibTorch's gradient, for tests of what the program sees
  add_library(millrace_faulty_convolutions MODULE "${dir}/child/faulty_convolutions.cpp")
  mr_warnings(millrace_faulty_convolutions)
  target_link_libraries(millrace_faulty_convolutions PRIVATE TorchWheel::cpu)
  set_source_files_properties("${dir}/convolution_trial_test.cpp" PROPERTIES COMPILE_DEFINITIONS
    "MILLRACE_FAULTY_CONVOLUTIONS=\"$<TARGET_FILE:millrace_faulty_convolutions>\"" SKIP_UNITY_BUILD_INCLUSION ON)
endif()
install(TARGETS millrace-convolutions RUNTIME DESTINATION libexec/millrace COMPONENT program)
if(MILLRACE_CUDA AND NOT TARGET millrace_cuda)
  include("${dir}/cuda/plugin.cmake")
endif()
