# What `cmake --install` installs for other projects: find_package(Millrace) and the target millrace::millrace. It is the only
# target, so that folders may move: its library holds the objects of every folder except the recipes'. programs.cmake installs the
# program.
include(CMakePackageConfigHelpers)
set(config_dir lib/cmake/Millrace)

add_library(millrace_all STATIC)
add_library(millrace::millrace ALIAS millrace_all)
set_target_properties(millrace_all PROPERTIES EXPORT_NAME millrace OUTPUT_NAME millrace LINKER_LANGUAGE CXX)
target_compile_features(millrace_all INTERFACE cxx_std_20)
target_include_directories(millrace_all INTERFACE "$<INSTALL_INTERFACE:include>")
foreach(folder IN LISTS MILLRACE_FOLDERS)
  get_target_property(type ${folder} TYPE)
  get_target_property(libraries ${folder} LINK_LIBRARIES)
  if(folder STREQUAL "millrace_recipes" OR NOT type STREQUAL "STATIC_LIBRARY")
    continue()
  endif()
  target_sources(millrace_all PRIVATE $<TARGET_OBJECTS:${folder}>)
  list(FILTER libraries EXCLUDE REGEX "^millrace_")
  target_link_libraries(millrace_all PUBLIC ${libraries})
endforeach()
install(TARGETS millrace_all EXPORT MillraceTargets ARCHIVE DESTINATION lib)
install(EXPORT MillraceTargets NAMESPACE millrace:: DESTINATION ${config_dir})

# Users get only the headers that are meant for them.
file(STRINGS "${CMAKE_SOURCE_DIR}/cmake/public_headers.txt" public_headers REGEX "^millrace/")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/cmake/public_headers.txt")
foreach(header IN LISTS public_headers)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES "${CMAKE_SOURCE_DIR}/src/${header}" DESTINATION "include/${folder}")
endforeach()
add_library(millrace_face INTERFACE)
target_link_libraries(millrace_face INTERFACE millrace_cli)
mr_compiled_alone(millrace_face "${CMAKE_SOURCE_DIR}/src" "${CMAKE_SOURCE_DIR}/src/millrace/recipe.h" "${CMAKE_SOURCE_DIR}/src/millrace/train.h")

configure_package_config_file(cmake/MillraceConfig.cmake.in "${CMAKE_BINARY_DIR}/MillraceConfig.cmake"
  INSTALL_DESTINATION ${config_dir})
write_basic_package_version_file("${CMAKE_BINARY_DIR}/MillraceConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_BINARY_DIR}/MillraceConfig.cmake" "${CMAKE_BINARY_DIR}/MillraceConfigVersion.cmake"
  cmake/FindTorchWheel.cmake cmake/FindCairo.cmake cmake/FindDeflate.cmake cmake/FindLz4.cmake cmake/FindSpng.cmake
  cmake/FindUtf8proc.cmake DESTINATION ${config_dir})

# The targets that `cmake --install` needs, without the tests.
add_custom_target(millrace_installable)
add_dependencies(millrace_installable millrace_all)
foreach(target millrace millrace-torch millrace-hdf5 millrace-convolutions millrace_cuda)
  if(TARGET ${target})
    add_dependencies(millrace_installable ${target})
  endif()
endforeach()

if(MILLRACE_TESTS AND TARGET millrace)
  add_test(NAME install_consumer COMMAND "${CMAKE_SOURCE_DIR}/tests/install_consumer/run.sh" "${CMAKE_BINARY_DIR}")
  add_test(NAME tutorial COMMAND "${CMAKE_SOURCE_DIR}/tests/tutorial/follow.py" "${CMAKE_BINARY_DIR}")
  set_tests_properties(install_consumer tutorial PROPERTIES LABELS slow)
endif()
