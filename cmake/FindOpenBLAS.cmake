# SPDX-License-Identifier: Apache-2.0
# OpenBLAS itself and not whatever libblas.so points to: kernels/cpu sets its thread count through OpenBLAS' own call.
find_path(OpenBLAS_INCLUDE_DIR openblas_config.h PATH_SUFFIXES openblas-pthread openblas
          HINTS /usr/include/${CMAKE_LIBRARY_ARCHITECTURE})
find_library(OpenBLAS_LIBRARY openblas PATH_SUFFIXES openblas-pthread)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OpenBLAS REQUIRED_VARS OpenBLAS_LIBRARY OpenBLAS_INCLUDE_DIR)
if(OpenBLAS_FOUND AND NOT TARGET OpenBLAS::OpenBLAS)
  add_library(OpenBLAS::OpenBLAS UNKNOWN IMPORTED)
  set_target_properties(OpenBLAS::OpenBLAS PROPERTIES
    IMPORTED_LOCATION ${OpenBLAS_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${OpenBLAS_INCLUDE_DIR})
endif()
