"""The zygote: imports once, then forks a context whenever the agent asks. It never runs a caller's code itself.

One thread, one socket, one pipe that tells of ended children. Bad input is answered with `failed`; only the end of the
socket ends it.
"""

import os
import select
import signal
import socket
import sys
import traceback

from . import context, environment, seeds, shell, stdio, text, warm, wire

CONTROL = 3
"""The descriptor that the agent leaves its socket on."""


class Refused(Exception):
    """A request that cannot be done, and why, in one sentence."""


class Zygote:
    """Serves the agent."""

    def __init__(self, control):
        self._control = control
        self._channel = wire.Channel(control)
        self._shell = shell.create()
        self._wake, self._woken = _wake_pipe()

    def serve(self):
        """Until the agent closes the socket. Gives the exit status; that of a context in the process of one."""
        try:
            self._channel.send({"event": "ready"})
            return self._serve()
        except ConnectionError:
            # The agent went away while it was being answered.
            return 0

    def _serve(self):
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        while True:
            for descriptor, _events in poll.poll():
                if descriptor == self._wake:
                    self._reap()
                elif (status := self._answer()) is not None:
                    return status

    def _answer(self):
        """Handles one request. None to go on, an exit status to leave."""
        operation, descriptors = "?", []
        try:
            message, descriptors = self._channel.receive()
            if message is None:
                return 0
            operation = str(message.get("op"))
            if operation == "fork":
                return self._fork(message, descriptors)
            self._channel.send({"event": self._change(operation, message)})
        except ConnectionError:
            raise
        except (Refused, wire.Malformed) as error:
            self._fail(operation, "invalid", str(error))
        except BlockingIOError:
            self._fail(operation, "too_many", "the machine has no room for another process now; end one, or give it more")
        except Exception as error:
            traceback.print_exc()
            self._fail(operation, "internal", text.describe(error))
        finally:
            wire.close_all(descriptors)
        return None

    def _fail(self, operation, code, message):
        """`code` is one of the agent's kinds of refusal."""
        self._channel.send({"event": "failed", "op": operation, "code": code, "message": message})

    def _change(self, operation, message):
        """Does what changes the zygote itself; gives the event that says so."""
        if operation == "warm":
            self._warm(message)
            return "warmed"
        if operation == "thaw":
            variables = _variables(message)
            seeds.reseed(_entropy(message))
            environment.adopt(variables)
            return "thawed"
        raise Refused(f"unknown op {operation!r}")

    def _warm(self, message):
        code = message.get("code")
        if not isinstance(code, str):
            raise Refused("code is not text")
        try:
            warm.warm(self._shell, code)
        except BaseException as error:
            raise Refused(f"the warm-up raised {text.describe(error)}") from error

    def _fork(self, message, descriptors):
        request = _fork_request(message, descriptors)
        stdio.flush()
        pid = os.fork()
        if pid == 0:
            return self._be_context(request, descriptors)
        self._channel.send({"event": "forked", "context": message.get("context"), "pid": pid})
        return None

    def _be_context(self, request, descriptors):
        signal.set_wakeup_fd(-1)
        wire.close_all([self._wake, self._woken])
        self._channel.abandon()
        control = socket.socket(fileno=descriptors[0])
        standard = descriptors[1:]
        descriptors.clear()
        try:
            return context.become(self._shell, request, control, standard)
        except ConnectionError:
            # The agent closed the context while it was answering.
            return 0
        finally:
            stdio.flush()

    def _reap(self):
        os.read(self._wake, 4096)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._channel.send({"event": "exited", "pid": pid, "status": status})


def _wake_pipe():
    """A pipe that gets a byte with every SIGCHLD."""
    wake, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda _signum, _frame: None)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    # An interrupt that is meant for a context, or for nobody, must not end the zygote.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return wake, woken


def _fork_request(message, descriptors):
    if len(descriptors) != 3:
        raise Refused(f"fork needs 3 descriptors, got {len(descriptors)}")
    cwd = message.get("cwd")
    if not isinstance(cwd, str) or "\0" in cwd or not os.path.isdir(cwd):
        raise Refused(f"cwd: {cwd!r} is no directory that the interpreter can see")
    if not os.access(cwd, os.X_OK):
        raise Refused(f"cwd: the interpreter may not enter {cwd!r}")
    _entropy(message)
    return {"cwd": cwd, "env": _variables(message), "entropy": message["entropy"]}


def _entropy(message):
    try:
        entropy = bytes.fromhex(message.get("entropy"))
    except (TypeError, ValueError):
        entropy = b""
    if len(entropy) < 32:
        raise Refused("entropy is not 64 hexadecimal digits")
    return entropy


def _variables(message):
    variables = message.get("env") or {}
    problem = environment.invalid(variables)
    if problem:
        raise Refused(problem)
    return variables


def main():
    """Runs the zygote on descriptor 3; gives its exit status."""
    os.set_inheritable(CONTROL, False)
    stdio.open_streams()
    warm.prepare()
    status = Zygote(socket.socket(fileno=CONTROL)).serve()
    # Contexts come back here, too: leave without the interpreter's teardown, which would copy pages for nothing.
    stdio.flush()
    sys.stdout = sys.stderr = None
    os._exit(status)
