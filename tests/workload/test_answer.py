"""Answers as they arrive: events, first tokens, gaps, usage, endings."""

from __future__ import annotations

import json
from array import array
from typing import Any

import pytest

from infera_cli.workload.answer import Answer
from infera_cli.workload.requests import Dialect
from infera_cli.workload.sse import EventDecoder

WIRE = (
    b": ping\n\nevent: one\ndata: {\"a\":\ndata: 1}\n\ndata:no space\n\n"
    b"id: 7\ndata: \xe2\x82\xac\n\ndata: cut off"
)
EVENTS = [(b"one", b'{"a":\n1}'), (b"", b"no space"), (b"", "€".encode())]


def sse(value: Any, name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {value if isinstance(value, str) else json.dumps(value)}\n\n".encode()


def delta(finish: str | None = None, usage: Any = None, **members: Any) -> bytes:
    chunk: dict[str, Any] = {"choices": [{"index": 0, "delta": members, "finish_reason": finish}]}
    return sse({**chunk, "usage": usage} if usage else chunk)


def played(*arrivals: tuple[float, bytes], dialect: Dialect = "chat", **options: Any) -> Answer:
    answer = Answer(dialect, **options)
    for at, data in arrivals:
        answer.feed(at, data)
    answer.close(arrivals[-1][0])
    return answer


DONE = sse("[DONE]")


# ── events ───────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_events_are_the_same_at_every_split(end: bytes, start: bytes) -> None:
    """Wherever a read ends, also within CRLF, a character or a byte order mark, the same events come out; what the end
    cuts off is none."""
    wire = start + WIRE.replace(b"\n", end)
    for cut in range(len(wire) + 1):
        decoder = EventDecoder()
        assert decoder.feed(wire[:cut]) + decoder.feed(b"") + decoder.feed(wire[cut:]) == EVENTS, cut


def test_events_come_out_byte_by_byte() -> None:
    """A read of one byte at a time gives the same events."""
    decoder = EventDecoder()
    found = [event for byte in WIRE for event in decoder.feed(bytes([byte]))]
    assert found == EVENTS


def test_one_byte_order_mark_is_dropped_and_only_at_the_start() -> None:
    """The first event is not lost behind it; a second mark, or one further on, is part of its line."""
    assert EventDecoder().feed(b"\xef\xbb\xbfdata: a\n\n") == [(b"", b"a")]
    assert EventDecoder().feed(b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n") == []
    decoder = EventDecoder()
    assert decoder.feed(b"data: a\n\n") + decoder.feed(b"\xef\xbb\xbfdata: b\n\n") == [(b"", b"a")]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_an_event_comes_out_with_the_read_that_ends_it(end: bytes) -> None:
    """Whatever the line ends are, no event waits for the next read."""
    decoder = EventDecoder()
    for word in (b"a", b"b"):
        assert decoder.feed(b"data: " + word + end + end) == [(b"", word)]


# ── what a token is ──────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("role", [{"role": "assistant", "content": ""}, {"role": "assistant", "content": None},
                                  {"role": "assistant"}])
def test_r152_role_chunk_is_not_the_first_token(role: dict[str, Any]) -> None:
    """A chunk with the role only, its content empty, null or missing, is no token."""
    tokens = [(0.3 + 0.02 * n, delta(content="x")) for n in range(10)]
    answer = played((0.01, delta(**role)), *tokens, (0.5, delta(finish="stop") + DONE))
    assert (answer.first, answer.events, list(answer.gaps)) == (0.3, 10, [20000] * 9)


def test_finish_usage_and_comment_chunks_are_no_tokens() -> None:
    """Neither a finish-only chunk nor a usage chunk nor a comment extends the answer."""
    answer = played(
        (0.1, delta(content="x")), (0.4, sse({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1}})),
        (0.45, b": keep-alive\n\n"), (0.5, delta(finish="stop") + DONE),
    )
    assert (answer.last, answer.events, answer.input, answer.output) == (0.1, 1, 3, 1)


@pytest.mark.parametrize("member", ["reasoning_content", "reasoning"])
def test_reasoning_is_a_token_but_not_visible(member: str) -> None:
    """Reasoning counts for the first token; the first visible token comes later."""
    answer = played((0.1, delta(**{member: "hm"})), (0.3, delta(content="x", finish="stop")))
    assert (answer.first, answer.first_content, answer.events) == (0.1, 0.3, 2)


def test_tool_call_fragments_are_tokens() -> None:
    """A tool-call delta counts as a token."""
    answer = played((0.2, delta(tool_calls=[{"index": 0, "function": {"arguments": "{"}}], finish="tool_calls")))
    assert (answer.first, answer.verdict()) == (0.2, "ok")


