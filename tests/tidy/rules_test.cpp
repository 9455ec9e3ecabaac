// SPDX-License-Identifier: Apache-2.0
// The rules can fail: each is shown planted bad text, and good text that resembles it.
#include "rules.h"

#include <gtest/gtest.h>

namespace trireme::tidy {
namespace {

const std::vector<Folder> three_floors = {
    {0, "base", {}}, {1, "device", {"base"}}, {2, "kernels", {"base", "device"}}};

SourceFile source(const std::string& text) { return {"src/kernels/planted.cpp", text}; }
SourceFile header(const std::string& text) { return {"src/kernels/planted.h", text}; }

TEST(TidySource, comments_and_literals_are_not_code) {
  EXPECT_EQ(code_of("a // b\nc /* d\n */ e"), "a     \nc     \n    e");
  EXPECT_EQ(code_of(R"(f("x\"y", 'z', 1'000))"), R"(f("    ", ' ', 1'000))");
  EXPECT_EQ(code_of("R\"-(a)\"b)-\" c"), "R\"-(    )-\" c");
  EXPECT_EQ(code_of("\"// no\" x"), "\"     \" x");
  EXPECT_EQ(without_comments("\"// no\" x // yes"), "\"// no\" x       ");
}

TEST(TidySource, identifiers_know_what_stands_around_them) {
  const auto found = identifiers_of("#include <gone>\nstd::exit(1); x->y = delete;");
  ASSERT_EQ(found.size(), 5U);
  EXPECT_EQ(found[1].name, "exit");
  EXPECT_EQ(found[1].line, 2);
  EXPECT_EQ(found[1].before, "::");
  EXPECT_EQ(found[1].scope, "std");
  EXPECT_EQ(found[1].next, '(');
  EXPECT_EQ(found[3].before, "->");
  EXPECT_EQ(found[4].before, "=");
}

TEST(TidySource, includes_are_found_outside_of_comments) {
  const auto found = includes_of("// #include \"a.h\"\n#include \"b.h\"\n#  include <c.h>\n");
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].path, "b.h");
  EXPECT_EQ(found[0].line, 2);
  EXPECT_TRUE(found[0].is_quoted);
  EXPECT_EQ(found[1].path, "c.h");
  EXPECT_FALSE(found[1].is_quoted);
}

TEST(TidyRules, malformed_floors_are_found) {
  Problems problems;
  const auto folders = parse_floors("# words\n\n0 base :\n1 device : base\n", problems);
  EXPECT_TRUE(problems.empty());
  ASSERT_EQ(folders.size(), 2U);
  EXPECT_EQ(folders[1].may_include, std::vector<std::string>{"base"});
  (void)parse_floors("base : 0\n0 base\n0 base :\n1 base :\n", problems);
  EXPECT_EQ(problems.size(), 3U);
}

TEST(TidyRules, arrows_that_do_not_point_down_are_found) {
  EXPECT_TRUE(check_floors(three_floors).empty());
  EXPECT_TRUE(check_floors({{1, "a", {}}, {1, "b", {"a"}}}).empty());
  EXPECT_EQ(check_floors({{0, "a", {"b"}}, {1, "b", {}}}).size(), 1U);     // upwards
  EXPECT_EQ(check_floors({{1, "a", {"b"}}, {1, "b", {}}}).size(), 1U);     // sideways, later
  EXPECT_EQ(check_floors({{1, "a", {"b"}}, {1, "b", {"a"}}}).size(), 1U);  // a cycle
  EXPECT_EQ(check_floors({{1, "a", {"a"}}}).size(), 1U);                   // itself
  EXPECT_EQ(check_floors({{1, "a", {"missing"}}}).size(), 1U);
}

TEST(TidyRules, unlisted_and_missing_folders_are_found) {
  const Files files = {
      {"src/base/a.cpp", ""}, {"src/device/cpu/b.cpp", ""}, {"src/floors.txt", ""}};
  EXPECT_TRUE(check_folders_listed(files, {{0, "base", {}}, {1, "device", {}}}).empty());
  EXPECT_EQ(check_folders_listed(files, {{0, "base", {}}}).size(), 1U);
  EXPECT_EQ(check_folders_listed(files, three_floors).size(), 1U);
}

