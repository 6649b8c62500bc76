# Loops of vectors, compiled once for each set of instructions and at full optimisation in every build type: tests run them.
set_source_files_properties("${dir}/detail/resize_portable.cpp" PROPERTIES COMPILE_FLAGS "-O3")
set_source_files_properties("${dir}/detail/resize_avx2.cpp" PROPERTIES COMPILE_FLAGS "-O3 -mavx2")
