# Only in programs that ask: a constructor of its own reads the environment before main.
set_source_files_properties("${dir}/instructions.cpp" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
