"""Launch a replica and stop it again through a running server: `python examples/grow_and_shrink.py URL`.

Start the server with `infera serve --replicas examples/fleet.json --host 127.0.0.1`. With an admin token, put it into
INFERA_ADMIN_TOKEN.
"""

from __future__ import annotations

import os
import sys
import time

import httpx


def main(url: str) -> None:
    """One more replica, wait until it serves, and one less."""
    token = os.environ.get("INFERA_ADMIN_TOKEN")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with httpx.Client(base_url=url, headers=headers, timeout=600) as server:
        answer = server.post("/replicas")
        if answer.status_code == 409:
            sys.exit(f"no room: {answer.json()['message']}")
        name = answer.raise_for_status().json()["name"]
        print(f"launched {name}")
        while not ready(server, name):
            time.sleep(0.5)
        print(f"{name} is ready")
        answer = server.delete(f"/replicas/{name}").raise_for_status()
        print(f"stopped {name}, free now: {', '.join(answer.json()['capacity']['free_slots'])}")


def ready(server: httpx.Client, name: str) -> bool:
    """Whether that replica takes requests; ends the program where its launch failed."""
    listing = server.get("/replicas").raise_for_status().json()
    slot = next(slot for slot in listing["slots"] if slot["slot"] == name)
    if slot["state"] == "free":
        sys.exit(f"{name} failed: {slot['error']}")
    return bool(slot["ready"])


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000")
