# One set of kernel templates is compiled five times; the best table is chosen at run time. The compiler may not fuse a * b + c,
# because the kernels say where they fuse, so that dropout gives the same bits everywhere. Every build type optimises, because
# tests run these loops; the portable table at -O2, since -O3 takes five times as long to compile it.
set(_kernel_flags "-ffp-contract=off -fno-math-errno")
set(_avx2_flags "-O3 ${_kernel_flags} -mavx2 -mfma")
set(_avx512_flags "-O3 ${_kernel_flags} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mprefer-vector-width=512")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # g++ 12 warns about its own immintrin.h ("__Y may be used uninitialized")
  string(APPEND _avx512_flags " -Wno-maybe-uninitialized -Wno-uninitialized")
endif()
set_source_files_properties("${dir}/detail/table_portable.cpp" PROPERTIES COMPILE_FLAGS "-O2 ${_kernel_flags}")
set_source_files_properties("${dir}/detail/table_avx2.cpp" PROPERTIES COMPILE_FLAGS "${_avx2_flags}")
set_source_files_properties("${dir}/detail/table_avx512.cpp" PROPERTIES COMPILE_FLAGS "${_avx512_flags}")
set_source_files_properties("${dir}/detail/table_avx512_bf16.cpp" PROPERTIES COMPILE_FLAGS "${_avx512_flags} -mavx512bf16")
set_source_files_properties("${dir}/detail/table_amx.cpp" PROPERTIES COMPILE_FLAGS
  "${_avx512_flags} -mavx512bf16 -mamx-tile -mamx-bf16")
# The wheel's libgomp is already linked. This flag turns on at::parallel_for's OpenMP body in the one file that calls it.
set_source_files_properties("${dir}/parallel.cpp" PROPERTIES COMPILE_FLAGS "-fopenmp")
# These files have other flags, and a precompiled header is made for one set of flags.
set_source_files_properties("${dir}/detail/table_portable.cpp" "${dir}/detail/table_avx2.cpp"
  "${dir}/detail/table_avx512.cpp" "${dir}/detail/table_avx512_bf16.cpp" "${dir}/detail/table_amx.cpp" "${dir}/parallel.cpp"
  PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