TEST(TidyRules, missing_stray_and_misplaced_paragraphs_are_found) {
  const std::string words = " holds things that are long enough to be a paragraph of words.\n\n";
  const std::string base = "**`base/`**" + words, device = "**`device/`**" + words,
                    kernels = "**`kernels/`**" + words;
  EXPECT_TRUE(check_readme("# src\n\n" + base + device + kernels, three_floors).empty());
  EXPECT_EQ(check_readme(base + kernels, three_floors).size(), 1U);
  EXPECT_EQ(check_readme(base + "**`device/`** short\n" + kernels, three_floors).size(), 1U);
  EXPECT_EQ(check_readme(base + kernels + device, three_floors).size(), 1U);
  EXPECT_EQ(check_readme(base + device + kernels + "**`old/`**" + words, three_floors).size(), 1U);
}

TEST(TidyRules, forbidden_arrows_between_files_are_found) {
  const auto problems = [](const char* path, const char* text) {
    return check_include_arrows({path, text}, three_floors).size();
  };
  EXPECT_EQ(problems("src/kernels/a.cpp", "#include \"base/x.h\"\n#include \"kernels/y.h\""), 0U);
  EXPECT_EQ(problems("src/kernels/cpu/a.cpp", "#include \"device/x.h\"\n#include <vector>"), 0U);
  EXPECT_EQ(problems("src/base/a.cpp", "// #include \"device/x.h\""), 0U);
  EXPECT_EQ(problems("src/base/a.cpp", "#include \"device/x.h\""), 1U);
  EXPECT_EQ(problems("src/device/a_test.cpp", "#include \"kernels/x.h\""), 1U);
  EXPECT_EQ(problems("src/device/a.cpp", "#include \"x.h\""), 1U);
  EXPECT_EQ(problems("src/device/a.cpp", "#include \"../base/x.h\""), 1U);
}

TEST(TidyRules, granted_arrows_that_nothing_uses_are_found) {
  Files files = {{"src/device/a.cpp", "#include \"base/x.h\""},
                 {"src/kernels/b.h", "#include \"base/x.h\"\n#include \"device/y.h\""}};
  EXPECT_TRUE(check_arrows_used(files, three_floors).empty());
  for (const char* unused : {"// #include \"device/y.h\"", "#include <device/y.h>"}) {
    files[1].text = std::string("#include \"base/x.h\"\n") + unused;
    EXPECT_EQ(check_arrows_used(files, three_floors).size(), 1U) << unused;
  }
  // A unit test alone is no reason to link.
  for (const char* test : {"src/kernels/b_test.cpp", "src/kernels/tests/rig.h"}) {
    Files tested = files;
    tested.push_back({test, "#include \"device/y.h\""});
    EXPECT_EQ(check_arrows_used(tested, three_floors).size(), 1U) << test;
  }
}

TEST(TidyRules, includes_of_missing_files_are_found) {
  Files files = {{"src/base/a.h", ""},
                 {"src/base/b.cpp", "#include \"base/a.h\""},
                 {"tests/x/c.h", ""},
                 {"tests/x/d.cpp", "#include \"c.h\"\n#include \"base/a.h\""}};
  EXPECT_TRUE(check_includes_exist(files).empty());
  files.push_back({"src/base/e.cpp", "#include \"base/gone.h\"\n#include \"a.h\""});
  EXPECT_EQ(check_includes_exist(files).size(), 2U);
}

TEST(TidyRules, include_cycles_are_found) {
  Files files = {{"src/base/a.h", "#include \"base/b.h\"\n#include \"base/c.h\""},
                 {"src/base/b.h", "#include \"base/c.h\""},
                 {"src/base/c.h", ""}};
  EXPECT_TRUE(check_include_cycles(files).empty());
  files[2].text = "#include \"base/a.h\"";
  EXPECT_FALSE(check_include_cycles(files).empty());
}

TEST(TidyRules, headers_that_nothing_includes_are_found) {
  Files files = {{"src/base/a.h", "#include \"base/a.h\""}, {"src/base/a.cpp", "#include <a.h>"}};
  EXPECT_EQ(check_headers_included(files).size(), 1U);
  files[1].text = "#include \"base/a.h\"";
  EXPECT_TRUE(check_headers_included(files).empty());
}

