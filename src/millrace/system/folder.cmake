# Linked only into programs that use it, because its constructor reads the environment before main.
set_source_files_properties("${dir}/instructions.cpp" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
