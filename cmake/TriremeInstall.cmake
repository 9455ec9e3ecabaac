# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` puts below its prefix, and the Debian package (`cpack` in the build folder). The program finds
# share/trireme from its own place, so any prefix will do; an installed program has no run path.
install(TARGETS trireme RUNTIME DESTINATION bin)
install(DIRECTORY configs/models machines stacks DESTINATION share/trireme FILES_MATCHING PATTERN "*.toml" PATTERN "README.md")
install(DIRECTORY configs/ DESTINATION share/trireme/configs FILES_MATCHING PATTERN "*.toml" PATTERN models EXCLUDE)
install(DIRECTORY docs DESTINATION share/doc/trireme FILES_MATCHING PATTERN "*.md")
install(FILES README.md CHANGELOG.md SECURITY.md LICENSE DESTINATION share/doc/trireme)
install(FILES cmake/debian_copyright DESTINATION share/doc/trireme RENAME copyright)
set(TRIREME_MAINTAINER "Trireme developers <trireme@example.org>" CACHE STRING "Maintainer of the Debian package")
install(CODE "set(program \"$<TARGET_FILE:trireme>\")\nset(made \"${PROJECT_BINARY_DIR}/shell\")
set(maintainer \"${TRIREME_MAINTAINER}\")\nset(version \"${PROJECT_VERSION}\")")
install(SCRIPT ${CMAKE_CURRENT_LIST_DIR}/InstallShellFiles.cmake)

set(TRIREME_HOMEPAGE "" CACHE STRING "Home page that the Debian package names")

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME trireme)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT ${TRIREME_MAINTAINER})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "plans, trains and recovers the pretraining of large language models")
# Debian's policy: lines of at most 79 characters.
set(description "One program that plans a training run (will it fit, how fast, which layout),
trains on CPUs or NVIDIA GPUs with one process or many, checkpoints, resumes,
evaluates and generates.")
if(TRIREME_HAS_CUDA)
  string(APPEND description "
.
This build has a CUDA back end for sm ${CMAKE_CUDA_ARCHITECTURES}.
It runs without CUDA, too: cuBLAS, cuDNN and NCCL are loaded when a GPU is
asked for, and `trireme doctor` says what is missing.")
  # Packages of NVIDIA's repository; Debian has no such names, and a suggestion may be of what does not exist.
  set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libcublas-${CUDAToolkit_VERSION_MAJOR}-${CUDAToolkit_VERSION_MINOR}, \
libcudnn9-cuda-${CUDAToolkit_VERSION_MAJOR}, libnccl2")
endif()
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION ${description})  # below the summary
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)  # trireme_0.1.0_amd64.deb
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_HOMEPAGE ${TRIREME_HOMEPAGE})
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
include(CPack)
