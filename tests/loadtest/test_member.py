"""A benchmark over several machines from the inside: what may be said when, on either side."""

from __future__ import annotations

import subprocess
import sys

RUNNER = """
from types import SimpleNamespace
from infera_cli.loadtest import load
from infera_cli.loadtest.load import Load, environment
from infera_cli.loadtest.member import GO, HERE, JOB, Part

class Runner:
    def __init__(self):
        self.heard, self.said, self.users, self.started_with = {}, [], 3, None
        self.clients = SimpleNamespace(ready=[SimpleNamespace(id="one")])
    def register_message(self, word, listener, concurrent=False):
        self.heard[word] = listener
    def send_message(self, word, data=None, client_id=None):
        self.said.append((word, sorted(self.heard)))
    @property
    def user_count(self):
        self.users = max(0, self.users - 1)
        return self.users
    def start_worker(self, users):
        self.started_with = (self.users, users)

runner = Runner()
"""
AFTER_THE_ONE_BEFORE = """
part = Part(runner, Load(environment()))
runner.heard[GO](environment=None, msg=SimpleNamespace(data={"in": 0.0}))
print(runner.started_with)
"""
WHO_IS_HERE = """
from infera_cli.loadtest.cluster import Lonely, Master
import gevent.queue
Part(runner, Load(environment()))
word, known = runner.said[0]
print(word == HERE, JOB in known)

lead = Master(runner, 1, ":0", 0.2, gevent.queue.Queue())
try:
    lead.gather()
except Lonely as lonely:
    print(str(lonely)[:32])
runner.heard[HERE](environment=None, msg=SimpleNamespace(node_id="one"))
print(lead.gather())
"""
LAST_WORD = """
import gevent
load.FLUSH = 0.0        # the reporter's turn comes in every round of the loop, in the last one as well
said = []
one = Load(environment())
one.connect(lambda data: None, lambda progress: said.append(progress.state))
one._driver = SimpleNamespace(run=lambda begin: gevent.sleep(0.01), open=0)
one.drive()
gevent.sleep(0.05)
print(said[0], said[-1])
"""


def said_by(code: str) -> list[str]:
    """What `code` prints in a process of its own: locust patches the process that imports it."""
    words = [sys.executable, "-c", RUNNER + code]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if not line.startswith("{")]


def test_a_load_begins_when_the_user_of_the_one_before_has_left() -> None:
    """Locust starts nobody while it still counts him, and the load would wait for its driver for ever."""
    assert said_by(AFTER_THE_ONE_BEFORE) == ["(0, {'LoadUser': 1})"]


def test_a_machine_counts_once_it_can_hear_of_its_part() -> None:
    """Locust counts it while it is still being made; a part sent then was lost, and everyone waited for ever."""
    assert said_by(WHO_IS_HERE) == ["True True", "0 of 1 load machines have joined", "None"]


def test_nothing_follows_the_last_word_of_a_load() -> None:
    """A "running" after the "done" made everyone wait for another "done"."""
    assert said_by(LAST_WORD) == ["running done"]
