# Tests that need GPUs. They are built if the plugin is built.
if(MILLRACE_TESTS AND TARGET millrace_cuda)
  mr_test(millrace_nccl_test gpu "${dir}/cuda/nccl_test.cpp")
  target_link_libraries(millrace_nccl_test PRIVATE ${target} Gloo::headers)
  add_dependencies(millrace_nccl_test millrace_cuda)
endif()
