#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes JSON lines of a given size from a text: documents of 1 to 6 KB that begin at random places.

  python3 bench/make_documents.py kjv.txt 1e9 > documents.jsonl
"""
import json
import random
import sys


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        text = file.read()
    size = int(float(sys.argv[2]))
    random.seed(1)
    written = number = 0
    while written < size:
        begin = random.randrange(len(text) - 6000)
        document = text[begin : begin + random.randrange(1000, 6000)]
        line = json.dumps({"id": number, "text": document, "meta": {"source": "synthetic"}}) + "\n"
        sys.stdout.write(line)
        written += len(line)
        number += 1


if __name__ == "__main__":
    main()
