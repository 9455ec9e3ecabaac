# SPDX-License-Identifier: Apache-2.0
# The pages of the board draw lines with dygraphs, whose script is embedded from its package. They are built in when it
# is found; without it src/board/no_board.cpp takes the place of the embedded pages.
set(TRIREME_BOARD AUTO CACHE STRING "Embed the pages of the board and of reports: AUTO (when dygraphs is found), ON or OFF")
set_property(CACHE TRIREME_BOARD PROPERTY STRINGS AUTO ON OFF)
set(TRIREME_HAS_BOARD OFF)

if(NOT TRIREME_BOARD STREQUAL "OFF")
  find_path(DYGRAPHS_DIR dygraph.min.js PATHS /usr/share/javascript/dygraphs NO_DEFAULT_PATH)
  if(DYGRAPHS_DIR)
    set(TRIREME_HAS_BOARD ON)
  elseif(TRIREME_BOARD STREQUAL "ON")
    message(FATAL_ERROR "TRIREME_BOARD=ON, but dygraphs is missing: install libjs-dygraphs")
  endif()
endif()
message(STATUS "Trireme board: ${TRIREME_HAS_BOARD}")

# Adds the generated source with the pages, plain and compressed.
function(trireme_embed_board target)
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
endfunction()
