"""A real etcd for the tests of discovery."""

from tests.fleet.conftest import etcd

__all__ = ["etcd"]
