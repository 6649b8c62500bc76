# libheadrace.so: this folder with everything below it, for programs in other languages. Other programs load it, so only
# headrace_* is visible, its C++ library is inside, and code that replaces functions for a whole process is left out.
if(MILLRACE_TORCH_FREE)  # sanitizers are linked into programs, not into a guest of other programs
  return()
endif()
set(map "${dir}/exports.map")
add_library(headrace SHARED $<TARGET_OBJECTS:${target}>)
# The C++ library must come first, because libmillrace_base.a also defines __cxa_throw (base/throw_site.cpp). That definition is
# only for Millrace's own programs.
target_link_libraries(headrace PRIVATE "-Wl,-Bstatic -lstdc++ -Wl,-Bdynamic" ${target})
target_link_options(headrace PRIVATE -static-libstdc++ LINKER:-z,nodelete LINKER:-z,defs LINKER:--as-needed
  "LINKER:--version-script=${map}")
set_target_properties(headrace PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}" LINK_DEPENDS "${map}")
install(TARGETS headrace LIBRARY DESTINATION lib COMPONENT headrace EXCLUDE_FROM_ALL)
install(TARGETS millrace-hdf5 RUNTIME DESTINATION lib COMPONENT headrace EXCLUDE_FROM_ALL)
add_dependencies(headrace millrace-hdf5)
if(MILLRACE_TESTS)
  add_executable(headrace_c_test "${dir}/c_test/main.c")
  set_target_properties(headrace_c_test PROPERTIES C_STANDARD 11 C_EXTENSIONS OFF LINKER_LANGUAGE C)
  target_compile_options(headrace_c_test PRIVATE -Wall -Wextra -Wpedantic -Werror)
  target_include_directories(headrace_c_test PRIVATE "${base}")
  target_link_libraries(headrace_c_test PRIVATE headrace)
  mr_test_run(headrace_c_test headrace_c_test unit)
endif()
