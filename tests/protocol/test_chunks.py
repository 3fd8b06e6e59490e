"""A read that is one chunk is taken as read, to the byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infera_cli.protocol.chunks import one_chunk


@given(st.integers(1, 9000) | st.sampled_from([15, 16, 255, 256, 4095, 4096]))
def test_one_chunk_gives_its_content(size: int) -> None:
    """Whatever its length, short of what is left to the parser."""
    content = b"c" * size
    assert one_chunk(b"%x\r\n%b\r\n" % (size, content)) == content


@given(st.binary(max_size=60))
def test_content_is_only_ever_that_of_the_one_chunk(data: bytes) -> None:
    """Whatever is taken as read, framing it again gives the same bytes."""
    content = one_chunk(data)
    assert content is None or b"%x\r\n%b\r\n" % (len(content), content) == data


@pytest.mark.parametrize(
    "data",
    [
        b"", b"0\r\n\r\n", b"5\r\nhello", b"5\r\nhello\r\n0\r\n\r\n", b"05\r\nhello\r\n", b"5;a=b\r\nhello\r\n",
        b"4\r\nhello\r\n", b"6\r\nhello\r\n", b"A\r\n0123456789\r\n", b"5\nhello\r\n", b"5\r\nhello\n\n", b"-1\r\n\r\n",
    ],
)  # fmt: skip
def test_anything_else_is_left_to_the_parser(data: bytes) -> None:
    """The last chunk, two chunks, half of one, extensions, other spellings of the size."""
    assert one_chunk(data) is None
