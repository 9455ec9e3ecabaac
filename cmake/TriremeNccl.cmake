# SPDX-License-Identifier: Apache-2.0
# NCCL carries bytes between processes that have GPUs. It is built in with CUDA when its header is found; without it
# src/comm/no_nccl.cpp takes the place of src/comm/nccl. The library is loaded at run time.
set(TRIREME_NCCL AUTO CACHE STRING "Build the NCCL back end: AUTO (when CUDA is built and NCCL is found), ON or OFF")
set_property(CACHE TRIREME_NCCL PROPERTY STRINGS AUTO ON OFF)
set(TRIREME_HAS_NCCL OFF)

if(NOT TRIREME_NCCL STREQUAL "OFF")
  if(TRIREME_HAS_CUDA)
    find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
    find_library(NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
    if(NCCL_INCLUDE_DIR)
      set(TRIREME_HAS_NCCL ON)
      trireme_look_beside("${NCCL_LIBRARY}")
    endif()
  endif()
  if(TRIREME_NCCL STREQUAL "ON" AND NOT TRIREME_HAS_NCCL)
    message(FATAL_ERROR "TRIREME_NCCL=ON, but CUDA (${TRIREME_HAS_CUDA}) or nccl.h (${NCCL_INCLUDE_DIR}) is missing: "
                        "install libnccl-dev")
  endif()
endif()
message(STATUS "Trireme NCCL back end: ${TRIREME_HAS_NCCL}")

# What a folder of src/ that has an nccl/ folder needs beside its sources.
function(trireme_link_nccl target)
  target_link_libraries(${target} PRIVATE CUDA::cudart_static)
  target_include_directories(${target} SYSTEM PRIVATE ${NCCL_INCLUDE_DIR} ${CUDAToolkit_INCLUDE_DIRS})
endfunction()
