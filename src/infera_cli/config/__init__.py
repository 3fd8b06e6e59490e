"""Every setting once; layers; origins."""
