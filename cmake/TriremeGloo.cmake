# SPDX-License-Identifier: Apache-2.0
# Gloo carries bytes between processes. It is built in when its headers and library are found; without them
# src/comm/no_gloo.cpp takes the place of src/comm/gloo.
set(TRIREME_GLOO AUTO CACHE STRING "Build the Gloo back end: AUTO (when it is found), ON or OFF")
set_property(CACHE TRIREME_GLOO PROPERTY STRINGS AUTO ON OFF)
set(TRIREME_HAS_GLOO OFF)

if(NOT TRIREME_GLOO STREQUAL "OFF")
  find_path(GLOO_INCLUDE_DIR gloo/rendezvous/context.h)
  # Debian 12 installs it outside of the multi-architecture folder.
  find_library(GLOO_LIBRARY gloo PATHS /usr/lib)
  if(GLOO_INCLUDE_DIR AND GLOO_LIBRARY)
    set(TRIREME_HAS_GLOO ON)
  elseif(TRIREME_GLOO STREQUAL "ON")
    message(FATAL_ERROR "TRIREME_GLOO=ON, but Gloo is missing: install libgloo-dev")
  endif()
endif()
message(STATUS "Trireme Gloo back end: ${TRIREME_HAS_GLOO}")

# What a folder of src/ that has a gloo/ folder needs beside its sources.
function(trireme_link_gloo target)
  target_link_libraries(${target} PRIVATE ${GLOO_LIBRARY})
  target_include_directories(${target} SYSTEM PRIVATE ${GLOO_INCLUDE_DIR})
endfunction()
