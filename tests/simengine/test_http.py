"""What the simulated engine says on the wire (engines §1.4–§1.10, §8)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import openai
import pytest
from anthropic import Anthropic

from tests.simengine.conftest import Start, get, post

HELLO = [{"role": "user", "content": "Good day! What would you read on a long train journey by the sea?"}]


def events(body: str) -> list[Any]:
    """The data of each server-sent event; [DONE] as text."""
    lines = [line[6:] for line in body.splitlines() if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def chat(url: str, **more: Any) -> httpx.Response:
    """One chat request."""
    return post(f"{url}/v1/chat/completions", json={"messages": HELLO, "max_tokens": 5} | more)


def stats(url: str) -> dict[str, int]:
    """The engine's own counts."""
    return dict(get(f"{url}/sim/stats").json())


# ── real clients ─────────────────────────────────────────────────────────────────────────────────────
def test_openai_client_streams_and_does_not(url: str) -> None:
    """The client from PyPI gets the same text either way, with usage at the end of the stream."""
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        asked: dict[str, Any] = {"model": "sim", "messages": HELLO, "max_tokens": 12}
        whole = client.chat.completions.create(**asked)
        chunks = list(client.chat.completions.create(
            **asked, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert len(text) == 48
    assert whole.usage.completion_tokens == chunks[-1].usage.completion_tokens == 12
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == "length"


def test_usage_is_told_with_every_chunk_on_request(url: str) -> None:
    """`continuous_usage_stats`: the prompt stands in the first chunk, the answer grows, the end is the whole."""
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        asked: dict[str, Any] = {
            "model": "sim", "messages": HELLO, "max_tokens": 4, "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        }  # fmt: skip
        chunks = list(client.chat.completions.create(**asked))
    told = [chunk.usage for chunk in chunks if chunk.usage is not None]
    assert len(told) == len(chunks)
    assert [usage.completion_tokens for usage in told] == [0, 1, 2, 3, 4, 4]
    assert len({usage.prompt_tokens for usage in told}) == 1


def test_openai_client_completes_text(url: str) -> None:
    """Completions take several prompts and give a choice for each."""
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        done = client.completions.create(model="alias", prompt=["one", "two"], max_tokens=3)
        ids = client.completions.create(model="sim", prompt=[1, 2, 3], max_tokens=3)
    assert [choice.index for choice in done.choices] == [0, 1]
    assert done.choices[0].text != done.choices[1].text
    assert done.model == "sim"                    # always the first name (engines §1.2)
    assert ids.usage is not None
    assert ids.usage.prompt_tokens == 3


def test_anthropic_client_streams_and_does_not(url: str) -> None:
    """Messages are spoken natively: the client's accumulated stream equals the whole answer."""
    asked: dict[str, Any] = {"model": "sim", "max_tokens": 8, "system": "Be brief.", "messages": HELLO}
    with Anthropic(base_url=url, api_key="none") as client:
        whole = client.messages.create(**asked)
        with client.messages.stream(**asked) as stream:
            streamed = stream.get_final_message()
        counted = client.messages.count_tokens(model="sim", system="Be brief.", messages=HELLO)  # type: ignore[arg-type]
    assert streamed.content[0].text == whole.content[0].text  # type: ignore[union-attr]
    assert (streamed.stop_reason, streamed.usage.output_tokens) == ("max_tokens", 8)
    assert whole.usage.input_tokens == counted.input_tokens
    assert streamed.usage.cache_read_input_tokens


# ── shapes ───────────────────────────────────────────────────────────────────────────────────────────
def test_chat_stream_has_vllms_shape(url: str) -> None:
    """Role first, then text, then text with the reason, then usage without choices, then [DONE] (engines
    §1.6)."""
    answer = chat(url, stream=True, stream_options={"include_usage": True}, max_tokens=3)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    role, one, two, last, usage, done = events(answer.text)
    assert role["choices"] == [{"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None,
                                "finish_reason": None}]
    assert (one["object"], one["choices"][0]["finish_reason"]) == ("chat.completion.chunk", None)
    assert last["choices"][0]["finish_reason"] == "length"
    assert all(len(each["choices"][0]["delta"]["content"]) == 4 for each in (one, two, last))
    assert (usage["choices"], usage["usage"]["completion_tokens"], done) == ([], 3, "[DONE]")
    assert [each for each in (role, one, two, last) if "system_fingerprint" in each] == []
    assert usage["system_fingerprint"]


def test_completion_chunk_has_vllms_members(url: str) -> None:
    """A completion chunk has exactly the members of engines §1.6."""
    answer = post(f"{url}/v1/completions", json={"prompt": "Once", "max_tokens": 2, "stream": True})
    chunk = events(answer.text)[0]
    assert chunk["id"].startswith("cmpl-")
    assert chunk["object"] == "text_completion"
    assert list(chunk["choices"][0]) == ["index", "text", "logprobs", "finish_reason", "stop_reason",
                                         "prompt_token_ids", "token_ids"]


def test_request_id_becomes_the_answers_id(url: str) -> None:
    """`X-Request-Id` names the answer (engines §1.9)."""
    answer = post(f"{url}/v1/chat/completions", json={"messages": HELLO, "max_tokens": 1},
                        headers={"X-Request-Id": "abc"})
    assert answer.json()["id"] == "chatcmpl-abc"


def test_an_answer_ends_by_itself_unless_told_otherwise(url: str) -> None:
    """Without a limit it stops, its end token counted; with ignore_eos it fills the limit; a stop string
    cuts it."""
    free = chat(url, max_tokens=None).json()
    text = free["choices"][0]["message"]["content"]
    assert free["choices"][0]["finish_reason"] == "stop"
    assert free["usage"]["completion_tokens"] == len(text) // 4 + 1
    full = chat(url, max_tokens=200, ignore_eos=True).json()
    assert (full["usage"]["completion_tokens"], full["choices"][0]["finish_reason"]) == (200, "length")
    cut = chat(url, max_tokens=200, stop=text[9:14]).json()["choices"][0]
    assert cut["message"]["content"] == text[: text.find(text[9:14])]
    assert (cut["finish_reason"], cut["stop_reason"]) == ("stop", text[9:14])


def test_models_are_cards_as_vllm_lists_them(url: str) -> None:
    """One card per alias, with root and length (engines §1.5)."""
    cards = get(f"{url}/v1/models").json()["data"]
    assert [(card["id"], card["root"], card["owned_by"], card["max_model_len"]) for card in cards] == [
        ("sim", "/models/sim", "vllm", 32768), ("alias", "/models/sim", "vllm", 32768)]


def test_tokenize_agrees_with_what_generation_counts(url: str) -> None:
    """/tokenize, usage and count_tokens agree, and /detokenize turns ids back (engines §1.5)."""
    ids = post(f"{url}/tokenize", json={"messages": HELLO}).json()
    assert ids["count"] == len(ids["tokens"]) == chat(url).json()["usage"]["prompt_tokens"]
    text = post(f"{url}/detokenize", json={"tokens": ids["tokens"]}).json()["prompt"]
    assert text == f"<|im_start|>user\n{HELLO[0]['content']}<|im_end|>\n<|im_start|>assistant\n"
    plain = post(f"{url}/tokenize", json={"prompt": "abcdefg", "return_token_strs": True}).json()
    assert plain["token_strs"] == ["abcd", "efg"]


def test_embeddings_are_deterministic_unit_vectors(url: str) -> None:
    """The same input gives the same vector, of length one."""
    one, two = (post(f"{url}/v1/embeddings", json={"model": "sim", "input": ["a", "b"]}).json() for _ in "12")
    assert one["data"] == two["data"]
    vectors = [each["embedding"] for each in one["data"]]
    assert vectors[0] != vectors[1]
    assert [round(sum(value * value for value in vector), 6) for vector in vectors] == [1, 1]


def test_small_routes(url: str) -> None:
    """Health is empty, the version is vLLM's, load is a number, unknown paths and methods are FastAPI's
    answers."""
    assert (get(f"{url}/health").status_code, get(f"{url}/health").content) == (200, b"")
    assert get(f"{url}/version").json() == {"version": "0.32.0"}
    assert get(f"{url}/load").json() == {"server_load": 0}
    missing, wrong = get(f"{url}/v1/models/sim"), get(f"{url}/v1/completions")
    assert (missing.status_code, missing.json()) == (404, {"detail": "Not Found"})
    assert (wrong.status_code, wrong.json()) == (405, {"detail": "Method Not Allowed"})


def test_the_next_turn_reuses_the_first_ones_blocks(start: Start) -> None:
    """Question, answer and all are found again when they come back in the next turn's prompt (engines §7)."""
    url = start("--time-scale", "10")
    first = chat(url, max_tokens=40).json()
    text = first["choices"][0]["message"]["content"]
    turn = [*HELLO, {"role": "assistant", "content": text}, {"role": "user", "content": "And then?"}]
    second = chat(url, messages=turn).json()["usage"]
    known = first["usage"]["prompt_tokens"] + 40 - 1
    assert second["prompt_tokens_details"]["cached_tokens"] == known // 16 * 16 > 0
    salted = chat(url, messages=turn, cache_salt="other").json()["usage"]
    assert salted["prompt_tokens_details"]["cached_tokens"] == 0
    assert post(f"{url}/reset_prefix_cache").json() == {"success": True}
    assert chat(url, messages=turn).json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_metrics_bear_vllms_names(start: Start) -> None:
    """Counters, gauges and facts appear under vLLM's names and add up (engines §1.7)."""
    url = start("--served-model-name", "m", "--blocks", "100", "--time-scale", "10")
    usage = chat(url).json()["usage"]
    chat(url)
    page = get(f"{url}/metrics")
    assert page.headers["content-type"].startswith("text/plain; version=1.0.0")
    values = dict(line.rsplit(" ", 1) for line in page.text.splitlines() if not line.startswith("#"))
    labels = '{engine="0",model_name="m"}'
    assert float(values[f"vllm:prompt_tokens_total{labels}"]) == 2 * usage["prompt_tokens"]
    assert float(values[f"vllm:generation_tokens_total{labels}"]) == 10
    assert float(values[f"vllm:prefix_cache_hits_total{labels}"]) == (usage["prompt_tokens"] - 1) // 16 * 16
    assert float(values[f"vllm:num_requests_running{labels}"]) == 0
    finished = labels.replace("}", ',finished_reason="length"}')
    assert float(values[f"vllm:request_success_total{finished}"]) == 2
    facts = 'vllm:cache_config_info{block_size="16",num_gpu_blocks="100"'
    assert any(name.startswith(facts) for name in values)
    assert float(values[f"vllm:time_to_first_token_seconds_count{labels}"]) == 2


# ── refusals ─────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("path", "body", "status", "kind", "param"),
    [
        ("/v1/chat/completions", b"{", 400, "Bad Request", None),
        ("/v1/chat/completions", b"[]", 400, "Bad Request", None),
        ("/v1/chat/completions", b'{"messages":[]}', 400, "Bad Request", None),
        ("/v1/chat/completions", b'{"messages":[{"content":"x"}]}', 400, "Bad Request", None),
        ("/v1/chat/completions", b'{"messages":[{"role":"user","content":3}]}', 400, "Bad Request", None),
        ("/v1/chat/completions", b'{"messages":[{"role":"user","content":[4]}]}', 400, "Bad Request", None),
        ("/v1/chat/completions", b'{"messages":[{"role":"user"}],"tools":7}', 400, "Bad Request", None),
        ("/v1/chat/completions", b'{"a":' + b"[" * 20_000 + b"]" * 20_000 + b"}", 400, "Bad Request", None),
        ("/v1/chat/completions", b'{"model":"nope","messages":[{"role":"user","content":"x"}]}', 404,
         "NotFoundError", "model"),
        ("/v1/completions", b'{"prompt":"x","max_tokens":100000}', 400, "BadRequestError", "input_tokens"),
        ("/v1/completions", b'{"prompt":"x","max_tokens":0}', 400, "BadRequestError", "max_tokens"),
        ("/v1/completions", b'{"prompt":"x","max_tokens":"many"}', 400, "Bad Request", None),
        ("/v1/completions", b'{"prompt":[-1]}', 400, "BadRequestError", "prompt"),
        ("/v1/completions", b"{}", 400, "BadRequestError", None),
        ("/detokenize", b'{"tokens":"x"}', 400, "Bad Request", None),
    ],
)
def test_bad_requests_get_vllms_errors(
    url: str, path: str, body: bytes, status: int, kind: str, param: str | None
) -> None:
    """Status, type and param are those of engines §1.10, and the code equals the status."""
    answer = post(url + path, content=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["type"], error["param"]) == (status, status, kind, param)


def test_unknown_model_names_the_aliases(url: str) -> None:
    """The 404 lists what is served, in the shape of the route."""
    message = chat(url, model="x").json()["error"]["message"]
    assert message == "The model `x` does not exist. Valid aliases: sim, alias."
    body = post(f"{url}/v1/messages", json={"model": "x", "messages": HELLO, "max_tokens": 1}).json()
    assert (body["type"], body["error"]["type"]) == ("error", "NotFoundError")


@pytest.mark.parametrize(
    ("members", "named"),
    [({"messages": [{"role": "user", "content": 3}]}, "messages.0.content"), ({"system": 5}, "system")],
)
def test_a_malformed_messages_body_is_refused_in_its_shape(url: str, members: dict[str, Any], named: str) -> None:
    """400, never 500, and the sentence names the member."""
    answer = post(f"{url}/v1/messages", json={"model": "sim", "messages": HELLO, "max_tokens": 1, **members})
    body = answer.json()
    assert (answer.status_code, body["type"]) == (400, "error")
    assert body["error"]["message"].startswith(f"{named}: ")


# ── connections ──────────────────────────────────────────────────────────────────────────────────────
async def connect(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A raw connection."""
    host, port = url.removeprefix("http://").split(":")
    return await asyncio.open_connection(host, int(port))


def request(body: dict[str, Any]) -> bytes:
    """A raw chat request."""
    raw = json.dumps(body).encode()
    return b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(raw), raw)


async def until_idle(url: str) -> dict[str, int]:
    """Waits until nothing runs; generous, but asked often."""
    async with asyncio.timeout(5), httpx.AsyncClient(verify=False) as client:
        while True:
            now: dict[str, int] = (await client.get(f"{url}/sim/stats")).json()
            if not now["live"] and not now["running"]:
                return now


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_aborts_its_request(start: Start, half: bool, stream: bool) -> None:
    """Closing, or only half-closing, ends the work at once, streamed or not (engines §1.9)."""
    url = start("--itl-ms", "50")
    reader, writer = await connect(url)
    writer.write(request({"messages": HELLO, "max_tokens": 2000, "ignore_eos": True, "stream": stream}))
    async with httpx.AsyncClient(verify=False) as client:
        while not (await client.get(f"{url}/sim/stats")).json()["running"]:
            pass
    if half:
        writer.write_eof()
        await reader.read()
    writer.close()
    after = await until_idle(url)
    assert (after["aborted"], after["left_early"]) == (1, 1)


async def test_an_idle_connection_is_closed(start: Start) -> None:
    """A connection without a request is dropped after the keep-alive time, as after one answer."""
    url = start("--keep-alive", "0.2")
    reader, writer = await connect(url)
    writer.write(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(5):
        assert (await reader.read()).endswith(b'{"version":"0.32.0"}')
    writer.close()


async def test_pipelined_requests_are_answered_in_order(url: str) -> None:
    """Two requests in one packet get two answers, the slow one first."""
    reader, writer = await connect(url)
    writer.write(request({"messages": HELLO, "max_tokens": 3}) +
                 b"GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    async with asyncio.timeout(5):
        raw = await reader.read()
    assert raw.count(b"HTTP/1.1 200 OK") == 2
    assert raw.index(b"chat.completion") < raw.index(b'{"version"')
    writer.close()


async def test_http10_stream_ends_with_the_connection(url: str) -> None:
    """An HTTP/1.0 client gets no chunked framing."""
    reader, writer = await connect(url)
    raw = request({"messages": HELLO, "max_tokens": 2, "stream": True})
    writer.write(raw.replace(b"HTTP/1.1", b"HTTP/1.0"))
    async with asyncio.timeout(5):
        raw = await reader.read()
    assert b"Transfer-Encoding" not in raw
    assert raw.endswith(b"data: [DONE]\n\n")
    writer.close()


async def test_expect_continue_is_answered(url: str) -> None:
    """A client that waits for permission gets it."""
    reader, writer = await connect(url)
    raw = request({"messages": HELLO, "max_tokens": 1})
    head, _, body = raw.partition(b"\r\n\r\n")
    writer.write(head + b"\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n")
    async with asyncio.timeout(5):
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(body)
        assert (await reader.read()).startswith(b"HTTP/1.1 200 OK")
    writer.close()


async def test_what_is_not_http_is_refused(url: str) -> None:
    """Garbage gets a 400 and the connection ends."""
    reader, writer = await connect(url)
    writer.write(b"hello\r\n\r\n")
    async with asyncio.timeout(5):
        assert (await reader.read()).startswith(b"HTTP/1.1 400")
    writer.close()
