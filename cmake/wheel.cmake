# What tools/wheel.py packs: component "program". It has an empty library under OpenMP's usual name, for builds of torch that contain
# OpenMP under another name: the program finds the functions in torch's library (python/millrace_train/start.py).
set(gomp_source "${CMAKE_BINARY_DIR}/generated/gomp_names.cpp")
set(gomp_versions "${CMAKE_BINARY_DIR}/generated/gomp_names.map")
file(CONFIGURE OUTPUT "${gomp_source}" CONTENT "")
set(gomp_text "")
foreach(version OMP_1.0 OMP_2.0 OMP_3.0 OMP_3.1 OMP_4.0 OMP_4.5 OMP_5.0 GOMP_1.0 GOMP_2.0 GOMP_3.0 GOMP_4.0 GOMP_4.0.1 GOMP_4.5 GOMP_5.0)
  string(APPEND gomp_text "${version} { };\n")
endforeach()
file(CONFIGURE OUTPUT "${gomp_versions}" CONTENT "${gomp_text}")
add_library(millrace_gomp_names SHARED "${gomp_source}")
set_target_properties(millrace_gomp_names PROPERTIES PREFIX "" OUTPUT_NAME libgomp SUFFIX .so.1 NO_SONAME ON
  LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/gomp")
target_link_options(millrace_gomp_names PRIVATE -nostdlib LINKER:-soname,libgomp.so.1 "LINKER:--version-script=${gomp_versions}")
install(TARGETS millrace_gomp_names LIBRARY DESTINATION lib/gomp COMPONENT program EXCLUDE_FROM_ALL)

add_custom_target(millrace_wheel)
foreach(target millrace millrace-torch millrace-hdf5 millrace-convolutions millrace_cuda millrace_gomp_names)
  if(TARGET ${target})
    add_dependencies(millrace_wheel ${target})
  endif()
endforeach()

add_custom_target(headrace_wheel DEPENDS headrace millrace-hdf5)

if(MILLRACE_TESTS)
  add_test(NAME headrace_wheel COMMAND "${CMAKE_SOURCE_DIR}/tests/wheel/headrace.py" "${CMAKE_BINARY_DIR}")
  add_test(NAME wheel COMMAND "${CMAKE_SOURCE_DIR}/tests/wheel/run.py" "${CMAKE_BINARY_DIR}")
  set_tests_properties(wheel headrace_wheel PROPERTIES LABELS slow)
  add_custom_target(millrace_wheel_test ALL DEPENDS millrace_wheel headrace_wheel)  # `./dev test` builds all
endif()
