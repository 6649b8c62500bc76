# Each folder of src/millrace is a static library; x.h, x.cpp and x_test.cpp are next to each other. The folder recipes/, next to
# src/, is one library too: it has a folder for each recipe, and these have folders.
#
#   mr_folder(data DEPENDS base core LINK ZLIB::ZLIB PRIVATE_LINK yaml-cpp [TORCH | PCH name] [TEST_LINK ...])
#
# Library millrace_<folder> is made of *.cpp and detail/*.cpp, the test program millrace_<folder>_test of *_test.cpp; *.h are for
# higher floors, detail/*.h for this folder alone. Users get the headers listed in cmake/public_headers.txt, and one library
# (cmake/install.cmake). A new file needs no edit here.
# PCH implies TORCH and uses the precompiled headers of target millrace_pch_<name>.
include_guard(GLOBAL)
set(MILLRACE_FOLDERS "" CACHE INTERNAL "")

function(mr_warnings target)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
    -Wno-missing-field-initializers -Werror>)
endfunction()

# Compiles the sources of `target` up to twelve at a time: each source after the first saves what its headers cost, 4 s for those of
# LibTorch even when they are precompiled, since g++ instantiates their templates again, and as much for those of the folders below.
function(mr_unity target)
  if(NOT CMAKE_DISABLE_PRECOMPILE_HEADERS)  # clang-tidy reads every file separately
    list(LENGTH ARGN count)
    math(EXPR units "(${count} + 11) / 12")
    math(EXPR at_a_time "(${count} + ${units} - 1) / ${units}")  # units of one size: two cores have equal parts
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${at_a_time})
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # g++ takes a source included by another source for a header
      target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
    endif()
  endif()
endfunction()

# Headers of `target` below `base` that `./dev check headers` compiles, each alone. They are a separate target, since exported targets
# list no files.
function(mr_compiled_alone target base)
  add_library(${target}_headers INTERFACE)
  target_link_libraries(${target}_headers INTERFACE ${target})
  target_sources(${target}_headers INTERFACE FILE_SET HEADERS BASE_DIRS "${base}" FILES ${ARGN})
endfunction()

