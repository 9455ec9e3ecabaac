# SPDX-License-Identifier: Apache-2.0
# Libraries that src/text uses: PCRE2 for regular expressions, utf8proc for the normal forms of Unicode, SentencePiece for
# its models. Each is built in when its header and library are found; without it src/text/no_<library>.cpp takes the place
# of src/text/<library>.
set(TRIREME_TEXT_LIBRARIES pcre2 utf8proc sentencepiece)

# trireme_find_text_library(NAME HEADER LIBRARY PACKAGE)
function(trireme_find_text_library name header library package)
  string(TOUPPER ${name} upper)
  set(TRIREME_${upper} AUTO CACHE STRING "Use ${name} in src/text: AUTO (when it is found), ON or OFF")
  set_property(CACHE TRIREME_${upper} PROPERTY STRINGS AUTO ON OFF)
  set(found OFF)
  if(NOT TRIREME_${upper} STREQUAL "OFF")
    find_path(${upper}_INCLUDE_DIR ${header})
    find_library(${upper}_LIBRARY ${library})
    if(${upper}_INCLUDE_DIR AND ${upper}_LIBRARY)
      set(found ON)
    elseif(TRIREME_${upper} STREQUAL "ON")
      message(FATAL_ERROR "TRIREME_${upper}=ON, but ${name} is missing: install ${package}")
    endif()
  endif()
  message(STATUS "Trireme ${name}: ${found}")
  set(TRIREME_HAS_${upper} ${found} PARENT_SCOPE)
endfunction()

trireme_find_text_library(pcre2 pcre2.h pcre2-8 libpcre2-dev)
trireme_find_text_library(utf8proc utf8proc.h utf8proc libutf8proc-dev)
trireme_find_text_library(sentencepiece sentencepiece_processor.h sentencepiece libsentencepiece-dev)

function(trireme_link_text target)
  foreach(library IN LISTS TRIREME_TEXT_LIBRARIES)
    string(TOUPPER ${library} upper)
    if(TRIREME_HAS_${upper})
      target_link_libraries(${target} PRIVATE ${${upper}_LIBRARY})
      target_include_directories(${target} SYSTEM PRIVATE ${${upper}_INCLUDE_DIR})
    endif()
  endforeach()
endfunction()
