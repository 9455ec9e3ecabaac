# SPDX-License-Identifier: Apache-2.0
# One library per folder of src/, linked exactly as src/floors.txt says; unit tests stand beside their source.

function(trireme_compile_options target)
  # Argument structs with designated initialisers leave fields at their defaults on purpose; GCC 12 warns of it. Its
  # -Wrestrict reports std::string's operator+ (GCC bug 105651).
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion
                         -Wno-missing-field-initializers -Wno-restrict>)
  if(CMAKE_UNITY_BUILD)
    # To the compiler a file that another includes is a header, where a type of an unnamed namespace would be a fault.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
  endif()
  # fmt takes nvcc for a compiler without constexpr.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-O3 --expt-relaxed-constexpr
                         -DFMT_USE_CONSTEXPR=1 -Xcompiler=-Wall,-Wextra>)
  if(TRIREME_SANITIZE)
    # Sanitized std::regex is reported by GCC 12 (its bug 105562).
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${TRIREME_SANITIZE}
                           -fno-omit-frame-pointer -fno-sanitize-recover=all -Wno-maybe-uninitialized>)
    target_link_options(${target} PRIVATE -fsanitize=${TRIREME_SANITIZE})
  endif()
endfunction()

# With CMAKE_UNITY_BUILD the files of one directory are compiled together, so names in unnamed namespaces need to differ
# within a directory only, and a new file changes no other directory's compilation.
function(trireme_group_by_directory target)
  foreach(source IN LISTS ARGN)
    cmake_path(GET source PARENT_PATH directory)
    cmake_path(RELATIVE_PATH directory BASE_DIRECTORY ${PROJECT_SOURCE_DIR}/src)
    string(MAKE_C_IDENTIFIER "${directory}" group)
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group})
    if(source MATCHES "\\.cu$")  # each by itself; newer versions of CMake would group them, too
      set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
endfunction()

function(trireme_add_folders)
  file(STRINGS ${PROJECT_SOURCE_DIR}/src/floors.txt lines REGEX "^[0-9]")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/floors.txt)
  set(folders "")
  foreach(line IN LISTS lines)
    string(REGEX MATCH "^[0-9]+ +([a-z]+) *:(.*)$" matched "${line}")
    set(folder ${CMAKE_MATCH_1})
    separate_arguments(links UNIX_COMMAND "${CMAKE_MATCH_2}")
    list(APPEND folders ${folder})
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${folder}/*.cpp
         ${PROJECT_SOURCE_DIR}/src/${folder}/*.cu)
    list(FILTER sources EXCLUDE REGEX "(_test|/main)\\.cpp$")
    if(TRIREME_HAS_CUDA)
      list(FILTER sources EXCLUDE REGEX "/no_cuda\\.cpp$")
    else()
      list(FILTER sources EXCLUDE REGEX "/src/${folder}/cuda/")
    endif()
    if(TRIREME_HAS_GLOO)
      list(FILTER sources EXCLUDE REGEX "/no_gloo\\.cpp$")
    else()
      list(FILTER sources EXCLUDE REGEX "/src/${folder}/gloo/")
    endif()
    if(TRIREME_HAS_NCCL)
      list(FILTER sources EXCLUDE REGEX "/no_nccl\\.cpp$")
    else()
      list(FILTER sources EXCLUDE REGEX "/src/${folder}/nccl/")
    endif()
    trireme_filter_compression(sources)
    foreach(library IN LISTS TRIREME_TEXT_LIBRARIES)
      string(TOUPPER ${library} upper)
      if(TRIREME_HAS_${upper})
        list(FILTER sources EXCLUDE REGEX "/no_${library}\\.cpp$")
      else()
        list(FILTER sources EXCLUDE REGEX "/src/${folder}/${library}/")
      endif()
    endforeach()
    add_library(trireme_${folder} STATIC ${sources})
    trireme_group_by_directory(trireme_${folder} ${sources})
    target_include_directories(trireme_${folder} PUBLIC ${PROJECT_SOURCE_DIR}/src)
    trireme_compile_options(trireme_${folder})
    if(TRIREME_HAS_CUDA AND EXISTS ${PROJECT_SOURCE_DIR}/src/${folder}/cuda)
      trireme_link_cuda(trireme_${folder})
    endif()
    if(TRIREME_HAS_GLOO AND EXISTS ${PROJECT_SOURCE_DIR}/src/${folder}/gloo)
      trireme_link_gloo(trireme_${folder})
    endif()
    if(TRIREME_HAS_NCCL AND EXISTS ${PROJECT_SOURCE_DIR}/src/${folder}/nccl)
      trireme_link_nccl(trireme_${folder})
    endif()
    if(folder STREQUAL text)
      trireme_link_text(trireme_text)
    endif()
    foreach(link IN LISTS links)
      target_link_libraries(trireme_${folder} PUBLIC trireme_${link})
    endforeach()
  endforeach()
  set(TRIREME_FOLDERS ${folders} PARENT_SCOPE)

  target_link_libraries(trireme_base PUBLIC fmt::fmt nlohmann_json::nlohmann_json Threads::Threads ${CMAKE_DL_LIBS})
  target_link_libraries(trireme_base PRIVATE spdlog::spdlog)
  target_link_libraries(trireme_kernels PRIVATE OpenBLAS::OpenBLAS)
  trireme_link_compression(trireme_data)
  target_link_libraries(trireme_cli PRIVATE CLI11::CLI11)
  # The CPU kernels may fuse multiply-add and vectorise the sums that say so; both are fixed by the binary, not by the
  # number of threads.
  file(GLOB_RECURSE cpu_kernels ${PROJECT_SOURCE_DIR}/src/kernels/cpu/*.cpp)
  set_source_files_properties(${cpu_kernels} PROPERTIES
    COMPILE_OPTIONS "-O3;-ffp-contract=fast;-fopenmp-simd;-fno-math-errno;-fno-trapping-math")
endfunction()

# What tests measure is in libraries; their own code is compiled a quarter faster this way.
set(TRIREME_TEST_OPTIONS -O1)

function(trireme_add_unit_tests)
  foreach(folder IN LISTS TRIREME_FOLDERS)
    file(GLOB_RECURSE tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${folder}/*_test.cpp)
    if(tests)
      add_executable(${folder}_test ${tests})
      trireme_group_by_directory(${folder}_test ${tests})
      trireme_compile_options(${folder}_test)
      target_compile_options(${folder}_test PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${TRIREME_TEST_OPTIONS}>)
      target_link_libraries(${folder}_test PRIVATE trireme_${folder} GTest::gtest_main)
      if(folder STREQUAL kernels)
        # Every file defines its own Problem, cases and the like.
        set_target_properties(${folder}_test PROPERTIES UNITY_BUILD OFF)
      endif()
      if(folder STREQUAL comm)
        # Hundreds of short tests, and a program that takes longer to start where CUDA is in it.
        add_test(NAME comm COMMAND comm_test --gtest_brief=1)
      else()
        gtest_discover_tests(${folder}_test TEST_PREFIX ${folder}. DISCOVERY_TIMEOUT 60)
      endif()
    endif()
  endforeach()
endfunction()