TEST(TidyRules, sources_that_nothing_builds_are_found) {
  const Files good = {{"src/base/deep/a.cpp", ""},
                      {"tests/CMakeLists.txt", "add_executable(x tidy/x_test.cpp)"},
                      {"tests/tidy/x_test.cpp", ""},
                      {"bench/CMakeLists.txt", "file(GLOB all ${DIR}/*_bench.cpp)"},
                      {"bench/y_bench.cpp", ""}};
  EXPECT_TRUE(check_built(good, three_floors).empty());
  const Files bad = {{"src/a.cpp", ""},
                     {"src/unlisted/a.cpp", ""},
                     {"src/base/a.cc", ""},
                     {"bench/CMakeLists.txt", "add_executable(x xy_test.cpp)"},
                     {"bench/y_test.cpp", ""}};
  EXPECT_EQ(check_built(bad, three_floors).size(), 4U);
}

TEST(TidyRules, device_headers_outside_back_ends_are_found) {
  const auto problems = [](const char* path, const char* include) {
    return check_device_headers({path, std::string("#include ") + include}).size();
  };
  EXPECT_EQ(problems("src/kernels/cpu/a.cpp", "<cblas.h>"), 0U);
  EXPECT_EQ(problems("src/comm/nccl/a.cpp", "<cuda_runtime.h>"), 0U);
  EXPECT_EQ(problems("src/kernels/a.cpp", "\"kernels/cuda/table.h\""), 0U);
  for (const char* include : {"<cblas.h>", "<cuda_runtime.h>", "\"cudnn.h\"", "<cublasLt.h>",
                              "<nccl.h>", "<gloo/context.h>", "<cuda.h>"}) {
    EXPECT_EQ(problems("src/kernels/a.cpp", include), 1U) << include;
    EXPECT_EQ(problems("src/kernels/null/cpu.h", include), 1U) << include;
  }
}

TEST(TidyRules, headers_of_text_libraries_outside_their_folders_are_found) {
  const auto problems = [](const char* path, const char* include) {
    return check_text_headers({path, std::string("#include ") + include}).size();
  };
  EXPECT_EQ(problems("src/text/pcre2/a.cpp", "<pcre2.h>"), 0U);
  EXPECT_EQ(problems("src/text/utf8proc/a.cpp", "<utf8proc.h>"), 0U);
  EXPECT_EQ(problems("src/text/a.cpp", "\"text/sentencepiece.h\""), 0U);
  for (const char* include : {"<pcre2.h>", "<utf8proc.h>", "<sentencepiece_processor.h>"}) {
    EXPECT_EQ(problems("src/text/a.cpp", include), 1U) << include;
    EXPECT_EQ(problems("src/text/hf/a.cpp", include), 1U) << include;
  }
  EXPECT_EQ(problems("src/text/pcre2/a.cpp", "<utf8proc.h>"), 1U);
}

TEST(TidyRules, process_exits_are_found) {
  for (const char* bad : {"std::exit(1);", "if (x) exit(1);", "else ::_exit(2);", "quick_exit(0);",
                          "std::abort();", "std::set_terminate(std::abort);", "std::terminate();",
                          "return ::abort();", "else exit (3);", "#define STOP std::abort()"}) {
    EXPECT_EQ(check_process_exit(source(bad)).size(), 1U) << bad;
    EXPECT_TRUE(check_process_exit({"src/base/check.cpp", bad}).empty()) << bad;
  }
  for (const char* good : {"comm.abort();", "void abort() noexcept;", "Group::abort();", "abort();",
                           "// exit(1)", "\"exit(1)\"", "int exit = 0;", "on_exit(f);",
                           "stream->exit();", "EXPECT_EXIT(f(), g, h);"}) {
    EXPECT_TRUE(check_process_exit(source(good)).empty()) << good;
  }
}

