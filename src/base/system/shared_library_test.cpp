// SPDX-License-Identifier: Apache-2.0
#include "base/system/shared_library.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace trireme::base {
namespace {

// A library that every C++ program on Linux has.
const SharedLibrary::Options math = {.name = "the C library", .file = "libm.so.6"};

TEST(SharedLibraryTest, functions_of_a_loaded_library_can_be_called) {
  const SharedLibrary library(math);
  EXPECT_EQ(library.problem(), "");
  EXPECT_TRUE(library.path().ends_with("/libm.so.6")) << library.path();
  EXPECT_EQ(library.function<double(double)>("floor")(2.5), 2.0);
}

TEST(SharedLibraryTest, a_missing_library_is_named_with_what_to_do) {
  const SharedLibrary library(
      {.name = "Nothing 7", .file = "libtrireme-nothing.so.7", .folders = {"/nowhere/lib"}});
  EXPECT_EQ(library.path(), "");
  EXPECT_EQ(library.problem(),
            "libtrireme-nothing.so.7 cannot be loaded: cannot open shared object file: No such "
            "file or directory (also tried /nowhere/lib); install Nothing 7, or set "
            "LD_LIBRARY_PATH to the folder that contains it");
  try {
    library.function<void()>("anything")();
    FAIL() << "a function of a missing library";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.what(), library.problem());
  }
}

TEST(SharedLibraryTest, a_missing_function_is_named) {
  const SharedLibrary library(math);
  try {
    library.function<void()>("trireme_nothing")();
    FAIL() << "a function that does not exist";
  } catch (const ConfigError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("libm.so.6 has no function trireme_nothing"), std::string::npos)
        << message;
  }
}

// The folder contains the library under a name that the loader would not find.
TEST(SharedLibraryTest, folders_are_searched_after_the_default_paths) {
  const auto folder = std::filesystem::temp_directory_path() / "trireme_shared_library_test";
  std::filesystem::create_directories(folder);
  const std::string file = "libtrireme-planted.so.1";
  std::filesystem::remove(folder / file);
  std::filesystem::create_symlink(SharedLibrary(math).path(), folder / file);
  const SharedLibrary found(
      {.name = "Planted 1", .file = file, .folders = {"/nowhere/lib", folder.string()}});
  EXPECT_EQ(found.problem(), "");
  EXPECT_EQ(found.function<double(double)>("floor")(3.5), 3.0);

  std::ofstream(folder / "libtrireme-broken.so.1") << "no library";
  const SharedLibrary broken(
      {.name = "Broken 1", .file = "libtrireme-broken.so.1", .folders = {folder.string()}});
  const std::string place = (folder / "libtrireme-broken.so.1").string();
  EXPECT_NE(broken.problem().find(place), std::string::npos) << broken.problem();
  std::filesystem::remove_all(folder);
}

TEST(SharedLibraryTest, a_report_has_a_version_only_if_the_library_is_loaded) {
  EXPECT_EQ(report_of(SharedLibrary(math), "maths", 91400).version, "9.14.0");
  const SharedLibrary missing({.name = "Nothing 7", .file = "libtrireme-nothing.so.7"});
  const LibraryReport report = report_of(missing, "Nothing", 0);
  EXPECT_EQ(report.version, "");
  EXPECT_EQ(report.problem, missing.problem());
}

}  // namespace
}  // namespace trireme::base
