"""Heads seen before are taken as read, to the byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infera_cli.protocol.headers import RequestHead
from infera_cli.protocol.repeat import Repeat, SessionRepeat

BEFORE, AFTER = b"POST / HTTP/1.1\r\nContent-Length: ", b"\r\nHost: x\r\n\r\n"


def known() -> Repeat:
    found = Repeat.of(BEFORE + b"7" + AFTER)
    assert found is not None
    return found


@given(st.integers(0, 1200) | st.sampled_from([9_999, 10_000, 99_999, 100_000]))
def test_the_same_head_with_another_length_gives_its_body(size: int) -> None:
    """Whatever the length, the body is what follows the head."""
    body = b"b" * size
    assert known().body_of(BEFORE + b"%d" % size + AFTER + body) == body


@given(st.integers(0, 30), st.binary(max_size=30))
def test_a_length_that_is_not_the_bodys_is_no_repeat(told: int, body: bytes) -> None:
    """Nothing less and nothing more than the whole body is taken."""
    seen = known().body_of(BEFORE + b"%d" % told + AFTER + body)
    assert seen == (body if told == len(body) else None)


@given(st.binary(max_size=120))
def test_anything_else_is_no_repeat(message: bytes) -> None:
    """Bytes that do not begin as the head did are the parser's, also before any repeat was seen."""
    assert known().body_of(message) is None


@pytest.mark.parametrize("digits", [b"07", b"+7", b" 7", b"7 ", b"0x7", b""])
def test_a_length_written_otherwise_is_no_repeat(digits: bytes) -> None:
    """Only the plain decimal form is taken as read."""
    assert known().body_of(BEFORE + digits + AFTER + b"b" * 7) is None


@pytest.mark.parametrize(
    "head",
    [
        b"POST / HTTP/1.1\r\n\r\n",
        BEFORE + b"7\r\nContent-Length: 8" + AFTER,
        BEFORE + b"7\r\n",
        BEFORE + b"x" + AFTER,
    ],
)
def test_a_head_without_one_length_is_not_remembered(head: bytes) -> None:
    """No length, two, or none that is a number: nothing to recognise it by."""
    assert Repeat.of(head) is None


SESSION_FIRST = b"POST / HTTP/1.1\r\nX-Session-Id: %b\r\nHost: x\r\nContent-Length: %b\r\nA: b\r\n\r\n"
LENGTH_FIRST = b"POST / HTTP/1.1\r\nContent-Length: %b\r\nHost: x\r\nx-session-id:%b\r\n\r\n"


def head(order: bytes, session: bytes, digits: bytes) -> bytes:
    return order % ((session, digits) if order is SESSION_FIRST else (digits, session))


@pytest.mark.parametrize("order", [SESSION_FIRST, LENGTH_FIRST])
@given(session=st.from_regex(rb"[A-Za-z0-9._:-]{1,128}", fullmatch=True), size=st.integers(0, 1200))
def test_another_session_and_length_are_told(order: bytes, session: bytes, size: int) -> None:
    """Session and body are read whichever of the two fields comes first."""
    found = SessionRepeat.of(head(order, b"s1", b"7"))
    assert found is not None
    assert found.told_by(head(order, session, b"%d" % size) + b"b" * size) == (session, b"b" * size)


@pytest.mark.parametrize("order", [SESSION_FIRST, LENGTH_FIRST])
@pytest.mark.parametrize("session", [b"", b" ", b"a b", b"a\n", b"\xe9", b"a" * 129, b"s1\r\nX: y", b" s1", b"s1 "])
def test_an_unsound_session_is_no_repeat(order: bytes, session: bytes) -> None:
    """What is not 1 to 128 sound characters goes to the parser (R182)."""
    found = SessionRepeat.of(head(order, b"s1", b"7"))
    assert found is not None
    assert found.told_by(head(order, session, b"1") + b"b") is None


@pytest.mark.parametrize("order", [SESSION_FIRST, LENGTH_FIRST])
@pytest.mark.parametrize("digits", [b"0", b"2", b"01", b"", b"1,1"])
def test_a_session_with_another_length_is_no_repeat(order: bytes, digits: bytes) -> None:
    """The body has to be whole, and its length plainly written."""
    found = SessionRepeat.of(head(order, b"s1", b"7"))
    assert found is not None
    assert found.told_by(head(order, b"s2", digits) + b"b") is None


def test_two_sessions_in_a_head_are_not_remembered() -> None:
    """Which of them counts is the parser's business."""
    twice = b"X-Session-Id: a\r\nX-Session-Id: b\r\n"
    assert SessionRepeat.of(b"POST / HTTP/1.1\r\n" + twice + b"Content-Length: 1\r\n\r\n") is None


FIELDS = [(b"host", b"x"), (b"a", b"x-session-id: s1"), (b"x-session-id", b"s1"), (b"z", b"x-session-id: s1")]


@pytest.mark.parametrize("fields", [FIELDS, FIELDS[::-1], [*FIELDS, (b"connection", b"x-session-id")]])
def test_a_head_of_another_session_is_as_if_read_anew(fields: list[tuple[bytes, bytes]]) -> None:
    """Everything that is read of it equals what the parser would have made of the same bytes."""
    anew = RequestHead([(name, b"s-2" if name == b"x-session-id" else value) for name, value in fields])
    other = RequestHead(fields).of_session(b"s-2")
    assert other.passed_on == anew.passed_on
    assert (other.session, other.request_id, other.is_form) == (anew.session, anew.request_id, anew.is_form)
    assert (other.headers, other.fields, other.fault("1.1")) == (anew.headers, anew.fields, anew.fault("1.1"))
    assert other.without(frozenset({b"z"})) == anew.without(frozenset({b"z"}))
