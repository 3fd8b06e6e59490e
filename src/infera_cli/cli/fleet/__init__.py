"""`infera fleet`: replicas on declared devices, here and over SSH; a verb a file."""

from infera_cli.cli.fleet import down, logs, restart, rollout, scale, status, up
from infera_cli.cli.groups import PlainCommand, noun

app = noun("Launch, watch and stop replicas on the machines of a replica file, here and over SSH.")
app.command(cls=PlainCommand)(up.up)
app.command(cls=PlainCommand)(down.down)
app.command(cls=PlainCommand)(status.status)
app.command(cls=PlainCommand)(logs.logs)
app.command(cls=PlainCommand)(scale.scale)
app.command(cls=PlainCommand)(restart.restart)
app.command(cls=PlainCommand)(rollout.rollout)
