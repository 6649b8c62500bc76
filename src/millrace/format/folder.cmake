# A struct named in its header holds a type of its source's own, which g++ warns of in a file that only includes that source.
set_source_files_properties("${dir}/jpeg.cpp" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
