"""How a connection ends whose answer broke: never as it would after a whole one (rulings 11)."""

from __future__ import annotations

import asyncio
import socket
import struct

_LOOK = 0.05     # seconds that what was written last has before anybody asks whether it left
_LOOKS = 40


def needs_last_words(transport: asyncio.Transport) -> bool:
    """Over TLS a close says goodbye, which makes a body that ends with the connection look whole, and an abort loses
    what was written in this turn of the event loop: such a connection must end by `reset_once_written`."""
    return transport.get_extra_info("ssl_object") is not None


def reset(transport: asyncio.Transport) -> None:
    """End a connection so that the other side sees a broken answer, also where a body ends with the connection."""
    connection = transport.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if needs_last_words(transport):
        transport.abort()
    else:
        transport.close()


def reset_once_written(transport: asyncio.Transport, looks: int = _LOOKS) -> None:
    """`reset`, after what was written has left; a client that does not read is not waited for beyond two seconds."""
    if transport.is_closing():
        return
    if looks == _LOOKS or (looks and transport.get_write_buffer_size()):
        asyncio.get_running_loop().call_later(_LOOK, reset_once_written, transport, looks - 1)
    else:
        reset(transport)