@pytest.mark.parametrize(("member", "values", "text"), [
    ("refusal", ["I", " cannot"], "I cannot"), ("function_call", [{"name": "f"}, {"arguments": "{}"}], ""),
])
def test_a_refusal_and_a_function_call_are_answers(member: str, values: list[Any], text: str) -> None:
    """Text that is a refusal, and a tool call by its former name, are visible tokens, in a stream and whole."""
    pieces = [(0.1 + 0.1 * n, delta(**{member: value})) for n, value in enumerate(values)]
    answer = played((0.0, delta(role="assistant", content=None, **{member: None})), *pieces,
                    (0.5, delta(finish="stop") + DONE), keep_text=True)
    assert (answer.first_content, answer.events, answer.text, answer.verdict()) == (0.1, 2, text, "ok")
    whole = {"choices": [{"message": {"content": None, member: values[-1]}}], "usage": {"completion_tokens": 0}}
    assert played((0.1, json.dumps(whole).encode()), stream=False).odd_usage().startswith("no output tokens")


def test_completions_text_is_a_token() -> None:
    """A completions chunk with text counts, one with an empty string does not."""
    answer = played(
        (0.1, sse({"choices": [{"text": ""}]})), (0.2, sse({"choices": [{"text": "a", "finish_reason": "stop"}]})),
        dialect="completions", keep_text=True,
    )
    assert (answer.first, answer.events, answer.text) == (0.2, 1, "a")


def test_usage_on_the_last_content_chunk_is_read() -> None:
    """Some servers put usage on the final chunk with choices; it counts like any other."""
    answer = played((0.1, delta(content="x", finish="stop", usage={"prompt_tokens": 5, "completion_tokens": 4,
                                                                   "prompt_tokens_details": {"cached_tokens": 2}})))
    assert (answer.input, answer.output, answer.cached) == (5, 4, 2)


def test_r155_running_usage_tells_the_tokens_of_each_chunk() -> None:
    """With usage on every chunk, four tokens a chunk are known to be four."""
    steps = [(0.04 * n, delta(content="x", usage={"prompt_tokens": 1, "completion_tokens": 4 * n})) for n in (1, 2, 3)]
    answer = played(*steps, (0.2, delta(finish="stop")))
    assert list(memoryview(answer.known_weights()).cast("H")) == [4, 4, 4]


def test_without_running_usage_the_weights_are_unknown() -> None:
    """A final usage alone says nothing about single chunks."""
    assert played((0.1, delta(content="x")), (0.2, delta(finish="stop"))).known_weights() == b""


# ── usage that cannot be ─────────────────────────────────────────────────────────────────────────────
def used(**usage: Any) -> bytes:
    return sse({"choices": [], "usage": usage})


