"""A context: what a fork of the zygote becomes."""

import asyncio
import os
import select
import signal
import sys

from . import cell, environment, figures, interrupts, results, seeds, shell, stdio, wire


def become(shell_of_zygote, request, control, standard):
    """Turns this process, just forked, into the context of a `fork` request, and serves it to its end.

    `control` is the socket to the agent, `standard` the descriptors for output and error. Gives the exit status.
    """
    os.setsid()
    stdio.adopt(standard)
    seeds.reseed(bytes.fromhex(request["entropy"]))
    environment.adopt(request["env"])
    os.chdir(request["cwd"])
    guard = interrupts.Interrupts()
    guard.install()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    channel = wire.Channel(control, shield=guard.held)
    sink = results.Results(channel)
    shell_of_zygote.results = sink
    figures.attach(sink)
    # A child that a cell forks must neither write what its parent has buffered nor speak to the agent.
    os.register_at_fork(before=stdio.flush, after_in_child=channel.abandon)
    return serve(channel, cell.Runner(shell_of_zygote, sink, guard))


def serve(channel, runner):
    """Answers the agent until it closes the socket."""
    while True:
        await_message(channel)
        try:
            message, descriptors = channel.receive()
        except wire.Malformed as error:
            print(f"The context got a message that it does not understand: {error}", file=sys.stderr)
            continue
        wire.close_all(descriptors)
        if message is None:
            return 0
        if message.get("op") == "run":
            channel.send(runner.run(message.get("cell"), str(message.get("code", "")), _variables(message)))
        elif message.get("op") == "thaw":
            _thaw(message)


def await_message(channel):
    """Blocks until there is something to receive. Tasks that cells left in the event loop go on meanwhile."""
    loop = shell.existing_loop()
    if loop is None:
        return
    while asyncio.all_tasks(loop) and not select.select([channel], [], [], 0)[0]:
        loop.run_until_complete(_readable(loop, channel))


async def _readable(loop, channel):
    arrived = loop.create_future()
    loop.add_reader(channel, lambda: arrived.done() or arrived.set_result(None))
    try:
        await arrived
    finally:
        loop.remove_reader(channel)


def _thaw(message):
    """Makes the context of a restored machine a new one, unanswered: no two children of a snapshot go on with the same
    numbers, not even those of a generator that a cell has seeded."""
    try:
        entropy = bytes.fromhex(message.get("entropy", ""))
    except (TypeError, ValueError):
        # The kernel's entropy is mixed in whatever this is.
        entropy = b""
    seeds.reseed(entropy)
    environment.adopt(_variables(message))


def _variables(message):
    variables = message.get("env") or {}
    return {} if environment.invalid(variables) else variables
