"""The way of a request: client connection, decision, worker connection; and the control plane."""
