"""Log lines: their shape, and what can never be in them."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from infera_cli.events import Bus, Reloaded, WorkerChanged, WorkerFault
from infera_cli.telemetry import logs
from infera_cli.telemetry.access_log import AccessLog
from infera_cli.telemetry.event_log import EventLog
from tests.telemetry.world import done


@pytest.fixture
def root() -> Iterator[None]:
    """Puts logging back as it was."""
    logger = logging.getLogger()
    handlers, level = list(logger.handlers), logger.level
    names = ("httpx", "httpcore", "asyncio", "uvicorn", "uvicorn.error", "uvicorn.access")
    levels = {name: logging.getLogger(name).level for name in names}
    yield
    logger.handlers[:] = handlers
    logger.setLevel(level)
    for name, old in levels.items():
        logging.getLogger(name).setLevel(old)


@pytest.mark.usefixtures("root")
def test_text_lines_are_level_logger_message() -> None:
    """`LEVEL logger: message`, from the level asked for on."""
    out = io.StringIO()
    logs.setup("warning", "text", out)
    logging.getLogger("infera.fleet").info("unseen")
    logging.getLogger("infera.fleet").warning("worker %s is slow", "a")
    assert out.getvalue() == "WARNING infera.fleet: worker a is slow\n"


@pytest.mark.usefixtures("root")
def test_json_lines_are_objects() -> None:
    """One object a line with time, level, logger and message."""
    out = io.StringIO()
    logs.setup("INFO", "json", out)
    logging.getLogger("infera.fleet").info("up")
    line = json.loads(out.getvalue())
    assert (line["level"], line["logger"], line["message"]) == ("INFO", "infera.fleet", "up")
    assert line["time"].endswith("Z")


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("form", ["text", "json"])
def test_r182_no_line_is_forged_painted_or_longer_than_2_kb(form: logs.LogFormat) -> None:
    """Control characters are escaped and long messages cut, tracebacks included."""
    out = io.StringIO()
    logs.setup("INFO", form, out)
    evil = "a\nERROR forged: x\x1b[31m\x7f\x0b\u2028" + "A" * 20_000
    logging.getLogger("infera.x").warning("got %s", evil)
    logging.getLogger("infera.x").error("failed", exc_info=ValueError(evil))
    lines = out.getvalue().split("\n")
    assert all(len(line.encode()) <= 2048 for line in lines)
    assert not any(line.startswith("ERROR forged") for line in lines)
    assert not set("\x1b\x7f\x0b\u2028") & set(out.getvalue())


@pytest.mark.usefixtures("root")
def test_setting_up_twice_writes_once() -> None:
    """The last set-up holds."""
    first, second = io.StringIO(), io.StringIO()
    logs.setup("INFO", "text", first)
    logs.setup("INFO", "text", second)
    logging.getLogger("infera.x").info("once")
    assert (first.getvalue(), second.getvalue()) == ("", "INFO infera.x: once\n")


def test_access_lines_of_a_batch_leave_in_one_write() -> None:
    """One line a request: who, where, why, how long."""
    writes: list[str] = []

    class Stream(io.StringIO):
        def write(self, text: str) -> int:
            writes.append(text)
            return len(text)

    AccessLog(stream=Stream()).add([done(), done(id="r2", worker=None, first_byte=None, error="No worker.")])
    [text] = writes
    assert text == (
        "INFO infera.access: 200 ok POST /v1/chat/completions model=m worker=a why=session:hit retries=0 "
        "peer=127.0.0.1 id=r1 session=s1 first=200.0ms total=250.0ms in=100 out=200 chunks=1\n"
        "INFO infera.access: 200 ok POST /v1/chat/completions model=m worker=- why=session:hit retries=0 "
        "peer=127.0.0.1 id=r2 session=s1 first=- total=250.0ms in=100 out=200 chunks=1 "
        'error="No worker."\n'
    )


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize(
    "evil", ["a\r\nINFO x: y", "\x1b[31mred", "\x0b\x7f", "A" * 20_000, "a b", "é", ""]
)
def test_r182_unsound_ids_are_not_written_and_a_request_is_a_line(form: logs.LogFormat, evil: str) -> None:
    """Ids outside the safe pattern become `-`; other text is escaped and cut."""
    out = io.StringIO()
    named = dict.fromkeys(("id", "session", "model", "path", "error"), evil)
    AccessLog(form, out).add([done(**named, tail=b"body text")])
    text = out.getvalue()
    assert text.count("\n") == 1
    assert text.endswith("\n")
    assert text[:-1].isprintable()
    assert len(text.encode()) <= 2048
    assert ("id=- session=- " in text) if form == "text" else ('"id":"-","session":"-"' in text)
    assert "body text" not in text


def test_a_client_cannot_add_fields_to_its_line() -> None:
    """Blanks and quotes in a model's name stay inside the quotes of its field."""
    out = io.StringIO()
    AccessLog(stream=out).add([done(model='m worker=b "x', error='no "m" here')])
    assert """ model="m worker=b 'x" worker=a """ in out.getvalue()
    assert out.getvalue().endswith(""" error="no 'm' here"\n""")


def test_session_that_was_never_known_is_a_dash() -> None:
    """No session is not the session called None."""
    out = io.StringIO()
    AccessLog(stream=out).add([done(session=None)])
    assert "session=- " in out.getvalue()


def test_json_access_line_has_all_members() -> None:
    """The same facts as members, durations in seconds."""
    out = io.StringIO()
    AccessLog("json", out).add([done()])
    line = json.loads(out.getvalue())
    assert (line["logger"], line["status"], line["worker"]) == ("infera.access", 200, "a")
    assert (line["id"], line["session"]) == ("r1", "s1")
    assert line["time"] == "2023-11-14T22:13:20.250Z"
    assert line["total"] == 0.25


def test_fleet_events_are_logged_at_their_level(caplog: pytest.LogCaptureFixture) -> None:
    """Changes at INFO, faults and ignored workers at WARNING, a refused file at ERROR."""
    caplog.set_level(logging.INFO)
    bus = Bus()
    EventLog(bus, clock=lambda: 0.0)
    for event in (
        WorkerChanged("a", "ready"), WorkerChanged("b", "ignored", "worker a has its URL."), done(),
        WorkerFault("a", "connect", "r1", "refused"), Reloaded("f.json"),
        Reloaded("f.json", "Line 3 is no JSON."),
    ):  # fmt: skip
        bus.emit(event)
    assert [(r.levelname, r.name, r.getMessage()) for r in caplog.records] == [
        ("INFO", "infera.fleet", "worker a is ready"),
        ("WARNING", "infera.fleet", "worker b is ignored: worker a has its URL."),
        ("WARNING", "infera.relay", "worker a failed request r1, connect: refused"),
        ("INFO", "infera.config", "f.json was read again"),
        ("ERROR", "infera.config", "f.json was refused and the previous one stays: Line 3 is no JSON."),
    ]


def test_a_worker_that_fails_every_request_gets_one_line_a_second(caplog: pytest.LogCaptureFixture) -> None:
    """What was left out is counted in the next line; other workers and reasons have their own."""
    bus, now = Bus(), [0.0]
    EventLog(bus, clock=lambda: now[0])
    for _ in range(100):
        bus.emit(WorkerFault("a", "connect", "r1"))
    bus.emit(WorkerFault("b", "connect", "r2"))
    now[0] = 1.0
    bus.emit(WorkerFault("a", "connect", "r3"))
    assert [r.getMessage() for r in caplog.records] == [
        "worker a failed request r1, connect",
        "worker b failed request r2, connect",
        "worker a failed request r3, connect (99 more like this)",
    ]
