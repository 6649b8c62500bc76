# Filters of chunks, and millrace-hdf5: the program beside ours that alone calls libhdf5.
find_package(Deflate REQUIRED)
find_package(Lz4 REQUIRED)
find_package(zstd REQUIRED)
find_package(liblzf REQUIRED)
find_package(Hdf5Serial REQUIRED)
target_link_libraries(${target} PRIVATE Deflate::Deflate Lz4::Lz4 liblzf::liblzf zstd::libzstd_shared)
set_source_files_properties("${dir}/detail/process.cpp" PROPERTIES COMPILE_DEFINITIONS
  "MILLRACE_HDF5_BUILT=\"${CMAKE_BINARY_DIR}/millrace-hdf5\";MILLRACE_HDF5_INSTALLED=\"${CMAKE_INSTALL_FULL_LIBEXECDIR}/millrace/millrace-hdf5\"")
file(GLOB child_sources CONFIGURE_DEPENDS "${dir}/child/*.cpp")
list(FILTER child_sources EXCLUDE REGEX "_test\\.cpp$")
add_executable(millrace-hdf5 ${child_sources})
mr_warnings(millrace-hdf5)
mr_unity(millrace-hdf5 ${child_sources})
target_link_libraries(millrace-hdf5 PRIVATE millrace_system Hdf5Serial::Hdf5Serial Lz4::Lz4 liblzf::liblzf zstd::libzstd_shared)
target_link_options(millrace-hdf5 PRIVATE LINKER:--as-needed)
set_target_properties(millrace-hdf5 PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}")
install(TARGETS millrace-hdf5 RUNTIME DESTINATION libexec/millrace COMPONENT program)
add_dependencies(${target} millrace-hdf5)  # whoever links the reader can run it
if(MILLRACE_TESTS)
  mr_test(millrace_hdf5_hostile_test slow "${dir}/child/hostile_test.cpp" "${dir}/child/library_files_test.cpp")
  target_link_libraries(millrace_hdf5_hostile_test PRIVATE ${target} Hdf5Serial::Hdf5Serial Lz4::Lz4 zstd::libzstd_shared)
  add_test(NAME millrace_hdf5_hostile_long COMMAND millrace_hdf5_hostile_test)
  set_tests_properties(millrace_hdf5_hostile_long PROPERTIES LABELS long WORKING_DIRECTORY "${CMAKE_BINARY_DIR}"
    ENVIRONMENT MILLRACE_MUTANTS=20000)
  add_test(NAME millrace_hdf5_index_long COMMAND millrace_hdf5_test --gtest_filter=OpenAll.HostileBytes*)
  set_tests_properties(millrace_hdf5_index_long PROPERTIES LABELS long WORKING_DIRECTORY "${CMAKE_BINARY_DIR}"
    ENVIRONMENT MILLRACE_MUTANTS=5000)
endif()
