# SPDX-License-Identifier: Apache-2.0
# One library per folder of src/, linked exactly as src/floors.txt says; unit tests stand beside their source.

function(trireme_compile_options target)
  # Argument structs with designated initialisers leave fields at their defaults on purpose; GCC 12 warns of it. Its
  # -Wrestrict reports std::string's operator+ (GCC bug 105651).
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion
                         -Wno-missing-field-initializers $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>>)
  if(CMAKE_UNITY_BUILD)
    # To the compiler a file that another includes is a header, where a type of an unnamed namespace would be a fault.
    # GCC forgets where libstdc++ suppresses a warning if a header is precompiled: it reports std::string's operator+
    # again, by other names. Builds that compile file by file keep these warnings.
    target_compile_options(${target} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:
                           -Wno-subobject-linkage -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread>)
    # Clang's -Wshadow compares with names of the files before, GCC's does not.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wno-shadow>)
  endif()
  # fmt takes nvcc for a compiler without constexpr.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:${TRIREME_CUDA_HOST_OPTIMISATION} --expt-relaxed-constexpr
                         -DFMT_USE_CONSTEXPR=1 -Xcompiler=-Wall,-Wextra>)
  if(TRIREME_SANITIZE)
    # Sanitized std::regex is reported by GCC 12 (its bug 105562).
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${TRIREME_SANITIZE}
                           -fno-omit-frame-pointer -fno-sanitize-recover=all -Wno-maybe-uninitialized>)
    target_link_options(${target} PRIVATE -fsanitize=${TRIREME_SANITIZE})
  endif()
endfunction()

# With CMAKE_UNITY_BUILD the files of one directory are compiled together. CMake 3.25 groups no CUDA files, so they are
# grouped here: nvcc takes four seconds for the headers of every file. JOIN_DIRECTORIES puts the directories of a target
# in one group, up to a size that compiles in 25 to 50 seconds: headers and JSON take three seconds of every group. Names
# in unnamed namespaces differ within such a folder, so that groups may change.
set(TRIREME_GROUP_BYTES 180000)

function(trireme_group_by_directory target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "JOIN_DIRECTORIES" "" "")
  set(sources ${arg_UNPARSED_ARGUMENTS})
  set(joined 0)
  set(joined_bytes 0)
  set(cuda_groups "")
  foreach(source IN LISTS sources)
    cmake_path(GET source PARENT_PATH directory)
    cmake_path(RELATIVE_PATH directory BASE_DIRECTORY ${PROJECT_SOURCE_DIR}/src)
    string(MAKE_C_IDENTIFIER "${directory}" group)
    if(arg_JOIN_DIRECTORIES)
      file(SIZE ${source} bytes)
      math(EXPR joined_bytes "${joined_bytes} + ${bytes}")
      if(joined_bytes GREATER TRIREME_GROUP_BYTES)
        math(EXPR joined "${joined} + 1")
        set(joined_bytes ${bytes})
      endif()
      set(group ${target}_${joined})
    endif()
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group})
    if(source MATCHES "\\.cu$")
      list(APPEND cuda_groups ${group})
      string(APPEND cuda_${group} "#include \"${source}\"\n")
      # Newer versions of CMake would group them, too.
      set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
      if(CMAKE_UNITY_BUILD)
        set_source_files_properties(${source} PROPERTIES HEADER_FILE_ONLY ON)
      endif()
    endif()
  endforeach()
  list(REMOVE_DUPLICATES cuda_groups)
  if(NOT CMAKE_UNITY_BUILD)
    set(cuda_groups "")
  endif()
  foreach(group IN LISTS cuda_groups)
    set(together ${PROJECT_BINARY_DIR}/CMakeFiles/${target}.dir/Unity/unity_${group}.cu)
    file(GENERATE OUTPUT ${together} CONTENT "${cuda_${group}}")
    set_source_files_properties(${together} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    target_sources(${target} PRIVATE ${together})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
endfunction()

# Folders that read arguments and files, or queue work of other folders, have no loop that a user would wait for: a third
# less time of the compiler. Hashes of checkpoints are xxHash's, whose loops are written for vectors. Tokenizers are as
# fast, and a search of layouts takes 6 % longer.
set(TRIREME_LIGHT_FOLDERS agent analysis board ckpt cli comm config data obs plan schedule sim spec text train)
set(TRIREME_LIGHT_OPTIONS $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>
    # GCC 12 knows too little of the libraries at -O1 to see that std::vector is initialised.
    $<$<AND:$<CONFIG:Release>,$<COMPILE_LANG_AND_ID:CXX,GNU>>:-Wno-maybe-uninitialized>)

function(trireme_add_folders)
  trireme_add_precompiled(product)
  trireme_add_precompiled(light ${TRIREME_LIGHT_OPTIONS})
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
    if(TRIREME_HAS_BOARD)
      list(FILTER sources EXCLUDE REGEX "/no_board\\.cpp$")
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
    if(folder MATCHES "^(comm|device|engine|kernels|nn|optim)$")
      # What is compiled together decides what is inlined: the arithmetic of these stays as it was measured.
      trireme_group_by_directory(trireme_${folder} ${sources})
    else()
      trireme_group_by_directory(trireme_${folder} ${sources} JOIN_DIRECTORIES)
    endif()
    target_include_directories(trireme_${folder} PUBLIC ${PROJECT_SOURCE_DIR}/src)
    trireme_compile_options(trireme_${folder})
    if(folder IN_LIST TRIREME_LIGHT_FOLDERS)
      target_compile_options(trireme_${folder} PRIVATE ${TRIREME_LIGHT_OPTIONS})
      trireme_precompile(trireme_${folder} light)
    else()
      trireme_precompile(trireme_${folder} product)
    endif()
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
    if(folder STREQUAL board AND TRIREME_HAS_BOARD)
      trireme_embed_board(trireme_board)
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
  trireme_link_zlib(trireme_board)
  target_link_libraries(trireme_cli PRIVATE CLI11::CLI11)
  # The CPU kernels may fuse multiply-add and vectorise the sums that say so; both are fixed by the binary, not by the
  # number of threads.
  file(GLOB_RECURSE cpu_kernels ${PROJECT_SOURCE_DIR}/src/kernels/cpu/*.cpp)
  set_source_files_properties(${cpu_kernels} PROPERTIES SKIP_PRECOMPILE_HEADERS ON
    COMPILE_OPTIONS "-O3;-ffp-contract=fast;-fopenmp-simd;-fno-math-errno;-fno-trapping-math")
endfunction()
