# SPDX-License-Identifier: Apache-2.0
# Run by every build (TriremeBuildInfo.cmake). The commit is, in this order: COMMIT if it is given, that of the git work
# tree, marked -dirty where tracked files were changed; that which `git archive` wrote into commit.txt; unknown.
set(commit "${COMMIT}")

if(NOT commit)
  find_program(GIT git)
  set(top "")
  if(GIT)
    execute_process(COMMAND ${GIT} -C ${SOURCE_DIR} rev-parse --show-toplevel
                    OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  file(REAL_PATH ${SOURCE_DIR} source)
  # Not a tree that was unpacked inside of another repository.
  if(top STREQUAL source)
    execute_process(COMMAND ${GIT} -C ${SOURCE_DIR} rev-parse --short=12 HEAD
                    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    execute_process(COMMAND ${GIT} --no-optional-locks -C ${SOURCE_DIR} status --porcelain --untracked-files=no
                    OUTPUT_VARIABLE changes ERROR_QUIET)
    if(commit AND changes)
      string(APPEND commit "-dirty")
    endif()
  endif()
endif()

if(NOT commit AND EXISTS ${SOURCE_DIR}/cmake/commit.txt)
  file(STRINGS ${SOURCE_DIR}/cmake/commit.txt archived LIMIT_COUNT 1)
  if(archived MATCHES "^[0-9a-f]+$")
    string(SUBSTRING "${archived}" 0 12 commit)
  endif()
endif()

if(NOT commit)
  set(commit unknown)
endif()

# Whether the sources that reach a GPU are those that passed on one.
find_program(BASH bash)
set(gpu_suite "GPU suite: not compared, because bash was not found when this program was built")
if(BASH)
  execute_process(COMMAND ${BASH} ${SOURCE_DIR}/scripts/gpu_record.sh status
                  OUTPUT_VARIABLE gpu_suite OUTPUT_STRIP_TRAILING_WHITESPACE)
  string(REGEX REPLACE "[\"\\\n]" " " gpu_suite "${gpu_suite}")
endif()
foreach(flag HAS_GLOO HAS_NCCL)
  if(${flag})
    set(${flag} true)
  else()
    set(${flag} false)
  endif()
endforeach()
configure_file(${SOURCE_DIR}/cmake/build_info.cpp.in ${OUTPUT} @ONLY)
