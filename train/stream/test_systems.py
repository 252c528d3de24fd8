#!/usr/bin/env python3
"""The invented systems: the same bytes everywhere, the sizes asked for, every kind, and lines such as logs have.

    python3 test_systems.py

Some 15 seconds. Needs nothing but Python 3.9 or later.
"""
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from itertools import islice

import words
from systems import LONGEST_LINE, MAX_BYTES, MIN_BYTES, SOURCES, document, plan, streams

HERE = os.path.dirname(os.path.abspath(__file__))
# of the first 100 kB of seed 1; a change of the generator changes it, and what a trained package says of its texts
DIGEST = "c18d17d10b9edbd5f7580bc11f03f490b5fb9fb3ef27e070645be26a99586ff1"
SAMPLE = [("sample/%d" % i, document("sample/%d" % i, 20_000)) for i in range(300)]


def program(*arguments):
    return subprocess.run([sys.executable, os.path.join(HERE, "systems.py"), *arguments], capture_output=True)


def masked(text):
    """lines with every word that has a digit as one mark"""
    return [re.sub(rb"\S*\d\S*", b"#", line) for line in text.split(b"\n")[:-1]]


def test_the_same_seed_gives_the_same_bytes_in_every_process():
    first, again = program("1", "100000").stdout, program("1", "100000").stdout
    assert first == again
    assert hashlib.sha256(first).hexdigest() == DIGEST, hashlib.sha256(first).hexdigest()


def test_seeds_differ():
    assert len({document(seed, 5000) for seed in range(50)}) == 50


def test_the_program_writes_whole_lines_up_to_the_bytes_asked_for():
    for size in (1000, 50_000, 300_000):
        text = program("2", str(size)).stdout
        assert size - LONGEST_LINE < len(text) <= size, (size, len(text))
        assert text.endswith(b"\n")


def test_the_program_says_how_it_is_called():
    for arguments in ((), ("1",), ("1", "many"), ("1", "-5")):
        run = program(*arguments)
        assert run.returncode == 1 and b"SEED BYTES" in run.stderr and not run.stdout


def test_documents_have_20_to_200_kilobytes():
    sizes = [len(text) for text in islice(streams(3), 60)]
    assert min(sizes) >= MIN_BYTES and max(sizes) < MAX_BYTES + 40 * LONGEST_LINE, (min(sizes), max(sizes))
    assert max(sizes) > 3 * min(sizes)


def test_a_document_of_a_given_size_ends_with_the_event_that_reaches_it():
    for seed, text in SAMPLE:
        assert 20_000 <= len(text) < 20_000 + 12_000, (seed, len(text))


def test_streams_are_the_documents_of_numbered_seeds():
    for i, text in enumerate(islice(streams(5), 5)):
        assert text == document("5/%d" % i)


def test_every_kind_of_source_appears_in_a_few_hundred_documents():
    seen = Counter(name for i in range(600) for name in plan("kinds/%d" % i)[0])
    assert set(seen) == set(SOURCES), set(SOURCES) - set(seen)
    assert 0.3 < seen["bare"] / sum(seen.values()) < 0.5


def test_every_kind_of_source_gives_a_document():
    missing, i = set(SOURCES), 0
    while missing and i < 5000:
        names, _ = plan("each/%d" % i)
        if missing.intersection(names):
            assert len(document("each/%d" % i, 3000)) >= 3000
            missing.difference_update(names)
        i += 1
    assert not missing


def test_lines_are_utf8_and_bounded_and_have_no_control_characters():
    foreign = 0
    for seed, text in SAMPLE:
        assert text.endswith(b"\n")
        assert max(map(len, text.split(b"\n"))) < LONGEST_LINE, seed
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text.decode()), seed
        foreign += len(text) != len(text.decode())
    assert 15 < foreign < 250


def test_json_kinds_are_json_objects_line_by_line():
    found = Counter()
    for i in range(1500):
        seed = "json/%d" % i
        names, _ = plan(seed)
        if names in (["ndjson"], ["ndjson_nested"]):
            found[names[0]] += 1
            for line in document(seed, 10_000).decode().split("\n")[:-1]:
                assert isinstance(json.loads(line), dict), line
    assert min(found["ndjson"], found["ndjson_nested"]) >= 5, found


def test_templates_repeat_and_new_ones_come():
    """the share of lines whose masked form stood in the document before; second halves still have new ones"""
    shares, late = [], 0
    for _, text in SAMPLE:
        lines = masked(text)
        shares.append(1 - len(set(lines)) / len(lines))
        half = len(lines) // 2
        late += bool(set(lines[half:]) - set(lines[:half]))
    mean = sum(shares) / len(shares)
    assert 0.6 < mean < 0.9, mean
    assert sum(s < 0.5 for s in shares) > 15 and sum(s > 0.9 for s in shares) > 30
    assert late > 0.8 * len(SAMPLE), late


def test_equal_lines_are_neither_rare_nor_all():
    shares = [1 - len(set(lines)) / len(lines) for lines in (text.split(b"\n") for _, text in SAMPLE)]
    mean = sum(shares) / len(shares)
    assert 0.15 < mean < 0.6, mean


def test_lines_have_the_lengths_of_logs():
    lengths = sorted(len(line) for _, text in SAMPLE for line in text.split(b"\n"))
    assert 30 < lengths[len(lengths) // 2] < 150, lengths[len(lengths) // 2]
    assert lengths[len(lengths) // 20] < 40 and lengths[-len(lengths) // 20] > 150


def test_an_id_comes_again_in_the_lines_of_a_flow():
    """hexadecimal words of 12 digits or more: many stand in two to twelve lines, next to each other"""
    near = Counter()
    for _, text in SAMPLE:
        last = {}
        for n, line in enumerate(text.split(b"\n")):
            for word in set(re.findall(rb"\b[0-9a-f]{12,}\b", line)):
                near["new" if word not in last else "near" if n - last[word] < 30 else "far"] += 1
                last[word] = n
    assert near["new"] > 2000 and near["near"] > 1000, near


def test_a_list_of_words_of_its_own():
    known = {w for topic in words.NOUNS.values() for w in topic}.union(words.VERBS, words.ADJECTIVES, words.STATES)
    assert len(known) > 600
    assert (words.past("commit"), words.past("retry"), words.past("send"), words.ing("write"), words.third("push")) == (
        "committed", "retried", "sent", "writing", "pushes")


def test_a_second_gives_more_than_a_megabyte():
    """of processor time, on one core; about 6 MB on a core of 2024"""
    start, n = time.process_time(), 0
    for text in islice(streams(8), 30):
        n += len(text)
    assert n / (time.process_time() - start) > 1e6


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print("ok  " + name[5:].replace("_", " "))
