"""The worker's side of a benchmark over several machines."""

from __future__ import annotations

import subprocess
import sys

CODE = """
from types import SimpleNamespace
from infera_cli.loadtest.load import Load, environment
from infera_cli.loadtest.member import GO, Part

class Runner:
    def __init__(self):
        self.heard, self.users, self.started_with = {}, 3, None
    def register_message(self, word, listener, concurrent=False):
        self.heard[word] = listener
    @property
    def user_count(self):
        self.users = max(0, self.users - 1)
        return self.users
    def start_worker(self, users):
        self.started_with = (self.users, users)

runner = Runner()
part = Part(runner, Load(environment()))
runner.heard[GO](environment=None, msg=SimpleNamespace(data={"in": 0.0}))
print(runner.started_with)
"""


def test_a_load_begins_when_the_user_of_the_one_before_has_left() -> None:
    """Locust starts nobody while it still counts him, and the load would wait for its driver for ever."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=30, check=False)
    assert done.stdout.strip() == "(0, {'LoadUser': 1})", done.stderr
