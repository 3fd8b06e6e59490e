"""Whose fault it is that an answer could not be read, and what the log says of it."""

from __future__ import annotations

from typing import NoReturn

import httptools
import pytest

from infera_cli.gateway.upstream.nonsense import words_of

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


class Failing:
    """What a parser tells of an answer; it fails at the end of the head."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def on_headers_complete(self) -> NoReturn:
        """Raise the error."""
        raise self._error


def words(error: Exception, answer: bytes = OK) -> str:
    """What is said when the parser's callback raises `error`."""
    with pytest.raises(httptools.HttpParserError) as stopped:
        httptools.HttpResponseParser(Failing(error)).feed_data(answer)
    return words_of(stopped.value)


def test_a_fault_of_ours_in_an_answer_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody is told that the worker did not speak HTTP."""
    assert words(KeyError("ours")) == "a fault in infera: KeyError: 'ours'"
    (record,) = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[0] is KeyError


def test_what_a_worker_may_not_send_is_said_in_our_words(caplog: pytest.LogCaptureFixture) -> None:
    """A ValueError stands for that, and an answer that no parser takes needs no word of ours."""
    assert words(ValueError("no upgrade was asked for")) == "not HTTP: no upgrade was asked for"
    assert words(KeyError("not reached"), b"hello\r\n\r\n").startswith("not HTTP: ")
    assert caplog.records == []