TEST(TidyRules, raw_allocations_are_found) {
  for (const char* bad :
       {"auto* p = new int;", "delete p;", "delete[] p;", "std::malloc(4);", "p = (int*)malloc(4);",
        "::aligned_alloc(8, 8);", "cudaMalloc(&p, 4);", "check(cudaMallocAsync(&p, 4, s));"}) {
    EXPECT_EQ(check_raw_allocation(source(bad)).size(), 1U) << bad;
    EXPECT_EQ(check_raw_allocation({"src/device/device.cpp", bad}).size(), 1U) << bad;
    EXPECT_TRUE(check_raw_allocation({"src/device/cpu/cpu_device.cpp", bad}).empty()) << bad;
  }
  for (const char* good : {"Buffer(const Buffer&) = delete;", "// a new job", "\"delete p\"",
                           "#include <new>", "int new_size = 0;", "pool.malloc(4);"}) {
    EXPECT_TRUE(check_raw_allocation(source(good)).empty()) << good;
  }
}

TEST(TidyRules, reads_of_the_environment_are_found) {
  EXPECT_EQ(check_environment(source("return std::getenv(\"X\");")).size(), 1U);
  EXPECT_EQ(check_environment(source("extern char** environ;")).size(), 1U);
  EXPECT_TRUE(check_environment(source("// getenv(\"X\")")).empty());
  EXPECT_TRUE(check_environment({"src/cli/main.cpp", "getenv(\"X\");"}).empty());
}

TEST(TidyRules, raw_reads_of_plans_are_found) {
  for (const char* bad : {"manifest.plan.at(\"logical_dp\")", "run.plan[\"layout\"]",
                          "generation.plan().value(\"reduce\", 0)", "(*plan)[ \"mesh\" ]"}) {
    EXPECT_EQ(check_plan_json(source(bad)).size(), 1U) << bad;
  }
  for (const char* good : {"spec::plan_from_json(manifest.plan)", "plan.layout.at(3)",
                           "plan.is_object()", "// plan.at(\"x\")", "out[\"plan\"] = plan;"}) {
    EXPECT_TRUE(check_plan_json(source(good)).empty()) << good;
  }
}

TEST(TidyRules, using_namespace_in_headers_is_found) {
  EXPECT_EQ(check_using_namespace(header("using\n namespace std;")).size(), 1U);
  EXPECT_TRUE(check_using_namespace(source("using namespace std;")).empty());
  EXPECT_TRUE(check_using_namespace(header("using base::Shape;\nnamespace x {}")).empty());
}

TEST(TidyRules, headers_without_pragma_once_are_found) {
  EXPECT_TRUE(check_pragma_once(header("// words\n#pragma once\n")).empty());
  EXPECT_EQ(check_pragma_once(header("// #pragma once\n")).size(), 1U);
  EXPECT_TRUE(check_pragma_once(source("")).empty());
}

TEST(TidyRules, files_without_a_licence_line_are_found) {
  const std::string line = "SPDX-License-Identifier: Apache-2.0\n";
  EXPECT_TRUE(check_spdx(source("// " + line)).empty());
  EXPECT_TRUE(check_spdx({"tests/a.py", "#!/usr/bin/env python3\n# " + line}).empty());
  EXPECT_TRUE(check_spdx({"src/README.md", "words"}).empty());
  EXPECT_EQ(check_spdx(source("#pragma once\n// " + line)).size(), 1U);
  EXPECT_EQ(check_spdx(source("")).size(), 1U);
  EXPECT_EQ(check_spdx({"CMakeLists.txt", "project(x)"}).size(), 1U);
  EXPECT_EQ(check_spdx({"bench/a.sh", "#!/bin/sh\nset -e\n# " + line}).size(), 1U);
}

TEST(TidyRules, files_without_any_licence_are_found) {
  const std::vector<std::string> patterns = reuse_patterns(
      "version = 1\n[[annotations]]\npath = \"**\"\nSPDX-FileCopyrightText = \"x\"\n"
      "[[annotations]]\npath = [\n  \"**.json\",\n  \"data/*\",\n]\n"
      "SPDX-License-Identifier = \"Apache-2.0\"\n"
      "[[annotations]]\npath = \"one.bin\"\nSPDX-License-Identifier = \"MIT\"\n");
  EXPECT_EQ(patterns, (std::vector<std::string>{"**.json", "data/*", "one.bin"}));
  for (const char* good : {"a.json", "a/b/c.json", "data/x", "one.bin"}) {
    EXPECT_TRUE(check_licensed({good, ""}, patterns).empty()) << good;
  }
  for (const char* bad : {"a.jsonl", "data/x/y", "b/one.bin", "machines/x.toml"}) {
    EXPECT_EQ(check_licensed({bad, "x = 1\n"}, patterns).size(), 1U) << bad;
  }
  const std::string line = "# SPDX-License-Identifier: Apache-2.0\n";
  EXPECT_TRUE(check_licensed({"a.toml", line}, patterns).empty());
  EXPECT_TRUE(check_licensed({"a.py", "#!/x\n" + line}, patterns).empty());
  EXPECT_EQ(check_licensed({"a.toml", "a\nb\nc\n" + line}, patterns).size(), 1U);
}