@pytest.mark.parametrize(("usage", "told", "why"), [
    ({"completion_tokens": 3}, (None, 3, None), ""),
    ({"completion_tokens": -5, "prompt_tokens": 10}, (10, None, None), "below 0 or above a billion tokens"),
    ({"completion_tokens": 10**19}, (None, None, None), "below 0 or above a billion tokens"),
    ({"completion_tokens": 3, "prompt_tokens": -1}, (None, 3, None), "below 0 or above a billion tokens"),
    ({"completion_tokens": 0}, (None, None, None), "no output tokens for an answer with text"),
    ({"completion_tokens": 1}, (None, 1, None), ""),        # somebody between cuts finer than the engine
    ({"completion_tokens": 3, "prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 500}}, (10, 3, None),
     "more cached than input tokens"),
    ({"completion_tokens": 3, "prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 10}}, (10, 3, 10), ""),
])
def test_usage_that_cannot_be_was_not_said(usage: Any, told: tuple[int | None, ...], why: str) -> None:
    """Three chunks with text and one without: what contradicts them, or itself, or is no count, is passed over."""
    answer = played((0.1, delta(role="assistant", content="")), (0.2, delta(content="a") * 3),
                    (0.3, delta(finish="stop") + used(**usage) + DONE))
    assert ((answer.input, answer.output, answer.cached), answer.odd_usage()) == (told, why)
    assert answer.verdict() == "ok"


def test_usage_that_comes_early_is_only_a_beginning() -> None:
    """A 0 before the first token does not stand against what is said later; alone it says nothing."""
    early = used(prompt_tokens=7, completion_tokens=0)
    later = played((0.05, early), (0.1, delta(content="a")), (0.2, used(completion_tokens=2) + DONE))
    assert (later.input, later.output, later.odd_usage()) == (7, 2, "")
    alone = played((0.05, early), (0.1, delta(content="a")), (0.2, DONE))
    assert (alone.input, alone.output, alone.odd_usage()) == (7, None, "no output tokens for an answer with text")


def test_running_usage_that_stands_still_tells_no_chunk() -> None:
    """Three chunks at 0 tokens each: not known, instead of known to be nothing."""
    nothing = {"prompt_tokens": 1, "completion_tokens": 0}
    assert played((0.1, delta(content="x", usage=nothing) * 3), (0.2, DONE)).known_weights() == b""


# ── R163: hard to read, and right ────────────────────────────────────────────────────────────────────
def test_r163_long_lines_split_reads_and_shared_packets() -> None:
    """A 200 kB line in pieces, CRLF, comments, an empty choices list and two events in one read all count right."""
    big = delta(content="x" * 200_000).replace(b"\n", b"\r\n")
    pieces = [(0.1, big[at:at + 7001]) for at in range(0, len(big), 7001)]
    answer = played(
        *pieces, (0.2, b": hi\r\n\r\n" + sse({"choices": []})), (0.3, delta(content="a") + delta(content="b")),
        (0.4, delta(finish="stop") + DONE),
    )
    assert (answer.events, answer.verdict(), list(answer.gaps)) == (3, "ok", [200000, 0])


# ── endings ──────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(("arrivals", "verdict"), [
    ([delta(content="x"), DONE], "ok"),
    ([delta(content="x", finish="length")], "ok"),
    ([delta(content="x")], "truncated"),
    ([b""], "truncated"),
    ([delta(finish="stop"), DONE], "empty"),
    ([sse({"error": {"message": "out of memory"}})], "error_event"),
    ([delta(content="x"), sse({"message": "gone"}, "error"), DONE], "error_event"),
    ([delta(content="x", finish="abort")], "engine_abort"),
    ([delta(content="x"), sse("{oops"), DONE], "malformed"),
    ([sse({"choices": 5}), DONE], "malformed"),
    ([delta(content="x"), delta(content="y")[:30]], "truncated"),
    ([delta(content="x"), DONE, delta(content="y")[:30]], "ok"),
    ([delta(content="x"), sse({"object": "error", "message": "oom", "code": 500}), DONE], "error_event"),
    ([delta(content="x"), sse({"type": "error", "message": "oom"}), DONE], "error_event"),
    ([delta(content="x"), sse({"message": "oom", "code": 500}), DONE], "error_event"),
    ([delta(content="x"), sse("", "error"), DONE], "error_event"),
    ([delta(content="x"), sse({"object": "chat.completion.chunk", "choices": []}), DONE], "ok"),
])
def test_r161_endings(arrivals: list[bytes], verdict: str) -> None:
    """An error in the stream, an abort, a cut and an empty answer are not successes."""
    assert played(*((0.1, data) for data in arrivals)).verdict() == verdict


def test_error_words_are_kept() -> None:
    """What the server said is there for the report."""
    assert played((0.1, sse({"error": {"message": "out of memory"}}))).error == "out of memory"
    assert played((0.1, sse({"object": "error", "message": "oom", "code": 500}))).error == "oom"


@pytest.mark.parametrize(("body", "stream", "outcome", "reason"), [
    (b"<html>\n  <b>log\x1bin</b>" + b"x" * 99, False, "malformed", "no JSON: <html> <b>log?in</b>" + "x" * 40),
    (b"", False, "malformed", "no JSON: nothing"),
    (b"[]", False, "malformed", "Expected `object`, got `array`"),
    (b'{"usage": {"prompt_tokens": "10"}}', False, "malformed",
     "Expected `int | null`, got `str` - at `$.usage.prompt_tokens`"),
    (b"data: oops\n\ndata: {\n\n", True, "malformed", "no JSON: oops"),
    (b"{}", False, "truncated", "no answer in it: {}"),
    (b": ping\n\n", True, "truncated", "the stream ended without a finish reason or [DONE]"),
    (DONE, True, "empty", "no text, no reasoning and no tool call in it"),
    (delta(content="x") + DONE, True, "ok", ""),
])
def test_what_is_wrong_with_a_body_is_said(body: bytes, stream: bool, outcome: str, reason: str) -> None:
    """In one short line: what was expected and where, or how the body begins."""
    answer = played((0.1, body), stream=stream)
    assert (answer.verdict(), answer.reason(outcome)) == (outcome, reason)
    assert answer.reason("reset") == ""


# ── Anthropic ────────────────────────────────────────────────────────────────────────────────────────
def messages(*more: tuple[float, bytes]) -> Answer:
    start = {"type": "message_start", "message": {"usage": {"input_tokens": 25, "output_tokens": 1}}}
    return played(
        (0.005, sse(start, "message_start")), (0.05, sse({"type": "ping"}, "ping")),
        (0.1, sse({"type": "content_block_start", "content_block": {"type": "text", "text": ""}}, "x")), *more,
        (0.6, sse({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}}, "x")),
        (0.61, sse({"type": "message_stop"}, "message_stop")), dialect="messages",
    )


