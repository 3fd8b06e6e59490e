"""A read that is one chunk is taken as read, to the byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infera_cli.protocol.chunks import content_of, size_of_one_chunk


@given(st.integers(96, 9000) | st.sampled_from([255, 256, 4095, 4096]))
def test_one_chunk_gives_its_content(size: int) -> None:
    """Whatever its length, between what is left to the parser."""
    content = b"c" * size
    framed = b"%x\r\n%b\r\n" % (size, content)
    assert (size_of_one_chunk(framed), content_of(framed)) == (size, content)


@given(st.binary(max_size=60) | st.binary(min_size=90, max_size=120).map(lambda c: b"%x\r\n%b\r\n" % (len(c), c)))
def test_content_is_only_ever_that_of_the_one_chunk(data: bytes) -> None:
    """Whatever is taken as read, framing it again gives the same bytes."""
    size = size_of_one_chunk(data)
    assert not size or b"%x\r\n%b\r\n" % (size, content_of(data)) == data


C = b"c" * 128


@pytest.mark.parametrize(
    "data",
    [
        b"", C, b"80\r\n" + C, b"80\r\n" + C + b"\r\n0\r\n\r\n", b"80\r\n" + C + b"\r\n80\r\n" + C + b"\r\n",
        b"080\r\n" + C + b"\r\n", b"80;a=b\r\n" + C + b"\r\n", b"7f\r\n" + C + b"\r\n", b"81\r\n" + C + b"\r\n",
        b"7A\r\n" + C[:122] + b"\r\n", b"80\n" + C + b"\r\n", b"80\r\n" + C + b"\n\n", b"-80\r\n" + C + b"\r\n",
        b"0\r\n\r\n", b"5\r\nhello\r\n",
    ],
)  # fmt: skip
def test_anything_else_is_left_to_the_parser(data: bytes) -> None:
    """The last chunk, two chunks, half of one, extensions, other spellings of the size, crumbs."""
    assert size_of_one_chunk(data) == 0
