"""The block hash chain (infera-wire §4.5)."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infera_cli.blocks import block_hash, chain, reference_hash

tokens = st.lists(st.integers(0, 2**32 - 1), max_size=70)


@pytest.mark.parametrize(
    ("parent", "block", "result"),
    [
        (0, [1, 2, 3, 4], 0x341839ABBE30BE0B),
        (0x341839ABBE30BE0B, [5, 6, 7, 8], 0x37B6DE0623BDB5CA),
        (0, [4294967295], 0xB082EDA3515847F7),
        (0, [], 0xC77B3ABB6F87ACD9),
    ],
)
def test_golden_values_of_one_block(parent: int, block: list[int], result: int) -> None:
    """XXH3-64 over the parent's 8 bytes and 4 bytes a token, little-endian, seed 0."""
    assert block_hash(parent, block) == result


def test_golden_values_of_a_chain() -> None:
    """Tokens 0 to 31 in blocks of 16."""
    assert chain(range(32), 16) == [0x24BECC5361303C06, 0xA075F13EA868EEBB]
    assert chain([1, 2, 3, 4, 5, 6, 7, 8], 4) == [0x341839ABBE30BE0B, 0x37B6DE0623BDB5CA]


def test_golden_value_of_an_image_reference() -> None:
    """XXH3-64 over the text in UTF-8."""
    assert reference_hash("https://example.com/cat.png") == 0x2F97F006C0E2EB2E


def test_a_partial_block_has_no_hash() -> None:
    """Tokens after the last full block do not count; fewer than a block give no hash."""
    assert chain(range(47), 16) == chain(range(32), 16)
    assert chain(range(15), 16) == []


@given(tokens, st.integers(1, 9))
def test_a_chain_is_block_after_block(ids: list[int], size: int) -> None:
    """Each hash has the one before as parent."""
    parent, plain = 0, []
    for start in range(0, len(ids) - len(ids) % size, size):
        parent = block_hash(parent, ids[start : start + size])
        plain.append(parent)
    assert chain(ids, size) == plain


@given(tokens, st.integers(1, 9), st.integers(0, 20))
def test_a_chain_can_be_continued(ids: list[int], size: int, blocks: int) -> None:
    """Hashing goes on from the last hash of a prefix of whole blocks, with the same result."""
    cut = min(blocks, len(ids) // size) * size
    first = chain(ids[:cut], size)
    assert first + chain(ids[cut:], size, first[-1] if first else 0) == chain(ids, size)


def test_a_hash_stands_for_its_whole_prefix() -> None:
    """A different first token changes every hash after it."""
    one, other = chain(range(64), 16), chain([99, *range(1, 64)], 16)
    assert not set(one) & set(other)


@pytest.mark.parametrize("token", [-1, 2**32])
def test_a_token_is_32_bits_unsigned(token: int) -> None:
    """Anything else is refused, not wrapped."""
    with pytest.raises(struct.error):
        chain([token], 1)


def test_a_block_has_at_least_one_token() -> None:
    """A block size of zero is refused."""
    with pytest.raises(ValueError, match="at least one token"):
        chain([1], 0)
