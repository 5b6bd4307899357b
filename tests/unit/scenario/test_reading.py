"""A scenario file is read strictly: whatever is odd about it ends in one message with file and place."""

from __future__ import annotations

from pathlib import Path

import pytest

from ridgeline.errors import ScenarioError
from ridgeline.scenario.reading import MAX_FILE_BYTES, parse_mapping, parse_value, read_mapping


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: [1, 2", "f.yaml line 1, column 9: not valid YAML"),
        ("a: &x 1\nb: *x", "line 2, column 4: aliases"),
        ("a: 1\nb: 2\na: 3", "line 3, column 1: key 'a' is given twice (first in line 1)"),
        ("site: {pue: 1, pue: 2}", "key 'pue' is given twice"),
        ("- 1\n- 2", "holds a list, expected keys"),
        ("just words", "holds a text, expected keys"),
        ("", "is empty"),
        ("# only a remark\n", "is empty"),
        ("a: !!python/object:os.system x", "YAML tags are not taken"),
        ("[" * 100, "nested deeper than 20 levels"),
        ("a: " + "[" * 5000 + "]" * 5000, "nested deeper than 20 levels"),
        ("? [a]\n: 1", "a key must be a plain word"),
        ("a: {<<: {b: 1}}", "a key must be a plain word"),
        ("a:\n\tb: 1", "cannot start any token"),
        ("a: 'open", "unexpected end of stream"),
        ("a: 1\x07", "not valid YAML"),
    ],
)
def test_odd_text_is_refused_with_its_place(text: str, told: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_mapping(text, "f.yaml")
    assert str(caught.value).startswith("f.yaml")
    assert told in str(caught.value)


def test_a_bomb_of_aliases_does_not_expand() -> None:
    bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(9)
    )
    with pytest.raises(ScenarioError, match="aliases"):
        parse_mapping(bomb, "bomb.yaml")


def test_keys_stay_text_and_values_keep_their_types() -> None:
    assert parse_mapping("on: 1\n1: x\nnull: 2", "f") == {"on": 1, "1": "x", "null": 2}
    assert parse_mapping('{"a": 1.5, "b": 1e12, "c": true, "d": null}', "f.json") == {
        "a": 1.5,
        "b": "1e12",  # YAML 1.1 reads it as text; the unit parser takes it
        "c": True,
        "d": None,
    }
    assert parse_value("[{system: x, devices: 4}]", "--set") == [{"system": "x", "devices": 4}]


def test_files_that_are_no_scenario(tmp_path: Path) -> None:
    binary = tmp_path / "a.bin"
    binary.write_bytes(b"\x7fELF\x02\x01\x01\x00\xff\xfe")
    zeros = tmp_path / "zeros.yaml"
    zeros.write_bytes(b"a: 1\x00\x00")
    big = tmp_path / "big.yaml"
    big.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    cases = {
        tmp_path: "is a directory",
        tmp_path / "none.yaml": "no such file",
        tmp_path / "no" / "where.yaml": "no such file",
        binary: "is not UTF-8 text",
        zeros: "is a binary file",
        big: "a scenario may have at most 1,000,000",
    }
    for path, told in cases.items():
        with pytest.raises(ScenarioError, match=told):
            read_mapping(path)
    with pytest.raises(ScenarioError, match=r"no such file|not a file name"):
        read_mapping("a\0b")


def test_a_missing_file_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "train-70b.yaml").write_text("a: 1")
    with pytest.raises(ScenarioError, match=r"nearest: .*train-70b\.yaml"):
        read_mapping(tmp_path / "train-70.yaml")


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "bom.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\r\n")
    assert read_mapping(path) == {"a": 1}
