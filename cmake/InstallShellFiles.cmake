# SPDX-License-Identifier: Apache-2.0
# Run by `cmake --install`: installs the manual page and the completions, which the program writes itself. `program` is
# the built program, `made` a folder for the files.
function(install_output_of file)
  execute_process(COMMAND ${program} ${ARGN} OUTPUT_VARIABLE text ERROR_QUIET RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    list(JOIN ARGN " " words)
    message(STATUS "Not installed: share/${file} (`trireme ${words}` ended with ${code})")
    return()
  endif()
  file(WRITE ${made}/${file} "${text}")
  get_filename_component(folder ${file} DIRECTORY)
  file(INSTALL ${made}/${file} DESTINATION ${CMAKE_INSTALL_PREFIX}/share/${folder})
endfunction()

install_output_of(man/man1/trireme.1 man)
install_output_of(bash-completion/completions/trireme completion bash)
install_output_of(zsh/site-functions/_trireme completion zsh)
