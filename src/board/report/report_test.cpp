// SPDX-License-Identifier: Apache-2.0
#include "board/report/report.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/text/json.h"
#include "board/assets.h"
#include "board/report/page_text.h"
#include "board/run_folder_test.h"
#include "obs/scratch_folder_test.h"

namespace trireme::board {
namespace {

const std::string markup = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u2028&";

TEST(PageTextTest, markup_becomes_text) {
  EXPECT_EQ(html_escaped("<a href='x\">&"), "&lt;a href=&#39;x&quot;&gt;&amp;");
  const std::string json = json_in_html(base::Json(markup).dump());
  EXPECT_EQ(json.find_first_of("<>&"), std::string::npos);
  EXPECT_EQ(json.find("\u2028"), std::string::npos);
  EXPECT_EQ(base::Json::parse(json).get<std::string>(), markup);
  EXPECT_EQ(script_in_html("'</script>'").find("</script"), std::string::npos);
}

TEST(PageTextTest, base64_and_hashes_are_those_of_the_standards) {
  EXPECT_EQ(base64_of(""), "");
  EXPECT_EQ(base64_of("f"), "Zg==");
  EXPECT_EQ(base64_of("fo"), "Zm8=");
  EXPECT_EQ(base64_of("foobar"), "Zm9vYmFy");
  EXPECT_EQ(policy_hash(""), "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='");
}

TEST(PageTextTest, modules_are_joined_after_what_they_import) {
  const std::map<std::string, std::string> files = {
      {"main.js", "import {a} from './a.js';\nimport {b} from './b.js';\na(b);\n"},
      {"a.js", "import {b} from './b.js';\nexport function a(x) {}\n"},
      {"b.js", "export const b = 1;\n"},
      {"loop.js", "import {x} from './loop.js';\n"}};
  const auto read = [&](const std::string& name) { return files.at(name); };
  EXPECT_EQ(joined_modules("main.js", read), "const b = 1;\nfunction a(x) {}\na(b);\n");
  EXPECT_THROW(joined_modules("loop.js", read), base::ConfigError);
}

class ReportTest : public testing::Test {
 protected:
  void SetUp() override {
    write_run(folder / "a", {.name = markup, .event_text = markup});
    // Attempt 1 failed and attempt 2 goes on.
    write_text(
        folder / "a/events.jsonl",
        "{\"time\":1200,\"attempt\":1,\"step\":200,\"kind\":\"end\",\"severity\":\"error\","
        "\"text\":" +
            base::Json("rank 3: " + markup).dump() +
            ",\"data\":{\"reason\":\"failed\",\"exit_code\":1}}\n"
            "{\"time\":1199,\"attempt\":1,\"kind\":\"verdict\",\"severity\":\"error\",\"text\":"
            "\"rank 3 "
            "died\"}\n"
            "{\"time\":1300,\"attempt\":2,\"step\":200,\"kind\":\"start\",\"severity\":\"info\","
            "\"text\":\"begins\"}\n",
        true);
    write_text(folder / "a/phases.jsonl",
               "{\"attempt\":1,\"begin\":1000,\"end\":1200,\"first_step\":1,\"last_step\":200,"
               "\"seconds\":{\"useful\":200}}\n{\"attempt\":2,\"begin\":1200,\"end\":1300,"
               "\"first_step\":0,\"last_step\":0,\"seconds\":{\"startup\":100}}\n");
    board = std::make_unique<Board>(
        BoardOptions{.runs = {folder / "a"}, .clock = [] { return 2000.0; }});
    board->poll();
  }
  obs::ScratchFolder folder;
  std::unique_ptr<Board> board;
};

TEST_F(ReportTest, answers_are_those_of_the_board) {
  const base::Json all = base::Json::parse(inlined_answers(*board));
  for (const char* url : {"/api/runs", "/api/run/0", "/api/run/0/events?since=0",
                          "/api/run/0/diagnosis", "/api/run/0/ledger", "/api/run/0/checkpoints",
                          "/api/run/0/raw?tag=loss_metrics%2Fglobal_avg_loss&format=json"}) {
    ASSERT_TRUE(all.contains(url)) << url;
    EXPECT_EQ(all[url], base::Json::parse(board->handle(request_of(url)).body)) << url;
  }
  EXPECT_TRUE(all["/api/run/0/heat?table=ranks&column=compute_seconds"].contains("base64"));
}

TEST_F(ReportTest, failures_have_a_post_mortem_without_markup_of_the_run) {
  const std::string text = post_mortems(*board->runs()[0]);
  EXPECT_NE(text.find("Attempt 1 failed after step 200"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 3: &lt;/script&gt;"), std::string::npos) << text;
  // The verdict of a launcher, which does not know the step, comes before the end that it led to.
  const size_t verdict = text.find("verdict, after step 200: rank 3 died");
  ASSERT_NE(verdict, std::string::npos) << text;
  EXPECT_LT(verdict, text.find("end, step 200: rank 3")) << text;
  EXPECT_EQ(text.find("<script"), std::string::npos) << text;
  EXPECT_EQ(text.find("<img"), std::string::npos) << text;
}

TEST_F(ReportTest, one_file_holds_everything_and_nothing_of_the_run_is_interpreted) {
  if (embedded_assets().empty()) GTEST_SKIP() << "this build has no pages";
  const std::string html = report_html(*board);
  EXPECT_EQ(html.find("/app/"), html.find("/app/", html.find("id=\"inlined\"")));
  EXPECT_EQ(html.find("<script>alert(1)"), std::string::npos);
  EXPECT_EQ(html.find("<img src=x"), std::string::npos);
  EXPECT_NE(html.find("Content-Security-Policy"), std::string::npos);
  EXPECT_NE(html.find("<aside id=\"post-mortems\" aria-label=\"failures\">"), std::string::npos);
  EXPECT_EQ(html.find("unsafe-inline"), std::string::npos);
  EXPECT_LT(html.size(), size_t{3} << 20);
  // Every script and style has its hash in the policy.
  const std::string policy =
      html.substr(0, html.find("\">\n", html.find("Content-Security-Policy")));
  for (const char* tag : {"<script>", "<script type=\"module\">", "<style>"}) {
    const size_t begin = html.find(tag) + std::string_view(tag).size();
    ASSERT_LT(begin, html.size()) << tag;
    const size_t end =
        html.find(std::string_view(tag) == "<style>" ? "</style>" : "</script>", begin);
    EXPECT_NE(policy.find(policy_hash(html.substr(begin, end - begin))), std::string::npos) << tag;
  }
}

}  // namespace
}  // namespace trireme::board