function(mr_folder folder)
  cmake_parse_arguments(arg "TORCH" "PCH" "DEPENDS;LINK;PRIVATE_LINK;TEST_LINK" ${ARGN})
  set(base "${CMAKE_SOURCE_DIR}/src")
  set(dir "${base}/millrace/${folder}")
  set(subs detail)
  if(folder STREQUAL "recipes")
    set(base "${CMAKE_SOURCE_DIR}")
    set(dir "${base}/recipes")
    set(subs * */*)
  endif()
  if(NOT IS_DIRECTORY "${dir}")
    return()
  endif()
  list(TRANSFORM subs REPLACE "(.+)" "${dir}/\\1/*" OUTPUT_VARIABLE places)
  list(PREPEND places "${dir}/*")
  list(TRANSFORM places APPEND ".cpp" OUTPUT_VARIABLE source_places)
  list(TRANSFORM places APPEND ".h" OUTPUT_VARIABLE header_places)
  file(GLOB sources CONFIGURE_DEPENDS ${source_places})
  file(GLOB headers CONFIGURE_DEPENDS ${header_places})
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  list(FILTER sources EXCLUDE REGEX "_test\\.cpp$")
  list(FILTER sources EXCLUDE REGEX "/main\\.cpp$")
  string(REPLACE "/" "_" name "${folder}")
  set(target "millrace_${name}")
  if(NOT sources)
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  else()
    add_library(${target} STATIC ${sources})
    set(scope PUBLIC)
    mr_warnings(${target})
  endif()
  target_include_directories(${target} ${scope} "${base}")
  # `./dev check headers` compiles each header alone (tools/headers_alone.py), except x.h if there is an x.cpp that clang-tidy reads:
  # x.cpp includes it first (tools/tidy.py checks that).
  set(proven)
  if(folder IN_LIST MILLRACE_LINTED)
    foreach(header IN LISTS headers)
      string(REGEX REPLACE "\\.h$" ".cpp" source "${header}")
      if(source IN_LIST sources)
        list(APPEND proven "${header}")
        cmake_path(RELATIVE_PATH header BASE_DIRECTORY "${base}" OUTPUT_VARIABLE included)
        set_property(GLOBAL APPEND PROPERTY MILLRACE_PROVEN_HEADERS "${included}")
      endif()
    endforeach()
  endif()
  list(REMOVE_ITEM headers ${proven})
  list(FILTER headers EXCLUDE REGEX "/detail/")
  mr_compiled_alone(${target} "${base}" ${headers})
  target_compile_features(${target} ${scope} cxx_std_20)
  foreach(dep IN LISTS arg_DEPENDS)
    string(REPLACE "/" "_" dep "${dep}")
    target_link_libraries(${target} ${scope} millrace_${dep})
  endforeach()
  target_link_libraries(${target} ${scope} ${arg_LINK})
  if(sources)
    target_link_libraries(${target} PRIVATE ${arg_PRIVATE_LINK})
  endif()
  if(arg_TORCH OR arg_PCH)
    target_link_libraries(${target} ${scope} TorchWheel::cpu)
  endif()
  if(arg_PCH AND sources)
    target_precompile_headers(${target} REUSE_FROM millrace_pch_${arg_PCH})
  endif()
  if(sources)
    mr_unity(${target} ${sources})
  endif()
  if(EXISTS "${dir}/folder.cmake")
    include("${dir}/folder.cmake")  # per-file compile flags and the like
  endif()
  set(MILLRACE_FOLDERS ${MILLRACE_FOLDERS} ${target} CACHE INTERNAL "")
  if(tests AND MILLRACE_TESTS)
    mr_test(${target}_test unit ${tests})
    target_link_libraries(${target}_test PRIVATE ${target} ${arg_TEST_LINK})
    if(arg_PCH)
      target_precompile_headers(${target}_test REUSE_FROM millrace_pch_${arg_PCH})
    endif()
  endif()
endfunction()

# Target millrace_pch_<name>: headers compiled once for all targets that use it with REUSE_FROM.
function(mr_precompiled name)
  add_library(millrace_pch_${name} STATIC "${CMAKE_SOURCE_DIR}/cmake/pch.cpp")
  target_link_libraries(millrace_pch_${name} PUBLIC TorchWheel::cpu nlohmann_json::nlohmann_json)
  target_include_directories(millrace_pch_${name} PUBLIC "${CMAKE_SOURCE_DIR}/src")
  target_precompile_headers(millrace_pch_${name} PRIVATE ${ARGN})
  mr_warnings(millrace_pch_${name})  # g++ rejects a precompiled header made without -Wpedantic
endfunction()

# Test programs that use all cores or measure time; the others run in parallel, one per core (tools/run_tests.py).
set(MILLRACE_TESTS_ALONE millrace_device_test millrace_kernels_test millrace_data_loader_test millrace_data_cache_test language_model_learning_test)

# Test programs that run once more with the instructions of an AVX2 CPU, as most desktops have: the kernels and the code of ATen and
# oneDNN then differ. A variable of GoogleTest omits cases that would only take time.
set(MILLRACE_TESTS_AVX2 millrace_kernels_test millrace_nn_test cosmology_parity_test language_model_parity_test language_model_learning_test
    autoencoder_3d_parity_test image_pairs_parity_test neural_response_parity_test)
set(MILLRACE_AVX2_language_model_learning_test "GTEST_FILTER=Learning.SmokeComesNearTheEntropyOfItsTextAndNotBelow")
foreach(recipe autoencoder_3d image_pairs)
  set(MILLRACE_AVX2_${recipe}_parity_test "GTEST_FILTER=Networks/*/smoke")
endforeach()
set(MILLRACE_AVX2_neural_response_parity_test "GTEST_FILTER=Modulators/*/pc")

# Adds a run of a test program in a separate working folder: tests write where they run, and two runs of a program may overlap.
function(mr_test_run name target label)
  set(folder "${CMAKE_BINARY_DIR}/scratch/${name}")
  file(MAKE_DIRECTORY "${folder}")
  add_test(NAME ${name} COMMAND ${target} ${ARGN})
  set_tests_properties(${name} PROPERTIES LABELS ${label} WORKING_DIRECTORY "${folder}")
endfunction()

# For what only tests run: it compiles in three quarters of the time, under sanitizers in half; the tested code keeps its own flags.
function(mr_compiled_as_test target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1> $<$<CONFIG:RelWithDebInfo>:-O0 -fno-sanitize=undefined>)
endfunction()

# Adds a GoogleTest program with a ctest label (unit, slow, ranks, interop, gpu). ./dev test runs them and adds up passed, failed,
# skipped. If it has no main(), it gets that of tests/support/main.cpp, which makes a working folder when started by hand.
function(mr_test target label)
  add_executable(${target} ${ARGN})
  mr_warnings(${target})
  mr_compiled_as_test(${target})
  mr_unity(${target} ${ARGN})
  target_link_libraries(${target} PRIVATE GTest::gmock millrace_test_main)
  target_compile_definitions(${target} PRIVATE MILLRACE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  mr_test_run(${target} ${target} ${label})
  set(tests ${target})
  if(target IN_LIST MILLRACE_TESTS_AVX2)
    list(APPEND tests ${target}-avx2)
    set(environment MILLRACE_CPU=avx2 ${MILLRACE_AVX2_${target}})
    mr_test_run(${target}-avx2 ${target} ${label})
    set_tests_properties(${target}-avx2 PROPERTIES ENVIRONMENT "${environment}" SKIP_RETURN_CODE 2)  # if the CPU lacks AVX2
  endif()
  if(target IN_LIST MILLRACE_TESTS_ALONE)
    set_tests_properties(${tests} PROPERTIES RUN_SERIAL ON)
  endif()
endfunction()
