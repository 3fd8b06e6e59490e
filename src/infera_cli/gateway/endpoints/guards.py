"""Dependencies that let a request in or raise (rulings 6)."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import Request

from infera_cli.gateway.access import Access

Guard = Callable[[Request], None]


def client_guard(access: Access) -> Guard:
    """Let in who shows a client key, if keys are configured."""

    def need_client(request: Request) -> None:
        access.require_client(request.scope["headers"])

    return need_client


def admin_guard(access: Access) -> Guard:
    """Let in who shows the admin token, or comes from this machine when there is none."""

    def need_admin(request: Request) -> None:
        access.require_admin(request.scope["headers"], request.client.host if request.client else None)

    return need_admin
