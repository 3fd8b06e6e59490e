"""The pin table (replica-router §1.10)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from infera_cli.routing.sessions import MINTED, PINS_KEPT, Pins


def test_a_pin_is_alive_at_exactly_the_ttl_and_expired_after_it() -> None:
    """Expired means: not used for more than the TTL."""
    pins = Pins(10.0)
    pins.pin("s", "a", 5.0)
    assert pins.find("s", 15.0) == "a"
    assert pins.find("s", 15.001) is None


def test_finding_changes_nothing() -> None:
    """A look neither refreshes a pin nor removes an expired one."""
    pins = Pins(10.0)
    pins.pin("s", "a", 0.0)
    assert pins.find("s", 9.0) == "a"
    assert pins.find("s", 11.0) is None
    assert len(pins) == 1


def test_a_pin_moves_with_the_session() -> None:
    """Pinning again replaces the worker and refreshes the time."""
    pins = Pins(10.0)
    pins.pin("s", "a", 0.0)
    pins.pin("s", "b", 8.0)
    assert pins.find("s", 18.0) == "b"
    assert len(pins) == 1


def test_r068_touch_refreshes_only_a_pin_that_still_names_the_worker() -> None:
    """The end of a failed first attempt does not bring its pin back."""
    pins = Pins(10.0)
    pins.pin("s", "a", 0.0, held=True)
    pins.pin("s", "b", 1.0, held=True)
    pins.touch("s", "a", 9.0)
    pins.touch("s", "b", 2.0)
    assert pins.find("s", 12.0) == "b"
    assert pins.find("s", 12.5) is None


def test_touch_makes_no_pin() -> None:
    """A pin that was dropped stays dropped when its request ends."""
    pins = Pins(10.0)
    pins.pin("s", "a", 0.0, held=True)
    assert pins.drop_worker("a") == 1
    pins.touch("s", "a", 1.0)
    assert pins.find("s", 1.0) is None
    assert len(pins) == 0


def test_r070_an_open_request_keeps_its_pin() -> None:
    """A pin does not expire while a request of its session is open; the TTL counts from its end."""
    pins = Pins(2.0)
    pins.pin("s", "a", 0.0, held=True)
    pins.pin("s", "a", 1.0, held=True)
    pins.touch("s", "a", 5.0)
    assert pins.sweep(100.0) == 0
    assert pins.find("s", 100.0) == "a"
    pins.touch("s", "a", 101.0)
    assert pins.find("s", 103.1) is None
    assert pins.sweep(103.1) == 1


def test_dropping_a_worker_leaves_the_pins_of_others() -> None:
    """Only pins that name the worker go."""
    pins = Pins(10.0)
    for session, worker in (("s", "a"), ("t", "b"), ("u", "a")):
        pins.pin(session, worker, 0.0)
    assert pins.drop_worker("a") == 2
    assert [pins.find(session, 0.0) for session in "stu"] == [None, "b", None]


def test_a_sweep_forgets_what_expired() -> None:
    """A sweep removes expired pins and says how many."""
    pins = Pins(10.0)
    pins.pin("old", "a", 0.0)
    pins.pin("new", "a", 5.0)
    assert pins.sweep(10.0) == 0
    assert pins.sweep(10.5) == 1
    assert (len(pins), pins.find("new", 10.5)) == (1, "a")


def test_a4_over_the_cap_expired_pins_go_first() -> None:
    """Expired pins make room before any live one is given up, and all of them go."""
    pins = Pins(10.0, cap=3)
    for session, at in (("x", 0.0), ("y", 0.0), ("z", 9.0)):
        pins.pin(session, "a", at)
    pins.pin("new", "a", 11.0)
    assert len(pins) == 2
    assert pins.find("z", 11.0) == "a"


def test_a4_over_the_cap_the_least_recently_used_goes() -> None:
    """Where none is expired, the pin that was used longest ago goes; re-pinning and touching are use."""
    pins = Pins(100.0, cap=3)
    for at, session in enumerate("xyz"):
        pins.pin(session, "a", float(at))
    pins.pin("x", "a", 3.0)
    pins.touch("y", "a", 4.0)
    pins.pin("new", "a", 5.0)
    assert [pins.find(session, 5.0) for session in ("x", "y", "z", "new")] == ["a", "a", None, "a"]


def test_a4_a_flood_of_sessions_keeps_a_hundred_thousand() -> None:
    """However many sessions come, 100 000 pins are kept."""
    pins = Pins(3600.0)
    for n in range(PINS_KEPT + 500):
        pins.pin(str(n), "a", 1.0)
    assert len(pins) == PINS_KEPT == 100_000
    assert (pins.find("499", 1.0), pins.find("500", 1.0)) == (None, "a")


def test_of_ids_that_we_made_up_a_tenth_of_the_cap_is_kept() -> None:
    """A million clients that name no session take little memory, and push no named one out."""
    pins = Pins(3600.0, cap=20)
    pins.pin("session:named", "a", 0.0)
    for n in range(50):
        pins.pin(f"{MINTED}{n}", "b", 1.0)
    assert len(pins) == 3
    assert [pins.find(f"session:{n}", 1.0) for n in ("named", 47, 48, 49)] == ["a", None, "b", "b"]


def test_an_id_that_we_made_up_is_a_session_like_any_other_once_it_comes_back() -> None:
    """It is pinned where it was, kept with the named ones, and the end of its first request changes nothing."""
    pins = Pins(10.0, cap=20)
    pins.pin(MINTED + "x", "a", 0.0, held=True)
    assert pins.find("session:x", 1.0) == "a"
    pins.pin("session:x", "a", 1.0)
    pins.touch(MINTED + "x", "a", 5.0)
    for n in range(5):
        pins.pin(f"{MINTED}{n}", "b", 5.0)
    assert (pins.find("session:x", 11.0), pins.find("session:x", 11.5)) == ("a", None)
    assert pins.drop_worker("b") == 2


steps = st.lists(
    st.tuples(
        st.sampled_from(["pin", "touch", "drop", "sweep"]), st.sampled_from("stuvw"), st.sampled_from("ab"),
        st.floats(0, 4),
    )
)  # fmt: skip


@given(steps)
def test_pins_agree_with_a_plain_model(script: list[tuple[str, str, str, float]]) -> None:
    """A dictionary and a sorted list say the same, whatever happens in whatever order."""
    pins, model, now = Pins(5.0, cap=3), dict[str, tuple[str, float]](), 0.0
    for what, session, worker, wait in script:
        now += wait
        if what == "pin":
            pins.pin(session, worker, now)
            model.pop(session, None)
            model[session] = (worker, now)
            if len(model) > 3:
                model = {s: p for s, p in model.items() if now - p[1] <= 5.0}
            while len(model) > 3:
                del model[next(iter(model))]
        elif what == "touch":
            pins.touch(session, worker, now)
            if session in model and model[session][0] == worker:
                del model[session]
                model[session] = (worker, now)
        elif what == "drop":
            pins.drop_worker(worker)
            model = {s: p for s, p in model.items() if p[0] != worker}
        else:
            pins.sweep(now)
            model = {s: p for s, p in model.items() if now - p[1] <= 5.0}
        alive = {s: p[0] for s, p in model.items() if now - p[1] <= 5.0}
        assert {s: pins.find(s, now) for s in "stuvw"} == {s: alive.get(s) for s in "stuvw"}
        assert len(pins) == len(model)