TEST(TidyRules, paths_of_one_machine_are_found) {
  for (const char* bad : {"\"/tmp/x\"", "// see /home/me", "/work/main", "(/root)", "=/tmp"}) {
    EXPECT_EQ(check_machine_paths(source(bad)).size(), 1U) << bad;
  }
  for (const char* good : {"\"base/work/x.h\"", "a /worker", "/template", "x /roots", "~/tmp-x"}) {
    EXPECT_TRUE(check_machine_paths(source(good)).empty()) << good;
  }
}

TEST(TidyRules, names_of_files_outside_the_repository_are_found) {
  const std::string folder = "shared";
  for (const std::string& bad : {"see " + folder + "/bench/x.py", folder + "/data/runs.jsonl",
                                 "# " + folder + "/design", "cd ../" + folder}) {
    EXPECT_EQ(check_outside_files(source(bad)).size(), 1U) << bad;
    EXPECT_EQ(check_outside_files({"machines/x.toml", "a\n" + bad + "\nb"}).size(), 1U) << bad;
  }
  for (const char* good : {"file:///shared/x", "bench/peers", "data/published_runs.jsonl"}) {
    EXPECT_TRUE(check_outside_files(source(good)).empty()) << good;
  }
}

TEST(TidyRules, open_ends_without_an_issue_are_found) {
  for (const char* bad : {"// TODO: later", "// FIXME", "// TODO(me)", "// TODO(#)", "TODO(#12"}) {
    EXPECT_EQ(check_open_ends(source(bad)).size(), 1U) << bad;
  }
  for (const char* good : {"// TODO(#12): later", "int TODOS;", "\"AUTODOC\""}) {
    EXPECT_TRUE(check_open_ends(source(good)).empty()) << good;
  }
}

TEST(TidyRules, handlers_that_drop_their_error_are_found) {
  for (const char* bad :
       {"try { f(); } catch (...) {}", "try { f(); } catch (const Error&) { return 0; }",
        "try { f(); } catch (const std::exception& ignored) {\n}",
        "try { f(); } catch (const std::exception& error) { return stop(\"error\"); }",
        "for (;;) try { f(); } catch (...) { continue; }",
        "// a reason elsewhere\ntry { f(); } catch (const Error&) { }",
        // Formats: a comment is not enough.
        "try { f(); } catch (const base::Json::exception&) { /* damaged */ }",
        "try { v = base::Json::parse(t); } catch (...) {  // damaged\n}",
        "try { v = j.at(0); g(parse_index(t)); } catch (const Error&) {\n  // damaged\n}",
        "try { m = toml::parse(t); } catch (const A& a) { throw B(a); } catch (const Error&) {\n"
        "  // damaged\n}"}) {
    EXPECT_EQ(check_dropped_errors(source(bad)).size(), 1U) << bad;
  }
  for (const char* good :
       {"try { f(); } catch (...) { throw; }", "try { f(); } catch (const E& e) { log(e.what()); }",
        "try { f(); } catch (...) { first = std::current_exception(); }",
        "try { f(); } catch (const Error&) { ++refused; }",
        "try { f(); } catch (const Error&) { report(); return; }",
        "try { f(); } catch (const Error&) {  // the store is gone\n}",
        "try { f(); } catch (const Error&) {\n  return 0;  // a plan of another version\n}",
        "try { v = parse(t); } catch (const Error&) {\n  // damaged\n  return {};\n}",
        "const char* word = \"catch (...) {}\";", "// catch (...) {}", "void catch_all() {}"}) {
    EXPECT_TRUE(check_dropped_errors(source(good)).empty()) << good;
  }
  EXPECT_EQ(check_dropped_errors(source("\n\ntry { f(); } catch (...) {}"))
                .at(0)
                .find("src/kernels/planted.cpp:3:"),
            0U);
}

