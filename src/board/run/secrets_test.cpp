// SPDX-License-Identifier: Apache-2.0
#include "board/run/secrets.h"

#include <gtest/gtest.h>

#include "base/text/json.h"

namespace trireme::board {
namespace {

TEST(SecretsTest, names_of_secrets_are_known) {
  for (const char* name :
       {"token", "HF_TOKEN", "api_key", "api-key", "password", "wandb.api_key", "client_secret",
        "webhook", "Authorization", "--token", "AWS_ACCESS_KEY"}) {
    EXPECT_TRUE(names_secret(name)) << name;
  }
  for (const char* name : {"tokens", "tokenizer", "batch_tokens", "kv_heads", "keep_latest_k",
                           "dataset_path", "monkey", "name"}) {
    EXPECT_FALSE(names_secret(name)) << name;
  }
}

TEST(SecretsTest, values_are_replaced_and_the_rest_is_kept) {
  const base::Json config = base::Json::parse(R"({
    "training": {"tokens": 5, "tokenizer": "a"},
    "alerts": {"webhook": "https://hooks/abc", "command": "post --token abc --name x"},
    "environment": {"PATH": "/bin", "X": "y"},
    "data": ["s3://user:abc@host/path", "HF_TOKEN=abc run", {"password": "abc", "key": ""}],
    "url": "http://h/p?a=1&api_key=abc&b=2"})");
  const std::string text = masked(config).dump();
  EXPECT_EQ(text.find("abc"), std::string::npos) << text;
  EXPECT_EQ(text.find("/bin"), std::string::npos);
  for (const char* kept :
       {"\"tokens\":5", "--name x", "@host/path", " run", "b=2", "\"key\":\"\""}) {
    EXPECT_NE(text.find(kept), std::string::npos) << kept << " in " << text;
  }
}

}  // namespace
}  // namespace trireme::board
