# Linked object by object: what does not hash does not load OpenSSL (5 MB, also in every fork of millrace-hdf5).
set_source_files_properties("${dir}/sha256.cpp" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
# It defines what the compiler declares by itself in a file that throws.
set_source_files_properties("${dir}/throw_site.cpp" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
# As a user's debug build is: the test asks for lines of its own source.
set_source_files_properties("${dir}/throw_site_test.cpp" PROPERTIES COMPILE_OPTIONS "-g;-O0" SKIP_UNITY_BUILD_INCLUSION ON)
# Whatever is linked with this folder runs on older systems too (older_systems.cpp says which).
set_source_files_properties("${dir}/older_systems.cpp" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
foreach(function hypot arc4random arc4random_buf _ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE)
  # Taken from the library in any case: what calls the function may stand behind it on the command line.
  target_link_options(${target} INTERFACE "LINKER:--wrap=${function},--undefined=__wrap_${function}")
endforeach()
