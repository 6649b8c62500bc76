# LibTorch is built with NDEBUG: without it RecordFunction::inputs() asks a flag that the library never sets. In a file of its own:
# the others keep their assertions.
set_source_files_properties("${dir}/operation_census.cpp" PROPERTIES COMPILE_DEFINITIONS NDEBUG SKIP_UNITY_BUILD_INCLUSION ON)
