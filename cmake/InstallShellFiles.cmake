# SPDX-License-Identifier: Apache-2.0
# Run by `cmake --install`: installs the manual page and the completions, which the program writes itself, and the
# changelog that Debian's policy asks for. `program` is the built program, `made` a folder for the files.
find_program(GZIP gzip)

# Installs made/FILE below share/, compressed as Debian's policy asks for where gzip is found.
function(install_compressed file)
  get_filename_component(folder ${file} DIRECTORY)
  if(GZIP)
    execute_process(COMMAND ${GZIP} -9nf ${made}/${file} COMMAND_ERROR_IS_FATAL ANY)
    string(APPEND file .gz)
  endif()
  file(INSTALL ${made}/${file} DESTINATION ${CMAKE_INSTALL_PREFIX}/share/${folder})
endfunction()

# Sets `written` to whether made/FILE has what the program prints.
function(write_output_of file)
  execute_process(COMMAND ${program} ${ARGN} OUTPUT_VARIABLE text ERROR_QUIET RESULT_VARIABLE code)
  set(written TRUE PARENT_SCOPE)
  if(NOT code EQUAL 0)
    list(JOIN ARGN " " words)
    message(STATUS "Not installed: share/${file} (`trireme ${words}` ended with ${code})")
    set(written FALSE PARENT_SCOPE)
    return()
  endif()
  file(WRITE ${made}/${file} "${text}")
endfunction()

write_output_of(man/man1/trireme.1 man)
if(written)
  install_compressed(man/man1/trireme.1)
endif()
write_output_of(bash-completion/completions/trireme completion bash)
if(written)
  file(INSTALL ${made}/bash-completion/completions/trireme
       DESTINATION ${CMAKE_INSTALL_PREFIX}/share/bash-completion/completions)
endif()
write_output_of(zsh/site-functions/_trireme completion zsh)
if(written)
  file(INSTALL ${made}/zsh/site-functions/_trireme DESTINATION ${CMAKE_INSTALL_PREFIX}/share/zsh/site-functions)
endif()

write_output_of(doc/trireme/version.json version --json)
if(written)
  file(READ ${made}/doc/trireme/version.json text)
  string(JSON date GET "${text}" date)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env LC_ALL=C date -u -R -d ${date}
                  OUTPUT_VARIABLE date OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  file(WRITE ${made}/doc/trireme/changelog "trireme (${version}) unstable; urgency=medium

  * CHANGELOG.md in this folder lists what changed.

 -- ${maintainer}  ${date}
")
  install_compressed(doc/trireme/changelog)
endif()