TEST(TidyRules, names_in_documents_that_do_not_exist_are_found) {
  const Files tree = {{"src/base/plan_reader.h", "Plan read_plan(Store& store);  // gone_name\n"},
                      {"src/base/plan_reader.cpp", "const char* key = \"step_count\";"},
                      {"scripts/run.sh", "#!/bin/sh\n"},
                      {"CHANGELOG.md", "`removed_name` is removed"}};
  const auto problems = [&](const std::string& text) {
    Files files = tree;
    files.push_back({"docs/page.md", text});
    return check_document_names(files, three_floors, {"their_name"}).size();
  };
  for (const char* bad :
       {"`lost_name`", "`lost_name()`", "see `Plan::lost`", "`lost()`", "`LostName`",
        "`read_plan(lost_name)`", "`gone_name`", "`step_count.lost_key`", "`src/base/lost.h`",
        "`base/lost.cpp`", "`lost.sh`", "`./scripts/lost.sh`", "`src/base/lost*.h`",
        "| a | `lost_name` |", "- `Plan`\n  and `lost_name`", "`removed_name`"}) {
    EXPECT_EQ(problems(std::string("`their_name` ") + bad), 1U) << bad;
  }
  for (const char* good : {"`read_plan`",
                           "`read_plan()`",
                           "`Plan::key`",
                           "`step_count`",
                           "`src/base/plan_reader.h`",
                           "`base/plan_reader.cpp`",
                           "`plan_reader.h`",
                           "`base/`",
                           "`./scripts/run.sh --fast`",
                           "`src/base/plan_*.h`",
                           "`scripts/NAME.sh`",
                           "`build/release`",
                           "`checkpoint/bytes`",
                           "`base_test`",
                           "lost_name",
                           "`a plain word`",
                           "`_fragment`",
                           "`-DLOST_NAME=1`",
                           "```sh\nlost_name\n```",
                           "`trace_steps_3-5.json`"}) {
    EXPECT_EQ(problems(std::string("`their_name` ") + good), 0U) << good;
  }
  EXPECT_EQ(problems("no outside name is used"), 1U);
  EXPECT_EQ(parse_outside_names("# why\n\na_name  a reason\nb.py\n"),
            (std::vector<std::string>{"a_name", "b.py"}));
}

SourceFile page(const std::string& text) { return {"src/board/assets/planted.js", text}; }

TEST(TidyRules, markup_from_text_and_foreign_addresses_in_pages_are_found) {
  for (const char* bad :
       {"node.innerHTML = name;", "x.outerHTML += y;", "p.insertAdjacentHTML('a', b)",
        "document.write(x)", "new DOMParser()", "eval(text)", "new Function('a')",
        "setTimeout('run()', 1)", "<p onclick=\"run()\">", "<p style='color:red'>",
        "node.setAttribute('style', x)", "href = 'javascript:x'", "fetch('https://a.example')",
        "import x from './x.js';", "import {a as b} from './x.js';", "import './x.js';",
        "export default 1;", "export {a};"}) {
    EXPECT_EQ(check_page(page(bad)).size(), 1U) << bad;
  }
  for (const char* good :
       {"node.textContent = name;", "import {a, bC_d32} from './x_y.js';", "export function f() {",
        "export async function f() {", "'http://www.w3.org/2000/svg'", "evaluate(x)",
        "node.style.width = '1px';", "setTimeout(() => run(), 1)"}) {
    EXPECT_TRUE(check_page(page(good)).empty()) << good;
  }
  EXPECT_TRUE(check_page(source("x.innerHTML = y;")).empty());
}

TEST(TidyRules, names_that_two_modules_declare_are_found) {
  const SourceFile a{"src/board/assets/a.js", "const size = 1;\nfunction f() {\n  let x = 1;\n}\n"};
  const SourceFile b{"src/board/assets/b.js", "export const size = 2;\n  let x = 1;\n"};
  EXPECT_EQ(check_page_names({a, b}).size(), 1U);
  EXPECT_TRUE(check_page_names({a}).empty());
  EXPECT_EQ(check_page_size({a, b}, 20).size(), 1U);
  EXPECT_TRUE(check_page_size({a, b}, 2000).empty());
}

}  // namespace
}  // namespace trireme::tidy
