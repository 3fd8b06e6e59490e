"""Generators and corpora of HTTP messages: sound ones, broken ones, and those written to smuggle."""

from __future__ import annotations

import random
import string

TOKEN = "!#$%&'*+-.^_`|~" + string.digits + string.ascii_letters
PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/messages", "/tokenize", "/v1/audio/speech")
SPECIAL = (b"\r", b"\n", b"\r\n", b"\0", b" ", b"\t", b":", b",", b";", b"0", b"-", b"+", b"\x7f", b"\xff", b"\r\n\r\n",
           b"chunked", b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n", b"HTTP/1.1", b"\r\n0\r\n\r\n")
RESERVED = {b"host", b"content-length", b"transfer-encoding", b"connection", b"expect", b"upgrade", b"x-session-id",
            b"x-request-id"}


def field(rng: random.Random) -> bytes:
    """One sound header line, without its end."""
    while True:
        name = "".join(rng.choices(TOKEN, k=rng.randrange(1, 12))).encode()
        if name.lower() not in RESERVED:
            break
    letters = bytes(range(0x21, 0x7F)) + b" \t" + bytes(range(0x80, 0x100))
    value = bytes(rng.choices(letters, k=rng.randrange(0, 30))).strip(b" \t")
    space = rng.choice((b"", b" ", b"\t", b"  "))
    return name + b":" + space + value + rng.choice((b"", b" ", b" \t"))


def body(rng: random.Random) -> bytes:
    """A body: JSON, bytes of any kind, or bytes that look like a message."""
    return rng.choice((
        b'{"model":"m","messages":[]}', b"", rng.randbytes(rng.randrange(1, 200)),
        b"0\r\n\r\nPOST /v1/completions HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"\r\n\r\n" * rng.randrange(1, 5), b"x" * rng.randrange(1, 3000)))


def in_chunks(rng: random.Random, data: bytes, *, trailers: bool) -> bytes:
    """`data` in chunks of random sizes, with extensions and trailers now and then."""
    out, at = b"", 0
    while at < len(data):
        size = rng.randrange(1, 1 + rng.choice((3, 50, 5000)))
        piece = data[at:at + size]
        digits = rng.choice((b"%x", b"%X", b"0%x")) % len(piece)
        out += digits + rng.choice((b"", b"", b";a=b", b";q")) + b"\r\n" + piece + b"\r\n"
        at += size
    end = b"X-Trailer: 1\r\n" if trailers and rng.random() < 0.2 else b""
    return out + b"0\r\n" + end + b"\r\n"


def request(rng: random.Random) -> tuple[bytes, bytes]:
    """(a sound request to a relayed route, its body)."""
    data = body(rng)
    target = rng.choice(PATHS) + rng.choice(("", "?a=1", "?q=%20&b=/../x", "?"))
    lines = [field(rng) for _ in range(rng.randrange(0, 6))] + [b"Host: infera.test"]
    chunked = rng.random() < 0.4
    lines.append(b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % len(data))
    if rng.random() < 0.2:
        lines.append(b"Connection: " + rng.choice((b"close", b"keep-alive", b"X-Hop, keep-alive")))
    if rng.random() < 0.4:
        lines.append(b"X-Session-Id: " + rng.choice((b"s1", b"user-17.a:b", b"s" * 128, b"not sound", b"")))
    rng.shuffle(lines)
    head = b"POST " + target.encode() + b" HTTP/1.1\r\n" + b"\r\n".join(lines) + b"\r\n\r\n"
    return head + (in_chunks(rng, data, trailers=True) if chunked else data), data


def response(rng: random.Random) -> tuple[bytes, bool]:
    """(a sound answer, whether it ends with the connection)."""
    data, status = body(rng), rng.choice((200, 200, 201, 400, 404, 422, 299, 204, 304))
    lines = [field(rng) for _ in range(rng.randrange(0, 6))]
    lines.append(b"Content-Type: " + rng.choice((b"application/json", b"text/event-stream", b"text/plain")))
    framing = "none" if status in (204, 304) else rng.choice(("length", "chunked", "close"))
    if framing == "length":
        lines.append(b"Content-Length: %d" % len(data))
    elif framing == "chunked":
        lines.append(b"Transfer-Encoding: " + rng.choice((b"chunked", b"Chunked")))
    rng.shuffle(lines)
    interim = rng.choice((b"", b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"))
    head = b"HTTP/1.1 %d Whatever\r\n" % status + b"\r\n".join(lines) + b"\r\n\r\n"
    wire = {"none": b"", "length": data, "close": data, "chunked": in_chunks(rng, data, trailers=True)}[framing]
    return interim + head + wire, framing == "close"


def mutate(rng: random.Random, data: bytes) -> bytes:
    """`data` with one to three small changes: bytes dropped, put in, replaced, or a stretch repeated."""
    out = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(out) + 1)
        match rng.randrange(4):
            case 0:
                del out[at:at + rng.randrange(1, 4)]
            case 1:
                out[at:at] = rng.choice(SPECIAL)
            case 2:
                out[at:at + 1] = rng.choice(SPECIAL)
            case _:
                out[at:at] = out[at:at + rng.randrange(1, 30)]
    return bytes(out)


def _post(*lines: bytes, body: bytes = b"", start: bytes = b"POST /v1/completions HTTP/1.1") -> bytes:
    return b"\r\n".join([start, *lines, b"", body])


NEXT = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nxyz"
_H, _TE = b"Host: x", b"Transfer-Encoding: chunked"
_CHUNKS = b"2\r\n{}\r\n0\r\n\r\n"

SMUGGLING: dict[str, bytes] = {
    "length and chunked": _post(_H, b"Content-Length: 2", _TE, body=_CHUNKS),
    "chunked and length": _post(_H, _TE, b"Content-Length: 6", body=_CHUNKS),
    "two different lengths": _post(_H, b"Content-Length: 2", b"Content-Length: 3", body=b"{}x"),
    "two equal lengths": _post(_H, b"Content-Length: 2", b"Content-Length: 2", body=b"{}"),
    "a list of lengths": _post(_H, b"Content-Length: 2, 3", body=b"{}x"),
    "plus sign": _post(_H, b"Content-Length: +2", body=b"{}"),
    "minus sign": _post(_H, b"Content-Length: -2", body=b"{}"),
    "hexadecimal": _post(_H, b"Content-Length: 0x2", body=b"{}"),
    "length with a space inside": _post(_H, b"Content-Length: 1 2", body=b"{}" * 6),
    "length with an underscore": _post(_H, b"Content-Length: 1_2", body=b"{}" * 6),
    "empty length": _post(_H, b"Content-Length: ", body=b"{}"),
    "length beyond 64 bits": _post(_H, b"Content-Length: 18446744073709551618", body=b"{}"),
    "other digits": _post(_H, b"Content-Length: \xd9\xa2", body=b"{}"),
    "unknown coding": _post(_H, b"Transfer-Encoding: xchunked", body=_CHUNKS),
    "coding after chunked": _post(_H, b"Transfer-Encoding: chunked, identity", body=_CHUNKS),
    "gzip, chunked": _post(_H, b"Transfer-Encoding: gzip, chunked", body=_CHUNKS),
    "chunked twice": _post(_H, b"Transfer-Encoding: chunked, chunked", body=_CHUNKS),
    "two coding lines": _post(_H, _TE, _TE, body=_CHUNKS),
    "quoted chunked": _post(_H, b'Transfer-Encoding: "chunked"', body=_CHUNKS),
    "vertical tab before chunked": _post(_H, b"Transfer-Encoding: \x0bchunked", body=_CHUNKS),
    "identity": _post(_H, b"Transfer-Encoding: identity", b"Content-Length: 2", body=b"{}"),
    "space before the colon": _post(_H, b"Content-Length : 2", body=b"{}"),
    "space before the coding's colon": _post(_H, b"Transfer-Encoding : chunked", body=_CHUNKS),
    "folded line": _post(_H, b"Content-Length: 2", b"X-A: 1\r\n folded", body=b"{}"),
    "folded coding": _post(_H, b"Transfer-Encoding:\r\n chunked", body=_CHUNKS),
    "first line folded": _post(b" X: 1", _H, b"Content-Length: 2", body=b"{}"),
    "bare line feed in a head": b"POST /v1/completions HTTP/1.1\nHost: x\nContent-Length: 2\n\n{}",
    "one bare line feed": _post(_H, b"X-A: 1\nTransfer-Encoding: chunked", b"Content-Length: 2", body=b"{}"),
    "bare carriage return": _post(_H, b"X-A: 1\rTransfer-Encoding: chunked", b"Content-Length: 2", body=b"{}"),
    "NUL in a value": _post(_H, b"X-A: a\0b", b"Content-Length: 2", body=b"{}"),
    "NUL in a name": _post(_H, b"X\0A: a", b"Content-Length: 2", body=b"{}"),
    "control byte in a value": _post(_H, b"X-A: a\x01b", b"Content-Length: 2", body=b"{}"),
    "no name": _post(_H, b": a", b"Content-Length: 2", body=b"{}"),
    "no colon": _post(_H, b"Nonsense", b"Content-Length: 2", body=b"{}"),
    "name with a space": _post(_H, b"X A: 1", b"Content-Length: 2", body=b"{}"),
    "name with a bracket": _post(_H, b"X(A): 1", b"Content-Length: 2", body=b"{}"),
    "name outside ASCII": _post(_H, b"X-\xe9: 1", b"Content-Length: 2", body=b"{}"),
    "chunk size with a sign": _post(_H, _TE, body=b"+2\r\n{}\r\n0\r\n\r\n"),
    "chunk size with 0x": _post(_H, _TE, body=b"0x2\r\n{}\r\n0\r\n\r\n"),
    "chunk size missing": _post(_H, _TE, body=b"\r\n{}\r\n0\r\n\r\n"),
    "chunk size after a space": _post(_H, _TE, body=b" 2\r\n{}\r\n0\r\n\r\n"),
    "chunk size beyond 64 bits": _post(_H, _TE, body=b"10000000000000002\r\n{}\r\n0\r\n\r\n"),
    "chunk ended by a line feed": _post(_H, _TE, body=b"2\n{}\n0\n\n"),
    "chunk data too long": _post(_H, _TE, body=b"2\r\n{}xx\r\n0\r\n\r\n"),
    "line feed in an extension": _post(_H, _TE, body=b"2;a\nb\r\n{}\r\n0\r\n\r\n"),
    "no host": _post(b"Content-Length: 2", body=b"{}"),
    "two hosts": _post(_H, b"Host: y", b"Content-Length: 2", body=b"{}"),
    "HTTP/0.9": b"POST /v1/completions\r\n\r\n",
    "HTTP/1.0 with chunks": _post(_TE, body=_CHUNKS, start=b"POST /v1/completions HTTP/1.0"),
    "HTTP/2.0": _post(_H, b"Content-Length: 2", body=b"{}", start=b"POST /v1/completions HTTP/2.0"),
    "HTTP/1.10": _post(_H, b"Content-Length: 2", body=b"{}", start=b"POST /v1/completions HTTP/1.10"),
    "lower-case protocol": _post(_H, b"Content-Length: 2", body=b"{}", start=b"POST /v1/completions http/1.1"),
    "space in the target": _post(_H, b"Content-Length: 2", body=b"{}", start=b"POST /v1/ completions HTTP/1.1"),
    "tab in the first line": _post(_H, b"Content-Length: 2", body=b"{}", start=b"POST\t/v1/completions\tHTTP/1.1"),
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}
"""Name → bytes. All of them must be refused: nothing reaches a worker and the connection ends."""
