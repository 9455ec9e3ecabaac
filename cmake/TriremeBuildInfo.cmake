# SPDX-License-Identifier: Apache-2.0
# What `trireme --version` prints, as one generated source file in a separate library. Every build runs WriteBuildInfo,
# which asks git for the commit and writes the file only if something changed: a new commit compiles one file and links
# the programs that have the command line in them.
set(TRIREME_COMMIT "" CACHE STRING "Commit that this build reports; empty: that of the source tree")

function(trireme_add_build_info)
  set(source ${PROJECT_BINARY_DIR}/generated/build_info.cpp)
  set(architectures "")
  if(TRIREME_HAS_CUDA)
    string(REPLACE ";" "," architectures "${CMAKE_CUDA_ARCHITECTURES}")
  endif()
  set(sanitizers "")
  if(TRIREME_SANITIZE)
    set(sanitizers " with ${TRIREME_SANITIZE} sanitizers")
  endif()
  set(write ${CMAKE_COMMAND} "-DSOURCE_DIR=${PROJECT_SOURCE_DIR}" "-DOUTPUT=${source}"
      "-DCOMMIT=${TRIREME_COMMIT}" "-DVERSION=${PROJECT_VERSION}" "-DBUILD_TYPE=${CMAKE_BUILD_TYPE}${sanitizers}"
      "-DCOMPILER=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}"
      "-DSYSTEM=${CMAKE_SYSTEM_NAME} ${CMAKE_SYSTEM_PROCESSOR}" "-DCUDA_ARCHITECTURES=${architectures}"
      "-DHAS_GLOO=${TRIREME_HAS_GLOO}" "-DHAS_NCCL=${TRIREME_HAS_NCCL}"
      -P ${PROJECT_SOURCE_DIR}/cmake/WriteBuildInfo.cmake)
  execute_process(COMMAND ${write} COMMAND_ERROR_IS_FATAL ANY)
  add_custom_target(trireme_write_build_info COMMAND ${write} BYPRODUCTS ${source} VERBATIM)
  add_library(trireme_build_info STATIC ${source})
  add_dependencies(trireme_build_info trireme_write_build_info)
  target_include_directories(trireme_build_info PRIVATE ${PROJECT_SOURCE_DIR}/src)
  trireme_compile_options(trireme_build_info)
  target_link_libraries(trireme_cli PUBLIC trireme_build_info)
endfunction()
