"""Serving TLS: the pair is checked at the start, and read again when it changes."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from infera_cli.errors import ConfigError
from infera_cli.gateway.tls import ServingTls


def write_pair(folder: Path, name: str, password: bytes | None = None) -> tuple[Path, Path]:
    """A self-signed certificate for `name`, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    locked = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    cert_file, key_file = folder / "cert.pem", folder / "key.pem"
    cert_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked)
    )
    return cert_file, key_file


async def served_name(context: ssl.SSLContext) -> str:
    """The common name of the certificate that a new connection is shown."""
    server = await asyncio.start_server(lambda _r, w: w.close(), "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
        raw = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()
    [name] = x509.load_der_x509_certificate(raw).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    value = name.value
    return value if isinstance(value, str) else value.decode()


async def test_changed_pair_is_served_to_new_connections(tmp_path: Path) -> None:
    """After the files changed, the next connection sees the new certificate; unchanged files stay."""
    tls = ServingTls(*write_pair(tmp_path, "old"))
    assert await served_name(tls.context) == "old"
    assert not tls.reload_if_changed()
    write_pair(tmp_path, "new")
    assert tls.reload_if_changed()
    assert await served_name(tls.context) == "new"
    assert not tls.reload_if_changed()


@pytest.mark.parametrize("damage", ["garbage", "half", "gone", "other key"])
async def test_bad_new_pair_is_refused_and_the_old_one_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    """Whatever is wrong with the new pair is one sentence in the log, and clients notice nothing."""
    cert, key = write_pair(tmp_path, "old")
    tls = ServingTls(cert, key)
    if damage == "garbage":
        cert.write_text("no certificate")
    elif damage == "half":
        cert.write_bytes(cert.read_bytes()[:200])
    elif damage == "gone":
        cert.unlink()
    else:
        other = tmp_path / "other"
        other.mkdir()
        write_pair(other, "new")[1].replace(key)
    assert not tls.reload_if_changed()
    assert await served_name(tls.context) == "old"
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage().endswith("The previous certificate stays in use.")
    assert not tls.reload_if_changed()
    write_pair(tmp_path, "new")
    assert tls.reload_if_changed()
    assert await served_name(tls.context) == "new"


async def test_watch_reloads_by_itself(tmp_path: Path) -> None:
    """The files are looked at again and again."""
    tls = ServingTls(*write_pair(tmp_path, "old"))
    reloaded = asyncio.Event()
    task = asyncio.create_task(tls.watch(reloaded.set, every=0.01))
    write_pair(tmp_path, "new")
    await asyncio.wait_for(reloaded.wait(), 10)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert await served_name(tls.context) == "new"


def test_bad_pair_at_the_start_is_one_sentence(tmp_path: Path) -> None:
    """Missing files, nonsense, a foreign key and a locked key are told apart."""
    cert, key = write_pair(tmp_path, "x")
    other = tmp_path / "other"
    other.mkdir()
    other_key = write_pair(other, "y")[1]
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("hello")
    for pair, words in [
        ((tmp_path / "none.pem", key), "--ssl-certfile: there is no file"),
        ((cert, tmp_path / "none.pem"), "--ssl-keyfile: there is no file"),
        ((nonsense, key), "is not a PEM certificate with its key"),
        ((cert, None), "name the key with --ssl-keyfile"),
        ((cert, other_key), "does not belong to the certificate"),
    ]:
        with pytest.raises(ConfigError, match=words):
            ServingTls(*pair)


def test_locked_key_needs_its_password(tmp_path: Path) -> None:
    """An encrypted key opens with its password, and never asks on the terminal."""
    cert, key = write_pair(tmp_path, "x", password=b"sesame")
    assert ServingTls(cert, key, "sesame").context is not None
    for wrong in (None, "open"):
        with pytest.raises(ConfigError, match="is encrypted"):
            ServingTls(cert, key, wrong)
