// SPDX-License-Identifier: Apache-2.0
// A shared library that is loaded at run time, so that one program serves machines that have it and
// machines that do not.
#pragma once

#include <string>
#include <vector>

namespace trireme::base {

class SharedLibrary {
 public:
  struct Options {
    std::string name;  // the product to install, for messages: "cuDNN 9"
    std::string file;  // the soname: "libcudnn.so.9"
    // Searched after the loader's default paths (LD_LIBRARY_PATH, the run path of this program,
    // ldconfig).
    std::vector<std::string> folders = {};
  };

  // Loads the library; a failure is kept in problem(). The library is never unloaded: GPU libraries
  // have threads and handlers that run until the process ends.
  explicit SharedLibrary(Options options);

  // Returns an empty text if the library is loaded; otherwise what was not found, and what to do.
  const std::string& problem() const { return problem_; }
  const std::string& file() const { return options_.file; }
  // Returns the file that was loaded; empty if none was.
  const std::string& path() const { return path_; }

  // Returns the library's function `name`, as in function<decltype(cudnnCreate)>("cudnnCreate").
  // Throws ConfigError with problem(), or if the library has no such function.
  template <typename Function>
  Function* function(const char* name) const {
    return reinterpret_cast<Function*>(address_of(name));
  }

 private:
  void* address_of(const char* name) const;

  Options options_;
  void* handle_ = nullptr;
  std::string path_, problem_;
};

// What `trireme doctor` shows about a library.
struct LibraryReport {
  std::string name, file;     // "cuDNN", "libcudnn.so.9"
  std::string path, version;  // empty if it could not be loaded
  std::string problem;        // empty if it is loaded
};
// `version` is counted as NVIDIA does: 91400 is 9.14.0.
LibraryReport report_of(const SharedLibrary& library, std::string name, int version);

}  // namespace trireme::base
