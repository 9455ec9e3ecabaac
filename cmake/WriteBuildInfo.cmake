# SPDX-License-Identifier: Apache-2.0
# Run by every build (TriremeBuildInfo.cmake). The commit is, in this order: COMMIT if it is given, that of the git work
# tree, marked -dirty where tracked files were changed; that which `git archive` wrote into commit.txt; unknown. The date
# is SOURCE_DATE_EPOCH, that of the commit, that of the archive, or that of this file.
set(commit "${COMMIT}")
set(epoch "$ENV{SOURCE_DATE_EPOCH}")

find_program(GIT git)
set(top "")
if(GIT)
  execute_process(COMMAND ${GIT} -C ${SOURCE_DIR} rev-parse --show-toplevel
                  OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
file(REAL_PATH ${SOURCE_DIR} source)
# Not a tree that was unpacked inside of another repository.
if(top STREQUAL source)
  if(NOT commit)
    execute_process(COMMAND ${GIT} -C ${SOURCE_DIR} rev-parse --short=12 HEAD
                    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    execute_process(COMMAND ${GIT} --no-optional-locks -C ${SOURCE_DIR} status --porcelain --untracked-files=no
                    OUTPUT_VARIABLE changes ERROR_QUIET)
    if(commit AND changes)
      string(APPEND commit "-dirty")
    endif()
  endif()
  if(epoch STREQUAL "")
    execute_process(COMMAND ${GIT} -C ${SOURCE_DIR} log -1 --format=%ct
                    OUTPUT_VARIABLE epoch OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
endif()

if(EXISTS ${SOURCE_DIR}/cmake/commit.txt)
  file(STRINGS ${SOURCE_DIR}/cmake/commit.txt archived LIMIT_COUNT 2)
  list(GET archived 0 archived_commit)
  list(GET archived -1 archived_epoch)
  if(NOT commit AND archived_commit MATCHES "^[0-9a-f]+$")
    string(SUBSTRING "${archived_commit}" 0 12 commit)
  endif()
  if(epoch STREQUAL "" AND archived_epoch MATCHES "^[0-9]+$")
    set(epoch ${archived_epoch})
  endif()
endif()

if(epoch MATCHES "^[0-9]+$")
  set(ENV{SOURCE_DATE_EPOCH} ${epoch})  # which string(TIMESTAMP) takes for now
  string(TIMESTAMP date "%Y-%m-%d" UTC)
else()
  file(TIMESTAMP ${CMAKE_CURRENT_LIST_FILE} date "%Y-%m-%d" UTC)
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
