# SPDX-License-Identifier: Apache-2.0
# The board serves pages with cpp-httplib and draws lines with dygraphs. It is built in when both are found; without
# them src/board/no_board.cpp takes the place of src/board/http and of the embedded pages.
set(TRIREME_BOARD AUTO CACHE STRING "Build the board and reports: AUTO (when cpp-httplib and dygraphs are found), ON or OFF")
set_property(CACHE TRIREME_BOARD PROPERTY STRINGS AUTO ON OFF)
set(TRIREME_HAS_BOARD OFF)

if(NOT TRIREME_BOARD STREQUAL "OFF")
  find_path(HTTPLIB_INCLUDE_DIR httplib.h)
  find_library(HTTPLIB_LIBRARY cpp-httplib)
  find_path(DYGRAPHS_DIR dygraph.min.js PATHS /usr/share/javascript/dygraphs NO_DEFAULT_PATH)
  if(HTTPLIB_INCLUDE_DIR AND HTTPLIB_LIBRARY AND DYGRAPHS_DIR)
    set(TRIREME_HAS_BOARD ON)
    # The classes of the library depend on how it was compiled; its pkg-config file has the definitions.
    get_filename_component(httplib_folder ${HTTPLIB_LIBRARY} DIRECTORY)
    set(HTTPLIB_DEFINITIONS "")
    if(EXISTS ${httplib_folder}/pkgconfig/cpp-httplib.pc)
      file(STRINGS ${httplib_folder}/pkgconfig/cpp-httplib.pc httplib_flags REGEX "^Cflags:")
      string(REGEX MATCHALL "-D[A-Za-z0-9_=]+" HTTPLIB_DEFINITIONS "${httplib_flags}")
    endif()
  elseif(TRIREME_BOARD STREQUAL "ON")
    message(FATAL_ERROR "TRIREME_BOARD=ON, but cpp-httplib or dygraphs is missing: install libcpp-httplib-dev and libjs-dygraphs")
  endif()
endif()
message(STATUS "Trireme board: ${TRIREME_HAS_BOARD}")

# Adds the generated source with the pages, compressed, and the library that serves them.
function(trireme_link_board target)
  file(GLOB assets CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/board/assets/*.html
       ${PROJECT_SOURCE_DIR}/src/board/assets/*.js ${PROJECT_SOURCE_DIR}/src/board/assets/*.css
       ${PROJECT_SOURCE_DIR}/src/board/assets/*.svg)
  set(generated ${PROJECT_BINARY_DIR}/board/embedded_assets.cpp)
  add_custom_command(
    OUTPUT ${generated}
    COMMAND ${CMAKE_COMMAND} "-DASSETS=${assets}" -DDYGRAPHS=${DYGRAPHS_DIR} -DOUTPUT=${generated}
            -P ${PROJECT_SOURCE_DIR}/cmake/EmbedAssets.cmake
    DEPENDS ${assets} ${PROJECT_SOURCE_DIR}/cmake/EmbedAssets.cmake
    VERBATIM)
  set_source_files_properties(${generated} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_sources(${target} PRIVATE ${generated})
  target_compile_definitions(${target} PRIVATE ${HTTPLIB_DEFINITIONS})
  target_link_libraries(${target} PRIVATE ${HTTPLIB_LIBRARY})
  target_include_directories(${target} SYSTEM PRIVATE ${HTTPLIB_INCLUDE_DIR})
endfunction()
