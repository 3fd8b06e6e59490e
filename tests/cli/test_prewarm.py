"""`infera prewarm`, against a server that answers what it is told to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from infera_cli.blocks import chain
from tests.cli.conftest import Infera
from tests.client.stub import WORKERS, Stub

USAGE = {"usage": {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 0}}}


@pytest.fixture
def server(stub: Stub) -> Stub:
    stub.answers["GET /v1/models"] = (200, {"data": [{"id": "m"}]})
    stub.answers["POST /v1/completions"] = stub.answers["POST /v1/chat/completions"] = (200, USAGE)
    return stub


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    """Words a to h are tokens 1 to 8."""
    words = Tokenizer(WordLevel({"[UNK]": 0, **{c: n + 1 for n, c in enumerate("abcdefgh")}}, unk_token="[UNK]"))
    words.pre_tokenizer = Whitespace()
    words.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_a_prompt_is_computed_by_one_token(infera: Infera, server: Stub) -> None:
    """Where there is no tokenizer, a request goes where routing sends it, and the table tells what became warm."""
    code, out, err = infera("prewarm", "hello there", "--server", server.url)
    head, row = out.splitlines()
    assert (code, err) == (0, "")
    assert head.split() == ["PROMPT", "BY", "WORKER", "TOKENS", "CACHED", "BLOCKS", "SECONDS", "ERROR"]
    assert row.split()[:6] == ["hello", "there", "request", "-", "9", "0"]
    assert server.asked[-1].body == {"model": "m", "max_tokens": 1, "temperature": 0, "prompt": "hello there"}


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ('["a", {"messages": [{"role": "user", "content": "b"}]}]', ["/v1/completions", "/v1/chat/completions"]),
        ('{"prompt": "a"}\n{"prompt": "b"}\n', ["/v1/completions"] * 2),
        ('[{"role": "user", "content": "b"}]', ["/v1/chat/completions"]),
        ("You are a helpful\nassistant.", ["/v1/completions"]),
    ],
)
def test_a_file_holds_prompts_or_messages(
    infera: Infera, server: Stub, tmp_path: Path, text: str, paths: list[str]
) -> None:
    """A JSON list, JSON Lines, a conversation, or plain text."""
    (tmp_path / "prefixes").write_text(text)
    assert infera("prewarm", "--file", "prefixes", "--server", server.url).code == 0
    assert [asked.path for asked in server.asked if asked.method == "POST"] == paths


def test_the_daemon_is_told_of_the_blocks(infera: Infera, server: Stub, tokenizer: Path) -> None:
    """With a tokenizer, the hashes of the block chain go to the daemon, eight bytes each, and no request is made."""
    server.answers["POST /v1/cache/prewarm"] = (202, {"accepted": True, "n_keys": 2})
    code, out, _ = infera("prewarm", "a b c d e", "--tokenizer", str(tokenizer), "--block-size", "2", "--json",
                          "--server", server.url)  # fmt: skip
    hashes = [one.to_bytes(8, "big").hex() for one in chain([1, 2, 3, 4, 5], 2)]
    assert server.asked[-1].body == {"model": "m", "block_hashes": hashes, "compat_key": "", "deadline_ms": 1000}
    row = json.loads(out)["prefixes"][0]
    assert (code, row["how"], row["blocks"]) == (0, "daemon", 2)


def test_without_a_daemon_a_request_does_it(infera: Infera, server: Stub, tokenizer: Path) -> None:
    """503 means there is none; that is said, and the prefix becomes warm all the same."""
    server.answers["POST /v1/cache/prewarm"] = (503, {"error": {"message": "none"}})
    code, out, err = infera("prewarm", "a b c d", "--tokenizer", str(tokenizer), "--server", server.url)
    assert (code, err) == (0, "the server has no cache daemon; warming by requests\n")
    assert "request" in out


def test_hashes_of_others_are_passed_on(infera: Infera, server: Stub) -> None:
    """--hashes needs no tokenizer, but a daemon."""
    server.answers["POST /v1/cache/prewarm"] = (202, {"accepted": True, "n_keys": 1})
    assert infera("prewarm", "--hashes", "00ff", "--server", server.url).code == 0
    assert server.asked[-1].body["block_hashes"] == ["00ff"]
    server.answers["POST /v1/cache/prewarm"] = (503, {"error": {"message": "none"}})
    assert infera("prewarm", "--hashes", "00ff", "--server", server.url).code == 1


def test_several_workers_are_warmed_at_their_own_addresses(infera: Infera, server: Stub) -> None:
    """The one that routing would choose comes first, then the least busy; too many are refused in words."""
    able = [{**WORKERS[0], "worker_id": name, "url": server.url, "outstanding": n} for n, name in enumerate("xyz")]
    server.answers["GET /v1/workers"] = (200, {"workers": able})
    server.answers["POST /v1/admin/explain"] = (200, {"worker": "z"})
    _, out, _ = infera("prewarm", "hello", "--workers", "2", "--json", "--server", server.url)
    assert [row["worker"] for row in json.loads(out)["prefixes"]] == ["z", "x"]
    code, _, err = infera("prewarm", "hello", "--workers", "4", "--server", server.url)
    assert (code, err) == (1, "error: --workers 4: only 3 serve m now\n")


def test_a_refusal_is_a_row_and_an_error(infera: Infera, server: Stub) -> None:
    """What did not become warm is in the table with its reason; the exit code is 1."""
    server.answers["POST /v1/completions"] = (400, {"error": {"message": "too long"}})
    code, out, err = infera("prewarm", "hello", "--server", server.url)
    assert (code, err) == (1, "error: 1 of 1 did not become warm\n")
    assert "too long" in out


def test_nothing_to_warm_is_a_usage_error(infera: Infera, server: Stub) -> None:
    """And so are numbers that are none; several models need a choice."""
    assert infera("prewarm", "--server", server.url).code == 2
    assert infera("prewarm", "x", "--workers", "y", "--server", server.url).code == 2
    server.answers["GET /v1/models"] = (200, {"data": [{"id": "m"}, {"id": "n"}]})
    code, _, err = infera("prewarm", "x", "--server", server.url)
    assert (code, err) == (1, "error: --model must name one of m, n\n")


def test_other_names_of_the_one_model_are_no_choice(infera: Infera, server: Stub) -> None:
    """An alias is listed with the model behind it as its root."""
    server.answers["GET /v1/models"] = (200, {"data": [{"id": "m", "root": "m"}, {"id": "gpt-5", "root": "m"}]})
    assert infera("prewarm", "x", "--server", server.url).code == 0
    assert server.asked[-1].body["model"] == "m"