@pytest.mark.parametrize(("delta_of", "visible"), [
    ({"type": "text_delta", "text": "hi"}, 0.3), ({"type": "input_json_delta", "partial_json": "{"}, 0.3),
    ({"type": "thinking_delta", "thinking": "hm"}, None),
])
def test_r172_messages_begin_with_their_first_delta(delta_of: dict[str, str], visible: float | None) -> None:
    """message_start, ping and content_block_start are no tokens; text, tool input and thinking are."""
    answer = messages((0.3, sse({"type": "content_block_delta", "index": 0, "delta": delta_of}, "x")))
    assert (answer.first, answer.first_content, answer.input, answer.output) == (0.3, visible, 25, 7)
    assert answer.verdict() == "ok"


def test_messages_errors_and_cuts_are_failures() -> None:
    """An error event, and a stream without message_stop or stop reason, are failures."""
    assert messages((0.3, sse({"type": "error", "error": {"message": "overloaded"}}, "error"))).verdict() == (
        "error_event")
    cut = played((0.1, sse({"type": "content_block_delta", "delta": {"text": "a"}}, "x")), dialect="messages")
    assert cut.verdict() == "truncated"


def test_messages_cache_reads_are_part_of_the_input() -> None:
    """Anthropic counts cached input apart; here it is input, and a hit."""
    usage = {"input_tokens": 5, "cache_read_input_tokens": 20, "output_tokens": 1}
    answer = played((0.1, sse({"type": "message_start", "message": {"usage": usage}})), dialect="messages")
    assert (answer.input, answer.cached) == (25, 20)


# ── without streaming ────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(("dialect", "body", "text"), [
    ("chat", {"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}],
              "usage": {"prompt_tokens": 3, "completion_tokens": 2}}, "hi"),
    ("completions", {"choices": [{"text": "yo", "finish_reason": "stop"}],
                     "usage": {"prompt_tokens": 3, "completion_tokens": 2}}, "yo"),
    ("messages", {"content": [{"type": "text", "text": "ok"}], "stop_reason": "end_turn",
                  "usage": {"input_tokens": 3, "output_tokens": 2}}, "ok"),
])
def test_a_whole_answer_has_usage_and_no_first_token(dialect: Dialect, body: dict[str, Any], text: str) -> None:
    """Without streaming there is no TTFT, but tokens, text and an ending."""
    raw = json.dumps(body).encode()
    answer = played((0.1, raw[:9]), (0.5, raw[9:]), dialect=dialect, stream=False, keep_text=True)
    assert (answer.first, answer.last, answer.input, answer.output) == (None, 0.5, 3, 2)
    assert (answer.text, answer.verdict()) == (text, "ok")


@pytest.mark.parametrize("dialect", ["chat", "messages"])
def test_a_whole_answer_that_is_no_json_is_malformed(dialect: Dialect) -> None:
    """A body that cannot be read is a failure, an error body as well."""
    assert played((0.1, b"<html>"), dialect=dialect, stream=False).verdict() == "malformed"
    assert played((0.1, b'{"error": "no"}'), dialect=dialect, stream=False).verdict() == "error_event"


def test_a_whole_answer_may_be_an_error_of_the_other_form() -> None:
    """`{"object": "error"}` with status 200 is an error, not a cut."""
    answer = played((0.1, b'{"object": "error", "message": "oom", "code": 500}'), stream=False)
    assert (answer.verdict(), answer.error) == ("error_event", "oom")


@pytest.mark.parametrize(("texts", "total", "weights"), [
    (("one two", " three", " four five six"), 6, [2, 1, 3]),
    (("one two", " three", " four five six"), 7, []),       # somebody counts otherwise
    (("one", " two"), 2, []),                               # a token each, which is known without
])
def test_a_tokenizer_tells_how_many_tokens_a_chunk_holds(
    texts: tuple[str, ...], total: int, weights: list[int]
) -> None:
    """Where the server does not, and the chunks come to what the answer has in all (bench-and-cli §0.3)."""
    answer = played(*((0.1 * at, delta(content=text)) for at, text in enumerate(texts)), (1.0, DONE), keep_text=True)
    found = array("H")
    found.frombytes(answer.counted_weights(lambda text: len(text.split()), total))
    assert found.tolist() == weights


def test_reasoning_is_not_counted_by_the_tokenizer() -> None:
    """Its text is not kept, so nothing is known of the tokens of such a chunk."""
    answer = played((0.1, delta(reasoning_content="let me see")), (0.2, delta(content="one two")), keep_text=True)
    assert answer.counted_weights(lambda text: len(text.split()), 5) == b""
