"""One file a policy; the rows are in `routing.catalogue`."""
