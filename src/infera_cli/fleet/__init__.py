"""Who is out there: the live registry and what feeds it."""
