"""A context driver as small as the protocol allows, so that the agent's side is tested without IPython."""

import array
import io
import json
import os
import random
import signal
import socket
import sys
import traceback


class Channel:
    def __init__(self, sock):
        self.sock = sock

    def send(self, message):
        body = json.dumps(message).encode()
        self.sock.sendall(len(body).to_bytes(4, "big") + body)

    def exactly(self, count):
        data = b""
        while len(data) < count:
            piece = self.sock.recv(count - len(data))
            if not piece:
                return None
            data += piece
        return data

    def receive(self):
        header, ancillary, _, _ = self.sock.recvmsg(4, socket.CMSG_SPACE(16 * 4))
        if not header:
            return None, []
        descriptors = array.array("i")
        for _, _, data in ancillary:
            descriptors.frombytes(data)
        header += self.exactly(4 - len(header)) or b""
        return json.loads(self.exactly(int.from_bytes(header, "big"))), list(descriptors)


def outcome(code, namespace):
    try:
        exec(compile(code, "<cell>", "exec"), namespace)
        return {"status": "ok", "exit_code": 0}
    except SystemExit as stop:
        return {"status": "exit", "exit_code": stop.code or 0}
    except KeyboardInterrupt:
        return {"status": "interrupted", "exit_code": 1}
    except BaseException as error:
        described = {"name": type(error).__name__, "value": str(error), "traceback": traceback.format_exc()}
        return {"status": "error", "exit_code": 1, "error": described}


def become_context(request, descriptors):
    control, stdout, stderr = descriptors
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.close(stdout)
    os.close(stderr)
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), write_through=True)
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), write_through=True)
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    random.seed(request["entropy"])
    armed = False

    def interrupt(_signum, _frame):
        if armed:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    channel = Channel(socket.socket(fileno=control))
    # A child that a cell forks is no context.
    os.register_at_fork(after_in_child=channel.sock.close)
    namespace = {}
    count = 0
    while True:
        message, _ = channel.receive()
        if message is None:
            os._exit(0)
        if message["op"] == "thaw":
            random.seed(message["entropy"])
            os.environ.update(message["env"])
            continue
        count += 1

        def result(bundle, display_id=None, update=False, cell=message["cell"]):
            event = {"event": "result", "cell": cell, "bundle": bundle, "is_last_expression": False}
            channel.send(event | ({"display_id": display_id} if display_id else {}) | ({"update": True} if update else {}))

        namespace["result"] = result
        saved = dict(os.environ)
        os.environ.update(message["env"])
        armed = True
        done = outcome(message["code"], namespace)
        armed = False
        os.environ.clear()
        os.environ.update(saved)
        sys.stdout.flush()
        channel.send({"event": "done", "cell": message["cell"], "execution_count": count} | done)


def main():
    control = socket.socket(fileno=3)
    control.set_inheritable(False)
    channel = Channel(control)
    wake, woken = os.pipe()
    for descriptor in (wake, woken):
        os.set_blocking(descriptor, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel.send({"event": "ready"})
    import select

    while True:
        ready, _, _ = select.select([control, wake], [], [])
        if wake in ready:
            os.read(wake, 4096)
            while True:
                try:
                    pid, status = os.waitpid(-1, os.WNOHANG)
                except ChildProcessError:
                    break
                if pid == 0:
                    break
                channel.send({"event": "exited", "pid": pid, "status": status})
        if control not in ready:
            continue
        message, descriptors = channel.receive()
        if message is None:
            return
        if message["op"] == "warm":
            done = outcome(message["code"], {})
            if done["status"] == "ok":
                channel.send({"event": "warmed"})
            else:
                channel.send({"event": "failed", "op": "warm", "message": done["error"]["value"]})
        elif message["op"] == "thaw":
            random.seed(message["entropy"])
            os.environ.update(message["env"])
            channel.send({"event": "thawed"})
        elif message["op"] == "fork":
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                control.close()
                become_context(message, descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            channel.send({"event": "forked", "context": message["context"], "pid": pid})


main()
