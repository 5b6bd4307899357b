"""Trace files: every publisher's form, and a clear answer with its line for whatever is wrong."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from ridgeline.errors import BadRequests
from ridgeline.intake import load_requests

AZURE_2023 = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2023-11-16 18:15:46.6805900,374,44\n"
    "2023-11-16 18:15:50.9951690,396,109\n"
    "2023-11-17 00:00:00.0000000,91,16"
)
AZURE_2024 = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2023-11-16 18:15:46.680590+00:00,374,44\n"
    "2023-11-16 19:15:50.995169+01:00,396,109\n"
    "2023-11-17 00:00:00+00:00,91,16\n"
)
HEAD = "arrived_at,num_prefill_tokens,num_decode_tokens\n"
PROCESSED = HEAD + "0.0,374,44\n4.3145789999999995,396,109\n20653.31941,91,16\n"


def written(folder: Path, text: str | bytes, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize(
    "text",
    [
        AZURE_2023,
        AZURE_2024,
        PROCESSED,
        AZURE_2023.replace("\n", "\r\n"),
        "\ufeff" + AZURE_2023,
        "GeneratedTokens, ContextTokens, TIMESTAMP\n"
        + "\n".join(",".join(reversed(line.split(","))) for line in AZURE_2023.split("\n")[1:]),
        "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size\n"
        "0,2,0,7,1,374,44\n1,2,0,11.314579,1,396,109\n2,2,0,20660.31941,1,91,16\n",
    ],
)
def test_all_spellings_of_one_recording_give_the_same_bytes(text: str, tmp_path: Path) -> None:
    found = load_requests(written(tmp_path, text)).requests
    assert found.arrived_s.tolist() == [0.0, 4.314579, 20653.31941]
    assert found.input_tokens.tolist() == [374, 396, 91]
    assert found.output_tokens.tolist() == [44, 109, 16]


def test_burstgpt_leaves_failures_out_in_either_version(tmp_path: Path) -> None:
    old = (
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log\n"
    )
    old += "45,ChatGPT,1087,0,1087,Conversation log\n118,GPT-4,417,276,693,Conversation log\n"
    new = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    new += "5,1,0.5,ChatGPT,472,18,490,API log\n45,1,,ChatGPT,1087,0,1087,API log\n118,2,3,GPT-4,417,276,693,API log\n"
    for text in (old, new):
        trace = load_requests(written(tmp_path, text))
        assert trace.requests.arrived_s.tolist() == [0.0, 113.0]
        assert trace.requests.output_tokens.tolist() == [18, 276]
        assert "1 requests without a response" in trace.notes[0].text


def test_mooncake_hashes_are_shared_beginnings(tmp_path: Path) -> None:
    text = '{"timestamp": 0, "input_length": 1000, "output_length": 6, "hash_ids": [4, 7]}\n'
    text += '{"timestamp": 3052, "input_length": 1030, "output_length": 9, "hash_ids": [4, 7, 9]}\n'
    found = load_requests(written(tmp_path, text, "t.jsonl")).requests
    assert found.arrived_s.tolist() == [0.0, 3.052]
    # 1000 = 512 + 488; 1030 = 2 x 512 + 6
    assert found.prefix_of(0) == [(4, 512), (7, 488)]
    assert found.prefix_of(1) == [(4, 512), (7, 512), (9, 6)]


def test_lengths_with_nanoseconds_and_lengths_alone(tmp_path: Path) -> None:
    timed = load_requests(written(tmp_path, "input_toks,output_toks,arrival_time_ns\n9,5,46926808\n8,7,347938951\n"))
    assert timed.requests.arrived_s.tolist() == [0.0, 0.301012143]
    bare = load_requests(written(tmp_path, "num_prefill_tokens,num_decode_tokens,pd_ratio\n9,5,1.8\n8,7,1.1\n"))
    assert not bare.timed
    assert bare.requests.input_tokens.tolist() == [9, 8]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty; expected a header"),
        ("\n \n", "is empty"),
        (HEAD, "has a header but no requests"),
        ("arrived_at,num_prefill_tokens\n0,1\n", "line 1: no column num_decode_tokens"),
        ("TIMESTAMP,ContextToken,GeneratedTokens\n0,1,1\n", "no column ContextTokens .*ContextToken -> ContextTokens"),
        ("a,b\n1,2\n", "line 1: no trace that is known; got the columns 'a, b'; known: TIMESTAMP,"),
        (HEAD + "0,10,10\n5,10,10\n4,10,10\n", "line 4: arrives 1 s before the request of line 3; sort"),
        (HEAD + "0,0,10\n", "line 2: a request without input tokens"),
        (HEAD + "0,10,99999999999\n", "line 2: num_decode_tokens is '99999999999', allowed 0 to 10,000,000"),
        (HEAD + "0,-3,10\n", "line 2: num_prefill_tokens is '-3', allowed 0"),
        (HEAD + "0,10,10\nnan,10,10\n", "line 3: arrived_at is 'nan': expected a number"),
        (HEAD + "0,10,10\n1e300,10,10\n", "line 3: arrived_at is '1e300'"),
        (HEAD + "0,nan,10\n", "line 2: num_prefill_tokens is 'nan', expected a whole number"),
        (HEAD + "0,10.5,10\n", "line 2: num_prefill_tokens is '10.5', expected a whole"),
        (HEAD + "0,10\n", "line 2: 2 values, the header has 3 columns"),
        (HEAD + "\n0,10,10\n\n1,10,\n", "line 5: num_decode_tokens is '', expected"),
        (AZURE_2023.replace("18:15:50", "28:15:50"), "line 3: TIMESTAMP is .* no such time"),
        (AZURE_2023.replace("2023-11-16 18:15:50", "yesterday"), "line 3: TIMESTAMP is 'yesterday"),
        ("arrived_at,arrived_at,num_prefill_tokens,num_decode_tokens\n0,0,1,1\n", "'arrived_at' is there twice"),
        (b"\x1f\x8b\x08\x00", "line 1: byte 0x8b is not UTF-8 text"),
        ("TIMESTAMP".encode("utf-16"), "line 1: byte 0xff is not UTF-8"),
        (b"T\0", "line 1: holds zero bytes"),
        ('{"timestamp": 0, "input_length": 5}\n', "line 1: a Mooncake trace without output_length"),
        ('{"timestamp": 0, "input_length": 5, "output_length": 1}\n{"a', "line 2: not a line of JSON"),
        ('{"timestamp": NaN, "input_length": 5, "output_length": 1}\n', "line 1: expected a number of a plausible"),
        ('{"timestamp": 0, "input_length": true, "output_length": 1}\n', "line 1: input_length is true"),
        ('{"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [1, 2]}\n', "at most 1 blocks of 512"),
        ('{"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": ["x"]}\n', "expected a list of whole"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text: str | bytes, told: str, tmp_path: Path) -> None:
    with pytest.raises(BadRequests, match=told) as caught:
        load_requests(written(tmp_path, text))
    assert str(caught.value).startswith(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_times_that_repeat_are_counted(tmp_path: Path) -> None:
    trace = load_requests(written(tmp_path, HEAD + "0,1,1\n2,1,1\n2,1,1\n2,1,1\n3,1,1\n"))
    assert trace.requests.count == 5
    assert "2 of 5 requests arrive with the one ahead of them (first in line 4)" in trace.notes[0].text


def test_missing_files_name_the_nearest_and_folders_are_refused(tmp_path: Path) -> None:
    written(tmp_path, HEAD + "0,1,1\n", "conv.csv")
    with pytest.raises(BadRequests, match=r"no such file; nearest: conv\.csv"):
        load_requests(tmp_path / "conf.csv")
    with pytest.raises(BadRequests, match="is a directory"):
        load_requests(tmp_path)


def test_endless_lines_are_cut_off(tmp_path: Path) -> None:
    with pytest.raises(BadRequests, match="line 1: longer than"):
        load_requests(written(tmp_path, b"1" * 5_000_000))


def test_long_files_are_streamed(tmp_path: Path) -> None:
    """50,000 lines are 1.2 MB as arrays; a list of rows would be over 10 MB."""
    path = written(tmp_path, HEAD + "".join(f"{i / 100},{100 + i % 7},{i % 5}\n" for i in range(50_000)))
    tracemalloc.start()
    try:
        found = load_requests(path).requests
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.count == 50_000
    assert found.span_s == pytest.approx(499.99)
    assert int(np.sum(found.output_tokens)) == 2 * 50_000
    assert peak < 5e6


@pytest.mark.slow
def test_a_million_lines_take_little_memory(tmp_path: Path) -> None:
    """24 bytes a request in arrays, twice that while a record is made of them, and the interpreter: below 150 MB."""
    path = tmp_path / "long.csv"
    with open(path, "w") as file:
        file.write(HEAD)
        file.writelines(f"{i / 100},{100 + i % 7},{i % 5}\n" for i in range(1_000_000))
    # VmHWM and not ru_maxrss: the latter keeps what the parent had before the new program was loaded.
    code = (
        "import sys; from ridgeline.intake import load_requests; count = load_requests(sys.argv[1]).requests.count;"
        "lines = open('/proc/self/status').read().splitlines();"
        "print(count, next(line for line in lines if line.startswith('VmHWM')).split()[1])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    count, peak_kib = map(int, done.stdout.split())
    assert count == 1_000_000
    assert peak_kib * 1024 < 150e6
