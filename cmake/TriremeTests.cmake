# SPDX-License-Identifier: Apache-2.0
# Unit tests, one program a folder of src/, and how test programs become tests of ctest.

# What tests measure is in libraries; their own code is compiled a quarter faster this way.
set(TRIREME_TEST_OPTIONS -O1)
if(TRIREME_SANITIZE)
  set(TRIREME_TEST_OPTIONS -O0)
endif()
# Tests that compute little, or only start programs, are compiled a third faster still.
set(TRIREME_LIGHT_TEST_OPTIONS -O0)
set(TRIREME_LIGHT_TESTS analysis board ckpt cli config data device engine obs optim plan spec train)

# trireme_add_tests(PROGRAM NAME [SHARDS N] [LOCK] [COST SECONDS] [WORKING_DIRECTORY DIR]) makes the tests of a program N
# tests of ctest, NAME.1 to NAME.N (NAME alone for one), each with every N-th test: a process for each single test would
# take longer than most of the tests. Output and times: tests/run_tests.sh. ctest starts those of the highest cost first.
# LOCK is for programs that start and stop processes: one of them at a time, beside tests that compute.
function(trireme_add_tests program name)
  cmake_parse_arguments(PARSE_ARGV 2 arg "LOCK" "SHARDS;COST;WORKING_DIRECTORY" "")
  if(NOT arg_SHARDS)
    set(arg_SHARDS 1)
  endif()
  if(NOT arg_WORKING_DIRECTORY)
    set(arg_WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
  endif()
  foreach(shard RANGE 1 ${arg_SHARDS})
    set(test ${name})
    if(arg_SHARDS GREATER 1)
      set(test ${name}.${shard})
    endif()
    math(EXPR index "${shard} - 1")
    add_test(NAME ${test} WORKING_DIRECTORY ${arg_WORKING_DIRECTORY}
             COMMAND ${PROJECT_SOURCE_DIR}/tests/run_tests.sh ${PROJECT_BINARY_DIR}/test_output/${test} $<TARGET_FILE:${program}>)
    set_tests_properties(${test} PROPERTIES TIMEOUT 3000
                         ENVIRONMENT "GTEST_TOTAL_SHARDS=${arg_SHARDS};GTEST_SHARD_INDEX=${index}")
    if(arg_LOCK)
      set_tests_properties(${test} PROPERTIES RESOURCE_LOCK processes)
    endif()
    if(arg_COST)
      set_tests_properties(${test} PROPERTIES COST ${arg_COST})
    endif()
  endforeach()
endfunction()

# trireme_light_test(TARGET): a test program that computes little itself.
function(trireme_light_test target)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${TRIREME_LIGHT_TEST_OPTIONS}>)
  trireme_precompile(${target} light_test)
endfunction()

function(trireme_add_unit_tests)
  trireme_add_precompiled(test TEST ${TRIREME_TEST_OPTIONS})
  trireme_add_precompiled(light_test TEST ${TRIREME_LIGHT_TEST_OPTIONS})
  foreach(folder IN LISTS TRIREME_FOLDERS)
    file(GLOB_RECURSE tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${folder}/*_test.cpp)
    if(tests)
      add_executable(${folder}_test ${tests})
      trireme_group_by_directory(${folder}_test ${tests} JOIN_DIRECTORIES)
      trireme_compile_options(${folder}_test)
      if(folder IN_LIST TRIREME_LIGHT_TESTS)
        trireme_light_test(${folder}_test)
      else()
        target_compile_options(${folder}_test PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${TRIREME_TEST_OPTIONS}>)
        trireme_precompile(${folder}_test test)
      endif()
      target_link_libraries(${folder}_test PRIVATE trireme_${folder} GTest::gtest_main)
      trireme_add_tests(${folder}_test ${folder} SHARDS 2)
    endif()
  endforeach()
endfunction()
