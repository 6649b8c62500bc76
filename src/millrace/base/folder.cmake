# Linked object by object: what does not hash does not load OpenSSL (5 MB, also in every fork of millrace-hdf5).
set_source_files_properties("${dir}/sha256.cpp" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
