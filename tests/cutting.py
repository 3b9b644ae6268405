"""A proxy between a service and its clients that breaks connections."""

import socket
import struct
import threading
from contextlib import suppress

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends a reset
_PIECE_BYTES = 65536
_OWN_WITHIN_S = 10


class Cutting:
    """Context manager: a TCP port on loopback that forwards to another port.

    It resets the first connections, each after as many response bytes as `cuts` says. Later connections last.
    """

    def __init__(self, port, cuts):
        self._to, self.cuts, self.resets = port, cuts, 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._service = self._listening  # a placeholder until the first connection to the service
        self._thread = threading.Thread(target=self._serve, name="cutting", daemon=True)

    @property
    def url(self):
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, kind, error, at):
        for end in (self._listening, self._service):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(_OWN_WITHIN_S)

    def _serve(self):
        """Serve one connection after the other, since the tests' client has only one."""
        while True:
            try:
                caller, _ = self._listening.accept()
            except OSError:  # `__exit__` closed the port
                return
            with caller, socket.create_connection(("127.0.0.1", self._to)) as self._service:
                self._service.sendall(caller.recv(_PIECE_BYTES))  # the whole request
                self._answer(caller, self.cuts.pop(0) if self.cuts else None)

    def _answer(self, caller, cut):
        passed = 0
        try:
            while piece := self._service.recv(_PIECE_BYTES):
                if cut is not None and passed + len(piece) > cut:
                    caller.sendall(piece[: cut - passed])
                    caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                    self.resets += 1
                    return
                caller.sendall(piece)
                passed += len(piece)
        except OSError:  # the caller has left
            return
